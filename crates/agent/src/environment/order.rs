//! The words between an agent and the process that drives the engine for it: files in the attempt's folder.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use neap_sandbox::NODE_MARK;
use neap_sandbox::net::Place;
use serde::{Deserialize, Serialize};

use super::installing;
use crate::relay::Relay;

/// What is to be done. It may hold the job's secrets, so the file is private.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub socket: PathBuf,
    pub step: Step,
    /// Where the answer goes.
    pub answer: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Step {
    Image(ImageOrder),
    Run(Box<RunOrder>),
}

/// How an image comes to be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ImageOrder {
    Pull { image: String },
    Load { archive: PathBuf, tag: String },
    Build { context: PathBuf, dockerfile: String, tag: String },
}

/// A container, from its image to its limits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RunOrder {
    pub image: String,
    pub name: String,
    pub hostname: Option<String>,
    /// What the first process is started by, where there is such a program.
    pub first: Option<PathBuf>,
    /// Absent: the machine's.
    pub network: Option<OwnNetwork>,
    pub command: String,
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// Folder outside, place inside, whether it is for reading only.
    pub mounts: Vec<(PathBuf, PathBuf, bool)>,
    /// `uid:gid`
    pub user: Option<String>,
    pub labels: Vec<(String, String)>,
    pub cpus_milli: u32,
    pub memory_mb: u64,
    pub processes: u32,
    /// By UUID.
    #[serde(default)]
    pub gpus: Vec<String>,
    pub shm_bytes: Option<u64>,
    /// Name, soft, hard.
    pub ulimits: Vec<(String, i64, i64)>,
    /// Where the first process is written down.
    pub process: PathBuf,
    /// `NAME=value` that the first process must carry: by it is known that the engine's processes are this machine's.
    pub mark: String,
}

/// What the driver connects a container with, before its command begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnNetwork {
    /// The way out; absent: there is none.
    pub place: Option<Place>,
    pub relay: Relay,
    /// The other containers of the attempt have the same.
    pub shared: Option<SharedWith>,
}

/// A network that several containers have. One that does nothing holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SharedWith {
    /// Where its lock is.
    pub place: Place,
    /// The attempt, as its lock names it.
    pub attempt: String,
    /// The container that holds it, and the value of its label and of theirs.
    pub holder: String,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The image is there.
    Image {
        id: String,
    },
    /// It cannot be had: neither present nor to be pulled.
    Absent {
        message: String,
    },
    /// Building or loading it failed, or the container could not be started.
    Failed {
        message: String,
    },
    Ended {
        code: i64,
        out_of_memory: bool,
    },
    /// The engine stopped answering.
    Lost {
        message: String,
    },
}

/// The files by which an agent and the engine's driver speak, in the attempt's folder.
pub(crate) struct EngineFiles {
    pub order: PathBuf,
    pub answer: PathBuf,
    pub process: PathBuf,
}

/// The container's `/etc/resolv.conf` and `/etc/hosts`, in the attempt's folder.
pub(crate) const RESOLV_CONF_FILE: &str = "container.resolv.conf";
/// The program that the first process is started by.
pub(crate) const FIRST_FILE: &str = "container.first";
pub(crate) const HOSTS_FILE: &str = "container.hosts";

impl EngineFiles {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            order: dir.join("container.json"),
            answer: dir.join("container.answer.json"),
            process: dir.join("container.process.json"),
        }
    }

    pub(crate) fn write(&self, order: &Order) -> io::Result<()> {
        for old in [&self.answer, &self.process] {
            match std::fs::remove_file(old) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.order)?;
        file.write_all(&serde_json::to_vec(order)?)
    }

    pub(crate) fn read(&self) -> Option<Answer> {
        serde_json::from_slice(&std::fs::read(&self.answer).ok()?).ok()
    }

    /// What this very program is to be run with.
    pub(crate) fn program(&self) -> Vec<String> {
        vec!["container".to_owned(), self.order.display().to_string()]
    }
}

/// What the process that drives the engine is given.
pub(crate) fn driver_variables(path: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = installing::variables(std::env::vars());
    all.push(("PATH".into(), path.into()));
    if let Ok(mark) = std::env::var(NODE_MARK) {
        all.push((NODE_MARK.into(), mark));
    }
    all
}
