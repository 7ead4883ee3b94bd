//! Submitting a whole family of jobs, all of it or nothing, and closing one that is driven from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::jobs::{self, Asked};
use super::places::open_workspace;
use super::shape;
use crate::command::{NewMemberKind, SubmitFamily};
use crate::event::{Event, FamilyClosing, FamilyOpened, JobEnded, JobSubmitted};
use crate::family::FamilyKind;
use crate::ids::{ClusterId, JobId, WorkspaceId};
use crate::job::Outcome;
use crate::limits;
use crate::names;
use crate::problem::{Code, Problem, Refusal};
use crate::state::State;
use crate::units::Millis;

pub fn submit(state: &State, submit: SubmitFamily, now: Millis) -> Result<Vec<Event>, Refusal> {
    super::refuse_while_draining(state)?;
    open_workspace(state, submit.workspace)?;
    let Some(first) = submit.members.first() else {
        return Err(Refusal::because(Code::BadArgument, "The job has no members."));
    };
    if state.job_named(submit.workspace, &first.name).is_some() {
        return Err(jobs::name_taken(&first.name));
    }
    let mut problems = submit.problems.clone();
    let steps = submit.members.len() - 1;
    if steps > limits::FAMILY_MEMBERS_MAX {
        problems.push(Problem::new(
            Code::LimitReached,
            format!("The job has {steps} steps; {} is the limit.", limits::FAMILY_MEMBERS_MAX),
        ));
    }
    shape::check(&submit.members, &mut problems);
    let mut seen = BTreeSet::new();
    let mut clusters = Vec::with_capacity(submit.members.len());
    for member in &submit.members {
        problems.extend(names::check_job_name(&member.name));
        let taken = state.job_named(submit.workspace, &member.name).is_some();
        if taken || !seen.insert(member.name.to_lowercase()) {
            problems.push(jobs::name_taken_problem(&member.name));
        }
        clusters.push(match &member.what {
            NewMemberKind::Family { .. } => None,
            NewMemberKind::Job { cluster, need, nodes, tier, reused, .. } => {
                let asked = Asked { workspace: submit.workspace, cluster, need, nodes: *nodes, tier: *tier };
                jobs::check_cluster(state, asked, &mut problems).map(|cluster| (cluster.id, *reused))
            }
        });
    }
    let mut coming: BTreeMap<ClusterId, usize> = BTreeMap::new();
    for (cluster, _) in clusters.iter().flatten().filter(|(_, reused)| !reused) {
        *coming.entry(*cluster).or_default() += 1;
    }
    let too_many =
        |(cluster, more)| state.clusters.get(&cluster).and_then(|c| jobs::check_queue(state, c, more));
    problems.extend(coming.into_iter().filter_map(too_many));
    Refusal::unless_empty(problems)?;
    let id_of = |at: usize| JobId(state.next.job.0 + at as u64);
    let waits = shape::waits(&submit.members);
    let mut events = Vec::with_capacity(submit.members.len());
    let mut ends: Vec<Event> = Vec::new();
    for (at, (member, cluster)) in submit.members.into_iter().zip(clusters).enumerate() {
        let family = (at > 0).then(|| id_of(member.family));
        let after: Vec<JobId> = member.after.iter().map(|other| id_of(*other)).collect();
        match (member.what, cluster) {
            (NewMemberKind::Family { kind, timeout_ms }, _) => {
                let deadline = timeout_ms.filter(|_| !waits[at]).map(|ms| now.plus(ms));
                events.push(
                    FamilyOpened {
                        id: id_of(at),
                        workspace: submit.workspace,
                        name: member.name,
                        owner: submit.owner.clone(),
                        kind,
                        family,
                        after,
                        timeout_ms,
                        deadline,
                        tags: member.tags,
                        document: member.document,
                        meta: member.meta,
                    }
                    .into(),
                );
            }
            (
                NewMemberKind::Job { priority, need, nodes, timeout_ms, retry, tier, like, work, .. },
                Some((cluster, reused)),
            ) => {
                events.push(
                    JobSubmitted {
                        id: id_of(at),
                        workspace: submit.workspace,
                        cluster,
                        name: member.name,
                        owner: submit.owner.clone(),
                        priority,
                        need,
                        timeout_ms,
                        retry,
                        tier,
                        nodes,
                        family,
                        like,
                        after: if reused { Vec::new() } else { after },
                        tags: member.tags,
                        // It is the earlier job that did it, and whose outputs are taken again.
                        work: work.filter(|_| !reused),
                        document: member.document,
                        meta: member.meta,
                    }
                    .into(),
                );
                if reused {
                    let outcome = Outcome::completed();
                    ends.push(JobEnded { id: id_of(at), attempt: None, exit: None, outcome }.into());
                }
            }
            (NewMemberKind::Job { cluster, .. }, None) => return Err(jobs::no_cluster(&cluster).into()),
        }
    }
    // After everybody is there: whoever waits for one of them hears of its end.
    events.append(&mut ends);
    Ok(events)
}

/// May a job become a member of this family now?
pub(super) fn check_open(state: &State, workspace: WorkspaceId, family: JobId) -> Result<(), Refusal> {
    let refused = |message: String| Err(Refusal::because(Code::JobAlreadyFinal, message));
    let Some(family) = state.families.get(&family).filter(|family| family.workspace == workspace) else {
        return refused("The job that it is to be part of has ended.".into());
    };
    if family.kind != FamilyKind::Driven || family.is_ending() || state.waits.contains_key(&family.id) {
        return refused(format!("The job '{}' takes no members now.", family.name));
    }
    if family.members.len() >= limits::FAMILY_MEMBERS_MAX {
        return refused(format!("The job '{}' has {} members already.", family.name, family.members.len()));
    }
    Ok(())
}

pub fn close(state: &State, id: JobId, outcome: Outcome) -> Result<Vec<Event>, Refusal> {
    let Some(family) = state.families.get(&id) else {
        return Err(Refusal::because(Code::JobAlreadyFinal, "The job has already ended."));
    };
    if family.kind != FamilyKind::Driven {
        return Err(Refusal::because(
            Code::BadArgument,
            format!("The job '{}' ends when its steps do.", family.name),
        ));
    }
    if !outcome.status.is_final() {
        return Err(Refusal::because(
            Code::BadArgument,
            format!("The job '{}' cannot end as {}, which is no end.", family.name, outcome.status.word()),
        ));
    }
    if family.closing.is_some() {
        return Ok(Vec::new());
    }
    Ok(vec![FamilyClosing { id, outcome }.into()])
}

/// What a family ends as when its last member has.
pub(crate) fn outcome_of(family: &crate::family::Family) -> Option<Outcome> {
    if let Some(cancel) = &family.cancel {
        let timed_out = family.deadline.is_some_and(|deadline| deadline <= cancel.at);
        return Some(if timed_out {
            jobs::timed_out(cancel.reason.clone())
        } else {
            jobs::canceled(cancel.reason.clone())
        });
    }
    match family.kind {
        FamilyKind::Driven => family.closing.as_ref().map(Outcome::from),
        FamilyKind::Steps { .. } => Some(match &family.failed {
            None => Outcome::completed(),
            Some(failed) => {
                let message: Arc<str> = format!(
                    "The step '{}' {}: {}",
                    failed.name,
                    match failed.status {
                        crate::job::Status::Canceled => "was canceled",
                        _ => "failed",
                    },
                    failed.message
                )
                .into();
                Outcome::failed(
                    failed.class,
                    "StepFailed",
                    message,
                    "Look at the step: 'neap job show' and 'neap job stream' with its name.",
                )
            }
        }),
    }
}
