//! One conversation with one agent: the server's side of `neap_protocol`.
//!
//! A session passes news to the writer and orders to the agent. It acknowledges a report only when it is durable,
//! and a piece of log only when it is written.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use neap_core::command::{AttemptNews, Report as CoreReport};
use neap_core::effects::{self, Effect};
use neap_core::job::{Class, Exit as CoreExit};
use neap_core::node::NodeState;
use neap_core::problem::Code;
use neap_core::{AttemptId, Capacity, Command, JobId, NodeId, Refusal, State, WorkspaceId};
use neap_protocol::{
    AttemptRef, Decoder, Down, Exit, FailureClass, Frame, KnownAttempt, LogChunk, NodeFacts,
    PROTOCOL_VERSION, Report, Up, encode_message,
};
use neap_storage::joblog;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::sessions::{Connected, Sessions};
use crate::{Handle, clock, limits};

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Frame(#[from] neap_protocol::FrameError),
    #[error("refused: {0}")]
    Refused(String),
    #[error("the agent reads too slowly")]
    Slow,
}

pub(crate) async fn write_frames<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
) {
    let mut buffer = Vec::new();
    while let Some(frame) = outgoing.recv().await {
        buffer.extend_from_slice(&frame);
        while let Ok(frame) = outgoing.try_recv() {
            buffer.extend_from_slice(&frame);
        }
        if writer.write_all(&buffer).await.is_err() || writer.flush().await.is_err() {
            return;
        }
        buffer.clear();
    }
    let _ = writer.shutdown().await;
}

pub(crate) struct Session<R> {
    pub sessions: Arc<Sessions>,
    pub reader: R,
    pub decoder: Decoder,
    pub frames: mpsc::Sender<Vec<u8>>,
    pub node: Option<NodeId>,
    pub serial: u64,
}

/// A report on its way to the log: what to say when it is there.
struct Settled {
    attempt: AttemptId,
    number: u64,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Session<R> {
    pub async fn run(&mut self, certified: Option<NodeId>) -> Result<(), SessionError> {
        let Some(node) = self.enter(certified).await? else { return Ok(()) };
        let mut pending = FuturesUnordered::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            while let Some(frame) = self.decoder.next::<Up>()? {
                match frame {
                    Frame::Log(log) => self.log(node, &log)?,
                    Frame::Message(Up::Report { attempt, number, body }) => {
                        let id = core_id(attempt);
                        let ended = matches!(body, Report::Ended { .. });
                        let report = CoreReport::Attempt { node, attempt: id, number, news: core_news(body) };
                        let taken = take_in(self.sessions.handle.clone(), Command::Report(report));
                        pending.push(async move { (Settled { attempt: id, number, ended }, taken.await) });
                    }
                    Frame::Message(other) => self.message(node, other)?,
                }
            }
            tokio::select! {
                read = self.reader.read(&mut chunk) => match read? {
                    0 => return Ok(()),
                    n => self.decoder.feed(&chunk[..n]),
                },
                Some((settled, _)) = pending.next(), if !pending.is_empty() => self.settled(node, &settled)?,
            }
        }
    }

    async fn first(&mut self) -> Result<Option<Up>, SessionError> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.decoder.next::<Up>()? {
                Some(Frame::Message(message)) => return Ok(Some(message)),
                Some(Frame::Log(_)) => return Err(SessionError::Refused("log before hello".into())),
                None => {}
            }
            match self.reader.read(&mut chunk).await? {
                0 => return Ok(None),
                n => self.decoder.feed(&chunk[..n]),
            }
        }
    }

    /// Join if need be, then hello. `None`: the agent hung up.
    async fn enter(&mut self, certified: Option<NodeId>) -> Result<Option<NodeId>, SessionError> {
        let Some(mut message) = self.first().await? else { return Ok(None) };
        let mut known = certified;
        if let Up::Join { protocol, node, token, csr_pem } = &message {
            let node = NodeId(*node);
            match self.join(*protocol, node, token, csr_pem) {
                Ok(joined) => self.say(&joined)?,
                Err(reason) => return self.refuse(reason),
            }
            known = Some(node);
            match self.first().await? {
                Some(next) => message = next,
                None => return Ok(None),
            }
        }
        let Up::Hello { protocol, node, facts, attempts } = message else {
            return self.refuse("the first message must be hello".into());
        };
        let node = NodeId(node);
        if known != Some(node) {
            return self.refuse(format!("n-{node} is not who its certificate says"));
        }
        if protocol != PROTOCOL_VERSION {
            return self.refuse(format!(
                "protocol {protocol} is not spoken here; this server speaks {PROTOCOL_VERSION}"
            ));
        }
        self.hello(node, &facts, &attempts).await.map(Some)
    }

    fn join(&self, protocol: u32, node: NodeId, token: &str, csr_pem: &str) -> Result<Down, String> {
        if protocol != PROTOCOL_VERSION {
            return Err(format!(
                "protocol {protocol} is not spoken here; this server speaks {PROTOCOL_VERSION}"
            ));
        }
        let gate = &self.sessions.gate;
        let now_s = clock::unix_seconds();
        let claim = gate.tokens.verify(token, now_s).map_err(|e| e.to_string())?;
        if claim.node != node.0 {
            return Err("the join token is for another node".into());
        }
        gate.used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .redeem(&claim, now_s)
            .map_err(|e| e.to_string())?;
        self.certificate(node, csr_pem, now_s)
    }

    fn certificate(&self, node: NodeId, csr_pem: &str, now_s: i64) -> Result<Down, String> {
        let certificate = self
            .sessions
            .gate
            .authority
            .issue_node(csr_pem, node.0, limits::NODE_CERTIFICATE_S, now_s)
            .map_err(|e| e.to_string())?;
        let not_after_unix_s = u64::try_from(certificate.not_after_s).unwrap_or(0);
        Ok(Down::Joined { certificate_pem: certificate.cert_pem, not_after_unix_s })
    }

    async fn hello(
        &mut self,
        node: NodeId,
        facts: &NodeFacts,
        known: &[KnownAttempt],
    ) -> Result<NodeId, SessionError> {
        let actual = Capacity { cpus_milli: facts.cpus_milli, memory_mb: facts.memory_mb, gpus: facts.gpus };
        let isolation = facts.isolation.join(", ").into();
        let ready = CoreReport::NodeReady { node, actual, isolation };
        self.register(node);
        self.sessions.heard(node);
        let answer = take_in(self.sessions.handle.clone(), Command::Report(ready)).await;
        if let Err(refusal) = answer {
            self.sessions.forget(node);
            return self.refuse(refusal.to_string()).map(|_: Option<NodeId>| node);
        }
        let settings = self.sessions.handle.state().settings;
        self.say(&Down::Welcome { lease_ttl_ms: settings.lease_ttl_ms, heartbeat_ms: settings.heartbeat_ms })?;
        // From here on orders go out as they come; what came before is read from the state.
        self.sessions.welcome(node);
        self.reconcile(node, &self.sessions.handle.state(), known)?;
        tracing::info!(%node, agent = facts.agent_version, "agent is in");
        Ok(node)
    }

    fn register(&mut self, node: NodeId) {
        let mut connected = self.sessions.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let serial = connected.get(&node).map_or(1, |old| old.serial + 1);
        let entry = Connected {
            serial,
            frames: self.frames.clone(),
            welcomed: false,
            started: BTreeSet::new(),
            stopped: BTreeSet::new(),
        };
        connected.insert(node, entry);
        self.node = Some(node);
        self.serial = serial;
    }

    /// What the agent has against what the state says: forget what is not its own, order what it does not know,
    /// and let go of what it should have and does not.
    fn reconcile(&mut self, node: NodeId, state: &State, known: &[KnownAttempt]) -> Result<(), SessionError> {
        let has: BTreeSet<AttemptId> = known.iter().map(|k| core_id(k.attempt)).collect();
        let Some(record) = state.nodes.get(&node) else { return Ok(()) };
        for attempt in has.iter().filter(|a| !record.attempts.contains(a)) {
            self.say(&Down::Forget { attempt: wire(*attempt) })?;
        }
        for attempt in &record.attempts {
            let started =
                state.jobs.get(&attempt.job).and_then(|j| j.attempt()).is_some_and(|a| a.last_report > 0);
            if started && !has.contains(attempt) {
                self.sessions.report_ended(node, *attempt, CoreExit::LeaseLost);
            }
        }
        if record.state == NodeState::Ready {
            for effect in effects::of_nodes(state, &BTreeSet::from([node])) {
                if let Effect::StartAttempt { attempt, .. } = &effect
                    && has.contains(attempt)
                {
                    continue;
                }
                self.sessions.order(&effect, state);
            }
        }
        Ok(())
    }

    fn message(&mut self, node: NodeId, message: Up) -> Result<(), SessionError> {
        match message {
            Up::Heartbeat { sent_boot_ms } => {
                if self.sessions.heard(node) {
                    let heard = Command::Report(CoreReport::NodeHeard { node });
                    drop(self.sessions.handle.submit_later("neap", heard, Vec::new()));
                }
                self.say(&Down::LeaseRenewed { sent_boot_ms })
            }
            Up::Renew { csr_pem } => match self.certificate(node, &csr_pem, clock::unix_seconds()) {
                Ok(joined) => self.say(&joined),
                Err(reason) => Err(SessionError::Refused(reason)),
            },
            Up::Join { .. } | Up::Hello { .. } => {
                Err(SessionError::Refused("it introduced itself twice".into()))
            }
            Up::Report { .. } => Ok(()),
        }
    }

    fn settled(&mut self, node: NodeId, settled: &Settled) -> Result<(), SessionError> {
        let attempt = wire(settled.attempt);
        if settled.ended {
            self.sessions.settle(node, settled.attempt);
        }
        let current = self.sessions.handle.inner.published.load();
        let still_its = current.nodes.get(&node).is_some_and(|n| n.attempts.contains(&settled.attempt));
        if settled.ended || still_its {
            self.say(&Down::ReportAcknowledged { attempt, number: settled.number })
        } else {
            self.say(&Down::Forget { attempt })
        }
    }

    /// Stores a piece of log. What cannot be stored now is not acknowledged and comes again.
    fn log(&mut self, node: NodeId, chunk: &LogChunk) -> Result<(), SessionError> {
        let id = core_id(chunk.attempt);
        let Some((workspace, name)) = self.job_of(id.job) else {
            return self.say(&Down::LogAcknowledged {
                attempt: chunk.attempt,
                offset: chunk.offset + chunk.bytes.len() as u64,
            });
        };
        let stored = joblog::address(&format!("neapst{workspace}"), "azureml", &name).and_then(|address| {
            self.sessions.logs.append(&address, id.job.0, id.number, chunk.offset, &chunk.bytes)
        });
        match stored {
            Ok(offset) => self.say(&Down::LogAcknowledged { attempt: chunk.attempt, offset }),
            Err(neap_storage::Error::Gap { have_bytes, .. }) => {
                self.say(&Down::LogAcknowledged { attempt: chunk.attempt, offset: have_bytes })
            }
            Err(error) => {
                tracing::warn!(%node, attempt = %id, %error, "a piece of log could not be stored");
                Ok(())
            }
        }
    }

    fn job_of(&self, job: JobId) -> Option<(WorkspaceId, Arc<str>)> {
        let state = self.sessions.handle.inner.published.load();
        if let Some(job) = state.jobs.get(&job) {
            return Some((job.workspace, job.name.clone()));
        }
        let row = self.sessions.handle.reader().job_by_id(job).ok().flatten()?;
        Some((row.workspace, row.name.as_str().into()))
    }

    fn say(&self, message: &Down) -> Result<(), SessionError> {
        let mut frame = Vec::new();
        encode_message(message, &mut frame);
        self.frames.try_send(frame).map_err(|_| SessionError::Slow)
    }

    fn refuse<T>(&self, reason: String) -> Result<Option<T>, SessionError> {
        self.say(&Down::Refused { reason: reason.clone() })?;
        Err(SessionError::Refused(reason))
    }
}

/// Offers news until the ledger can take it. A refusal of substance comes back; a full disk is waited out.
pub(crate) async fn take_in(handle: Handle, command: Command) -> Result<(), Refusal> {
    loop {
        match handle.submit("neap", command.clone(), Vec::new()).await {
            Ok(_) => return Ok(()),
            Err(refusal)
                if matches!(
                    refusal.code(),
                    Code::StorageFull | Code::LedgerReadOnly | Code::InternalError
                ) =>
            {
                tokio::time::sleep(Duration::from_millis(limits::RETRY_COMMIT_MS)).await;
            }
            Err(refusal) => return Err(refusal),
        }
    }
}

pub(crate) fn wire(id: AttemptId) -> AttemptRef {
    AttemptRef { job: id.job.0, attempt: id.number }
}

fn core_id(id: AttemptRef) -> AttemptId {
    AttemptId { job: JobId(id.job), number: id.attempt }
}

fn core_news(report: Report) -> AttemptNews {
    match report {
        Report::Started { properties } => AttemptNews::Started { facts: properties },
        Report::Finalizing => AttemptNews::Finalizing,
        Report::Ended { exit } => AttemptNews::Ended { exit: core_exit(exit) },
    }
}

fn core_exit(exit: Exit) -> CoreExit {
    match exit {
        Exit::Success => CoreExit::Success,
        Exit::Code { code } => CoreExit::Code { code },
        Exit::Signal { signal } => CoreExit::Signal { signal },
        Exit::OutOfMemory { limit_mb } => CoreExit::OutOfMemory { limit_mb },
        Exit::Timeout => CoreExit::Timeout,
        Exit::Stopped => CoreExit::Stopped,
        Exit::LeaseLost => CoreExit::LeaseLost,
        Exit::PrepareFailed { class, message } => {
            let class = match class {
                FailureClass::InputData => Class::InputData,
                FailureClass::Environment => Class::Environment,
                FailureClass::System => Class::System,
            };
            CoreExit::PrepareFailed { class, message: message.into() }
        }
        Exit::FinalizeFailed { message } => CoreExit::FinalizeFailed { message: message.into() },
    }
}
