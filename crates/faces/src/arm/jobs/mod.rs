//! Jobs: parse → problems → command → answer.

mod advice;
mod answer_of;
mod apart;
mod compare;
mod container;
mod data;
mod distribution;
mod instance;
mod list;
mod lookup;
mod need;
mod parallel;
mod pipeline;
mod ports;
mod preflight;
mod prepare;
mod presence;
mod read;
mod references;
mod retry;
pub(crate) mod secrets;
mod serverless;
mod services;
mod sources;
mod sweep;
mod tier;
mod write;

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Refusal};
use neap_ledger::JobRow;

use super::lro;
use crate::app::{App, unreadable};
use crate::ask::Ask;
use crate::{reply, workspace_files};

pub(crate) use answer_of::{answer, output_uri};
pub(crate) use list::{cursor, list};
pub(crate) use lookup::{component, model, place_of_model};
pub(crate) use parallel::submit_worker;
pub(crate) use prepare::{Planned, Prepared, planned, prepare};
pub(crate) use serverless::tidy as tidy_serverless;
pub(crate) use write::{edit, put, submit_trial};

/// The job's row, or Azure's words for its absence.
pub(crate) fn find(app: &App, workspace: &Workspace, name: &str) -> Result<JobRow, Refusal> {
    app.control
        .reader()
        .job(workspace.id, name)
        .map_err(unreadable)?
        .ok_or_else(|| Refusal::because(Code::ResourceNotFound, format!("Job {name} not found.")))
}

pub(crate) fn get(app: &App, ask: &Ask, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let row = find(app, workspace, name)?;
    Ok(reply::ok(&answer(app, &ask.base, workspace, &row)?))
}

/// A job that has been canceled, or is about to be, may be canceled again; one that ended otherwise may not.
pub(crate) async fn cancel(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    use neap_core::job::Status;
    let row = find(app, workspace, name)?;
    match row.status {
        Status::Canceled => return Ok(reply::empty(StatusCode::OK)),
        Status::Completed | Status::Failed => {
            return Err(Refusal::because(
                Code::JobAlreadyFinal,
                format!(
                    "The job '{}' has already ended as {} and cannot be canceled.",
                    row.name,
                    row.status.word()
                ),
            ));
        }
        Status::CancelRequested => {}
        Status::NotStarted
        | Status::Queued
        | Status::Provisioning
        | Status::Preparing
        | Status::Running
        | Status::Finalizing => {
            let reason = format!("Canceled by {}.", ask.caller.actor);
            let asked = app
                .submit(&ask.caller, Command::CancelJob { job: row.id, reason: reason.into() }, Vec::new())
                .await;
            match asked {
                // It ended by itself in the meantime: the client sees how when it looks.
                Err(refusal) if refusal.code() == Code::JobAlreadyFinal => {}
                Err(refusal) => return Err(refusal),
                Ok(_) => {}
            }
        }
    }
    Ok(lro::accepted(ask, &workspace.subscription, &workspace.location, lro::Operation::CancelJob(row.id)))
}

pub(crate) async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let Some(row) = app.control.reader().job(workspace.id, name).map_err(unreadable)? else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    if !row.status.is_final() {
        return Err(Refusal::because(
            Code::JobNotFinal,
            format!(
                "The job '{}' is {}; cancel it and wait for its end before deleting it.",
                row.name,
                row.status.word()
            ),
        ));
    }
    app.submit(&ask.caller, Command::DeleteJob { job: row.id }, Vec::new()).await?;
    workspace_files::remove_job(app, &row).await?;
    let (tracking, id, name) = (app.tracking.clone(), row.workspace, row.name);
    let forgotten = tokio::task::spawn_blocking(move || tracking.forget_run(id, &name)).await;
    if let Ok(Err(error)) = forgotten {
        tracing::warn!(%error, "what a deleted job logged is still there");
    }
    Ok(reply::empty(StatusCode::OK))
}
