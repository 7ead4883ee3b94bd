//! The node's lease, as a file that the agent rewrites and every supervisor reads for itself.
//!
//! The file's first eight bytes are the deadline in milliseconds of the boot-time clock. It is mapped, so
//! that a supervisor's reading costs nothing and needs nothing from the agent.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::sys::SharedPage;

/// Name of the lease file in a node's folder.
pub const LEASE_FILE: &str = "lease";

/// Milliseconds of the clock that also counts while the machine sleeps.
pub fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// The agent's end of the lease: the only one that writes it.
#[derive(Debug)]
pub struct Lease(SharedPage);

impl Lease {
    pub fn open(node_dir: &Path) -> io::Result<Self> {
        Ok(Self(SharedPage::map(file(node_dir)?.as_fd(), true)?))
    }

    /// Attempts may run until then, and not longer.
    pub fn renew_until(&self, deadline_boot_ms: u64) {
        self.0.set_word(deadline_boot_ms);
    }
}

/// A supervisor's end.
#[derive(Debug)]
pub(crate) struct LeaseReading(SharedPage);

impl LeaseReading {
    pub(crate) fn open(node_dir: &Path) -> io::Result<Self> {
        Ok(Self(SharedPage::map(file(node_dir)?.as_fd(), false)?))
    }

    pub(crate) fn deadline_boot_ms(&self) -> u64 {
        self.0.word()
    }
}

fn file(node_dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(node_dir.join(LEASE_FILE))?;
    file.set_len(4096)?;
    Ok(file)
}
