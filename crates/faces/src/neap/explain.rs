//! `explain`: why a job is where it is, every reason at once.

use axum::response::Response;
use neap_core::Refusal;
use neap_core::job::Status;
use neap_core::state::Workspace;
use neap_ledger::JobRow;
use serde_json::json;

use crate::app::App;
use crate::arm::find_job;
use crate::reply;

pub(crate) fn get(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let row = find_job(app, workspace, name)?;
    let mut reasons = neap_core::explain::queue_reasons(&app.state_now(), row.id);
    if reasons.is_empty() {
        reasons = told(&row);
    }
    let verdict = neap_core::unblock::unblock(&app.state(), row.id, app.now());
    Ok(reply::ok(&json!({
        "job": row.name, "status": row.status.word(), "reasons": reasons,
        "verdict": verdict.as_ref().map(super::queue::verdict_of),
        "estimate": crate::estimates::of(app, row.id).map(|estimate| json!({
            "position": estimate.place,
            "start_p50": estimate.start.p50.map(neap_core::Millis::rfc3339),
            "start_p95": estimate.start.p95.map(neap_core::Millis::rfc3339),
            "unknown": estimate.unknown,
        })),
    })))
}

/// What the tables know of a job that does not wait.
fn told(row: &JobRow) -> Vec<String> {
    // A job made of jobs has no attempts of its own.
    if row.attempt == 0 && row.failure.is_none() && matches!(row.status, Status::Running | Status::Completed)
    {
        let word = if row.status == Status::Running { "runs" } else { "has completed" };
        return vec![format!("It {word}, as its steps or trials do; each of them is explained by itself.")];
    }
    let node = row.node.map_or_else(String::new, |id| format!(" on node n-{id}"));
    let mut out: Vec<String> = match row.status {
        Status::NotStarted | Status::Queued | Status::Provisioning => vec!["It waits for its turn.".into()],
        Status::Preparing => vec![format!("Attempt {} is being prepared{node}.", row.attempt)],
        Status::Running => vec![format!("Attempt {} runs{node}.", row.attempt)],
        Status::Finalizing => {
            vec![format!("Attempt {} has ended{node} and its outputs are being stored.", row.attempt)]
        }
        Status::CancelRequested => vec![format!("It was asked to stop{node}.")],
        Status::Completed => vec![format!("Attempt {} completed{node}.", row.attempt)],
        Status::Failed | Status::Canceled => Vec::new(),
    };
    if let Some(failure) = &row.failure {
        out.push(format!("{} ({})", failure.message, failure.class.word()));
        out.push(failure.next_step.to_string());
    } else if let Some(reason) = &row.reason {
        out.push(reason.clone());
    }
    out
}
