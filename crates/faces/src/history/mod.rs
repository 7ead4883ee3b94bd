//! The run history and data planes, which clients find through the workspace's discovery document: following a run,
//! editing its metadata, and resolving its outputs.

mod details;
mod resolve;
mod rundata;
mod runs;

use axum::response::Response;
use neap_core::Refusal;
use neap_core::state::Workspace;
use serde_json::json;

use crate::app::App;
use crate::arm::{errors, workspaces};
use crate::ask::Ask;
use crate::{reply, services};

const ML: &str = "microsoft.machinelearningservices";

pub(crate) async fn answer(app: &App, ask: &Ask) -> Result<Response, Refusal> {
    let segments = ask.segments();
    let (plane, rest) = match segments.as_slice() {
        ["discovery"] => return Ok(discovery(ask)),
        [
            plane,
            "v1.0",
            "subscriptions",
            s,
            "resourcegroups",
            g,
            "providers",
            ML,
            "workspaces",
            w,
            rest @ ..,
        ] => (*plane, (workspaces::find(&app.state(), s, g, w)?, rest)),
        _ => return Err(errors::no_such_path(ask)),
    };
    let (workspace, rest) = rest;
    match plane {
        "history" => in_history(app, ask, &workspace, rest).await,
        "data" => in_data(app, ask, &workspace, rest),
        _ => Err(errors::no_such_path(ask)),
    }
}

/// Every service is at one address.
fn discovery(ask: &Ask) -> Response {
    let base = &ask.base;
    reply::ok(&json!({
        "api": base, "history": base, "experimentation": base, "execution": base, "hyperdrive": base, "modelmanagement": base,
        "catalog": base, "studio": base, "pipelines": base, "notebooks": base, "gateway": base, "mlflow": base,
    }))
}

async fn in_history(app: &App, ask: &Ask, workspace: &Workspace, rest: &[&str]) -> Result<Response, Refusal> {
    match (ask.method.as_str(), rest) {
        ("GET", ["runs", run]) | ("GET", ["experiments", _, "runs", run]) => runs::get(app, workspace, run),
        ("GET", ["runs", run, "details"]) | ("GET", ["experiments", _, "runs", run, "details"]) => {
            details::get(app, ask, workspace, run)
        }
        ("GET", ["runs", run, "children"]) => runs::children(app, workspace, run),
        ("GET", ["runs", run, "serviceinstances", node]) => {
            services::instances(app, ask, workspace, run, node)
        }
        ("PATCH", ["experiments", _, "runs", run]) | ("PATCH", ["runs", run]) => {
            runs::edit(app, ask, workspace, run).await
        }
        ("POST", ["rundata"]) => rundata::post(app, ask, workspace),
        _ => Err(errors::no_such_path(ask)),
    }
}

fn in_data(app: &App, ask: &Ask, workspace: &Workspace, rest: &[&str]) -> Result<Response, Refusal> {
    match (ask.method.as_str(), rest) {
        ("POST", ["dataversion", action]) if action.eq_ignore_ascii_case("batchGetResolvedUris") => {
            resolve::post(app, ask, workspace)
        }
        _ => Err(errors::no_such_path(ask)),
    }
}
