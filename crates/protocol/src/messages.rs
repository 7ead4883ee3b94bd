//! The messages themselves. Field names are the wire format: rename nothing, add with `#[serde(default)]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One execution of a job. `job` and `attempt` are the control plane's dense ids; `name` is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptRef {
    pub job: u64,
    pub attempt: u32,
}

impl std::fmt::Display for AttemptRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.job, self.attempt)
    }
}

/// Agent to control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Up {
    /// First message of a node that has no certificate yet. Answered by [`Down::Joined`].
    Join { protocol: u32, node: u64, token: String, csr_pem: String },
    /// First message of a node that has one (in the TLS handshake), and the next after [`Down::Joined`].
    /// States everything the node knows, so that a control plane that returns can carry on.
    Hello { protocol: u32, node: u64, facts: NodeFacts, attempts: Vec<KnownAttempt> },
    /// Renews the node's lease. `sent_boot_ms` is the agent's boot-time clock when it was sent, and comes
    /// back in [`Down::LeaseRenewed`]: the agent counts its lease from there.
    Heartbeat { sent_boot_ms: u64 },
    /// What became of an attempt. Numbered from 1 within the attempt, and resent until acknowledged.
    Report { attempt: AttemptRef, number: u64, body: Report },
    /// Asks for a fresh certificate before the old one ends. Answered by [`Down::Joined`].
    Renew { csr_pem: String },
    /// How the services of an attempt are: all of them, whenever one changes, and after each welcome.
    Services { attempt: AttemptRef, services: Vec<ServiceState> },
    /// How the node's GPUs are: all of them, whenever one changes hands, every few seconds while one is used, and after
    /// each welcome.
    Gpus { gpus: Vec<GpuState> },
    /// A stream that was asked for by [`Down::OpenStream`] does not come.
    StreamFailed { stream: Secret, reason: String },
}

/// What a node finds out about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    pub hostname: String,
    pub agent_version: String,
    pub pid: u32,
    /// What the node can truly give, after min(size, machine).
    pub cpus_milli: u32,
    pub memory_mb: u64,
    pub gpus: u32,
    /// What separates attempts from each other and from the machine, each as a short word:
    /// `user`, `cgroup-v1`, `cgroup-v2`, `pid-namespace`, `mount-namespace`, …
    #[serde(default)]
    pub isolation: Vec<String>,
    /// What is missing, each as a sentence.
    #[serde(default)]
    pub isolation_missing: Vec<String>,
}

/// One GPU of a node, and how much it is used at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuState {
    pub uuid: String,
    pub name: String,
    /// Zero where nobody says.
    #[serde(default)]
    pub memory_mb: u64,
    #[serde(default)]
    pub emulated: bool,
    /// Whose it is.
    #[serde(default)]
    pub attempt: Option<AttemptRef>,
    /// In percent.
    #[serde(default)]
    pub utilization: Option<u32>,
    #[serde(default)]
    pub memory_used_mb: Option<u64>,
}

/// An attempt that the agent still has a folder for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownAttempt {
    pub attempt: AttemptRef,
    /// The highest report number the agent has made for it.
    pub last_report: u64,
    pub running: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Report {
    /// The user's process runs. `properties` go into the job's properties (isolation, limits, interpreter).
    Started { properties: BTreeMap<String, String> },
    /// What it used of its GPUs, for the job's properties. Told once, when its processes have ended.
    Measured { facts: BTreeMap<String, String> },
    /// The process has ended and outputs are on their way.
    Finalizing,
    /// Over: outputs and log are with the control plane (or could not be brought there: then `exit` says so).
    Ended { exit: Exit },
}

/// How an attempt ended, told apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Exit {
    Success,
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// The kernel ended it for memory; the limit in force is stated.
    OutOfMemory {
        limit_mb: u64,
    },
    /// `limits.timeout` passed.
    Timeout,
    /// Stopped because the control plane said so.
    Stopped,
    /// The node could not renew its lease.
    LeaseLost,
    /// It never ran: code, inputs or environment could not be brought in place.
    PrepareFailed {
        class: FailureClass,
        message: String,
    },
    /// It ran well, but its outputs or log could not be stored.
    FinalizeFailed {
        message: String,
    },
    /// It wrote more than its disk quota, or its outputs are larger; the message says how much and what the limit is.
    DiskQuota {
        message: String,
    },
    /// The node's disk ran short, and this attempt had taken most of it.
    DiskShort {
        message: String,
    },
    /// Of several processes on the node, the first that did not succeed, by its rank among all of the job.
    Process {
        rank: u32,
        exit: Box<Self>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    InputData,
    Environment,
    System,
    /// Somebody else's store does not let the job's datastore in.
    Identity,
    /// There is no room on the node.
    Capacity,
}

/// Control plane to agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Down {
    /// A fresh client certificate (PEM chain); the agent keeps it with its key, 0600.
    Joined {
        certificate_pem: String,
        not_after_unix_s: u64,
    },
    /// Answer to [`Up::Hello`].
    Welcome {
        lease_ttl_ms: u64,
        heartbeat_ms: u64,
        /// As in [`Down::LeaseRenewed`].
        #[serde(default)]
        url_pass: Secret,
    },
    /// The node may not come in (unknown, gone, wrong version). The agent ends its attempts and itself.
    Refused {
        reason: String,
    },
    /// `heartbeat_ms`: how often from now on, where the server says so; 0 is "as before".
    LeaseRenewed {
        sent_boot_ms: u64,
        #[serde(default)]
        heartbeat_ms: u64,
        /// Goes with every URL of this node's attempts ([`BlobFolder::sas`]) from now on, as [`URL_PASS`]. It lasts as
        /// long as the lease.
        #[serde(default)]
        url_pass: Secret,
    },
    Start {
        attempt: AttemptRef,
        spec: Box<AttemptSpec>,
    },
    /// Ask the process to end (SIGTERM), then end it (SIGKILL) after the grace. For an attempt that already
    /// ended this is answered by its last report again; an unknown one by `Ended { Stopped }`.
    Stop {
        attempt: AttemptRef,
        grace_ms: u64,
        #[serde(default, skip_serializing_if = "StopWhy::is_end")]
        why: StopWhy,
    },
    /// Durable: the agent need not send this report, nor an earlier one, again.
    ReportAcknowledged {
        attempt: AttemptRef,
        number: u64,
    },
    /// Every byte before `offset` of this attempt's log is stored.
    LogAcknowledged {
        attempt: AttemptRef,
        offset: u64,
    },
    /// This attempt is no longer this node's: end it at once, delete its folder, report nothing.
    Forget {
        attempt: AttemptRef,
    },
    /// End all attempts after the grace, then end the agent.
    Leave {
        grace_ms: u64,
    },
    /// Connect to this service of an attempt, then dial the server with the ALPN name [`crate::STREAM_ALPN`], say `stream`
    /// (its [`crate::STREAM_NAME_BYTES`] bytes and nothing else), and pass bytes both ways. `stream` is good for that once.
    OpenStream {
        stream: Secret,
        attempt: AttemptRef,
        service: String,
    },
}

/// What a stop is for, and so what is done besides ending the processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopWhy {
    /// There will be no other attempt, as far as anybody knows.
    #[default]
    End,
    /// Another attempt follows: its checkpoint folder and outputs are kept for that.
    Requeue,
    /// The same, because its node is taken back when the grace is over: it is warned, and everything that is to be kept
    /// must be stored by then.
    Preempt,
}

impl StopWhy {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_end(&self) -> bool {
        *self == Self::End
    }

    /// Whether another attempt goes on where this one stops.
    pub fn goes_on(self) -> bool {
        self != Self::End
    }
}

/// Everything an agent needs to run one attempt. Paths inside the node are the agent's own choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptSpec {
    pub job_name: String,
    pub experiment: String,
    /// The user's command line, with `${{inputs.x}}` and `${{outputs.y}}` still in it; run by `/bin/bash -c`
    /// (`/bin/sh` where there is no bash).
    pub command: String,
    #[serde(default)]
    pub environment_variables: BTreeMap<String, String>,
    #[serde(default)]
    pub code: Option<BlobFolder>,
    #[serde(default)]
    pub inputs: BTreeMap<String, Input>,
    #[serde(default)]
    pub outputs: BTreeMap<String, Output>,
    /// Where `./outputs` and `./logs` of the working folder go when the process has ended.
    pub artifacts: BlobFolder,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    pub limits: Limits,
    pub isolation: Isolation,
    /// For agents of releases before `environment`, which name it in the log.
    #[serde(default)]
    pub image: Option<String>,
    /// For agents of releases before `environment`.
    #[serde(default)]
    pub packages: Option<String>,
    #[serde(default)]
    pub environment: Environment,
    #[serde(default)]
    pub container: ContainerTerms,
    /// Stdout and stderr together are kept up to this many bytes: head and tail, with the gap stated.
    pub log_bytes_max: u64,
    /// Lines that the log begins with (differences from what was asked for).
    #[serde(default)]
    pub preamble: Vec<String>,
    /// Of an attempt on several nodes: which of them this is.
    #[serde(default)]
    pub ranks: Option<Ranks>,
    /// How the processes of the attempt find each other; also on one node with several processes.
    #[serde(default)]
    pub distribution: Option<Distribution>,
    /// Where and as whom the job's own process tracks its run.
    #[serde(default)]
    pub tracking: Option<RunTracking>,
    /// What is started beside the command on this node, and can be reached through the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceSpec>,
    /// Where its checkpoint folder is kept between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointSpec>,
    /// Its data is elsewhere, and what is moved for it is to be counted and told.
    #[serde(default)]
    pub count_bytes: bool,
    #[serde(default)]
    pub disk: DiskTerms,
    /// Values that the log must not show: those of the secrets in `environment_variables`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<Secret>,
}

/// How much of its node's disk an attempt may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskTerms {
    /// In its folders, inputs and code among it; each file and all outputs together are no larger either. 0: no limit.
    #[serde(default)]
    pub bytes_max: u64,
    /// Free bytes that jobs leave on the disk. 0: none.
    #[serde(default)]
    pub free_bytes_min: u64,
}

/// What is kept of an attempt for the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSpec {
    /// This rank of this job alone has it.
    pub at: BlobFolder,
    /// There may be something of an earlier attempt.
    pub restore: bool,
    /// The checkpoint folder is saved this often while the command runs; 0: only when it is stopped.
    #[serde(default)]
    pub interval_ms: u64,
    /// An attempt that fails may be followed by another.
    #[serde(default)]
    pub after_failure: bool,
}

/// Something that runs beside an attempt's command, or is the command's own, and can be reached through the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    pub name: String,
    pub what: ServiceKind,
    /// Where it listens, if that is asked for.
    #[serde(default)]
    pub port: Option<u16>,
    /// The path under which the server shows it, with a slash at both ends.
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ServiceKind {
    Ssh {
        /// One key each, as in an `authorized_keys` file.
        public_keys: Vec<String>,
    },
    TensorBoard {
        log_dir: Option<String>,
    },
    JupyterLab,
    VsCode,
    /// The command itself listens on the port.
    Custom,
    /// Ray's own, on its head.
    RayDashboard,
}

/// How a service is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceState {
    pub name: String,
    pub status: ServiceStatus,
    /// Absent where it listens on a socket of the job's own.
    #[serde(default)]
    pub port: Option<u16>,
    /// Why it failed.
    #[serde(default)]
    pub message: Option<String>,
    /// It expects the whole path under which the server shows it, and not only what comes after.
    #[serde(default)]
    pub whole_path: bool,
    /// Of ssh: as whom one logs in, and what the host shows of itself.
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub host_key: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceStatus {
    Starting,
    /// It takes connections.
    Running,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks {
    /// Counted from 0; rank 0 is the head.
    pub rank: u32,
    /// The nodes by rank.
    pub nodes: Vec<u64>,
    /// Where each of them is reached by the others, by rank.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The first of [`PORTS_PER_ATTEMPT`] ports that are the attempt's on every one of its nodes.
    #[serde(default)]
    pub port: u16,
    /// Known to the nodes of this attempt alone: by it they know each other.
    #[serde(default)]
    pub secret: Secret,
}

/// Ports that an attempt on several nodes has for itself.
pub const PORTS_PER_ATTEMPT: u16 = 16;

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

/// What becomes the variables that MLflow's and Azure ML's clients read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTracking {
    /// `https://HOST:PORT/mlflow/v1.0/subscriptions/…/workspaces/…`
    pub uri: String,
    pub token: Secret,
    pub token_expires_s: i64,
    pub experiment_id: String,
    pub subscription: String,
    pub resource_group: String,
    pub workspace: String,
    pub workspace_id: String,
    /// `https://HOST:PORT`
    pub server: String,
    /// The pipeline or sweep at the top, where the job is part of one.
    #[serde(default)]
    pub root: Option<String>,
}

/// A word that is not for logs: it shows only to whom it is sent.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// What the command runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Environment {
    /// Nothing is asked for, or nothing is known of what is.
    #[default]
    Nothing,
    /// An image by name, by digest or as `file:` with the path of an archive; and perhaps packages on top of it.
    Image {
        image: String,
        #[serde(default)]
        packages: Option<String>,
    },
    /// A conda file or pip requirements, as text.
    Packages { packages: String },
    /// A folder with a Dockerfile.
    Build { context: BlobFolder, dockerfile: String },
}

/// How the job wants its container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerTerms {
    /// It runs in one or not at all.
    #[serde(default)]
    pub required: bool,
    #[serde(default)]
    pub shm_bytes: Option<u64>,
    /// `docker_args`, one word each; only those that are known to be safe.
    #[serde(default)]
    pub args: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// As much as the node has.
    Full,
    /// A process group and nothing else (for trusted, very short work).
    Off,
}

/// Hard limits of one attempt. Zero means the node's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub cpus_milli: u32,
    pub memory_mb: u64,
    pub gpus: u32,
}

/// The query field that carries the node's pass beside a signed query.
pub const URL_PASS: &str = "neap-pass";

/// A folder of blobs behind a directory-scoped SAS: `{url}/{relative path}?{sas}&neap-pass={pass}`.
/// Listing: `{container_url}?restype=container&comp=list&prefix={prefix}&{sas}&neap-pass={pass}`.
///
/// The signature names the attempt: it opens nothing once the attempt has ended, and nothing without the node's current
/// pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobFolder {
    pub container_url: String,
    /// Without a leading slash; with a trailing one when it names a folder, without when it names one blob.
    pub prefix: String,
    pub sas: String,
    /// A blob is stored in one request, however large: blocks are not taken there.
    #[serde(default)]
    pub whole: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Input {
    Literal {
        value: String,
    },
    File {
        at: BlobFolder,
        #[serde(default)]
        how: How,
    },
    Folder {
        at: BlobFolder,
        #[serde(default)]
        how: How,
    },
    /// A file or a folder. `at` is as for a file, `below` as for a folder.
    Any {
        at: BlobFolder,
        below: BlobFolder,
        #[serde(default)]
        how: How,
    },
}

/// How the job is given files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A copy of its own.
    #[default]
    Copy,
    /// A copy that it cannot change, where the node can see to that.
    ReadOnly,
    /// A copy; what the job changes, adds or deletes in it is changed, added and deleted at its source afterwards.
    ReadWrite,
    /// What the folder's `MLTable` file names.
    Evaluated,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Output {
    File {
        at: BlobFolder,
        #[serde(default)]
        keep: Keep,
    },
    Folder {
        at: BlobFolder,
        #[serde(default)]
        keep: Keep,
    },
    /// The job stores it by itself.
    Direct { value: String },
}

/// What an output is besides its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// What lies there already is there for the job too, and is gone when the job deletes it.
    #[serde(default)]
    pub existing: bool,
    /// Without it the attempt has not done its work.
    #[serde(default)]
    pub required: bool,
}
