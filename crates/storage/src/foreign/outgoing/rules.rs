//! What the configuration allows beside the public internet (`outgoing.allow`), and the refusal of everything else.

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;

use super::address::{is_public, same_prefix_v4, same_prefix_v6};

/// One entry of `outgoing.allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// This host, whatever it resolves to.
    Host(String),
    /// Every address of a network; one address is a network too.
    Network { address: IpAddr, bits: u8 },
}

impl Allowed {
    /// Reads `10.1.0.0/16`, `127.0.0.1`, `fd00::/8` or `minio.corp.example`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' must be an address, a network such as 10.1.0.0/16, or a host name");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        if let Ok(address) = address.trim_matches(['[', ']']).parse::<IpAddr>() {
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            let bits = match bits {
                None => bits_max,
                Some(bits) => bits.parse::<u8>().ok().filter(|b| *b <= bits_max).ok_or_else(wrong)?,
            };
            return Ok(Self::Network { address, bits });
        }
        let name = host_name(text);
        let is_host = !name.is_empty()
            && name.len() <= 253
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
        if is_host { Ok(Self::Host(name)) } else { Err(wrong()) }
    }

    fn has_address(&self, asked: IpAddr) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Network { address: IpAddr::V4(net), bits } => match asked.to_canonical() {
                IpAddr::V4(asked) => same_prefix_v4(asked, *net, *bits),
                IpAddr::V6(_) => false,
            },
            Self::Network { address: IpAddr::V6(net), bits } => match asked {
                IpAddr::V6(asked) => same_prefix_v6(asked, *net, *bits),
                IpAddr::V4(_) => false,
            },
        }
    }
}

/// What may be connected to: the public internet, and what is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingRules {
    pub allow: Vec<Allowed>,
}

impl OutgoingRules {
    fn has_host(&self, name: &str) -> bool {
        let name = host_name(name);
        self.allow.iter().any(|allowed| matches!(allowed, Allowed::Host(host) if *host == name))
    }

    fn has_address(&self, address: IpAddr) -> bool {
        is_public(address) || self.allow.iter().any(|allowed| allowed.has_address(address))
    }

    /// The addresses of a host that may be connected to; refused if none is left.
    pub fn permitted(
        &self,
        host: &str,
        found: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, Refused> {
        let is_listed = self.has_host(host);
        let permitted: Vec<_> =
            found.into_iter().filter(|at| is_listed || self.has_address(at.ip())).collect();
        if permitted.is_empty() { Err(Refused::host(host)) } else { Ok(permitted) }
    }

    /// Refuses an address that is written out in a URL. `Url` has turned every spelling (decimal, octal, hexadecimal, a
    /// trailing dot) into the usual one. A name is checked when it is resolved.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused(format!("'{}:' is not a scheme that is fetched", url.scheme())));
        }
        let host = url.host_str().ok_or_else(Refused::not_a_url)?;
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) if !self.has_address(address) => Err(Refused::host(host)),
            _ => Ok(()),
        }
    }
}

/// As names are compared.
fn host_name(text: &str) -> String {
    text.trim_end_matches('.').to_ascii_lowercase()
}

/// A place that the server does not connect to. It does not say what a name resolves to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

impl Refused {
    pub(super) fn not_a_url() -> Self {
        Self("the endpoint is not a valid URL".into())
    }

    fn host(host: &str) -> Self {
        Self(format!(
            "'{host}' is not on the public internet, and 'outgoing.allow' in the server's configuration does not list it"
        ))
    }

    /// The refusal inside of an error of a library.
    pub fn in_chain(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found.clone());
            }
            next = error.source();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str]) -> OutgoingRules {
        OutgoingRules { allow: allow.iter().map(|text| Allowed::parse(text).unwrap()).collect() }
    }

    #[test]
    fn entries_are_read() {
        for bad in ["", "a b", "http://h", "10.0.0.0/33", "10.0.0.0/x", "host/8", "::/129", "h:80"] {
            assert!(Allowed::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Allowed::parse("MinIO.corp."), Ok(Allowed::Host("minio.corp".into())));
    }

    #[test]
    fn an_address_in_a_url_is_checked_in_every_spelling() {
        let none = rules(&[]);
        for (url, expect) in [
            ("http://8.8.8.8/x", true),
            ("https://example.com/x", true),
            ("http://127.0.0.1/x", false),
            ("http://127.1:81/x", false),
            ("http://127.0.0.1./x", false),
            ("http://2130706433/", false),
            ("http://0x7f000001/", false),
            ("http://0177.0.0.1/", false),
            ("http://0/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:169.254.169.254]/", false),
            ("http://[fe80::1]/", false),
            ("http://\u{ff11}27.0.0.1/", false),
            ("http://8.8.8.8@127.0.0.1/", false),
            ("ftp://8.8.8.8/", false),
            ("file:///etc/passwd", false),
        ] {
            assert_eq!(none.check_url(&url.parse().unwrap()).is_ok(), expect, "{url}");
        }
    }

    #[test]
    fn names_are_held_to_what_they_resolve_to() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        let check = |allow: &[&str], host: &str, found: &[&str], expect: &[&str]| {
            let permitted = rules(allow).permitted(host, found.iter().map(|text| at(text)));
            let expect: Vec<_> = expect.iter().map(|text| at(text)).collect();
            assert_eq!(permitted.unwrap_or_default(), expect, "{host} {found:?}");
        };
        check(&[], "h", &["8.8.8.8"], &["8.8.8.8"]);
        check(&[], "h", &["10.0.0.1", "8.8.8.8"], &["8.8.8.8"]);
        check(&[], "h", &["10.0.0.1", "::1"], &[]);
        check(&["10.0.0.0/8"], "h", &["10.0.0.1", "::1"], &["10.0.0.1"]);
        check(&["127.0.0.1"], "localhost", &["::1", "127.0.0.1"], &["127.0.0.1"]);
        check(&["127.0.0.1"], "h", &["127.0.0.2"], &[]);
        check(&["127.0.0.0/8"], "h", &["::ffff:127.0.0.2"], &["::ffff:127.0.0.2"]);
        check(&["fd00::/8"], "h", &["fd12::1", "fe80::1"], &["fd12::1"]);
        check(&["store.corp"], "STORE.corp.", &["10.0.0.1"], &["10.0.0.1"]);
        check(&["store.corp"], "other.corp", &["10.0.0.1"], &[]);
        check(&["0.0.0.0/0"], "h", &["169.254.169.254"], &["169.254.169.254"]);
        let refused = rules(&[]).permitted("inside", [at("10.0.0.1")]).unwrap_err().to_string();
        assert!(refused.contains("inside") && !refused.contains("10.0.0.1"), "{refused}");
    }
}
