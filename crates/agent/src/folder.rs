//! Attempts' folders, and the spare ones that wait for the next attempt.
//!
//! Making and deleting a dozen files and folders costs a file system more than a short job costs the machine, so an
//! attempt that left its folder as it found it leaves it to another. "As it found it" is proven, not cleaned up: every
//! change of a file or folder (contents, owner, mode, attributes, links, entries) sets its change time, which no
//! program can choose. If all are what they were when the folder was made, and none is another file or covered by a
//! mount, then nothing of the attempt is in it. Otherwise the whole folder goes, and a new one is made.
//!
//! What a job may open for writing is only what it made itself; so a descriptor that it has handed to a process
//! outside can at most list the names in a folder of the next, which is of the same workspace.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use neap_sandbox::{SpoolEnd, boot_ms};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::python::Interpreter;
use crate::{boot_log, trust};

/// Spare folders of a node, all users together.
const SPARES_MAX: usize = 64;
/// Change times are only as fine as the kernel's tick. A folder that is used sooner than this after it was made could
/// be changed without a trace: spare ones wait this long, and one that could not is not used again.
const AGE_MS_MIN: u64 = 50;
/// A spool larger than this is not kept for the next attempt to write over.
const SPOOL_BYTES_KEPT: u64 = 256 * 1024;
/// Everything below an attempt's folder, the environment for Python aside.
const SKELETON: [&str; 7] =
    ["tmp", "work", "work/checkpoint", "work/exe", "work/exe/wd", "work/exe/wd/outputs", "work/exe/wd/logs"];
const ENVIRONMENT: &str = "work/venv";

/// The folder of one attempt at a time.
#[derive(Debug)]
pub(crate) struct Folder {
    pub dir: PathBuf,
    root: OwnedFd,
    owner: Option<u32>,
    python: Option<Interpreter>,
    has_bundle: bool,
    stamps: Vec<(String, Stamp)>,
    made_ms: u64,
    taken_ms: u64,
}

/// What tells a file that was changed or replaced from one that was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed: (i64, u64),
}

impl Folder {
    /// Makes a folder, whose contents belong to `owner`.
    fn make(
        dir: PathBuf,
        owner: Option<u32>,
        python: Option<Interpreter>,
        bundle: Option<&Path>,
    ) -> io::Result<Self> {
        let making = |e: io::Error| io::Error::new(e.kind(), format!("making {}: {e}", dir.display()));
        std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(making)?;
        let mut names: Vec<String> = SKELETON.map(str::to_owned).into();
        for name in &names {
            make_owned(&dir.join(name), owner)?;
        }
        if let Some(python) = &python {
            let made = python.write_environment(&dir.join(ENVIRONMENT), owner).map_err(making)?;
            names.extend(
                made.into_iter().map(|name| format!("{ENVIRONMENT}/{name}").trim_end_matches('/').to_owned()),
            );
        }
        if let Some(bundle) = bundle {
            // One file under many names is not among the stamps: each new name changes it. It cannot be written to,
            // and who replaces it changes the folder above.
            if trust::give_bundle(bundle, &dir.join("work"), owner).map_err(making)? {
                names.push(format!("work/{}", trust::BUNDLE));
            }
        }
        let root = rustix::fs::open(&dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| making(e.into()))?;
        let stamps = names
            .into_iter()
            .map(|name| stamp(&root, &name).map(|stamp| (name, stamp)))
            .collect::<io::Result<_>>()
            .map_err(making)?;
        Ok(Self {
            dir,
            root,
            owner,
            python,
            has_bundle: bundle.is_some(),
            stamps,
            made_ms: boot_ms(),
            taken_ms: 0,
        })
    }

    /// Whether this attempt has left it as it was. Ask when all its processes have ended.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_aged(self.taken_ms)
            && self
                .stamps
                .iter()
                .all(|(name, before)| stamp(&self.root, name).is_ok_and(|now| now == *before))
    }

    fn is_aged(&self, now_ms: u64) -> bool {
        now_ms >= self.made_ms + AGE_MS_MIN
    }

    /// Whether the trusted roots are in it, and where below `work`.
    pub(crate) fn bundle(&self) -> Option<&'static str> {
        self.has_bundle.then_some(trust::BUNDLE)
    }

    /// Whether there is an environment for Python in it, and where below `work`.
    pub(crate) fn environment(&self) -> Option<&'static str> {
        self.python.as_ref().and_then(|_| ENVIRONMENT.strip_prefix("work/"))
    }
}

fn stamp(root: &OwnedFd, name: &str) -> io::Result<Stamp> {
    let found = rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(Stamp { device: found.st_dev, inode: found.st_ino, changed: (found.st_ctime, found.st_ctime_nsec) })
}

/// Makes a folder that is the job's own; one that is there stays as it is.
pub(crate) fn make_owned(path: &Path, owner: Option<u32>) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(io::Error::new(e.kind(), format!("making {}: {e}", path.display()))),
        Ok(()) => owner.map_or(Ok(()), |owner| chown(path, Some(owner), Some(owner))),
    }
}

/// The folders of a node.
#[derive(Debug)]
pub(crate) struct Folders {
    /// Below it each folder has a number.
    dir: PathBuf,
    /// The trusted roots that each is given.
    bundle: Option<PathBuf>,
    next: Cell<u64>,
    /// The one that was used last is at the end, and is used next.
    spares: RefCell<Vec<Folder>>,
}

impl Folders {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, bundle: None, next: Cell::new(1), spares: RefCell::default() }
    }

    #[must_use]
    pub(crate) fn with_bundle(self, bundle: PathBuf) -> Self {
        Self { bundle: Some(bundle), ..self }
    }

    /// A folder that nobody has left anything in.
    pub(crate) fn take(&self, owner: Option<u32>, python: Option<Interpreter>) -> io::Result<Folder> {
        let mut spares = self.spares.borrow_mut();
        let taken_ms = boot_ms();
        let fits = |spare: &Folder| spare.owner == owner && spare.is_aged(taken_ms) && spare.python == python;
        let folder = match spares.iter().rposition(fits) {
            Some(at) => spares.remove(at),
            None => Folder::make(self.fresh(), owner, python, self.bundle.as_deref())?,
        };
        Ok(Folder { taken_ms, ..folder })
    }

    /// Takes a folder back when nobody needs anything in it any more. `untouched` is what [`Folder::is_untouched`]
    /// said; `spool` is what lies beside.
    pub(crate) fn give_back(self: &Rc<Self>, folder: Folder, untouched: bool, spool: SpoolEnd) {
        if untouched && spool.head_bytes + spool.after_head_bytes <= SPOOL_BYTES_KEPT {
            self.keep(folder);
        } else {
            // As many as were needed at once will be needed again.
            let Folder { dir, owner, python, .. } = folder;
            self.prepare(owner, python);
            // What the job left there may be large: not on the driver's thread.
            tokio::task::spawn_blocking(move || delete(&dir));
        }
    }

    /// Makes a spare one ahead of need.
    pub(crate) fn prepare(self: &Rc<Self>, owner: Option<u32>, python: Option<Interpreter>) {
        let (folders, at) = (self.clone(), self.fresh());
        tokio::task::spawn_local(async move {
            let bundle = folders.bundle.clone();
            let made =
                tokio::task::spawn_blocking(move || Folder::make(at, owner, python, bundle.as_deref())).await;
            match made {
                Ok(Ok(folder)) => folders.keep(folder),
                Ok(Err(e)) => boot_log::line(&e.to_string()),
                Err(_) => {}
            }
        });
    }

    fn keep(&self, folder: Folder) {
        let mut spares = self.spares.borrow_mut();
        spares.push(folder);
        if spares.len() > SPARES_MAX {
            let oldest = spares.remove(0);
            tokio::task::spawn_blocking(move || delete(&oldest.dir));
        }
    }

    fn fresh(&self) -> PathBuf {
        let number = self.next.get();
        self.next.set(number + 1);
        self.dir.join(number.to_string())
    }
}

fn delete(dir: &Path) {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            boot_log::line(&format!("deleting {}: {e}", dir.display()));
        }
        Ok(()) | Err(_) => {}
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
