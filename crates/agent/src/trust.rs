//! The bundle of trusted roots that jobs are pointed at: the system's and Neap's own, since the variable that names it
//! replaces the public roots. Written once per node; each attempt's folder has it by name.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What it is called in an attempt's `work` folder.
pub(crate) const BUNDLE: &str = "ca-bundle.pem";

/// Writes the node's bundle below `dir`. Roots that the environment names go before the system's.
pub(crate) fn write_bundle(dir: &Path, ca_pem: &[u8]) -> io::Result<PathBuf> {
    let named = std::env::var_os("REQUESTS_CA_BUNDLE").map(PathBuf::from);
    let mut text = match neap_identity::system_roots(named.as_deref()) {
        Some(roots) => std::fs::read(roots)?,
        None => Vec::new(),
    };
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text.extend_from_slice(ca_pem);
    let path = dir.join(BUNDLE);
    // An earlier one may be there, and is for reading only.
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444))?;
    Ok(path)
}

/// Puts the bundle into an attempt's `work` folder. Where jobs run as users of their own it is the same file under
/// another name, which they cannot write to; else a copy, and then the answer is true.
pub(crate) fn give_bundle(bundle: &Path, work: &Path, owner: Option<u32>) -> io::Result<bool> {
    let place = work.join(BUNDLE);
    if owner.is_some() && std::fs::hard_link(bundle, &place).is_ok() {
        return Ok(false);
    }
    std::fs::copy(bundle, &place).map(|_| true)
}
