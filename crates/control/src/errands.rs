//! What the provider is asked to do, decided without asking it: one call per node at a time, and no removal forgotten.
//!
//! Effects, the provider's answers, its unasked news, its lists and the end of leases come in; calls and reports go
//! out. What comes of a report is not its affair: the state says what is wanted next.

use std::collections::BTreeMap;
use std::sync::Arc;

use neap_core::command::Report;
use neap_core::effects::Effect;
use neap_core::node::NodeState;
use neap_core::planted::{self, Bug};
use neap_core::{Millis, NodeId, State};
use neap_providers::Found;

use crate::limits;
use crate::repair::{self, Repair};

#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Ask the provider; come back with [`Errands::done`].
    Create { node: NodeId },
    /// Ask the provider; come back with [`Errands::done`].
    Remove { node: NodeId, reason: Arc<str> },
    /// Ask the provider; come back with [`Errands::swept`] if it answers.
    List,
    /// Nobody waits for this node's agent any more: [`crate::Roster::forget`].
    Forget { node: NodeId },
    /// Offer this news until the log can take it.
    Report(Report),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// `ended`: the provider has said since that the node ended, and why. What it is making now may be alive.
    Create {
        ended: Option<Arc<str>>,
    },
    Remove {
        reason: Arc<str>,
        why: Why,
    },
}

/// What a removal is for, and so what its failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The state wants it gone, or nobody knows it: tried until it is done.
    Unwanted,
    /// Its work may run elsewhere, fenced or not: it has ended itself by now. Tried until it is done all the same.
    LeaseEnded,
    /// The provider's list did not show it alive. If it cannot be fenced, its lease decides.
    NotListed,
    /// The provider said that it ended. Tried until it is done, or its lease decides.
    Ended,
}

/// A removal that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owed {
    /// When it is tried again.
    at: Millis,
    /// Of a node that ended: why. It is removed whatever the state wants.
    ended: Option<Arc<str>>,
}

#[derive(Debug)]
pub struct Errands {
    busy: BTreeMap<NodeId, Call>,
    /// Also of nodes that the state no longer knows.
    owed: BTreeMap<NodeId, Owed>,
    sweep_at: Millis,
}

impl Errands {
    pub fn new(now: Millis) -> Self {
        Self { busy: BTreeMap::new(), owed: BTreeMap::new(), sweep_at: now.plus(limits::SWEEP_MS) }
    }

    /// When [`Self::timer`] is next due.
    pub fn wake_at(&self) -> Millis {
        self.owed.values().map(|owed| owed.at).fold(self.sweep_at, Millis::min)
    }

    pub fn wanted(&mut self, effect: &Effect, state: &State, out: &mut Vec<Output>) {
        match effect {
            Effect::CreateNode { node } => {
                if !self.busy.contains_key(node) && state.nodes.contains_key(node) {
                    self.busy.insert(*node, Call::Create { ended: None });
                    out.push(Output::Create { node: *node });
                }
            }
            Effect::RemoveNode { node } => {
                if let Some(record) = state.nodes.get(node) {
                    self.remove(*node, record.reason.clone(), Why::Unwanted, out);
                }
            }
            Effect::StartAttempt { .. } | Effect::StopAttempt { .. } => {}
        }
    }

    /// The provider has answered a call about this node.
    pub fn done(
        &mut self,
        node: NodeId,
        answer: Result<(), String>,
        state: &State,
        now: Millis,
        out: &mut Vec<Output>,
    ) {
        match (self.busy.remove(&node), answer) {
            (None, _) => {}
            (Some(Call::Create { ended }), answer) => {
                // Its removal may have been asked for while the provider was busy making it.
                if let Some(reason) = unwanted(state, node) {
                    return self.remove(node, reason, Why::Unwanted, out);
                }
                if let Some(reason) = ended {
                    return self.remove(node, reason, Why::Ended, out);
                }
                out.push(Output::Report(match answer {
                    Ok(()) => Report::NodeCreating { node },
                    Err(reason) => Report::NodeFailed { node, reason: reason.into() },
                }));
            }
            (Some(Call::Remove { reason, .. }), Ok(())) => {
                self.owed.remove(&node);
                out.push(Output::Forget { node });
                out.push(Output::Report(Report::NodeGone { node, reason }));
            }
            (Some(Call::Remove { reason, why }), Err(error)) => {
                tracing::error!(%node, %error, "a node could not be removed; it is tried again");
                if why != Why::NotListed {
                    let ended = (why == Why::Ended).then(|| reason.clone());
                    self.owed.insert(node, Owed { at: now.plus(limits::RETRY_REMOVE_MS), ended });
                }
                if why == Why::LeaseEnded || planted::is(Bug::FailedFenceCounts) {
                    out.push(Output::Report(Report::NodeGone { node, reason }));
                }
            }
        }
    }

    /// The provider says that a node ended by itself and that nothing of it runs. So it was when it was said; a call that
    /// was on its way then may have made the node anew. It counts as gone once it is cleared away.
    pub fn ended(&mut self, node: NodeId, reason: Arc<str>, out: &mut Vec<Output>) {
        match self.busy.get_mut(&node) {
            Some(Call::Create { ended }) => *ended = Some(reason),
            Some(Call::Remove { .. }) => {}
            None => self.remove(node, reason, Why::Ended, out),
        }
    }

    /// A node's lease is over. It is fenced before its work may run elsewhere, if the provider can.
    pub fn lease_ended(&mut self, node: NodeId, now: Millis, out: &mut Vec<Output>) {
        let reason: Arc<str> = "it was not heard of for the length of its lease".into();
        match self.busy.get_mut(&node) {
            Some(Call::Remove { why, .. }) => *why = Why::LeaseEnded,
            Some(Call::Create { .. }) => {
                self.owed.insert(node, Owed { at: now, ended: None });
                out.push(Output::Forget { node });
                out.push(Output::Report(Report::NodeGone { node, reason }));
            }
            None => self.remove(node, reason, Why::LeaseEnded, out),
        }
    }

    /// The provider's list at the start of a server.
    pub fn found(&mut self, found: &[Found], state: &State, out: &mut Vec<Output>) {
        for repair in repair::repair(state, found) {
            match repair {
                Repair::RemoveUnknown { .. } if planted::is(Bug::NoOrphanSweep) => {}
                Repair::RemoveUnknown { node } => {
                    tracing::warn!(%node, "a node nobody knows is removed");
                    self.remove(node, "nobody knows it".into(), Why::Unwanted, out);
                }
                Repair::ClearAway { node } => {
                    self.remove(node, "it was gone when the server came back".into(), Why::NotListed, out);
                }
            }
        }
    }

    /// The provider's list while the server runs: only nodes that nobody knows are its affair.
    pub fn swept(&mut self, found: &[Found], state: &State, out: &mut Vec<Output>) {
        for node in repair::unknown(state, found) {
            if !self.busy.contains_key(&node) {
                tracing::warn!(%node, "a node nobody knows is removed");
            }
            self.remove(node, "nobody knows it".into(), Why::Unwanted, out);
        }
    }

    pub fn timer(&mut self, state: &State, now: Millis, out: &mut Vec<Output>) {
        let due: Vec<NodeId> =
            self.owed.iter().filter(|(_, owed)| owed.at <= now).map(|(node, _)| *node).collect();
        for node in due {
            let Some(owed) = self.owed.remove(&node) else { continue };
            match (unwanted(state, node), owed.ended) {
                (_, ended) if self.busy.contains_key(&node) => {
                    self.owed.insert(node, Owed { at: now.plus(limits::RETRY_REMOVE_MS), ended });
                }
                (Some(reason), _) => self.remove(node, reason, Why::Unwanted, out),
                (None, Some(reason)) => self.remove(node, reason, Why::Ended, out),
                // It came back in the meantime, and is wanted.
                (None, None) => {}
            }
        }
        if now >= self.sweep_at {
            self.sweep_at = now.plus(limits::SWEEP_MS);
            if !planted::is(Bug::NoOrphanSweep) {
                out.push(Output::List);
            }
        }
    }

    fn remove(&mut self, node: NodeId, reason: Arc<str>, why: Why, out: &mut Vec<Output>) {
        if self.busy.contains_key(&node) {
            return;
        }
        self.owed.remove(&node);
        self.busy.insert(node, Call::Remove { reason: reason.clone(), why });
        // Until it is fenced it keeps its lease: should that fail, the lease decides.
        if !matches!(why, Why::NotListed | Why::Ended) {
            out.push(Output::Forget { node });
        }
        out.push(Output::Remove { node, reason });
    }
}

/// Why this node should not be, if so.
fn unwanted(state: &State, node: NodeId) -> Option<Arc<str>> {
    match state.nodes.get(&node) {
        None => Some("nobody knows it".into()),
        Some(record) => match record.state {
            NodeState::Leaving { .. } | NodeState::Unusable { .. } => Some(record.reason.clone()),
            NodeState::Requested { .. }
            | NodeState::Creating { .. }
            | NodeState::Preparing { .. }
            | NodeState::Ready
            | NodeState::Preempted { .. } => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use neap_core::cluster::{Shape, Tier};
    use neap_core::event::{NodeLeaving, NodeReady, NodeRequested};
    use neap_core::{Capacity, ClusterId, Draft, MicroUsd};

    use super::*;

    const NODE: NodeId = NodeId(1);

    fn state(ready: bool, leaving: bool) -> State {
        let mut draft = Draft::new(State::default());
        let (at, deadline) = (Millis(1), Millis(50));
        let (nominal, reason): (_, Arc<str>) = (Capacity::default(), "work".into());
        let shape = Shape {
            size: "S".into(),
            family: "F".into(),
            nominal,
            tier: Tier::Dedicated,
            price: MicroUsd(0),
        };
        draft.emit(
            at,
            NodeRequested {
                lease: None,
                id: NODE,
                cluster: ClusterId(1),
                nominal,
                shape: Some(shape),
                cause: None,
                deadline,
                reason: reason.clone(),
            },
        );
        if ready {
            draft.emit(at, NodeReady { id: NODE, actual: nominal, isolation: "".into() });
        }
        if leaving {
            draft.emit(at, NodeLeaving { id: NODE, deadline, reason });
        }
        draft.state
    }

    fn removes(out: &[Output]) -> bool {
        out.iter().any(|o| matches!(o, Output::Remove { .. }))
    }

    fn reports_gone(out: &[Output]) -> bool {
        out.iter().any(|o| matches!(o, Output::Report(Report::NodeGone { .. })))
    }

    #[test]
    fn a_failed_removal_is_owed_also_when_the_state_has_forgotten_the_node() {
        let mut errands = Errands::new(Millis(0));
        let mut out = Vec::new();
        errands.lease_ended(NODE, Millis(0), &mut out);
        assert!(removes(&out) && !reports_gone(&out), "fenced first: {out:?}");
        out.clear();
        errands.done(NODE, Err("no".into()), &state(true, false), Millis(10), &mut out);
        assert!(reports_gone(&out), "its lease is over all the same: {out:?}");
        assert_eq!(errands.wake_at(), Millis(10 + limits::RETRY_REMOVE_MS));
        out.clear();
        errands.timer(&State::default(), errands.wake_at(), &mut out);
        assert!(removes(&out), "{out:?}");
        out.clear();
        errands.done(NODE, Ok(()), &State::default(), Millis(20), &mut out);
        assert_eq!(errands.wake_at(), Millis(limits::SWEEP_MS), "nothing is owed");
    }

    #[test]
    fn a_node_unwanted_while_it_was_made_is_removed_when_it_is_there() {
        let mut errands = Errands::new(Millis(0));
        let mut out = Vec::new();
        errands.wanted(&Effect::CreateNode { node: NODE }, &state(false, false), &mut out);
        assert_eq!(out, [Output::Create { node: NODE }]);
        out.clear();
        errands.wanted(&Effect::RemoveNode { node: NODE }, &state(false, true), &mut out);
        assert_eq!(out, [], "one call at a time");
        errands.done(NODE, Ok(()), &state(false, true), Millis(5), &mut out);
        assert!(removes(&out), "{out:?}");
    }

    #[test]
    fn a_node_that_was_only_not_listed_and_cannot_be_fenced_keeps_its_lease() {
        let mut errands = Errands::new(Millis(0));
        let (mut out, ready) = (Vec::new(), state(true, false));
        errands.found(&[], &ready, &mut out);
        assert!(matches!(out[..], [Output::Remove { .. }]), "not forgotten: {out:?}");
        out.clear();
        errands.done(NODE, Err("no".into()), &ready, Millis(5), &mut out);
        assert_eq!(out, []);
        assert_eq!(errands.wake_at(), Millis(limits::SWEEP_MS), "not tried again: its lease decides");
    }

    #[test]
    fn a_node_that_ended_is_gone_once_it_is_cleared_away() {
        let mut errands = Errands::new(Millis(0));
        let (mut out, ready) = (Vec::new(), state(true, false));
        errands.ended(NODE, "it ended".into(), &mut out);
        assert!(matches!(out[..], [Output::Remove { .. }]), "{out:?}");
        errands.ended(NODE, "it ended".into(), &mut out);
        assert_eq!(out.len(), 1, "said twice");
        out.clear();
        errands.done(NODE, Err("no".into()), &ready, Millis(5), &mut out);
        assert_eq!(out, [], "its lease goes on");
        assert_eq!(errands.wake_at(), Millis(5 + limits::RETRY_REMOVE_MS), "and it is tried again");
        errands.timer(&ready, errands.wake_at(), &mut out);
        assert!(matches!(out[..], [Output::Remove { .. }]), "whatever the state wants: {out:?}");
        out.clear();
        errands.done(NODE, Ok(()), &ready, Millis(9), &mut out);
        assert!(reports_gone(&out), "{out:?}");
    }

    #[test]
    fn a_node_that_ended_while_it_was_asked_for_again_may_have_been_made_anew() {
        let mut errands = Errands::new(Millis(0));
        let (mut out, requested) = (Vec::new(), state(false, false));
        errands.wanted(&Effect::CreateNode { node: NODE }, &requested, &mut out);
        out.clear();
        errands.ended(NODE, "it ended".into(), &mut out);
        assert_eq!(out, [], "one call at a time");
        errands.done(NODE, Ok(()), &requested, Millis(5), &mut out);
        assert!(matches!(out[..], [Output::Remove { .. }]), "{out:?}");
        out.clear();
        errands.done(NODE, Ok(()), &requested, Millis(6), &mut out);
        assert!(reports_gone(&out), "{out:?}");
    }

    #[test]
    fn unknown_nodes_are_swept() {
        let mut errands = Errands::new(Millis(0));
        let mut out = Vec::new();
        errands.timer(&State::default(), Millis(limits::SWEEP_MS), &mut out);
        assert_eq!(out, [Output::List]);
        out.clear();
        let found = [Found { node: NODE, alive: true }, Found { node: NodeId(9), alive: false }];
        errands.swept(&found, &state(true, false), &mut out);
        let removed: Vec<_> = out.iter().filter(|o| matches!(o, Output::Remove { .. })).collect();
        assert!(matches!(removed[..], [Output::Remove { node: NodeId(9), .. }]), "{out:?}");
    }
}
