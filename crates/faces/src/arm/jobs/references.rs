//! What a job points at (code, environment, data, datastores), turned into places in the workspace's own storage.

use neap_core::documents::{AssetDocument, BlobPath};
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::Value;

use crate::app::{App, unreadable};
use crate::arm::paths::{self, Version};
use crate::workspace_files::{self, account, container_of};

/// Looks registered things up. A trait so that reading a job can be tested without a ledger.
pub(super) trait Shelf {
    /// `properties` of an asset version; `None` version means the newest.
    fn asset(&self, kind: &str, name: &str, version: Option<&str>) -> Result<Option<Value>, Refusal>;
}

pub(super) struct LedgerShelf<'a> {
    pub app: &'a App,
    pub workspace: &'a Workspace,
}

impl Shelf for LedgerShelf<'_> {
    fn asset(&self, kind: &str, name: &str, version: Option<&str>) -> Result<Option<Value>, Refusal> {
        let reader = self.app.control.reader();
        let row = match version {
            Some(version) => reader.asset(self.workspace.id, kind, name, version).map_err(unreadable)?,
            None => reader
                .asset_versions(self.workspace.id, kind, name, 1)
                .map_err(unreadable)?
                .into_iter()
                .next(),
        };
        row.map(|row| self.app.document::<AssetDocument>(&row.document).map(|document| document.properties))
            .transpose()
    }
}

/// A registered thing named by an id, or the problem with the id.
pub(super) fn registered(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    id: &str,
    (kinds, kind): (&str, &str),
    missing: Code,
    place: &str,
) -> Result<Result<Value, Problem>, Refusal> {
    let problem = |message: String| Ok(Err(Problem::new(missing, message).at(place)));
    let Some(reference) = paths::reference(id, kinds, workspace) else {
        return problem(format!("'{id}' is not the id of a {kind} version of this workspace."));
    };
    if !reference.here {
        return problem(format!("'{id}' is in another workspace; a job can use what is in its own."));
    }
    let version = match &reference.version {
        Version::Exact(version) => Some(version.as_str()),
        Version::Label(label) if label == "latest" => None,
        Version::Label(label) => {
            return problem(format!("The label '{label}' is not known; 'latest' or a version can be named."));
        }
        Version::Absent => {
            return problem(format!("'{id}' names no version; end it with /versions/N or @latest."));
        }
    };
    match shelf.asset(kind, &reference.name, version)? {
        Some(properties) => Ok(Ok(properties)),
        None => problem(format!(
            "The {kind} '{}' has no version '{}' in this workspace.",
            reference.name,
            version.unwrap_or("latest")
        )),
    }
}

pub(super) fn code(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    id: &str,
    problems: &mut Vec<Problem>,
) -> Result<Option<BlobPath>, Refusal> {
    let place = "properties.codeId";
    let properties = match registered(shelf, workspace, id, ("codes", "code"), Code::CodeNotFound, place)? {
        Ok(properties) => properties,
        Err(problem) => {
            problems.push(problem);
            return Ok(None);
        }
    };
    let uri = properties["codeUri"].as_str().unwrap_or("");
    let found = workspace_files::blob_of_url(uri, workspace.id).map(as_folder);
    if found.is_none() {
        problems.push(
            Problem::new(
                Code::CodeNotFound,
                format!("The code '{id}' lies at '{uri}', which is not in this workspace's storage."),
            )
            .at(place),
        );
    }
    Ok(found)
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Environment {
    pub image: Option<String>,
    pub packages: Option<String>,
    /// What the log should say about it.
    pub notes: Vec<String>,
}

pub(super) fn environment(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    id: &str,
    problems: &mut Vec<Problem>,
) -> Result<Environment, Refusal> {
    let place = "properties.environmentId";
    let short = id.strip_prefix("azureml:").unwrap_or(id);
    // Registries and curated environments are Microsoft's: their names are all that is known of them here.
    let curated = short.rsplit('/').next().is_some_and(|name| name.starts_with("AzureML-"))
        || short.contains("/environments/AzureML-");
    if short.starts_with("//registries/")
        || (curated
            && paths::reference(id, "environments", workspace).is_none_or(|r| r.name.starts_with("AzureML-")))
    {
        return Ok(Environment {
            image: Some(id.into()),
            packages: None,
            notes: vec![format!(
                "The environment '{id}' comes from a registry of Azure ML that this server does not have; its packages are not installed."
            )],
        });
    }
    let properties = match registered(
        shelf,
        workspace,
        id,
        ("environments", "environment"),
        Code::EnvironmentNotFound,
        place,
    )? {
        Ok(properties) => properties,
        Err(problem) => {
            problems.push(problem);
            return Ok(Environment::default());
        }
    };
    let text = |key: &str| properties[key].as_str().filter(|text| !text.is_empty()).map(String::from);
    let mut notes = Vec::new();
    if properties["build"].is_object() {
        notes.push(
            "The environment has a build context (Dockerfile); images are not built yet, so it was left out."
                .into(),
        );
    }
    Ok(Environment { image: text("image"), packages: text("condaFile"), notes })
}

/// What is at the end of a data URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    File,
    Folder,
}

/// A data input or output: `azureml://datastores/..`, its long form, or a registered data asset.
pub(super) fn data(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    uri: &str,
    shape: Shape,
    place: &str,
    problems: &mut Vec<Problem>,
) -> Result<Option<BlobPath>, Refusal> {
    if uri.starts_with("azureml://") {
        return Ok(collect(datastore_path(shelf, workspace, uri, shape, place)?, problems));
    }
    if uri.starts_with('/') || uri.starts_with("azureml:") {
        let properties =
            match registered(shelf, workspace, uri, ("data", "data"), Code::ResourceNotFound, place)? {
                Ok(properties) => properties,
                Err(problem) => {
                    // The status of the whole answer is that of a bad request, not of a missing job.
                    problems.push(Problem { code: Code::BadArgument, ..problem });
                    return Ok(None);
                }
            };
        let inner = properties["dataUri"].as_str().unwrap_or("");
        if inner.starts_with("azureml://") {
            return Ok(collect(datastore_path(shelf, workspace, inner, shape, place)?, problems));
        }
        problems.push(unreachable_scheme(inner, place));
        return Ok(None);
    }
    problems.push(unreachable_scheme(uri, place));
    Ok(None)
}

fn collect<T>(found: Result<T, Problem>, problems: &mut Vec<Problem>) -> Option<T> {
    found.map_err(|problem| problems.push(problem)).ok()
}

fn unreachable_scheme(uri: &str, place: &str) -> Problem {
    let scheme = uri.split_once("://").map_or("no scheme", |(scheme, _)| scheme);
    Problem::new(
        Code::NotSupported,
        format!("'{uri}' ({scheme}) cannot be read by jobs yet; upload the data to the workspace and use azureml://datastores/workspaceblobstore/paths/…."),
    )
    .at(place)
}

fn datastore_path(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    uri: &str,
    shape: Shape,
    place: &str,
) -> Result<Result<BlobPath, Problem>, Refusal> {
    let problem = |code: Code, message: String| Ok(Err(Problem::new(code, message).at(place)));
    let rest = uri.trim_start_matches("azureml://");
    let mut rest = rest;
    if rest.to_ascii_lowercase().starts_with("subscriptions/") {
        let parts: Vec<&str> = rest.splitn(7, '/').collect();
        let same = |at: usize, name: &str| parts.get(at).is_some_and(|part| part.eq_ignore_ascii_case(name));
        let named = same(2, "resourcegroups") && same(4, "workspaces");
        if !named || parts.len() < 7 {
            return problem(Code::BadArgument, format!("'{uri}' is not a path in a datastore."));
        }
        if !(same(1, &workspace.subscription) && same(3, &workspace.group) && same(5, &workspace.name)) {
            return problem(
                Code::BadArgument,
                format!("'{uri}' is in another workspace; a job can use what is in its own."),
            );
        }
        rest = parts[6];
    }
    let Some((datastore, path)) = rest.strip_prefix("datastores/").and_then(|rest| rest.split_once('/'))
    else {
        return problem(
            Code::BadArgument,
            format!("'{uri}' is not of the form azureml://datastores/NAME/paths/PATH."),
        );
    };
    let path = path.strip_prefix("paths/").unwrap_or(path);
    let Some(container) = container_of(datastore) else {
        let known = shelf.asset("datastore", datastore, Some("1"))?.is_some();
        return if known {
            problem(
                Code::NotSupported,
                format!(
                    "The datastore '{datastore}' is kept, but jobs cannot read or write other storage than the workspace's own yet."
                ),
            )
        } else {
            problem(
                Code::DatastoreNotFound,
                format!("There is no datastore '{datastore}' in this workspace."),
            )
        };
    };
    let path = path.trim_start_matches('/');
    if !workspace_files::is_safe(path) {
        return problem(Code::BadArgument, format!("'{uri}' has '.' or '..' in its path."));
    }
    let blob = BlobPath { account: account(workspace.id), container: container.into(), path: path.into() };
    Ok(match shape {
        Shape::Folder => Ok(as_folder(blob)),
        Shape::File if blob.path.is_empty() || blob.path.ends_with('/') => Err(Problem::new(
            Code::BadArgument,
            format!("'{uri}' names a folder where a file is asked for (uri_file)."),
        )
        .at(place)),
        Shape::File => Ok(blob),
    })
}

fn as_folder(mut blob: BlobPath) -> BlobPath {
    if !blob.path.is_empty() && !blob.path.ends_with('/') {
        blob.path.push('/');
    }
    blob
}

#[cfg(test)]
#[path = "references_tests.rs"]
pub(super) mod tests;
