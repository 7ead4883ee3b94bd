//! Connecting a namespace that another program made and that has no network yet: a container's, started with
//! `--network none`.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::attach::Attacher;
use super::listeners::{ListenSpec, open_listeners};
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
    std::thread::scope(|scope| {
        let adopting = scope.spawn(|| {
            let address = Attacher::open(place)?.attach(namespace.as_fd())?;
            let sockets = namespace::inside(namespace.as_fd(), || open_listeners(listeners))?;
            Ok((address, sockets))
        });
        adopting.join().unwrap_or_else(|_| Err(io::Error::other("connecting the container failed")))
    })
}
