//! `shutdown`: asks the process to end. It is answered at once; the process exits when its nodes have.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::Refusal;
use serde_json::json;

use crate::app::App;
use crate::ask::Ask;
use crate::fields::Fields;
use crate::reply;

const GRACE_MS: i64 = 10_000;
const GRACE_MS_MAX: i64 = 24 * 3600 * 1_000;

pub(crate) fn post(app: &App, ask: &Ask) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    let fields = Fields::of(Some(&body), "", &mut problems);
    let leave_nodes = fields.flag("leave_nodes", &mut problems).unwrap_or(false);
    let grace_ms = fields.integer("grace_ms", &mut problems).unwrap_or(GRACE_MS);
    let grace = u64::try_from(grace_ms).ok().filter(|_| grace_ms <= GRACE_MS_MAX);
    if grace.is_none() {
        problems.push(crate::arm::errors::bad(
            format!("'grace_ms' must be between 0 and {GRACE_MS_MAX}."),
            "grace_ms",
        ));
    }
    Refusal::unless_empty(problems)?;
    tracing::info!(actor = ask.caller.actor, leave_nodes, grace_ms, "the server was asked to stop");
    app.control.request_shutdown(leave_nodes, grace.unwrap_or_default());
    Ok(reply::json(
        StatusCode::ACCEPTED,
        &json!({"pid": app.server.pid, "leave_nodes": leave_nodes, "grace_ms": grace_ms}),
    ))
}
