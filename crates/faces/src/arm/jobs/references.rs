//! What a job points at by name (code, environment), looked up and turned into places in the workspace's own storage.
//! Data has a file of its own, `data.rs`.

use std::path::Path;

use neap_core::documents::{AssetDocument, BlobPath, ClusterDocument, EnvironmentDocument, JobDocument};
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use neap_ledger::AssetRow;
use serde_json::Value;

use super::data::Datastores;
use crate::app::{App, unreadable};
use crate::arm::paths::{self, Version};
use crate::elsewhere::{self, DataRules};
use crate::environments::EnvironmentRules;
use crate::limits;
use crate::workspace_files;

/// Looks registered things up. A trait so that reading a job can be tested without a ledger.
pub(super) trait Shelf {
    /// `properties` of an asset version; `None` version means the newest that is not archived.
    fn asset(&self, kind: &str, name: &str, version: Option<&str>) -> Result<Option<Value>, Refusal>;

    /// The newest version that is not archived.
    fn newest(&self, kind: &str, name: &str) -> Result<Option<String>, Refusal>;

    /// The definition of a job of this workspace.
    fn job(&self, name: &str) -> Result<Option<JobDocument>, Refusal>;

    /// Every datastore on record (not the workspace's own), with its `properties`.
    fn datastores(&self) -> Result<Datastores, Refusal>;

    /// What the configuration says about data.
    fn rules(&self) -> &DataRules;

    /// What the operator says about environments.
    fn environments(&self) -> &EnvironmentRules;

    /// Whether jobs of this cluster run in containers or not at all.
    fn containers_only(&self, cluster: &str) -> Result<bool, Refusal>;

    /// What is to be said of data that is in another location than the cluster.
    fn apart(&self, _cluster: &str, _document: &JobDocument) -> Result<Vec<String>, Refusal> {
        Ok(Vec::new())
    }
}

/// A cluster with this tag and the value `container` runs its jobs in containers or not at all.
const ISOLATION_TAG: &str = "neap.isolation";

pub(super) struct LedgerShelf<'a> {
    pub app: &'a App,
    pub workspace: &'a Workspace,
}

impl LedgerShelf<'_> {
    fn newest_row(&self, kind: &str, name: &str) -> Result<Option<(AssetRow, Value)>, Refusal> {
        let reader = self.app.control.reader();
        let newest = reader.asset_versions(self.workspace.id, kind, name, limits::PAGE_ROWS_MAX as u32);
        for row in newest.map_err(unreadable)? {
            let found = self.app.document::<AssetDocument>(&row.document)?.properties;
            if found["isArchived"] != true {
                return Ok(Some((row, found)));
            }
        }
        Ok(None)
    }
}

impl Shelf for LedgerShelf<'_> {
    fn asset(&self, kind: &str, name: &str, version: Option<&str>) -> Result<Option<Value>, Refusal> {
        let reader = self.app.control.reader();
        let properties = |row: AssetRow| {
            self.app.document::<AssetDocument>(&row.document).map(|document| document.properties)
        };
        if let Some(version) = version {
            if let Some(draft) = self.app.drafts.asset(kind, name, version) {
                return Ok(Some(draft.clone()));
            }
            let row = reader.asset(self.workspace.id, kind, name, version).map_err(unreadable)?;
            return row.map(properties).transpose();
        }
        Ok(self.newest_row(kind, name)?.map(|(_, properties)| properties))
    }

    fn newest(&self, kind: &str, name: &str) -> Result<Option<String>, Refusal> {
        Ok(self.newest_row(kind, name)?.map(|(row, _)| row.version))
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

    fn environments(&self) -> &EnvironmentRules {
        &self.app.environments
    }

    fn containers_only(&self, cluster: &str) -> Result<bool, Refusal> {
        let state = self.app.state();
        let Some(cluster) = state.cluster(self.workspace.id, cluster) else {
            return Ok(self.app.environments.container_only);
        };
        let tagged = self.app.memory.container_only(cluster.document, || {
            let document: ClusterDocument = self.app.document(&cluster.document)?;
            Ok(document.tags.get(ISOLATION_TAG).is_some_and(|isolation| isolation == "container"))
        })?;
        Ok(tagged || self.app.environments.container_only)
    }

    fn apart(&self, cluster: &str, document: &JobDocument) -> Result<Vec<String>, Refusal> {
        self.notes_of(cluster, document)
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

/// A registered thing with the version that its id stands for now, as `azureml:NAME:VERSION`; nothing for what is no
/// such id, or is not there.
pub(super) fn pinned(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    id: &str,
    (kinds, kind): (&str, &str),
) -> Result<Option<String>, Refusal> {
    let Some(reference) = paths::reference(id, kinds, workspace).filter(|reference| reference.here) else {
        return Ok(None);
    };
    let version = match reference.version {
        Version::Exact(version) => Some(version),
        Version::Label(label) if label == "latest" => shelf.newest(kind, &reference.name)?,
        Version::Label(_) | Version::Absent => None,
    };
    Ok(version.map(|version| format!("azureml:{}:{version}", reference.name)))
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
    pub definition: EnvironmentDocument,
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
    if let Some((name, version)) = elsewhere(id, workspace) {
        return Ok(mapped(shelf.environments(), id, &name, version.as_deref()));
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
    let definition = match defined(&properties, workspace) {
        Ok(definition) => definition,
        Err(why) => {
            problems.push(
                Problem::new(Code::EnvironmentNotFound, format!("The environment '{id}' {why}")).at(place),
            );
            return Ok(Environment::default());
        }
    };
    if let EnvironmentDocument::Image { image, .. } = &definition
        && let Some(archive) = image.strip_prefix("file:")
        && !shelf.environments().allows_archive(Path::new(archive))
    {
        problems.push(
            Problem::new(
                Code::NotSupported,
                format!("The image archive '{archive}' may not be used: it is in none of the folders of environments.archives in config.yaml."),
            )
            .at(place),
        );
    }
    Ok(Environment { definition, notes: Vec::new() })
}

/// The name and version of an environment that is in a registry, or is one of the curated ones: both are not here.
fn elsewhere(id: &str, workspace: &Workspace) -> Option<(String, Option<String>)> {
    let short = id.strip_prefix("azureml:").unwrap_or(id);
    if let Some(rest) = short.strip_prefix("//registries/") {
        let mut parts = rest.split('/').skip_while(|part| *part != "environments").skip(1);
        let name = parts.next().unwrap_or(rest).to_owned();
        return Some((name, parts.nth(1).map(str::to_owned)));
    }
    let reference = paths::reference(id, "environments", workspace)?;
    let version = match reference.version {
        Version::Exact(text) | Version::Label(text) => Some(text),
        Version::Absent => None,
    };
    reference.name.starts_with("AzureML-").then_some((reference.name, version))
}

fn mapped(rules: &EnvironmentRules, id: &str, name: &str, version: Option<&str>) -> Environment {
    let Some(found) = rules.mapped(id, name, version) else {
        return Environment {
            definition: EnvironmentDocument::Nothing,
            notes: vec![format!(
                "The environment '{id}' comes from a registry of Azure ML that this server does not have, and environments.map in config.yaml does not name it; its packages are not installed."
            )],
        };
    };
    let definition = of_parts(found.image.clone(), found.packages.clone());
    let words = match &definition {
        EnvironmentDocument::Image { image, packages: Some(_) } => format!("image {image} with packages"),
        EnvironmentDocument::Image { image, packages: None } => format!("image {image}"),
        EnvironmentDocument::Packages { .. } => "packages".into(),
        EnvironmentDocument::Nothing | EnvironmentDocument::Build { .. } => "the host as it is".into(),
    };
    let notes = vec![format!(
        "The environment '{id}' is replaced by {words}, as environments.map in config.yaml says."
    )];
    Environment { definition, notes }
}

fn of_parts(image: Option<String>, packages: Option<String>) -> EnvironmentDocument {
    match (image, packages) {
        (Some(image), packages) => EnvironmentDocument::Image { image, packages },
        (None, Some(packages)) => EnvironmentDocument::Packages { packages },
        (None, None) => EnvironmentDocument::Nothing,
    }
}

/// A registered version's definition, or what is wrong with it.
fn defined(properties: &Value, workspace: &Workspace) -> Result<EnvironmentDocument, String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(String::from);
    let build = &properties["build"];
    let Some(uri) = text(&build["contextUri"]) else {
        return Ok(of_parts(text(&properties["image"]), text(&properties["condaFile"])));
    };
    let at = workspace_files::blob_of_url(&uri, workspace.id)
        .or_else(|| workspace_files::blob_of_short_url(&uri, workspace.id))
        .map(as_folder)
        .ok_or_else(|| {
            format!("has its build context at '{uri}', which is not in this workspace's storage.")
        })?;
    let dockerfile = text(&build["dockerfilePath"]).unwrap_or_else(|| "Dockerfile".into());
    if !workspace_files::is_safe(&dockerfile.trim_start_matches("./").replace("./", "")) {
        return Err(format!("has a Dockerfile at '{dockerfile}', outside of its build context."));
    }
    Ok(EnvironmentDocument::Build { at, dockerfile: dockerfile.trim_start_matches("./").to_owned() })
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
