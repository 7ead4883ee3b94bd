//! The bundle of trusted roots that jobs are pointed at: the system's and Neap's own, since the variable that names it
//! replaces the public roots. Written once per node; each attempt's folder has it by name.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::tree::Tree;

/// What it is called in an attempt's `work` folder.
pub(crate) const BUNDLE: &str = "ca-bundle.pem";

/// Writes the node's bundle below `dir`, which is the agent's own. Roots that the environment names go before the system's.
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

/// Puts the bundle into the `work` folder of an attempt to come. Where jobs run as users of their own it is the same file
/// under another name, which they cannot write to; else a copy.
pub(crate) fn give_bundle(bundle: &Path, work: &Tree) -> io::Result<()> {
    let file = std::fs::File::open(bundle)?;
    if rustix::process::geteuid().is_root() && work.link_file(&file.into(), BUNDLE).is_ok() {
        return Ok(());
    }
    work.write(BUNDLE, 0o444, &std::fs::read(bundle)?)
}
