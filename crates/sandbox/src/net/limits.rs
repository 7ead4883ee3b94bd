//! Limits and fixed choices of the job network.

use std::net::Ipv4Addr;

/// Length of an installation's subnet: 8,190 addresses, one for each attempt that runs or waits ready.
pub const SUBNET_BITS: u8 = 19;
/// Subnets are taken from here first: the range for network benchmarks, which no network routes.
pub(crate) const SUBNETS_FIRST: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
/// And from here when the first range is taken.
pub(crate) const SUBNETS_THEN: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 128, 0, 0), 9);
/// How many connections a job may have open to the outside. The host's table of connections serves everybody.
pub const CONNECTIONS_PER_JOB_MAX: u32 = 4096;
/// How often an attach tries another address or interface number before it gives up.
pub(crate) const ATTACH_TRIES_MAX: u32 = 512;
/// The guard looks at the rules this often even when the kernel reports no change.
pub(crate) const GUARD_PERIOD_S: i64 = 15;
/// The guard rests this long after each look, so that a busy firewall cannot keep it busy.
pub(crate) const GUARD_REST_MS: i64 = 20;
/// Listening sockets that one attempt may ask for.
pub const LISTENERS_MAX: usize = 16;
/// Connections that wait in a listening socket.
pub(crate) const LISTEN_BACKLOG: i32 = 256;

/// Where a job sends packets for the outside. No interface has this address; a fixed neighbour entry stands in for it.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
pub(crate) const ROUTER_MAC: [u8; 6] = [0x02, 0x4e, 0x45, 0x41, 0x50, 0x01];
pub(crate) const JOB_MAC: [u8; 6] = [0x02, 0x4e, 0x45, 0x41, 0x50, 0x02];
pub(crate) const HOST_MAC: [u8; 6] = [0x02, 0x4e, 0x45, 0x41, 0x50, 0x03];
/// The router's interface towards the host.
pub(crate) const UPLINK: &str = "up";
/// A job's interface towards the router, as the job sees it.
pub const JOB_INTERFACE: &str = "eth0";
/// All of the router's interfaces towards jobs start with this.
pub(crate) const JOB_LINKS: &str = "j";
/// Used when the host's routes do not say what fits.
pub(crate) const MTU_DEFAULT: u32 = 1500;
