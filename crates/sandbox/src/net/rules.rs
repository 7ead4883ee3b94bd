//! The packet filter's rules, as text for `nft`. Pure.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::limits::{CONNECTIONS_PER_JOB_MAX, UPLINK};
use super::links::{Link, Network, Route};

/// What no job may reach, wherever it is: this host and its network by special addresses, the metadata services of
/// clouds (with their credentials), multicast, and what is reserved.
pub const CLOSED: [&str; 8] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.0/4",
    "240.0.0.0/4",
];

/// The router's rules. They stand in a namespace of their own, where no firewall of the host can flush them.
///
/// Named networks with rules of their own would be further chains here, chosen by `ip saddr`.
pub(crate) fn router(subnet: Network) -> String {
    let closed = CLOSED.join(", ");
    format!(
        r#"table inet neap {{}}
delete table inet neap
table inet neap {{
  set closed {{ type ipv4_addr; flags interval; elements = {{ {closed}, {subnet} }}; }}
  set host {{ type ipv4_addr; }}
  set connections {{ type ipv4_addr; size 65535; flags dynamic; }}
  chain input {{ type filter hook input priority 0; policy drop; }}
  chain forward {{ type filter hook forward priority 0; policy drop;
    iifname "{UPLINK}" ct state established,related accept
    iifname "{UPLINK}" drop
    meta nfproto != ipv4 drop
    ip saddr != {subnet} drop
    ip daddr @closed reject with icmp type admin-prohibited
    ip daddr @host reject with icmp type admin-prohibited
    ct state invalid drop
    ct state new add @connections {{ ip saddr ct count over {CONNECTIONS_PER_JOB_MAX} }} reject with icmp type admin-prohibited
    oifname "{UPLINK}" accept
  }}
}}
"#
    )
}

/// Fills the router's set of the host's addresses.
pub(crate) fn router_host_addresses(addresses: &[Network]) -> String {
    let mut own: Vec<Ipv4Addr> =
        addresses.iter().map(|a| a.first).filter(|a| !a.is_loopback() && !a.is_link_local()).collect();
    own.sort_unstable();
    own.dedup();
    let mut text = "flush set inet neap host\n".to_owned();
    if !own.is_empty() {
        let list = own.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "add element inet neap host {{ {list} }}");
    }
    text
}

/// The host's rules: a table of their own, beside those of Docker, ufw and firewalld. `outward` are the interfaces
/// that lead to other machines; `made_forwarding` those that forward only because we need it.
pub(crate) fn host(
    table: &str,
    interface: &str,
    subnet: Network,
    outward: &[String],
    made_forwarding: &[String],
) -> String {
    let closed = CLOSED.join(", ");
    let to_outside = match quoted(outward) {
        Some(names) => format!(r#"iifname "{interface}" oifname != {names} drop"#),
        None => format!(r#"iifname "{interface}" drop"#),
    };
    // The machine was no router for its neighbours before, and is none now.
    let still_no_router = match quoted(made_forwarding) {
        Some(names) => format!(r#"iifname {names} oifname != "neap-*" drop"#),
        None => String::new(),
    };
    format!(
        r#"table inet {table} {{}}
delete table inet {table}
table inet {table} {{
  chain input {{ type filter hook input priority -150; policy accept;
    iifname "{interface}" drop
  }}
  chain output {{ type filter hook output priority -150; policy accept;
    oifname "{interface}" ct state new drop
  }}
  chain forward {{ type filter hook forward priority -150; policy accept;
    oifname "{interface}" ct state established,related accept
    oifname "{interface}" drop
    iifname "{interface}" ip saddr != {subnet} drop
    iifname "{interface}" meta nfproto != ipv4 drop
    iifname "{interface}" ip daddr {{ {closed} }} drop
    iifname "{interface}" ct status dnat drop
    {to_outside}
    {still_no_router}
  }}
  chain outward {{ type nat hook postrouting priority 100; policy accept;
    ip saddr {subnet} oifname != "{interface}" masquerade
  }}
}}
"#
    )
}

fn quoted(names: &[String]) -> Option<String> {
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    (!names.is_empty()).then(|| format!("{{ {} }}", names.join(", ")))
}

/// The interfaces that lead to other machines. Bridges and pairs without a gateway behind them lead to containers and
/// virtual machines of this host.
pub(crate) fn outward(links: &[Link], routes: &[Route]) -> Vec<String> {
    let local = ["bridge", "veth", "dummy", "ifb", "netkit"];
    let mut names: Vec<String> = links
        .iter()
        .filter(|link| link.name != "lo" && link.name.chars().all(is_plain))
        .filter(|link| {
            let mut through = routes.iter().filter(|route| route.link == link.index).peekable();
            let is_local = link.kind.as_deref().is_some_and(|kind| local.contains(&kind));
            if is_local {
                !link.name.starts_with("neap-") && through.any(|route| route.has_gateway)
            } else {
                through.peek().is_some()
            }
        })
        .map(|link| link.name.clone())
        .collect();
    names.sort_unstable();
    names
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | ':')
}

/// A subnet that no route and no other installation uses. `start` spreads installations over the range.
pub(crate) fn free_subnet(
    ranges: &[(Ipv4Addr, u8)],
    bits: u8,
    used: &[Network],
    start: u32,
) -> Option<Network> {
    ranges.iter().find_map(|(first, range_bits)| {
        let count = 1_u32 << (bits - range_bits);
        (0..count)
            .map(|step| {
                let number = (start.wrapping_add(step)) % count;
                let place = number << (32 - bits);
                Network { first: Ipv4Addr::from(u32::from(*first) + place), bits }
            })
            .find(|subnet| !used.iter().any(|other| other.bits > 0 && other.overlaps(*subnet)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::limits::{SUBNET_BITS, SUBNETS_FIRST, SUBNETS_THEN};

    fn link(index: u32, name: &str, kind: Option<&str>) -> Link {
        Link { index, name: name.into(), mtu: 1500, kind: kind.map(Into::into) }
    }

    fn route(link: u32, has_gateway: bool) -> Route {
        Route { network: Network { first: Ipv4Addr::new(10, 0, 0, 0), bits: 8 }, link, has_gateway }
    }

    #[test]
    fn outward_interfaces() {
        let links = [
            link(1, "lo", None),
            link(2, "eth0", None),
            link(3, "eth1", None),
            link(4, "docker0", Some("bridge")),
            link(5, "br0", Some("bridge")),
            link(6, "wg0", Some("wireguard")),
            link(7, "neap-1", Some("veth")),
            link(8, "unused", None),
            link(9, "odd\"name", None),
        ];
        let routes = [
            route(2, true),
            route(3, false),
            route(4, false),
            route(5, true),
            route(6, false),
            route(7, true),
            route(9, true),
        ];
        assert_eq!(outward(&links, &routes), ["br0", "eth0", "eth1", "wg0"]);
    }

    #[test]
    fn subnets_do_not_collide() {
        let ranges = [SUBNETS_FIRST, SUBNETS_THEN];
        let mut used = vec![Network { first: Ipv4Addr::UNSPECIFIED, bits: 0 }];
        for n in 0..16 {
            let subnet = free_subnet(&ranges, SUBNET_BITS, &used, 5).unwrap();
            assert!(subnet.to_string().starts_with("198.1"), "{n}: {subnet}");
            assert!(!used.iter().any(|other| other.bits > 0 && other.overlaps(subnet)));
            used.push(subnet);
        }
        let subnet = free_subnet(&ranges, SUBNET_BITS, &used, 5).unwrap();
        assert_eq!(subnet.to_string(), "10.128.160.0/19");
        used.push(Network { first: Ipv4Addr::new(10, 0, 0, 0), bits: 8 });
        assert_eq!(free_subnet(&ranges, SUBNET_BITS, &used, 5), None);
    }

    #[test]
    fn host_rules_name_what_leads_out() {
        let subnet = Network { first: Ipv4Addr::new(198, 18, 0, 0), bits: 19 };
        let text = host("neap_1", "neap-1", subnet, &["eth0".into()], &["eth0".into()]);
        assert!(text.contains(r#"iifname "neap-1" oifname != { "eth0" } drop"#), "{text}");
        assert!(text.contains(r#"iifname { "eth0" } oifname != "neap-*" drop"#), "{text}");
        let alone = host("neap_1", "neap-1", subnet, &[], &[]);
        assert!(alone.contains("    iifname \"neap-1\" drop\n"), "{alone}");
    }
}
