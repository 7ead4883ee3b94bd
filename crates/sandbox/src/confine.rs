//! What an isolated attempt's first process does to itself before it becomes the job: the layers, in the only order in
//! which each still can be put on. After the last one nothing of this can be undone.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::landlock::{self, Access};
use crate::launch::{JOBS_PLACE, View};
use crate::layers::{Layer, Layers};
use crate::root::{self, Root, StepError, step};
use crate::seccomp::Filter;
use crate::sys;

/// What is the same for all attempts of a node, found out and made once by its spawner.
#[derive(Clone, Debug)]
pub(crate) struct Confinement {
    pub layers: Layers,
    pub filter: Filter,
    pub landlock: Option<u32>,
    /// Cgroup namespaces can be made here.
    pub cgroup_namespace: bool,
    /// Folders of the machine that the operator lets every job see, and those that every job may write to.
    pub visible: Vec<PathBuf>,
    pub shared: Vec<PathBuf>,
}

/// Puts every layer on. The caller is a single-threaded process in a mount namespace of its own, and has joined its
/// cgroups. With `root` absent (a test has switched it off) it goes on seeing the machine's files.
pub(crate) fn confine(
    with: &Confinement,
    root: Option<&Root>,
    view: &View,
    own_program: Option<BorrowedFd<'_>>,
    file_bytes_max: Option<u64>,
) -> Result<(), StepError> {
    if with.cgroup_namespace {
        sys::unshare(libc::CLONE_NEWCGROUP).map_err(step("entering a cgroup namespace"))?;
    }
    if let Some(root) = root {
        root.enter(view)?;
    }
    match sys::new_keyring() {
        // A kernel without keys has none to share.
        Err(e) if e.raw_os_error() != Some(libc::ENOSYS) => Err(("making a keyring", e))?,
        Ok(()) | Err(_) => {}
    }
    crate::core_dumps::forbid_core_dumps();
    if let Some(bytes) = file_bytes_max {
        limit(Resource::Fsize, bytes).map_err(step("limiting the size of files"))?;
    }
    let own_namespace = with.layers.has(Layer::UserNamespace);
    if let Some(user) = view.user {
        sys::become_user(user, own_namespace).map_err(step("becoming the unprivileged user"))?;
    }
    if own_namespace {
        enter_user_namespace()?;
    }
    sys::no_new_privileges().map_err(step("giving up new privileges"))?;
    if let Some(version) = with.landlock.filter(|_| with.layers.has(Layer::Landlock)) {
        restrict_files(version, with, root.is_some(), view, own_program)
            .map_err(step("putting file rules in force"))?;
    }
    if with.layers.has(Layer::Seccomp) {
        with.filter.enter().map_err(step("putting the list of system calls in force"))?;
    }
    Ok(())
}

/// Last of all namespaces: from then on this process has no rights over any of the others.
fn enter_user_namespace() -> Result<(), StepError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(libc::CLONE_NEWUSER).map_err(step("entering a user namespace"))?;
    // Whoever has changed users cannot open its own files below /proc otherwise. There is nobody else of this user yet.
    sys::set_dumpable(true);
    root::map_self(uid, gid)
}

fn restrict_files(
    version: u32,
    with: &Confinement,
    in_own_root: bool,
    view: &View,
    own_program: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let work = if in_own_root { Path::new(JOBS_PLACE).join(&view.job_name) } else { view.work_dir.clone() };
    let tmp = if in_own_root { Path::new("/tmp") } else { view.tmp_dir.as_path() };
    let system: Vec<_> = root::SYSTEM.iter().map(|name| Path::new("/").join(name)).collect();
    let mut rules: Vec<(&Path, Access)> = vec![
        (Path::new("/"), Access::List),
        (Path::new("/proc"), Access::Use),
        (Path::new("/sys"), Access::Read),
        (Path::new("/dev"), Access::Use),
        (Path::new("/dev/shm"), Access::Change),
        (Path::new("/dev/pts"), Access::Change),
        (Path::new("/.neap"), Access::Read),
        // Where the machine's own resolv.conf and time zone may lead.
        (Path::new("/run"), Access::Read),
        (&work, Access::Change),
        (tmp, Access::Change),
        (Path::new("/var/tmp"), Access::Change),
    ];
    rules.extend(system.iter().map(|folder| (folder.as_path(), Access::Read)));
    rules.extend(with.visible.iter().map(|folder| (folder.as_path(), Access::Read)));
    rules.extend(with.shared.iter().map(|folder| (folder.as_path(), Access::Change)));
    rules.extend(view.binds.iter().map(|bind| {
        let seen = if in_own_root { bind.to.as_path() } else { bind.from.as_path() };
        (seen, if bind.read_only { Access::Read } else { Access::Change })
    }));
    if !in_own_root {
        rules.retain(|(path, _)| *path != Path::new("/var/tmp") && *path != Path::new("/run"));
    }
    landlock::restrict(version, &rules, own_program)
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let most = now.maximum.map_or(most, |hard| hard.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}
