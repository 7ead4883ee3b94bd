//! Deletes what a job left behind, however it is nested.
//!
//! No recursion, no path of more than one part, no link followed, and never a step upwards: below [`LEVELS_MAX`] open
//! folders a folder is renamed into the top one, and emptied from there. Somebody who still moves folders about can
//! make it fail. He cannot make it delete anything outside.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Folders open at once.
const LEVELS_MAX: usize = 16;
/// Entries that one call looks at. A tree with more is deleted by several calls.
const ENTRIES_MAX: u64 = 50_000_000;

/// Deletes a file or folder by its path, whose folders above are the caller's own. It is no failure if there is none.
pub fn remove_path(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no entry of a folder"));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(parent) => remove_tree(parent, name),
        Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Deletes `name`, which is one part, from the folder `parent`. It is no failure if there is none.
pub fn remove_tree(parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.as_bytes().contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of one entry"));
    }
    let name = CString::new(name.as_bytes())?;
    let parent = parent.as_fd();
    match unlink(parent, &name) {
        Unlinked::Gone => return Ok(()),
        Unlinked::Folder => {}
        Unlinked::Failed(e) => return Err(e),
    }
    let Some(top) = enter(parent, &name)? else { return Ok(()) };
    let mut removal = Removal { top: top.try_clone()?, moved: 0, left: ENTRIES_MAX };
    removal.empty(top)?;
    match rustix::fs::unlinkat(parent, &*name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

struct Removal {
    top: OwnedFd,
    /// Folders that were moved into the top one so far.
    moved: u64,
    left: u64,
}

/// A folder that is being emptied.
struct Level {
    dir: Dir,
    name: CString,
    /// Entries seen since the last look from the beginning.
    seen: u64,
}

impl Removal {
    fn empty(&mut self, top: OwnedFd) -> io::Result<()> {
        let mut levels = vec![Level { dir: Dir::new(top)?, name: CString::default(), seen: 0 }];
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else { return Ok(()) };
            let Some(entry) = level.dir.next() else {
                if level.seen > 0 {
                    // What was moved up or came since has not been read.
                    level.seen = 0;
                    level.dir.rewind();
                    continue;
                }
                let name = std::mem::take(&mut level.name);
                levels.pop();
                if let Some(above) = levels.last() {
                    match rustix::fs::unlinkat(above.dir.fd()?, &*name, AtFlags::REMOVEDIR) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        // Somebody moved another into its place: the folder above is read again.
                        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => self.spend()?,
                        Err(e) => return Err(e.into()),
                    }
                }
                continue;
            };
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            level.seen += 1;
            self.spend()?;
            let here = level.dir.fd()?;
            if entry.file_type() != FileType::Directory {
                match unlink(here, name) {
                    Unlinked::Gone => continue,
                    Unlinked::Folder => {}
                    Unlinked::Failed(e) => return Err(e),
                }
            } else if rustix::fs::unlinkat(here, name, AtFlags::REMOVEDIR).is_ok() {
                continue;
            }
            let Some(folder) = enter(here, name)? else { continue };
            if depth < LEVELS_MAX {
                levels.push(Level { dir: Dir::new(folder)?, name: name.to_owned(), seen: 0 });
            } else {
                self.move_up(here, name)?;
            }
        }
    }

    /// Moves a folder into the top one, under a name that is free there.
    fn move_up(&mut self, from: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        loop {
            self.moved += 1;
            let free = format!(".removing-{}", self.moved);
            match rustix::fs::renameat_with(from, name, &self.top, &*free, RenameFlags::NOREPLACE) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => self.spend()?,
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn spend(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            io::Error::other(format!(
                "more than {ENTRIES_MAX} entries; the next removal goes on with the rest"
            ))
        })?;
        Ok(())
    }
}

enum Unlinked {
    Gone,
    Folder,
    Failed(io::Error),
}

fn unlink(parent: BorrowedFd<'_>, name: &CStr) -> Unlinked {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Unlinked::Gone,
        Err(Errno::ISDIR) => Unlinked::Folder,
        Err(e) => Unlinked::Failed(e.into()),
    }
}

/// Opens a folder to empty it. `None`: it is none any more.
fn enter(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::openat(parent, name, flags, Mode::empty());
    let mut opened = open(flags);
    if let Err(Errno::ACCESS) = opened {
        // Closed by its owner, who is this user.
        let closed = open(OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC);
        if let Ok(closed) = closed {
            let itself = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&closed));
            rustix::fs::chmod(itself, Mode::RWXU)?;
            opened = open(flags);
        }
    }
    match opened {
        Ok(folder) => {
            let stat = rustix::fs::fstat(&folder)?;
            if stat.st_mode & 0o700 != 0o700 {
                // Where this fails, so does what follows.
                let _ = rustix::fs::fchmod(&folder, Mode::RWXU);
            }
            Ok(Some(folder))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A chain of folders that no path is long enough for.
    fn nest(at: &Path, depth: usize) {
        std::fs::create_dir(at).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut here = rustix::fs::open(at, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, "d", flags, Mode::empty()).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        drop(rustix::fs::openat(&here, "at the end", flags, Mode::RWXU).unwrap());
    }

    #[test]
    fn depth_costs_no_stack() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("deep");
        nest(&deep, 3_000);
        // A thread with next to no stack: recursion would end the test run here.
        let thread = std::thread::Builder::new().stack_size(64 * 1024);
        thread.spawn(move || remove_path(&deep)).unwrap().join().unwrap().unwrap();
        assert!(!dir.path().join("deep").exists());
    }

    #[test]
    fn everything_goes_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::create_dir_all(outside.join("kept")).unwrap();
        std::fs::write(outside.join("file"), "kept").unwrap();
        let tree = dir.path().join("tree");
        for wide in 0..30 {
            let deep: std::path::PathBuf = (0..LEVELS_MAX + 4).map(|n| format!("{n}-{wide}")).collect();
            std::fs::create_dir_all(tree.join(&deep)).unwrap();
            std::fs::write(tree.join(&deep).join("file"), "x").unwrap();
            symlink(&outside, tree.join(&deep).join("link")).unwrap();
        }
        // Names that the removal itself would have chosen.
        std::fs::create_dir_all(tree.join(".removing-1/sub")).unwrap();
        std::fs::write(tree.join(".removing-2"), "").unwrap();
        std::fs::create_dir_all(tree.join("closed/inner")).unwrap();
        std::fs::set_permissions(tree.join("closed"), std::fs::Permissions::from_mode(0)).unwrap();
        remove_path(&tree).unwrap();
        assert!(tree.symlink_metadata().is_err());
        assert!(outside.join("kept").is_dir() && outside.join("file").is_file());
        remove_path(&tree).unwrap();
        symlink(&outside, &tree).unwrap();
        remove_path(&tree).unwrap();
        assert!(tree.symlink_metadata().is_err() && outside.join("file").is_file(), "only the link goes");
    }

    #[test]
    fn only_one_name_is_taken() {
        for name in ["", ".", "..", "a/b", "/"] {
            assert!(remove_tree(rustix::fs::CWD, OsStr::new(name)).is_err(), "{name:?}");
        }
    }
}
