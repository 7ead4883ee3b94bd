//! The agent's loop: waits for something to happen, asks the session what to do, does it.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use neap_protocol::{
    AttemptRef, AttemptSpec, Down, Exit, Isolation, LogChunk, LogSource, NodeFacts, Secret, Up, encode_log,
    encode_message,
};
use neap_sandbox::{Lease, Spawner, SpoolEnd, SpoolReader, boot_ms};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::attempt::{self, Order};
use crate::connection::{self, Credentials};
use crate::distributed;
use crate::environment::cache::Cache;
use crate::folder::Folders;
use crate::gpus::Gpus;
use crate::network::{self, Network};
use crate::node::{Engines, Node};
use crate::services::{self, Desk};
use crate::session::{ExitReason, Input, Output, Session};
use crate::url_pass::UrlPass;
use crate::{Error, NodeConfig, boot_log, trust};

/// A timer sleeps at most this long, so that time slept by the machine is noticed.
const SLEEP_MS_MAX: u64 = 1000;
const HAPPENINGS_AT_ONCE: usize = 64;

/// Everything that can happen to an agent.
#[derive(Debug)]
pub(crate) enum Happening {
    Session(Input),
    /// Frames sent here go out on the new connection.
    Connected(UnboundedSender<Vec<u8>>),
    Down(Down),
    Ended {
        attempt: AttemptRef,
        exit: Exit,
        end: SpoolEnd,
    },
    /// To be said to the server, if it is there to hear it.
    Say(Up),
    /// Its folder is given back.
    Gone {
        attempt: AttemptRef,
    },
}

/// An attempt that has a folder.
struct Known {
    orders: UnboundedSender<Order>,
    /// There is one as soon as the attempt has its folder.
    spool: Rc<OnceCell<SpoolReader>>,
    end: Option<SpoolEnd>,
    /// Whose output its log is, where the job has several logs.
    source: Option<LogSource>,
    /// There is one as soon as its services are about to start.
    desk: Rc<OnceCell<Rc<Desk>>>,
}

struct Driver {
    node: Rc<Node>,
    session: Session,
    lease: Lease,
    credentials: Rc<Credentials>,
    hang_up: Rc<Notify>,
    say: UnboundedSender<Happening>,
    frames: Option<UnboundedSender<Vec<u8>>>,
    outgoing: Vec<u8>,
    known: BTreeMap<AttemptRef, Known>,
    renew_at_ms: u64,
    over: Option<ExitReason>,
}

/// The agent's life, from its configuration to the reason of its end.
pub(crate) async fn run(
    dir: &Path,
    config: NodeConfig,
    spawner: Spawner,
    network: Network,
) -> Result<ExitReason, Error> {
    // Fails only if another part of the program has chosen already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { doing, path, source }
    };
    let ca_pem = std::fs::read(&config.ca_pem_path).map_err(file("reading", &config.ca_pem_path))?;
    let lease = Lease::open(dir).map_err(file("opening the lease in", dir))?;
    let attempts = config.work_dir.join("attempts");
    std::fs::create_dir_all(&attempts).map_err(file("making", &attempts))?;
    let bundle = trust::write_bundle(&config.work_dir, &ca_pem)
        .map_err(file("writing the trusted roots in", &config.work_dir))?;
    let mut facts = facts(&config, &spawner);
    facts.isolation_missing.extend(network.missing.iter().cloned());
    if let Some(place) = &network.place {
        network::keep(place);
    }
    boot_log::line(&format!(
        "agent {} of node {} started: {} milli-cores, {} MB, {} GPUs; isolation: {}",
        facts.agent_version,
        config.node,
        facts.cpus_milli,
        facts.memory_mb,
        facts.gpus,
        facts.isolation.join(", ")
    ));
    for sentence in &facts.isolation_missing {
        boot_log::line(sentence);
    }
    let own = config.gpu_devices.iter().take(facts.gpus as usize).cloned().collect();
    let gpus = Gpus::new(own);
    for line in gpus.lines() {
        boot_log::line(&line);
    }
    let spawner_end: OwnedFd =
        spawner.watch().try_clone_to_owned().map_err(file("watching the spawner of", dir))?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe; the descriptor is owned by the value and never changes"
    )]
    let spawner_end = AsyncFd::with_interest(spawner_end, Interest::READABLE).map_err(Error::Runtime)?;
    let node = Rc::new(Node {
        path: std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned()),
        facts: facts.clone(),
        spawner,
        network,
        users: neap_sandbox::Users::default(),
        ca_pem: ca_pem.clone(),
        blobs: OnceCell::new(),
        url_pass: UrlPass::default(),
        folders: Rc::new(Folders::new(attempts).with_bundle(bundle)),
        python: tokio::sync::OnceCell::new(),
        python_for_others: tokio::sync::OnceCell::new(),
        slots: RefCell::new(BTreeSet::new()),
        cache: Cache::new(config.environments_dir()),
        engines: Engines::default(),
        gpus,
        config: config.clone(),
    });
    let credentials = Rc::new(Credentials::new(dir, ca_pem));
    let hang_up = Rc::new(Notify::new());
    let (say, mut happenings) = unbounded_channel();
    tokio::task::spawn_local(connection::keep(
        config.clone(),
        credentials.clone(),
        hang_up.clone(),
        say.clone(),
    ));
    // Looked for while the first job is on its way.
    let looking = node.clone();
    tokio::task::spawn_local(async move {
        for isolation in [Isolation::Full, Isolation::Off] {
            let python = looking.python(isolation).await;
            looking.folders.prepare(python);
        }
    });
    let mut driver = Driver {
        session: Session::new(config.node, facts, boot_ms()),
        node,
        lease,
        credentials,
        hang_up,
        say,
        frames: None,
        outgoing: Vec::new(),
        known: BTreeMap::new(),
        renew_at_ms: u64::MAX,
        over: None,
    };
    if driver.node.gpus.len() > 0 {
        let gpus = driver.node.gpus.states();
        driver.handle(Happening::Session(Input::Gpus { gpus }))?;
    }
    let mut batch = Vec::new();
    loop {
        let wake_at_ms = driver.session.wake_at_ms().min(driver.renew_at_ms);
        let sleep = wake_at_ms.saturating_sub(boot_ms()).min(SLEEP_MS_MAX);
        tokio::select! {
            biased;
            _ = happenings.recv_many(&mut batch, HAPPENINGS_AT_ONCE) => {}
            () = tokio::time::sleep(Duration::from_millis(sleep)) => batch.push(Happening::Session(Input::Timer)),
            _ = spawner_end.readable() => return Err(Error::SpawnerLost),
        }
        for happening in batch.drain(..) {
            driver.handle(happening)?;
        }
        // The timers must be looked at, however much happens.
        driver.handle(Happening::Session(Input::Timer))?;
        driver.renew_certificate()?;
        driver.flush();
        if let Some(reason) = driver.over.take() {
            boot_log::line(&format!("the agent ends: {reason:?}"));
            return Ok(reason);
        }
    }
}

impl Driver {
    fn handle(&mut self, happening: Happening) -> Result<(), Error> {
        let input = match happening {
            Happening::Session(Input::Disconnected) => {
                self.frames = None;
                self.outgoing.clear();
                Input::Disconnected
            }
            Happening::Session(input) => input,
            Happening::Connected(frames) => {
                self.frames = Some(frames);
                Input::Connected
            }
            Happening::Down(Down::Joined { certificate_pem, not_after_unix_s }) => {
                neap_crash::point("joined-before-certificate-kept");
                self.credentials.keep(&certificate_pem)?;
                let now_s = u64::try_from(boot_log::now_ns() / 1_000_000_000).unwrap_or(0);
                let left_ms = not_after_unix_s.saturating_sub(now_s).saturating_mul(1000);
                self.renew_at_ms = boot_ms() + left_ms / 3 * 2;
                boot_log::line(&format!("has a certificate for {} s", left_ms / 1000));
                return Ok(());
            }
            Happening::Down(down) => {
                self.node.url_pass.renew_from(&down);
                if matches!(down, Down::LogAcknowledged { .. }) {
                    neap_crash::point("log-acknowledged-before-noted");
                }
                Input::Down(down)
            }
            Happening::Ended { attempt, exit, end } => {
                let log_bytes = self.known.get_mut(&attempt).map_or(0, |known| {
                    known.end = Some(end);
                    known.spool.get().map_or(0, |spool| spool.len_at_end(end))
                });
                Input::Ended { attempt, exit, log_bytes }
            }
            Happening::Say(word) => {
                if self.frames.is_some() {
                    encode_message(&word, &mut self.outgoing);
                }
                return Ok(());
            }
            Happening::Gone { attempt } => {
                // A new attempt of the same name has a channel of its own, and is not gone.
                if self.known.get(&attempt).is_some_and(|known| known.orders.is_closed()) {
                    self.known.remove(&attempt);
                }
                return Ok(());
            }
        };
        let mut outputs = Vec::new();
        self.session.step(boot_ms(), input, &mut outputs);
        for output in outputs {
            self.perform(output);
        }
        Ok(())
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send(up) => encode_message(&up, &mut self.outgoing),
            Output::ShipLog { attempt, offset, bytes, last } => self.ship(attempt, offset, bytes, last),
            Output::Launch { attempt, spec } => self.launch(attempt, spec),
            Output::Stop { attempt, grace_ms, why } => self.order(attempt, Order::Stop { grace_ms, why }),
            Output::Discard { attempt } => self.order(attempt, Order::Discard),
            Output::Lease { until_boot_ms } => self.lease.renew_until(until_boot_ms),
            Output::OpenStream { attempt, stream, service } => self.open_stream(attempt, stream, service),
            Output::Reconnect => self.hang_up.notify_waiters(),
            Output::Exit(reason) => self.over = Some(reason),
        }
    }

    fn order(&self, attempt: AttemptRef, order: Order) {
        if let Some(known) = self.known.get(&attempt) {
            let _ = known.orders.send(order);
        }
    }

    fn launch(&mut self, attempt: AttemptRef, spec: Box<AttemptSpec>) {
        neap_crash::point("order-heard-before-launch");
        let (orders, hear) = unbounded_channel();
        let spool = Rc::new(OnceCell::new());
        let source = distributed::log_source(&spec);
        let desk = Rc::new(OnceCell::new());
        let known = Known { orders, spool: spool.clone(), end: None, source, desk: desk.clone() };
        self.known.insert(attempt, known);
        let (node, say) = (self.node.clone(), self.say.clone());
        tokio::task::spawn_local(attempt::run(node, attempt, spec, (spool, desk), hear, say));
    }

    fn open_stream(&self, attempt: AttemptRef, stream: Secret, service: String) {
        let desk = self.known.get(&attempt).and_then(|known| known.desk.get()).cloned();
        let (config, credentials) = (self.node.config.clone(), self.credentials.clone());
        let say = self.say.clone();
        tokio::task::spawn_local(async move {
            if let Some(word) = services::carry(desk, config, credentials, stream, service).await {
                let _ = say.send(Happening::Say(word));
            }
        });
    }

    fn ship(&mut self, attempt: AttemptRef, offset: u64, bytes: usize, last: bool) {
        let Some(known) = self.known.get(&attempt) else { return };
        let mut read = match known.spool.get() {
            Some(spool) if bytes > 0 => spool.read(offset, bytes, known.end).unwrap_or_else(|e| {
                boot_log::line(&format!("attempt {attempt}: reading its log: {e}"));
                Vec::new()
            }),
            Some(_) | None => Vec::new(),
        };
        // What the disk has lost is replaced, so that offsets stay what was announced.
        read.resize(bytes, b'?');
        encode_log(
            &LogChunk { attempt, offset, last, source: known.source, bytes: read },
            &mut self.outgoing,
        );
    }

    fn renew_certificate(&mut self) -> Result<(), Error> {
        if boot_ms() >= self.renew_at_ms && self.frames.is_some() {
            self.renew_at_ms = u64::MAX;
            let csr_pem = self.credentials.request()?;
            encode_message(&Up::Renew { csr_pem }, &mut self.outgoing);
        }
        Ok(())
    }

    fn flush(&mut self) {
        if self.outgoing.is_empty() {
            return;
        }
        let frames = std::mem::take(&mut self.outgoing);
        if let Some(connection) = &self.frames {
            let _ = connection.send(frames);
        }
    }
}

fn facts(config: &NodeConfig, spawner: &Spawner) -> NodeFacts {
    let machine = neap_sandbox::machine();
    let least = |nominal: u64, real: u64| if nominal == 0 { real } else { nominal.min(real) };
    let capabilities = spawner.capabilities();
    NodeFacts {
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        cpus_milli: least(config.cpus_milli.into(), machine.cpus_milli.into()) as u32,
        memory_mb: least(config.memory_mb, machine.memory_mb),
        gpus: u32::try_from(config.gpu_devices.len()).unwrap_or(u32::MAX).min(config.gpus),
        isolation: capabilities.have.iter().map(|word| (*word).to_owned()).collect(),
        isolation_missing: capabilities.missing.clone(),
    }
}
