//! What an isolated attempt sees: its own processes, its own `/tmp` and `/mnt`, and nothing of Neap's data.
//!
//! [`prepare`] runs once in the supervisor, after it was forked into new namespaces; [`enter`] in each attempt's first
//! process, on a copy of the supervisor's mounts. Neither ever touches the host's own mounts.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use crate::launch::{JOBS_PLACE, View};
use crate::sys;

/// The namespaces of an isolated attempt.
pub(crate) const NAMESPACES: u64 =
    (libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;

/// The step that failed and why.
pub(crate) type StepError = (&'static str, io::Error);

/// What is the same for all attempts of a supervisor: mounts that the host does not see, and the processes of this
/// pid namespace alone. In a user namespace, `/proc` stays the host's where the kernel refuses a new one (inside
/// containers that mask parts of it).
pub(crate) fn prepare(own_user_namespace: bool) -> Result<(), StepError> {
    sys::mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE, c"")
        .map_err(at("making mounts private"))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    match sys::mount(c"proc", c"/proc", c"proc", flags, c"") {
        Err(_) if own_user_namespace => Ok(()),
        other => other.map_err(at("mounting /proc")),
    }
}

/// Makes the world of this process look like `view`.
pub(crate) fn enter(view: &View) -> Result<(), StepError> {
    // Taken before anything is covered: the folders may lie below any of the places that follow.
    let work = sys::open_tree(&text(&view.work_dir)?).map_err(at("opening the working folder"))?;
    let tmp = sys::open_tree(&text(&view.tmp_dir)?).map_err(at("opening the folder for /tmp"))?;
    let mut binds = Vec::with_capacity(view.binds.len());
    for bind in &view.binds {
        let tree = sys::open_tree(&text(&bind.from)?).map_err(at("opening a folder to mount"))?;
        if bind.read_only {
            sys::make_read_only(&tree).map_err(at("making a mount read-only"))?;
        }
        binds.push((tree, &bind.to));
    }

    let users = view
        .users
        .as_ref()
        .map(|users| sys::open_tree(&text(users)?).map_err(at("opening the table of users")));
    if let Some(users) = users.transpose()? {
        sys::move_mount(&users, c"/etc/passwd").map_err(at("mounting the table of users"))?;
    }

    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(c"tmpfs", c"/mnt", c"tmpfs", flags, c"mode=0755").map_err(at("mounting a tmpfs on /mnt"))?;
    let place = Path::new(JOBS_PLACE).join(&view.job_name);
    for below in place.strip_prefix("/mnt").into_iter().flat_map(folders_to) {
        fs::create_dir(Path::new("/mnt").join(below)).map_err(at("making the job's place"))?;
    }
    sys::move_mount(&work, &text(&place)?).map_err(at("mounting the working folder"))?;
    for (tree, to) in binds {
        for below in to.strip_prefix("/mnt").into_iter().flat_map(folders_to) {
            match fs::create_dir(Path::new("/mnt").join(below)) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
                Ok(()) | Err(_) => Ok(()),
            }
            .map_err(at("making a place to mount at"))?;
        }
        sys::move_mount(&tree, &text(to)?).map_err(at("mounting a folder"))?;
    }

    for device in &view.closed_devices {
        close(&text(device)?).map_err(at("closing the device file of another's GPU"))?;
    }
    if Path::new("/dev/shm").is_dir() {
        fs::create_dir("/mnt/.shm").map_err(at("making /dev/shm"))?;
        fs::set_permissions("/mnt/.shm", fs::Permissions::from_mode(0o1777))
            .map_err(at("making /dev/shm"))?;
        bind(c"/mnt/.shm", c"/dev/shm").map_err(at("mounting /dev/shm"))?;
    }
    sys::move_mount(&tmp, c"/tmp").map_err(at("mounting /tmp"))?;
    fs::DirBuilder::new().mode(0o555).create("/mnt/.empty").map_err(at("making an empty folder"))?;
    for path in &view.hide {
        match bind(c"/mnt/.empty", &text(path)?) {
            // Below a place that is already covered: nothing to hide any more.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(at("hiding the data folder"))?,
        }
    }
    Ok(())
}

/// `a`, `a/b`, `a/b/c`: the folders on the way to `path`, and itself.
fn folders_to(path: &Path) -> Vec<&Path> {
    let mut folders: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    folders.reverse();
    folders
}

/// Maps the caller to itself in a user namespace just made.
pub(crate) fn map_self(uid: u32, gid: u32) -> Result<(), StepError> {
    let step = "mapping the user namespace";
    fs::write("/proc/self/setgroups", "deny").map_err(at(step))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).map_err(at(step))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).map_err(at(step))
}

/// Covers a device file with itself, from where it opens nothing. One that is not there needs no cover.
fn close(device: &CStr) -> io::Result<()> {
    let tree = match sys::open_tree(device) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    sys::make_deviceless(&tree)?;
    sys::move_mount(&tree, device)
}

fn bind(from: &CStr, to: &CStr) -> io::Result<()> {
    sys::mount(from, to, c"", libc::MS_BIND, c"")
}

fn at(step: &'static str) -> impl Fn(io::Error) -> StepError {
    move |e| (step, e)
}

fn text(path: &Path) -> Result<CString, StepError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        ("reading a path", io::Error::new(io::ErrorKind::InvalidInput, "a zero byte in the path"))
    })
}
