//! Neap's own interface: what Azure has no words for. JSON, bearer tokens; signed log URLs.

mod budgets;
mod cost;
pub(crate) mod dependents;
mod diff;
mod evict;
mod explain;
pub(crate) mod health;
mod logs;
mod nodes;
mod openapi;
mod plan;
mod provenance;
mod queue;
mod quota_requests;
mod revisions;
mod run_metrics;
mod secrets;
mod shutdown;
mod status;
mod waste;
pub(crate) mod windows;

use axum::response::Response;
use neap_core::Refusal;
use neap_core::state::Workspace;

use crate::app::App;
use crate::arm::{computes, errors, workspaces};
use crate::ask::Ask;
use crate::{reply, services};

pub(crate) async fn answer(app: &App, ask: &Ask) -> Result<Response, Refusal> {
    let segments = ask.segments();
    match (ask.method.as_str(), segments.as_slice()) {
        ("GET", ["neap", "logs", account, job]) => logs::signed(app, ask, account, job).await,
        ("GET", ["neap", "v1", "status"]) => status::get(app, ask),
        ("POST", ["neap", "v1", "shutdown"]) => shutdown::post(app, ask),
        ("GET", ["neap", "v1", "openapi.json"]) => Ok(reply::ok(&openapi::document(ask))),
        (_, ["neap", "v1", "budgets", rest @ ..]) => budgets::answer(app, ask, rest).await,
        (_, ["neap", "v1", "subscriptions", s, "quotarequests", rest @ ..]) => {
            quota_requests::answer(app, ask, s, rest).await
        }
        (_, ["neap", "v1", "subscriptions", s, "resourcegroups", g, "workspaces", w, rest @ ..]) => {
            let workspace = workspaces::find(&app.state(), s, g, w)?;
            in_workspace(app, ask, &workspace, rest).await
        }
        _ => Err(errors::no_such_path(ask)),
    }
}

async fn in_workspace(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    rest: &[&str],
) -> Result<Response, Refusal> {
    match (ask.method.as_str(), rest) {
        ("GET", ["computes", c, "diff"]) => diff::get(app, ask, workspace, c).await,
        ("GET", ["computes", c, "health"]) => health::get(app, workspace, c),
        ("GET", ["computes", c, "nodes"]) => nodes::list(app, ask, workspace, c),
        ("GET", ["computes", c, "nodes", n, "log"]) => nodes::log(app, workspace, c, n).await,
        ("POST", ["computes", c, "nodes", n, verb @ ("cordon" | "uncordon" | "drain")]) => {
            nodes::change(app, ask, workspace, c, n, verb).await
        }
        ("GET", ["computes", c, "queue"]) => queue::get(app, ask, workspace, c),
        ("GET", ["computes", c, "explain"]) => queue::explain_cluster(app, workspace, c),
        (method @ ("GET" | "PUT"), ["allowances"]) => {
            queue::allowances(app, ask, workspace, method == "PUT").await
        }
        ("PUT", ["computes", c]) => computes::remake(app, ask, workspace, c).await,
        ("GET", ["computes", c, "dependents"]) => dependents::get(app, workspace, c),
        (_, ["computes", c, "schedules", rest @ ..]) => windows::answer(app, ask, workspace, c, rest).await,
        ("GET", ["computes", c, "revisions"]) => revisions::list(app, workspace, c),
        ("POST", ["computes", c, "evict"]) => evict::post(app, ask, workspace, c).await,
        ("GET", ["cost"]) => cost::get(app, ask, workspace),
        ("POST", ["computes", c, "plan"]) => plan::compute(app, ask, workspace, c).await,
        ("POST", ["jobs", j, "plan"]) => plan::job(app, ask, workspace, j).await,
        (_, ["secrets", rest @ ..]) => secrets::answer(app, ask, workspace, rest).await,
        ("GET", ["waste"]) => waste::get(app, ask, workspace).await,
        ("GET", ["jobs", j, "log"]) => logs::get(app, ask, workspace, j).await,
        ("GET", ["jobs", j, "metrics"]) => run_metrics::get(app, ask, workspace, j).await,
        ("POST", ["jobs", j, "services", s, "link"]) => services::link(app, ask, workspace, j, s),
        ("GET", ["jobs", j, "checkpoint"]) => evict::checkpoint(app, workspace, j).await,
        ("GET", ["jobs", j, "explain"]) => explain::get(app, workspace, j),
        ("GET", ["jobs", j, "provenance"]) => provenance::get(app, workspace, j),
        _ => Err(errors::no_such_path(ask)),
    }
}
