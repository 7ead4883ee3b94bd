//! One connection with one agent: reads frames, asks the conversation what they mean, does it.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use neap_core::command::Report;
use neap_core::{AttemptId, Command, NodeId, Refusal, WorkspaceId};
use neap_ledger::Document;
use neap_protocol::{Decoder, Down, Frame, LogChunk, LogSource, Up, encode_message};
use neap_storage::joblog;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::mpsc;

use crate::conversation::{Conversation, Input, Output, Ticket, View, comes_again, core_id};
use crate::sessions::Sessions;
use crate::{Handle, clock, limits, registrations};

/// One TLS record.
const READ_BYTES: usize = 16 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Frame(#[from] neap_protocol::FrameError),
    #[error("{0}")]
    Ended(String),
    #[error("the agent reads too slowly")]
    Slow,
    #[error("it did not introduce itself within {} s", limits::INTRODUCTION.as_secs())]
    Nameless,
    #[error("nothing was heard of it for {0} s")]
    Silent(u64),
}

pub(crate) async fn write_frames<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut outgoing: mpsc::Receiver<Vec<u8>>,
) {
    let mut buffer = Vec::new();
    while let Some(frame) = outgoing.recv().await {
        buffer.extend_from_slice(&frame);
        // Others who have something to say to this node now say it first: one record for all.
        tokio::task::yield_now().await;
        while let Ok(frame) = outgoing.try_recv() {
            buffer.extend_from_slice(&frame);
        }
        let writing = async {
            writer.write_all(&buffer).await?;
            writer.flush().await
        };
        // Dropping the queue ends the session of an agent that does not read.
        match tokio::time::timeout(limits::SESSION_WRITE, writing).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        buffer.clear();
        buffer.shrink_to(READ_BYTES);
    }
    let _ = tokio::time::timeout(limits::SESSION_WRITE, writer.shutdown()).await;
}

/// Reads what is there. The room for it is on the stack of the moment: a thousand connections that wait have none.
async fn read_into<R: AsyncRead + Unpin>(reader: &mut R, decoder: &mut Decoder) -> std::io::Result<usize> {
    std::future::poll_fn(|context| {
        let mut room = [MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut *reader).poll_read(context, &mut buffer))?;
        decoder.feed(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    })
    .await
}

pub(crate) struct Session<R> {
    pub sessions: Arc<Sessions>,
    pub reader: R,
    pub decoder: Decoder,
    pub frames: mpsc::Sender<Vec<u8>>,
    pub conversation: Conversation,
    /// Reports on their way to the log.
    pub pending: FuturesUnordered<BoxFuture<'static, Input>>,
    /// Told once the agent has shown who it is.
    pub on_accepted: Option<Box<dyn FnOnce(u64) + Send>>,
}

/// However the session ends, also when the connection is taken away from it.
impl<R> Drop for Session<R> {
    fn drop(&mut self) {
        self.sessions.handle.inner.metrics.agent_sessions.dec();
        if let Some(node) = self.conversation.node() {
            self.sessions.roster().leave(node, self.conversation.serial());
        }
    }
}

impl<R: AsyncRead + Unpin> Session<R> {
    pub async fn run(&mut self) -> Result<(), SessionError> {
        let introduction = tokio::time::sleep(limits::INTRODUCTION);
        tokio::pin!(introduction);
        let silence = tokio::time::sleep(self.silence());
        tokio::pin!(silence);
        loop {
            self.decoder.set_limit(self.conversation.frame_bytes_max());
            while self.reads()
                && let Some(frame) = self.decoder.next::<Up>()?
            {
                self.feed(match frame {
                    Frame::Message(message) => Input::Message(message),
                    Frame::Log(log) => Input::Log(log),
                })?;
                self.decoder.set_limit(self.conversation.frame_bytes_max());
            }
            let (is_in, reads) = (self.conversation.is_in(), self.reads());
            tokio::select! {
                read = read_into(&mut self.reader, &mut self.decoder), if reads => {
                    if read? == 0 {
                        return Ok(());
                    }
                    silence.as_mut().reset(tokio::time::Instant::now() + self.silence());
                }
                Some(input) = self.pending.next(), if !self.pending.is_empty() => {
                    self.feed(input)?;
                    if !self.conversation.is_in() {
                        // The agent waited for the ledger: its own time begins again.
                        introduction.as_mut().reset(tokio::time::Instant::now() + limits::INTRODUCTION);
                    }
                }
                () = introduction.as_mut(), if !is_in && reads => return Err(SessionError::Nameless),
                () = silence.as_mut(), if is_in && reads => {
                    return Err(SessionError::Silent(self.silence().as_secs()));
                }
            }
        }
    }

    /// Whether more is read from the agent now: not while it waits for an answer, nor while many of its reports wait for the
    /// ledger.
    fn reads(&self) -> bool {
        !self.conversation.waits() && self.pending.len() < limits::SESSION_REPORTS_MAX
    }

    /// How long a welcomed agent may say nothing at all: long after its lease has run out.
    fn silence(&self) -> Duration {
        let state = self.sessions.handle.inner.published.load();
        let lease_ms = state.settings.lease_ttl_ms.saturating_mul(limits::SILENT_LEASES);
        Duration::from_millis(lease_ms).max(limits::SILENT_MIN)
    }

    fn accepted(&mut self, node: NodeId) {
        if let Some(told) = self.on_accepted.take() {
            told(node.0);
        }
    }

    /// One step of the conversation. What it says is sent, and what it reports is offered, before the roster is let
    /// go: orders of the dispatch come after, or before, but never between.
    fn feed(&mut self, input: Input) -> Result<(), SessionError> {
        let mut later = Vec::new();
        {
            let mut roster = self.sessions.roster();
            let mut out = Vec::new();
            let state = self.sessions.handle.inner.published.load();
            let mut view =
                View { roster: &mut roster, link: &self.frames, state: &state, now: clock::steady() };
            self.conversation.step(input, &mut view, &mut out);
            for output in out {
                match output {
                    Output::Say(down) => self.say(&self.with_pass(down))?,
                    Output::Report { report, ticket } => self.report(report, ticket),
                    other => later.push(other),
                }
            }
        }
        self.sessions.leases_may_have_changed();
        later.into_iter().try_for_each(|output| self.perform(output))
    }

    fn perform(&mut self, output: Output) -> Result<(), SessionError> {
        match output {
            Output::Say(down) => self.say(&down),
            Output::Report { report, ticket } => {
                self.report(report, ticket);
                Ok(())
            }
            Output::Order(effect) => {
                self.sessions.order(&effect);
                Ok(())
            }
            Output::Check { node, token } => {
                let checked = self.sessions.check(node, &token);
                if checked.is_ok() {
                    self.accepted(node);
                }
                self.feed(Input::Checked(checked))
            }
            Output::Admit { node, token, csr_pem } => {
                let admitted = self.sessions.admit(node, &token, &csr_pem);
                self.feed(Input::Admitted(admitted))
            }
            Output::Certify { node, csr_pem } => {
                match self.sessions.certificate(node, &csr_pem, clock::unix_seconds()) {
                    Ok(joined) => self.say(&joined),
                    Err(reason) => Err(SessionError::Ended(reason)),
                }
            }
            Output::StoreLog { node, chunk } => self.log(node, &chunk),
            Output::Services { node, attempt, services } => {
                let state = self.sessions.handle.inner.published.load();
                self.sessions.handle.inner.services.tell(node, attempt, services, &state);
                Ok(())
            }
            Output::Gpus { node, gpus } => {
                let state = self.sessions.handle.inner.published.load();
                self.sessions.handle.inner.gpus.tell(node, gpus, &state);
                Ok(())
            }
            Output::StreamFailed { node, stream, reason } => {
                self.sessions.handle.inner.services.failed(node, stream.reveal(), reason);
                Ok(())
            }
            Output::End(reason) => Err(SessionError::Ended(reason)),
        }
    }

    fn report(&self, report: Report, ticket: Option<Ticket>) {
        let taken: BoxFuture<'static, Result<(), Refusal>> = match registrations::of(&self.sessions, &report)
        {
            None => Box::pin(take_in(self.sessions.handle.clone(), Command::Report(report))),
            Some(found) => Box::pin(registrations::take_in(self.sessions.clone(), report, found)),
        };
        match ticket {
            Some(ticket) => {
                self.pending.push(Box::pin(async move { Input::Settled(ticket, taken.await) }));
            }
            // It is offered until it is taken, whatever becomes of this connection.
            None => drop(tokio::spawn(taken)),
        }
    }

    /// Stores a piece of log. A piece that cannot be stored now is not acknowledged and comes again. One of an attempt
    /// that never was this node's is acknowledged and dropped, so that an agent with an outdated view goes on.
    fn log(&mut self, node: NodeId, chunk: &LogChunk) -> Result<(), SessionError> {
        let id = core_id(chunk.attempt);
        let Some((workspace, name)) = self.job_of(node, id) else {
            tracing::debug!(%node, attempt = %id, "a piece of log of an attempt that is not the node's was dropped");
            return self.say(&Down::LogAcknowledged {
                attempt: chunk.attempt,
                offset: chunk.offset.saturating_add(chunk.bytes.len() as u64),
            });
        };
        let (account, container) = (format!("neapst{workspace}"), "azureml");
        let stored = match chunk.source {
            None => joblog::address(&account, container, &name).and_then(|address| {
                self.sessions.logs.append(&address, id.job.0, id.number, chunk.offset, &chunk.bytes)
            }),
            Some(source) => {
                let shelf = joblog::Shelf { account: &account, container, job_name: &name };
                self.sessions.logs.append_piece(shelf, id.job.0, &piece(id.number, source, chunk))
            }
        };
        match stored {
            Ok(offset) => self.say(&Down::LogAcknowledged { attempt: chunk.attempt, offset }),
            Err(neap_storage::Error::Gap { have_bytes, .. }) => {
                self.say(&Down::LogAcknowledged { attempt: chunk.attempt, offset: have_bytes })
            }
            Err(error) => {
                tracing::warn!(attempt = %id, %error, "a piece of log could not be stored");
                Ok(())
            }
        }
    }

    /// The job of an attempt that is or was this node's.
    fn job_of(&self, node: NodeId, id: AttemptId) -> Option<(WorkspaceId, Arc<str>)> {
        let state = self.sessions.handle.inner.published.load();
        if let Some(job) = state.jobs.get(&id.job)
            && let Some(attempt) = job.attempt().filter(|attempt| attempt.number == id.number)
        {
            return attempt.nodes().any(|held| held == node).then(|| (job.workspace, job.name.clone()));
        }
        // The job has ended, and the end of its log comes late.
        let row = self.sessions.handle.reader().job_by_id(id.job).ok().flatten()?;
        let was_its = row.attempt == id.number && (row.node == Some(node) || row.ranks.contains(&node));
        was_its.then(|| (row.workspace, row.name.as_str().into()))
    }

    pub fn node(&self) -> Option<NodeId> {
        self.conversation.node()
    }

    /// A lease with the pass that makes the URLs of the node's attempts valid as long as it lasts.
    fn with_pass(&self, mut down: Down) -> Down {
        if let (Down::Welcome { url_pass, .. } | Down::LeaseRenewed { url_pass, .. }, Some(node)) =
            (&mut down, self.node())
        {
            *url_pass = self.sessions.url_pass(node);
        }
        down
    }

    fn say(&self, message: &Down) -> Result<(), SessionError> {
        if matches!(message, Down::LeaseRenewed { .. }) {
            self.sessions.handle.inner.metrics.lease_renewals.inc();
        }
        let mut frame = Vec::new();
        encode_message(message, &mut frame);
        self.frames.try_send(frame).map_err(|_| SessionError::Slow)
    }
}

/// The same in the words of the store.
fn piece(attempt: u32, source: LogSource, chunk: &LogChunk) -> joblog::Piece<'_> {
    joblog::Piece {
        attempt,
        rank: source.rank,
        untag: source.tagged.then_some(|line| {
            let piece = neap_protocol::tag::untag(line);
            (piece.rank, piece.bytes)
        }),
        offset: chunk.offset,
        bytes: &chunk.bytes,
        last: chunk.last,
    }
}

/// Offers news until the ledger can take it, the first time at once. A refusal of substance comes back; a full disk
/// is waited out.
pub(crate) fn take_in(
    handle: Handle,
    command: Command,
) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
    take_in_with(handle, command, Vec::new())
}

/// The same, with documents that the command names.
pub(crate) fn take_in_with(
    handle: Handle,
    command: Command,
    documents: Vec<Document>,
) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
    let mut answer = handle.submit_later("neap", command.clone(), documents.clone());
    async move {
        loop {
            match answer.await.unwrap_or_else(|_| Err(crate::handle::stopping())) {
                Ok(_) => return Ok(()),
                Err(refusal) if comes_again(&refusal) => {
                    tokio::time::sleep(Duration::from_millis(limits::RETRY_COMMIT_MS)).await;
                }
                Err(refusal) => return Err(refusal),
            }
            answer = handle.submit_later("neap", command.clone(), documents.clone());
        }
    }
}
