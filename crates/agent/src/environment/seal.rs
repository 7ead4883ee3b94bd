//! Takes a built environment out of its builder's hands: from then on nobody but root can change it, also through a
//! descriptor that the builder has handed to somebody else.
//!
//! The builder's processes have ended, but who has been given a descriptor may go on changing things. So each folder
//! is closed before it is read; a file that somebody still holds open for writing is replaced by a copy. Everything is done by
//! descriptor. No link is followed, and nothing is recursive.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use neap_sandbox::may_have_writers;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Gid, Mode, OFlags, Uid};

use super::limits::ENVIRONMENT_ENTRIES_MAX;
use crate::limits::{DEPTH_MAX, PATH_BYTES_MAX};
use crate::tree::Tree;

/// Of a mode: everything but set-id bits and the right of others to write.
const MODE_KEPT: u32 = 0o755;
/// The name of a copy before it takes its file's place.
const COPY: &str = ".neap-copy";

/// Makes root the owner of everything in the folder, and everybody else a reader.
pub(crate) fn seal(made_in: &Tree, builder: u32) -> io::Result<()> {
    let mut entries = 0;
    let mut folders = vec![PathBuf::new()];
    while let Some(path) = folders.pop() {
        if path.components().count() > DEPTH_MAX || path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(io::Error::other(format!(
                "its packages have folders nested deeper than {DEPTH_MAX}, which is the limit"
            )));
        }
        let folder = made_in.open_folder(&path)?;
        let found = rustix::fs::fstat(&folder)?;
        refuse_others(found.st_uid, builder)?;
        take(&folder, found.st_mode | 0o500)?;
        // All names first: what follows puts new files into the folder.
        let listed: Vec<DirEntry> = Dir::read_from(&folder)?.collect::<rustix::io::Result<_>>()?;
        for entry in &listed {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            entries += 1;
            if entries > ENVIRONMENT_ENTRIES_MAX {
                return Err(io::Error::other(format!(
                    "its packages have more than {ENVIRONMENT_ENTRIES_MAX} files, which is the limit"
                )));
            }
            let here = folder.as_fd();
            let found = rustix::fs::statat(here, name, AtFlags::SYMLINK_NOFOLLOW)?;
            refuse_others(found.st_uid, builder)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => folders.push(path.join(OsStr::from_bytes(name.to_bytes()))),
                FileType::RegularFile => seal_file(here, name, builder)?,
                FileType::Symlink => {
                    let (root, group) = (Some(Uid::ROOT), Some(Gid::ROOT));
                    rustix::fs::chownat(here, name, root, group, AtFlags::SYMLINK_NOFOLLOW)?;
                }
                // Sockets and pipes are no part of an environment.
                _ => rustix::fs::unlinkat(here, name, AtFlags::empty())?,
            }
        }
    }
    Ok(())
}

fn seal_file(here: BorrowedFd<'_>, name: &CStr, builder: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(here, name, flags, Mode::empty())?;
    // It may be another by now than the one that was listed.
    let found = rustix::fs::fstat(&file)?;
    refuse_others(found.st_uid, builder)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("its files change while they are sealed"));
    }
    take(&file, found.st_mode)?;
    if may_have_writers(&file) {
        replace_by_copy(here, name, file, found.st_mode)?;
    }
    Ok(())
}

fn replace_by_copy(here: BorrowedFd<'_>, name: &CStr, from: OwnedFd, mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut copy = File::from(rustix::fs::openat(here, COPY, flags, Mode::RUSR)?);
    io::copy(&mut File::from(from), &mut copy)?;
    take(&copy, mode)?;
    Ok(rustix::fs::renameat(here, COPY, here, name)?)
}

/// Changes the owner first, because an owner may change the mode back.
fn take(file: impl AsFd, mode: u32) -> io::Result<()> {
    rustix::fs::fchown(&file, Some(Uid::ROOT), Some(Gid::ROOT))?;
    // Readable for all: jobs run as users of their own.
    let mode = mode & MODE_KEPT | 0o444 | (mode & 0o100) >> 3 | (mode & 0o100) >> 6;
    Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
}

/// With hard links a builder could have root change files of others.
fn refuse_others(owner: u32, builder: u32) -> io::Result<()> {
    if owner == builder {
        return Ok(());
    }
    Err(io::Error::other(format!("its packages hold a file of user {owner}, who has not built it")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    const BUILDER: u32 = 1_700_000_001;

    #[test]
    fn nobody_writes_to_a_sealed_environment() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "o").unwrap();
        let at = dir.path().join("env");
        std::fs::create_dir(&at).unwrap();
        let tree = Tree::open(&at, None).unwrap();
        tree.give("", BUILDER).unwrap();
        let built = tree.with_user(Some(BUILDER));
        built.make_folders("lib/open", 0o777).unwrap();
        built.write("lib/module.py", 0o600, b"code").unwrap();
        built.make_link(&outside.display().to_string(), "lib/link").unwrap();
        let mut kept = built.create("lib/kept.py", 0o666).unwrap();
        kept.write_all(b"good").unwrap();
        std::fs::set_permissions(at.join("lib/module.py"), std::fs::Permissions::from_mode(0o6777)).unwrap();
        seal(&tree, BUILDER).unwrap();
        kept.write_all(b"evil").unwrap();
        assert_eq!(
            std::fs::read(at.join("lib/kept.py")).unwrap(),
            b"good",
            "its writer has another file now"
        );
        for name in ["", "lib", "lib/open", "lib/module.py", "lib/kept.py", "lib/link"] {
            let found = at.join(name).symlink_metadata().unwrap();
            assert_eq!((found.uid(), found.gid()), (0, 0), "{name}");
            let is_open = !found.is_symlink() && found.mode() & 0o7022 != 0;
            assert!(!is_open, "{name} has the mode {:o}", found.mode());
        }
        assert!(built.read("lib/module.py").unwrap().is_some(), "everybody can read");
        assert_eq!(std::fs::read(&outside).unwrap(), b"o");
    }

    #[test]
    fn what_is_not_the_builders_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path(), None).unwrap();
        tree.give("", BUILDER).unwrap();
        std::fs::write(dir.path().join("others"), "").unwrap();
        assert!(seal(&tree, BUILDER).unwrap_err().to_string().contains("user 0"));
    }

    #[test]
    fn deep_folders_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = (0..DEPTH_MAX + 2).map(|_| "d").collect();
        std::fs::create_dir_all(dir.path().join(&deep)).unwrap();
        let mut at = dir.path().to_owned();
        std::os::unix::fs::chown(&at, Some(BUILDER), Some(BUILDER)).unwrap();
        for part in &deep {
            at.push(part);
            std::os::unix::fs::chown(&at, Some(BUILDER), Some(BUILDER)).unwrap();
        }
        symlink("d", dir.path().join("link")).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::lchown(link, Some(BUILDER), Some(BUILDER)).unwrap();
        let tree = Tree::open(dir.path(), None).unwrap();
        assert!(seal(&tree, BUILDER).unwrap_err().to_string().contains("nested deeper"));
    }
}
