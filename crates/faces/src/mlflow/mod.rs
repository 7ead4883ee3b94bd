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
mod rights;
mod runs;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use neap_core::state::Workspace;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::app::App;
use crate::arm::{paths, workspaces};
use crate::ask::{self, Query};
use crate::{limits, reply};
use access::{Access, Call};
use faults::Fault;
use given::Given;
use rights::{Operation, Row, Service};

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
    row: Row,
    /// What stands in the path for the row's `{}`.
    captured: Vec<String>,
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
    let method = request.method().as_str();
    // What has no row in the table is not served, to nobody.
    let none = || Fault::no_endpoint(method, &rest.join("/"));
    let (row, captured) = rights::find(service, method, rest).ok_or_else(none)?;
    if service == Service::Files {
        let asked = artifacts::Asked { app, workspace: &workspace, access: &access, row, captured };
        return artifacts::answer(asked, blobs, &base, request).await;
    }
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, limits::BODY_BYTES_MAX).await.map_err(|e| {
        Fault::invalid(format!(
            "The request body could not be read, or has more than {} bytes: {e}.",
            limits::BODY_BYTES_MAX
        ))
    })?;
    let given = Given::read(&body, &Query::parse(parts.uri.query().unwrap_or("")))?;
    let asked = Asked { app: app.clone(), workspace, access, row, captured, given };
    // The store blocks.
    let answered = tokio::task::spawn_blocking(move || answer_to(&asked)).await;
    answered.map_err(|e| Fault::internal(format!("The request did not come to an end: {e}.")))?
}

/// What may be many thousands of points is written as it is read; all else is a small document.
fn answer_to(asked: &Asked) -> Result<Response, Fault> {
    asked.access.adopt(asked)?;
    let Asked { app, workspace, given, captured, .. } = asked;
    asked.access.permit(asked.row, Call { app, workspace, given, captured })?;
    match asked.row.operation {
        Operation::MetricHistory => metrics::history(asked),
        operation => dispatch(asked, operation).map(|body| reply::ok(&body)),
    }
}

fn dispatch(asked: &Asked, operation: Operation) -> Result<Value, Fault> {
    use Operation as Op;
    let captured = |at: usize| asked.captured.get(at).map_or("", String::as_str);
    match operation {
        Op::ServerInfo => Ok(server_info()),
        Op::CreateExperiment => experiments::create(asked),
        Op::GetExperiment => experiments::get(asked),
        Op::GetExperimentByName => experiments::get_by_name(asked),
        Op::SearchExperiments => experiments::search(asked),
        Op::RenameExperiment => experiments::update(asked),
        Op::DeleteExperiment => experiments::delete(asked),
        Op::RestoreExperiment => experiments::restore(asked),
        Op::SetExperimentTag => experiments::set_tag(asked),
        Op::DeleteExperimentTag => experiments::delete_tag(asked),
        Op::CreateRun => runs::create(asked),
        Op::GetRun => runs::get(asked),
        Op::UpdateRun => runs::update(asked),
        Op::DeleteRun => runs::delete(asked),
        Op::RestoreRun => runs::restore(asked),
        Op::SearchRuns => runs::search(asked),
        Op::LogMetric => logging::metric(asked),
        Op::LogParameter => logging::parameter(asked),
        Op::LogBatch => logging::batch(asked),
        Op::SetTag => logging::set_tag(asked),
        Op::DeleteTag => logging::delete_tag(asked),
        Op::LogInputs => logging::inputs(asked),
        Op::LogOutputs => logging::outputs(asked),
        Op::RecordModel => logging::model(asked),
        Op::MetricHistories => metrics::bulk_interval(asked),
        Op::ListRunFiles => artifacts::of_run(asked),
        Op::CreateModel => models::create(asked),
        Op::SearchModels => models::search(asked),
        Op::GetModel => models::get(asked, captured(0)),
        Op::FinishModel => models::finish(asked, captured(0)),
        Op::DeleteModel => models::delete(asked, captured(0)),
        Op::LogModelParams => models::log_params(asked, captured(0)),
        Op::SetModelTags => models::set_tags(asked, captured(0)),
        Op::DeleteModelTag => models::delete_tag(asked, captured(0), captured(1)),
        Op::ListModelFiles => artifacts::of_model(asked, captured(0)),
        Op::NotOffered(why) => Err(Fault::not_offered(why)),
        // Answered before, or by the other service.
        Op::MetricHistory
        | Op::ListFiles
        | Op::ReadFile
        | Op::WriteFile
        | Op::DeleteFile
        | Op::WriteParts => Err(Fault::internal("The request was sent to the wrong part of the server.")),
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

/// The workspace, the service, and what follows.
fn place<'a>(app: &App, segments: &'a [String]) -> Result<(Arc<Workspace>, Service, &'a [String]), Fault> {
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
    let service = match service.as_str() {
        "mlflow" => Some(Service::Tracking),
        "mlflow-artifacts" => Some(Service::Files),
        _ => None,
    };
    let known = matches!(api.as_str(), "api" | "ajax-api") && matches!(number.as_str(), "2.0" | "3.0");
    match service {
        Some(service) if known && keywords.iter().all(|(found, word)| found.eq_ignore_ascii_case(word)) => {
            Ok((workspaces::find(&app.state(), subscription, group, workspace)?, service, rest))
        }
        _ => Err(Fault::no_endpoint("", &whole())),
    }
}
