//! What has come due: no transitional state outlives its deadline, and each end has a reason.

use crate::decide::{boot_failed, stop_deadline};
use crate::draft::Draft;
use crate::event::{AttemptStopRequested, JobCancelRequested, NodeLeaving, ScheduleDue};
use crate::ids::{JobId, NodeId, ScheduleId};
use crate::job::StopReason;
use crate::node::NodeState;
use crate::plan::Dirty;
use crate::planted::{self, Bug};
use crate::state::Timer;
use crate::units::Millis;

pub fn expire(draft: &mut Draft, dirty: &mut Dirty, now: Millis) {
    if now <= dirty.timers_seen {
        return;
    }
    let from = (dirty.timers_seen.plus(1), Timer::FIRST);
    let due: Vec<Timer> =
        draft.state.timers.range(from..).take_while(|(at, _)| *at <= now).map(|(_, timer)| *timer).collect();
    for timer in due {
        match timer {
            Timer::Node(id) => node_due(draft, dirty, id, now),
            Timer::Job(id) => job_due(draft, id, now),
            Timer::Cluster(_) if planted::is(Bug::BackoffNeverEnds) => {}
            Timer::Cluster(id) => {
                dirty.clusters.insert(id);
            }
            Timer::Window(id) => {
                dirty.clusters.insert(id);
            }
            Timer::Schedule(id) => schedule_due(draft, id, now),
            Timer::Draining => stop_everything(draft, now),
            Timer::Money(id) => dirty.clusters.extend(draft.state.nodes.get(&id).map(|node| node.cluster)),
            Timer::Budget(id) => super::money::period_over(draft, id, now),
        }
    }
    dirty.timers_seen = now;
}

fn node_due(draft: &mut Draft, dirty: &mut Dirty, id: NodeId, now: Millis) {
    let Some(node) = draft.state.nodes.get(&id).cloned() else { return };
    let settings = &draft.state.settings;
    match node.state {
        NodeState::Requested { .. } => {
            let reason =
                format!("the provider did not make it within {} s", settings.create_deadline_ms / 1000);
            fail(draft, &node, reason, now);
        }
        NodeState::Creating { .. } => {
            let reason = format!("its agent did not join within {} s", settings.create_deadline_ms / 1000);
            fail(draft, &node, reason, now);
        }
        NodeState::Preparing { .. } => {
            let reason = format!(
                "its agent joined and was not heard of for {} s",
                settings.prepare_deadline_ms / 1000
            );
            fail(draft, &node, reason, now);
        }
        // Its idle time is over: whether it goes is for `scale` to say.
        NodeState::Ready => {
            dirty.clusters.insert(node.cluster);
        }
        NodeState::Leaving { .. } => {
            let deadline = now.plus(settings.leave_deadline_ms);
            draft.emit(now, NodeLeaving { id, deadline, reason: node.reason.clone() });
        }
        NodeState::Unusable { .. } | NodeState::Preempted { .. } => {
            let deadline = now.plus(settings.leave_deadline_ms);
            draft.emit(now, NodeLeaving { id, deadline, reason: node.reason.clone() });
        }
    }
}

fn fail(draft: &mut Draft, node: &crate::node::Node, reason: String, now: Millis) {
    for event in boot_failed(&draft.state, node, reason.into(), now) {
        draft.emit(now, event);
    }
}

fn job_due(draft: &mut Draft, id: JobId, now: Millis) {
    if let Some(family) = draft.state.families.get(&id).filter(|family| family.cancel.is_none()) {
        let reason = format!(
            "The job took longer than its limits.timeout of {} seconds and was ended.",
            family.timeout_ms.unwrap_or_default() / 1000
        );
        draft.emit(now, JobCancelRequested { id, reason: reason.into() });
        return;
    }
    let Some(job) = draft.state.jobs.get(&id).cloned() else { return };
    let Some(attempt) = job.attempt() else { return };
    if attempt.stop.is_none() {
        let deadline = stop_deadline(&draft.state, now);
        let its_time = attempt.run_deadline.is_some_and(|at| at <= now);
        // Else its room was promised to somebody else for soon.
        let why = if its_time { StopReason::Timeout } else { StopReason::Preempt };
        draft.emit(now, AttemptStopRequested { id, attempt: attempt.number, why, deadline, reason: None });
        return;
    }
    // It was told to end and did not: its nodes are fenced, which ends it for certain.
    for id in attempt.nodes_held() {
        let Some(node) = draft.state.nodes.get(&id) else { continue };
        if !matches!(node.state, NodeState::Leaving { .. }) {
            let deadline = now.plus(draft.state.settings.leave_deadline_ms);
            let reason = format!("job '{}' did not end when it was told to", job.name).into();
            draft.emit(now, NodeLeaving { id, deadline, reason });
        }
    }
}

/// One firing for whatever stretch was missed; the calendar goes on from now.
fn schedule_due(draft: &mut Draft, id: ScheduleId, now: Millis) {
    let Some(at) = draft.state.schedules.get(&id).and_then(|schedule| schedule.timer()) else { return };
    draft.emit(now, ScheduleDue { id, at });
}

/// The drain's patience is over.
fn stop_everything(draft: &mut Draft, now: Millis) {
    let deadline = stop_deadline(&draft.state, now);
    let running: Vec<_> = draft
        .state
        .jobs
        .values()
        .filter_map(|job| job.attempt().filter(|a| a.stop.is_none()).map(|a| (job.id, a.number)))
        .collect();
    for (id, attempt) in running {
        let why = StopReason::Draining;
        draft.emit(now, AttemptStopRequested { id, attempt, why, deadline, reason: None });
    }
}
