//! What an attempt is started with, and what is told about it: the words between agent and supervisor.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spool::SpoolEnd;

/// The place of an attempt's folders inside the sandbox: `/mnt/azureml/cr/j/<job name>/`.
pub const JOBS_PLACE: &str = "/mnt/azureml/cr/j";

/// At most this many processes and threads at once in one attempt.
pub const PROCESSES_MAX: u32 = 8192;

/// After `timeout_ms` a process has this long between SIGTERM and SIGKILL.
pub const TIMEOUT_GRACE_MS: u64 = 2000;

/// One attempt, ready to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Where the spool goes. The user's process cannot see it. Spool files of an earlier attempt may lie there:
    /// they are written over, and never read beyond what this attempt has written.
    pub attempt_dir: PathBuf,
    /// The first bytes of the spool's head that are the agent's own.
    pub head_bytes: u64,
    /// Run as `bash -c` would, or by `sh -c` where there is no bash.
    pub command: String,
    /// Run the agent's own program with these arguments instead of the command, wherever it lies: it need not be
    /// visible to the attempt.
    #[serde(default)]
    pub own_program: Option<Vec<String>>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The working folder, as the process sees it.
    pub cwd: PathBuf,
    pub timeout_ms: Option<u64>,
    pub log_bytes_max: u64,
    /// None: a session of its own and nothing else.
    pub view: Option<View>,
    /// Chosen by the agent; no two attempts that run at once on a node have the same. It says in which cgroup the
    /// attempt is limited, and nothing else.
    pub slot: u32,
    pub limits: AttemptLimits,
    /// A file that may come to name a process outside of the tree (a [`Detached`](crate::Detached), as JSON): the
    /// first of a container. It is killed with the tree.
    #[serde(default)]
    pub beside: Option<PathBuf>,
    /// Values that the output must not show: they are replaced before it is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<String>,
}

/// What an isolated attempt sees of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The folder that appears at [`JOBS_PLACE`]`/<job name>`.
    pub work_dir: PathBuf,
    pub job_name: String,
    /// The folder that appears as `/tmp`.
    pub tmp_dir: PathBuf,
    /// Folders that appear empty.
    pub hide: Vec<PathBuf>,
    /// User and group the process gets; only root can give another than its own.
    pub user: Option<u32>,
    /// Further folders.
    #[serde(default)]
    pub binds: Vec<Bind>,
    /// Device files that cannot be opened: GPUs of others.
    #[serde(default)]
    pub closed_devices: Vec<PathBuf>,
    /// The text of `/etc/resolv.conf`; absent: the machine's own.
    #[serde(default)]
    pub resolver: Option<String>,
    /// Lines that `/etc/hosts` has beside those of the loopback addresses.
    #[serde(default)]
    pub hosts: String,
}

/// A folder that is seen elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub from: PathBuf,
    pub to: PathBuf,
    pub read_only: bool,
}

/// Hard limits. Zero means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLimits {
    pub cpus_milli: u32,
    pub memory_mb: u64,
    pub processes: u32,
    /// The most that one file may hold; absent: no such limit.
    #[serde(default)]
    pub file_bytes_max: Option<u64>,
}

/// What a supervisor says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The user's process runs.
    Started,
    /// The head of the spool has this many bytes now.
    Log { head_bytes: u64 },
    /// So many listening sockets came along: those that the agent serves inside the attempt's network.
    Listening { sockets: usize },
    /// The answer to a request for a connection inside: one socket came along, or this was in the way.
    Connected { error: Option<String> },
    /// It is over: every process of the attempt is gone and the spool is complete.
    Ended(ExitRecord),
}

/// How an attempt ended. It is said to the agent and kept nowhere: an agent that dies takes its node along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub outcome: Outcome,
    pub spool: SpoolEnd,
    /// Where it ran in a cgroup, and long enough for it to mean something.
    #[serde(default)]
    pub used: Option<Used>,
}

/// What an attempt used, all its processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub ran_ms: u64,
    pub cpu_ms: u64,
    /// The most at once. Of earlier attempts in the same place too, where the kernel does not forget: never too little.
    pub memory_peak_mb: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Exited {
        code: i32,
    },
    Signaled {
        signal: i32,
    },
    OutOfMemory {
        limit_mb: u64,
    },
    TimedOut,
    Stopped,
    LeaseLost,
    /// The agent died, so that nobody was there to be told.
    AgentLost,
    /// The sandbox could not be set up; the user's command did not run.
    NotStarted {
        step: String,
        message: String,
    },
}
