//! The installation's router: a network namespace between its jobs and the host. Set up once, kept right, removed.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use super::limits::{
    GATEWAY, HOST_MAC, MTU_DEFAULT, ROUTER_MAC, SUBNET_BITS, SUBNETS_FIRST, SUBNETS_THEN, UPLINK,
};
use super::links::{self, End, Network};
use super::netlink::{Message, Netlink, attributes};
use super::place::{Place, Record};
use super::programs::{find, run};
use super::{firewall, namespace, rules};

const CONF: &str = "/proc/sys/net/ipv4/conf";

/// Where the numbers of the host's interfaces towards routers begin, and how many there are; the router's own.
const HOST_NUMBERS: u32 = 0x1000_0000;
const UPLINK_NUMBER: u32 = 0x0800_0000;
const APPLY_TRIES_MAX: u32 = 20;

/// Why jobs have no network beyond their own loopback.
#[derive(Debug, thiserror::Error)]
pub enum Absent {
    #[error("Jobs have no outbound network: only root can connect a job's network to this machine's.")]
    NotRoot,
    #[error(
        "Jobs have no outbound network: the program `nft` is not installed. Install the package nftables."
    )]
    NoNft,
    #[error(
        "Jobs have no outbound network: {step} failed ({source}). The kernel needs veth, nftables and NAT."
    )]
    Failed { step: &'static str, source: io::Error },
}

fn at(step: &'static str) -> impl Fn(io::Error) -> Absent {
    move |source| Absent::Failed { step, source }
}

/// What [`ensure`] and [`heal`] found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The host's rules had to be written.
    pub healed: bool,
    /// Sentences for people about what keeps jobs from the outside.
    pub missing: Vec<String>,
}

/// Sets up the router, its link to the host and the rules of both, as far as they are not there.
///
/// *Guarantees*: safe to repeat, and from several processes at once. *Assumptions*: the calling thread is in the host's
/// network namespace, and SIGCHLD has its default disposition, since programs are run.
pub fn ensure(place: &Place) -> Result<Health, Absent> {
    if !rustix::process::geteuid().is_root() {
        return Err(Absent::NotRoot);
    }
    if find("nft").is_none() {
        return Err(Absent::NoNft);
    }
    place.create().map_err(at("making the network's folder"))?;
    let _lock = place.lock().map_err(at("locking the network's folder"))?;
    let mut host = Netlink::route().map_err(at("asking the kernel for its interfaces"))?;
    let record = match standing(place, &mut host).map_err(at("looking at the router"))? {
        Some(record) => record,
        None => build(place, &mut host)?,
    };
    heal_record(place, record).map_err(at("writing the firewall's rules"))
}

/// Writes the host's rules again if somebody has removed or changed them, sets up the router anew if it lost its link,
/// and follows changes of the host's addresses and interfaces. Cheap when there is nothing to do. The same assumptions.
pub fn heal(place: &Place) -> io::Result<Health> {
    let _lock = place.lock()?;
    if place.record()?.is_none() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the network is not set up"));
    }
    let mut host = Netlink::route()?;
    let record = match standing(place, &mut host)? {
        Some(record) => record,
        None => build(place, &mut host).map_err(io::Error::other)?,
    };
    heal_record(place, record)
}

/// What is certain to keep jobs of this user from the outside, before anything was set up: sentences for people.
pub fn hindrances() -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        vec![Absent::NotRoot.to_string()]
    } else if find("nft").is_none() {
        vec![Absent::NoNft.to_string()]
    } else {
        Vec::new()
    }
}

/// Sentences for people about what keeps jobs from the outside, without changing anything.
pub fn missing(place: &Place) -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        vec![Absent::NotRoot.to_string()]
    } else if find("nft").is_none() {
        vec![Absent::NoNft.to_string()]
    } else {
        place.record().ok().flatten().map_or_else(Vec::new, |record| record.missing)
    }
}

/// Ends the network of an installation. Jobs that still run lose theirs.
pub fn remove(place: &Place) -> io::Result<()> {
    if !place.dir().exists() {
        return Ok(());
    }
    let lock = place.lock()?;
    super::ranks::release_all(place)?;
    if let Some(record) = place.record()? {
        firewall::remove_exceptions(&place.interface(), &record.accepted_in);
        if record.generation.is_some() {
            let table = place.table();
            run("nft", &["-f", "-"], &format!("table inet {table} {{}}\ndelete table inet {table}\n"))?;
        }
        let others = place.other_records();
        for name in &record.made_forwarding {
            if !others.iter().any(|other| other.made_forwarding.contains(name)) {
                // The interface may be gone.
                let _ = fs::write(format!("{CONF}/{name}/forwarding"), "0");
            }
        }
    }
    namespace::release(&place.router_pin())?;
    delete_link(&mut Netlink::route()?, &place.interface())?;
    place.remove()?;
    drop(lock);
    Ok(())
}

/// The record, if what it describes is there.
fn standing(place: &Place, host: &mut Netlink) -> io::Result<Option<Record>> {
    let Some(record) = place.record()? else { return Ok(None) };
    let Some(router) = namespace::open_pinned(&place.router_pin())? else { return Ok(None) };
    let interface = place.interface();
    if !links::links(host)?.iter().any(|link| link.name == interface) {
        return Ok(None);
    }
    if record.router_rules != rules::router(record.subnet) {
        // Written by another version of this program.
        let mut record = record;
        record.router_rules = rules::router(record.subnet);
        record.host_addresses.clear();
        namespace::inside(router.as_fd(), || run("nft", &["-f", "-"], &record.router_rules))?;
        place.write(&record)?;
        return Ok(Some(record));
    }
    Ok(Some(record))
}

fn build(place: &Place, host: &mut Netlink) -> Result<Record, Absent> {
    namespace::release(&place.router_pin()).map_err(at("removing a former router"))?;
    let interface = place.interface();
    delete_link(host, &interface).map_err(at("removing a former link"))?;
    let record = claim_subnet(place, host)?;
    let subnet = record.subnet;
    let router = namespace::create_pinned(&place.router_pin()).map_err(at("making a network namespace"))?;

    let mut inner = namespace::inside(router.as_fd(), || {
        harden("all")?;
        harden("default")?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        // Refusals are answered at once, each of them; only the refused job hears them.
        fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0")?;
        // The router knows no IPv6; a kernel without it needs no switch.
        let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        Netlink::route()
    })
    .map_err(at("making the namespace a router"))?;
    namespace::inside(router.as_fd(), || run("nft", &["-f", "-"], &record.router_rules))
        .map_err(at("writing the router's rules"))?;

    let linking = at("linking the router to the host");
    // Numbers that differ, as in `attach`.
    let index = HOST_NUMBERS + place.number() % HOST_NUMBERS;
    let here = End { name: &interface, index, mac: HOST_MAC };
    let there = End { name: UPLINK, index: UPLINK_NUMBER, mac: ROUTER_MAC };
    host.change([links::create_pair(&here, &there, router.as_fd(), record.mtu)]).map_err(&linking)?;
    harden(&interface).map_err(&linking)?;
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1");
    let router_address = subnet.address(1);
    inner
        .change([
            links::set_up(UPLINK_NUMBER),
            links::add_address(UPLINK_NUMBER, router_address),
            links::add_neighbour(UPLINK_NUMBER, GATEWAY, HOST_MAC),
            links::add_route(Network { first: [0, 0, 0, 0].into(), bits: 0 }, UPLINK_NUMBER, Some(GATEWAY)),
        ])
        .map_err(&linking)?;
    // The rules come before the way out.
    let record = heal_addresses(place, record).map_err(at("writing the firewall's rules"))?;
    host.change([
        links::add_neighbour(index, router_address, ROUTER_MAC),
        links::add_route(subnet, index, Some(router_address)),
    ])
    .map_err(&linking)?;
    fs::write(format!("{CONF}/{interface}/forwarding"), "1").map_err(&linking)?;
    Ok(record)
}

/// Sources must be where their answers would go; nobody changes anybody's routes.
fn harden(interface: &str) -> io::Result<()> {
    for (name, value) in [("rp_filter", "1"), ("accept_redirects", "0"), ("send_redirects", "0")] {
        fs::write(format!("{CONF}/{interface}/{name}"), value)?;
    }
    Ok(())
}

fn index_of(netlink: &mut Netlink, name: &str) -> io::Result<u32> {
    let found = links::links(netlink)?.into_iter().find(|link| link.name == name);
    found.map(|link| link.index).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Takes the host's interface away. It would go with the router, but somebody may still hold on to that. This takes
/// the kernel tens of milliseconds, so it is done for no job.
fn delete_link(host: &mut Netlink, interface: &str) -> io::Result<()> {
    match index_of(host, interface) {
        Ok(index) => host.change([links::delete(index)]),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

fn claim_subnet(place: &Place, host: &mut Netlink) -> Result<Record, Absent> {
    let choosing = at("choosing a subnet");
    let _lock = place.lock_all().map_err(&choosing)?;
    let routes = links::routes(host).map_err(&choosing)?;
    let mut used: Vec<Network> = routes.iter().map(|route| route.network).collect();
    used.extend(links::addresses(host).map_err(&choosing)?);
    used.extend(place.other_records().iter().map(|record| record.subnet));
    let subnet = rules::free_subnet(&[SUBNETS_FIRST, SUBNETS_THEN], SUBNET_BITS, &used, place.number())
        .ok_or_else(|| choosing(io::Error::other("198.18.0.0/15 and 10.128.0.0/9 are in use")))?;
    let links = links::links(host).map_err(&choosing)?;
    let mtu = routes
        .iter()
        .filter(|route| route.network.bits == 0)
        .filter_map(|route| links.iter().find(|link| link.index == route.link))
        .map(|link| link.mtu)
        .min();
    let record = Record {
        subnet,
        mtu: mtu.unwrap_or(MTU_DEFAULT).clamp(1280, 65535),
        router_rules: rules::router(subnet),
        host_addresses: String::new(),
        host_rules: String::new(),
        host_listing: String::new(),
        generation: None,
        made_forwarding: Vec::new(),
        accepted_in: Vec::new(),
        missing: Vec::new(),
    };
    place.write(&record).map_err(&choosing)?;
    Ok(record)
}

fn heal_record(place: &Place, record: Record) -> io::Result<Health> {
    let before = record.clone();
    let mut record = heal_addresses(place, record)?;
    let mut healed = false;
    let mut netfilter = Netlink::netfilter()?;
    // Read before the rules are: a change in between is seen the next time.
    let now = generation(&mut netfilter)?;
    if record.generation != Some(now) || record.host_rules != before.host_rules {
        let table = place.table();
        let list = || run("nft", &["list", "table", "inet", &table], "");
        let is_right = record.host_rules == before.host_rules
            && !record.host_listing.is_empty()
            && list().is_ok_and(|listing| listing == record.host_listing);
        record.generation = Some(now);
        if !is_right {
            let (listing, applied) = apply(&record.host_rules, &mut netfilter, list)?;
            record.host_listing = listing;
            record.generation = Some(applied);
            healed = true;
        }
        let exceptions = firewall::make_exceptions(&place.interface(), &table)?;
        record.accepted_in = exceptions.chains;
        record.missing = exceptions.missing;
    }
    if record != before {
        place.write(&record)?;
    }
    Ok(Health { healed, missing: record.missing })
}

/// Writes the rules: what `nft` lists of them afterwards, and the kernel's number. The listing is what later looks are
/// compared with, so it counts only if nobody else changed anything meanwhile.
fn apply(
    rules: &str,
    netfilter: &mut Netlink,
    list: impl Fn() -> io::Result<String>,
) -> io::Result<(String, u32)> {
    for _ in 0..APPLY_TRIES_MAX {
        let before = generation(netfilter)?;
        run("nft", &["-f", "-"], rules)?;
        let listing = list()?;
        let after = generation(netfilter)?;
        if after == before.wrapping_add(1) {
            return Ok((listing, after));
        }
    }
    Err(io::Error::other("another program keeps changing the firewall's rules"))
}

/// Follows the host's interfaces and addresses: the router's set is brought up to date, the host's rules are only
/// worked out.
fn heal_addresses(place: &Place, mut record: Record) -> io::Result<Record> {
    let mut host = Netlink::route()?;
    let outward = rules::outward(&links::links(&mut host)?, &links::routes(&mut host)?);
    let all_forward = forwards("all");
    for name in outward.iter().filter(|_| !all_forward) {
        let path = format!("{CONF}/{name}/forwarding");
        let by_another = place.other_records().iter().any(|other| other.made_forwarding.contains(name));
        let is_off = !forwards(name);
        if is_off {
            fs::write(path, "1")?;
        }
        if (is_off || by_another) && !record.made_forwarding.contains(name) {
            record.made_forwarding.push(name.clone());
        }
    }
    let made = if all_forward { &[][..] } else { &record.made_forwarding };
    record.host_rules = rules::host(&place.table(), &place.interface(), record.subnet, &outward, made);
    let addresses = rules::router_host_addresses(&links::addresses(&mut host)?);
    if addresses != record.host_addresses
        && let Some(router) = namespace::open_pinned(&place.router_pin())?
    {
        namespace::inside(router.as_fd(), || run("nft", &["-f", "-"], &addresses))?;
        record.host_addresses = addresses;
    }
    Ok(record)
}

fn forwards(interface: &str) -> bool {
    fs::read_to_string(format!("{CONF}/{interface}/forwarding")).is_ok_and(|text| text.trim() == "1")
}

/// A number that the kernel counts up with every change of the host's rules, by anybody.
fn generation(netfilter: &mut Netlink) -> io::Result<u32> {
    const GET: u16 = ((libc::NFNL_SUBSYS_NFTABLES as u16) << 8) | libc::NFT_MSG_GETGEN as u16;
    let answer = netfilter.get(Message::new(GET, 0, &[0, 0, 0, 0]))?.unwrap_or_default();
    attributes(answer.get(4..).unwrap_or_default())
        .find(|(kind, _)| *kind == 1)
        .and_then(|(_, value)| Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?)))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
