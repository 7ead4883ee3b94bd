//! Every connected agent: who is in, when each was last heard of, and what each was told.
//!
//! The conversation itself is in `session.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use neap_core::command::{AttemptNews, Report as CoreReport};
use neap_core::effects::Effect;
use neap_core::job::{Class, Exit as CoreExit};
use neap_core::{AttemptId, Command, Millis, NodeId, State};
use neap_identity::{Authority, JoinTokens, UsedNonces};
use neap_protocol::{Decoder, Down, encode_message};
use neap_storage::joblog::JobLogs;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};

use crate::leases::{Due, Leases, Patience};
use crate::orders::AttemptOrders;
use crate::session::{Session, wire, write_frames};
use crate::{Handle, clock, limits};

/// What a session needs to let a node in.
#[derive(Debug)]
pub struct Gate {
    pub authority: Arc<Authority>,
    pub tokens: JoinTokens,
    pub used: Mutex<UsedNonces>,
}

/// Every connected agent, and what was said to it.
#[derive(Debug)]
pub struct Sessions {
    pub(crate) handle: Handle,
    pub(crate) gate: Gate,
    pub(crate) logs: JobLogs,
    pub(crate) orders: AttemptOrders,
    pub(crate) leases: Mutex<Leases>,
    /// A lease comes due before the one that is waited for.
    pub(crate) leases_changed: Notify,
    /// What is waited for.
    next_lease: AtomicU64,
    pub(crate) connected: Mutex<BTreeMap<NodeId, Connected>>,
}

#[derive(Debug)]
pub(crate) struct Connected {
    pub serial: u64,
    pub frames: mpsc::Sender<Vec<u8>>,
    /// It may be given orders.
    pub welcomed: bool,
    /// Attempts this connection was told to start, so that it is told once.
    pub started: BTreeSet<AttemptId>,
    pub stopped: BTreeSet<AttemptId>,
}

impl Sessions {
    pub(crate) fn new(handle: Handle, gate: Gate, logs: JobLogs, orders: AttemptOrders) -> Self {
        Self {
            handle,
            gate,
            logs,
            orders,
            leases: Mutex::default(),
            leases_changed: Notify::new(),
            next_lease: AtomicU64::new(u64::MAX),
            connected: Mutex::default(),
        }
    }

    pub fn connected(&self) -> usize {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn patience(state: &State) -> Patience {
        let settings = &state.settings;
        Patience {
            silence_ms: settings.silence_ms,
            lease_ms: settings.lease_ttl_ms + limits::LEASE_MARGIN_MS,
        }
    }

    /// Grants or renews a node's lease. True if it had been reported silent.
    pub(crate) fn heard(&self, node: NodeId) -> bool {
        let patience = Self::patience(&self.handle.inner.published.load());
        let now = clock::steady();
        let was_silent =
            self.leases.lock().unwrap_or_else(PoisonError::into_inner).heard(node, now, patience);
        // Renewals move a lease further away and need not wake anybody; a first one may.
        if now.plus(patience.silence_ms).0 < self.next_lease.load(Ordering::Relaxed) {
            self.leases_changed.notify_one();
        }
        was_silent
    }

    /// What is due, and when the next will be.
    pub(crate) fn take_due_leases(&self) -> (Vec<Due>, Option<Millis>) {
        let patience = Self::patience(&self.handle.inner.published.load());
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let due = leases.take_due(clock::steady(), patience);
        let next = leases.next();
        self.next_lease.store(next.map_or(u64::MAX, |at| at.0), Ordering::Relaxed);
        (due, next)
    }

    pub(crate) fn forget(&self, node: NodeId) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).forget(node);
        self.connected.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }

    /// Serves one connection until it ends. `certified` is the node named by its client certificate.
    pub async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self: Arc<Self>,
        stream: S,
        certified: Option<u64>,
    ) {
        let (reader, writer) = tokio::io::split(stream);
        let (frames, outgoing) = mpsc::channel(limits::SESSION_FRAMES_MAX);
        tokio::spawn(write_frames(writer, outgoing));
        let mut session = Session {
            sessions: self.clone(),
            reader,
            decoder: Decoder::default(),
            frames,
            node: None,
            serial: 0,
        };
        let ended = session.run(certified.map(NodeId)).await;
        if let Some(node) = session.node {
            let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
            if connected.get(&node).is_some_and(|c| c.serial == session.serial) {
                connected.remove(&node);
            }
        }
        match ended {
            Ok(()) => tracing::debug!(node = ?session.node, "agent disconnected"),
            Err(error) => tracing::info!(node = ?session.node, %error, "agent session ended"),
        }
    }

    /// Hands an attempt's order to its node, if it is connected and was not told yet.
    pub(crate) fn order(&self, effect: &Effect, state: &State) {
        match effect {
            Effect::StartAttempt { node, attempt } => {
                if !self.first_time(*node, *attempt, |c| &mut c.started) {
                    return;
                }
                match self.orders.spec(state, *attempt, clock::unix_seconds()) {
                    Ok(spec) => {
                        self.send(*node, &Down::Start { attempt: wire(*attempt), spec: Box::new(spec) });
                    }
                    Err(error) => {
                        tracing::error!(%attempt, %error, "an attempt cannot be ordered");
                        let message = error.to_string().into();
                        let exit = CoreExit::PrepareFailed { class: Class::System, message };
                        self.report_ended(*node, *attempt, exit);
                    }
                }
            }
            Effect::StopAttempt { node, attempt } => {
                if self.first_time(*node, *attempt, |c| &mut c.stopped) {
                    let grace_ms = state.settings.stop_grace_ms;
                    self.send(*node, &Down::Stop { attempt: wire(*attempt), grace_ms });
                }
            }
            Effect::CreateNode { .. } | Effect::RemoveNode { .. } => {}
        }
    }

    pub(crate) fn report_ended(&self, node: NodeId, attempt: AttemptId, exit: CoreExit) {
        let news = AttemptNews::Ended { exit };
        let report = CoreReport::Attempt { node, attempt, number: u64::MAX, news };
        drop(self.handle.submit_later("neap", Command::Report(report), Vec::new()));
    }

    fn first_time(
        &self,
        node: NodeId,
        attempt: AttemptId,
        told: fn(&mut Connected) -> &mut BTreeSet<AttemptId>,
    ) -> bool {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.get_mut(&node).is_some_and(|c| c.welcomed && told(c).insert(attempt))
    }

    pub(crate) fn welcome(&self, node: NodeId) {
        if let Some(c) = self.connected.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&node) {
            c.welcomed = true;
        }
    }

    pub(crate) fn settle(&self, node: NodeId, attempt: AttemptId) {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(c) = connected.get_mut(&node) {
            c.started.remove(&attempt);
            c.stopped.remove(&attempt);
        }
    }

    fn send(&self, node: NodeId, message: &Down) {
        let mut frame = Vec::new();
        encode_message(message, &mut frame);
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(c) = connected.get(&node) {
            // A full queue means an agent that does not read; its silence will tell.
            let _ = c.frames.try_send(frame);
        }
    }
}
