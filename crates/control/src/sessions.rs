//! Every connected agent: the door they come in by, and the way orders go out.
//!
//! What is said is decided in `conversation.rs`; one connection is driven in `session.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::FuturesUnordered;
use neap_core::effects::Effect;
use neap_core::job::Exit;
use neap_core::{Command, Millis, NodeId};
use neap_identity::{Authority, JoinTokens, UsedNonces};
use neap_protocol::{Decoder, Down, Secret, encode_message};
use neap_storage::joblog::JobLogs;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};

use crate::conversation::{self, Conversation};
use crate::leases::Due;
use crate::orders::AttemptOrders;
use crate::roster::{Roster, pace};
use crate::session::{Session, take_in, write_frames};
use crate::{Handle, clock, limits};

/// What a session needs to let a node in.
#[derive(Debug)]
pub struct Gate {
    pub authority: Arc<Authority>,
    pub tokens: JoinTokens,
    pub used: Mutex<UsedNonces>,
}

/// Frames for a connected agent.
type Link = mpsc::Sender<Vec<u8>>;

#[derive(Debug)]
pub struct Sessions {
    pub(crate) handle: Handle,
    pub(crate) gate: Gate,
    pub(crate) logs: JobLogs,
    orders: AttemptOrders,
    roster: Mutex<Roster<Link>>,
    /// Connections in the order they were accepted.
    accepted: AtomicU64,
    /// A lease comes due before the one that is waited for.
    pub(crate) leases_changed: Notify,
    /// What is waited for.
    next_lease: AtomicU64,
    /// Held while versions are chosen for outputs, until they are on record.
    pub(crate) registering: tokio::sync::Mutex<()>,
}

impl Sessions {
    pub(crate) fn new(handle: Handle, gate: Gate, logs: JobLogs, orders: AttemptOrders) -> Self {
        Self {
            handle,
            gate,
            logs,
            orders,
            roster: Mutex::default(),
            accepted: AtomicU64::new(0),
            leases_changed: Notify::new(),
            next_lease: AtomicU64::new(u64::MAX),
            registering: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn roster(&self) -> MutexGuard<'_, Roster<Link>> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn connected(&self) -> usize {
        self.roster().connected()
    }

    /// Renewals move a lease further away and need not wake anybody; a first one may.
    pub(crate) fn leases_may_have_changed(&self) {
        let silence_ms = pace(&self.handle.inner.published.load()).silence_ms;
        if clock::steady().plus(silence_ms).0 < self.next_lease.load(Ordering::Relaxed) {
            self.leases_changed.notify_one();
        }
    }

    /// What is due, and when the next will be.
    pub(crate) fn take_due_leases(&self) -> (Vec<Due>, Option<Millis>) {
        let state = self.handle.inner.published.load();
        let mut roster = self.roster();
        let due = roster.take_due(&state, clock::steady());
        let next = roster.next_due();
        self.next_lease.store(next.map_or(u64::MAX, |at| at.0), Ordering::Relaxed);
        (due, next)
    }

    /// Serves one connection until it ends. `certified` is the node named by its client certificate; `on_accepted` is
    /// called once an agent without one has shown a good join token.
    pub async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self: Arc<Self>,
        stream: S,
        certified: Option<u64>,
        on_accepted: Box<dyn FnOnce(u64) + Send>,
    ) {
        let (reader, writer) = tokio::io::split(stream);
        let (frames, outgoing) = mpsc::channel(limits::SESSION_FRAMES_MAX);
        tokio::spawn(write_frames(writer, outgoing));
        let serial = self.accepted.fetch_add(1, Ordering::Relaxed);
        self.handle.inner.metrics.agent_sessions_opened.inc();
        self.handle.inner.metrics.agent_sessions.inc();
        let conversation = Conversation::new(serial, certified.map(NodeId));
        let mut session = Session {
            sessions: self.clone(),
            reader,
            decoder: Decoder::with_limit(conversation.frame_bytes_max()),
            frames,
            conversation,
            pending: FuturesUnordered::new(),
            on_accepted: Some(on_accepted),
        };
        let ended = session.run().await;
        let node = session.node();
        drop(session);
        match ended {
            Ok(()) => tracing::debug!(?node, "agent disconnected"),
            Err(error) => tracing::info!(?node, %error, "agent session ended"),
        }
    }

    /// Takes a connection that carries one stream to a service. `certified` is as for [`Self::serve`].
    pub async fn take_stream<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        self: Arc<Self>,
        stream: S,
        certified: Option<u64>,
    ) {
        if let Some(node) = certified {
            self.handle.inner.services.arrived(NodeId(node), stream).await;
        }
    }

    /// Whether a join token was made here for this node and has not expired. Compares in constant time and changes nothing.
    pub(crate) fn check(&self, node: NodeId, token: &str) -> Result<(), String> {
        let now_s = clock::unix_seconds();
        let claim = self.gate.tokens.verify(token, now_s).map_err(|e| e.to_string())?;
        if claim.node != node.0 {
            return Err("the join token is for another node".into());
        }
        Ok(())
    }

    pub(crate) fn admit(&self, node: NodeId, token: &str, csr_pem: &str) -> Result<Down, String> {
        self.check(node, token)?;
        let now_s = clock::unix_seconds();
        let claim = self.gate.tokens.verify(token, now_s).map_err(|e| e.to_string())?;
        self.gate
            .used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .redeem(&claim, now_s)
            .map_err(|e| e.to_string())?;
        self.certificate(node, csr_pem, now_s)
    }

    pub(crate) fn certificate(&self, node: NodeId, csr_pem: &str, now_s: i64) -> Result<Down, String> {
        let certificate = self
            .gate
            .authority
            .issue_node(csr_pem, node.0, limits::NODE_CERTIFICATE_S, now_s)
            .map_err(|e| e.to_string())?;
        let not_after_unix_s = u64::try_from(certificate.not_after_s).unwrap_or(0);
        Ok(Down::Joined { certificate_pem: certificate.cert_pem, not_after_unix_s })
    }

    pub(crate) fn url_pass(&self, node: NodeId) -> Secret {
        let lease_ttl_ms = self.handle.inner.published.load().settings.lease_ttl_ms;
        self.orders.pass(node, lease_ttl_ms, clock::unix_seconds())
    }

    /// Hands an attempt's order to its node, if it is connected and was not told yet.
    pub(crate) fn order(&self, effect: &Effect) {
        let state = self.handle.inner.published.load_full();
        if !self.roster().would_order(effect, &state) {
            return;
        }
        let order = match effect {
            // Signed and read from the ledger while nobody waits for the roster.
            Effect::StartAttempt { node, attempt } => {
                match self.orders.spec(&state, *node, *attempt, clock::unix_seconds()) {
                    Ok(spec) => Down::Start { attempt: conversation::wire(*attempt), spec: Box::new(spec) },
                    Err(error) => {
                        tracing::error!(%attempt, %error, "an attempt cannot be ordered");
                        let message = error.to_string().into();
                        let exit = Exit::PrepareFailed { class: error.class(), message };
                        let report = conversation::ended(*node, *attempt, exit);
                        drop(tokio::spawn(take_in(self.handle.clone(), Command::Report(report))));
                        return;
                    }
                }
            }
            Effect::StopAttempt { attempt, .. } => {
                conversation::stop_order(&state, *attempt, self.handle.now())
            }
            Effect::CreateNode { .. } | Effect::RemoveNode { .. } => return,
        };
        let mut frame = Vec::new();
        encode_message(&order, &mut frame);
        let mut roster = self.roster();
        let now_wanted = self.handle.inner.published.load();
        if let Some(link) = roster.order(effect, &now_wanted) {
            // A full queue means an agent that does not read; its silence will tell.
            let _ = link.try_send(frame);
        }
    }
}
