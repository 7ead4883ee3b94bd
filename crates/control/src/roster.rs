//! Who is connected, when each node was last heard of, and what each was told. Pure: times, states and links come in.
//!
//! `L` is the way to a connected agent: a queue of frames in the server, a number in the simulator.

use std::collections::{BTreeMap, BTreeSet};

use neap_core::effects::Effect;
use neap_core::job::Phase;
use neap_core::node::NodeState;
use neap_core::planted::{self, Bug};
use neap_core::settings::Pace;
use neap_core::{AttemptId, Millis, NodeId, State};

use crate::leases::{Due, Leases, Patience};
use crate::limits;

#[derive(Debug)]
pub struct Roster<L> {
    leases: Leases,
    connected: BTreeMap<NodeId, Connected<L>>,
    /// The newest connection on which each node introduced itself. Packets of an older one may arrive after it.
    newest: BTreeMap<NodeId, u64>,
}

#[derive(Debug)]
struct Connected<L> {
    /// In the order connections were accepted.
    serial: u64,
    link: L,
    /// It may be given orders.
    welcomed: bool,
    /// Attempts this connection was told to start, so that it is told once.
    started: BTreeSet<AttemptId>,
    stopped: BTreeSet<AttemptId>,
}

impl<L> Default for Roster<L> {
    fn default() -> Self {
        Self { leases: Leases::default(), connected: BTreeMap::new(), newest: BTreeMap::new() }
    }
}

impl<L: Clone> Roster<L> {
    /// After a start every lease counts as granted now.
    pub fn grant_all(&mut self, state: &State, now: Millis) {
        if planted::is(Bug::RestartForgetsLeases) {
            return;
        }
        for node in
            state.nodes.values().filter(|n| matches!(n.state, NodeState::Ready | NodeState::Preempted { .. }))
        {
            self.heard(node.id, state, now);
        }
    }

    pub fn connected(&self) -> usize {
        self.connected.len()
    }

    /// Grants or renews a node's lease.
    pub fn heard(&mut self, node: NodeId, state: &State, now: Millis) {
        self.leases.heard(node, now, patience(state));
    }

    /// Takes what is due.
    pub fn take_due(&mut self, state: &State, now: Millis) -> Vec<Due> {
        self.leases.take_due(now, patience(state))
    }

    /// When the next lease comes due.
    pub fn next_due(&self) -> Option<Millis> {
        self.leases.next()
    }

    /// A node introduces itself over the connection with this serial. False if a later one has taken its place.
    pub(crate) fn enter(&mut self, node: NodeId, serial: u64, link: L) -> bool {
        let older = self.newest.get(&node).is_some_and(|newest| *newest > serial);
        if older && !planted::is(Bug::OlderConnectionWins) {
            return false;
        }
        self.newest.insert(node, serial);
        let told = (BTreeSet::new(), BTreeSet::new());
        let entry = Connected { serial, link, welcomed: false, started: told.0, stopped: told.1 };
        self.connected.insert(node, entry);
        true
    }

    /// True if this is the connection that the node's orders go to.
    pub(crate) fn welcome(&mut self, node: NodeId, serial: u64) -> bool {
        match self.current(node, serial) {
            Some(connected) => {
                connected.welcomed = true;
                true
            }
            None => false,
        }
    }

    pub(crate) fn is_current(&self, node: NodeId, serial: u64) -> bool {
        self.connected.get(&node).is_some_and(|c| c.serial == serial)
    }

    /// The way to a node that may be given orders.
    pub(crate) fn link(&self, node: NodeId) -> Option<L> {
        self.connected.get(&node).filter(|c| c.welcomed).map(|c| c.link.clone())
    }

    /// The connection ended.
    pub fn leave(&mut self, node: NodeId, serial: u64) {
        if self.is_current(node, serial) {
            self.connected.remove(&node);
        }
    }

    /// The node is on its way out: nobody waits for it any more.
    pub fn forget(&mut self, node: NodeId) {
        self.leases.forget(node);
        self.connected.remove(&node);
        self.newest.remove(&node);
    }

    /// An attempt is over: should it ever be ordered again, that is a new order.
    pub(crate) fn settle(&mut self, node: NodeId, attempt: AttemptId) {
        if let Some(connected) = self.connected.get_mut(&node) {
            connected.started.remove(&attempt);
            connected.stopped.remove(&attempt);
        }
    }

    /// Where to send this order, if it is still wanted and its node is in and was not told yet. From then on it was:
    /// what is sent must be sent before the roster is let go, so that orders keep their order.
    pub fn order(&mut self, effect: &Effect, state: &State) -> Option<L> {
        if !self.would_order(effect, state) {
            return None;
        }
        match effect {
            Effect::StartAttempt { node, attempt } => {
                let connected = self.connected.get_mut(node)?;
                connected.started.insert(*attempt);
                Some(connected.link.clone())
            }
            Effect::StopAttempt { node, attempt } => {
                let connected = self.connected.get_mut(node)?;
                connected.stopped.insert(*attempt);
                Some(connected.link.clone())
            }
            Effect::CreateNode { .. } | Effect::RemoveNode { .. } => None,
        }
    }

    /// The same question without the answer counting.
    pub fn would_order(&self, effect: &Effect, state: &State) -> bool {
        let current = |node: &NodeId, attempt: &AttemptId| {
            state
                .jobs
                .get(&attempt.job)
                .and_then(|job| job.attempt())
                .filter(|a| a.number == attempt.number)
                .and_then(|a| Some((a.phase_on(*node)?, a.stop.is_some())))
        };
        let listening = |node: &NodeId| self.connected.get(node).filter(|c| c.welcomed);
        match effect {
            Effect::StartAttempt { node, attempt } => {
                current(node, attempt) == Some((Phase::Assigned, false))
                    && listening(node)
                        .is_some_and(|c| !c.started.contains(attempt) && !c.stopped.contains(attempt))
            }
            Effect::StopAttempt { node, attempt } => {
                current(node, attempt).is_some()
                    && listening(node).is_some_and(|c| !c.stopped.contains(attempt))
            }
            Effect::CreateNode { .. } | Effect::RemoveNode { .. } => false,
        }
    }

    fn current(&mut self, node: NodeId, serial: u64) -> Option<&mut Connected<L>> {
        self.connected.get_mut(&node).filter(|c| c.serial == serial)
    }
}

/// How often nodes are heard of now. Asked at every heartbeat and answered with it, so that what a node was told and the
/// patience with it are of the same moment.
pub(crate) fn pace(state: &State) -> Pace {
    state.settings.pace(state.nodes.len())
}

fn patience(state: &State) -> Patience {
    let lease_ms = state.settings.lease_ttl_ms + limits::LEASE_MARGIN_MS;
    Patience { silence_ms: pace(state).silence_ms, lease_ms }
}
