//! One conversation with one agent, decided without doing it: the server's side of `neap_protocol`.
//!
//! It has no clock, no socket, no file and no lock. The session feeds it and performs what it says, in order.
//! A report is acknowledged only when it is durable; an older connection never speaks for a node that has a newer one.

use std::collections::BTreeSet;

use neap_core::command::{AttemptNews, Report as CoreReport};
use neap_core::effects::{self, Effect};
use neap_core::job::{Exit as CoreExit, StopReason};
use neap_core::node::NodeState;
use neap_core::planted::{self, Bug};
use neap_core::problem::Code;
use neap_core::{AttemptId, Capacity, JobId, Millis, NodeId, Refusal, State};
use neap_protocol::{
    AttemptRef, Down, GpuState, KnownAttempt, LogChunk, NodeFacts, PROTOCOL_VERSION, Report, Secret,
    ServiceState, StopWhy, Up,
};

use crate::news::{core_news, shortened};
use crate::roster::{Roster, pace};

#[derive(Debug)]
pub enum Input {
    Message(Up),
    Log(LogChunk),
    /// What came of [`Output::Check`].
    Checked(Result<(), String>),
    /// What came of [`Output::Admit`].
    Admitted(Result<Down, String>),
    /// What came of an [`Output::Report`] with this ticket: it is durable, or was refused.
    Settled(Ticket, Result<(), Refusal>),
}

#[derive(Debug, PartialEq)]
pub enum Output {
    /// The session adds the pass for URLs to a lease.
    Say(Down),
    /// Offer this news until the log can take it; with a ticket, come back with the answer.
    Report { report: CoreReport, ticket: Option<Ticket> },
    /// Hand this order to the node, if it was not told yet.
    Order(Effect),
    /// Check whether this join token is for this node. Nothing has been recorded or looked up for the caller yet.
    Check { node: NodeId, token: String },
    /// Use the join token up and certify the key.
    Admit { node: NodeId, token: String, csr_pem: String },
    /// A fresh certificate for a node that has one.
    Certify { node: NodeId, csr_pem: String },
    /// Store this piece of log if the attempt is, or was, this node's; then acknowledge it.
    StoreLog { node: NodeId, chunk: LogChunk },
    /// How the services of an attempt on this node are.
    Services { node: NodeId, attempt: AttemptId, services: Vec<ServiceState> },
    /// How this node's GPUs are.
    Gpus { node: NodeId, gpus: Vec<GpuState> },
    /// A stream that this node was asked for does not come.
    StreamFailed { node: NodeId, stream: Secret, reason: String },
    /// Hang up.
    End(String),
}

/// What a report on its way to the log was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticket {
    Joining,
    Ready,
    Attempt { attempt: AttemptId, number: u64, ended: bool },
}

#[derive(Debug)]
pub struct Conversation {
    serial: u64,
    /// Who introduced itself, also when the talk is over.
    node: Option<NodeId>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Nobody has introduced itself; this is who the certificate names.
    First(Option<NodeId>),
    /// It brought a token, which is being checked.
    Checking {
        node: NodeId,
        token: String,
        csr_pem: String,
    },
    /// Its token is good, and its coming is being recorded.
    Joining {
        node: NodeId,
        token: String,
        csr_pem: String,
    },
    Admitting(NodeId),
    /// It said hello, and its coming is being recorded.
    Entering {
        node: NodeId,
        known: BTreeSet<AttemptId>,
    },
    In(NodeId),
    Over,
}

/// What a step sees of the server.
#[derive(Debug)]
pub struct View<'a, L> {
    pub roster: &'a mut Roster<L>,
    pub link: &'a L,
    /// The published state.
    pub state: &'a State,
    pub now: Millis,
}

impl Conversation {
    /// `serial` counts connections in the order they were accepted; `certified` is whom the client certificate names.
    pub fn new(serial: u64, certified: Option<NodeId>) -> Self {
        Self { serial, node: None, phase: Phase::First(certified) }
    }

    /// Nothing is read from the connection while this holds: an answer is awaited first.
    pub fn waits(&self) -> bool {
        matches!(
            self.phase,
            Phase::Checking { .. } | Phase::Joining { .. } | Phase::Admitting(_) | Phase::Entering { .. }
        )
    }

    /// How large the next frame may be: strangers may say little.
    pub fn frame_bytes_max(&self) -> usize {
        match &self.phase {
            Phase::In(_) => neap_protocol::FRAME_BYTES_MAX,
            Phase::First(Some(_)) | Phase::Entering { .. } => neap_protocol::HELLO_FRAME_BYTES_MAX,
            Phase::First(None)
            | Phase::Checking { .. }
            | Phase::Joining { .. }
            | Phase::Admitting(_)
            | Phase::Over => neap_protocol::JOIN_FRAME_BYTES_MAX,
        }
    }

    /// Whether the node has been welcomed.
    pub fn is_in(&self) -> bool {
        matches!(self.phase, Phase::In(_))
    }

    /// Who introduced itself: [`Roster::leave`] it when the connection ends.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    pub fn serial(&self) -> u64 {
        self.serial
    }

    pub fn step<L: Clone>(&mut self, input: Input, view: &mut View<'_, L>, out: &mut Vec<Output>) {
        match (input, &self.phase) {
            (_, Phase::Over) => {}
            (Input::Message(message), Phase::First(certified)) => {
                let certified = *certified;
                self.first(message, certified, view, out);
            }
            (Input::Checked(answer), Phase::Checking { .. }) => self.checked(answer, view, out),
            (Input::Settled(Ticket::Joining, answer), Phase::Joining { .. }) => self.joins(answer, out),
            (Input::Admitted(Ok(joined)), Phase::Admitting(node)) => {
                self.phase = Phase::First(Some(*node));
                out.push(Output::Say(joined));
            }
            (Input::Admitted(Err(reason)), Phase::Admitting(_)) => self.refuse(&reason, out),
            (Input::Settled(Ticket::Ready, answer), Phase::Entering { node, .. }) => {
                let node = *node;
                self.entered(node, answer, view, out);
            }
            (Input::Message(message), Phase::In(node)) => {
                let node = *node;
                if view.roster.is_current(node, self.serial) {
                    self.message(node, message, view, out);
                } else {
                    self.end("the node has a newer connection".into(), out);
                }
            }
            (Input::Log(chunk), Phase::In(node)) => {
                let node = *node;
                if view.roster.is_current(node, self.serial) {
                    out.push(Output::StoreLog { node, chunk });
                } else {
                    self.end("the node has a newer connection".into(), out);
                }
            }
            // It is not on record, and nobody will put it there any more: the next server hears it again.
            (Input::Settled(Ticket::Attempt { .. }, Err(refusal)), Phase::In(_))
                if refusal.code() == Code::ServerIsStopping => {}
            (Input::Settled(Ticket::Attempt { attempt, number, ended }, _), Phase::In(node)) => {
                settled(*node, attempt, number, ended, view, out);
            }
            (Input::Log(_), _) => self.refuse("log before hello", out),
            (
                Input::Message(_),
                Phase::Checking { .. } | Phase::Joining { .. } | Phase::Admitting(_) | Phase::Entering { .. },
            ) => self.refuse("it did not wait for its welcome", out),
            // An answer that nobody waits for any more.
            (Input::Checked(_) | Input::Admitted(_) | Input::Settled(..), _) => {}
        }
    }

    fn first<L: Clone>(
        &mut self,
        message: Up,
        certified: Option<NodeId>,
        view: &mut View<'_, L>,
        out: &mut Vec<Output>,
    ) {
        match message {
            Up::Join { protocol, node, token, csr_pem } => {
                if protocol != PROTOCOL_VERSION {
                    return self.refuse(&other_version(protocol), out);
                }
                // The token comes first: without a good one nothing is recorded, and nobody learns which nodes exist.
                let node = NodeId(node);
                out.push(Output::Check { node, token: token.clone() });
                self.phase = Phase::Checking { node, token, csr_pem };
            }
            Up::Hello { protocol, node, facts, attempts } => {
                let node = NodeId(node);
                if certified != Some(node) {
                    return self.refuse(&format!("n-{node} is not who its certificate says"), out);
                }
                if protocol != PROTOCOL_VERSION {
                    return self.refuse(&other_version(protocol), out);
                }
                if !view.state.nodes.contains_key(&node) {
                    return self.refuse(&format!("node n-{node} is not known any more"), out);
                }
                if !view.roster.enter(node, self.serial, view.link.clone()) {
                    // Not refused: the word would end an agent that is well and in over another connection.
                    return self.end("the node has a newer connection".into(), out);
                }
                self.node = Some(node);
                view.roster.heard(node, view.state, view.now);
                let known = attempts.iter().map(|KnownAttempt { attempt, .. }| core_id(*attempt)).collect();
                self.phase = Phase::Entering { node, known };
                out.push(Output::Report { report: ready(node, &facts), ticket: Some(Ticket::Ready) });
            }
            Up::Heartbeat { .. }
            | Up::Report { .. }
            | Up::Renew { .. }
            | Up::Services { .. }
            | Up::Gpus { .. }
            | Up::StreamFailed { .. } => {
                self.refuse("the first message must be hello", out);
            }
        }
    }

    fn checked<L: Clone>(&mut self, answer: Result<(), String>, view: &View<'_, L>, out: &mut Vec<Output>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Phase::Checking { node, token, csr_pem } = phase else { return };
        if let Err(reason) = answer {
            return self.refuse(&reason, out);
        }
        // A node joins once, and that is on record before it has a certificate: an agent that brings its token later,
        // also to a server that has been restarted, is not the node.
        if !view.state.nodes.get(&node).is_some_and(|n| is_awaited(n.state)) {
            return self.refuse(&format!("nobody waits for node n-{node}"), out);
        }
        self.phase = Phase::Joining { node, token, csr_pem };
        let report = CoreReport::NodePreparing { node };
        out.push(Output::Report { report, ticket: Some(Ticket::Joining) });
    }

    fn joins(&mut self, answer: Result<(), Refusal>, out: &mut Vec<Output>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Phase::Joining { node, token, csr_pem } = phase else { return };
        match answer {
            Ok(()) => {
                self.phase = Phase::Admitting(node);
                out.push(Output::Admit { node, token, csr_pem });
            }
            Err(refusal) => self.refuse(&refusal.to_string(), out),
        }
    }

    fn entered<L: Clone>(
        &mut self,
        node: NodeId,
        answer: Result<(), Refusal>,
        view: &mut View<'_, L>,
        out: &mut Vec<Output>,
    ) {
        if let Err(refusal) = answer {
            if view.roster.is_current(node, self.serial) {
                view.roster.forget(node);
            }
            return self.refuse(&refusal.to_string(), out);
        }
        let phase = std::mem::replace(&mut self.phase, Phase::In(node));
        let Phase::Entering { known, .. } = phase else { return };
        // From here on orders go out as they come; what came before is read from the state.
        if !view.roster.welcome(node, self.serial) {
            return self.end("the node has a newer connection".into(), out);
        }
        let lease_ttl_ms = view.state.settings.lease_ttl_ms;
        let heartbeat_ms = pace(view.state).heartbeat_ms;
        out.push(Output::Say(Down::Welcome { lease_ttl_ms, heartbeat_ms, url_pass: Secret::default() }));
        reconcile(node, view.state, &known, out);
    }

    fn message<L: Clone>(
        &mut self,
        node: NodeId,
        message: Up,
        view: &mut View<'_, L>,
        out: &mut Vec<Output>,
    ) {
        match message {
            Up::Heartbeat { sent_boot_ms } => {
                let Some(record) = view.state.nodes.get(&node) else {
                    return self.refuse(&format!("node n-{node} is not known any more"), out);
                };
                // One that is on its way out gets no more time: it ends itself even where nobody can remove it.
                if matches!(record.state, NodeState::Leaving { .. }) {
                    return;
                }
                view.roster.heard(node, view.state, view.now);
                // Asked of the state each time, so that a report of silence that was overtaken is put right.
                if record.silent && !planted::is(Bug::NodeHeardLost) {
                    out.push(Output::Report { report: CoreReport::NodeHeard { node }, ticket: None });
                }
                let heartbeat_ms = pace(view.state).heartbeat_ms;
                let url_pass = Secret::default();
                out.push(Output::Say(Down::LeaseRenewed { sent_boot_ms, heartbeat_ms, url_pass }));
            }
            Up::Report { attempt, number, body } => {
                let attempt = core_id(attempt);
                let ended = matches!(body, Report::Ended { .. });
                let report = CoreReport::Attempt { node, attempt, number, news: core_news(body) };
                out.push(Output::Report { report, ticket: Some(Ticket::Attempt { attempt, number, ended }) });
            }
            Up::Renew { csr_pem } => {
                // A node that was removed must not keep its name by renewing for ever.
                if !view.state.nodes.contains_key(&node) {
                    return self.refuse(&format!("node n-{node} is not known any more"), out);
                }
                out.push(Output::Certify { node, csr_pem });
            }
            Up::Services { attempt, services } => {
                out.push(Output::Services { node, attempt: core_id(attempt), services });
            }
            Up::Gpus { gpus } => out.push(Output::Gpus { node, gpus }),
            Up::StreamFailed { stream, reason } => out.push(Output::StreamFailed { node, stream, reason }),
            Up::Join { .. } | Up::Hello { .. } => self.end("it introduced itself twice".into(), out),
        }
    }

    fn refuse(&mut self, reason: &str, out: &mut Vec<Output>) {
        out.push(Output::Say(Down::Refused { reason: reason.into() }));
        self.end(format!("refused: {reason}"), out);
    }

    fn end(&mut self, reason: String, out: &mut Vec<Output>) {
        self.phase = Phase::Over;
        out.push(Output::End(reason));
    }
}

fn is_awaited(state: NodeState) -> bool {
    match state {
        NodeState::Requested { .. } | NodeState::Creating { .. } => true,
        NodeState::Preparing { .. }
        | NodeState::Ready
        | NodeState::Leaving { .. }
        | NodeState::Unusable { .. }
        | NodeState::Preempted { .. } => false,
    }
}

fn other_version(protocol: u32) -> String {
    format!("protocol {protocol} is not spoken here; this server speaks {PROTOCOL_VERSION}")
}

fn ready(node: NodeId, facts: &NodeFacts) -> CoreReport {
    let actual = Capacity { cpus_milli: facts.cpus_milli, memory_mb: facts.memory_mb, gpus: facts.gpus };
    CoreReport::NodeReady { node, actual, isolation: shortened(facts.isolation.join(", ")).into() }
}

/// What the agent has against what the state says: forget what is not its own, order what it does not know, and let
/// go of what it should have and does not.
fn reconcile(node: NodeId, state: &State, has: &BTreeSet<AttemptId>, out: &mut Vec<Output>) {
    let Some(record) = state.nodes.get(&node) else { return };
    for attempt in has.iter().filter(|a| !record.attempts.contains(a)) {
        out.push(Output::Say(Down::Forget { attempt: wire(*attempt) }));
    }
    for attempt in &record.attempts {
        let started = state
            .jobs
            .get(&attempt.job)
            .and_then(|j| j.attempt())
            .is_some_and(|a| a.last_report_on(node) > 0);
        if started && !has.contains(attempt) {
            out.push(Output::Report { report: ended(node, *attempt, CoreExit::LeaseLost), ticket: None });
        }
    }
    if matches!(record.state, NodeState::Ready | NodeState::Preempted { .. }) {
        for effect in effects::of_nodes(state, &BTreeSet::from([node])) {
            match &effect {
                Effect::StartAttempt { attempt, .. }
                    if has.contains(attempt) && !planted::is(Bug::DuplicateStart) => {}
                _ => out.push(Output::Order(effect)),
            }
        }
    }
}

fn settled<L: Clone>(
    node: NodeId,
    id: AttemptId,
    number: u64,
    ended: bool,
    view: &mut View<'_, L>,
    out: &mut Vec<Output>,
) {
    if ended {
        view.roster.settle(node, id);
    }
    let attempt = wire(id);
    let still_its = view.state.nodes.get(&node).is_some_and(|n| n.attempts.contains(&id));
    out.push(Output::Say(if ended || still_its {
        Down::ReportAcknowledged { attempt, number }
    } else {
        Down::Forget { attempt }
    }));
}

/// The log could not take it: the same is offered again.
pub fn comes_again(refusal: &Refusal) -> bool {
    matches!(refusal.code(), Code::StorageFull | Code::LedgerReadOnly | Code::InternalError)
}

/// The server's own word on how an attempt ended: past any that its agent has numbered.
pub(crate) fn ended(node: NodeId, attempt: AttemptId, exit: CoreExit) -> CoreReport {
    CoreReport::Attempt { node, attempt, number: u64::MAX, news: AttemptNews::Ended { exit } }
}

pub(crate) fn wire(id: AttemptId) -> AttemptRef {
    AttemptRef { job: id.job.0, attempt: id.number }
}

pub(crate) fn core_id(id: AttemptRef) -> AttemptId {
    AttemptId { job: JobId(id.job), number: id.attempt }
}

/// The order to stop an attempt, as it is wanted now.
pub fn stop_order(state: &State, id: AttemptId, now: Millis) -> Down {
    let job = state.jobs.get(&id.job);
    let stop = job.and_then(|job| job.attempt()).and_then(|attempt| attempt.stop.as_ref());
    let canceled = job.is_none_or(|job| job.cancel.is_some());
    let usual = state.settings.stop_grace_ms;
    let (grace_ms, why) = match stop.filter(|_| !canceled).map(|stop| (stop, stop.why)) {
        Some((stop, StopReason::Preempt)) => (stop.preempt_grace_ms(now), StopWhy::Preempt),
        Some((_, StopReason::Draining | StopReason::Rank | StopReason::Budget)) => (usual, StopWhy::Requeue),
        Some((_, StopReason::Cancel | StopReason::Timeout)) | None => (usual, StopWhy::End),
    };
    Down::Stop { attempt: wire(id), grace_ms, why }
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
