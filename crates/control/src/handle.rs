//! What the faces hold: a door for commands and a window on the published state.

use std::sync::Arc;

use arc_swap::ArcSwap;
use neap_core::problem::Code;
use neap_core::{Command, Event, Millis, Refusal, State};
use neap_ledger::{Document, Reader};
use tokio::sync::{oneshot, watch};

use crate::clock;
use crate::machine::Input;
use crate::metrics::Metrics;
use crate::node_gpus::NodeGpus;
use crate::past::Past;
use crate::services::Services;
use crate::trace::{SpanKind, Tracer};
use crate::writer::Message;

/// The answer to an accepted command: what it came to. Empty when it changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub events: Vec<Event>,
}

/// Where an answer goes.
pub(crate) type Ticket = oneshot::Sender<Result<Accepted, Refusal>>;

/// How the server was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    pub leave_nodes: bool,
    pub grace_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) door: std::sync::mpsc::Sender<Message>,
    pub(crate) published: ArcSwap<Published>,
    pub(crate) changes: watch::Sender<u64>,
    pub(crate) reader: Reader,
    pub(crate) shutdown: watch::Sender<Option<Shutdown>>,
    pub(crate) metrics: Metrics,
    pub(crate) tracer: Tracer,
    pub(crate) services: Services,
    pub(crate) gpus: NodeGpus,
    pub(crate) past: Past,
    /// Of a handle on the past: when.
    pub(crate) as_of: Option<Millis>,
}

/// The state after a record of the log. It reads as the state.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) state: State,
    pub(crate) seq: u64,
}

impl std::ops::Deref for Published {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl Handle {
    /// The last published state. Holding it costs nobody anything.
    pub fn state(&self) -> State {
        State::clone(&self.inner.published.load())
    }

    /// The same with the record that it is after: the tables may be ahead of it, and whoever reads both says up to where.
    pub fn state_and_seq(&self) -> (State, u64) {
        let published = self.inner.published.load();
        (published.state.clone(), published.seq)
    }

    pub fn reader(&self) -> &Reader {
        &self.inner.reader
    }

    pub fn now(&self) -> Millis {
        self.inner.as_of.unwrap_or_else(|| clock::wall().max(self.inner.published.load().now))
    }

    /// Asks for a command to be decided. The answer comes after its events are durable.
    pub async fn submit(
        &self,
        actor: &str,
        command: Command,
        documents: Vec<Document>,
    ) -> Result<Accepted, Refusal> {
        let span = self.inner.tracer.begin();
        let answer = self.submit_later(actor, command, documents).await.unwrap_or_else(|_| Err(stopping()));
        if let Some(span) = span {
            self.trace(&span, &answer);
        }
        answer
    }

    /// From the question to the durable answer.
    fn trace(&self, span: &crate::trace::Begun, answer: &Result<Accepted, Refusal>) {
        let (mut attributes, mut error) = (Vec::new(), None);
        match answer {
            Ok(accepted) => {
                let kinds: Vec<_> = accepted.events.iter().take(8).map(Event::kind).collect();
                attributes.push(("neap.events", kinds.join(" ").as_str().into()));
                for event in &accepted.events {
                    if let Event::JobSubmitted(job) = event {
                        self.inner.tracer.submitted(job.id, span.context());
                    }
                }
            }
            Err(refusal) => error = Some(refusal.code().name().to_owned()),
        }
        self.inner.tracer.end(span, "command", SpanKind::Internal, attributes, error);
    }

    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    pub fn tracer(&self) -> &Tracer {
        &self.inner.tracer
    }

    /// What runs beside attempts, and how it is reached.
    pub fn services(&self) -> &Services {
        &self.inner.services
    }

    /// The GPUs of nodes, as they were told last.
    pub fn gpus(&self) -> &NodeGpus {
        &self.inner.gpus
    }

    /// Why nothing can be recorded, if so: the log is damaged, or the last writes failed.
    pub fn ledger_closed(&self) -> Option<String> {
        self.reader().read_only().map(str::to_owned).or_else(|| self.inner.metrics.ledger_closed())
    }

    /// The same, with the waiting left to the caller: commands are taken in the order of these calls.
    pub fn submit_later(
        &self,
        actor: &str,
        command: Command,
        documents: Vec<Document>,
    ) -> oneshot::Receiver<Result<Accepted, Refusal>> {
        let (ticket, answer) = oneshot::channel();
        let input = Input { actor: actor.into(), command, documents, ticket };
        // A closed door drops the ticket, which the receiver sees.
        let _ = self.inner.door.send(Message::Input(input));
        answer
    }

    /// Ticks with the log's sequence number after every publication.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    pub fn request_shutdown(&self, leave_nodes: bool, grace_ms: u64) {
        self.inner.shutdown.send_if_modified(|asked| {
            let first = asked.is_none();
            if first {
                *asked = Some(Shutdown { leave_nodes, grace_ms });
            }
            first
        });
    }

    /// Resolves when somebody asked for the end.
    pub fn shutdown_asked(&self) -> watch::Receiver<Option<Shutdown>> {
        self.inner.shutdown.subscribe()
    }
}

pub(crate) fn stopping() -> Refusal {
    Refusal::because(Code::ServerIsStopping, "The server is being stopped; send this again when it is back.")
}
