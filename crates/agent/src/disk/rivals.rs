//! Which attempt of this machine has grown most, over all its nodes. Nodes know nothing of each other, so each attempt
//! has an empty file in a folder that they share, whose *length* is how much it has grown: that takes no room on a disk
//! that has none. Jobs cannot reach the folder.

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that was not touched for longer is of a node that is gone.
const STALE: Duration = Duration::from_secs(120);
/// After one was stopped, its folder has this long to go before the next one is.
const RELIEF: Duration = Duration::from_secs(10);
/// Ends the name of the file of one that is being stopped.
const STOPPING: &str = ".stopping";

#[derive(Debug)]
pub(super) struct Rivals {
    folder: PathBuf,
    name: String,
    /// Made when there is something to tell.
    own: OnceCell<Option<File>>,
}

impl Rivals {
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        Self { folder: folder.to_owned(), name: name.to_owned(), own: OnceCell::new() }
    }

    fn open(&self) -> Option<File> {
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        let path = self.folder.join(&self.name);
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).ok()
    }

    pub(super) fn tell(&self, grown_bytes: u64) {
        if let Some(own) = self.own.get_or_init(|| self.open()) {
            let _ = own.set_len(grown_bytes);
            let _ = own.set_modified(now());
        }
    }

    fn own(&self) -> Option<&File> {
        self.own.get().and_then(Option::as_ref)
    }

    /// Whether no other has grown more, and none is being stopped already.
    pub(super) fn is_largest(&self) -> bool {
        let Some(own) = self.own().and_then(|own| own.metadata().ok()) else { return true };
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return true };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(found) = entry.metadata() else { continue };
            let age = found.modified().ok().and_then(|at| now().duration_since(at).ok()).unwrap_or_default();
            if name.ends_with(STOPPING) {
                if age < RELIEF {
                    return false;
                }
                let _ = std::fs::remove_file(entry.path());
            } else if age > STALE && name != self.name {
                let _ = std::fs::remove_file(entry.path());
            } else if (found.len(), name.as_str()) > (own.len(), self.name.as_str()) {
                return false;
            }
        }
        true
    }

    /// This one is being stopped: the others wait for what that frees.
    pub(super) fn stops(&self) {
        if let Some(own) = self.own() {
            let _ = own.set_modified(now());
        }
        let path = self.folder.join(&self.name);
        let _ = std::fs::rename(&path, self.folder.join(format!("{}{STOPPING}", self.name)));
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        if self.own().is_some() {
            let _ = std::fs::remove_file(self.folder.join(&self.name));
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "file times are wall-clock times, and are compared with nothing else"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_goes_and_the_others_wait() {
        let dir = tempfile::tempdir().unwrap();
        let [small, large] = ["a", "b"].map(|name| Rivals::new(dir.path(), name));
        small.tell(10);
        large.tell(1 << 40);
        assert_eq!((small.is_largest(), large.is_largest()), (false, true));
        large.stops();
        assert!(!small.is_largest(), "room is on its way");
        let stopping = dir.path().join("b.stopping");
        File::options().write(true).open(&stopping).unwrap().set_modified(now() - RELIEF).unwrap();
        assert!(small.is_largest(), "it was not enough");
        assert!(!stopping.exists());
        drop(small);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
