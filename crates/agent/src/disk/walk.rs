//! How much an attempt's folders hold. The job may change them meanwhile: nothing is followed, every step is taken from
//! a descriptor, and what goes while it is looked at is not there.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const BLOCK_BYTES: u64 = 512;
/// Files and folders that a walk counts.
const ENTRIES_MAX: u64 = 4_000_000;
/// A path is followed from a descriptor up to this length; below that a new descriptor begins.
const PATH_BYTES_MAX: usize = 2_000;
/// Descriptors held at once. A tree that needs more is not walked to its end.
const DESCRIPTORS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub bytes: u64,
    /// Everything was counted.
    pub is_whole: bool,
}

/// Free bytes of the disk that the folders are on.
pub(super) fn free_bytes(folders: &[PathBuf]) -> Option<u64> {
    let fs = rustix::fs::statvfs(folders.first()?).ok()?;
    Some(fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Counts blocks, as the disk does: a file with several names once.
pub(super) fn walk(folders: &[PathBuf]) -> Tally {
    let mut walk = Walk { bytes: 0, entries: 0, linked: BTreeSet::new() };
    let mut is_whole = true;
    for folder in folders {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(root) = rustix::fs::open(folder, flags, Mode::empty()) {
            is_whole &= walk.tree(root);
        }
    }
    Tally { bytes: walk.bytes, is_whole }
}

struct Walk {
    bytes: u64,
    entries: u64,
    /// Device and inode of files with several names.
    linked: BTreeSet<(u64, u64)>,
}

impl Walk {
    /// False if it was given up.
    fn tree(&mut self, root: OwnedFd) -> bool {
        // Depth first, so that few descriptors are held. The job chooses the shape: nothing recurses.
        let mut waiting: Vec<(Rc<OwnedFd>, Vec<u8>)> = vec![(Rc::new(root), b".".to_vec())];
        let mut bases = 1;
        let mut is_whole = true;
        while let Some((base, path)) = waiting.pop() {
            let Ok(name) = CString::new(path.as_slice()) else { continue };
            let flags =
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let folder = match rustix::fs::openat2(&*base, &name, flags, Mode::empty(), resolve) {
                Ok(folder) => folder,
                // Descriptors or memory are short: a job must not gain by that.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                    is_whole = false;
                    continue;
                }
                // Gone, or something else by now.
                Err(_) => continue,
            };
            let Ok(entries) = Dir::read_from(&folder) else { continue };
            let mut below = Vec::new();
            for entry in entries.flatten() {
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                self.entries += 1;
                if self.entries > ENTRIES_MAX {
                    return false;
                }
                let Ok(found) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
                    continue;
                };
                let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
                if is_folder {
                    below.push(name.to_bytes().to_vec());
                }
                let is_first =
                    is_folder || found.st_nlink < 2 || self.linked.insert((found.st_dev, found.st_ino));
                if is_first {
                    let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
                    self.bytes = self.bytes.saturating_add(blocks.saturating_mul(BLOCK_BYTES));
                }
            }
            if below.is_empty() {
                continue;
            }
            // A new base where paths from the old one become long; the old one goes with the last path from it.
            let (base, prefix) = if path.len() < PATH_BYTES_MAX {
                (base, path)
            } else {
                if Rc::strong_count(&base) > 1 {
                    bases += 1;
                }
                if bases > DESCRIPTORS_MAX {
                    is_whole = false;
                    continue;
                }
                (Rc::new(folder), b".".to_vec())
            };
            waiting.extend(below.into_iter().map(|name| {
                let mut path = prefix.clone();
                path.push(b'/');
                path.extend(name);
                (base.clone(), path)
            }));
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &std::path::Path, bytes: usize) {
        std::fs::write(path, vec![1; bytes]).unwrap();
    }

    #[test]
    fn blocks_are_counted_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        write(&outside.path().join("big"), 1 << 20);
        let (work, tmp) = (dir.path().join("work"), dir.path().join("tmp"));
        std::fs::create_dir_all(work.join("a/b")).unwrap();
        std::fs::create_dir(&tmp).unwrap();
        let folders = vec![work.clone(), tmp.clone()];
        let before = walk(&folders).bytes;
        write(&work.join("a/b/one"), 100_000);
        std::fs::hard_link(work.join("a/b/one"), tmp.join("two")).unwrap();
        std::os::unix::fs::symlink(outside.path(), work.join("a/out")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("big"), work.join("a/file")).unwrap();
        // Holes take nothing.
        std::fs::File::create(work.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let tally = walk(&folders);
        let grown = tally.bytes - before;
        assert!(tally.is_whole && (100_000..200_000).contains(&grown), "{grown}");
    }

    #[test]
    fn deep_and_wide_trees_end() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
        let name = "d".repeat(100);
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
        }
        let file = rustix::fs::openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        rustix::io::write(&file, &[1; 8192]).unwrap();
        let tally = walk(&[dir.path().to_owned()]);
        assert!(tally.is_whole && tally.bytes >= 8192, "{tally:?}");
    }

    #[test]
    fn what_is_not_there_has_nothing() {
        assert_eq!(walk(&[PathBuf::from("/nonexistent/work")]), Tally { bytes: 0, is_whole: true });
        assert_eq!(free_bytes(&[]), None);
    }
}
