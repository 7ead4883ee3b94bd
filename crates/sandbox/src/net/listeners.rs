//! Sockets made inside a job's network namespace, by the supervisor that is in it, for the agent that is not.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use serde::{Deserialize, Serialize};

use super::limits::{LISTEN_BACKLOG, LISTENERS_MAX};
use super::links;
use super::netlink::Netlink;

const LOOPBACK: u32 = 1;

/// What the agent wants to serve inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenSpec {
    pub tcp: Vec<SocketAddr>,
    pub udp: Vec<SocketAddr>,
}

impl ListenSpec {
    pub fn len(&self) -> usize {
        self.tcp.len() + self.udp.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Opens the sockets in the caller's network namespace, those for TCP first, each in its given order. An address that
/// is not a loopback address is added to `lo`, so that it leads to the socket and not to the machine that has it.
///
/// The loopback interface must be up. Call it before giving up rights: low ports and addresses need them. Ranks that
/// share a namespace each open the same addresses (SO_REUSEPORT), which the kernel allows to the same user only: a
/// job's process cannot join in.
pub fn open_listeners(spec: &ListenSpec) -> io::Result<Vec<OwnedFd>> {
    if spec.len() > LISTENERS_MAX {
        let what = format!("{} listening sockets; the limit is {LISTENERS_MAX}", spec.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut foreign: Vec<IpAddr> =
        spec.tcp.iter().chain(&spec.udp).map(SocketAddr::ip).filter(|ip| !ip.is_loopback()).collect();
    foreign.sort_unstable();
    foreign.dedup();
    if !foreign.is_empty() {
        let mut netlink = Netlink::route()?;
        for address in foreign {
            netlink.change([match address {
                IpAddr::V4(address) => links::add_address(LOOPBACK, address),
                IpAddr::V6(address) => links::add_address_v6(LOOPBACK, address),
            }])?;
        }
    }
    let mut sockets = Vec::with_capacity(spec.len());
    for address in &spec.tcp {
        let socket = socket(*address, SocketType::STREAM)?;
        rustix::net::bind(&socket, address)?;
        rustix::net::listen(&socket, LISTEN_BACKLOG)?;
        sockets.push(socket);
    }
    for address in &spec.udp {
        let socket = socket(*address, SocketType::DGRAM)?;
        rustix::net::bind(&socket, address)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

fn socket(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    Ok(socket)
}

/// A connection to a loopback address of the caller's network namespace: how the agent reaches a service of the job.
/// It does not wait: the connection may still be under way, and becomes writable when it stands or has failed.
pub fn connect_inside(address: SocketAddr) -> io::Result<OwnedFd> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not a loopback address; a job's services listen on those", address.ip()),
        ));
    }
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(e) => Err(e.into()),
    }
}
