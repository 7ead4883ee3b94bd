//! What somebody has written and not put on the server yet: a plan goes by it as if it were there. It comes with the
//! request, beside the job, and goes with it.

use std::collections::BTreeMap;

use neap_core::Problem;
use neap_core::documents::BlobPath;
use neap_core::state::Workspace;
use serde_json::Value;

use crate::arm::errors::bad;
use crate::arm::paths::{self, Version};
use crate::workspace_files;

/// The kinds that there can be drafts of, as ids and as the ledger have them.
const KINDS: &[(&str, &str)] = &[("components", "component"), ("environments", "environment")];

#[derive(Debug, Default)]
pub struct Drafts {
    /// `properties` of asset versions, by kind, name and version.
    assets: BTreeMap<(String, String, String), Value>,
    /// Places in the workspace's own storage where something will be.
    uploads: Vec<BlobPath>,
}

impl Drafts {
    /// Takes `drafts` (`[{id, properties}]`) and `uploads` (paths in the default datastore) out of a request's body.
    pub(crate) fn take(body: &mut Value, workspace: &Workspace, problems: &mut Vec<Problem>) -> Self {
        let mut taken = Self::default();
        let mut list =
            |key: &str| body.as_object_mut().and_then(|body| body.remove(key)).unwrap_or(Value::Null);
        let (drafts, uploads) = (list("drafts"), list("uploads"));
        for (at, draft) in drafts.as_array().into_iter().flatten().enumerate() {
            let id = draft["id"].as_str().unwrap_or_default();
            match (key_of(id, workspace), &draft["properties"]) {
                (Some(key), Value::Object(properties)) => {
                    taken.assets.insert(key, Value::Object(properties.clone()));
                }
                _ => problems.push(bad(
                    format!("'drafts[{at}]' needs the 'id' of a component or an environment of this workspace, with its version, and its 'properties'."),
                    &format!("drafts[{at}]"),
                )),
            }
        }
        for (at, path) in uploads.as_array().into_iter().flatten().enumerate() {
            match path.as_str().filter(|path| !path.is_empty()) {
                Some(path) => {
                    taken.uploads.push(workspace_files::default_output(workspace.id, path.to_owned()));
                }
                None => problems.push(bad(
                    format!("'uploads[{at}]' is a path in the datastore '{}'.", workspace_files::BLOB_STORE),
                    &format!("uploads[{at}]"),
                )),
            }
        }
        taken
    }

    pub(crate) fn asset(&self, kind: &str, name: &str, version: &str) -> Option<&Value> {
        if self.assets.is_empty() {
            return None;
        }
        self.assets.get(&(kind.to_owned(), name.to_owned(), version.to_owned()))
    }

    pub(crate) fn uploads(&self) -> &[BlobPath] {
        &self.uploads
    }
}

fn key_of(id: &str, workspace: &Workspace) -> Option<(String, String, String)> {
    KINDS.iter().find_map(|(kinds, kind)| {
        let found =
            paths::reference(id, kinds, workspace).filter(|found| found.here && id.starts_with('/'))?;
        match found.version {
            Version::Exact(version) => Some(((*kind).to_owned(), found.name, version)),
            Version::Label(_) | Version::Absent => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::paths::sample_workspace;
    use serde_json::json;

    const WS: &str = "/subscriptions/s1/resourceGroups/neap/providers/Microsoft.MachineLearningServices/workspaces/default";

    #[test]
    fn drafts_are_found_and_the_body_is_as_it_would_be_without_them() {
        let mut body = json!({"properties": {"jobType": "Command"}, "uploads": ["up"], "drafts": [
            {"id": format!("{WS}/components/c/versions/1"), "properties": {"componentSpec": {"command": "x"}}},
            {"id": format!("{WS}/environments/e/versions/v"), "properties": {"image": "i"}},
        ]});
        let mut problems = Vec::new();
        let drafts = Drafts::take(&mut body, &sample_workspace(), &mut problems);
        assert_eq!(problems, []);
        assert_eq!(body, json!({"properties": {"jobType": "Command"}}));
        assert_eq!(drafts.asset("environment", "e", "v"), Some(&json!({"image": "i"})));
        assert!(drafts.asset("component", "c", "1").is_some());
        for (kind, name, version) in [("component", "e", "v"), ("environment", "e", "w"), ("data", "e", "v")]
        {
            assert_eq!(drafts.asset(kind, name, version), None);
        }
        assert_eq!(drafts.uploads().iter().map(|at| at.path.as_str()).collect::<Vec<_>>(), ["up"]);
    }

    #[test]
    fn all_that_is_wrong_with_drafts_is_told() {
        let mut body = json!({"uploads": ["", 3], "drafts": [
            {"id": "azureml:c:1", "properties": {}},
            {"id": format!("{WS}/components/c"), "properties": {}},
            {"id": format!("{WS}/components/c/versions/1")},
            {"id": format!("{WS}/codes/c/versions/1"), "properties": {}},
            3,
        ]});
        let mut problems = Vec::new();
        Drafts::take(&mut body, &sample_workspace(), &mut problems);
        assert_eq!(problems.len(), 7, "{problems:?}");
    }
}
