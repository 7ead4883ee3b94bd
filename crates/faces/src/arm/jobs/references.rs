//! What a job points at by name (code, environment), looked up and turned into places in the workspace's own storage.
//! Data has a file of its own, `data.rs`.

use neap_core::documents::{AssetDocument, BlobPath, JobDocument};
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use neap_ledger::AssetRow;
use serde_json::Value;

use super::data::Datastores;
use crate::app::{App, unreadable};
use crate::arm::paths::{self, Version};
use crate::elsewhere::{self, DataRules};
use crate::limits;
use crate::workspace_files;

/// Looks registered things up. A trait so that reading a job can be tested without a ledger.
pub(super) trait Shelf {
    /// `properties` of an asset version; `None` version means the newest that is not archived.
    fn asset(&self, kind: &str, name: &str, version: Option<&str>) -> Result<Option<Value>, Refusal>;

    /// The definition of a job of this workspace.
    fn job(&self, name: &str) -> Result<Option<JobDocument>, Refusal>;

    /// Every datastore on record (not the workspace's own), with its `properties`.
    fn datastores(&self) -> Result<Datastores, Refusal>;

    /// What the configuration says about data.
    fn rules(&self) -> &DataRules;
}

pub(super) struct LedgerShelf<'a> {
    pub app: &'a App,
    pub workspace: &'a Workspace,
}

impl Shelf for LedgerShelf<'_> {
    fn asset(&self, kind: &str, name: &str, version: Option<&str>) -> Result<Option<Value>, Refusal> {
        let reader = self.app.control.reader();
        let properties = |row: AssetRow| {
            self.app.document::<AssetDocument>(&row.document).map(|document| document.properties)
        };
        if let Some(version) = version {
            let row = reader.asset(self.workspace.id, kind, name, version).map_err(unreadable)?;
            return row.map(properties).transpose();
        }
        let newest = reader.asset_versions(self.workspace.id, kind, name, limits::PAGE_ROWS_MAX as u32);
        for row in newest.map_err(unreadable)? {
            let found = properties(row)?;
            if found["isArchived"] != true {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn job(&self, name: &str) -> Result<Option<JobDocument>, Refusal> {
        let row = self.app.control.reader().job(self.workspace.id, name).map_err(unreadable)?;
        row.map(|row| self.app.document(&row.document)).transpose()
    }

    fn datastores(&self) -> Result<Datastores, Refusal> {
        let rows = self.app.control.reader().asset_names(self.workspace.id, elsewhere::DATASTORE);
        let rows = rows.map_err(unreadable)?.into_iter();
        rows.map(|row| {
            let document: AssetDocument = self.app.document(&row.document)?;
            Ok((row.name, document.properties))
        })
        .collect()
    }

    fn rules(&self) -> &DataRules {
        &self.app.data.rules
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

fn as_folder(mut blob: BlobPath) -> BlobPath {
    if !blob.path.is_empty() && !blob.path.ends_with('/') {
        blob.path.push('/');
    }
    blob
}

#[cfg(test)]
#[path = "references_tests.rs"]
pub(super) mod tests;
