//! A schedule whose time has come: its job is submitted once, and what became of it is recorded with the next time.
//!
//! The job's name is made of the schedule's name and the time, so that one who comes back from a crash finds the job that
//! was submitted before it.

use neap_core::{Refusal, ScheduleId};

use super::conductor;
use crate::app::App;
use crate::arm::schedules;

/// False if it has to be tried again.
pub(super) async fn fire(app: &App, id: ScheduleId) -> bool {
    match try_fire(app, id).await {
        Ok(()) => true,
        Err(refusal) => {
            tracing::warn!(schedule = %id, %refusal, "a schedule cannot fire now; it is tried again");
            false
        }
    }
}

async fn try_fire(app: &App, id: ScheduleId) -> Result<(), Refusal> {
    let state = app.state();
    let Some(schedule) = state.schedules.get(&id) else { return Ok(()) };
    let Some(at) = schedule.due else { return Ok(()) };
    let Some(workspace) = state.workspaces.get(&schedule.workspace) else { return Ok(()) };
    neap_crash::point("schedule-due-before-submit");
    let fired = schedules::fire(app, workspace, schedule, at).await;
    neap_crash::point("schedule-submitted-before-record");
    let (job, refusal) = match fired {
        Ok(fired) => (Some(fired.job), None),
        Err(refusal) if schedules::is_lasting(&refusal) => (None, Some(refusal)),
        Err(refusal) => return Err(refusal),
    };
    if let Some(refusal) = &refusal {
        tracing::warn!(schedule = %schedule.name, %refusal, "a schedule's job was refused; the schedule goes on");
    }
    match schedules::record(app, &conductor(), schedule, at, false, job, refusal.as_ref()).await {
        // Deleted in the meantime.
        Err(refusal) if refusal.code() == neap_core::Code::ResourceNotFound => Ok(()),
        recorded => recorded,
    }
}
