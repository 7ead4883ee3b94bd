//! The shapes of documents: what users wrote and what nothing decides on. They lie beside the log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A job's definition, fixed at submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobDocument {
    pub command: String,
    pub experiment: String,
    /// Where the code snapshot lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<BlobPath>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The environment's conda or pip specification, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment_variables: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, InputDocument>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// `properties` of the request as it came, less what lives in [`JobMeta`]: echoed by GET and compared by PUT.
    pub asked: Value,
    /// Lines the log begins with: every difference from what was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preamble: Vec<String>,
}

/// How the processes of a job on several nodes, or of several processes on one, find each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Distribution {
    Pytorch {
        processes_per_node: u32,
    },
    Tensorflow {
        workers: u32,
        parameter_servers: u32,
    },
    Mpi {
        processes_per_node: u32,
    },
    Ray {
        port: Option<u16>,
        include_dashboard: bool,
        dashboard_port: Option<u16>,
        head_arguments: Option<String>,
        worker_arguments: Option<String>,
    },
}

impl Distribution {
    /// How many processes there are on so many nodes, all together.
    pub fn processes(&self, nodes: u32) -> u32 {
        match self {
            Self::Pytorch { processes_per_node } | Self::Mpi { processes_per_node } => {
                nodes.saturating_mul(*processes_per_node)
            }
            Self::Tensorflow { workers, parameter_servers } => workers.saturating_add(*parameter_servers),
            Self::Ray { .. } => nodes,
        }
    }
}

/// A blob or a folder of blobs in one of the workspace's own containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPath {
    pub account: String,
    pub container: String,
    /// A folder ends with `/` (or is empty), a blob does not.
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InputDocument {
    Literal { value: String },
    File { at: BlobPath },
    Folder { at: BlobPath },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OutputDocument {
    File { at: BlobPath },
    Folder { at: BlobPath },
}

/// What may be edited while and after a job runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobMeta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

/// A cluster's definition beyond what decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterDocument {
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// As answered: canonical type, ids, principals.
    #[serde(default)]
    pub identity: Option<Value>,
    #[serde(default)]
    pub subnet: Option<String>,
    #[serde(default)]
    pub public_ip: Option<bool>,
    #[serde(default)]
    pub remote_login: Option<String>,
    #[serde(default)]
    pub local_auth_disabled: Option<bool>,
    #[serde(default)]
    pub admin_user: Option<String>,
    #[serde(default)]
    pub admin_key: Option<String>,
    /// Only a password hash is ever kept.
    #[serde(default)]
    pub admin_password_hash: Option<String>,
}

/// A workspace's or resource group's definition beyond what decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceDocument {
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The rest of `properties` as it came.
    #[serde(default)]
    pub properties: Value,
    #[serde(default)]
    pub identity: Option<Value>,
}

/// A code, environment, data or datastore version: `properties` as answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssetDocument {
    pub properties: Value,
    #[serde(default)]
    pub created_by: String,
    #[serde(default)]
    pub created_ms: u64,
    /// Sealed by the vault; never answered but by `listSecrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_secret: Option<String>,
}
