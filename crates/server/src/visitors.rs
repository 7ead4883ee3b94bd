//! Who is connected: caps on connections per address and in all, strict for those that have shown no credential.
//!
//! At a cap an old connection without a credential makes room, from the address that has the most: one that has not said a word
//! first. Clients show their credential within milliseconds of connecting, so a flood of strangers displaces strangers. Only when
//! every connection is fresh and in the middle of its handshake, as after a restart with thousands of nodes, the newcomer is
//! refused: it comes again, and those that are nearly done get done. What a request may do is not decided here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use neap_control::clock;
use neap_control::instruments::Counter;
use neap_core::Millis;
use tokio::sync::Notify;

use crate::config::Limits;
use crate::limits::{
    ATTEMPT_CONNECTIONS_MAX, FILES_BESIDE, FRESH_MS, LOOPBACK_FACTOR, NODE_CONNECTIONS_MAX,
    STRANGER_REQUESTS_MAX,
};

/// What connections are counted by. Later kinds are displaced later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// Has shown no credential yet.
    Stranger(IpAddr),
    /// Has shown a signed URL or a job's token.
    Attempt(u64),
    /// Has shown a token of the installation.
    Owner(IpAddr),
    /// Has shown a node's certificate, or its join token.
    Node(u64),
}

#[derive(Clone, Copy, Debug)]
struct Caps {
    all: usize,
    per_address: usize,
    strangers: usize,
    strangers_per_address: usize,
}

impl Caps {
    /// As configured, or less where this process may not open as many files.
    fn new(limits: Limits, files: Option<u64>) -> Self {
        let room = files.map_or(usize::MAX, |files| {
            usize::try_from(files.saturating_sub(FILES_BESIDE).max(files / 2)).unwrap_or(usize::MAX)
        });
        Self {
            all: limits.connections.min(room),
            per_address: limits.connections_per_address,
            strangers: limits.unauthenticated_connections.min((room / 3).max(1)),
            strangers_per_address: limits.unauthenticated_connections_per_address,
        }
    }

    fn of(&self, party: Party) -> usize {
        match party {
            Party::Stranger(address) if address.is_loopback() => {
                self.strangers_per_address.saturating_mul(LOOPBACK_FACTOR)
            }
            Party::Stranger(_) => self.strangers_per_address,
            Party::Attempt(_) => ATTEMPT_CONNECTIONS_MAX,
            Party::Owner(_) => self.per_address,
            Party::Node(_) => NODE_CONNECTIONS_MAX,
        }
    }
}

#[derive(Debug)]
pub struct Visitors {
    caps: Caps,
    stranger_ms: u64,
    idle_ms: u64,
    book: Mutex<Book>,
    /// Connections that were refused or displaced.
    turned_away: Arc<Counter>,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    /// By party, then in the order of coming.
    parties: BTreeMap<Party, BTreeMap<u64, Arc<Seat>>>,
    all: usize,
    strangers: usize,
}

/// What the book keeps of a connection.
#[derive(Debug)]
struct Seat {
    since: Millis,
    /// The client has begun its handshake.
    has_spoken: AtomicBool,
    leave: Notify,
}

/// One connection, for as long as it is open.
#[derive(Debug)]
pub struct Visit {
    visitors: Arc<Visitors>,
    number: u64,
    address: IpAddr,
    seat: Arc<Seat>,
    /// None once it no longer counts.
    party: Mutex<Option<Party>>,
    is_known: AtomicBool,
    /// Requests that are being answered.
    busy: AtomicUsize,
    /// When the last answer ended.
    idle_since: AtomicU64,
    stranger_requests: AtomicU32,
}

/// What becomes of a connection at which nothing happens.
#[derive(Debug, PartialEq, Eq)]
pub enum Patience {
    Wait(Duration),
    /// No credential was shown in time.
    Nameless,
    Idle,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whom an address stands for: one customer has a /64 of IPv6.
fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        other => other,
    }
}

impl Visitors {
    /// `files` is how many files this process may open.
    pub fn new(limits: Limits, files: Option<u64>, turned_away: Arc<Counter>) -> Arc<Self> {
        let caps = Caps::new(limits, files);
        if caps.all < limits.connections {
            tracing::info!(
                connections = caps.all,
                configured = limits.connections,
                "fewer connections are taken than configured: this process may not open more files"
            );
        }
        Arc::new(Self {
            caps,
            stranger_ms: limits.unauthenticated_seconds.saturating_mul(1000),
            idle_ms: limits.idle_seconds.saturating_mul(1000),
            book: Mutex::default(),
            turned_away,
        })
    }

    /// Takes a connection in, at the cost of another if need be. None: there is no room.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Visit>> {
        let address = household(address);
        let party = Party::Stranger(address);
        let now = clock::steady();
        let mut leaving = Vec::new();
        let admitted = {
            let mut book = lock(&self.book);
            if book.count(party) >= self.caps.of(party) {
                leaving.extend(book.displace(party, now));
            }
            if book.strangers >= self.caps.strangers {
                leaving.extend(book.displace_of(|party| matches!(party, Party::Stranger(_)), now));
            }
            if book.all >= self.caps.all {
                let displaced = book
                    .displace_of(|party| matches!(party, Party::Stranger(_)), now)
                    .or_else(|| book.displace_of(|party| matches!(party, Party::Attempt(_)), now));
                leaving.extend(displaced);
            }
            if book.all >= self.caps.all
                || book.strangers >= self.caps.strangers
                || book.count(party) >= self.caps.of(party)
            {
                None
            } else {
                let number = book.next;
                book.next += 1;
                let has_spoken = AtomicBool::new(false);
                let seat = Arc::new(Seat { since: now, has_spoken, leave: Notify::new() });
                let visit = Arc::new(Visit {
                    visitors: self.clone(),
                    number,
                    address,
                    seat: seat.clone(),
                    party: Mutex::new(Some(party)),
                    is_known: AtomicBool::new(false),
                    busy: AtomicUsize::new(0),
                    idle_since: AtomicU64::new(now.0),
                    stranger_requests: AtomicU32::new(0),
                });
                book.enter(party, number, seat);
                Some(visit)
            }
        };
        for seat in &leaving {
            tracing::debug!("a connection makes room for a newer one");
            seat.leave.notify_one();
        }
        self.turned_away.add(leaving.len() as u64 + u64::from(admitted.is_none()));
        admitted
    }
}

impl Book {
    fn count(&self, party: Party) -> usize {
        self.parties.get(&party).map_or(0, BTreeMap::len)
    }

    fn enter(&mut self, party: Party, number: u64, seat: Arc<Seat>) {
        self.parties.entry(party).or_default().insert(number, seat);
        self.all += 1;
        self.strangers += usize::from(matches!(party, Party::Stranger(_)));
    }

    fn exit(&mut self, party: Party, number: u64) {
        let Some(visits) = self.parties.get_mut(&party) else { return };
        if visits.remove(&number).is_none() {
            return;
        }
        if visits.is_empty() {
            self.parties.remove(&party);
        }
        self.all -= 1;
        self.strangers -= usize::from(matches!(party, Party::Stranger(_)));
    }

    /// Takes a connection of a party out of the book: the oldest that has said nothing, or else the oldest of all if it is
    /// not fresh any more.
    fn displace(&mut self, party: Party, now: Millis) -> Option<Arc<Seat>> {
        let seats = self.parties.get(&party)?;
        let silent = seats.iter().find(|(_, seat)| !seat.has_spoken.load(Ordering::Relaxed));
        let old = || seats.first_key_value().filter(|(_, seat)| now.since(seat.since) >= FRESH_MS);
        let (number, seat) = silent.or_else(old)?;
        let (number, seat) = (*number, seat.clone());
        self.exit(party, number);
        Some(seat)
    }

    /// The same, of the party with the most connections among these.
    fn displace_of(&mut self, among: impl Fn(&Party) -> bool, now: Millis) -> Option<Arc<Seat>> {
        let parties = self.parties.iter().filter(|(party, _)| among(party));
        let largest = parties.max_by_key(|(_, visits)| visits.len()).map(|(party, _)| *party)?;
        self.displace(largest, now)
    }
}

impl Visit {
    /// The client has begun its handshake.
    pub fn has_spoken(&self) {
        self.seat.has_spoken.store(true, Ordering::Relaxed);
    }

    /// The connection has shown a credential. False where this party has as many connections as it may: then it ends.
    pub fn becomes(&self, party: Party) -> bool {
        let mut held = lock(&self.party);
        // A connection that shows several credentials is counted once, by the best of them.
        let before = match (*held, party) {
            (Some(before @ Party::Stranger(_)), _) | (Some(before @ Party::Attempt(_)), Party::Owner(_)) => {
                before
            }
            _ => return true,
        };
        let mut book = lock(&self.visitors.book);
        if book.count(party) >= self.visitors.caps.of(party) {
            drop((book, held));
            self.visitors.turned_away.inc();
            self.leave();
            return false;
        }
        let Some(seat) = book.parties.get_mut(&before).and_then(|seats| seats.remove(&self.number)) else {
            // It was displaced a moment ago.
            return false;
        };
        if book.count(before) == 0 {
            book.parties.remove(&before);
        }
        book.strangers -= usize::from(matches!(before, Party::Stranger(_)));
        book.parties.entry(party).or_default().insert(self.number, seat);
        *held = Some(party);
        self.is_known.store(true, Ordering::Relaxed);
        true
    }

    /// A credential of the installation's owner was shown.
    pub fn is_owners(&self) -> bool {
        self.becomes(Party::Owner(self.address))
    }

    /// Another request without a credential came. False where there were too many on this connection: then it ends.
    pub fn may_ask_as_stranger(&self) -> bool {
        let asked = self.stranger_requests.fetch_add(1, Ordering::Relaxed);
        let may = self.is_known.load(Ordering::Relaxed) || asked < STRANGER_REQUESTS_MAX;
        if !may {
            self.leave();
        }
        may
    }

    /// Ends the connection.
    pub fn leave(&self) {
        self.seat.leave.notify_one();
    }

    /// Resolves when the connection is to end.
    pub async fn left(&self) {
        self.seat.leave.notified().await;
    }

    /// Held while a request is being answered, to the last byte.
    pub fn answering(self: &Arc<Self>) -> Answering {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }

    /// How long this connection may go on as it is.
    pub fn patience(&self, now: Millis) -> Patience {
        let visitors = &self.visitors;
        let (limit_ms, since, over) = if !self.is_known.load(Ordering::Relaxed) {
            (visitors.stranger_ms, self.seat.since, Patience::Nameless)
        } else if self.busy.load(Ordering::Relaxed) > 0 {
            (visitors.idle_ms, now, Patience::Idle)
        } else {
            (visitors.idle_ms, Millis(self.idle_since.load(Ordering::Relaxed)), Patience::Idle)
        };
        match limit_ms.saturating_sub(now.since(since)) {
            0 => over,
            left_ms => Patience::Wait(Duration::from_millis(left_ms)),
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(party) = lock(&self.party).take() {
            lock(&self.visitors.book).exit(party, self.number);
        }
    }
}

#[derive(Debug)]
pub struct Answering(Arc<Visit>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.idle_since.store(clock::steady().0, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "127.0.0.1";
    const HERE: &str = "192.0.2.1";
    const THERE: &str = "192.0.2.2";

    fn visitors(strangers: usize, strangers_per_address: usize, all: usize) -> Arc<Visitors> {
        let limits = Limits {
            connections: all,
            connections_per_address: 3,
            unauthenticated_connections: strangers,
            unauthenticated_connections_per_address: strangers_per_address,
            unauthenticated_seconds: 20,
            idle_seconds: 60,
            ..Limits::default()
        };
        Visitors::new(limits, None, Arc::default())
    }

    fn come(visitors: &Arc<Visitors>, address: &str) -> Arc<Visit> {
        visitors.admit(address.parse().unwrap()).unwrap()
    }

    async fn is_leaving(visit: &Visit) -> bool {
        tokio::time::timeout(Duration::from_millis(1), visit.left()).await.is_ok()
    }

    #[tokio::test]
    async fn at_its_cap_an_address_displaces_its_own_oldest() {
        let visitors = visitors(100, 2, 100);
        let other = come(&visitors, THERE);
        let first = come(&visitors, HERE);
        let second = come(&visitors, HERE);
        let third = come(&visitors, HERE);
        assert!(is_leaving(&first).await);
        for stays in [&other, &second, &third] {
            assert!(!is_leaving(stays).await);
        }
        assert_eq!(visitors.turned_away.get(), 1);
        drop((first, second, third, other));
        let book = lock(&visitors.book);
        assert_eq!((book.all, book.strangers, book.parties.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_flood_displaces_itself_and_nobody_with_a_credential() {
        let visitors = visitors(4, 4, 100);
        let known = come(&visitors, HERE);
        assert!(known.is_owners());
        let quiet = come(&visitors, THERE);
        let flood: Vec<_> = (0..50).map(|_| come(&visitors, HERE)).collect();
        assert!(!is_leaving(&known).await && !is_leaving(&quiet).await);
        assert_eq!(lock(&visitors.book).strangers, 4);
        assert!(is_leaving(&flood[0]).await);
        assert!(!flood[0].is_owners(), "too late");
        assert!(flood[49].is_owners());
    }

    #[tokio::test]
    async fn in_a_rush_those_that_have_begun_get_done() {
        let visitors = visitors(100, 2, 100);
        let first = come(&visitors, HERE);
        let second = come(&visitors, HERE);
        first.has_spoken();
        let third = come(&visitors, HERE);
        assert!(!is_leaving(&first).await && is_leaving(&second).await, "the silent one makes room");
        third.has_spoken();
        assert!(visitors.admit(HERE.parse().unwrap()).is_none(), "both are fresh");
        assert_eq!(lock(&visitors.book).strangers, 2);
        let later = clock::steady().plus(FRESH_MS);
        let displaced = lock(&visitors.book).displace(Party::Stranger(HERE.parse().unwrap()), later);
        assert!(displaced.is_some_and(|seat| Arc::ptr_eq(&seat, &first.seat)));
    }

    #[tokio::test]
    async fn caps_hold_for_those_with_a_credential_too() {
        let visitors = visitors(100, 100, 6);
        let owners: Vec<_> = (0..3).map(|_| come(&visitors, HERE)).collect();
        assert!(owners.iter().all(|visit| visit.is_owners()));
        let fourth = come(&visitors, HERE);
        assert!(!fourth.is_owners() && is_leaving(&fourth).await);
        drop(fourth);
        let job = come(&visitors, HOME);
        assert!(job.becomes(Party::Attempt(1)));
        let node = come(&visitors, HOME);
        assert!(node.becomes(Party::Node(1)), "a node with a certificate is nobody's stranger");
        let stranger = come(&visitors, THERE);
        let next = come(&visitors, THERE);
        assert!(is_leaving(&stranger).await && !is_leaving(&job).await, "strangers make room first");
        assert!(next.is_owners());
        let last = come(&visitors, THERE);
        assert!(is_leaving(&job).await, "then connections of jobs");
        assert!(last.is_owners());
        assert!(visitors.admit(THERE.parse().unwrap()).is_none(), "nobody else makes room");
        assert!(!is_leaving(&owners[0]).await && !is_leaving(&node).await);
    }

    #[test]
    fn how_long_a_connection_may_stay() {
        let visitors = visitors(9, 9, 9);
        let visit = come(&visitors, HERE);
        let at = |ms| visit.seat.since.plus(ms);
        assert_eq!(visit.patience(at(19_000)), Patience::Wait(Duration::from_secs(1)));
        let answering = visit.answering();
        assert_eq!(visit.patience(at(20_000)), Patience::Nameless, "also in the middle of a request");
        assert!(visit.is_owners());
        assert_eq!(
            visit.patience(at(9_000_000)),
            Patience::Wait(Duration::from_secs(60)),
            "a log is followed"
        );
        drop(answering);
        visit.idle_since.store(at(100_000).0, Ordering::Relaxed);
        assert_eq!(visit.patience(at(159_000)), Patience::Wait(Duration::from_secs(1)));
        assert_eq!(visit.patience(at(160_000)), Patience::Idle);
    }

    #[test]
    fn strangers_ask_little_and_loopback_has_more_room() {
        let visitors = visitors(100, 2, 100);
        let visit = come(&visitors, HERE);
        let asked = (0..STRANGER_REQUESTS_MAX + 5).filter(|_| visit.may_ask_as_stranger()).count();
        assert_eq!(asked, STRANGER_REQUESTS_MAX as usize);
        assert!(visit.is_owners() && visit.may_ask_as_stranger());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(visitors.caps.of(Party::Stranger(address(HOME))), 2 * LOOPBACK_FACTOR);
        assert_eq!(household(address("2001:db8::1:2")), household(address("2001:db8::ffff:1")));
        assert_eq!(household(address("::ffff:192.0.2.1")), address(HERE));
        assert!(household(address("::1")).is_loopback());
    }

    #[test]
    fn a_process_with_few_files_takes_fewer_connections() {
        let caps = |files| Caps::new(Limits::default(), Some(files));
        assert_eq!((caps(1_024).all, caps(1_024).strangers), (896, 298));
        assert_eq!(caps(1_000_000).all, Limits::default().connections);
        assert_eq!(caps(64).all, 32);
    }
}
