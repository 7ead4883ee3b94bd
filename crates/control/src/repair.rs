//! What the provider has against what the state says. Pure; only nodes of this installation are ever listed.

use std::collections::BTreeSet;

use neap_core::node::NodeState;
use neap_core::{NodeId, State};
use neap_providers::Found;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The provider has it and the state does not.
    RemoveUnknown { node: NodeId },
    /// The state counts on it and the provider does not see it alive: fence what may be left, then it is gone.
    ClearAway { node: NodeId },
}

/// For a server that comes back.
pub fn repair(state: &State, found: &[Found]) -> Vec<Repair> {
    let alive: BTreeSet<NodeId> = found.iter().filter(|f| f.alive).map(|f| f.node).collect();
    let orphans = unknown(state, found).map(|node| Repair::RemoveUnknown { node });
    let dead = state.nodes.values().filter(|node| {
        let expected = match node.state {
            NodeState::Creating { .. }
            | NodeState::Preparing { .. }
            | NodeState::Ready
            | NodeState::Preempted { .. } => true,
            // Not made yet, or on its way out: the effects of these states ask the provider themselves.
            NodeState::Requested { .. } | NodeState::Leaving { .. } | NodeState::Unusable { .. } => false,
        };
        expected && !alive.contains(&node.id)
    });
    orphans.chain(dead.map(|node| Repair::ClearAway { node: node.id })).collect()
}

/// Nodes that carry this installation's id and that nobody knows.
pub fn unknown(state: &State, found: &[Found]) -> impl Iterator<Item = NodeId> {
    found.iter().map(|f| f.node).filter(|node| !state.nodes.contains_key(node))
}
