//! What the state wants of the world and is not yet so. Read anew after a crash; each is idempotent and fenced by
//! node id or (job, attempt).

use std::collections::BTreeSet;

use crate::ids::{AttemptId, NodeId};
use crate::job::Phase;
use crate::node::NodeState;
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the provider for a node.
    CreateNode { node: NodeId },
    /// Take the node away, with everything on it.
    RemoveNode { node: NodeId },
    /// Tell the node's agent to run this attempt.
    StartAttempt { node: NodeId, attempt: AttemptId },
    /// Tell the node's agent to end this attempt.
    StopAttempt { node: NodeId, attempt: AttemptId },
}

/// The effects wanted of these nodes.
pub fn of_nodes(state: &State, nodes: &BTreeSet<NodeId>) -> Vec<Effect> {
    nodes.iter().flat_map(|id| of_node(state, *id)).collect()
}

/// Everything that is wanted, for a start after a crash.
pub fn all(state: &State) -> Vec<Effect> {
    state.nodes.keys().flat_map(|id| of_node(state, *id)).collect()
}

fn of_node(state: &State, id: NodeId) -> Vec<Effect> {
    let Some(node) = state.nodes.get(&id) else { return Vec::new() };
    match node.state {
        NodeState::Requested { .. } => vec![Effect::CreateNode { node: id }],
        NodeState::Creating { .. } | NodeState::Preparing { .. } => Vec::new(),
        // A broken node is taken away at once; only its record stays for people to see.
        NodeState::Leaving { .. } | NodeState::Unusable { .. } => vec![Effect::RemoveNode { node: id }],
        NodeState::Ready | NodeState::Preempted { .. } => {
            node.attempts.iter().filter_map(|attempt| of_attempt(state, id, *attempt)).collect()
        }
    }
}

fn of_attempt(state: &State, node: NodeId, id: AttemptId) -> Option<Effect> {
    let attempt = state.jobs.get(&id.job)?.attempt()?;
    match (&attempt.stop, attempt.phase_on(node)?) {
        (Some(_), _) => Some(Effect::StopAttempt { node, attempt: id }),
        (None, Phase::Assigned) => Some(Effect::StartAttempt { node, attempt: id }),
        (None, Phase::Running | Phase::Finalizing) => None,
    }
}
