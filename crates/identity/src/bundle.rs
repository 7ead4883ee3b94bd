//! The CA bundle for clients: the variable that names it (`REQUESTS_CA_BUNDLE`) replaces the public
//! roots, so they must be in it together with our own. Nothing is downloaded.

use std::path::{Path, PathBuf};

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

/// Writes roots and our CA to `bundle`. Certificates of ours that are already in the roots (because
/// the variable names this very bundle) are not written twice.
pub(crate) fn write(bundle: &Path, roots: Option<&Path>, ca_pem: &str) -> Result<()> {
    let roots = match roots.filter(|path| *path != bundle) {
        Some(path) => files::read(path)?.unwrap_or_default(),
        None => Vec::new(),
    };
    let mut text = String::from_utf8_lossy(&roots).replace(ca_pem.trim(), "");
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(ca_pem);
    if files::read(bundle)?.as_deref() == Some(text.as_bytes()) {
        return Ok(());
    }
    files::write_public(bundle, text.as_bytes())
}
