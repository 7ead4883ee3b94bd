//! Schedules: kept with their timers, and with the set of those that are due.

use std::sync::Arc;

use crate::event::{ScheduleDeleted, ScheduleDue, SchedulePut, ScheduleTriggered};
use crate::ids::ScheduleId;
use crate::limits::SCHEDULE_FIRINGS_KEPT;
use crate::schedule::{Firing, Schedule};
use crate::state::{State, Timer};
use crate::units::Millis;

pub(super) fn put(state: &mut State, at: Millis, e: &SchedulePut) {
    if !state.schedules.contains_key(&e.id) {
        let schedule = Schedule {
            id: e.id,
            workspace: e.workspace,
            name: e.name.clone(),
            owner: e.owner.clone(),
            enabled: false,
            next: None,
            due: None,
            firings: Vec::new(),
            document: e.document,
            created: at,
            modified: at,
        };
        state.schedule_names.insert((e.workspace, e.name.to_lowercase().into()), e.id);
        state.schedules.insert(e.id, Arc::new(schedule));
        state.next.schedule = state.next.schedule.max(e.id.next());
    }
    with_schedule(state, e.id, |schedule| {
        schedule.enabled = e.enabled;
        schedule.next = e.next;
        schedule.document = e.document;
        schedule.modified = at;
        if !e.enabled {
            schedule.due = None;
        }
    });
}

pub(super) fn due(state: &mut State, e: &ScheduleDue) {
    with_schedule(state, e.id, |schedule| {
        schedule.due = Some(e.at);
        schedule.next = None;
    });
}

pub(super) fn triggered(state: &mut State, e: &ScheduleTriggered) {
    with_schedule(state, e.id, |schedule| {
        if !e.forced {
            schedule.due = None;
        }
        schedule.next = e.next;
        let firing = Firing { at: e.at, forced: e.forced, job: e.job.clone(), problem: e.problem.clone() };
        schedule.firings.push(firing);
        let many = schedule.firings.len().saturating_sub(SCHEDULE_FIRINGS_KEPT);
        schedule.firings.drain(..many);
    });
}

pub(super) fn deleted(state: &mut State, e: &ScheduleDeleted) {
    with_schedule(state, e.id, |schedule| {
        schedule.next = None;
        schedule.due = None;
    });
    if let Some(schedule) = state.schedules.remove(&e.id) {
        state.schedule_names.remove(&(schedule.workspace, schedule.name.to_lowercase().into()));
    }
}

fn with_schedule(state: &mut State, id: ScheduleId, change: impl FnOnce(&mut Schedule)) {
    let Some(schedule) = state.schedules.get_mut(&id).map(Arc::make_mut) else { return };
    let before = schedule.timer();
    change(schedule);
    let (after, due) = (schedule.timer(), schedule.due.is_some());
    before.map(|at| state.timers.remove(&(at, Timer::Schedule(id))));
    after.map(|at| state.timers.insert((at, Timer::Schedule(id))));
    if due {
        state.schedules_due.insert(id);
    } else {
        state.schedules_due.remove(&id);
    }
}
