//! Keeping the host's rules in place. Any tool with root's rights may flush the whole rule set (`nft flush ruleset`, a
//! restart of `nftables.service`); until the rules are back, the router's own still close the host's addresses.

use std::fs::File;
use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::limits::{GUARD_PERIOD_S, GUARD_REST_MS};
use super::netlink::Netlink;
use super::place::Place;
use super::router::{Health, heal};

/// Multicast groups of the kernel: changes of rules; of interfaces, addresses and routes.
const RULES: u32 = 1 << (7 - 1);
const INTERFACES: u32 = 0x1 | 0x10 | 0x40;

/// Waits for its turn, then heals the rules whenever the kernel reports a change, for as long as the process lives.
/// Every agent of an installation calls this on a thread of its own; one guards, the others wait to take over.
/// `tell` hears of each time that something was done, and of failures. It returns when the network was removed.
pub fn guard(place: &Place, mut tell: impl FnMut(io::Result<Health>)) -> io::Result<()> {
    let _turn: File = place.lock_guard()?;
    let mut rules = Netlink::netfilter()?;
    let mut interfaces = Netlink::route()?;
    rules.listen(RULES)?;
    interfaces.listen(INTERFACES)?;
    while place.dir().exists() {
        match heal(place) {
            Ok(health) if !health.healed => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound && !place.dir().exists() => return Ok(()),
            other => tell(other),
        }
        crate::pause_ms(GUARD_REST_MS);
        let period = Timespec { tv_sec: GUARD_PERIOD_S, tv_nsec: 0 };
        let mut wait = [PollFd::new(&rules, PollFlags::IN), PollFd::new(&interfaces, PollFlags::IN)];
        match poll(&mut wait, Some(&period)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        rules.drain();
        interfaces.drain();
    }
    Ok(())
}
