//! A server's life: open the folder, wire the rooms, serve, and end as asked.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use neap_control::{
    Control, ControlParts, Gate, Handle, LedgerVault, OrderSettings, Shutdown, TrackingOrders, clock,
};
use neap_core::command::PutWorkspace;
use neap_core::documents::PlaceDocument;
use neap_core::health::Thresholds;
use neap_core::{Capacity, Command};
use neap_faces::{App, Audiences, Observability, ServerFacts};
use neap_identity::{Authority, IdentitySecret, Issuer, JoinTokens, RunTokens, UsedNonces, Vault};
use neap_ledger::Document;
use neap_parallel::Batches;
use neap_protocol::{DiskTerms, Isolation};
use neap_providers::{LocalProvider, LocalSettings, News, Provider, SimulatedProvider};
use neap_sandbox::Gpu;
use neap_storage::joblog::JobLogs;
use neap_storage::sas::SasKey;
use neap_storage::{Store, StoreLimits};
use neap_tracking::Tracking;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::config::{Config, ConfigError, DiskRules, DiskSpace, EvictionRule};
use crate::data::{ClientFile, DataFolder, Installation, ServerFile};
use crate::housekeeping;
use crate::listen::{Front, bind};
use crate::otlp::{Collector, Exporter};
use crate::outgoing::{self, OutgoingError};
use crate::rate::Gatekeeper;
use crate::tls::{Tls, TlsError};
use crate::visitors::Visitors;
use crate::watch as watching;
use crate::webhook::Webhook;

pub const DEFAULT_GROUP: &str = "neap";
pub const DEFAULT_WORKSPACE: &str = "default";
/// What an interrupt gives running attempts.
const INTERRUPT_GRACE_MS: u64 = 10_000;
/// How often, and how long apart, a folder that is in use is tried again.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub data: PathBuf,
    pub listen: SocketAddr,
    /// The program that nodes run: this one.
    pub program: PathBuf,
    pub version: String,
    /// Pretend to have so many GPUs; before what the configuration says.
    pub emulate_gpus: Option<u32>,
    /// A bundle of public roots that the environment names already.
    pub public_roots: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("the data folder {folder}: {source}")]
    Folder { folder: String, source: std::io::Error },
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Control(#[from] neap_control::StartError),
    #[error("the ledger: {0}")]
    Ledger(#[from] neap_ledger::Error),
    #[error("keys and certificates: {0}")]
    Identity(#[from] neap_identity::Error),
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("what is sent to webhooks and collectors: {0}")]
    Outgoing(#[from] OutgoingError),
    #[error("storage: {0}")]
    Storage(#[from] neap_storage::Error),
    #[error("metrics of runs: {0}")]
    Tracking(#[from] neap_tracking::Error),
    #[error(transparent)]
    Parallel(#[from] neap_parallel::Error),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("the default workspace cannot be made: {0}")]
    DefaultWorkspace(String),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{nodes} nodes could not be stopped; see the server's log")]
    NodesLeft { nodes: usize },
}

/// Runs a server until it is asked to end.
pub fn run(options: &ServerOptions) -> Result<(), ServerError> {
    neap_sandbox::forbid_core_dumps();
    // Looked at before any thread exists: probing forks.
    let capabilities = neap_sandbox::probe();
    let machine = neap_sandbox::machine();
    let folder = DataFolder::open(&options.data)
        .map_err(|source| ServerError::Folder { folder: options.data.display().to_string(), source })?;
    let config = Config::load(&folder.config())?;
    let (isolation, isolation_missing) = config.isolation_of(&capabilities);
    let facts = ServerFacts {
        version: options.version.clone(),
        pid: std::process::id(),
        started: clock::wall(),
        isolation,
        isolation_missing,
        node_logs: folder.node_logs(),
    };
    let disk = config.disk_rules(DiskSpace::of(folder.root()).unwrap_or_default());
    let gpus = gpus(options, &config);
    let machine = Capacity {
        cpus_milli: machine.cpus_milli,
        memory_mb: machine.memory_mb,
        gpus: u32::try_from(gpus.len()).unwrap_or(u32::MAX),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(Server { options, folder, config, disk, machine, gpus }.serve(facts))
}

/// What nodes have of GPUs: the machine's, or so many that are pretended.
fn gpus(options: &ServerOptions, config: &Config) -> Vec<Gpu> {
    let pretended = options.emulate_gpus.unwrap_or(config.local.emulate_gpus);
    if pretended > 0 {
        tracing::warn!("{pretended} GPUs are emulated: jobs are given numbers of GPUs that are not there");
        return neap_sandbox::emulated(pretended);
    }
    let found = neap_sandbox::gpus();
    for gpu in &found.list {
        tracing::info!(uuid = %gpu.uuid, name = %gpu.name, memory_mb = gpu.memory_mb, "GPU");
    }
    found.list
}

struct Server<'a> {
    options: &'a ServerOptions,
    folder: DataFolder,
    config: Config,
    disk: DiskRules,
    machine: Capacity,
    gpus: Vec<Gpu>,
}

/// Keys and secrets of this installation.
struct Keys {
    authority: Arc<Authority>,
    issuer: Arc<Issuer>,
    vault: Arc<Vault>,
    secret: Arc<IdentitySecret>,
    runs: Arc<RunTokens>,
    join: JoinTokens,
    sas: SasKey,
}

impl Server<'_> {
    async fn serve(self, facts: ServerFacts) -> Result<(), ServerError> {
        // First of all: a second server must not touch what the first one uses.
        let mut opened = open_ledger(&self.folder, self.disk.log_reserve_bytes).await?;
        let installation = self.folder.installation()?;
        let listen = self.options.listen;
        let listener = bind(listen, self.folder.last_port())
            .await
            .map_err(|source| ServerError::Listen { address: listen, source })?;
        let address = listener.local_addr()?;
        self.folder.remember_port(address.port())?;
        let host = reachable_host(address);
        let url = format!("https://{host}:{}", address.port());

        let keys = self.keys(&host)?;
        opened.ledger.seal_with(Arc::new(LedgerVault(keys.vault.clone())))?;
        let store = Arc::new(Store::open_limited(&self.folder.blobs(), self.store_limits())?);
        let tracking = Arc::new(Tracking::open(&self.folder.tracking())?);
        let batches = Arc::new(Batches::open(&self.folder.parallel())?);
        let (news_sender, news) = mpsc::unbounded_channel();
        let provider = self.provider(self.local(&installation, &host, address.port()), news_sender)?;
        let parts = ControlParts {
            settings: self.config.settings(self.machine),
            release: self.options.version.as_str().into(),
            provider,
            news,
            gate: Gate {
                authority: keys.authority.clone(),
                tokens: keys.join,
                used: Mutex::new(UsedNonces::new()),
            },
            logs: JobLogs::open(store.clone(), &self.folder.joblogs())?,
            orders: OrderSettings {
                base_url: url.clone(),
                isolation: self.config.isolation(),
                log_bytes_max: self.config.log_bytes_max,
                checkpoint_interval_ms: self.config.checkpoint_interval_seconds.saturating_mul(1000),
                disk: DiskTerms {
                    bytes_max: self.disk.job_bytes_max,
                    free_bytes_min: self.disk.free_bytes_min,
                },
                tracking: Some(TrackingOrders {
                    installation: installation.id.clone(),
                    tokens: keys.runs.clone(),
                }),
                vault: keys.vault.clone(),
            },
            sas: keys.sas.clone(),
            past_records_max: self.config.limits.past_records,
        };
        let control = neap_control::start(opened, parts).await?;
        default_workspace(&control.handle, &installation, &self.config.default_location()).await?;

        let bundle = keys.authority.write_bundle(self.options.public_roots.as_deref())?;
        let client = ClientFile {
            url: url.clone(),
            ca_bundle: bundle.clone(),
            identity_secret: keys.secret.reveal().to_owned(),
            subscription_id: installation.subscription_id.clone(),
            resource_group: DEFAULT_GROUP.into(),
            workspace: DEFAULT_WORKSPACE.into(),
        };
        self.folder.write_client_file(&client)?;

        let started = facts.started;
        let blobs = store.clone();
        let app = App {
            control: control.handle.clone(),
            store,
            sas: Arc::new(keys.sas),
            issuer: keys.issuer,
            vault: keys.vault,
            tracking: tracking.clone(),
            batches,
            run_tokens: keys.runs,
            secret: keys.secret,
            base_url: url.clone(),
            audiences: Arc::new(audiences(&keys.authority, address.port(), &self.config.audiences)),
            installation: Arc::new(neap_faces::Installation {
                id: installation.id.clone(),
                subscription_id: installation.subscription_id,
                tenant_id: installation.tenant_id,
            }),
            server: Arc::new(facts),
            observability: Arc::new(self.observability()?),
            data: Arc::new(neap_faces::DataAccess {
                rules: self.config.data_rules(),
                http: Some(outgoing::data_client(&bundle, self.config.outgoing.rules())?),
            }),
            environments: Arc::new(self.config.environment_rules(self.folder.root())?),
            memory: Arc::default(),
            drafts: Arc::default(),
        };
        let (close, closing) = watch::channel(false);
        let limits = self.config.limits;
        let metrics = control.handle.metrics();
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let front = Front {
            tls: Tls::new(&keys.authority)?,
            router: Gatekeeper::new(limits, app.clone(), metrics.requests_limited.clone())
                .guard(neap_faces::router(app.clone())),
            sessions: control.sessions.clone(),
            visitors: Visitors::new(limits, files, metrics.connections_limited.clone()),
            idle: Duration::from_secs(limits.idle_seconds),
            closing,
        };
        let serving = tokio::spawn(front.serve(listener));
        tokio::spawn(neap_faces::checkpoints::tidy(app.clone()));
        tokio::spawn(neap_faces::unfinished_uploads::tidy(app.clone()));
        tokio::spawn(neap_faces::conduct::run(app));
        tokio::spawn(housekeeping::renew_certificate(keys.authority));
        if let Some(every) = self.config.charges.sampling() {
            tokio::spawn(housekeeping::measure_storage(control.handle.clone(), blobs.clone(), every));
        }
        tokio::spawn(housekeeping::clear_deleted_workspaces(control.handle.clone(), blobs, tracking));
        let exporter = self.watch(&control.handle, &bundle, &url)?;
        let file = ServerFile {
            pid: std::process::id(),
            url: url.clone(),
            started_unix_ms: started.0,
            version: self.options.version.clone(),
        };
        self.folder.write_server_file(&file)?;
        if self.config.isolation() == Isolation::Off {
            tracing::warn!("{}", crate::config::NOT_ISOLATED);
        }
        tracing::info!(%url, data = %self.folder.root().display(), "serving");

        let shutdown = asked_to_end(&control.handle).await?;
        let nodes_stay = shutdown.leave_nodes;
        let left = end(control, shutdown).await;
        if !nodes_stay && left == 0 {
            remove_network(&installation.id).await;
        }
        close.send_replace(true);
        let _ = tokio::time::timeout(Duration::from_secs(2), serving).await;
        if let Some(exporter) = exporter {
            exporter.finish().await;
        }
        self.folder.remove_server_file();
        tracing::info!("ended");
        if left > 0 { Err(ServerError::NodesLeft { nodes: left }) } else { Ok(()) }
    }

    fn store_limits(&self) -> StoreLimits {
        StoreLimits {
            account_bytes_max: self.disk.workspace_bytes_max,
            free_bytes_min: self.disk.free_bytes_min,
        }
    }

    fn observability(&self) -> Result<Observability, ServerError> {
        Ok(Observability {
            metrics_open: self.config.metrics.open,
            metrics_token: Some(Arc::new(IdentitySecret::open(
                &self.folder.identity().join("metrics-token"),
            )?)),
            thresholds: Thresholds { queue_delay_ms: self.config.alerts.rules().queue_delay_ms },
        })
    }

    /// Starts what looks on: invariants and thresholds of budgets always, other alerts and traces where they are asked for.
    fn watch(&self, handle: &Handle, bundle: &Path, url: &str) -> Result<Option<Exporter>, ServerError> {
        tokio::spawn(watching::invariants(handle.clone()));
        let webhook = Webhook {
            url: self.config.alerts.webhook.clone(),
            command: self.config.alerts.command.clone(),
            rules: self.config.alerts.rules(),
            client: outgoing::client(bundle)?,
            handle: handle.clone(),
            file: self.folder.alerts(),
            server_url: url.to_owned(),
        };
        tokio::spawn(webhook.run());
        let Some(collector) = Collector::from_environment(|name| std::env::var(name).ok()) else {
            return Ok(None);
        };
        let resource =
            vec![("service.version", self.options.version.clone()), ("service.instance.id", url.to_owned())];
        Ok(Exporter::start(collector, outgoing::client(bundle)?, handle.clone(), resource))
    }

    fn keys(&self, host: &str) -> Result<Keys, ServerError> {
        let folder = self.folder.identity();
        let now_s = clock::unix_seconds();
        let authority = Authority::open(&folder, &[host.to_owned()], now_s)?;
        authority.renew_if_needed(now_s)?;
        Ok(Keys {
            authority: Arc::new(authority),
            issuer: Arc::new(Issuer::open(&folder.join("jwt.key"))?),
            vault: Arc::new(Vault::open(&folder.join("vault.key"))?),
            secret: Arc::new(IdentitySecret::open(&folder.join("secret"))?),
            runs: Arc::new(RunTokens::open(&folder.join("run-token.key"))?),
            join: JoinTokens::open(&folder.join("node-join.key"))?,
            sas: SasKey::new(&neap_identity::open_or_create_key(&folder.join("sas.key"))?),
        })
    }

    fn provider(
        &self,
        settings: LocalSettings,
        news: mpsc::UnboundedSender<News>,
    ) -> std::io::Result<Arc<dyn Provider>> {
        if self.config.local.simulated_agents {
            tracing::warn!("local.simulated_agents: nodes are written down and not started");
            return Ok(Arc::new(SimulatedProvider::new(settings)?));
        }
        Ok(Arc::new(LocalProvider::new(settings, news)?))
    }

    fn local(&self, installation: &Installation, host: &str, port: u16) -> LocalSettings {
        LocalSettings {
            program: self.options.program.clone(),
            nodes: self.folder.nodes(),
            logs: self.folder.node_logs(),
            hide: vec![self.folder.root().to_owned()],
            installation: installation.id.clone(),
            server: self.config.local.agent_dial.clone().unwrap_or_else(|| format!("{host}:{port}")),
            server_name: host.to_owned(),
            ca_pem: self.folder.identity().join("ca.pem"),
            url: format!("https://{host}:{port}"),
            isolation_off: self.config.isolation() == Isolation::Off,
            visible: self.config.local.visible_paths.clone(),
            shared: self.config.local.shared_paths.clone(),
            machine: self.machine,
            gpus: self.gpus.clone(),
            cache: self.folder.cache(),
            engine: self.config.engine(),
            eviction: self.config.local.eviction.map(EvictionRule::eviction),
        }
    }
}

/// Whom a token may be for: every name of the server's certificate at its port, and what the configuration adds.
fn audiences(authority: &Authority, port: u16, configured: &[String]) -> Audiences {
    let own = authority.hosts().iter().map(|host| {
        if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
    });
    Audiences::new(own.chain(configured.iter().cloned()))
}

/// A server that was just killed may hold its lock for a moment longer: that is waited for.
async fn open_ledger(
    folder: &DataFolder,
    reserve_bytes: u64,
) -> Result<neap_ledger::Opened, neap_control::StartError> {
    let mut patience = LOCK_TRIES;
    loop {
        match neap_control::open_ledger(&folder.ledger(), &folder.lock(), reserve_bytes) {
            Err(neap_control::StartError::Ledger(neap_ledger::Error::InUse { .. })) if patience > 0 => {
                patience -= 1;
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// The address by which this machine reaches itself.
fn reachable_host(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { "127.0.0.1".into() } else { address.ip().to_string() }
}

/// A fresh installation has a resource group and a workspace to work in.
async fn default_workspace(
    handle: &Handle,
    installation: &Installation,
    location: &str,
) -> Result<(), ServerError> {
    if !handle.state().groups.is_empty() {
        return Ok(());
    }
    let failed = |e: &dyn std::fmt::Display| ServerError::DefaultWorkspace(e.to_string());
    let subscription: Arc<str> = installation.subscription_id.as_str().into();
    let document = || Document::json(&PlaceDocument::default()).map_err(|e| failed(&e));
    let group = document()?;
    let put = Command::PutGroup {
        subscription: subscription.clone(),
        name: DEFAULT_GROUP.into(),
        location: location.into(),
        document: group.hash,
    };
    handle.submit("neap", put, vec![group]).await.map_err(|e| failed(&e))?;
    let workspace = document()?;
    let put = Command::PutWorkspace(PutWorkspace {
        subscription,
        group: DEFAULT_GROUP.into(),
        name: DEFAULT_WORKSPACE.into(),
        location: Some(location.into()),
        document: workspace.hash,
        problems: Vec::new(),
    });
    handle.submit("neap", put, vec![workspace]).await.map_err(|e| failed(&e))?;
    Ok(())
}

/// By `neap down`, or by a signal: an interrupt stops the nodes too, as `neap down` does.
async fn asked_to_end(handle: &Handle) -> std::io::Result<Shutdown> {
    let mut asked = handle.shutdown_asked();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let by_signal = Shutdown { leave_nodes: false, grace_ms: INTERRUPT_GRACE_MS };
    Ok(tokio::select! {
        shutdown = asked.wait_for(Option::is_some) => shutdown.ok().and_then(|s| *s).unwrap_or(by_signal),
        _ = interrupt.recv() => by_signal,
        _ = terminate.recv() => by_signal,
    })
}

/// Takes away what agents have set up on this machine for the network of jobs, if anything.
async fn remove_network(installation: &str) {
    let place = neap_sandbox::net::Place::new(installation);
    match tokio::task::spawn_blocking(move || neap_sandbox::net::remove(&place)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the network of jobs was not removed"),
        Err(error) => tracing::warn!(%error, "removing the network of jobs was interrupted"),
    }
}

/// Returns how many nodes could not be stopped.
async fn end(control: Control, shutdown: Shutdown) -> usize {
    let left = if shutdown.leave_nodes {
        tracing::info!("ending; nodes are left as they are");
        0
    } else {
        tracing::info!(grace_ms = shutdown.grace_ms, "ending; nodes are being stopped");
        control.drain(shutdown.grace_ms).await
    };
    control.finish();
    left
}
