//! Attempts' folders, each used once, and the spare ones that were made ahead.
//!
//! A job can hand a descriptor of its folder to a process outside, which then sees and changes the folder after the job
//! has ended. So nothing of a folder is used again: it goes with its attempt, and the next attempt gets one that no job
//! has seen. A spare costs its attempt only the change of owner.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use neap_sandbox::remove_path;

use crate::python::Interpreter;
use crate::tree::Tree;
use crate::{boot_log, light_environment, trust};

/// Spare folders of a node.
const SPARES_MAX: usize = 64;
/// Folders of the job's own in every attempt's folder, below `work`.
const SKELETON: [&str; 5] = ["checkpoint", "exe", "exe/wd", "exe/wd/outputs", "exe/wd/logs"];
const WORK: &str = "work";
const TMP: &str = "tmp";
/// With a user of its own the job may add to its folder, but neither remove nor rename what others have put there: its
/// read-only inputs.
const WORK_MODE: u32 = 0o1777;

/// The folder of one attempt, or of one build.
#[derive(Debug)]
pub(crate) struct Folder {
    pub dir: PathBuf,
    /// All of it. Only `work` and `tmp` are seen by the job.
    pub own: Tree,
    pub work: Tree,
    pub tmp: Tree,
    owner: Option<u32>,
    python: Option<Interpreter>,
    has_bundle: bool,
    /// Below `work`: what is to be the job's.
    given: Vec<String>,
}

impl Folder {
    /// Makes a folder that is nobody's yet.
    fn make(dir: PathBuf, python: Option<Interpreter>, bundle: Option<&Path>) -> io::Result<Self> {
        let made = Self::make_in(&dir, python, bundle);
        made.map_err(|e| {
            let _ = remove_path(&dir);
            io::Error::new(e.kind(), format!("making {}: {e}", dir.display()))
        })
    }

    fn make_in(dir: &Path, python: Option<Interpreter>, bundle: Option<&Path>) -> io::Result<Self> {
        // Above it there is nothing that a job could change.
        rustix::fs::mkdir(dir, rustix::fs::Mode::RWXU)?;
        let own = Tree::open(dir, None)?;
        for name in [WORK, TMP] {
            own.make_folders(name, 0o700)?;
        }
        let (work, tmp) = (own.enter(WORK)?, own.enter(TMP)?);
        let mut given: Vec<String> = SKELETON.map(str::to_owned).into();
        for name in &given {
            work.make_folders(name, 0o700)?;
        }
        if let Some(python) = &python {
            given.extend(light_environment::write(python, &work)?);
        }
        if let Some(bundle) = bundle {
            trust::give_bundle(bundle, &work)?;
        }
        let has_bundle = bundle.is_some();
        Ok(Self { dir: dir.to_owned(), own, work, tmp, owner: None, python, has_bundle, given })
    }

    /// Makes it the folder of this user, who has not run anything yet.
    fn give(mut self, owner: Option<u32>) -> io::Result<Self> {
        if let Some(user) = owner {
            self.tmp.give("", user)?;
            for name in &self.given {
                self.work.give(name, user)?;
            }
            self.work.set_mode(WORK_MODE)?;
        }
        self.owner = owner;
        (self.work, self.tmp) = (self.work.with_user(owner), self.tmp.with_user(owner));
        Ok(self)
    }

    pub(crate) fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// Whether the trusted roots are in it, and where below `work`.
    pub(crate) fn bundle(&self) -> Option<&'static str> {
        self.has_bundle.then_some(trust::BUNDLE)
    }

    pub(crate) fn interpreter(&self) -> Option<PathBuf> {
        self.python.as_ref().map(|python| python.program.clone())
    }

    /// Whether there is an environment for Python in it, and where below `work`.
    pub(crate) fn environment(&self) -> Option<&'static str> {
        self.python.as_ref().map(|_| light_environment::FOLDER)
    }
}

/// The folders of a node.
#[derive(Debug)]
pub(crate) struct Folders {
    /// Below it each folder has a number, which is used once.
    dir: PathBuf,
    /// The trusted roots that each is given.
    bundle: Option<PathBuf>,
    next: Cell<u64>,
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

    /// A folder that no job has seen, for this user.
    pub(crate) fn take(&self, owner: Option<u32>, python: Option<Interpreter>) -> io::Result<Folder> {
        let mut spares = self.spares.borrow_mut();
        let folder = match spares.iter().position(|spare| spare.python == python) {
            Some(at) => spares.remove(at),
            None => Folder::make(self.fresh(), python, self.bundle.as_deref())?,
        };
        folder.give(owner)
    }

    /// Takes a folder back when nobody needs anything in it any more. It is deleted, and a new one made.
    pub(crate) fn give_back(self: &Rc<Self>, folder: Folder) {
        // As many as were needed at once will be needed again.
        self.prepare(folder.python.clone());
        self.delete(folder);
    }

    /// Deletes the folder of a build. No spares are kept for builds.
    pub(crate) fn delete(&self, folder: Folder) {
        let dir = folder.dir.clone();
        drop(folder);
        // What the job left there may be large, and deep: not on the driver's thread.
        tokio::task::spawn_blocking(move || {
            if let Err(e) = remove_path(&dir) {
                boot_log::line(&format!("deleting {}: {e}; it goes with the node", dir.display()));
            }
        });
    }

    /// Makes a spare one ahead of need.
    pub(crate) fn prepare(self: &Rc<Self>, python: Option<Interpreter>) {
        if self.spares.borrow().len() >= SPARES_MAX {
            return;
        }
        let (folders, at) = (self.clone(), self.fresh());
        tokio::task::spawn_local(async move {
            let bundle = folders.bundle.clone();
            let made = tokio::task::spawn_blocking(move || Folder::make(at, python, bundle.as_deref())).await;
            match made {
                Ok(Ok(folder)) => folders.spares.borrow_mut().push(folder),
                Ok(Err(e)) => boot_log::line(&e.to_string()),
                Err(_) => {}
            }
        });
    }

    fn fresh(&self) -> PathBuf {
        let number = self.next.get();
        self.next.set(number + 1);
        self.dir.join(number.to_string())
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
