//! Containers that nobody is left to remove: those of a node that is gone, and those of nodes that nobody knows.
//!
//! Their processes are ended by fencing the node, which needs no engine. What is removed here is what the engine keeps
//! of them. Asked by the provider, on a thread that may wait.

use std::path::Path;
use std::time::Duration;

use super::engine::{Engine, EngineSettings, LABEL_INSTALLATION, LABEL_NODE};
use super::limits::REMOVAL_S_MAX;

/// In a node's folder, and in the cache: containers were made here.
pub const CONTAINERS_FILE: &str = "containers";

/// Removes what is left of a node's containers. A node that never had any costs one look at its folder.
pub fn remove_containers_of(
    settings: &EngineSettings,
    installation: &str,
    node: u64,
    node_dir: &Path,
) -> Result<usize, String> {
    if !node_dir.join(CONTAINERS_FILE).exists() {
        return Ok(0);
    }
    let labels = [(LABEL_INSTALLATION, installation.to_owned()), (LABEL_NODE, node.to_string())];
    remove(settings, &labels.map(|(name, value)| (name.to_owned(), value)), |_| false)
}

/// Removes the containers of this installation's nodes that are not among `known`.
pub fn remove_orphaned_containers(
    settings: &EngineSettings,
    installation: &str,
    cache_dir: &Path,
    known: &[u64],
) -> Result<usize, String> {
    if !cache_dir.join(CONTAINERS_FILE).exists() {
        return Ok(0);
    }
    let known: Vec<String> = known.iter().map(u64::to_string).collect();
    let labels = [(LABEL_INSTALLATION.to_owned(), installation.to_owned())];
    remove(settings, &labels, |node| known.iter().any(|known| known == node))
}

fn remove(
    settings: &EngineSettings,
    labels: &[(String, String)],
    keep: impl Fn(&str) -> bool,
) -> Result<usize, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("starting a runtime: {e}"))?;
    runtime.block_on(async {
        let removing = async { Engine::find(settings).await?.remove(labels, keep).await };
        tokio::time::timeout(Duration::from_secs(REMOVAL_S_MAX), removing)
            .await
            .map_err(|_| format!("the container engine did not answer within {REMOVAL_S_MAX} s"))?
    })
}
