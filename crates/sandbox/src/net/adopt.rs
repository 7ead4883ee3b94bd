//! Connecting a namespace that another program made and that has no network yet: a container's, started with
//! `--network none`.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::attach::{Attacher, loopback_only};
use super::listeners::{ListenSpec, connect_inside, open_listeners};
use super::namespace;
use super::place::Place;

/// The network namespace of a process. The caller knows that the process is the one it means, and holds it back from
/// running the job's command until the namespace is connected.
pub fn namespace_of(pid: u32) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/{pid}/ns/net"))?.into())
}

/// Attaches the namespace to the installation's router and opens sockets in it. Root only. A thread of its own enters
/// the namespaces, so that this may be called anywhere.
pub fn adopt(
    place: &Place,
    namespace: BorrowedFd<'_>,
    listeners: &ListenSpec,
) -> io::Result<(Ipv4Addr, Vec<OwnedFd>)> {
    apart(|| {
        let address = Attacher::open(place)?.attach(namespace.as_fd())?;
        let sockets = namespace::inside(namespace, || open_listeners(listeners))?;
        Ok((address, sockets))
    })
}

/// The same for a namespace that gets no way out, or has it already: brings up its loopback and opens sockets in it.
pub fn adopt_without_router(namespace: BorrowedFd<'_>, listeners: &ListenSpec) -> io::Result<Vec<OwnedFd>> {
    apart(|| {
        namespace::inside(namespace, || {
            loopback_only()?;
            open_listeners(listeners)
        })
    })
}

/// [`connect_inside`] for a namespace that the caller is not in. Root only.
pub fn connect_in(namespace: BorrowedFd<'_>, address: SocketAddr) -> io::Result<OwnedFd> {
    apart(|| namespace::inside(namespace, || connect_inside(address)))
}

/// Whether this is the namespace that the caller is in.
pub fn is_own(namespace: BorrowedFd<'_>) -> io::Result<bool> {
    let (theirs, ours) = (rustix::fs::fstat(namespace)?, rustix::fs::fstat(namespace::present()?)?);
    Ok((theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino))
}

/// Does work that changes namespaces on a thread of its own.
fn apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let failed = || io::Error::other("the thread that enters the container's network ended early");
        scope.spawn(work).join().unwrap_or_else(|_| Err(failed()))
    })
}
