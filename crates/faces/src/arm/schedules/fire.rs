//! Firing a schedule: its job is submitted in its owner's name, and what became of that is recorded.

use jiff::Timestamp;
use neap_calendar::Trigger;
use neap_core::command::RecordFiring;
use neap_core::documents::{JobMeta, ScheduleDocument};
use neap_core::schedule::Schedule;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Millis, Problem, Refusal};
use serde_json::Value;

use super::fill;
use crate::app::App;
use crate::arm::jobs;
use crate::ask::Caller;

pub(crate) struct Fired {
    pub job: String,
    /// It was there already.
    pub again: bool,
}

/// Submits the job for this time. One that is there already, of this schedule, counts as done.
pub(crate) async fn fire(
    app: &App,
    workspace: &Workspace,
    schedule: &Schedule,
    at: Millis,
) -> Result<Fired, Refusal> {
    let job = fill::job_name(&schedule.name, at);
    if let Some(again) = there(app, workspace, schedule, &job)? {
        return again;
    }
    let document: ScheduleDocument = app.document(&schedule.document)?;
    let body = fill::job_body(&document.job, &schedule.name, &job, at);
    let prepared = jobs::prepare(app, &schedule.owner, workspace, &job, &body).await?;
    match prepared.submit(app, &Caller { actor: schedule.owner.to_string() }, workspace).await {
        Ok(()) => Ok(Fired { job, again: false }),
        // Somebody was quicker with the same time.
        Err(refusal) if refusal.code() == Code::JobNameTaken => {
            there(app, workspace, schedule, &job)?.unwrap_or(Err(refusal))
        }
        Err(refusal) => Err(refusal),
    }
}

fn there(
    app: &App,
    workspace: &Workspace,
    schedule: &Schedule,
    job: &str,
) -> Result<Option<Result<Fired, Refusal>>, Refusal> {
    if app.state().job_named(workspace.id, job).is_none() {
        return Ok(None);
    }
    let own = match app.control.reader().job(workspace.id, job).map_err(crate::app::unreadable)? {
        Some(row) => fill::is_of(&app.document::<JobMeta>(&row.meta)?.properties, schedule),
        // It ran and was deleted.
        None => true,
    };
    Ok(Some(if own {
        Ok(Fired { job: job.to_owned(), again: true })
    } else {
        let message = format!("The name '{job}' is used by a job that is not of this schedule.");
        Err(Refusal::because(Code::JobNameTaken, message))
    }))
}

/// Whether the refusal would be the same a moment later; otherwise it is tried again.
pub(crate) fn is_lasting(refusal: &Refusal) -> bool {
    !matches!(refusal.code(), Code::ServerIsStopping | Code::LedgerReadOnly | Code::StorageFull)
}

pub(crate) async fn record(
    app: &App,
    caller: &Caller,
    schedule: &Schedule,
    at: Millis,
    forced: bool,
    job: Option<String>,
    refusal: Option<&Refusal>,
) -> Result<(), Refusal> {
    let next = next_time(app, schedule, at.max(app.now()))?;
    let command = Command::RecordFiring(RecordFiring {
        schedule: schedule.id,
        at,
        forced,
        document: schedule.document,
        job: job.map(Into::into),
        problem: refusal.map(|refusal| refusal.to_string().into()),
        next,
    });
    app.submit(caller, command, Vec::new()).await.map(drop)
}

/// The calendar's answer.
fn next_time(app: &App, schedule: &Schedule, after: Millis) -> Result<Option<Millis>, Refusal> {
    let document: ScheduleDocument = app.document(&schedule.document)?;
    // It was read when it was put; a document that was erased has no next time.
    let Ok(trigger) = Trigger::read(&document.asked["trigger"]) else { return Ok(None) };
    let times = instant(Millis(document.placed_ms)).zip(instant(after));
    Ok(times.and_then(|(placed, after)| millis(trigger.next(placed, after)?)))
}

/// What would be wrong with its job now, told where the user wrote it. Nothing is submitted.
pub(super) async fn problems(
    app: &App,
    workspace: &Workspace,
    owner: &str,
    schedule: &str,
    job: &Value,
    now: Millis,
) -> Result<Vec<Problem>, Refusal> {
    let name = fill::job_name(schedule, now);
    let body = fill::job_body(job, schedule, &name, now);
    let refused = match jobs::prepare(app, owner, workspace, &name, &body).await {
        Ok(prepared) => prepared.refusal(app, workspace, now),
        Err(refusal) => Some(refusal),
    };
    let Some(refusal) = refused else { return Ok(Vec::new()) };
    if !is_lasting(&refusal) || refusal.code() == Code::InternalError {
        return Err(refusal);
    }
    // The name is said to be wrong of the schedule itself.
    let own = |problem: &Problem| !matches!(problem.code, Code::JobNameTaken | Code::InvalidResourceName);
    let place = "properties.action.jobDefinition";
    let told = |problem: Problem| {
        let target =
            problem.target.map_or_else(|| place.to_owned(), |at| at.replacen("properties", place, 1));
        Problem { target: Some(target), ..problem }
    };
    Ok(refusal.problems.into_iter().filter(own).map(told).collect())
}

pub(super) fn instant(at: Millis) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()
}

/// A time of the calendar, or one that somebody gave; nothing is before 1970.
pub(super) fn millis(at: Timestamp) -> Option<Millis> {
    u64::try_from(at.as_millisecond()).ok().map(Millis)
}
