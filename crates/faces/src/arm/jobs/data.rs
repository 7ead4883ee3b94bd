//! Where data lies: from the URI of an input or output to a place that the blob face reaches, and back.
//!
//! Nothing is fetched here. What the configuration maps to a local copy is looked up first.

use std::path::{Path, PathBuf};

use neap_core::documents::{BlobPath, OutputDocument};
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use neap_storage::foreign::{self, container_of_datastore, datastore_of_container};
use serde_json::Value;

use super::references::{Shelf, registered};
use crate::elsewhere;
use crate::workspace_files::{self, account, container_of};

/// An asset may name an output of a job, which lies in a datastore: never more steps than this.
const STEPS_MAX: u32 = 4;
/// The output that every job has: its artifacts, with `outputs/` and the logs.
pub(super) const ARTIFACTS: &str = "artifacts";

/// What is expected at the end of a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    File,
    Folder,
    /// One or the other: models.
    Any,
}

/// A URI in a job, and what the job says about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub uri: &'a str,
    pub shape: Shape,
    /// Short names (`azureml:NAME:VERSION`) are looked for among models, not among data.
    pub model: bool,
    pub place: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub at: BlobPath,
    pub shape: Shape,
    /// Of a web address.
    pub query: Option<String>,
    /// The address itself, for jobs that open it by themselves.
    pub uri: String,
}

/// Finds the place of an input.
pub(super) fn input(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    asked: Asked<'_>,
) -> Result<Result<Found, Problem>, Refusal> {
    Search { shelf, workspace, asked, write: false }.find(asked.uri, STEPS_MAX)
}

/// Finds the place of an output: it must be one that can be written to.
pub(super) fn output(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    asked: Asked<'_>,
) -> Result<Result<Found, Problem>, Refusal> {
    Search { shelf, workspace, asked, write: true }.find(asked.uri, STEPS_MAX)
}

struct Search<'a> {
    shelf: &'a dyn Shelf,
    workspace: &'a Workspace,
    asked: Asked<'a>,
    write: bool,
}

type Answer = Result<Result<Found, Problem>, Refusal>;

impl Search<'_> {
    fn problem(&self, code: Code, message: String) -> Answer {
        Ok(Err(Problem::new(code, message).at(self.asked.place)))
    }

    fn find(&self, uri: &str, steps: u32) -> Answer {
        if !self.write
            && let Some(copy) = self.shelf.rules().mapped(uri)
        {
            return self.file(uri, &copy);
        }
        let (scheme, rest) = match uri.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None if uri.starts_with("runs:/") => ("runs".to_owned(), uri.trim_start_matches("runs:/")),
            None => (String::new(), uri),
        };
        match scheme.as_str() {
            "azureml" => self.azureml(uri, rest, steps),
            "" if self.is_asset(uri) => self.asset(uri, steps),
            _ if self.write && !matches!(scheme.as_str(), "wasb" | "wasbs" | "abfs" | "abfss" | "s3" | "s3a") => self
                .problem(
                    Code::BadArgument,
                    format!("'{uri}' cannot be written to; an output goes to a datastore (azureml://datastores/NAME/paths/PATH)."),
                ),
            "runs" => {
                let (run, path) = rest.split_once('/').unwrap_or((rest, ""));
                self.job_output(uri, run, ARTIFACTS, path)
            }
            "file" => {
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                let decoded = percent_encoding::percent_decode_str(path).decode_utf8();
                match decoded {
                    Ok(path) if path.starts_with('/') => self.file(uri, Path::new(&*path)),
                    _ => self.problem(Code::BadArgument, format!("'{uri}' is not of the form file:///PATH.")),
                }
            }
            "" if uri.starts_with('/') => self.file(uri, Path::new(uri)),
            "http" | "https" => self.web(&scheme, uri, rest),
            "wasb" | "wasbs" | "abfs" | "abfss" => {
                let parts = rest.split_once('@').and_then(|(container, rest)| {
                    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
                    Some((container, host.split('.').next()?, path))
                });
                match parts {
                    Some((container, account, path)) if !container.is_empty() && !account.is_empty() => {
                        self.azure(uri, account, container, path)
                    }
                    _ => self.problem(
                        Code::BadArgument,
                        format!("'{uri}' is not of the form {scheme}://CONTAINER@ACCOUNT.HOST/PATH."),
                    ),
                }
            }
            "s3" | "s3a" => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                match self.shelf.datastores()?.into_iter().find(|(_, p)| elsewhere::is_bucket(p, bucket)) {
                    Some((name, _)) => self.shaped(uri, &container_of_datastore(&name), key, None),
                    None if self.write => self.no_datastore(uri, &format!("the bucket '{bucket}'")),
                    None => self.shaped(uri, foreign::S3, &format!("{bucket}/{key}"), None),
                }
            }
            "" => self.problem(
                Code::BadArgument,
                format!("'{uri}' is no URI and no registered asset. A local file is uploaded by the client before it sends the job."),
            ),
            other => self.problem(
                Code::NotSupported,
                format!("'{uri}' ({other}) cannot be read; azureml, https, http, wasbs, abfss, s3, file and runs can."),
            ),
        }
    }

    fn is_asset(&self, uri: &str) -> bool {
        uri.starts_with("azureml:") || uri.to_ascii_lowercase().starts_with("/subscriptions/")
    }

    fn asset(&self, uri: &str, steps: u32) -> Answer {
        if self.write {
            return self.problem(
                Code::BadArgument,
                format!("'{uri}' is an asset, which never changes; give a path in a datastore."),
            );
        }
        if steps == 0 {
            return self.problem(Code::BadArgument, format!("'{uri}' leads to other assets without end."));
        }
        let lower = uri.to_ascii_lowercase();
        let model =
            if lower.contains("/models/") { true } else { !lower.contains("/data/") && self.asked.model };
        let (kinds, key, type_key) = if model {
            (("models", "model"), "modelUri", "modelType")
        } else {
            (("data", "data"), "dataUri", "dataType")
        };
        let properties = match registered(
            self.shelf,
            self.workspace,
            uri,
            kinds,
            Code::ResourceNotFound,
            self.asked.place,
        )? {
            Ok(properties) => properties,
            // The status of the whole answer is that of a bad request, not of a missing job.
            Err(problem) => return Ok(Err(Problem { code: Code::BadArgument, ..problem })),
        };
        let is = properties[type_key].as_str().unwrap_or_default();
        let fits = match self.asked.shape {
            Shape::File => !matches!(is, "uri_folder" | "mltable" | "mlflow_model" | "triton_model"),
            Shape::Folder => is != "uri_file",
            Shape::Any => true,
        };
        if !fits {
            let wanted = if self.asked.shape == Shape::File { "a file (uri_file)" } else { "a folder" };
            return self.problem(
                Code::BadArgument,
                format!("'{uri}' is of the type {is}, and {wanted} is asked for."),
            );
        }
        let inner = properties[key].as_str().unwrap_or_default();
        if inner.is_empty() {
            return self.problem(Code::BadArgument, format!("'{uri}' has no '{key}'."));
        }
        self.find(inner, steps - 1)
    }

    fn azureml(&self, uri: &str, rest: &str, steps: u32) -> Answer {
        let mut rest = rest;
        if rest.to_ascii_lowercase().starts_with("subscriptions/") {
            let parts: Vec<&str> = rest.splitn(7, '/').collect();
            let same =
                |at: usize, name: &str| parts.get(at).is_some_and(|part| part.eq_ignore_ascii_case(name));
            let named = same(2, "resourcegroups") && same(4, "workspaces");
            if !named || parts.len() < 7 {
                return self.problem(Code::BadArgument, format!("'{uri}' is not a path in a datastore."));
            }
            let here = &self.workspace;
            if !(same(1, &here.subscription) && same(3, &here.group) && same(5, &here.name)) {
                return self.problem(
                    Code::BadArgument,
                    format!("'{uri}' is in another workspace; a job can use what is in its own."),
                );
            }
            rest = parts[6];
        }
        if let Some((datastore, path)) =
            rest.strip_prefix("datastores/").map(|rest| rest.split_once('/').unwrap_or((rest, "")))
        {
            let path = path.strip_prefix("paths/").unwrap_or(if path == "paths" { "" } else { path });
            return self.datastore(uri, datastore, path);
        }
        if let Some(rest) = rest.strip_prefix("jobs/") {
            let parts: Vec<&str> = rest.splitn(5, '/').collect();
            return match parts.as_slice() {
                [job, "outputs", output] => self.job_output(uri, job, output, ""),
                [job, "outputs", output, "paths"] => self.job_output(uri, job, output, ""),
                [job, "outputs", output, "paths", path] => self.job_output(uri, job, output, path),
                _ => self.problem(
                    Code::BadArgument,
                    format!("'{uri}' is not of the form azureml://jobs/JOB/outputs/OUTPUT/paths/PATH."),
                ),
            };
        }
        let named: Vec<&str> = rest.split('/').collect();
        if let [kind @ ("data" | "models"), name, "versions", version] = named.as_slice() {
            let _ = kind;
            return self.asset(&format!("azureml:{name}:{version}"), steps);
        }
        if rest.starts_with("registries/") {
            return self.problem(
                Code::NotSupported,
                format!("'{uri}' is in a registry, and registries are not part of Neap; register it in the workspace."),
            );
        }
        self.problem(
            Code::BadArgument,
            format!("'{uri}' is not of the form azureml://datastores/NAME/paths/PATH."),
        )
    }

    fn datastore(&self, uri: &str, datastore: &str, path: &str) -> Answer {
        if let Some(container) = container_of(datastore) {
            return self.shaped(uri, container, path, None);
        }
        let Some(properties) =
            self.shelf.asset(elsewhere::DATASTORE, datastore, Some(elsewhere::DATASTORE_VERSION))?
        else {
            return self.problem(
                Code::DatastoreNotFound,
                format!("There is no datastore '{datastore}' in this workspace."),
            );
        };
        let kind = properties["datastoreType"].as_str().unwrap_or_default();
        if !matches!(kind, "AzureBlob" | "AzureDataLakeGen2" | elsewhere::S3_TYPE | elsewhere::FOLDER_TYPE) {
            return self.problem(
                Code::NotSupported,
                format!(
                    "The datastore '{datastore}' is kept, but jobs cannot read or write the type '{kind}'."
                ),
            );
        }
        if kind == elsewhere::FOLDER_TYPE {
            let folder = PathBuf::from(properties["path"].as_str().unwrap_or_default());
            let rules = self.shelf.rules();
            let allowed =
                if self.write { rules.writable_root(&folder) } else { rules.readable_root(&folder) };
            if allowed.is_none() {
                return self.not_allowed(&folder);
            }
        }
        self.shaped(uri, &container_of_datastore(datastore), path, None)
    }

    fn job_output(&self, uri: &str, job: &str, output: &str, path: &str) -> Answer {
        let Some(document) = self.shelf.job(job)? else {
            return self.problem(
                Code::BadArgument,
                format!("'{uri}' names the job '{job}', which is not in this workspace."),
            );
        };
        let at = match document.outputs.get(output) {
            Some(OutputDocument::File { .. }) if !path.is_empty() => {
                return self.problem(
                    Code::BadArgument,
                    format!("The output '{output}' of '{job}' is one file; '{path}' is not in it."),
                );
            }
            Some(found) => found.at().clone(),
            None if output == ARTIFACTS || output == "default" => artifacts(self.workspace, job),
            None => {
                return self.problem(Code::BadArgument, format!("The job '{job}' has no output '{output}'."));
            }
        };
        self.shaped(uri, &at.container, &format!("{}{path}", at.path), None)
    }

    fn file(&self, uri: &str, path: &Path) -> Answer {
        if self.shelf.rules().readable_root(path).is_none() {
            return self.not_allowed(path);
        }
        self.shaped(uri, foreign::FILE, path.display().to_string().trim_start_matches('/'), None)
    }

    fn not_allowed(&self, path: &Path) -> Answer {
        let list = if self.write { "outputs.allow" } else { "inputs.allow" };
        self.problem(
            Code::BadArgument,
            format!("'{}' is not below a folder of {list} in the server's configuration.", path.display()),
        )
    }

    fn web(&self, scheme: &str, uri: &str, rest: &str) -> Answer {
        let rest = rest.split('#').next().unwrap_or(rest);
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.contains('@') {
            return self.problem(
                Code::BadArgument,
                format!("'{scheme}://…' names no host, or a password in it, which is not taken."),
            );
        }
        let Ok(path) = percent_encoding::percent_decode_str(path).decode_utf8() else {
            return self.problem(
                Code::BadArgument,
                "The address is not UTF-8 once its escapes are resolved.".into(),
            );
        };
        let azure = host
            .split_once('.')
            .filter(|(_, rest)| matches!(*rest, "blob.core.windows.net" | "dfs.core.windows.net"));
        if let (Some((account, _)), None) = (azure, query) {
            let (container, path) = path.split_once('/').unwrap_or((&path, ""));
            return self.azure(uri, account, container, path);
        }
        if self.asked.shape == Shape::Folder {
            return self.problem(
                Code::BadArgument,
                format!("'{}' cannot be a folder: a web server lists nothing. Give one file (uri_file), or a datastore.", uri.split('?').next().unwrap_or(uri)),
            );
        }
        let container = if scheme == "http" { foreign::HTTP } else { foreign::HTTPS };
        let found = self.shaped(uri, container, &format!("{host}/{path}"), query.map(str::to_owned))?;
        Ok(found.map(|found| Found { shape: Shape::File, ..found }))
    }

    /// Through a datastore that has the credentials, if there is one; otherwise as anybody may.
    fn azure(&self, uri: &str, account: &str, container: &str, path: &str) -> Answer {
        let mut known = self.shelf.datastores()?;
        known.retain(|(_, properties)| elsewhere::is_azure_container(properties, account, container));
        // One that has credentials before one that has none.
        match known
            .into_iter()
            .min_by_key(|(_, p)| p["credentials"]["credentialsType"].as_str().unwrap_or("None") == "None")
        {
            Some((name, _)) => self.shaped(uri, &container_of_datastore(&name), path, None),
            None if self.write => {
                self.no_datastore(uri, &format!("the container '{container}' of '{account}'"))
            }
            None => self.shaped(uri, foreign::AZURE, &format!("{account}/{container}/{path}"), None),
        }
    }

    fn no_datastore(&self, uri: &str, what: &str) -> Answer {
        self.problem(
            Code::BadArgument,
            format!("'{uri}' cannot be written to: no datastore of this workspace is {what}. Create one with its credentials."),
        )
    }

    /// The place, as a file or a folder.
    fn shaped(&self, uri: &str, container: &str, path: &str, query: Option<String>) -> Answer {
        let path = path.trim_start_matches('/');
        if !workspace_files::is_safe(path) {
            return self.problem(Code::BadArgument, format!("'{uri}' has '.' or '..' in its path."));
        }
        let ends = path.is_empty() || path.ends_with('/');
        let shape = match self.asked.shape {
            Shape::File if ends => {
                return self.problem(
                    Code::BadArgument,
                    format!("'{uri}' names a folder where a file is asked for (uri_file)."),
                );
            }
            Shape::Any if ends => Shape::Folder,
            shape => shape,
        };
        let slash = if shape == Shape::Folder && !ends { "/" } else { "" };
        let at = BlobPath {
            account: account(self.workspace.id),
            container: container.into(),
            path: format!("{path}{slash}"),
        };
        Ok(Ok(Found { at, shape, query, uri: uri.to_owned() }))
    }
}

/// Where a job's `./outputs`, `./logs` and log go.
pub(super) fn artifacts(workspace: &Workspace, job: &str) -> BlobPath {
    BlobPath {
        account: account(workspace.id),
        container: container_of(workspace_files::ARTIFACT_STORE).unwrap_or_default().into(),
        path: format!("ExperimentRun/dcid.{job}/"),
    }
}

/// The long form of a place in a datastore.
pub(super) fn uri_of(workspace: &Workspace, at: &BlobPath) -> String {
    let datastore = datastore_of_container(&at.container)
        .or_else(|| workspace_files::datastore_of(&at.container))
        .unwrap_or(workspace_files::BLOB_STORE);
    let path = &at.path;
    format!(
        "azureml://subscriptions/{}/resourcegroups/{}/workspaces/{}/datastores/{datastore}/paths/{path}",
        workspace.subscription, workspace.group, workspace.name
    )
}

/// All datastores on record, for [`Shelf::datastores`].
pub(super) type Datastores = Vec<(String, Value)>;

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
