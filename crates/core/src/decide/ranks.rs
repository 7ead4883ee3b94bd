//! An attempt on several nodes: its ranks start, fail and end together.
//!
//! The attempt runs when its last rank does. The first rank that does not succeed, or whose node is lost, stops the
//! others; when the last has ended the job ends, or is queued again, for what became of that first one. If a node
//! was lost at all, the attempt counts as lost: the other ranks fail for want of it.

use std::sync::Arc;

use super::jobs::{of_rank, outcome_of_exit, stop_deadline};
use super::reports::{lost as lost_alone, requeued, run_deadline, with_revision};
use crate::command::AttemptNews;
use crate::event::{
    AttemptFinalizing, AttemptMeasured, AttemptStarted, AttemptStopRequested, Event, JobEnded, RankEnded,
    RankReported,
};
use crate::ids::{AttemptId, NodeId};
use crate::job::{Attempt, Blame, Exit, Job, Outcome, Phase, StopReason};
use crate::node::NodeState;
use crate::planted::{self, Bug};
use crate::state::State;
use crate::units::Millis;

pub(super) struct News {
    pub node: NodeId,
    pub number: u64,
    pub news: AttemptNews,
}

pub(super) fn report(state: &State, job: &Job, attempt: &Attempt, news: News, now: Millis) -> Vec<Event> {
    let News { node, number, news } = news;
    let Some(rank) = attempt.rank_on(node) else { return Vec::new() };
    let (id, number_of) = (job.id, attempt.number);
    let reported = |phase| RankReported { id, attempt: number_of, rank, report: number, phase }.into();
    let others_past = |phase: Phase| {
        let others = attempt.ranks.iter().filter(|other| other.node != node);
        others.into_iter().all(|other| other.over || order(other.phase) >= order(phase))
    };
    match news {
        AttemptNews::Started { facts } => {
            let mut events = vec![reported(Phase::Running)];
            if attempt.phase == Phase::Assigned && others_past(Phase::Running) {
                let run_deadline = run_deadline(state, job, now);
                let facts = with_revision(state, job, facts);
                events.push(
                    AttemptStarted { id, attempt: number_of, report: number, run_deadline, facts }.into(),
                );
            }
            events
        }
        AttemptNews::Measured { facts } => {
            let rank = Some(rank);
            vec![AttemptMeasured { id, attempt: number_of, rank, report: number, facts }.into()]
        }
        AttemptNews::Finalizing => {
            let mut events = vec![reported(Phase::Finalizing)];
            if attempt.phase == Phase::Running && others_past(Phase::Finalizing) {
                events.push(AttemptFinalizing { id, attempt: number_of, report: number }.into());
            }
            events
        }
        AttemptNews::Ended { exit } => {
            let ended = RankEnded {
                id,
                attempt: number_of,
                rank,
                node,
                report: number,
                exit: Some(exit),
                reason: None,
            };
            over(state, job, attempt, ended, now)
        }
    }
}

/// The node is certainly gone, and the rank with it.
pub(super) fn lost(
    state: &State,
    job: &Job,
    attempt: &Attempt,
    node: NodeId,
    reason: &Arc<str>,
    now: Millis,
) -> Vec<Event> {
    let Some(rank) = attempt.rank_on(node) else { return Vec::new() };
    // A node that was taken away because it did not stop when told to has stopped; it was not lost.
    let leaves = state
        .nodes
        .get(&node)
        .is_some_and(|node| matches!(node.state, NodeState::Leaving { .. } | NodeState::Preempted { .. }));
    let exit = (leaves && attempt.stop.is_some()).then_some(Exit::Stopped);
    let ended = RankEnded {
        id: job.id,
        attempt: attempt.number,
        rank,
        node,
        report: u64::MAX,
        exit,
        reason: Some(reason.clone()),
    };
    if planted::is(Bug::RankLossRequeues) {
        return vec![
            ended.into(),
            lost_alone(job, AttemptId { job: job.id, number: attempt.number }, reason),
        ];
    }
    over(state, job, attempt, ended, now)
}

fn over(state: &State, job: &Job, attempt: &Attempt, ended: RankEnded, now: Millis) -> Vec<Event> {
    let left = attempt.ranks.iter().any(|other| !other.over && other.node != ended.node);
    let blame = Blame::after(attempt.blame.clone(), &ended);
    let mut events = vec![ended.into()];
    if !left {
        events.push(resolve(job, attempt, blame));
    } else if blame.is_some() && attempt.stop.is_none() {
        let deadline = stop_deadline(state, now);
        let stop = AttemptStopRequested {
            id: job.id,
            attempt: attempt.number,
            why: StopReason::Rank,
            deadline,
            reason: None,
        };
        events.push(stop.into());
    }
    events
}

/// The last rank has ended: what that means for the job.
fn resolve(job: &Job, attempt: &Attempt, blame: Option<Blame>) -> Event {
    let id = AttemptId { job: job.id, number: attempt.number };
    let ended = |exit, outcome| JobEnded { id: job.id, attempt: Some(attempt.number), exit, outcome }.into();
    match blame {
        None => match outcome_of_exit(job, &Exit::Success) {
            Ok(outcome) => ended(Some(Exit::Success), outcome),
            Err(requeue) => requeued(job, id, requeue),
        },
        Some(Blame { rank, exit: None, reason }) => {
            let node = attempt.ranks.get(rank as usize).map_or(attempt.node, |rank| rank.node);
            lost_alone(job, id, &format!("rank {rank} (node n-{node}): {reason}").into())
        }
        Some(Blame { rank, exit: Some(exit), .. }) => match outcome_of_exit(job, &exit) {
            Ok(outcome) => {
                let outcome = named(outcome, &exit, rank, attempt);
                ended(Some(exit), outcome)
            }
            Err(requeue) => requeued(job, id, requeue),
        },
    }
}

/// Says which rank it was, unless that is known more closely: which of the node's processes.
fn named(outcome: Outcome, exit: &Exit, rank: u32, attempt: &Attempt) -> Outcome {
    let by_rank = attempt.stop.as_ref().is_none_or(|stop| stop.why == StopReason::Rank);
    if !by_rank || matches!(exit, Exit::Process { .. }) {
        return outcome;
    }
    let node = attempt.ranks.get(rank as usize).map_or(attempt.node, |rank| rank.node);
    of_rank(outcome, rank, &format!(" (node n-{node})"))
}

const fn order(phase: Phase) -> u8 {
    match phase {
        Phase::Assigned => 0,
        Phase::Running => 1,
        Phase::Finalizing => 2,
    }
}
