//! A folder that a job can write to, and the only ways in which the agent touches it.
//!
//! The agent may be root, and the job may have put anything anywhere in the folder. Two layers, of which each is enough:
//!
//! 1. Every name is resolved by `openat2` from a descriptor that was opened before any code of the job ran. It stays
//!    beneath that folder and follows no link. What is created is new (`O_EXCL`), or the call fails.
//! 2. Every operation runs with the file-system rights of the job's own user ([`neap_sandbox::with_file_user`]), so
//!    that it could reach nothing else even if it were led astray.
//!
//! **Invariant**: the modules that work in an attempt's folders name no path to the standard library; a test below
//! reads their source.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::limits::{DEPTH_MAX, PATH_BYTES_MAX};

/// `openat2` gives up on `..` when somebody renames anything meanwhile; it is asked again this often.
const TRIES_MAX: u32 = 32;
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Arc<OwnedFd>,
    /// Whose rights are used, and who gets what is made. None: the agent's own user.
    user: Option<u32>,
}

/// What a walk comes across.
#[derive(Debug)]
pub(crate) enum Entry<'a> {
    /// A folder, after everything below it; `empty` if there is nothing.
    Folder {
        path: &'a Path,
        empty: bool,
    },
    File {
        path: &'a Path,
        stat: &'a Stat,
    },
    Link {
        path: &'a Path,
    },
    /// A socket, pipe or device, or a folder that the job's user may not read.
    Other {
        path: &'a Path,
    },
}

impl Tree {
    /// Opens a folder, all of whose folders above are the agent's alone.
    pub(crate) fn open(path: &Path, user: Option<u32>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { root: Arc::new(root), user })
    }

    /// The folder `below`, as a tree of its own.
    pub(crate) fn enter(&self, below: &str) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = self.as_user(|| self.resolve(below, flags))?;
        Ok(Self { root: Arc::new(root), user: self.user })
    }

    /// The same folder, touched with the rights of this user.
    pub(crate) fn with_user(&self, user: Option<u32>) -> Self {
        Self { root: self.root.clone(), user }
    }

    pub(crate) fn user(&self) -> Option<u32> {
        self.user
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Makes a folder and those above it where they are missing. What is there stays as it is.
    pub(crate) fn make_folders(&self, below: &str, mode: u32) -> io::Result<()> {
        let below = relative(below)?;
        self.as_user(|| {
            let mut here: Option<OwnedFd> = None;
            for part in below.split('/').filter(|part| !part.is_empty()) {
                let parent = here.as_ref().map_or(self.root(), AsFd::as_fd);
                here = Some(match step(parent, part) {
                    Err(Errno::NOENT) => {
                        match rustix::fs::mkdirat(parent, part, Mode::from_raw_mode(mode)) {
                            Ok(()) => {
                                let folder = step(parent, part)?;
                                // The umask has no say in it.
                                if mode & 0o022 != 0 || mode & 0o7000 != 0 {
                                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                                    let folder = rustix::fs::openat(&folder, ".", flags, Mode::empty())?;
                                    rustix::fs::fchmod(folder, Mode::from_raw_mode(mode))?;
                                }
                                folder
                            }
                            Err(Errno::EXIST) => step(parent, part)?,
                            Err(e) => return Err(e.into()),
                        }
                    }
                    found => found?,
                });
            }
            Ok(())
        })
        .map_err(|e| doing("making the folder", &below, &e))
    }

    /// A new file, for reading and writing.
    pub(crate) fn create(&self, below: &str, mode: u32) -> io::Result<File> {
        let below = relative(below)?;
        self.as_user(|| self.new_file(&below, mode)).map_err(|e| doing("creating", &below, &e))
    }

    /// A new file in place of one that is there.
    pub(crate) fn create_anew(&self, below: &str, mode: u32) -> io::Result<File> {
        match self.create(below, mode) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let plain = relative(below)?;
                self.as_user(|| {
                    let (parent, name) = self.parent_of(&plain)?;
                    Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?)
                })
                .map_err(|e| doing("replacing", below, &e))?;
                self.create(below, mode)
            }
            made => made,
        }
    }

    /// A new file with this content.
    pub(crate) fn write(&self, below: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.create(below, mode)?.write_all(content).map_err(|e| doing("writing", below, &e))
    }

    /// A plain file that is there already.
    pub(crate) fn open_for_writing(&self, below: &str) -> io::Result<File> {
        let below = relative(below)?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = plain(File::from(self.as_user(|| self.resolve(&below, flags))?))?;
        file.ok_or_else(|| doing("writing", &below, &io::Error::other("it is not a plain file")))
    }

    /// A file of the folder itself appears with this content, in place of whatever has the name.
    pub(crate) fn replace(&self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let beside = format!(".{name}.new");
        self.as_user(|| {
            let mut file = match self.new_file(&beside, mode) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    rustix::fs::unlinkat(&self.root, &*beside, AtFlags::empty())?;
                    self.new_file(&beside, mode)?
                }
                made => made?,
            };
            file.write_all(content)?;
            Ok(rustix::fs::renameat(&self.root, &*beside, &self.root, name)?)
        })
        .map_err(|e| doing("writing", name, &e))
    }

    pub(crate) fn make_link(&self, target: &str, below: &str) -> io::Result<()> {
        let below = relative(below)?;
        self.as_user(|| {
            let (parent, name) = self.parent_of(&below)?;
            Ok(rustix::fs::symlinkat(target, parent, name)?)
        })
        .map_err(|e| doing("making the link", &below, &e))
    }

    /// Another name for an open file of the agent's own, which the job cannot write to.
    pub(crate) fn link_file(&self, file: &OwnedFd, name: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(file, "", &self.root, name, AtFlags::EMPTY_PATH)?)
    }

    /// Removes a folder if it is empty.
    pub(crate) fn remove_folder(&self, below: &str) -> io::Result<()> {
        let below = relative(below)?;
        self.as_user(|| {
            let (parent, name) = self.parent_of(&below)?;
            Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
        })
        .map_err(|e| doing("removing", &below, &e))
    }

    /// Removes an entry of the folder itself with everything below it. With the agent's own rights: what is removed may
    /// be of several users.
    pub(crate) fn remove_all(&self, name: &str) -> io::Result<()> {
        neap_sandbox::remove_tree(&self.root, OsStr::new(name)).map_err(|e| doing("removing", name, &e))
    }

    /// Gives what the agent has made to a user, before there is any code of the job.
    pub(crate) fn give(&self, below: &str, user: u32) -> io::Result<()> {
        let (uid, gid) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(user));
        let entry = self.resolve(below, OFlags::PATH | OFlags::CLOEXEC)?;
        let given = rustix::fs::chownat(&entry, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH);
        given.map_err(|e| doing("giving away", below, &e.into()))
    }

    /// Sets the mode of the folder itself.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.root, Mode::from_raw_mode(mode))?)
    }

    /// A plain file that no link leads to, for reading.
    pub(crate) fn read(&self, below: &str) -> io::Result<Option<File>> {
        let below = relative(below)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        plain(File::from(self.as_user(|| self.resolve(&below, flags))?))
    }

    /// The first bytes of a plain file.
    pub(crate) fn read_at_most(&self, below: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.read(below)? else { return Ok(None) };
        let mut content = Vec::new();
        file.take(bytes_max).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    /// A plain file, wherever in this folder the job's own links lead. Ask when its processes have ended.
    pub(crate) fn read_through_links(&self, below: &Path) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened = self.as_user(|| {
            for _ in 0..TRIES_MAX {
                match rustix::fs::openat2(&self.root, below, flags, Mode::empty(), resolve) {
                    Err(Errno::AGAIN) => {}
                    other => return Ok(other?),
                }
            }
            Err(Errno::AGAIN.into())
        })?;
        plain(File::from(opened))
    }

    /// A descriptor that only names what is there, for its kind, its owner and its place.
    pub(crate) fn name(&self, below: &str) -> io::Result<OwnedFd> {
        let below = relative(below)?;
        self.as_user(|| self.resolve(&below, OFlags::PATH | OFlags::CLOEXEC))
    }

    /// What is there, a link as itself. `None`: nothing, or it lies behind a link.
    pub(crate) fn stat(&self, below: &str) -> Option<Stat> {
        let below = relative(below).ok()?;
        self.as_user(|| {
            let (parent, name) = self.parent_of(&below)?;
            Ok(rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)
        })
        .ok()
    }

    /// Where a link leads.
    pub(crate) fn read_link(&self, below: &Path) -> io::Result<Vec<u8>> {
        self.as_user(|| {
            let folder = below.parent().unwrap_or(Path::new(""));
            let name = below.file_name().unwrap_or_default();
            let target = rustix::fs::readlinkat(self.resolve(folder, FOLDER)?, name, Vec::new())?;
            Ok(target.into_bytes())
        })
    }

    /// Everything below a folder, without recursion, and no more of it than the limits allow. If there is no such folder,
    /// or a link in its place, nothing is visited.
    pub(crate) fn walk(
        &self,
        from: &str,
        entries_max: usize,
        mut visit: impl FnMut(Entry<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let from = relative(from)?;
        self.as_user(|| {
            match rustix::fs::openat2(&self.root, or_dot(Path::new(&from)), FOLDER, Mode::empty(), BENEATH) {
                Ok(_) => {}
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
            let mut entries = 0;
            let mut folders = vec![PathBuf::from(&from)];
            while let Some(folder) = folders.pop() {
                check_depth(&folder)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = match self.resolve(&folder, flags) {
                    Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                        // The job has closed it, also to itself.
                        visit(Entry::Other { path: &folder })?;
                        continue;
                    }
                    opened => opened?,
                };
                let mut dir = Dir::new(opened)?;
                let mut empty = true;
                while let Some(entry) = dir.next() {
                    let entry = entry?;
                    let name = entry.file_name();
                    if name == c"." || name == c".." {
                        continue;
                    }
                    empty = false;
                    entries += 1;
                    if entries > entries_max {
                        return Err(io::Error::other(format!(
                            "there are more than {entries_max} files and folders in {}; store fewer, for example as one archive",
                            shown(&from)
                        )));
                    }
                    let stat = rustix::fs::statat(dir.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    let path = folder.join(OsStr::from_bytes(name.to_bytes()));
                    match FileType::from_raw_mode(stat.st_mode) {
                        FileType::Directory => folders.push(path),
                        FileType::RegularFile => visit(Entry::File { path: &path, stat: &stat })?,
                        FileType::Symlink => visit(Entry::Link { path: &path })?,
                        _ => visit(Entry::Other { path: &path })?,
                    }
                }
                visit(Entry::Folder { path: &folder, empty })?;
            }
            Ok(())
        })
    }

    /// A folder that no link leads to, for reading.
    pub(crate) fn open_folder(&self, below: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.as_user(|| self.resolve(below, flags))
    }

    fn as_user<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        #[cfg(test)]
        if layers::is_off(layers::Layer::FileUser) {
            return work();
        }
        neap_sandbox::with_file_user(self.user, work)?
    }

    /// Opens what lies below, where no link leads.
    fn resolve(&self, below: impl AsRef<Path>, flags: OFlags) -> io::Result<OwnedFd> {
        let below = or_dot(below.as_ref());
        #[cfg(test)]
        if layers::is_off(layers::Layer::Resolve) {
            return Ok(rustix::fs::openat(&self.root, below, flags, Mode::empty())?);
        }
        Ok(rustix::fs::openat2(&self.root, below, flags, Mode::empty(), BENEATH)?)
    }

    fn parent_of<'b>(&self, below: &'b str) -> io::Result<(OwnedFd, &'b str)> {
        let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
        Ok((self.resolve(folder, FOLDER)?, name))
    }

    fn new_file(&self, below: &str, mode: u32) -> io::Result<File> {
        let (parent, name) = self.parent_of(below)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        #[cfg(test)]
        let flags = if layers::is_off(layers::Layer::Resolve) {
            OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::CLOEXEC
        } else {
            flags
        };
        Ok(File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode))?))
    }
}

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn step(parent: BorrowedFd<'_>, part: &str) -> rustix::io::Result<OwnedFd> {
    #[cfg(test)]
    if layers::is_off(layers::Layer::Resolve) {
        return rustix::fs::openat(parent, part, FOLDER, Mode::empty());
    }
    rustix::fs::openat2(parent, part, FOLDER, Mode::empty(), BENEATH)
}

/// A name below a folder, in its shortest form: no empty parts, none that stays or leads upwards, within the limits.
pub(crate) fn relative(name: &str) -> io::Result<String> {
    let invalid = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let mut parts = Vec::new();
    for part in name.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." || part.contains('\0') {
            return invalid(format!("the name {:?} leads out of its folder", shortened(name)));
        }
        parts.push(part);
    }
    if parts.len() > DEPTH_MAX {
        return invalid(format!(
            "{:?} lies {} folders deep, and the limit is {DEPTH_MAX}",
            shortened(name),
            parts.len()
        ));
    }
    let name = parts.join("/");
    if name.len() > PATH_BYTES_MAX {
        return invalid(format!(
            "the name {:?} has {} bytes, and the limit is {PATH_BYTES_MAX}",
            shortened(&name),
            name.len()
        ));
    }
    Ok(name)
}

fn check_depth(folder: &Path) -> io::Result<()> {
    if folder.components().count() > DEPTH_MAX || folder.as_os_str().len() > PATH_BYTES_MAX {
        return Err(io::Error::other(format!(
            "the folder {} lies deeper than {DEPTH_MAX} folders or {PATH_BYTES_MAX} bytes of path, which is the limit; store it as one archive",
            shortened(&folder.to_string_lossy())
        )));
    }
    Ok(())
}

/// The beginning of a name that may be very long.
fn shortened(name: &str) -> String {
    const CHARS_MAX: usize = 80;
    match name.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

fn shown(below: &str) -> &str {
    if below.is_empty() { "the job's folder" } else { below }
}

fn or_dot(below: &Path) -> &Path {
    if below.as_os_str().is_empty() { Path::new(".") } else { below }
}

fn plain(file: File) -> io::Result<Option<File>> {
    Ok(file.metadata()?.is_file().then_some(file))
}

fn doing(what: &str, below: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{what} {}: {e}", shown(&shortened(below))))
}

/// Switches a layer off on this thread, to see that the other one holds. There is no such thing outside of tests.
#[cfg(test)]
pub(crate) mod layers {
    use std::cell::RefCell;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Layer {
        Resolve,
        FileUser,
    }

    thread_local! {
        static OFF: RefCell<Vec<Layer>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn is_off(layer: Layer) -> bool {
        OFF.with_borrow(|off| off.contains(&layer))
    }

    pub(crate) fn without<T>(layers: &[Layer], work: impl FnOnce() -> T) -> T {
        OFF.set(layers.to_vec());
        let done = work();
        OFF.take();
        done
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
