//! What happened to families of jobs, and to whoever waits within them.

use std::sync::Arc;

use super::clusters::with_cluster;
use super::jobs::enqueue;
use crate::budget::Label;
use crate::event::{FamilyClosing, FamilyOpened, JobCancelRequested, JobEnded, JobReleased};
use crate::family::{FailedMember, Family, Wait};
use crate::ids::{JobId, NameFingerprint};
use crate::job::{Cancel, Class, JobState, Status};
use crate::state::{State, Timer};
use crate::units::Millis;

pub(super) fn opened(state: &mut State, at: Millis, e: &FamilyOpened) {
    let family = Family {
        id: e.id,
        workspace: e.workspace,
        name: e.name.clone(),
        owner: e.owner.clone(),
        document: e.document,
        family: e.family,
        tags: tags(state, e.family, &e.tags),
        kind: e.kind,
        opened: at,
        timeout_ms: e.timeout_ms,
        deadline: None,
        members: Default::default(),
        failed: None,
        cancel: None,
        closing: None,
    };
    state.job_names.insert((e.workspace, NameFingerprint::of(&e.name)), e.id);
    state.families.insert(e.id, Arc::new(family));
    state.next.job = state.next.job.max(e.id.next());
    joined(state, e.id, e.family, &e.after);
    with_family(state, e.id, |family| family.deadline = e.deadline);
}

/// Whether a new member has to wait: for others, or because its family does.
pub(super) fn has_to_wait(state: &State, family: Option<JobId>, after: &[JobId]) -> bool {
    !after.is_empty() || family.is_some_and(|family| state.waits.contains_key(&family))
}

/// A job or family became a member, and may have to wait.
pub(super) fn joined(state: &mut State, id: JobId, family: Option<JobId>, after: &[JobId]) {
    let Some(family) = family else { return };
    with_family(state, family, |family| {
        family.members.insert(id);
    });
    if !has_to_wait(state, Some(family), after) {
        return;
    }
    for other in after {
        state.awaited.entry(*other).or_default().insert(id);
    }
    let wait = Wait { family, on: after.iter().copied().collect(), in_vain: None };
    state.waits.insert(id, Arc::new(wait));
}

pub(super) fn released(state: &mut State, at: Millis, e: &JobReleased) {
    waits_no_more(state, e.id);
    with_family(state, e.id, |family| family.deadline = e.deadline);
    let Some(job) = state.jobs.get_mut(&e.id).map(Arc::make_mut) else { return };
    job.state = JobState::Queued { since: at, reason: None };
    let cluster = job.cluster;
    with_cluster(state, cluster, |cluster| {
        cluster.waiting.remove(&e.id);
    });
    enqueue(state, e.id);
}

/// A member has its own tags, and those of its family.
pub(super) fn tags(state: &State, family: Option<JobId>, own: &[Label]) -> Vec<Label> {
    let around = family.and_then(|id| state.families.get(&id)).map(|family| family.tags.clone());
    let mut tags = around.unwrap_or_default();
    tags.extend(own.iter().filter(|tag| !tags.contains(tag)).copied().collect::<Vec<_>>());
    tags
}

pub(super) fn closing(state: &mut State, e: &FamilyClosing) {
    with_family(state, e.id, |family| family.closing = Some((&e.outcome).into()));
}

pub(super) fn cancel_requested(state: &mut State, at: Millis, e: &JobCancelRequested) {
    with_family(state, e.id, |family| family.cancel = Some(Cancel { at, reason: e.reason.clone() }));
}

/// A job or family has ended: whoever waits for it, and its family, hear of it.
pub(super) fn ended(state: &mut State, e: &JobEnded) {
    let parted = match state.families.get(&e.id) {
        Some(family) => {
            let parted = (family.family, family.name.clone());
            with_family(state, e.id, |family| family.deadline = None);
            state.families.remove(&e.id);
            Some(parted)
        }
        None => state.jobs.get(&e.id).map(|job| (job.family, job.name.clone())),
    };
    waits_no_more(state, e.id);
    let completed = e.outcome.status == Status::Completed;
    for waiter in state.awaited.remove(&e.id).unwrap_or_default() {
        if let Some(wait) = state.waits.get_mut(&waiter).map(Arc::make_mut) {
            wait.on.remove(&e.id);
            if !completed {
                wait.in_vain.get_or_insert(e.id);
            }
        }
    }
    let Some((Some(family), name)) = parted else { return };
    let failure = e.outcome.failure.as_ref();
    let message = failure.map(|failure| failure.message.clone());
    let class = failure.map_or(Class::System, |failure| failure.class);
    with_family(state, family, |family| {
        family.members.remove(&e.id);
        if !completed && family.failed.is_none() {
            let message = message.unwrap_or_default();
            family.failed = Some(FailedMember { job: e.id, name, status: e.outcome.status, class, message });
        }
    });
}

fn waits_no_more(state: &mut State, id: JobId) {
    let Some(wait) = state.waits.remove(&id) else { return };
    for other in &wait.on {
        if let Some(waiters) = state.awaited.get_mut(other) {
            waiters.remove(&id);
            if waiters.is_empty() {
                state.awaited.remove(other);
            }
        }
    }
}

/// Changes a family and keeps its timer.
fn with_family(state: &mut State, id: JobId, change: impl FnOnce(&mut Family)) {
    let Some(family) = state.families.get_mut(&id).map(Arc::make_mut) else { return };
    let before = family_timer(family);
    change(family);
    let after = family_timer(family);
    if before != after {
        before.map(|at| state.timers.remove(&(at, Timer::Job(id))));
        after.map(|at| state.timers.insert((at, Timer::Job(id))));
    }
}

/// When a family next needs a look: at the end of its time, unless it is ending already.
pub fn family_timer(family: &Family) -> Option<Millis> {
    family.deadline.filter(|_| family.cancel.is_none())
}
