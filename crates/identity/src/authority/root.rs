//! The authority's own certificate: which names it may vouch for, and when it is made anew.
//!
//! A new certificate has the old key. Clients that trust the old one go on as they are: it vouches for the same
//! signatures until it ends, under the names that it lists.

use std::net::IpAddr;
use std::path::Path;

use rcgen::{
    BasicConstraints, CidrSubnet, GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    NameConstraints,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{key_identifiers, named, new_key, not_after_s};
use crate::{CA_LIFETIME_S, CA_RENEW_BEFORE_S, Error, Result, files};

pub(super) const SUBJECT: &str = "Neap local CA";
const CERTIFICATE: &str = "a certificate in PEM form";
const KEY: &str = "an ECDSA private key in PEM form";

/// The authority as it signs now.
pub(super) struct Root {
    pub issuer: Issuer<'static, KeyPair>,
    pub pem: String,
    pub der: CertificateDer<'static>,
}

/// Opens the authority of this folder or makes it. Its certificate is replaced if it ends soon, or does not vouch for
/// exactly the names that it should; the key stays.
pub(super) fn open(folder: &Path, hosts: &[String], now_s: i64) -> Result<Root> {
    let (cert_path, key_path) = (folder.join("ca.pem"), folder.join("ca.key"));
    let pem = files::read_text(&cert_path, CERTIFICATE)?;
    let key = files::read_text(&key_path, KEY)?;
    let (Some(pem), Some(key)) = (pem, key) else {
        // One without the other is a first start that was cut short: nothing was signed with it yet.
        let key = new_key()?;
        files::write_private(&key_path, key.serialize_pem().as_bytes())?;
        return issue(&cert_path, key, None, hosts, now_s);
    };
    let key = KeyPair::from_pem(&key).map_err(|e| files::damaged(&key_path, KEY, e))?;
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|e| files::damaged(&cert_path, CERTIFICATE, e))?;
    if !still_good(&der, hosts, now_s) {
        let identifier =
            X509Certificate::from_der(&der).ok().and_then(|(_, parsed)| key_identifiers(&parsed).0);
        return issue(&cert_path, key, identifier, hosts, now_s);
    }
    let issuer =
        Issuer::from_ca_cert_pem(&pem, key).map_err(|e| files::damaged(&cert_path, CERTIFICATE, e))?;
    Ok(Root { issuer, pem, der })
}

/// Whether a certificate of the authority lasts and lists these names, however many it lists beside.
pub(super) fn still_good(der: &CertificateDer<'_>, hosts: &[String], now_s: i64) -> bool {
    let lasts = not_after_s(der).is_some_and(|end| end - now_s > CA_RENEW_BEFORE_S);
    let permitted = permitted_names(der);
    lasts && permitted.is_some_and(|permitted| hosts.iter().all(|host| permitted.contains(host)))
}

/// The names that a certificate of the authority is limited to; none for one without limits, as earlier releases made.
pub(super) fn permitted_names(der: &CertificateDer<'_>) -> Option<Vec<String>> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    let constraints = parsed.name_constraints().ok()??.value.permitted_subtrees.as_ref()?.iter();
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        // Address and mask.
        GeneralName::IPAddress(bytes) => match bytes.len() {
            8 => <[u8; 4]>::try_from(&bytes[..4]).ok().map(|b| IpAddr::from(b).to_string()),
            32 => <[u8; 16]>::try_from(&bytes[..16]).ok().map(|b| IpAddr::from(b).to_string()),
            _ => None,
        },
        _ => None,
    };
    Some(constraints.filter_map(|subtree| text(&subtree.base)).collect())
}

/// `identifier` is the one that the key went by before: clients look for it in what is signed.
fn issue(
    path: &Path,
    key: KeyPair,
    identifier: Option<Vec<u8>>,
    hosts: &[String],
    now_s: i64,
) -> Result<Root> {
    let mut params = named(SUBJECT, CA_LIFETIME_S, now_s)?;
    if let Some(identifier) = identifier {
        params.key_identifier_method = KeyIdMethod::PreSpecified(identifier);
    }
    // The path ends here: a certificate made by this authority can never make another.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Certificates of nodes have no such names, and so are not limited by them.
    let subtree = |host: &String| match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix(address.octets(), 32))
        }
        Ok(IpAddr::V6(address)) => {
            GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(address.octets(), 128))
        }
        Err(_) => GeneralSubtree::DnsName(host.clone()),
    };
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: hosts.iter().map(subtree).collect(),
        excluded_subtrees: Vec::new(),
    });
    let certificate =
        params.self_signed(&key).map_err(|e| Error::crypto("make the authority's certificate", e))?;
    let pem = certificate.pem();
    files::write_public(path, pem.as_bytes())?;
    Ok(Root { der: certificate.der().clone(), pem, issuer: Issuer::new(params, key) })
}
