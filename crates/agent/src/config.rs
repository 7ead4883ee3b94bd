//! What a node is told before it starts: `node.json` in its folder, written by the provider, mode 0600.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeConfig {
    pub node: u64,
    /// Whose node this is: the orphan sweep and the cgroups go by it.
    pub installation: String,
    /// `host:port` to dial.
    pub server: String,
    /// The name in the server's certificate.
    pub server_name: String,
    pub ca_pem_path: PathBuf,
    /// Good for one join.
    pub join_token: String,
    pub cpus_milli: u32,
    pub memory_mb: u64,
    pub gpus: u32,
    /// Never shown to attempts.
    #[serde(default)]
    pub hide_paths: Vec<PathBuf>,
    pub work_dir: PathBuf,
}
