//! Families of jobs: who has waited long enough, who waits in vain, who ends with the rest, and when all of it is over.

use std::sync::Arc;

use crate::decide::{cancel_events, family_outcome};
use crate::draft::Draft;
use crate::event::{JobCancelRequested, JobEnded, JobReleased};
use crate::family::{Family, Wait};
use crate::ids::JobId;
use crate::job::{Class, Outcome};
use crate::planted::{self, Bug};
use crate::state::State;
use crate::units::Millis;

/// One pass at a family. True if the budget ended first.
pub fn advance(draft: &mut Draft, id: JobId, now: Millis, budget: usize) -> bool {
    let Some(family) = draft.state.families.get(&id).cloned() else { return false };
    let last = draft.events.len() + budget;
    let own_wait = draft.state.waits.get(&id).cloned();
    if let Some(why) = end_of_members(&family, own_wait.as_deref()) {
        for member in &family.members {
            if draft.events.len() >= last {
                return true;
            }
            end_member(draft, *member, &why, now);
        }
    }
    // Nobody starts in a family that may not start itself.
    if own_wait.is_none() {
        for member in &family.members {
            if draft.events.len() >= last {
                return true;
            }
            go_on(draft, &family, *member, now);
        }
    }
    let Some(family) = draft.state.families.get(&id).cloned() else { return false };
    if family.members.is_empty()
        && let Some(outcome) = end_of_family(&draft.state, &family, own_wait.as_deref())
    {
        draft.emit(now, JobEnded { id, attempt: None, exit: None, outcome });
    }
    false
}

/// A member that has waited long enough is released, and one that waits in vain ends. A family that waits in vain ends
/// after its members, in its own pass.
fn go_on(draft: &mut Draft, family: &Family, member: JobId, now: Millis) {
    let Some(wait) = draft.state.waits.get(&member).filter(|wait| is_over(wait)) else { return };
    let in_vain = wait.in_vain.filter(|_| !planted::is(Bug::InVainReleased));
    let within = draft.state.families.get(&member);
    match in_vain {
        Some(other) if within.is_none() => {
            let outcome = outcome_in_vain(family, other);
            draft.emit(now, JobEnded { id: member, attempt: None, exit: None, outcome });
        }
        Some(_) => {}
        None => {
            let timeout_ms = within.and_then(|family| family.timeout_ms);
            draft.emit(now, JobReleased { id: member, deadline: timeout_ms.map(|ms| now.plus(ms)) });
        }
    }
}

fn is_over(wait: &Wait) -> bool {
    wait.is_over() || (planted::is(Bug::ReleasedTooEarly) && wait.on.len() == 1)
}

/// What a family without members ends as, if it may end.
fn end_of_family(state: &State, family: &Family, own_wait: Option<&Wait>) -> Option<Outcome> {
    let Some(wait) = own_wait else { return family_outcome(family) };
    if family.cancel.is_some() || family.closing.is_some() {
        return family_outcome(family);
    }
    let around = state.families.get(&wait.family)?;
    wait.in_vain.map(|other| outcome_in_vain(around, other))
}

/// Why members that have not ended are to end now, if so.
fn end_of_members(family: &Family, own_wait: Option<&Wait>) -> Option<Arc<str>> {
    if let Some(cancel) = &family.cancel {
        return Some(cancel.reason.clone()).filter(|_| !planted::is(Bug::FamilyCancelLost));
    }
    match (&family.closing, &family.failed) {
        (Some(_), _) => Some(format!("The job '{}' needs it no more.", family.name).into()),
        (None, Some(failed)) if family.is_ending() => {
            Some(format!("The step '{}' did not complete.", failed.name).into())
        }
        (None, _) => own_wait.and_then(|wait| wait.in_vain).map(|_| {
            format!("The job '{}' never starts: something it waits for did not complete.", family.name).into()
        }),
    }
}

fn end_member(draft: &mut Draft, id: JobId, why: &Arc<str>, now: Millis) {
    if let Some(job) = draft.state.jobs.get(&id).cloned() {
        for event in cancel_events(&draft.state, &job, why.clone(), now) {
            draft.emit(now, event);
        }
    } else if draft.state.families.get(&id).is_some_and(|family| family.cancel.is_none()) {
        draft.emit(now, JobCancelRequested { id, reason: why.clone() });
    }
}

fn outcome_in_vain(family: &Family, other: JobId) -> Outcome {
    let message: Arc<str> = match &family.failed {
        Some(failed) if failed.job == other => {
            format!("The step '{}', whose output it needs, did not complete.", failed.name).into()
        }
        _ => "A step whose output it needs did not complete.".into(),
    };
    Outcome::canceled(Class::UserCode, "StepNotReached", message, "Look at the step that did not complete.")
}
