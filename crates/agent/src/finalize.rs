//! After an attempt has run: its `./outputs`, `./logs` and named outputs are stored.
//!
//! The files were written by the job and the agent may be root: nothing is read that does not lie in the
//! job's own folder, wherever its links point. Nothing to store costs no request.

use std::fs::File;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt};
use neap_protocol::{AttemptSpec, BlobFolder, Output};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::attempt::Node;
use crate::prepare::{Layout, file_name};

const STORES_AT_ONCE: usize = 8;

/// One file that is to be stored.
#[derive(Debug)]
pub(crate) struct Store {
    to: BlobFolder,
    name: String,
    /// Below the attempt's `work`.
    path: PathBuf,
}

/// Everything that is to be stored. Reads folders, sends nothing.
pub(crate) fn find(spec: &AttemptSpec, layout: &Layout) -> std::io::Result<Vec<Store>> {
    let mut found = Vec::new();
    for name in ["outputs", "logs"] {
        collect(layout, &layout.working().join(name), &spec.artifacts, &format!("{name}/"), &mut found)?;
    }
    for (name, output) in &spec.outputs {
        let folder = layout.output(name);
        match output {
            Output::Folder { at } => collect(layout, &folder, at, "", &mut found)?,
            Output::File { at } => {
                let file = folder.join(file_name(at, name));
                if file.symlink_metadata().is_ok() {
                    let path = file.strip_prefix(&layout.work).unwrap_or(&file).to_owned();
                    found.push(Store { to: at.clone(), name: String::new(), path });
                }
            }
        }
    }
    Ok(found)
}

fn collect(
    layout: &Layout,
    folder: &Path,
    to: &BlobFolder,
    prefix: &str,
    found: &mut Vec<Store>,
) -> std::io::Result<()> {
    // The job may have removed it, or put a link in its place, which is not followed.
    if !folder.symlink_metadata().is_ok_and(|kind| kind.is_dir()) {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(layout, &path, to, &format!("{name}/"), found)?;
        } else {
            let path = path.strip_prefix(&layout.work).unwrap_or(&path).to_owned();
            found.push(Store { to: to.clone(), name, path });
        }
    }
    Ok(())
}

/// Stores them. Links that lead out of the job's folder, sockets and the like are named and left out.
pub(crate) async fn store(node: &Node, layout: &Layout, stores: Vec<Store>) -> Result<(), String> {
    let blobs = node.blobs_or_error()?;
    let root =
        rustix::fs::open(&layout.work, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| format!("opening {}: {e}", layout.work.display()))?;
    let (blobs, root) = (&blobs, &root);
    futures_util::stream::iter(stores)
        .map(|store| async move {
            match open_below(root, &store.path) {
                Ok(Some(file)) => blobs.store(&store.to, &store.name, file).await,
                Ok(None) => {
                    crate::boot_log::line(&format!("not stored, not a plain file: {}", store.path.display()));
                    Ok(())
                }
                Err(e) => {
                    crate::boot_log::line(&format!("not stored: {}: {e}", store.path.display()));
                    Ok(())
                }
            }
        })
        .buffer_unordered(STORES_AT_ONCE)
        .try_collect::<()>()
        .await
}

fn open_below(root: &std::os::fd::OwnedFd, path: &Path) -> std::io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?);
    Ok(file.metadata()?.is_file().then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("work");
        std::fs::create_dir_all(inside.join("a")).unwrap();
        std::fs::write(inside.join("a/real"), "r").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        for (link, to) in [("a/good", "real"), ("a/up", "../../secret"), ("a/absolute", "/etc/passwd")] {
            std::os::unix::fs::symlink(to, inside.join(link)).unwrap();
        }
        let root = rustix::fs::open(&inside, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let opens = |path: &str| open_below(&root, Path::new(path)).is_ok_and(|file| file.is_some());
        let expect =
            [("a/real", true), ("a/good", true), ("a/up", false), ("a/absolute", false), ("a", false)];
        assert_eq!(expect.map(|(path, _)| (path, opens(path))), expect);
    }
}
