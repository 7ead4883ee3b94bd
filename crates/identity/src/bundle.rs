//! The CA bundle for clients: the variable that names it (`REQUESTS_CA_BUNDLE`) replaces the public
//! roots, so they must be in it together with our own. Nothing is downloaded.

use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{Result, files};

/// Where systems keep their trusted roots.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The first file with trusted roots: what the caller was already told to use, else the system's.
#[must_use]
pub fn system_roots(already_set: Option<&Path>) -> Option<PathBuf> {
    already_set
        .into_iter()
        .chain(SYSTEM_ROOTS.iter().map(Path::new))
        .find(|path| path.is_file())
        .map(Path::to_owned)
}

/// Writes roots and our CA to `bundle`. Certificates of ours that are already in the roots (because the variable names a
/// copy of an earlier bundle) are left out, also those that were renewed since: they have the same key.
pub(crate) fn write(
    bundle: &Path,
    roots: Option<&Path>,
    ca_pem: &str,
    ca: &CertificateDer<'_>,
) -> Result<()> {
    let roots = match roots.filter(|path| *path != bundle) {
        Some(path) => files::read(path)?.unwrap_or_default(),
        None => Vec::new(),
    };
    let mut text = without_key_of(&String::from_utf8_lossy(&roots), ca);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(ca_pem);
    if files::read(bundle)?.as_deref() == Some(text.as_bytes()) {
        return Ok(());
    }
    files::write_public(bundle, text.as_bytes())
}

/// The text without the certificates that have the public key of this one.
fn without_key_of(text: &str, ca: &CertificateDer<'_>) -> String {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let Some(key) = public_key(ca) else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(BEGIN) {
        let Some(end) = rest[begin..].find(END).map(|at| begin + at + END.len()) else { break };
        let ours = CertificateDer::from_pem_slice(rest[begin..end].as_bytes())
            .is_ok_and(|found| public_key(&found).as_ref() == Some(&key));
        out.push_str(&rest[..if ours { begin } else { end }]);
        rest = &rest[end..];
        if ours {
            rest = rest.strip_prefix('\n').unwrap_or(rest);
        }
    }
    out + rest
}

fn public_key(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.public_key().raw.to_vec())
}
