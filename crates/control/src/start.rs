//! Bringing the control plane up: load, publish, find the nodes again, then act.

use std::path::Path;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use neap_core::Command;
use neap_core::settings::Settings;
use neap_ledger::{Ledger, Opened, Options};
use neap_providers::{News, Provider};
use neap_storage::joblog::JobLogs;
use neap_storage::sas::SasKey;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use crate::dispatch::Dispatch;
use crate::errands::Errands;
use crate::handle::{Handle, Inner, Published};
use crate::machine::Machine;
use crate::measured::Measured;
use crate::metrics::Metrics;
use crate::node_gpus::NodeGpus;
use crate::orders::{AttemptOrders, OrderSettings};
use crate::past::Past;
use crate::services::Services;
use crate::sessions::{Gate, Sessions};
use crate::trace::Tracer;
use crate::writer::{Message, Writer};
use crate::{clock, limits};

/// Everything the control plane is made of.
#[derive(Debug)]
pub struct ControlParts {
    pub settings: Settings,
    pub release: Arc<str>,
    pub provider: Arc<dyn Provider>,
    pub news: UnboundedReceiver<News>,
    pub gate: Gate,
    pub logs: JobLogs,
    pub orders: OrderSettings,
    pub sas: SasKey,
    /// Records that are replayed for a question about the past, at most.
    pub past_records_max: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Ledger(#[from] neap_ledger::Error),
    #[error("the nodes of this installation cannot be listed: {0}")]
    Provider(#[from] neap_providers::Error),
    #[error("the first record could not be written: {0}")]
    FirstRecord(neap_core::Refusal),
    #[error("the writer's thread could not be started: {0}")]
    Thread(std::io::Error),
}

/// A running control plane.
#[derive(Debug)]
pub struct Control {
    pub handle: Handle,
    pub sessions: Arc<Sessions>,
    writer: Option<std::thread::JoinHandle<()>>,
}

/// Opens the ledger alone, so that a damaged or busy folder is refused before anything else is made. `reserve_bytes` of
/// the disk are set aside for it.
pub fn open_ledger(dir: &Path, lock: &Path, reserve_bytes: u64) -> Result<Opened, StartError> {
    let options = Options { lock: Some(lock.to_owned()), reserve_bytes, ..Options::default() };
    Ok(Ledger::open(dir, options)?)
}

/// Starts the writer, finds the nodes again, and hands out what is wanted.
pub async fn start(opened: Opened, parts: ControlParts) -> Result<Control, StartError> {
    for warning in &opened.warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!(seq = opened.head.seq, replayed = opened.replayed, "ledger is open");
    let (door, messages) = std::sync::mpsc::channel();
    let (effects, wanted) = unbounded_channel();
    let inner = Arc::new(Inner {
        door,
        published: ArcSwap::from_pointee(Published { state: opened.state.clone(), seq: opened.head.seq }),
        changes: watch::Sender::new(opened.head.seq),
        reader: opened.ledger.reader(),
        shutdown: watch::Sender::new(None),
        metrics: Metrics::default(),
        tracer: Tracer::default(),
        services: Services::default(),
        gpus: NodeGpus::default(),
        past: Past::new(parts.past_records_max),
        as_of: None,
    });
    let handle = Handle { inner: inner.clone() };
    let orders =
        AttemptOrders { settings: Arc::new(parts.orders), sas: parts.sas, reader: handle.reader().clone() };
    let sessions = Arc::new(Sessions::new(handle.clone(), parts.gate, parts.logs, orders));
    handle.services().through(&sessions);
    let dispatch = Dispatch {
        sessions: sessions.clone(),
        provider: Arc::new(Measured { provider: parts.provider, inner: inner.clone() }),
        errands: Arc::new(Mutex::new(Errands::new(clock::steady()))),
        errands_changed: Arc::default(),
    };

    let found = dispatch.provider.list().await?;
    let machine = Machine::new(opened.state);
    // After a restart every lease counts as granted now.
    sessions.roster().grant_all(machine.state(), clock::steady());
    let writer = Writer { machine, ledger: opened.ledger, messages, inner, effects };
    let writer = std::thread::Builder::new()
        .name("neap-writer".into())
        .spawn(move || writer.run())
        .map_err(StartError::Thread)?;

    let first = Command::Start { release: parts.release, settings: parts.settings };
    handle.submit("neap", first, Vec::new()).await.map_err(StartError::FirstRecord)?;
    dispatch.repair(&found);
    dispatch.hand_out(&neap_core::effects::all(&handle.state()));

    tokio::spawn(dispatch.clone().run(wanted));
    tokio::spawn(dispatch.clone().listen(parts.news));
    tokio::spawn(dispatch.clone().mind_errands());
    tokio::spawn(dispatch.mind_leases());
    Ok(Control { handle, sessions, writer: Some(writer) })
}

impl Control {
    /// Places nothing more, waits for attempts within the grace, and for every node to be gone. Says what is left.
    pub async fn drain(&self, grace_ms: u64) -> usize {
        let deadline = clock::wall().plus(grace_ms);
        if let Err(refusal) = self.handle.submit("neap", Command::Drain { deadline }, Vec::new()).await {
            tracing::error!(%refusal, "the drain could not be recorded");
            return self.handle.state().nodes.len();
        }
        let mut changes = self.handle.changes();
        let empty = async {
            while !self.handle.state().nodes.is_empty() {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let patience = std::time::Duration::from_millis(grace_ms + limits::SHUTDOWN_MARGIN_MS);
        let _ = tokio::time::timeout(patience, empty).await;
        self.handle.state().nodes.len()
    }

    /// Ends the writer after a last snapshot.
    pub fn finish(mut self) {
        let (done, finished) = std::sync::mpsc::channel();
        if self.handle.inner.door.send(Message::End(done)).is_ok() {
            let _ = finished.recv();
        }
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
