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
    roots.add(authority.ca_der()).unwrap();
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
    assert_ne!(first.ca_pem(), third.ca_pem());
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

/// What a client does that has this authority and dials this name.
fn client_accepts(trusted: &CertificateDer<'static>, server: &Authority, host: &str, now_s: i64) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let sent = server.server_for(Some(host).filter(|host| host.parse::<IpAddr>().is_err()));
    let name = ServerName::try_from(host.to_owned()).unwrap();
    verifier.verify_server_cert(&sent.chain[0], &sent.chain[1..], &name, &[], at(now_s)).is_ok()
}

/// An authority as releases before name constraints made it: its key may vouch for any name.
fn made_by_an_earlier_release(folder: &Path) -> CertificateDer<'static> {
    let key = new_key().unwrap();
    let mut params = named(root::SUBJECT, crate::CA_LIFETIME_S, NOW).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(folder.join("ca.key"), key.serialize_pem()).unwrap();
    std::fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
    certificate.der().clone()
}

#[test]
fn the_authority_vouches_for_the_servers_names_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path(), &["neap.example", "10.1.2.3"], NOW);
    let permitted = root::permitted_names(&authority.ca_der()).unwrap();
    for name in ["127.0.0.1", "::1", "localhost", "neap.example", "10.1.2.3"] {
        assert!(permitted.contains(&name.to_owned()), "{name} in {permitted:?}");
    }
    // A stolen key of the authority is worth nothing elsewhere.
    let current = authority.current();
    let key = new_key().unwrap();
    for host in ["bank.example", "8.8.8.8"] {
        let forged = certify_server(&key, &current.root, &[host.to_owned()], DAY, NOW).unwrap();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots(&authority), provider()).build().unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let refused = verifier.verify_server_cert(forged.der(), &[], &name, &[], at(NOW)).unwrap_err();
        assert!(format!("{refused:?}").contains("NameConstraintViolation"), "{host}: {refused:?}");
    }
}

#[test]
fn an_authority_without_limits_is_replaced_and_its_clients_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let old = made_by_an_earlier_release(folder.path());
    let authority = open(folder.path(), &["neap.example"], NOW + DAY);
    assert_ne!(authority.ca_der(), old);
    assert!(root::permitted_names(&old).is_none() && root::permitted_names(&authority.ca_der()).is_some());
    for host in ["127.0.0.1", "localhost", "neap.example"] {
        assert!(client_accepts(&old, &authority, host, NOW + DAY), "{host} with the old authority");
        assert!(client_accepts(&authority.ca_der(), &authority, host, NOW + DAY), "{host} with the new one");
    }
}

#[test]
fn a_new_name_changes_the_authority_and_clients_of_old_names_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let before = open(folder.path(), &["neap.example"], NOW).ca_der();
    let authority = open(folder.path(), &["neap.example", "new.example"], NOW + DAY);
    assert_ne!(authority.ca_der(), before);
    for (host, with_old) in
        [("127.0.0.1", true), ("localhost", true), ("neap.example", true), ("new.example", false)]
    {
        assert_eq!(client_accepts(&before, &authority, host, NOW + DAY), with_old, "{host}");
        assert!(client_accepts(&authority.ca_der(), &authority, host, NOW + DAY), "{host}");
    }
    // A name that is no longer used changes nothing.
    let fewer = open(folder.path(), &["new.example"], NOW + DAY);
    assert_eq!(fewer.ca_der(), authority.ca_der());
}

#[test]
fn the_authority_is_renewed_in_time_and_with_the_same_key() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path(), &[], NOW);
    let old = authority.ca_der();
    let bundle = authority.write_bundle(None).unwrap();
    let end = NOW + crate::CA_LIFETIME_S;
    let node = NodeKey::generate().unwrap();
    let issued = authority.issue_node(&node.csr_pem, 7, crate::CA_LIFETIME_S, NOW).unwrap();
    let soon = end - crate::CA_RENEW_BEFORE_S + DAY;
    assert!(authority.renew_if_needed(soon).unwrap());
    assert_ne!(authority.ca_der(), old);
    assert!(client_accepts(&old, &authority, "127.0.0.1", soon), "the old one lasts until it ends");
    assert!(client_accepts(&authority.ca_der(), &authority, "127.0.0.1", soon));
    assert!(std::fs::read_to_string(&bundle).unwrap().ends_with(&authority.ca_pem()));
    // Nodes that were let in before are let in.
    let certificate = CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(&authority), provider()).build().unwrap();
    assert!(verifier.verify_client_cert(&certificate, &[], at(soon)).is_ok());
    // A server that was off for too long makes a new one at its start.
    let late = open(folder.path(), &[], end + 20 * crate::CA_LIFETIME_S / 10);
    assert!(trusted_as(&late, "localhost", end + 20 * crate::CA_LIFETIME_S / 10));
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
    assert_eq!(node_of(&authority.ca_der()), None);
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
    // And neither does one with an authority that was replaced since.
    let renewed = open(folder.path(), &["new.example"], NOW);
    renewed.write_bundle(Some(&roots)).unwrap();
    let renewed_text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(renewed_text.matches("BEGIN CERTIFICATE").count(), 1);
    assert!(renewed_text.contains(renewed.ca_pem().trim()) && renewed_text.starts_with("# public roots\n"));
}
