//! What somebody wants of one node: to take it back, to keep new work off it, to have it in use again.

use std::sync::Arc;

use crate::event::{AttemptStopRequested, Event, NodeCordoned, NodePreempted, NodeUncordoned};
use crate::ids::{ClusterId, NodeId};
use crate::job::StopReason;
use crate::limits::PREEMPT_MARGIN_MS;
use crate::node::{Node, NodeState};
use crate::problem::{Code, Refusal};
use crate::state::State;
use crate::units::Millis;

/// A node that is on its way out already is left alone.
pub fn evict(
    state: &State,
    cluster: ClusterId,
    node: Option<NodeId>,
    grace_ms: u64,
    reason: Arc<str>,
    now: Millis,
) -> Result<Vec<Event>, Refusal> {
    let node = match node {
        Some(id) => known(state, id).and_then(|node| match node.cluster == cluster {
            true => Ok(node),
            false => Err(not_found(id)),
        })?,
        None => most_to_lose(state, cluster).ok_or_else(|| {
            Refusal::because(Code::ResourceNotFound, "The compute has no node that could be taken back.")
        })?,
    };
    if !node.is_live() {
        return Ok(Vec::new());
    }
    Ok(preempt(state, node, grace_ms, reason, now))
}

/// The events of a node that is taken back: it, then whatever is on it.
pub(crate) fn preempt(
    state: &State,
    node: &Node,
    grace_ms: u64,
    reason: Arc<str>,
    now: Millis,
) -> Vec<Event> {
    // The grace is for the processes; as much again for saving what they leave, and for the word to come back.
    let deadline = now.plus(grace_ms.saturating_mul(2).saturating_add(PREEMPT_MARGIN_MS));
    let mut events: Vec<Event> = vec![NodePreempted { id: node.id, deadline, reason }.into()];
    let attempts = node.attempts.iter().filter_map(|id| {
        let attempt = state.jobs.get(&id.job)?.attempt()?;
        let goes_on = attempt.number == id.number && attempt.stop.is_none();
        goes_on.then_some(AttemptStopRequested {
            id: id.job,
            attempt: id.number,
            why: StopReason::Preempt,
            deadline,
            reason: None,
        })
    });
    events.extend(attempts.map(Event::from));
    events
}

/// The node whose attempts have run longest; without one, any that is there or on its way.
fn most_to_lose(state: &State, cluster: ClusterId) -> Option<&Arc<Node>> {
    let cluster = state.clusters.get(&cluster)?;
    let since = |node: &Node| {
        let attempts = node.attempts.iter().filter_map(|id| state.jobs.get(&id.job)?.attempt());
        attempts.map(|attempt| attempt.since).min().map_or((1, node.since), |since| (0, since))
    };
    state.nodes_of(cluster).filter(|node| node.is_live()).min_by_key(|node| (since(node), node.id))
}

pub fn cordon(state: &State, id: NodeId, leave: bool, reason: Arc<str>) -> Result<Vec<Event>, Refusal> {
    let node = known(state, id)?;
    let as_wanted = node.cordon.as_ref().is_some_and(|cordon| cordon.leave == leave);
    if !node.is_live() || as_wanted {
        return Ok(Vec::new());
    }
    Ok(vec![NodeCordoned { id, leave, reason }.into()])
}

pub fn uncordon(state: &State, id: NodeId) -> Result<Vec<Event>, Refusal> {
    let node = known(state, id)?;
    match node.state {
        NodeState::Leaving { .. } | NodeState::Unusable { .. } | NodeState::Preempted { .. } => {
            Err(Refusal::because(Code::ResourceBeingDeleted, "The node is on its way out."))
        }
        _ if node.cordon.is_none() => Ok(Vec::new()),
        // What somebody keeps to look at is given back, and has its turn to be replaced then.
        _ if is_being_replaced(state, node) => {
            let message = "The node is of an older definition of its compute and is being replaced; nothing new is placed on it.";
            Err(Refusal::because(Code::ResourceBeingDeleted, message))
        }
        _ => Ok(vec![NodeUncordoned { id }.into()]),
    }
}

fn is_being_replaced(state: &State, node: &Node) -> bool {
    let goes = node.cordon.as_ref().is_some_and(|cordon| cordon.leave);
    goes && state.clusters.get(&node.cluster).is_some_and(|cluster| cluster.old.contains(&node.id))
}

fn known(state: &State, id: NodeId) -> Result<&Arc<Node>, Refusal> {
    state.nodes.get(&id).ok_or_else(|| not_found(id))
}

fn not_found(id: NodeId) -> Refusal {
    Refusal::because(Code::ResourceNotFound, format!("Node n-{id} was not found on this compute."))
}
