//! One network namespace for all ranks of an attempt that runs on several nodes of this machine.
//!
//! Decision: the ranks of one attempt trust each other, so they share a namespace, and no filter between them is
//! needed. Each node keeps its address in 127.64.0.0/10 (`control::addresses`), which works on the shared loopback as
//! it does on the host's; the variables of ranks, the launcher and `hostfile`s stay as they are. What separates two
//! attempts is that their loopbacks are different ones. Nodes on different machines would need addresses that are
//! routed, and are not provided for here.
//!
//! The first rank makes the namespace, under a name that says whose it is. Each rank's agent holds a lock on it as long
//! as its rank lives; the kernel releases the lock of an agent that dies. Whoever comes next removes the namespaces
//! that nobody holds.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FlockOperation;

use super::attach::Attacher;
use super::namespace;
use super::place::{Place, lock_file};

/// A rank's hold on the namespace that its attempt shares. Keep it until the rank's processes are gone.
#[derive(Debug)]
pub struct SharedNetwork {
    namespace: OwnedFd,
    /// Known to the rank that came first.
    pub address: Option<Ipv4Addr>,
    _hold: File,
}

impl AsFd for SharedNetwork {
    /// What the supervisor enters, before it gives up its rights.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}

/// Joins the namespace of an attempt, and makes it for the first who joins. `attempt` is the same text on all nodes and
/// differs from all other attempts', letters, digits, `-` and `_` only.
///
/// A thread of its own enters the namespace, so that this may be called anywhere; it takes about 2 ms.
pub fn join(place: &Place, attempt: &str) -> io::Result<SharedNetwork> {
    std::thread::scope(|scope| {
        let joined = scope.spawn(|| join_here(place, attempt)).join();
        joined.unwrap_or_else(|_| Err(io::Error::other("joining the attempt's network failed")))
    })
}

fn join_here(place: &Place, attempt: &str) -> io::Result<SharedNetwork> {
    if attempt.is_empty() || !attempt.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{attempt:?} names no attempt")));
    }
    let _lock = place.lock()?;
    let hold = lock_file(&place.ranks_dir().join(format!("{attempt}.lock")), FlockOperation::LockShared)?;
    release_unheld(place)?;
    let pin = place.ranks_dir().join(attempt);
    if let Some(namespace) = namespace::open_pinned(&pin)? {
        return Ok(SharedNetwork { namespace, address: None, _hold: hold });
    }
    let namespace = namespace::create_pinned(&pin)?;
    match Attacher::open(place).and_then(|mut attacher| attacher.attach(namespace.as_fd())) {
        Ok(address) => Ok(SharedNetwork { namespace, address: Some(address), _hold: hold }),
        Err(e) => {
            namespace::release(&pin)?;
            Err(e)
        }
    }
}

/// Removes the namespaces whose ranks are all gone. The caller holds the installation's lock.
fn release_unheld(place: &Place) -> io::Result<()> {
    for entry in fs::read_dir(place.ranks_dir())? {
        let lock = entry?.path();
        if lock.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        if lock_file(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            namespace::release(&lock.with_extension(""))?;
            fs::remove_file(&lock)?;
        }
    }
    Ok(())
}

/// Removes all of them, held or not.
pub(crate) fn release_all(place: &Place) -> io::Result<()> {
    for entry in fs::read_dir(place.ranks_dir())? {
        let path = entry?.path();
        if path.extension().is_none() {
            namespace::release(&path)?;
        }
    }
    Ok(())
}
