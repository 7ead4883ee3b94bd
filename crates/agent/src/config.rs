//! `node.json`: what a provider tells an agent before it starts.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::environment::EngineSettings;

/// Name of the file in the node's folder; written 0600 by the provider.
pub const NODE_FILE: &str = "node.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    pub node: u64,
    /// Names the installation, so that nobody touches another one's nodes.
    pub installation: String,
    /// `host:port` to dial.
    pub server: String,
    /// The name or address that the server's certificate must carry.
    pub server_name: String,
    pub ca_pem_path: PathBuf,
    /// One-time; of no use once the node has its certificate.
    pub join_token: String,
    /// What the node may use at most; zero means the machine's.
    pub cpus_milli: u32,
    pub memory_mb: u64,
    pub gpus: u32,
    /// The GPUs that are this node's and no other's; no more than `gpus`.
    #[serde(default)]
    pub gpu_devices: Vec<neap_sandbox::Gpu>,
    /// The server's own URL, as the variables of jobs name it; empty: made from `server`.
    #[serde(default)]
    pub url: String,
    /// No attempt on this node is isolated: the operator has switched that off.
    #[serde(default)]
    pub isolation_off: bool,
    /// Folders of the machine that isolated attempts see, read-only, beside the system's own.
    #[serde(default)]
    pub visible_paths: Vec<PathBuf>,
    /// Folders of the machine that isolated attempts may write to.
    #[serde(default)]
    pub shared_paths: Vec<PathBuf>,
    /// Folders that attempts must not see.
    #[serde(default)]
    pub hide_paths: Vec<PathBuf>,
    /// Attempts have their folders below `attempts/` here.
    pub work_dir: PathBuf,
    /// What all nodes of the host share; absent: this node has its own, below `work_dir`.
    #[serde(default)]
    pub cache_dir: Option<PathBuf>,
    #[serde(default)]
    pub engine: EngineSettings,
}

impl NodeConfig {
    /// Where environments are kept.
    pub(crate) fn environments_dir(&self) -> PathBuf {
        self.shared_dir().join("environments")
    }

    /// What all nodes of the host share.
    pub(crate) fn shared_dir(&self) -> PathBuf {
        self.cache_dir.clone().unwrap_or_else(|| self.work_dir.join("cache"))
    }

    pub(crate) fn url(&self) -> String {
        if self.url.is_empty() { format!("https://{}", self.server) } else { self.url.clone() }
    }

    pub fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(NODE_FILE);
        let text = std::fs::read(&path).map_err(|source| Error::File {
            doing: "reading",
            path: path.clone(),
            source,
        })?;
        serde_json::from_slice(&text).map_err(|source| Error::Config { path, source })
    }
}
