//! ARM resource ids: written for answers, read out of requests.

use neap_core::ClusterId;
use neap_core::cluster::Cluster;
use neap_core::state::Workspace;

pub(crate) use neap_identity::derived_guid;

pub(crate) const NAMESPACE: &str = "Microsoft.MachineLearningServices";

pub(crate) fn group_id(subscription: &str, group: &str) -> String {
    format!("/subscriptions/{subscription}/resourceGroups/{group}")
}

pub(crate) fn workspace_id(workspace: &Workspace) -> String {
    format!(
        "{}/providers/{NAMESPACE}/workspaces/{}",
        group_id(&workspace.subscription, &workspace.group),
        workspace.name
    )
}

/// The id of a child: `computes/{name}`, `codes/{name}/versions/{version}`…
pub(crate) fn child_id(workspace: &Workspace, tail: &str) -> String {
    format!("{}/{tail}", workspace_id(workspace))
}

pub(crate) fn cluster_id(workspace: &Workspace, cluster: &Cluster) -> String {
    child_id(workspace, &format!("computes/{}", cluster.name))
}

/// The name that stands for a cluster in an operation's URL.
pub(crate) fn cluster_deletion(id: ClusterId) -> String {
    format!("delete-cluster-{id}")
}

/// A reference to something in a workspace, as jobs write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Whether the workspace named in the id is this one; short forms always are.
    pub here: bool,
    pub name: String,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Absent,
    Exact(String),
    Label(String),
}

/// Reads `{WS}/{kind}/{name}[/versions/{v}|/labels/{l}]`, with or without `azureml:` before it, and the short forms
/// `azureml:{name}:{version}`, `azureml:{name}@{label}`, `{name}:{version}`.
pub(crate) fn reference(text: &str, kind: &str, workspace: &Workspace) -> Option<Reference> {
    let text = text.strip_prefix("azureml:").unwrap_or(text);
    if text.starts_with("//") {
        return None;
    }
    if !text.starts_with('/') {
        if text.is_empty() || text.contains('/') {
            return None;
        }
        let (name, version) = if let Some((name, label)) = text.split_once('@') {
            (name, Version::Label(label.into()))
        } else if let Some((name, version)) = text.split_once(':') {
            (name, Version::Exact(version.into()))
        } else {
            (text, Version::Absent)
        };
        return Some(Reference { here: true, name: name.into(), version });
    }
    let segments = crate::ask::segments(text, 0);
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let [
        "subscriptions",
        s,
        "resourcegroups",
        g,
        "providers",
        "microsoft.machinelearningservices",
        "workspaces",
        w,
        found,
        name,
        rest @ ..,
    ] = words.as_slice()
    else {
        return None;
    };
    if *found != kind {
        return None;
    }
    let version = match rest {
        [] => Version::Absent,
        ["versions", version] => Version::Exact((*version).into()),
        ["labels", label] => Version::Label((*label).into()),
        _ => return None,
    };
    let here = s.eq_ignore_ascii_case(&workspace.subscription)
        && g.eq_ignore_ascii_case(&workspace.group)
        && w.eq_ignore_ascii_case(&workspace.name);
    // A client that has resolved a label leaves the prefix on the name.
    let name = name.strip_prefix("azureml:").unwrap_or(name);
    Some(Reference { here, name: name.into(), version })
}

#[cfg(test)]
pub(crate) fn sample_workspace() -> Workspace {
    use neap_core::{DocHash, Millis, WorkspaceId};
    Workspace {
        id: WorkspaceId(1),
        subscription: "s1".into(),
        group: "neap".into(),
        name: "default".into(),
        location: "eastus".into(),
        document: DocHash([0; 32]),
        created: Millis(0),
        modified: Millis(0),
        deleting: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_in_every_form() {
        let here = sample_workspace();
        let ws = workspace_id(&here);
        let check = |text: &str, expect: Option<(bool, &str, Version)>| {
            let read = reference(text, "environments", &here).map(|r| (r.here, r.name, r.version));
            assert_eq!(read, expect.map(|(h, n, v)| (h, n.to_owned(), v)), "{text}");
        };
        check(&format!("{ws}/environments/e/versions/2"), Some((true, "e", Version::Exact("2".into()))));
        check(
            &format!(
                "azureml:{}/environments/E/labels/latest",
                ws.replace("resourceGroups", "RESOURCEGROUPS")
            ),
            Some((true, "E", Version::Label("latest".into()))),
        );
        check(
            &format!("{}/environments/e", ws.replace("default", "other")),
            Some((false, "e", Version::Absent)),
        );
        check("azureml:e:3", Some((true, "e", Version::Exact("3".into()))));
        check(
            &format!("{ws}/environments/azureml:e/versions/2"),
            Some((true, "e", Version::Exact("2".into()))),
        );
        check("e@latest", Some((true, "e", Version::Label("latest".into()))));
        check("azureml://registries/azureml/environments/x/labels/latest", None);
        check(&format!("{ws}/codes/e/versions/2"), None);
    }
}
