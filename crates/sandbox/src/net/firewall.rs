//! Other firewalls of the host. A packet must pass all of them: where one drops what is forwarded unless told
//! otherwise, we add our exception in the place it leaves for others, or say what its owner has to add.

use std::io;

use serde_json::Value;

use super::programs::{find, run};

/// What was found and done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Exceptions {
    /// Chains of iptables that hold our exception now.
    pub chains: Vec<String>,
    /// Sentences about firewalls that still stand in the way.
    pub missing: Vec<String>,
}

/// Makes sure that the host's other firewalls let the interface's packets pass.
pub(crate) fn make_exceptions(interface: &str, own_table: &str) -> io::Result<Exceptions> {
    let mut found = Exceptions::default();
    let listing = if find("iptables").is_some() { run("iptables", &["-S"], "").ok() } else { None };
    if let Some(listing) = &listing {
        match iptables_obstacle(listing) {
            Obstacle::None => {}
            Obstacle::Chain(chain) => {
                for rule in accept_rules(interface) {
                    if iptables("-C", chain, rule).is_err() {
                        iptables("-I", chain, rule)?;
                    }
                }
                found.chains.push(chain.to_owned());
            }
            Obstacle::Unknown => {
                if !accept_rules(interface).into_iter().all(|rule| iptables("-C", "FORWARD", rule).is_ok()) {
                    found.missing.push(format!(
                        "Jobs do not reach the outside: the chain FORWARD of iptables drops what it does not know. \
                         Run `iptables -I FORWARD -i {interface} -j ACCEPT` and \
                         `iptables -I FORWARD -o {interface} -j ACCEPT`, and keep them in its configuration."
                    ));
                }
            }
        }
    }
    let chains = run("nft", &["-j", "list", "chains"], "")?;
    for (family, table, chain) in nft_obstacles(&chains, own_table) {
        if table == "firewalld" {
            let ask = run("firewall-cmd", &["--zone=trusted", &format!("--query-interface={interface}")], "");
            let add =
                |_| run("firewall-cmd", &["--zone=trusted", &format!("--add-interface={interface}")], "");
            if ask.or_else(add).is_err() {
                found.missing.push(format!(
                    "Jobs do not reach the outside: firewalld does not know the interface {interface}. \
                     Run `firewall-cmd --permanent --zone=trusted --add-interface={interface}` and \
                     `firewall-cmd --reload`."
                ));
            }
        } else {
            found.missing.push(format!(
                "Jobs do not reach the outside: the chain {chain} of the nftables table {family} {table} drops what \
                 it does not know. Add `iifname \"{interface}\" accept` and `oifname \"{interface}\" accept` to it."
            ));
        }
    }
    Ok(found)
}

/// Takes our exceptions back.
pub(crate) fn remove_exceptions(interface: &str, chains: &[String]) {
    for chain in chains {
        for rule in accept_rules(interface) {
            // Its owner may have removed it.
            let _ = iptables("-D", chain, rule);
        }
    }
}

fn iptables(action: &str, chain: &str, rule: [&str; 4]) -> io::Result<String> {
    // Waits for another who changes the rules at the same time, up to five seconds.
    let args: Vec<&str> = ["-w", "5", action, chain].into_iter().chain(rule).collect();
    run("iptables", &args, "")
}

/// What our own table has judged already needs no second judgement.
fn accept_rules(interface: &str) -> [[&str; 4]; 2] {
    [["-i", interface, "-j", "ACCEPT"], ["-o", interface, "-j", "ACCEPT"]]
}

#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    None,
    /// Forwarded packets are dropped, except for what this chain accepts.
    Chain(&'static str),
    Unknown,
}

/// Reads `iptables -S`.
fn iptables_obstacle(listing: &str) -> Obstacle {
    let drops_all = ["-P FORWARD DROP", "-A FORWARD -j DROP", "-A FORWARD -j REJECT"];
    if !listing.lines().any(|line| drops_all.iter().any(|drop| line.starts_with(drop))) {
        return Obstacle::None;
    }
    // Docker asks others to put their rules into its chain; ufw's `route allow` ends in the other.
    ["DOCKER-USER", "ufw-user-forward"]
        .into_iter()
        .find(|chain| {
            listing.lines().any(|line| line == format!("-N {chain}"))
                && listing
                    .lines()
                    .any(|line| line.starts_with("-A") && line.ends_with(&format!("-j {chain}")))
        })
        .map_or(Obstacle::Unknown, Obstacle::Chain)
}

/// Reads `nft -j list chains`: base chains that drop forwarded packets by default. Those of iptables are not among
/// them, nor are ours.
fn nft_obstacles(listing: &str, own_table: &str) -> Vec<(String, String, String)> {
    let Ok(Value::Object(all)) = serde_json::from_str(listing) else { return Vec::new() };
    let text = |chain: &Value, key: &str| chain[key].as_str().unwrap_or_default().to_owned();
    all.get("nftables")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("chain"))
        .filter(|chain| chain["hook"] == "forward" && matches!(chain["family"].as_str(), Some("ip" | "inet")))
        .filter(|chain| {
            chain["policy"] == "drop" || (chain["table"] == "firewalld" && chain["name"] == "filter_FORWARD")
        })
        .filter(|chain| {
            !(chain["family"] == "ip" && chain["table"] == "filter" && chain["name"] == "FORWARD")
        })
        .filter(|chain| chain["table"] != own_table)
        .map(|chain| (text(chain, "family"), text(chain, "table"), text(chain, "name")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacles_of_iptables() {
        let docker = "-P INPUT ACCEPT\n-P FORWARD DROP\n-N DOCKER-USER\n-A FORWARD -j DOCKER-USER\n";
        let ufw = "-P FORWARD DROP\n-N ufw-user-forward\n-A ufw-before-forward -j ufw-user-forward\n";
        for (listing, expect) in [
            ("-P FORWARD ACCEPT\n", Obstacle::None),
            (docker, Obstacle::Chain("DOCKER-USER")),
            (ufw, Obstacle::Chain("ufw-user-forward")),
            ("-P FORWARD DROP\n-N DOCKER-USER\n", Obstacle::Unknown),
            (
                "-P FORWARD ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-host-prohibited\n",
                Obstacle::Unknown,
            ),
        ] {
            assert_eq!(iptables_obstacle(listing), expect, "{listing}");
        }
    }

    #[test]
    fn obstacles_of_nftables() {
        let listing = r#"{"nftables": [{"metainfo": {}},
            {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "drop"}},
            {"chain": {"family": "inet", "table": "neap_1", "name": "forward", "hook": "forward", "policy": "drop"}},
            {"chain": {"family": "inet", "table": "filter", "name": "fwd", "hook": "forward", "policy": "drop"}},
            {"chain": {"family": "inet", "table": "filter", "name": "in", "hook": "input", "policy": "drop"}},
            {"chain": {"family": "inet", "table": "firewalld", "name": "filter_FORWARD", "hook": "forward", "policy": "accept"}}]}"#;
        let found: Vec<String> = nft_obstacles(listing, "neap_1")
            .into_iter()
            .map(|(_, table, chain)| table + " " + &chain)
            .collect();
        assert_eq!(found, ["filter fwd", "firewalld filter_FORWARD"]);
        assert!(nft_obstacles("no json", "neap_1").is_empty());
    }
}
