//! Where the nodes of one attempt find each other. Nodes on this machine look like different hosts: each has an address
//! of its own in 127.0.0.0/8, which needs no setting up. It opens nothing and asks nobody.
//!
//! The loopback that these addresses stand on is the attempt's: all its ranks on a machine share one network namespace
//! (`neap_sandbox::net::join`), and no other attempt is in it.

use std::net::Ipv4Addr;

use neap_core::{AttemptId, NodeId};
use neap_protocol::PORTS_PER_ATTEMPT;

/// Below what Linux hands out by itself (from 32768 on).
const PORTS_FROM: u16 = 10_000;
const PORTS_UNTIL: u16 = 20_000;
/// Another attempt of a job is far from the jobs that were submitted next.
const ATTEMPT_STRIDE: u64 = 401;

/// The address of a node on this machine: 127.64.0.0/10, in the order of the nodes.
pub(crate) fn local(node: NodeId) -> Ipv4Addr {
    let [_, high, middle, low] = ((node.0 & 0x3f_ffff) as u32).to_be_bytes();
    Ipv4Addr::new(127, 64 + high, middle, low)
}

/// The first of an attempt's ports: the same on all its nodes and each time it is asked for, and another for attempts
/// that run at the same time. `installation` tells servers on one machine apart.
pub(crate) fn port(installation: &str, id: AttemptId) -> u16 {
    let blocks = u64::from((PORTS_UNTIL - PORTS_FROM) / PORTS_PER_ATTEMPT);
    let salt = installation.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let block = (salt % blocks + id.job.0 % blocks + u64::from(id.number) * ATTEMPT_STRIDE) % blocks;
    PORTS_FROM + block as u16 * PORTS_PER_ATTEMPT
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_core::JobId;

    #[test]
    fn every_node_has_its_own_address() {
        for (node, expect) in [
            (1, "127.64.0.1"),
            (258, "127.64.1.2"),
            (0x1_0203, "127.65.2.3"),
            (0x3f_ffff, "127.127.255.255"),
            (0x40_0001, "127.64.0.1"),
        ] {
            assert_eq!(local(NodeId(node)).to_string(), expect, "{node}");
        }
    }

    #[test]
    fn attempts_at_once_have_their_own_ports() {
        let at = |job, number| port("https://127.0.0.1:8443", AttemptId { job: JobId(job), number });
        let mut ports: Vec<u16> =
            (1..100).flat_map(|job| (1..4).map(move |number| at(job, number))).collect();
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[1] - pair[0] >= PORTS_PER_ATTEMPT), "{ports:?}");
        assert!(ports.iter().all(|port| (PORTS_FROM..=PORTS_UNTIL - PORTS_PER_ATTEMPT).contains(port)));
        assert_ne!(at(1, 1), port("https://127.0.0.1:8444", AttemptId { job: JobId(1), number: 1 }));
    }
}
