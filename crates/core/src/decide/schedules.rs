//! Putting, firing and deleting schedules. The calendar is not asked here: its answers come with the commands.

use super::places::open_workspace;
use crate::command::{PutSchedule, RecordFiring};
use crate::event::{Event, ScheduleDeleted, ScheduleDue, SchedulePut, ScheduleTriggered};
use crate::ids::ScheduleId;
use crate::limits;
use crate::names;
use crate::problem::{Code, Problem, Refusal};
use crate::state::State;
use crate::units::Millis;

pub fn put(state: &State, put: PutSchedule, now: Millis) -> Result<Vec<Event>, Refusal> {
    super::refuse_while_draining(state)?;
    open_workspace(state, put.workspace)?;
    let mut problems = put.problems;
    let existing = state.schedule(put.workspace, &put.name);
    if existing.is_none() {
        problems.extend(names::check_schedule_name(&put.name));
        let count = state.schedules_of(put.workspace).count();
        if count >= limits::SCHEDULES_PER_WORKSPACE_MAX {
            problems.push(Problem::new(
                Code::LimitReached,
                format!(
                    "The workspace has {count} schedules, which is the limit; delete one that is not needed."
                ),
            ));
        }
    }
    Refusal::unless_empty(problems)?;
    let id = existing.map_or(state.next.schedule, |schedule| schedule.id);
    let waits = existing.is_none_or(|schedule| schedule.due.is_none());
    let next = put.next.filter(|_| put.enabled);
    let mut events = vec![
        SchedulePut {
            id,
            workspace: put.workspace,
            name: existing.map_or(put.name, |schedule| schedule.name.clone()),
            owner: existing.map_or(put.owner, |schedule| schedule.owner.clone()),
            enabled: put.enabled,
            next,
            document: put.document,
        }
        .into(),
    ];
    events.extend(at_once(id, next.filter(|_| waits), now));
    Ok(events)
}

/// Only the time that is due is recorded, and once; a wish always is.
pub fn record(state: &State, firing: RecordFiring, now: Millis) -> Result<Vec<Event>, Refusal> {
    let RecordFiring { schedule: id, at, forced, document, job, problem, next } = firing;
    let Some(schedule) = state.schedules.get(&id) else { return Err(not_found()) };
    if !forced && schedule.due != Some(at) {
        return Ok(Vec::new());
    }
    // A time that was worked out of another definition counts no more.
    let known = !forced && schedule.document == document;
    let next = if known { next.filter(|_| schedule.enabled) } else { schedule.next };
    let mut events = vec![ScheduleTriggered { id, at, forced, job, problem, next }.into()];
    if !forced {
        events.extend(at_once(id, next, now));
    }
    Ok(events)
}

pub fn delete(state: &State, id: ScheduleId) -> Result<Vec<Event>, Refusal> {
    if state.schedules.contains_key(&id) { Ok(vec![ScheduleDeleted { id }.into()]) } else { Err(not_found()) }
}

/// A time that has passed already comes due with the event that says it: timers look ahead only.
fn at_once(id: ScheduleId, next: Option<Millis>, now: Millis) -> Option<Event> {
    next.filter(|at| *at <= now).map(|at| ScheduleDue { id, at }.into())
}

fn not_found() -> Refusal {
    Refusal::because(Code::ResourceNotFound, "The schedule was not found.")
}
