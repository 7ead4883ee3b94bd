//! The authority against real TLS verification, by value of `now`.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{ServerName, UnixTime};

use super::*;
use crate::NodeKey;

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86_400;

fn open(folder: &Path, hosts: &[&str], now_s: i64) -> Authority {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    Authority::open(folder, &hosts, now_s).unwrap()
}

fn at(now_s: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now_s).unwrap()))
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.ca_der().clone()).unwrap();
    Arc::new(roots)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn trusted_as(authority: &Authority, host: &str, now_s: i64) -> bool {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority), provider()).build().unwrap();
    let server = authority.server();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    verifier.verify_server_cert(&server.chain[0], &server.chain[1..], &name, &[], at(now_s)).is_ok()
}

#[test]
fn the_server_is_trusted_under_its_names_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path(), &["neap.example", "[fe80::1]", "0.0.0.0"], NOW);
    for host in ["127.0.0.1", "::1", "localhost", "neap.example", "fe80::1"] {
        assert!(trusted_as(&authority, host, NOW), "{host}");
    }
    assert!(!trusted_as(&authority, "other.example", NOW));
    assert!(!trusted_as(&authority, "0.0.0.0", NOW));
    assert!(!trusted_as(&authority, "localhost", NOW + 91 * DAY));
}

#[test]
fn reopening_keeps_everything_and_a_new_name_makes_a_new_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path(), &[], NOW);
    let second = open(folder.path(), &[], NOW + DAY);
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(first.server().chain, second.server().chain);
    assert_eq!(first.server().key, second.server().key);
    let third = open(folder.path(), &["neap.example"], NOW + DAY);
    assert_eq!(first.ca_pem(), third.ca_pem());
    assert!(trusted_as(&third, "neap.example", NOW + DAY));
    for (name, mode) in [("ca.key", 0o600), ("server.key", 0o600), ("ca.pem", 0o644), ("server.pem", 0o644)] {
        let found = std::fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
    }
}

#[test]
fn the_server_certificate_is_renewed_in_time_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path(), &[], NOW);
    assert!(!authority.renew_if_needed(NOW + 59 * DAY).unwrap());
    assert!(authority.renew_if_needed(NOW + 61 * DAY).unwrap());
    assert!(trusted_as(&authority, "localhost", NOW + 149 * DAY));
    assert!(!authority.renew_if_needed(NOW + 62 * DAY).unwrap());
}

#[test]
fn half_written_or_foreign_server_files_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    drop(open(folder.path(), &[], NOW));
    drop(open(other.path(), &[], NOW));
    for name in ["server.key", "server.pem"] {
        std::fs::copy(other.path().join(name), folder.path().join(name)).unwrap();
        let authority = open(folder.path(), &[], NOW);
        assert!(trusted_as(&authority, "localhost", NOW), "{name}");
    }
    for name in ["server.key", "server.pem"] {
        std::fs::write(folder.path().join(name), "rubbish").unwrap();
        let authority = open(folder.path(), &[], NOW);
        assert!(trusted_as(&authority, "localhost", NOW), "{name}");
    }
    std::fs::write(folder.path().join("ca.key"), "rubbish").unwrap();
    let error = Authority::open(folder.path(), &[], NOW).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn an_expired_authority_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), &[], NOW));
    let error = Authority::open(folder.path(), &[], NOW + CA_LIFETIME_S).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}

#[test]
fn a_node_certificate_is_a_client_certificate_that_names_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let authority = open(folder.path(), &[], NOW);
    let node = NodeKey::generate().unwrap();
    let issued = authority.issue_node(&node.csr_pem, 42, DAY, NOW).unwrap();
    assert_eq!(issued.not_after_s, NOW + DAY);
    let cert = CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap();
    assert_eq!(node_of(&cert), Some(42));
    let accepts = |authority: &Authority, cert: &CertificateDer<'_>, now_s| {
        WebPkiClientVerifier::builder_with_provider(roots(authority), provider())
            .build()
            .unwrap()
            .verify_client_cert(cert, &[], at(now_s))
            .is_ok()
    };
    assert!(accepts(&authority, &cert, NOW));
    assert!(!accepts(&authority, &cert, NOW + 2 * DAY));
    assert!(!accepts(&open(other.path(), &[], NOW), &cert, NOW));
    // The server's own certificate is no node's.
    let server = authority.server();
    assert!(!accepts(&authority, &server.chain[0], NOW));
    assert_eq!(node_of(&server.chain[0]), None);
    assert_eq!(node_of(authority.ca_der()), None);
    assert_eq!(node_of(b"rubbish"), None);
}

#[test]
fn a_request_that_was_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path(), &[], NOW);
    let csr = NodeKey::generate().unwrap().csr_pem;
    let mut lines: Vec<String> = csr.lines().map(str::to_owned).collect();
    let at = lines.len() - 2;
    lines[at] = lines[at].chars().rev().collect();
    let rubbish = "x".repeat(CSR_BYTES_MAX + 1);
    for text in [lines.join("\n").as_str(), "", "rubbish", &rubbish] {
        assert!(matches!(authority.issue_node(text, 1, DAY, NOW), Err(Error::Request { .. })));
    }
}

#[test]
fn the_bundle_has_the_roots_and_our_ca_once() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path(), &[], NOW);
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, "# public roots").unwrap();
    let path = authority.write_bundle(Some(&roots)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# public roots\n"));
    assert_eq!(text.matches(authority.ca_pem().trim()).count(), 1);
    // A copy of an earlier bundle as the source of roots adds nothing.
    std::fs::write(&roots, &text).unwrap();
    authority.write_bundle(Some(&roots)).unwrap();
    let again = std::fs::read_to_string(&path).unwrap();
    assert_eq!(again.matches(authority.ca_pem().trim()).count(), 1);
    assert!(again.contains("# public roots"));
}
