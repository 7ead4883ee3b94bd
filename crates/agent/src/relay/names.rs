//! The job's `/etc/resolv.conf`, made from the machine's. Pure, but for reading a file.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use super::limits::{FILE_BYTES_MAX, RESOLVERS_MAX};

const PORT: u16 = 53;

/// A file of the machine's. One that is not there is empty.
pub(super) fn read(path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The machine's resolvers. One with a zone (`fe80::1%eth0`) is left out.
pub(super) fn resolvers(resolv_conf: &str) -> Vec<SocketAddr> {
    resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter(|rest| rest.starts_with(char::is_whitespace))
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, PORT))
        .take(RESOLVERS_MAX)
        .collect()
}

/// Where the machine searches for names, with our resolver for its own.
pub(super) fn resolv_conf(machine: &str, resolver: IpAddr) -> String {
    let mut text = format!("nameserver {resolver}\n");
    for line in machine.lines().map(str::trim) {
        if ["search", "domain", "options"].iter().any(|word| line.split_whitespace().next() == Some(word)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_of_the_machine() {
        let machine = "# systemd\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\n nameserver\t2001:db8::1 # x\n\
                       nameserverx 1.1.1.1\nsearch corp.example\noptions edns0 trust-ad\nnameserver 10.0.0.1\n\
                       nameserver 10.0.0.2\nsortlist 10.0.0.0\n";
        let found: Vec<String> = resolvers(machine).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.53:53", "[2001:db8::1]:53", "10.0.0.1:53"]);
        assert_eq!(
            resolv_conf(machine, "127.0.0.53".parse().unwrap()),
            "nameserver 127.0.0.53\nsearch corp.example\noptions edns0 trust-ad\n"
        );
        assert_eq!(resolvers(""), []);
    }
}
