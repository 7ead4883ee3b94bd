//! Files of runs and of logged models, as MLflow's artifact proxy has them. They are blobs of the workspace's artifact
//! container, in the folder where a job's `./outputs` and `./logs` go too; content flows through the blob face.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::response::Response;
use neap_core::WorkspaceId;
use neap_core::state::Workspace;
use neap_storage::sas::{Grant, Permission, Scope};
use neap_storage::{Bound, ListEntry, ListQuery, Store};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::access::{Access, Call};
use super::faults::Fault;
use super::given::Given;
use super::rights::{Operation, Row};
use super::{jobs, multipart, wire};
use crate::app::App;
use crate::ask::Query;
use crate::{limits, reply, workspace_files};

const RUNS: &str = workspace_files::RUN_FOLDERS;
const MODELS: &str = "LoggedModels/";
/// A job's log lies beside its files, and is the server's to write.
const LOGS: &str = workspace_files::LOG_FOLDER;
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

pub(super) fn run_folder(run: &str) -> String {
    format!("{RUNS}{run}")
}

pub(super) fn model_folder(model: &str) -> String {
    format!("{MODELS}{model}")
}

/// Whose files a path is among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner<'a> {
    Run(&'a str),
    Model(&'a str),
}

/// The run or the model in whose folder a path lies.
pub(super) fn owner_of(path: &str) -> Result<Owner<'_>, Fault> {
    checked(path)?;
    let path = path.trim_matches('/');
    let first = |rest: &'_ str| rest.find('/').unwrap_or(rest.len());
    match (path.strip_prefix(RUNS), path.strip_prefix(MODELS)) {
        (Some(rest), _) => Ok(Owner::Run(&rest[..first(rest)])),
        (None, Some(rest)) => Ok(Owner::Model(&rest[..first(rest)])),
        (None, None) => {
            Err(Fault::invalid(format!("'{path}' is not within the files of a run or of a model.")))
        }
    }
}

/// A request for files.
pub(super) struct Asked<'a> {
    pub app: &'a App,
    pub workspace: &'a Arc<Workspace>,
    pub access: &'a Access,
    pub row: Row,
    pub captured: Vec<String>,
}

/// What lies behind `/api/2.0/mlflow-artifacts/`.
pub(super) async fn answer(
    asked: Asked<'_>,
    blobs: &Router,
    base: &str,
    request: Request,
) -> Result<Response, Fault> {
    let Asked { app, workspace, access, row, captured } = asked;
    let given = Given::read(&[], &Query::parse(request.uri().query().unwrap_or("")))?;
    let path = captured.last().cloned().unwrap_or_default();
    let step = captured.first().cloned().unwrap_or_default();
    let folder_asked = given.text("path").unwrap_or_default().to_owned();
    // Before anything of the body is read.
    let (app_, workspace_, access_) = (app.clone(), workspace.clone(), access.clone());
    blocking(move || {
        let call = Call { app: &app_, workspace: &workspace_, given: &given, captured: &captured };
        access_.permit(row, call)
    })
    .await?;
    let bound = access.bound();
    match row.operation {
        Operation::ListFiles => {
            let folder = checked(&folder_asked)?;
            let (store, id) = (app.store.clone(), workspace.id);
            let files = blocking(move || list(&store, id, &folder, "")).await?;
            Ok(reply::ok(&json!({"files": files})))
        }
        Operation::ReadFile => {
            let name = checked(&path)?;
            let target = signed_path(app, workspace, &name, &[Permission::Read], bound);
            through(blobs, &name, target, request).await
        }
        Operation::WriteFile => {
            let name = writable(&path)?;
            let needed = [Permission::Create, Permission::Write];
            let target = signed_path(app, workspace, &name, &needed, bound);
            through(blobs, &name, target, request).await?;
            Ok(reply::ok(&json!({})))
        }
        Operation::DeleteFile => {
            let folder = deletable(&path)?;
            let (app, workspace) = (app.clone(), workspace.clone());
            blocking(move || remove(&app, &workspace, &folder)).await?;
            Ok(reply::ok(&json!({})))
        }
        Operation::WriteParts => {
            let folder = checked(&path)?;
            let body = axum::body::to_bytes(request.into_body(), limits::BODY_BYTES_MAX)
                .await
                .map_err(|e| Fault::invalid(format!("The request body could not be read: {e}.")))?;
            let given = Given::read(&body, &Query::default())?;
            let (app, workspace, base) = (app.clone(), workspace.clone(), base.to_owned());
            let done =
                blocking(move || multipart::answer(&app, &workspace, &base, &step, &folder, &given, bound));
            Ok(reply::ok(&done.await?))
        }
        Operation::NotOffered(why) => Err(Fault::not_offered(why)),
        _ => Err(Fault::internal("The request was sent to the wrong part of the server.")),
    }
}

/// `artifacts/list`: the files of a run, with paths from its root.
pub(super) fn of_run(asked: &super::Asked) -> Result<Value, Fault> {
    let run = asked.given.run_id()?;
    jobs::known(asked, run)?;
    let run = asked.app.tracking.run(asked.workspace.id, run)?;
    let files = below(asked, &run_folder(&run.id), asked.given.text("path"))?;
    Ok(json!({"root_uri": wire::run_artifacts(&run.id), "files": files}))
}

pub(super) fn of_model(asked: &super::Asked, id: &str) -> Result<Value, Fault> {
    let model = asked.app.tracking.model(asked.workspace.id, id)?;
    let files = below(asked, &model_folder(&model.id), asked.given.text("artifact_directory_path"))?;
    Ok(json!({"root_uri": format!("mlflow-artifacts:/{}", model_folder(&model.id)), "files": files}))
}

fn below(asked: &super::Asked, root: &str, path: Option<&str>) -> Result<Vec<Value>, Fault> {
    let path = path.unwrap_or_default().trim_matches('/');
    let folder = checked(format!("{root}/{path}").trim_end_matches('/'))?;
    let shown = if path.is_empty() { String::new() } else { format!("{path}/") };
    list(&asked.app.store, asked.workspace.id, &folder, &shown)
}

/// What lies directly in a folder. A file is no folder: then there is nothing.
fn list(store: &Store, workspace: WorkspaceId, folder: &str, shown: &str) -> Result<Vec<Value>, Fault> {
    let prefix = format!("{folder}/");
    let mut query = ListQuery { prefix: prefix.clone(), delimiter: Some("/".into()), ..ListQuery::default() };
    let mut files = Vec::new();
    loop {
        let page =
            store.list(&workspace_files::account(workspace), workspace_files::ARTIFACT_CONTAINER, &query);
        let page = page.map_err(workspace_files::storage)?;
        for entry in &page.entries {
            let name = entry.name().strip_prefix(&prefix).unwrap_or_default().trim_end_matches('/');
            let path = format!("{shown}{name}");
            files.push(match entry {
                ListEntry::Blob { properties, .. } => {
                    json!({"path": path, "is_dir": false, "file_size": properties.length})
                }
                ListEntry::Prefix(_) => json!({"path": path, "is_dir": true}),
            });
        }
        query.marker = page.next_marker;
        if query.marker.is_none() {
            return Ok(files);
        }
        if files.len() > limits::ARTIFACTS_LISTED_MAX {
            return Err(Fault::invalid(format!(
                "'{folder}' has more than {} entries; list its folders one by one.",
                limits::ARTIFACTS_LISTED_MAX
            )));
        }
    }
}

/// Removes a file, or a folder with all that is in it, but for a job's log.
pub(super) fn remove(app: &App, workspace: &Workspace, path: &str) -> Result<(), Fault> {
    let logs = path.strip_prefix(RUNS).is_some_and(|rest| rest.split('/').nth(1) == Some(LOGS));
    if logs {
        return Err(Fault::invalid("A job's log is deleted with the job."));
    }
    let keep = format!("{path}/{LOGS}/");
    let keep = path.starts_with(RUNS).then_some(keep.as_str());
    workspace_files::remove_artifacts(&app.store, workspace.id, path, keep)
        .map_err(|e| workspace_files::storage(e).into())
}

/// Sends a request on to the blob face, at the signed path of this one blob.
async fn through(blobs: &Router, name: &str, target: String, request: Request) -> Result<Response, Fault> {
    let (parts, body) = request.into_parts();
    let mut sent = Request::new(Body::new(body));
    *sent.method_mut() = parts.method;
    *sent.uri_mut() = target.parse::<Uri>().map_err(|_| Fault::invalid("The path is no URL."))?;
    *sent.headers_mut() = carried(&parts.headers);
    if sent.method() == Method::PUT {
        sent.headers_mut().insert("x-ms-blob-type", HeaderValue::from_static("BlockBlob"));
    }
    let response = match blobs.clone().oneshot(sent).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    match response.status().as_u16() {
        200..=299 | 304 => Ok(response),
        404 => Err(Fault::not_found(format!("There is no artifact '{name}'."))),
        400..=499 => {
            Err(Fault::invalid(format!("The artifact '{name}' could not be moved: {}.", refused(&response))))
        }
        _ => {
            Err(Fault::internal(format!("The artifact '{name}' could not be moved: {}.", refused(&response))))
        }
    }
}

fn refused(response: &Response) -> String {
    let code = response.headers().get("x-ms-error-code").and_then(|code| code.to_str().ok()).unwrap_or("");
    format!("{} {code}", response.status()).trim_end().to_owned()
}

/// The path and query that open one blob for a while.
pub(super) fn signed_path(
    app: &App,
    workspace: &Workspace,
    name: &str,
    permissions: &[Permission],
    bound: Option<Bound>,
) -> String {
    let now_s = app.now_s();
    let account = workspace_files::account(workspace.id);
    let grant = Grant {
        account: account.clone(),
        container: workspace_files::ARTIFACT_CONTAINER.into(),
        scope: Scope::Blob(name.to_owned()),
        permissions: permissions.to_vec(),
        starts_s: None,
        expires_s: now_s + limits::SIGNED_URL_TTL_S,
        bound,
        web_query: None,
    };
    let signature = app.sas.sign(&grant, now_s);
    let name = utf8_percent_encode(name, PATH);
    format!("/{account}/{}/{name}?{signature}", workspace_files::ARTIFACT_CONTAINER)
}

fn carried(headers: &HeaderMap) -> HeaderMap {
    let mut out = HeaderMap::new();
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::RANGE, header::IF_NONE_MATCH] {
        if let Some(value) = headers.get(&name) {
            out.insert(name, value.clone());
        }
    }
    out
}

/// A path within the files of one run or of one model.
pub(super) fn checked(path: &str) -> Result<String, Fault> {
    let path = path.trim_matches('/');
    let within = [RUNS, MODELS]
        .iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')));
    if !within || !workspace_files::is_safe(path) || path.contains("//") {
        return Err(Fault::invalid(format!(
            "'{path}' is not within the files of a run ({RUNS}RUN/…) or of a logged model ({MODELS}ID/…)."
        )));
    }
    Ok(path.to_owned())
}

/// A file or folder that may be deleted: not a job's log. A run's whole folder may; its log stays.
fn deletable(path: &str) -> Result<String, Fault> {
    let path = checked(path)?;
    if path.starts_with(RUNS) && path.split('/').nth(2) == Some(LOGS) {
        return Err(Fault::invalid(format!("'{LOGS}' holds the job's log, which goes with the job.")));
    }
    Ok(path)
}

/// A file that may be written: not a folder's own name, and not a job's log.
pub(super) fn writable(path: &str) -> Result<String, Fault> {
    let path = checked(path)?;
    let mut parts = path.split('/').skip(2);
    match parts.next() {
        None => Err(Fault::invalid(format!("'{path}' names no file."))),
        Some(LOGS) if path.starts_with(RUNS) => {
            Err(Fault::invalid(format!("'{LOGS}' holds the job's log; choose another folder for artifacts.")))
        }
        Some(_) => Ok(path),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Fault::internal(format!("A storage call did not come to an end: {e}.")))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_runs_and_models() {
        for good in
            ["ExperimentRun/dcid.r/a/b.txt", "/LoggedModels/m-1/artifacts/MLmodel", "ExperimentRun/dcid.r"]
        {
            assert!(checked(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "x",
            "ExperimentRun/dcid.",
            "ExperimentRun/other/x",
            "ExperimentRun/dcid.r/../dcid.s/x",
            "LoggedModels/",
            "snapshot-1/x",
            "ExperimentRun/dcid.r//x",
            "ExperimentRun/dcid.r/a\\b",
        ] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        for (path, may) in [
            ("ExperimentRun/dcid.r", true),
            ("ExperimentRun/dcid.r/outputs", true),
            ("LoggedModels/m-1/user_logs", true),
            ("ExperimentRun/dcid.r/user_logs", false),
            ("ExperimentRun/dcid.r/user_logs/std_log.txt", false),
        ] {
            assert_eq!(deletable(path).is_ok(), may, "{path}");
        }
        assert!(writable("ExperimentRun/dcid.r/x").is_ok());
        assert!(writable("LoggedModels/m-1/user_logs").is_ok());
        for bad in ["ExperimentRun/dcid.r", "LoggedModels/m-1", "ExperimentRun/dcid.r/user_logs/std_log.txt"]
        {
            assert!(writable(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_names_its_owner_exactly() {
        for (path, owner) in [
            ("ExperimentRun/dcid.r/a/b", Owner::Run("r")),
            ("/ExperimentRun/dcid.r/", Owner::Run("r")),
            ("ExperimentRun/dcid.r", Owner::Run("r")),
            ("ExperimentRun/dcid.R.x-1/LoggedModels/m", Owner::Run("R.x-1")),
            ("LoggedModels/m-1/artifacts/MLmodel", Owner::Model("m-1")),
        ] {
            assert_eq!(owner_of(path).unwrap(), owner, "{path}");
        }
        for path in [
            "",
            "ExperimentRun/dcid./x",
            "ExperimentRun/dcid.r/../dcid.s/x",
            "experimentrun/dcid.r/x",
            "Checkpoints/dcid.r/0/current.json",
        ] {
            assert!(owner_of(path).is_err(), "{path}");
        }
    }
}
