//! Nodes on this machine: each is a `neap agent` process in its own session, folder and cgroup, so that it lives on
//! when the server dies.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use neap_agent::{EngineSettings, NODE_FILE, NodeConfig};
use neap_core::{Capacity, NodeId};
use neap_sandbox::{Detached, ProcessWatch};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;

use crate::gpus;
use crate::{Answer, Error, Eviction, Found, News, NodeOrder, Provider};

/// The file in a node's folder that says which process its agent is (written by the sandbox).
const AGENT_FILE: &str = "agent.process.json";
/// The file in the folder of a node that may be taken back.
const LOW_PRIORITY_FILE: &str = "low-priority";

#[derive(Clone, Debug)]
pub struct LocalSettings {
    /// This very program.
    pub program: PathBuf,
    /// `<data>/nodes`
    pub nodes: PathBuf,
    /// `<data>/node-logs`
    pub logs: PathBuf,
    /// Never shown to attempts.
    pub hide: Vec<PathBuf>,
    pub installation: String,
    /// `host:port` that agents dial, and the name in its certificate.
    pub server: String,
    pub server_name: String,
    pub ca_pem: PathBuf,
    /// The server's own URL, as jobs are told it.
    pub url: String,
    /// Jobs are not isolated: the operator has switched that off.
    pub isolation_off: bool,
    /// Folders that isolated jobs see, read-only, beside the system's own.
    pub visible: Vec<PathBuf>,
    /// Folders that isolated jobs may write to.
    pub shared: Vec<PathBuf>,
    /// What this machine has.
    pub machine: Capacity,
    /// Its GPUs, or those that it is to pretend to have; as many as `machine` says.
    pub gpus: Vec<neap_sandbox::Gpu>,
    /// What nodes share: `<data>/cache`
    pub cache: PathBuf,
    pub engine: EngineSettings,
    /// How low-priority nodes are taken back; by default nobody does.
    pub eviction: Option<Eviction>,
}

#[derive(Clone, Debug)]
pub struct LocalProvider {
    settings: Arc<LocalSettings>,
    news: UnboundedSender<News>,
    /// Nodes whose end somebody already waits for.
    watched: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl LocalProvider {
    pub fn new(settings: LocalSettings, news: UnboundedSender<News>) -> io::Result<Self> {
        for folder in [&settings.nodes, &settings.logs] {
            make_folder(folder)?;
        }
        Ok(Self { settings: Arc::new(settings), news, watched: Arc::default() })
    }

    /// Waits for the agent's end, then makes sure that nothing of the node is left, and says so.
    fn watch(&self, node: NodeId, process: Detached) -> Result<(), Error> {
        let watched = || self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if !watched().insert(node) {
            return Ok(());
        }
        let watch = ProcessWatch::open(process).map_err(|source| Error::Sandbox { node, source })?;
        let (settings, news, all) = (self.settings.clone(), self.news.clone(), self.watched.clone());
        if let Some(eviction) = settings.eviction
            && folder(&settings, node).join(LOW_PRIORITY_FILE).exists()
        {
            tokio::spawn(eviction.take_back(node, self.watched.clone(), news.clone()));
        }
        tokio::spawn(async move {
            if let Some(watch) = watch {
                #[allow(
                    deprecated,
                    reason = "the watch owns its descriptor for as long as it lives, which is all `register` asks"
                )]
                let registered = AsyncFd::new(watch);
                match registered {
                    Ok(fd) => {
                        let _ = fd.readable().await;
                        fd.get_ref().reap();
                    }
                    Err(error) => tracing::error!(%node, %error, "cannot watch the node's agent"),
                }
            }
            // Removal by order forgets the watch first: then the end is no news.
            let unasked = all.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
            if !unasked {
                return;
            }
            let fenced = tokio::task::spawn_blocking(move || {
                fence(&settings, node)?;
                gpus::release(&folder(&settings, node));
                Ok::<(), Error>(())
            })
            .await;
            match fenced {
                Ok(Ok(())) => {
                    neap_crash::point("dead-agent-fenced-before-report");
                    let _ = news.send(News::Ended { node, reason: "its agent ended".into() });
                }
                Ok(Err(error)) => {
                    tracing::error!(%node, %error, "a dead node's processes could not be ended");
                }
                Err(error) => tracing::error!(%node, %error, "fencing a dead node was interrupted"),
            }
        });
        Ok(())
    }
}

impl Provider for LocalProvider {
    fn create(&self, order: NodeOrder) -> Answer<'_, ()> {
        let settings = self.settings.clone();
        Box::pin(async move {
            let node = order.node;
            let process = blocking(move || launch(&settings, &order)).await?;
            neap_crash::point("node-made-before-report");
            self.watch(node, process)
        })
    }

    fn remove(&self, node: NodeId, reason: Arc<str>) -> Answer<'_, ()> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
        let settings = self.settings.clone();
        Box::pin(blocking(move || {
            fence(&settings, node)?;
            neap_crash::point("node-fenced-before-removal");
            note(&settings, node, &format!("removed: {reason}"));
            remove_folder(&folder(&settings, node), node)?;
            neap_crash::point("node-removed-before-report");
            Ok(())
        }))
    }

    fn list(&self) -> Answer<'_, Vec<Found>> {
        let settings = self.settings.clone();
        Box::pin(async move {
            let nodes = blocking(move || {
                let nodes = read_nodes(&settings.nodes)?;
                sweep_containers(&settings, &nodes);
                Ok(nodes)
            })
            .await?;
            let mut found = Vec::with_capacity(nodes.len());
            for (node, process) in nodes {
                let alive = process.is_some_and(neap_sandbox::is_alive);
                if let Some(process) = process.filter(|_| alive) {
                    self.watch(node, process)?;
                }
                found.push(Found { node, alive });
            }
            Ok(found)
        })
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Interrupted))
}

pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

pub(crate) fn folder(settings: &LocalSettings, node: NodeId) -> PathBuf {
    settings.nodes.join(node.to_string())
}

fn log_file(settings: &LocalSettings, node: NodeId) -> PathBuf {
    settings.logs.join(format!("{node}.log"))
}

/// Starts the agent, unless it already runs.
fn launch(settings: &LocalSettings, order: &NodeOrder) -> Result<Detached, Error> {
    let node = order.node;
    let folder = folder(settings, node);
    if let Some(running) = recorded_agent(&folder).filter(|process| neap_sandbox::is_alive(*process)) {
        return Ok(running);
    }
    // It was tried before. A server that died between starting an agent and writing down which process it is has left
    // one that nobody knows, and a node must not have two.
    if folder.exists() {
        fence(settings, node)?;
    }
    let given = write_config(settings, order)?;
    note(settings, node, &format!("starting: size gives {}, this machine gives {given}", order.nominal));
    neap_crash::point("node-folder-made-before-spawn");
    let dir = folder.to_string_lossy();
    neap_sandbox::spawn_detached(
        &settings.program,
        &["agent", "--dir", &dir],
        &settings.installation,
        node.0,
        &folder,
        &log_file(settings, node),
    )
    .map_err(|source| Error::Sandbox { node, source })
}

/// The node's folder with all that its agent must know; what the machine gives to the node.
pub(crate) fn write_config(settings: &LocalSettings, order: &NodeOrder) -> Result<Capacity, Error> {
    let node = order.node;
    let files = |doing| move |source| Error::Files { doing, node, source };
    let folder = folder(settings, node);
    make_folder(&folder).map_err(files("making the folder"))?;
    if order.low_priority {
        write_private(&folder.join(LOW_PRIORITY_FILE), b"").map_err(files("marking it as low priority"))?;
    }
    let given = order.nominal.min(settings.machine);
    let _assigning = gpus::assigning();
    let gpu_devices = gpus::for_node(&settings.nodes, node, &settings.gpus, given.gpus)?;
    gpus::hold(&folder);
    let config = NodeConfig {
        node: node.0,
        installation: settings.installation.clone(),
        server: settings.server.clone(),
        server_name: settings.server_name.clone(),
        ca_pem_path: settings.ca_pem.clone(),
        join_token: order.join_token.clone(),
        cpus_milli: given.cpus_milli,
        memory_mb: given.memory_mb,
        gpus: given.gpus,
        gpu_devices,
        url: settings.url.clone(),
        isolation_off: settings.isolation_off,
        visible_paths: settings.visible.clone(),
        shared_paths: settings.shared.clone(),
        hide_paths: settings.hide.clone(),
        work_dir: folder.clone(),
        cache_dir: Some(settings.cache.clone()),
        engine: settings.engine.clone(),
    };
    let text = serde_json::to_vec_pretty(&config).map_err(|e| files("writing node.json")(e.into()))?;
    write_private(&folder.join(NODE_FILE), &text).map_err(files("writing node.json"))?;
    Ok(given)
}

fn fence(settings: &LocalSettings, node: NodeId) -> Result<(), Error> {
    let folder = folder(settings, node);
    neap_sandbox::fence_node(&settings.installation, node.0, &folder)
        .map_err(|source| Error::Sandbox { node, source })?;
    // Processes in containers carry the node's mark and are gone by now. What the engine keeps of them uses no more than
    // disk: that it cannot be removed is told, and holds nothing up.
    match neap_agent::remove_containers_of(&settings.engine, &settings.installation, node.0, &folder) {
        Ok(0) => {}
        Ok(removed) => tracing::info!(%node, removed, "containers of the node were removed"),
        Err(error) => tracing::warn!(%node, error, "containers of the node were not removed"),
    }
    Ok(())
}

/// Containers of nodes that have no folder any more are nobody's.
fn sweep_containers(settings: &LocalSettings, nodes: &[(NodeId, Option<Detached>)]) {
    let known: Vec<u64> = nodes.iter().map(|(node, _)| node.0).collect();
    let environments = settings.cache.join("environments");
    let swept = neap_agent::remove_orphaned_containers(
        &settings.engine,
        &settings.installation,
        &environments,
        &known,
    );
    match swept {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "containers of nodes that are gone were removed"),
        Err(error) => tracing::warn!(error, "containers of nodes that are gone were not removed"),
    }
}

/// A line of the server's in the node's boot log, which is kept when the node is gone.
fn note(settings: &LocalSettings, node: NodeId, line: &str) {
    let file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(log_file(settings, node));
    if let Ok(mut file) = file {
        let _ = writeln!(file, "server: {line}");
    }
}

/// Whole or not at all.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("fresh");
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    fs::rename(fresh, path)
}

pub(crate) fn remove_folder(folder: &Path, node: NodeId) -> Result<(), Error> {
    neap_sandbox::remove_path(folder).map_err(|source| Error::Files {
        doing: "removing the folder",
        node,
        source,
    })
}

fn recorded_agent(folder: &Path) -> Option<Detached> {
    serde_json::from_slice(&fs::read(folder.join(AGENT_FILE)).ok()?).ok()
}

pub(crate) fn read_nodes(nodes: &Path) -> Result<Vec<(NodeId, Option<Detached>)>, Error> {
    let failed = |source| Error::List { folder: nodes.display().to_string(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(nodes).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.push((NodeId(id), recorded_agent(&entry.path())));
        }
    }
    found.sort_by_key(|(node, _)| *node);
    Ok(found)
}
