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
    /// Only in documents of releases before `environment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Only in documents of releases before `environment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<String>,
    #[serde(default, skip_serializing_if = "EnvironmentDocument::is_nothing")]
    pub environment: EnvironmentDocument,
    #[serde(default, skip_serializing_if = "ContainerDocument::is_default")]
    pub container: ContainerDocument,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment_variables: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, InputDocument>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// What runs beside the command, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, ServiceDocument>,
    /// Of a sweep's trial: the values that it tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyperparameters: Option<Value>,
    /// How much disk it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    /// What its names stood for when it was submitted.
    #[serde(default, skip_serializing_if = "Sources::is_empty")]
    pub sources: Sources,
    /// `properties` of the request as it came, less what lives in [`JobMeta`]: echoed by GET and compared by PUT.
    pub asked: Value,
    /// Lines the log begins with: every difference from what was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preamble: Vec<String>,
}

/// Where what a job is made of came from, with labels such as `@latest` replaced by the versions that they stood for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// `azureml:NAME:VERSION`, as all that is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The hash that the client took of its code folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The component that it is an instance of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Of each input that is no plain value, the asset or the address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    /// The release of Neap that took it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
}

impl Sources {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a job's command runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EnvironmentDocument {
    /// Nothing is asked for, or nothing is known of what is.
    #[default]
    Nothing,
    /// An image, and perhaps packages on top of it.
    Image {
        image: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packages: Option<String>,
    },
    /// A conda file or pip requirements, as text.
    Packages { packages: String },
    /// A folder with a Dockerfile.
    Build { at: BlobPath, dockerfile: String },
}

impl EnvironmentDocument {
    pub fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }
}

/// How a job wants its container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerDocument {
    /// `isolation: container`: it runs in one or not at all.
    #[serde(default)]
    pub required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm_bytes: Option<u64>,
    /// `docker_args`, one word each; only those that are known to be safe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
}

impl ContainerDocument {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Something that runs beside a job's command and can be reached through the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDocument {
    pub what: ServiceKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default)]
    pub nodes: ServiceNodes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ServiceKind {
    Ssh {
        public_keys: Vec<String>,
    },
    TensorBoard {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_dir: Option<String>,
    },
    JupyterLab,
    VsCode,
    /// The command itself listens on the port.
    Custom,
    /// Ray's own; a job does not ask for it as a service.
    RayDashboard,
}

/// On which of a job's nodes a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceNodes {
    #[default]
    Head,
    All,
    One(u32),
}

impl ServiceNodes {
    pub fn includes(self, rank: u32) -> bool {
        match self {
            Self::Head => rank == 0,
            Self::All => true,
            Self::One(index) => rank == index,
        }
    }
}

/// The name under which Ray's dashboard is a service of its job.
pub const RAY_DASHBOARD: &str = "RayDashboard";

impl JobDocument {
    /// What can be reached on the node of this rank: what was asked for, and what comes with the distribution.
    pub fn services_on(&self, rank: u32) -> BTreeMap<String, ServiceDocument> {
        let mut all: BTreeMap<_, _> = self
            .services
            .iter()
            .filter(|(_, service)| service.nodes.includes(rank))
            .map(|(name, service)| (name.clone(), service.clone()))
            .collect();
        if let Some(Distribution::Ray { include_dashboard: true, dashboard_port, .. }) = &self.distribution
            && rank == 0
        {
            let dashboard = ServiceDocument {
                what: ServiceKind::RayDashboard,
                port: *dashboard_port,
                nodes: ServiceNodes::Head,
            };
            all.insert(RAY_DASHBOARD.into(), dashboard);
        }
        all
    }
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

/// A blob or a folder of blobs, as the server's blob face reaches it: in a container of the workspace's own, or
/// elsewhere, in a container whose name begins with `~` (see `neap_storage::foreign`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPath {
    pub account: String,
    pub container: String,
    /// A folder ends with `/` (or is empty), a blob does not.
    pub path: String,
}

/// Where an input's content lies and how the job is given it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InputDocument {
    /// The value itself. A URI that the job opens by itself (mode `direct`) is one too.
    Literal { value: String },
    File {
        at: BlobPath,
        #[serde(default)]
        how: Delivery,
        /// The query of a web address: it may hold a signature, so it is no part of the path.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query: Option<String>,
    },
    Folder {
        at: BlobPath,
        #[serde(default)]
        how: Delivery,
    },
    /// A file or a folder (models may be either): which, is seen when it is fetched.
    Any {
        at: BlobPath,
        #[serde(default)]
        how: Delivery,
    },
}

impl InputDocument {
    /// Where it lies, unless the job is given the value itself.
    pub fn at(&self) -> Option<&BlobPath> {
        match self {
            Self::Literal { .. } => None,
            Self::File { at, .. } | Self::Folder { at, .. } | Self::Any { at, .. } => Some(at),
        }
    }
}

/// How a job is given files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// A copy of the job's own (`download`, `upload`).
    #[default]
    Copy,
    /// A copy that the job cannot change (`ro_mount`).
    ReadOnly,
    /// A copy whose changes are stored when the job has ended (`rw_mount`).
    ReadWrite,
    /// The files that an `MLTable` file names, and nothing else (`eval_mount`, `eval_download`).
    Evaluated,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OutputDocument {
    File {
        at: BlobPath,
        #[serde(default)]
        more: OutputDetails,
    },
    Folder {
        at: BlobPath,
        #[serde(default)]
        more: OutputDetails,
    },
}

/// What else is known of an output. The defaults are those of a plain output in its default place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputDetails {
    /// `mltable`, `mlflow_model`…; absent for `uri_file` and `uri_folder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asset_type: Option<String>,
    #[serde(default)]
    pub how: Delivery,
    /// The place is the job's own: nothing can lie there before its first attempt.
    #[serde(default)]
    pub own_place: bool,
    /// The job is given this URI and stores there by itself (mode `direct`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<String>,
    /// What it becomes when the job completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<Registration>,
}

/// An asset version to be: all of it is known when the job is submitted, but for a version left to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// `data` or `model`, as in [`crate::Command::PutAsset`].
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// As answered.
    pub properties: Value,
}

impl OutputDocument {
    pub fn at(&self) -> &BlobPath {
        match self {
            Self::File { at, .. } | Self::Folder { at, .. } => at,
        }
    }

    pub fn more(&self) -> &OutputDetails {
        match self {
            Self::File { more, .. } | Self::Folder { more, .. } => more,
        }
    }

    /// Azure's word for what it is.
    pub fn asset_type(&self) -> &str {
        match self {
            Self::File { more, .. } => more.asset_type.as_deref().unwrap_or("uri_file"),
            Self::Folder { more, .. } => more.asset_type.as_deref().unwrap_or("uri_folder"),
        }
    }
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

/// When a window on a cluster's scale is open, as it was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowDocument {
    pub asked: Value,
}

/// A schedule's definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScheduleDocument {
    /// `properties` as answered, less what the state has.
    pub asked: Value,
    /// The body of its jobs, before times and names are filled in.
    pub job: Value,
    /// When its trigger was put in place: where one without a start begins.
    pub placed_ms: u64,
}
