//! Families of jobs: who has waited long enough, who waits in vain, who ends with the rest, and when all of it is over.

use std::sync::Arc;

use crate::decide::{cancel_events, family_outcome};
use crate::draft::Draft;
use crate::event::{JobCancelRequested, JobEnded, JobReleased};
use crate::ids::JobId;
use crate::job::{Class, Outcome};
use crate::units::Millis;

/// One pass at a family. True if the budget ended first.
pub fn advance(draft: &mut Draft, id: JobId, now: Millis, budget: usize) -> bool {
    let Some(family) = draft.state.families.get(&id).cloned() else { return false };
    let last = draft.events.len() + budget;
    if let Some(why) = end_of_members(&family) {
        for member in &family.members {
            if draft.events.len() >= last {
                return true;
            }
            end_member(draft, *member, &why, now);
        }
    }
    for member in &family.members {
        if draft.events.len() >= last {
            return true;
        }
        let Some(wait) = draft.state.waits.get(member).filter(|wait| wait.is_over()).cloned() else {
            continue;
        };
        match wait.in_vain {
            Some(other) => {
                let outcome = in_vain(&family, other);
                draft.emit(now, JobEnded { id: *member, attempt: None, exit: None, outcome });
            }
            None => {
                let timeout_ms = draft.state.families.get(member).and_then(|family| family.timeout_ms);
                draft.emit(now, JobReleased { id: *member, deadline: timeout_ms.map(|ms| now.plus(ms)) });
            }
        }
    }
    let Some(family) = draft.state.families.get(&id).cloned() else { return false };
    if family.members.is_empty()
        && let Some(outcome) = family_outcome(&family)
    {
        draft.emit(now, JobEnded { id, attempt: None, exit: None, outcome });
    }
    false
}

/// Why members that have not ended are to end now, if so.
fn end_of_members(family: &crate::family::Family) -> Option<Arc<str>> {
    if let Some(cancel) = &family.cancel {
        return Some(cancel.reason.clone());
    }
    match (&family.closing, &family.failed) {
        (Some(_), _) => Some(format!("The job '{}' needs it no more.", family.name).into()),
        (None, Some(failed)) if family.is_ending() => {
            Some(format!("The step '{}' did not complete.", failed.name).into())
        }
        (None, _) => None,
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

fn in_vain(family: &crate::family::Family, other: JobId) -> Outcome {
    let message: Arc<str> = match &family.failed {
        Some(failed) if failed.job == other => {
            format!("The step '{}', whose output it needs, did not complete.", failed.name).into()
        }
        _ => "A step whose output it needs did not complete.".into(),
    };
    Outcome::canceled(Class::UserCode, "StepNotReached", message, "Look at the step that did not complete.")
}
