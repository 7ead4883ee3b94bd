//! The GPUs of nodes and how much they are used, as their agents tell it.
//!
//! Nothing here is in the log and nothing is decided by it: a server that was started again hears it all again. What is
//! kept for ever is the summary that an attempt's last reports carry.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use neap_core::{AttemptId, NodeId, State};
use neap_protocol::AttemptRef;
pub use neap_protocol::GpuState;

use crate::{conversation, limits};

#[derive(Debug, Default)]
pub struct NodeGpus {
    told: Mutex<BTreeMap<NodeId, Vec<GpuState>>>,
}

impl NodeGpus {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Vec<GpuState>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node's GPUs; none where it has none or has not told.
    pub fn of(&self, node: NodeId) -> Vec<GpuState> {
        self.lock().get(&node).cloned().unwrap_or_default()
    }

    /// The GPUs of a node that are this attempt's.
    pub fn of_attempt(&self, node: NodeId, attempt: AttemptId) -> Vec<GpuState> {
        let attempt = conversation::wire(attempt);
        let told = self.lock();
        let own = told.get(&node).into_iter().flatten().filter(|gpu| gpu.attempt == Some(attempt));
        own.cloned().collect()
    }

    /// A node told how its GPUs are. Nodes that are gone are forgotten.
    pub(crate) fn tell(&self, node: NodeId, gpus: Vec<GpuState>, state: &State) {
        let mut told = self.lock();
        told.retain(|node, _| state.nodes.contains_key(node));
        if let Some(record) = state.nodes.get(&node) {
            let own = |attempt: &AttemptRef| record.attempts.contains(&conversation::core_id(*attempt));
            let gpus = gpus.into_iter().take(limits::NODE_GPUS_MAX);
            // What it says of attempts that are not its own counts for nothing.
            let gpus = gpus.map(|gpu| GpuState { attempt: gpu.attempt.filter(own), ..gpu });
            told.insert(node, gpus.collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_that_nobody_knows_says_is_not_kept() {
        let gpus = NodeGpus::default();
        gpus.tell(NodeId(7), vec![GpuState::default()], &State::default());
        assert!(gpus.of(NodeId(7)).is_empty());
    }
}
