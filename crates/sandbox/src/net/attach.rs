//! Connecting a job's network namespace to the router. It runs ahead of need, for supervisors that wait for a launch.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::limits::{ATTACH_TRIES_MAX, GATEWAY, JOB_INTERFACE, JOB_LINKS, JOB_MAC, ROUTER_MAC};
use super::links::{self, End, Network};
use super::namespace;
use super::netlink::Netlink;
use super::place::{Place, Record};

const LOOPBACK: u32 = 1;
/// The subnet's own, and the router's.
const FIRST_PLACE: u32 = 2;

/// Where the numbers of interfaces begin, and how many there are.
const ROUTER_NUMBERS: u32 = 0x2000_0000;
const JOB_NUMBERS: u32 = 0x4000_0000;
const NUMBERS: u32 = 0x1000_0000;

/// Connects namespaces, one after the other, without running a program. Holds a socket inside the router.
#[derive(Debug)]
pub struct Attacher {
    place: Place,
    router: Netlink,
    namespace: OwnedFd,
    record: Record,
    next_place: u32,
    next_index: u32,
}

impl Attacher {
    /// The network must be set up ([`ensure`](super::ensure)). The calling thread must be root, and in the host's
    /// network namespace.
    pub fn open(place: &Place) -> io::Result<Self> {
        let missing = || io::Error::other("the network is not set up");
        let record = place.record()?.ok_or_else(missing)?;
        let namespace = namespace::open_pinned(&place.router_pin())?.ok_or_else(missing)?;
        let router = namespace::inside(namespace.as_fd(), Netlink::route)?;
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let [a, b, c, d, e, f, g, h] = random;
        Ok(Self {
            place: place.clone(),
            router,
            namespace,
            record,
            next_place: u32::from_ne_bytes([a, b, c, d]),
            next_index: u32::from_ne_bytes([e, f, g, h]),
        })
    }

    /// Gives a fresh namespace, with nothing but an interface `lo` that is down, its loopback, an address of its own
    /// and the way to the router. The address is taken as long as the namespace lives; there is nothing to give back.
    ///
    /// The calling thread (in the spawner: the process) is inside the namespace for a moment.
    pub fn attach(&mut self, job: BorrowedFd<'_>) -> io::Result<Ipv4Addr> {
        if !self.is_current() {
            *self = Self::open(&self.place.clone())?;
        }
        let mut inside = namespace::inside(job, || {
            // The interface to come gets no IPv6, while `::1` stays. It would lead nowhere: the router knows no IPv6.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            Netlink::route()
        })?;
        let (index, own_index) = self.create_pair(job)?;
        let address = self.claim_address(index)?;
        self.router.change([links::add_neighbour(index, address, JOB_MAC)])?;
        let everywhere = Network { first: Ipv4Addr::UNSPECIFIED, bits: 0 };
        inside.change([
            links::set_up(LOOPBACK),
            links::set_up(own_index),
            links::add_address(own_index, address),
            links::add_neighbour(own_index, GATEWAY, ROUTER_MAC),
            links::add_route(everywhere, own_index, Some(GATEWAY)),
        ])?;
        Ok(address)
    }

    /// Whether the router is still the one that this holds a socket of.
    fn is_current(&self) -> bool {
        let (Ok(held), Ok(pinned)) =
            (rustix::fs::fstat(&self.namespace), rustix::fs::stat(self.place.router_pin()))
        else {
            return false;
        };
        (held.st_dev, held.st_ino) == (pinned.st_dev, pinned.st_ino)
    }

    /// The numbers of both ends, the router's first. They differ, or the kernel would take up to a second to see that
    /// the link is up.
    fn create_pair(&mut self, job: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
        for _ in 0..ATTACH_TRIES_MAX {
            // Far from the small numbers that the kernel gives out itself.
            let number = self.next_index % NUMBERS;
            self.next_index = self.next_index.wrapping_add(1);
            let (index, own_index) = (ROUTER_NUMBERS + number, JOB_NUMBERS + number);
            let name = format!("{JOB_LINKS}{number:x}");
            let here = End { name: &name, index, mac: ROUTER_MAC };
            let there = End { name: JOB_INTERFACE, index: own_index, mac: JOB_MAC };
            match self.router.change([links::create_pair(&here, &there, job, self.record.mtu)]) {
                Err(e) if is_taken(&e) => {}
                other => return other.map(|()| (index, own_index)),
            }
        }
        Err(io::Error::other("no free interface number"))
    }

    /// The router's table of routes says which addresses are taken: a route goes when its job's namespace does, and
    /// never before. So several spawners need not agree on anything.
    fn claim_address(&mut self, index: u32) -> io::Result<Ipv4Addr> {
        let places = (self.record.subnet.size() as u32).saturating_sub(FIRST_PLACE + 1);
        for _ in 0..places {
            let address = self.record.subnet.address(FIRST_PLACE + self.next_place % places);
            self.next_place = self.next_place.wrapping_add(1);
            match self.router.change([links::add_route(Network::one(address), index, None)]) {
                Err(e) if is_taken(&e) => {}
                other => return other.map(|()| address),
            }
        }
        Err(io::Error::other(format!("all addresses of {} are in use", self.record.subnet)))
    }

    /// The sockets that this holds on to.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.router.as_fd(), self.namespace.as_fd()]
    }
}

fn is_taken(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EEXIST | libc::EBUSY))
}

/// Brings up the loopback interface of the namespace that the caller is in: all the network there is where jobs
/// cannot be attached. Needs CAP_NET_ADMIN in it, which the first process of a user namespace has.
pub fn loopback_only() -> io::Result<()> {
    Netlink::route()?.change([links::set_up(LOOPBACK)])
}
