//! What the agents of an installation share about its network: names, a lock, and the record of what was set up.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::links::Network;

/// Gone after a reboot, like everything that the record describes.
const RUN_DIR: &str = "/run/neap";
const RECORD_FILE: &str = "network.json";

/// Where an installation's network is written down, and what its parts are called.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    run_dir: PathBuf,
    installation: String,
}

impl Place {
    pub fn new(installation: &str) -> Self {
        Self::below(Path::new(RUN_DIR), installation)
    }

    /// The same with another folder in place of `/run/neap`. Only root may be able to write to it.
    pub fn below(run_dir: &Path, installation: &str) -> Self {
        Self { run_dir: run_dir.to_owned(), installation: installation.to_owned() }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.run_dir.join(&self.installation)
    }

    pub(crate) fn router_pin(&self) -> PathBuf {
        self.dir().join("router")
    }

    pub(crate) fn ranks_dir(&self) -> PathBuf {
        self.dir().join("ranks")
    }

    /// The host's interface towards the router.
    pub fn interface(&self) -> String {
        format!("neap-{}", self.mark())
    }

    /// The table of the host's rules, in family `inet`.
    pub fn table(&self) -> String {
        format!("neap_{}", self.mark())
    }

    /// Eight characters that tell installations apart where a name must be short.
    fn mark(&self) -> String {
        format!("{:08x}", self.number())
    }

    pub(crate) fn number(&self) -> u32 {
        let hash = self.installation.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash ^ (hash >> 32)) as u32
    }

    /// Makes the folders. Only root can enter them.
    pub(crate) fn create(&self) -> io::Result<()> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if self.installation.is_empty() || !self.installation.chars().all(is_name) {
            let what = format!("{:?} is no name for an installation", self.installation);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(self.ranks_dir())
    }

    /// Held by whoever changes this installation's network, until dropped.
    pub(crate) fn lock(&self) -> io::Result<File> {
        lock_file(&self.dir().join("lock"), FlockOperation::LockExclusive)
    }

    /// Held while containers of an attempt that share a network are made or removed. With `patient`, waits for it.
    /// Only letters, digits, `-` and `_` in `attempt`.
    pub fn lock_containers(&self, attempt: &str, patient: bool) -> io::Result<File> {
        let operation =
            if patient { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
        // There may be no router that has made it.
        self.create()?;
        lock_file(&self.ranks_dir().join(format!("{attempt}-containers.lock")), operation)
    }

    /// Held while a subnet is chosen: installations must not choose the same.
    pub(crate) fn lock_all(&self) -> io::Result<File> {
        lock_file(&self.run_dir.join("lock"), FlockOperation::LockExclusive)
    }

    /// Held by the one agent that guards the rules. Waits until it is free.
    pub(crate) fn lock_guard(&self) -> io::Result<File> {
        lock_file(&self.dir().join("guard"), FlockOperation::LockExclusive)
    }

    pub(crate) fn record(&self) -> io::Result<Option<Record>> {
        read_record(&self.dir().join(RECORD_FILE))
    }

    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        let (path, fresh) = (self.dir().join(RECORD_FILE), self.dir().join("network.json.new"));
        fs::write(&fresh, serde_json::to_vec(record)?)?;
        fs::rename(fresh, path)
    }

    /// The records of all other installations of the host.
    pub(crate) fn other_records(&self) -> Vec<Record> {
        let folders = fs::read_dir(&self.run_dir).into_iter().flatten().flatten();
        folders
            .filter(|folder| folder.file_name().to_str() != Some(&self.installation))
            .filter_map(|folder| read_record(&folder.path().join(RECORD_FILE)).ok().flatten())
            .collect()
    }

    /// Forgets everything. The pins must be gone.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.dir()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

fn read_record(path: &Path) -> io::Result<Option<Record>> {
    match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
        // One that cannot be read was written by another version: the network is set up anew.
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
    }
}

/// Opens a file and takes its lock, waiting for it unless told not to.
pub(crate) fn lock_file(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation))?;
    Ok(file)
}

/// What was set up, and what the host looked like before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub subnet: Network,
    pub mtu: u32,
    /// The router's rules as they were applied.
    pub router_rules: String,
    /// The host's addresses that the router refuses, as they were applied.
    #[serde(default)]
    pub host_addresses: String,
    /// The host's rules as they were applied, and as `nft` lists them.
    #[serde(default)]
    pub host_rules: String,
    #[serde(default)]
    pub host_listing: String,
    /// The kernel's number of the host's rule set when it was last found right.
    #[serde(default)]
    pub generation: Option<u32>,
    /// Interfaces of the host that forward because we need it.
    #[serde(default)]
    pub made_forwarding: Vec<String>,
    /// Chains of other firewalls that got a rule of ours.
    #[serde(default)]
    pub accepted_in: Vec<String>,
    /// Sentences about what keeps jobs from the outside.
    #[serde(default)]
    pub missing: Vec<String>,
}
