//! Interfaces, addresses, routes and neighbours: the requests that the job network needs, and reading what is there.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::netlink::{Message, Netlink, attributes};

const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
const REPLACE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
const VETH_PEER: u16 = 1;
/// The neighbour is behind this interface, whatever its address.
const ONLINK: u32 = 4;
const INET: u8 = libc::AF_INET as u8;

/// One end of a pair of interfaces.
#[derive(Debug)]
pub(crate) struct End<'a> {
    pub name: &'a str,
    pub index: u32,
    pub mac: [u8; 6],
}

/// A pair of interfaces: one in the socket's namespace, which is up, the other in `there`. That one must be set up
/// afterwards, since at its making it has no partner yet.
pub(crate) fn create_pair(here: &End<'_>, other: &End<'_>, there: BorrowedFd<'_>, mtu: u32) -> Message {
    let describe = |message: Message, end: &End<'_>| {
        let name = [end.name.as_bytes(), b"\0"].concat();
        message
            .attribute(libc::IFLA_IFNAME, &name)
            .attribute(libc::IFLA_ADDRESS, &end.mac)
            .attribute(libc::IFLA_MTU, &mtu.to_ne_bytes())
    };
    let fd = there.as_raw_fd().to_ne_bytes();
    let message = Message::new(libc::RTM_NEWLINK, CREATE, &interface(here.index, libc::IFF_UP));
    describe(message, here).nest(libc::IFLA_LINKINFO, &[], |info| {
        info.attribute(libc::IFLA_INFO_KIND, b"veth").nest(libc::IFLA_INFO_DATA, &[], |data| {
            data.nest(VETH_PEER, &interface(other.index, 0), |peer| {
                describe(peer, other).attribute(libc::IFLA_NET_NS_FD, &fd)
            })
        })
    })
}

/// `ifinfomsg` of an interface, and the flags it is to have.
fn interface(index: u32, flags: i32) -> [u8; 16] {
    let up = (flags as u32).to_ne_bytes();
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&up);
    bytes[12..].copy_from_slice(&up);
    bytes
}

pub(crate) fn set_up(index: u32) -> Message {
    Message::new(libc::RTM_NEWLINK, 0, &interface(index, libc::IFF_UP))
}

/// Removes an interface, and its other end.
pub(crate) fn delete(index: u32) -> Message {
    Message::new(libc::RTM_DELLINK, 0, &interface(index, 0))
}

/// Gives an interface an address of its own, without a network around it.
pub(crate) fn add_address(index: u32, address: Ipv4Addr) -> Message {
    let mut head = [INET, 32, 0, libc::RT_SCOPE_UNIVERSE, 0, 0, 0, 0];
    head[4..].copy_from_slice(&index.to_ne_bytes());
    Message::new(libc::RTM_NEWADDR, REPLACE, &head)
        .attribute(libc::IFA_LOCAL, &address.octets())
        .attribute(libc::IFA_ADDRESS, &address.octets())
}

/// The same for IPv6.
pub(crate) fn add_address_v6(index: u32, address: std::net::Ipv6Addr) -> Message {
    let no_wait = libc::IFA_F_NODAD as u8;
    let mut head = [libc::AF_INET6 as u8, 128, no_wait, libc::RT_SCOPE_UNIVERSE, 0, 0, 0, 0];
    head[4..].copy_from_slice(&index.to_ne_bytes());
    Message::new(libc::RTM_NEWADDR, REPLACE, &head).attribute(libc::IFA_ADDRESS, &address.octets())
}

/// Who answers for `address` on an interface, once and for all: nobody asks by ARP.
pub(crate) fn add_neighbour(index: u32, address: Ipv4Addr, mac: [u8; 6]) -> Message {
    let mut head = [0; 12];
    head[0] = INET;
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
    Message::new(libc::RTM_NEWNEIGH, REPLACE, &head)
        .attribute(libc::NDA_DST, &address.octets())
        .attribute(libc::NDA_LLADDR, &mac)
}

/// Sends packets for a network through an interface, to the neighbour `via` where there is one. Refused (EEXIST) if the
/// network has a route.
pub(crate) fn add_route(network: Network, index: u32, via: Option<Ipv4Addr>) -> Message {
    let scope = if via.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
    let mut head = [
        INET,
        network.bits,
        0,
        0,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        scope,
        libc::RTN_UNICAST,
        0,
        0,
        0,
        0,
    ];
    if via.is_some() {
        head[8..].copy_from_slice(&ONLINK.to_ne_bytes());
    }
    let mut message = Message::new(libc::RTM_NEWROUTE, CREATE, &head);
    if network.bits > 0 {
        message = message.attribute(libc::RTA_DST, &network.first.octets());
    }
    if let Some(via) = via {
        message = message.attribute(libc::RTA_GATEWAY, &via.octets());
    }
    message.attribute(libc::RTA_OIF, &index.to_ne_bytes())
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(crate) struct Network {
    pub first: Ipv4Addr,
    pub bits: u8,
}

impl Network {
    pub(crate) fn one(address: Ipv4Addr) -> Self {
        Self { first: address, bits: 32 }
    }

    pub(crate) fn size(self) -> u64 {
        1 << (32 - u32::from(self.bits.min(32)))
    }

    /// The address at a place in it.
    pub(crate) fn address(self, place: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first).wrapping_add(place))
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        let shift = 32 - u32::from(self.bits.min(other.bits).min(32));
        let part = |address: Ipv4Addr| u64::from(u32::from(address)) >> shift;
        part(self.first) == part(other.first)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// An interface of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub index: u32,
    pub name: String,
    pub mtu: u32,
    /// `bridge`, `veth`…; none for hardware.
    pub kind: Option<String>,
}

/// A route of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub network: Network,
    pub link: u32,
    pub has_gateway: bool,
}

pub(crate) fn links(netlink: &mut Netlink) -> io::Result<Vec<Link>> {
    let answers = netlink.list(Message::new(libc::RTM_GETLINK, 0, &[0; 16]))?;
    Ok(answers
        .iter()
        .filter(|(kind, _)| *kind == libc::RTM_NEWLINK)
        .filter_map(|(_, body)| {
            let mut link = Link { index: number(body.get(4..8)?)?, name: String::new(), mtu: 0, kind: None };
            for (kind, value) in attributes(body.get(16..)?) {
                match kind {
                    libc::IFLA_IFNAME => link.name = text(value),
                    libc::IFLA_MTU => link.mtu = number(value)?,
                    libc::IFLA_LINKINFO => {
                        link.kind = attributes(value)
                            .find(|(kind, _)| *kind == libc::IFLA_INFO_KIND)
                            .map(|(_, value)| text(value));
                    }
                    _ => {}
                }
            }
            Some(link)
        })
        .collect())
}

/// All IPv4 addresses, each with the length of its network.
pub(crate) fn addresses(netlink: &mut Netlink) -> io::Result<Vec<Network>> {
    let answers = netlink.list(Message::new(libc::RTM_GETADDR, 0, &[INET, 0, 0, 0, 0, 0, 0, 0]))?;
    Ok(answers
        .iter()
        .filter(|(kind, _)| *kind == libc::RTM_NEWADDR)
        .filter_map(|(_, body)| {
            let bits = *body.get(1)?;
            let own = attributes(body.get(8..)?).find(|(kind, _)| *kind == libc::IFA_LOCAL)?;
            Some(Network { first: ipv4(own.1)?, bits })
        })
        .collect())
}

/// All IPv4 routes to other machines, of every table.
pub(crate) fn routes(netlink: &mut Netlink) -> io::Result<Vec<Route>> {
    let mut head = [0; 12];
    head[0] = INET;
    let answers = netlink.list(Message::new(libc::RTM_GETROUTE, 0, &head))?;
    Ok(answers
        .iter()
        .filter(|(kind, body)| *kind == libc::RTM_NEWROUTE && body.get(7) == Some(&libc::RTN_UNICAST))
        .filter_map(|(_, body)| {
            let mut route = Route {
                network: Network { first: Ipv4Addr::UNSPECIFIED, bits: *body.get(1)? },
                link: 0,
                has_gateway: false,
            };
            for (kind, value) in attributes(body.get(12..)?) {
                match kind {
                    libc::RTA_DST => route.network.first = ipv4(value)?,
                    libc::RTA_OIF => route.link = number(value)?,
                    libc::RTA_GATEWAY | libc::RTA_MULTIPATH | libc::RTA_VIA => route.has_gateway = true,
                    _ => {}
                }
            }
            Some(route)
        })
        .collect())
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

fn ipv4(value: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from)
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_overlap() {
        let network = |text: &str| {
            let (first, bits) = text.split_once('/').unwrap();
            Network { first: first.parse().unwrap(), bits: bits.parse().unwrap() }
        };
        for (one, other, expect) in [
            ("10.0.0.0/8", "10.1.2.0/24", true),
            ("10.1.2.0/24", "10.0.0.0/8", true),
            ("198.18.0.0/19", "198.18.32.0/19", false),
            ("0.0.0.0/0", "198.18.32.0/19", true),
            ("198.18.31.255/32", "198.18.0.0/19", true),
        ] {
            assert_eq!(network(one).overlaps(network(other)), expect, "{one} {other}");
        }
        assert_eq!(network("198.18.32.0/19").address(258).to_string(), "198.18.33.2");
        assert_eq!(network("198.18.32.0/19").size(), 8192);
    }
}
