//! `details`: what `stream` polls. Status, and signed URLs of the logs.

use axum::response::Response;
use neap_core::documents::{JobDocument, JobMeta};
use neap_core::job::Status;
use neap_core::state::Workspace;
use neap_core::{Millis, Refusal};
use neap_ledger::JobRow;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::arm::find_job;
use crate::ask::Ask;
use crate::{limits, reply, workspace_files};

pub(crate) fn get(app: &App, ask: &Ask, workspace: &Workspace, run: &str) -> Result<Response, Refusal> {
    let row = find_job(app, workspace, run)?;
    let meta: JobMeta = app.document(&row.meta)?;
    let mut status = row.status;
    // A client prints a log only while it sees the run in progress: a run that was quicker than its first look is
    // shown once as finalizing, so that its log is printed.
    if ended_moments_ago(&row, app.now()) && !app.memory.mark_log_read(&ask.caller.actor, row.id.0) {
        status = Status::Finalizing;
    }
    let mut log_files = Map::new();
    if row.is_family {
        log_files.insert(
            "logs/azureml/executionlogs.txt".into(),
            json!(workspace_files::log_url(app, &ask.base, &row, None, &ask.caller.actor)),
        );
    }
    if row.attempt > 0 {
        let url = |rank| json!(workspace_files::log_url(app, &ask.base, &row, rank, &ask.caller.actor));
        match processes_of(app, &row)? {
            None => drop(log_files.insert("user_logs/std_log.txt".into(), url(None))),
            // As Azure lists them: clients stream rank 0, and would print the merged log beside it.
            Some(processes) => log_files.extend(
                (0..processes).map(|rank| (format!("user_logs/std_log_process_{rank}.txt"), url(Some(rank)))),
            ),
        }
    }
    let warnings = row
        .reason
        .as_ref()
        .filter(|_| !row.status.is_final())
        .map(|reason| json!([{"source": "neap", "message": reason}]));
    let is_final = status.is_final();
    Ok(reply::ok(&json!({
        "runId": row.name,
        "target": row.cluster_name,
        "status": status.word(),
        "startTimeUtc": row.started.map(Millis::rfc3339),
        "endTimeUtc": row.ended.filter(|_| is_final).map(Millis::rfc3339),
        "warnings": warnings,
        "error": error_of(&row).filter(|_| is_final),
        "properties": meta.properties,
        "inputDatasets": [],
        "outputDatasets": [],
        "runDefinition": null,
        "logFiles": log_files,
        "submittedBy": row.owner,
    })))
}

/// How many processes have a log of their own; none where the job has one log.
fn processes_of(app: &App, row: &JobRow) -> Result<Option<u32>, Refusal> {
    let nodes = u32::try_from(row.ranks.len()).unwrap_or(u32::MAX).max(1);
    let document: JobDocument = app.document(&row.document)?;
    let processes = match document.distribution {
        Some(distribution) => Some(distribution.processes(nodes)),
        None => (nodes > 1).then_some(nodes),
    };
    Ok(processes.map(|processes| processes.min(limits::LOG_FILES_MAX)))
}

fn ended_moments_ago(row: &JobRow, now: Millis) -> bool {
    // Without an attempt there is no log to print.
    row.status.is_final()
        && (row.attempt > 0 || row.is_family)
        && row.ended.is_some_and(|ended| now.since(ended) < limits::ENDED_MOMENTS_AGO_MS)
}

/// As clients dump it when a run failed.
pub(super) fn error_of(row: &JobRow) -> Option<Value> {
    let failure = row.failure.as_ref()?;
    Some(json!({"error": {
        "code": failure.code,
        "message": failure.message,
        "messageFormat": null,
        "details": [{"code": "NextStep", "message": failure.next_step}],
        "innerError": {"code": failure.class.word(), "innerError": null},
    }}))
}
