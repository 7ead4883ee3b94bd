//! News from providers and agents, through the same door as everything else.

use std::sync::Arc;

use super::jobs::{canceled, outcome_of_exit};
use super::ranks;
use super::retries::{self, Requeue};
use crate::cluster::Tier;
use crate::command::{AttemptNews, Report};
use crate::event::{
    AttemptFinalizing, AttemptMeasured, AttemptStarted, Event, JobEnded, JobRequeued, NodeCreating, NodeGone,
    NodeHeard, NodePreparing, NodeReady, NodeSilent, NodeUnusable,
};
use crate::ids::{AttemptId, NodeId};
use crate::job::{AttemptFacts, Cause, Job, PROVENANCE, Phase, StopReason};
use crate::limits;
use crate::node::{Node, NodeState};
use crate::planted::{self, Bug};
use crate::problem::{Code, Refusal};
use crate::state::State;
use crate::units::Millis;

pub fn report(state: &State, report: Report, now: Millis) -> Result<Vec<Event>, Refusal> {
    match report {
        Report::NodeCreating { node } => Ok(match known(state, node)?.state {
            NodeState::Requested { .. } => {
                vec![NodeCreating { id: node, deadline: now.plus(state.settings.create_deadline_ms) }.into()]
            }
            _ => Vec::new(),
        }),
        Report::NodePreparing { node } => Ok(match known(state, node)?.state {
            NodeState::Requested { .. } | NodeState::Creating { .. } => {
                vec![
                    NodePreparing { id: node, deadline: now.plus(state.settings.prepare_deadline_ms) }.into(),
                ]
            }
            // A second agent with the same name: only the first is the node.
            NodeState::Preparing { .. } | NodeState::Ready => {
                return Err(Refusal::because(Code::LimitReached, "The node has joined already."));
            }
            NodeState::Leaving { .. } | NodeState::Unusable { .. } | NodeState::Preempted { .. } => {
                return Err(Refusal::because(Code::ResourceBeingDeleted, "The node is no longer wanted."));
            }
        }),
        Report::NodeFailed { node, reason } => Ok(boot_failed(state, known(state, node)?, reason, now)),
        // Taken back, and here again to go on saving.
        Report::NodeReady { node, .. }
            if known(state, node).is_ok_and(|node| {
                matches!(node.state, NodeState::Preempted { .. }) && node.actual.is_some()
            }) =>
        {
            Ok(Vec::new())
        }
        Report::NodeReady { node, actual, isolation } => match known(state, node)?.state {
            NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. } => {
                Ok(vec![NodeReady { id: node, actual, isolation }.into()])
            }
            NodeState::Ready => Ok(Vec::new()),
            NodeState::Leaving { .. } | NodeState::Unusable { .. } | NodeState::Preempted { .. } => {
                Err(Refusal::because(Code::ResourceBeingDeleted, "The node is no longer wanted."))
            }
        },
        Report::NodeSilent { node } => Ok(match state.nodes.get(&node) {
            Some(n) if n.state == NodeState::Ready && !n.silent => vec![NodeSilent { id: node }.into()],
            _ => Vec::new(),
        }),
        Report::NodeHeard { node } => Ok(match state.nodes.get(&node) {
            Some(n) if n.silent => vec![NodeHeard { id: node }.into()],
            _ => Vec::new(),
        }),
        Report::NodeGone { node, reason } => Ok(match state.nodes.get(&node) {
            None => Vec::new(),
            Some(node) => gone(state, node, reason, now),
        }),
        Report::Attempt { node, attempt, number, news } => {
            attempt_report(state, node, attempt, number, news, now)
        }
    }
}

fn known(state: &State, id: NodeId) -> Result<&Arc<Node>, Refusal> {
    state
        .nodes
        .get(&id)
        .ok_or_else(|| Refusal::because(Code::ResourceNotFound, format!("Node n-{id} is not known.")))
}

/// A node that was on its way and will not come. It is shown for a while, and the next try waits.
pub(crate) fn boot_failed(state: &State, node: &Node, reason: Arc<str>, now: Millis) -> Vec<Event> {
    match node.state {
        NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. } => {
            let failures = state.clusters.get(&node.cluster).map_or(0, |c| c.boot.failures);
            let wait_ms = (limits::BOOT_BACKOFF_MS_MIN << failures.min(10)).min(limits::BOOT_BACKOFF_MS_MAX);
            vec![
                NodeUnusable {
                    id: node.id,
                    deadline: now.plus(state.settings.unusable_keep_ms),
                    reason,
                    retry_at: Some(now.plus(wait_ms)),
                }
                .into(),
            ]
        }
        NodeState::Ready
        | NodeState::Leaving { .. }
        | NodeState::Unusable { .. }
        | NodeState::Preempted { .. } => Vec::new(),
    }
}

fn gone(state: &State, node: &Node, reason: Arc<str>, now: Millis) -> Vec<Event> {
    match node.state {
        NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. } => {
            boot_failed(state, node, reason, now)
        }
        // Shown until its deadline; then it leaves and is gone.
        NodeState::Unusable { .. } => Vec::new(),
        NodeState::Ready | NodeState::Leaving { .. } | NodeState::Preempted { .. } => {
            let mut events = resolve_lost_attempts(state, node, &reason, now);
            events.push(NodeGone { id: node.id, reason }.into());
            events
        }
    }
}

/// What becomes of the jobs on a node that is certainly gone.
fn resolve_lost_attempts(state: &State, node: &Node, reason: &Arc<str>, now: Millis) -> Vec<Event> {
    let mut events = Vec::new();
    for id in &node.attempts {
        let Some(job) = state.jobs.get(&id.job) else { continue };
        match job.attempt().filter(|attempt| !attempt.ranks.is_empty()) {
            None => events.push(lost(job, *id, reason)),
            Some(attempt) => events.extend(ranks::lost(state, job, attempt, node.id, reason, now)),
        }
    }
    events
}

pub(super) fn lost(job: &Job, attempt: AttemptId, reason: &Arc<str>) -> Event {
    let ended = |outcome| JobEnded { id: job.id, attempt: Some(attempt.number), exit: None, outcome }.into();
    if let Some(cancel) = &job.cancel {
        return ended(canceled(cancel.reason.clone()));
    }
    let stop = job.attempt().and_then(|a| a.stop.as_ref()).map(|stop| stop.why);
    match stop {
        Some(StopReason::Timeout) => {
            // The time was up; that the node went too does not give it more.
            let exit = crate::job::Exit::Timeout;
            match outcome_of_exit(job, &exit) {
                Ok(outcome) => ended(outcome),
                Err(requeue) => requeued(job, attempt, requeue),
            }
        }
        Some(StopReason::Draining) => requeued(job, attempt, Requeue::server_stopped()),
        Some(StopReason::Budget) => requeued(job, attempt, Requeue::budget(job)),
        Some(StopReason::Cancel | StopReason::Rank | StopReason::Preempt) | None => {
            let cause = match stop {
                Some(StopReason::Preempt) => Cause::Preempted,
                _ => Cause::NodeLost,
            };
            match retries::again(job, cause, reason.clone()) {
                Ok(outcome) => ended(outcome),
                Err(requeue) => requeued(job, attempt, requeue),
            }
        }
    }
}

pub(super) fn requeued(job: &Job, attempt: AttemptId, requeue: Requeue) -> Event {
    JobRequeued { id: job.id, attempt: attempt.number, reason: requeue.reason, cause: requeue.cause }.into()
}

/// A report of an attempt that is not the job's current one, or that was taken in before, changes nothing.
fn attempt_report(
    state: &State,
    node: NodeId,
    id: AttemptId,
    number: u64,
    news: AttemptNews,
    now: Millis,
) -> Result<Vec<Event>, Refusal> {
    let Some(job) = state.jobs.get(&id.job) else {
        if planted::is(Bug::ReportAcceptedTwice) && matches!(news, AttemptNews::Ended { .. }) {
            let outcome = crate::job::Outcome::completed();
            return Ok(vec![JobEnded { id: id.job, attempt: Some(id.number), exit: None, outcome }.into()]);
        }
        return Ok(Vec::new());
    };
    let its_own = |a: &&crate::job::Attempt| {
        (a.number == id.number && a.phase_on(node).is_some()) || planted::is(Bug::StaleAttemptAccepted)
    };
    if planted::is(Bug::RankEndCountedTwice)
        && matches!(news, AttemptNews::Ended { .. })
        && let Some(attempt) = job.attempt().filter(|a| a.number == id.number && !a.ranks.is_empty())
    {
        return Ok(ranks::report(state, job, attempt, ranks::News { node, number, news }, now));
    }
    let Some(attempt) = job.attempt().filter(its_own) else { return Ok(Vec::new()) };
    if number <= attempt.last_report_on(node) {
        return Ok(Vec::new());
    }
    if !attempt.ranks.is_empty() {
        return Ok(ranks::report(state, job, attempt, ranks::News { node, number, news }, now));
    }
    Ok(match news {
        AttemptNews::Started { facts } if attempt.phase == Phase::Assigned => {
            let run_deadline = run_deadline(state, job, now);
            let facts = with_revision(state, job, facts);
            vec![
                AttemptStarted { id: job.id, attempt: id.number, report: number, run_deadline, facts }.into(),
            ]
        }
        AttemptNews::Started { .. } => Vec::new(),
        AttemptNews::Measured { facts } => {
            vec![AttemptMeasured { id: job.id, attempt: id.number, rank: None, report: number, facts }.into()]
        }
        AttemptNews::Finalizing => {
            vec![AttemptFinalizing { id: job.id, attempt: id.number, report: number }.into()]
        }
        AttemptNews::Ended { exit } => vec![match outcome_of_exit(job, &exit) {
            Ok(outcome) => {
                JobEnded { id: job.id, attempt: Some(id.number), exit: Some(exit), outcome }.into()
            }
            Err(requeue) => requeued(job, id, requeue),
        }],
    })
}

/// Adds which revision of the cluster's definition is in force as the attempt starts.
pub(super) fn with_revision(state: &State, job: &Job, mut facts: AttemptFacts) -> AttemptFacts {
    if let Some(cluster) = state.clusters.get(&job.cluster) {
        facts.insert(format!("{PROVENANCE}clusterRevision"), cluster.revision.to_string());
        let node = job.attempt().and_then(|attempt| state.nodes.get(&attempt.node));
        // Where there is more than one tier, or nodes can be taken back.
        if let Some(node) = node.filter(|_| cluster.shape.tier == Tier::LowPriority) {
            facts.insert("tier".into(), node.shape.tier.canonical().into());
        }
        if job.fell_back() && cluster.mix.is_some() {
            facts.insert(
                "tierReason".into(),
                format!("dedicated, since its nodes were taken back {} times", job.attempts_preempted),
            );
        }
    }
    facts
}

/// The node enforces the timeout itself; the server's own clock is the second line.
pub(super) fn run_deadline(state: &State, job: &Job, now: Millis) -> Option<Millis> {
    job.timeout_ms.map(|ms| now.plus(ms.saturating_add(state.settings.stop_grace_ms + 5_000)))
}
