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
use neap_core::{Command, JobId, NodeId, Refusal, WorkspaceId};
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
        if writer.write_all(&buffer).await.is_err() || writer.flush().await.is_err() {
            return;
        }
        buffer.clear();
    }
    let _ = writer.shutdown().await;
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
}

impl<R: AsyncRead + Unpin> Session<R> {
    pub async fn run(&mut self) -> Result<(), SessionError> {
        loop {
            while !self.conversation.waits()
                && let Some(frame) = self.decoder.next::<Up>()?
            {
                self.feed(match frame {
                    Frame::Message(message) => Input::Message(message),
                    Frame::Log(log) => Input::Log(log),
                })?;
            }
            tokio::select! {
                read = read_into(&mut self.reader, &mut self.decoder), if !self.conversation.waits() => {
                    if read? == 0 {
                        return Ok(());
                    }
                }
                Some(input) = self.pending.next(), if !self.pending.is_empty() => self.feed(input)?,
            }
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
            Output::StoreLog(chunk) => self.log(&chunk),
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

    /// Stores a piece of log. What cannot be stored now is not acknowledged and comes again.
    fn log(&mut self, chunk: &LogChunk) -> Result<(), SessionError> {
        let id = core_id(chunk.attempt);
        let Some((workspace, name)) = self.job_of(id.job) else {
            return self.say(&Down::LogAcknowledged {
                attempt: chunk.attempt,
                offset: chunk.offset + chunk.bytes.len() as u64,
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

    fn job_of(&self, job: JobId) -> Option<(WorkspaceId, Arc<str>)> {
        let state = self.sessions.handle.inner.published.load();
        if let Some(job) = state.jobs.get(&job) {
            return Some((job.workspace, job.name.clone()));
        }
        let row = self.sessions.handle.reader().job_by_id(job).ok().flatten()?;
        Some((row.workspace, row.name.as_str().into()))
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
