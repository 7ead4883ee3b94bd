//! MLflow's tracking REST interface, one workspace per URL:
//! `/mlflow/v1.0/subscriptions/…/workspaces/{ws}/api/2.0/mlflow/…` and `…/api/2.0/mlflow-artifacts/…`.
//!
//! What runs tell is kept by `neap_tracking`, beside the log; a job of the workspace is a run of the same name (`jobs`).
//! Files of runs go to the blob store through the blob face (`artifacts`). The model registry, traces and evaluation
//! are not offered, and said so in MLflow's words. Nothing here changes a job.

mod access;
mod artifacts;
mod experiments;
mod faults;
mod given;
mod jobs;
mod logging;
mod metrics;
mod models;
mod multipart;
mod runs;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use neap_core::state::Workspace;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::app::App;
use crate::arm::{paths, workspaces};
use crate::ask::{self, Query};
use crate::{limits, reply};
use access::Access;
use faults::Fault;
use given::Given;

pub(crate) use jobs::summary;
pub(crate) use wire::number;

/// Where clients of this workspace send what they track.
pub(crate) fn tracking_uri(base: &str, workspace: &Workspace) -> String {
    format!("{base}/mlflow/v1.0{}", paths::workspace_id(workspace))
}

/// A request as the handlers see it.
struct Asked {
    app: App,
    workspace: Arc<Workspace>,
    access: Access,
    method: Method,
    /// Decoded segments behind `/api/2.0/mlflow/`.
    path: Vec<String>,
    given: Given,
}

pub(crate) async fn answer(app: &App, blobs: &Router, request: Request) -> Response {
    match serve(app, blobs, request).await {
        Ok(response) => response,
        Err(fault) => fault.answer(),
    }
}

async fn serve(app: &App, blobs: &Router, request: Request) -> Result<Response, Fault> {
    let base = ask::base_url(request.uri(), request.headers(), &app.base_url);
    let access = Access::of(app, request.headers(), &base)?;
    let segments = segments(request.uri().path())?;
    let (workspace, service, rest) = place(app, &segments)?;
    access.allow(&workspace)?;
    if service == "mlflow-artifacts" {
        return artifacts::answer(app, blobs, &workspace, &base, rest, request).await;
    }
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, limits::BODY_BYTES_MAX).await.map_err(|e| {
        Fault::invalid(format!(
            "The request body could not be read, or has more than {} bytes: {e}.",
            limits::BODY_BYTES_MAX
        ))
    })?;
    let given = Given::read(&body, &Query::parse(parts.uri.query().unwrap_or("")))?;
    let asked =
        Asked { app: app.clone(), workspace, access, method: parts.method, path: rest.to_vec(), given };
    // The store blocks.
    let answered = tokio::task::spawn_blocking(move || answer_to(&asked)).await;
    answered.map_err(|e| Fault::internal(format!("The request did not come to an end: {e}.")))?
}

/// What may be many thousands of points is written as it is read; all else is a small document.
fn answer_to(asked: &Asked) -> Result<Response, Fault> {
    asked.access.adopt(asked)?;
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    match (asked.method.as_str(), path.as_slice()) {
        ("GET", ["metrics", "get-history"]) => metrics::history(asked),
        (method, path) => dispatch(asked, method, path).map(|body| reply::ok(&body)),
    }
}

/// The route table.
fn dispatch(asked: &Asked, method: &str, path: &[&str]) -> Result<Value, Fault> {
    match (method, path) {
        ("GET", ["server-info" | "server-features"]) => Ok(server_info()),

        ("POST", ["experiments", "create"]) => experiments::create(asked),
        ("GET", ["experiments", "get"]) => experiments::get(asked),
        ("GET", ["experiments", "get-by-name"]) => experiments::get_by_name(asked),
        ("GET" | "POST", ["experiments", "search" | "list"]) => experiments::search(asked),
        ("POST", ["experiments", "update"]) => experiments::update(asked),
        ("POST", ["experiments", "delete"]) => experiments::delete(asked),
        ("POST", ["experiments", "restore"]) => experiments::restore(asked),
        ("POST", ["experiments", "set-experiment-tag"]) => experiments::set_tag(asked),
        ("POST", ["experiments", "delete-experiment-tag"]) => experiments::delete_tag(asked),

        ("POST", ["runs", "create"]) => runs::create(asked),
        ("GET", ["runs", "get"]) => runs::get(asked),
        ("POST", ["runs", "update"]) => runs::update(asked),
        ("POST", ["runs", "delete"]) => runs::delete(asked),
        ("POST", ["runs", "restore"]) => runs::restore(asked),
        ("POST", ["runs", "search"]) => runs::search(asked),

        ("POST", ["runs", "log-metric"]) => logging::metric(asked),
        ("POST", ["runs", "log-parameter"]) => logging::parameter(asked),
        ("POST", ["runs", "log-batch"]) => logging::batch(asked),
        ("POST", ["runs", "set-tag"]) => logging::set_tag(asked),
        ("POST", ["runs", "delete-tag"]) => logging::delete_tag(asked),
        ("POST", ["runs", "log-inputs"]) => logging::inputs(asked),
        ("POST", ["runs", "outputs"]) => logging::outputs(asked),
        ("POST", ["runs", "log-model"]) => logging::model(asked),

        ("GET", ["metrics", "get-history-bulk-interval"]) => metrics::bulk_interval(asked),

        ("GET", ["artifacts", "list"]) => artifacts::of_run(asked),

        ("POST", ["logged-models"]) => models::create(asked),
        ("POST", ["logged-models", "search"]) => models::search(asked),
        ("GET", ["logged-models", id]) => models::get(asked, id),
        ("PATCH", ["logged-models", id]) => models::finish(asked, id),
        ("DELETE", ["logged-models", id]) => models::delete(asked, id),
        ("POST", ["logged-models", id, "params"]) => models::log_params(asked, id),
        ("PATCH", ["logged-models", id, "tags"]) => models::set_tags(asked, id),
        ("DELETE", ["logged-models", id, "tags", tag]) => models::delete_tag(asked, id, tag),
        ("GET", ["logged-models", id, "artifacts", "directories"]) => artifacts::of_model(asked, id),

        (_, ["registered-models" | "model-versions", ..]) => Err(Fault::not_offered(
            "The model registry is not offered by Neap. Log the model to its run, and take it from there by `runs:/RUN/PATH` or `models:/MODEL_ID`.",
        )),
        (_, ["traces", ..]) => Err(Fault::not_offered("Traces are not kept by Neap.")),
        (method, path) => Err(Fault::no_endpoint(method, &path.join("/"))),
    }
}

/// What newer clients ask before they choose their ways.
fn server_info() -> Value {
    json!({
        "store_type": "neap",
        "workspaces_enabled": false,
        "trace_archival_enabled": false,
        "multipart_uploads_enabled": true,
        "multipart_downloads_enabled": false,
    })
}

fn segments(path: &str) -> Result<Vec<String>, Fault> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .map(|part| percent_decode_str(part).decode_utf8().map(|text| text.into_owned()))
        .collect::<Result<_, _>>()
        .map_err(|_| Fault::invalid("The path is not UTF-8."))
}

/// The workspace, the service (`mlflow` or `mlflow-artifacts`), and what follows.
fn place<'a>(
    app: &App,
    segments: &'a [String],
) -> Result<(Arc<Workspace>, &'static str, &'a [String]), Fault> {
    let whole = || segments.join("/");
    let [
        mlflow,
        version,
        s,
        subscription,
        g,
        group,
        p,
        namespace,
        w,
        workspace,
        api,
        number,
        service,
        rest @ ..,
    ] = segments
    else {
        return Err(Fault::no_endpoint("", &whole()));
    };
    let keywords = [
        (mlflow, "mlflow"),
        (version, "v1.0"),
        (s, "subscriptions"),
        (g, "resourcegroups"),
        (p, "providers"),
        (namespace, "microsoft.machinelearningservices"),
        (w, "workspaces"),
    ];
    let service = ["mlflow", "mlflow-artifacts"].into_iter().find(|word| service == word);
    let known = matches!(api.as_str(), "api" | "ajax-api") && matches!(number.as_str(), "2.0" | "3.0");
    match service {
        Some(service) if known && keywords.iter().all(|(found, word)| found.eq_ignore_ascii_case(word)) => {
            Ok((workspaces::find(&app.state(), subscription, group, workspace)?, service, rest))
        }
        _ => Err(Fault::no_endpoint("", &whole())),
    }
}
