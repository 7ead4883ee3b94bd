//! Nodes of an older definition are replaced one by one: nothing new comes onto the next, it goes once its attempts have
//! ended, and what the work needs then comes in the new form.
//!
//! The next one has its turn when the last is gone and nothing is on its way: so a form that does not start takes no more
//! than one node away. A lock on scaling, and a wait after failed starts, make the roll wait.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::draft::Draft;
use crate::event::{NodeCordoned, NodeUncordoned};
use crate::ids::{ClusterId, NodeId};
use crate::lock;
use crate::node::{Node, NodeState};
use crate::planted::{self, Bug};
use crate::state::State;
use crate::units::Millis;

/// How the reason begins for which such a node goes.
pub const BY_ROLL: &str = "replaced: ";

/// True if a node's turn has come, or is over because it stays.
pub fn roll(draft: &mut Draft, id: ClusterId, now: Millis) -> bool {
    if let Some(node) = spared(&draft.state, id) {
        draft.emit(now, NodeUncordoned { id: node });
        return true;
    }
    let Some((node, reason)) = next(&draft.state, id, now) else { return false };
    draft.emit(now, NodeCordoned { id: node, leave: true, reason });
    true
}

/// One whose turn had come, and that is of the form again that the cluster has: somebody went back in the middle.
fn spared(state: &State, id: ClusterId) -> Option<NodeId> {
    let cluster = state.clusters.get(&id)?;
    let by_roll = |node: &Node| {
        node.cordon.as_ref().is_some_and(|cordon| cordon.leave && cordon.reason.starts_with(BY_ROLL))
    };
    let is_spared = |node: &&Arc<Node>| node.is_live() && by_roll(node) && !cluster.old.contains(&node.id);
    state.nodes_of(cluster).find(is_spared).map(|node| node.id)
}

fn next(state: &State, id: ClusterId, now: Millis) -> Option<(NodeId, Arc<str>)> {
    let cluster = state.clusters.get(&id).filter(|cluster| !cluster.old.is_empty())?;
    let waits = cluster.boot.retry_at.is_some_and(|at| at > now);
    if waits || lock::scaling_cut(state, cluster).is_some() || something_moves(state, cluster) {
        return None;
    }
    let old = cluster.old.iter().filter_map(|id| state.nodes.get(id));
    // Those that nobody needs first, then the oldest. What somebody cordoned to look at stays.
    let turn = |node: &&Arc<Node>| (!node.attempts.is_empty(), node.state == NodeState::Ready, node.id);
    let node = old.filter(|node| node.is_live() && node.cordon.is_none()).min_by_key(turn)?;
    let reason = format!("{BY_ROLL}compute '{}' was changed in revision {}", cluster.name, cluster.revision);
    Some((node.id, reason.into()))
}

/// A node of the new form is on its way, or one of the old is on its way out.
fn something_moves(state: &State, cluster: &Cluster) -> bool {
    if planted::is(Bug::RolledAllAtOnce) {
        return false;
    }
    state.nodes_of(cluster).any(|node| {
        let old = cluster.old.contains(&node.id);
        match node.state {
            NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. } => {
                !old || is_drained(node)
            }
            NodeState::Ready => old && is_drained(node),
            NodeState::Leaving { .. } | NodeState::Preempted { .. } => old,
            NodeState::Unusable { .. } => false,
        }
    })
}

fn is_drained(node: &Node) -> bool {
    node.cordon.as_ref().is_some_and(|cordon| cordon.leave)
}
