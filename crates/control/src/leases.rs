//! Who was heard of when. Pure: times come in, due reports go out. Never in the log: only what follows is.

use std::collections::{BTreeMap, BTreeSet};

use neap_core::planted::{self, Bug};
use neap_core::{Millis, NodeId};

/// How long until a node is suspect, and until its lease is over.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub silence_ms: u64,
    /// The lease and the margin.
    pub lease_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Silent(NodeId),
    LeaseEnded(NodeId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    heard: Millis,
    /// The silence was reported.
    silent: bool,
    /// When the next report about it is due.
    due: Millis,
}

#[derive(Debug, Default)]
pub struct Leases {
    nodes: BTreeMap<NodeId, Entry>,
    due: BTreeSet<(Millis, NodeId)>,
}

impl Leases {
    /// Grants or renews. True if the node had been reported silent.
    pub fn heard(&mut self, node: NodeId, now: Millis, patience: Patience) -> bool {
        let was_silent = self.forget(node);
        self.put(node, now, false, patience);
        was_silent
    }

    /// True if the node had been reported silent.
    pub fn forget(&mut self, node: NodeId) -> bool {
        let Some(entry) = self.nodes.remove(&node) else { return false };
        self.due.remove(&(entry.due, node));
        entry.silent
    }

    /// When the next report is due.
    pub fn next(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes what is due.
    pub fn take_due(&mut self, now: Millis, patience: Patience) -> Vec<Due> {
        let mut out = Vec::new();
        while let Some((at, node)) = self.due.first().copied() {
            if at > now {
                break;
            }
            self.due.pop_first();
            let Some(entry) = self.nodes.get(&node).copied() else { continue };
            if entry.silent && planted::is(Bug::LeaseNeverEnds) {
                self.put(node, now, true, patience);
            } else if entry.silent {
                self.nodes.remove(&node);
                out.push(Due::LeaseEnded(node));
            } else {
                self.put(node, entry.heard, true, patience);
                out.push(Due::Silent(node));
            }
        }
        out
    }

    fn put(&mut self, node: NodeId, heard: Millis, silent: bool, patience: Patience) {
        let due = heard.plus(if silent { patience.lease_ms } else { patience.silence_ms });
        self.due.insert((due, node));
        self.nodes.insert(node, Entry { heard, silent, due });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { silence_ms: 2_000, lease_ms: 120_000 };

    #[test]
    fn silence_then_the_end_of_the_lease() {
        let mut leases = Leases::default();
        assert!(!leases.heard(NodeId(1), Millis(0), PATIENCE));
        assert_eq!(leases.next(), Some(Millis(2_000)));
        assert_eq!(leases.take_due(Millis(1_999), PATIENCE), vec![]);
        assert_eq!(leases.take_due(Millis(2_000), PATIENCE), vec![Due::Silent(NodeId(1))]);
        assert_eq!(leases.next(), Some(Millis(120_000)), "the lease counts from when it was last heard of");
        assert!(leases.heard(NodeId(1), Millis(3_000), PATIENCE), "it had been silent");
        assert_eq!(leases.take_due(Millis(5_000), PATIENCE), vec![Due::Silent(NodeId(1))]);
        assert_eq!(leases.take_due(Millis(123_000), PATIENCE), vec![Due::LeaseEnded(NodeId(1))]);
        assert_eq!(leases.next(), None);
    }
}
