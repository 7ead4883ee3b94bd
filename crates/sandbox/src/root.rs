//! The file system of an isolated attempt: a root of its own, made for it alone.
//!
//! [`Root::build`] runs in a parked supervisor, before anybody knows which job it will run: it mounts a small tmpfs,
//! puts the machine's programs into it read-only, and adds `/proc`, `/dev` and empty places. [`Root::enter`] runs in
//! the attempt's first process, on a copy of the supervisor's mounts: it adds the attempt's own folders, makes the rest
//! read-only and leaves the machine's root behind. Neither ever touches the host's own mounts.
//!
//! A job sees: the folders in [`SYSTEM`] and those the operator has listed, read-only; its own folder below
//! [`JOBS_PLACE`]; `/tmp` and `/var/tmp`, which are one folder of its own; `/dev/shm`; and nothing else of the machine.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::launch::{JOBS_PLACE, View};
use crate::sys;

/// Folders of the machine that every job sees, read-only: programs, libraries and their configuration.
pub(crate) const SYSTEM: [&str; 10] =
    ["bin", "etc", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "usr"];
/// Device files that every job has.
const DEVICES: [(&str, u32); 6] =
    [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9), ("tty", 0)];
/// Device files of GPUs and what their drivers need beside them, as far as they are not closed to the job.
const GPU_DEVICES: [&str; 4] = ["dri", "dxg", "kfd", "nvidia-caps"];
const GPU_PREFIX: &str = "nvidia";
/// The folder of the files that Neap writes for one attempt, as the job sees it.
const OWN_FILES: &str = ".neap";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
const ROOT_OPTIONS: &CStr = c"mode=0755,size=4m,nr_inodes=4096";

/// Whether isolated attempts see this folder of the machine.
pub fn is_system_folder(folder: &Path) -> bool {
    SYSTEM.iter().any(|name| folder.starts_with(Path::new("/").join(name)))
}

/// The step that failed and why.
pub(crate) type StepError = (&'static str, io::Error);

/// What of the machine a root shows, the same for all attempts of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostView {
    /// Where the root is mounted while it is made: an empty folder of the node's.
    pub at: PathBuf,
    /// Further folders to show, read-only.
    pub visible: Vec<PathBuf>,
    /// Further folders to show, which every job may write to as far as their own modes allow it.
    pub shared: Vec<PathBuf>,
    /// Folders that stay hidden even where they lie below one that is shown.
    pub hide: Vec<PathBuf>,
    /// The supervisor is in a user namespace: it can make no device files, and mounts come with what is below them.
    pub own_user_namespace: bool,
}

/// A root that waits for its attempt.
#[derive(Debug)]
pub(crate) struct Root {
    at: PathBuf,
    /// GPU device files of the machine, by their names below `/dev`.
    gpu_devices: Vec<String>,
}

impl Root {
    pub(crate) fn build(host: &HostView) -> Result<Self, StepError> {
        let at = &host.at;
        // Modes of folders are what is asked for, whatever the agent's mask.
        sys::mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE, c"")
            .map_err(step("making mounts private"))?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        sys::mount(c"tmpfs", &text(at)?, c"tmpfs", flags, ROOT_OPTIONS)
            .map_err(step("mounting the new root"))?;
        for name in SYSTEM {
            show_system(at, name).map_err(step("showing a folder of the machine"))?;
        }
        for folder in ["dev", "home", "mnt", "proc", "run", "sys", "tmp", "var", "var/tmp", OWN_FILES] {
            make_folder(&at.join(folder)).map_err(step("making the folders of the new root"))?;
        }
        symlink("../tmp", at.join("run/lock")).map_err(step("making the folders of the new root"))?;
        for folder in &host.visible {
            show(folder, &below(at, folder), true).map_err(step("showing a folder of the configuration"))?;
        }
        for folder in &host.shared {
            show(folder, &below(at, folder), false).map_err(step("showing a folder of the configuration"))?;
        }
        cover(at, &host.hide).map_err(step("hiding the data folder"))?;
        let proc = at.join("proc");
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        match sys::mount(c"proc", &text(&proc)?, c"proc", flags, c"") {
            // Inside a container that masks parts of its /proc, the kernel gives out no other.
            Err(_) if host.own_user_namespace => {
                bind_tree(Path::new("/proc"), &proc, 0).map_err(step("showing /proc"))?;
            }
            other => other.map_err(step("mounting /proc"))?,
        }
        show_kernel(&at.join("sys"), host.own_user_namespace).map_err(step("showing /sys"))?;
        build_devices(&at.join("dev"), host.own_user_namespace).map_err(step("making /dev"))?;
        for (name, content) in [("passwd", ""), ("group", ""), ("hosts", HOSTS)] {
            own_file(at, name, content).map_err(step("making the files of the new root"))?;
        }
        Ok(Self { at: at.clone(), gpu_devices: gpu_devices() })
    }

    /// Adds what is the attempt's own and goes in: from then on there is no other root for this process.
    pub(crate) fn enter(&self, view: &View) -> Result<(), StepError> {
        let at = &self.at;
        // What GPUs share, such as the driver's own files, is for jobs that have one.
        let open: Vec<_> = self.gpu_devices.iter().map(|name| (name, Path::new("/dev").join(name))).collect();
        let open: Vec<_> = open.into_iter().filter(|(_, file)| !view.closed_devices.contains(file)).collect();
        if open.iter().any(|(name, _)| is_one_gpu(name)) {
            for (device, file) in &open {
                show_device(file, &at.join("dev").join(device))
                    .map_err(step("showing the device file of a GPU"))?;
            }
        }
        for device in &view.closed_devices {
            // Those that every job has: GPUs of others were not shown in the first place.
            close(&below(at, device)).map_err(step("closing a device file"))?;
        }
        write_accounts(at, view.user).map_err(step("writing the table of users"))?;
        if let Some(resolver) = &view.resolver {
            write_resolver(at, resolver).map_err(step("writing the addresses of name servers"))?;
        }
        if !view.hosts.is_empty() {
            fs::write(at.join(OWN_FILES).join("hosts"), format!("{HOSTS}{}", view.hosts))
                .map_err(step("writing the table of hosts"))?;
        }
        let place = below(at, &Path::new(JOBS_PLACE).join(&view.job_name));
        make_folders(at, &place).map_err(step("making the job's place"))?;
        bind(&view.work_dir, &place, false).map_err(step("mounting the working folder"))?;
        for to in ["tmp", "var/tmp"] {
            bind(&view.tmp_dir, &at.join(to), false).map_err(step("mounting /tmp"))?;
        }
        for extra in &view.binds {
            let to = below(at, &extra.to);
            make_place(at, &to, extra.from.is_dir()).map_err(step("making a place to mount at"))?;
            bind(&extra.from, &to, extra.read_only).map_err(step("mounting a folder"))?;
        }
        cover(at, &view.hide).map_err(step("hiding the data folder"))?;
        for own in [at.clone(), at.join("dev")] {
            remount_read_only(&own).map_err(step("making the root read-only"))?;
        }
        leave_for(at).map_err(step("leaving the machine's root"))
    }
}

/// Makes `at` the root of this process's mounts, and lets go of the old one.
fn leave_for(at: &Path) -> io::Result<()> {
    std::env::set_current_dir(at)?;
    sys::pivot_root_here()?;
    std::env::set_current_dir("/")
}

/// A folder of the machine at the same place, or the same link where it is one.
fn show_system(at: &Path, name: &str) -> io::Result<()> {
    let (from, to) = (Path::new("/").join(name), at.join(name));
    match fs::symlink_metadata(&from) {
        Ok(found) if found.is_symlink() => symlink(fs::read_link(&from)?, to),
        Ok(found) if found.is_dir() => {
            make_folder(&to)?;
            let attributes = sys::READ_ONLY | sys::NO_SETUID | sys::NO_DEVICES;
            bind_tree(&from, &to, attributes)
        }
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// A folder or file of the machine at the same place; one that is not there is passed over.
fn show(from: &Path, to: &Path, read_only: bool) -> io::Result<()> {
    let Ok(found) = from.metadata() else { return Ok(()) };
    if to.exists() {
        return Ok(());
    }
    let parent = to.parent().unwrap_or(to);
    fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    if found.is_dir() {
        make_folder(to)?
    } else {
        drop(fs::File::create(to)?)
    }
    let read_only = if read_only { sys::READ_ONLY } else { 0 };
    bind_tree(from, to, read_only | sys::NO_SETUID | sys::NO_DEVICES)
}

fn bind_tree(from: &Path, to: &Path, attributes: u64) -> io::Result<()> {
    let tree = sys::open_tree_recursive(&path_text(from)?)?;
    sys::set_attributes(&tree, attributes, true)?;
    sys::move_mount(&tree, &path_text(to)?)
}

/// A folder of the attempt's at its place, whatever is mounted below it left out.
fn bind(from: &Path, to: &Path, read_only: bool) -> io::Result<()> {
    let tree = sys::open_tree(&path_text(from)?)?;
    let read_only = if read_only { sys::READ_ONLY } else { 0 };
    sys::set_attributes(&tree, sys::NO_SETUID | sys::NO_DEVICES | read_only, false)?;
    sys::move_mount(&tree, &path_text(to)?)
}

/// Puts an empty, read-only folder over each of these, as far as they can be seen.
fn cover(at: &Path, hide: &[PathBuf]) -> io::Result<()> {
    for path in hide {
        let to = below(at, path);
        if to.is_dir() {
            let options = c"mode=0555,size=4k,nr_inodes=2";
            let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
            sys::mount(c"tmpfs", &path_text(&to)?, c"tmpfs", flags, options)?;
        }
    }
    Ok(())
}

/// What the kernel tells of its devices; not the cgroups of others, which are mounted below. In a user namespace they
/// cannot be left out, and can be read but not changed.
fn show_kernel(to: &Path, own_user_namespace: bool) -> io::Result<()> {
    if own_user_namespace {
        return bind_tree(Path::new("/sys"), to, sys::READ_ONLY | sys::NO_SETUID | sys::NO_DEVICES);
    }
    let tree = sys::open_tree(c"/sys")?;
    sys::set_attributes(&tree, sys::READ_ONLY | sys::NO_SETUID | sys::NO_DEVICES, false)?;
    sys::move_mount(&tree, &path_text(to)?)
}

fn build_devices(dev: &Path, own_user_namespace: bool) -> io::Result<()> {
    let at = path_text(dev)?;
    let nodev = if own_user_namespace { libc::MS_NODEV } else { 0 };
    sys::mount(
        c"tmpfs",
        &at,
        c"tmpfs",
        libc::MS_NOSUID | libc::MS_NOEXEC | nodev,
        c"mode=0755,size=64k,nr_inodes=256",
    )?;
    for (name, minor) in DEVICES {
        let to = dev.join(name);
        let major = if name == "tty" { 5 } else { 1 };
        if own_user_namespace || sys::make_device(&path_text(&to)?, major, minor).is_err() {
            show_device(&Path::new("/dev").join(name), &to)?;
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name))?;
    }
    for name in ["pts", "shm"] {
        make_folder(&dev.join(name))?;
    }
    let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
    sys::mount(
        c"devpts",
        &path_text(&dev.join("pts"))?,
        c"devpts",
        flags,
        c"newinstance,ptmxmode=0666,mode=0620",
    )?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    sys::mount(c"tmpfs", &path_text(&dev.join("shm"))?, c"tmpfs", flags, c"mode=1777")
}

/// Shows a device file, or a folder of them.
fn show_device(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(found) = from.metadata() else { return Ok(()) };
    if found.is_dir() {
        make_folder(to)?
    } else {
        drop(fs::File::create(to)?)
    }
    let tree = sys::open_tree_recursive(&path_text(from)?)?;
    sys::set_attributes(&tree, sys::NO_SETUID, true)?;
    sys::move_mount(&tree, &path_text(to)?)
}

/// Names below `/dev` that have to do with GPUs.
fn gpu_devices() -> Vec<String> {
    let names = fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut found: Vec<String> = names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            // What is mounted there counts, not the entry of the folder.
            let kind = fs::metadata(entry.path()).ok()?.file_type();
            let device = kind.is_char_device()
                && (name.starts_with(GPU_PREFIX) || GPU_DEVICES.contains(&name.as_str()));
            (device || kind.is_dir() && GPU_DEVICES.contains(&name.as_str())).then_some(name)
        })
        .collect();
    found.sort_unstable();
    found
}

/// `nvidia0`, and not `nvidiactl`.
fn is_one_gpu(name: &str) -> bool {
    name.strip_prefix(GPU_PREFIX)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Covers a device file with itself, from where it opens nothing. One that is not there needs no cover.
fn close(device: &Path) -> io::Result<()> {
    let tree = match sys::open_tree(&path_text(device)?) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    sys::set_attributes(&tree, sys::NO_DEVICES, false)?;
    sys::move_mount(&tree, &path_text(device)?)
}

/// Mounts a file written by Neap over the machine's file of that name in `/etc`.
fn own_file(at: &Path, name: &str, content: &str) -> io::Result<()> {
    let own = at.join(OWN_FILES).join(name);
    let mut options = fs::OpenOptions::new();
    let mut file = options.create_new(true).write(true).mode(0o644).open(&own)?;
    io::Write::write_all(&mut file, content.as_bytes())?;
    let to = at.join("etc").join(name);
    if to.symlink_metadata().is_ok_and(|found| found.is_file()) {
        let tree = sys::open_tree(&path_text(&own)?)?;
        sys::move_mount(&tree, &path_text(&to)?)?;
    }
    Ok(())
}

/// Who the job is, by name, and who root is; nobody else of the machine is the job's business.
fn write_accounts(at: &Path, user: Option<u32>) -> io::Result<()> {
    let uid = user.unwrap_or_else(|| rustix::process::getuid().as_raw());
    let gid = user.unwrap_or_else(|| rustix::process::getgid().as_raw());
    let own = at.join(OWN_FILES);
    fs::write(
        own.join("passwd"),
        format!(
            "root:x:0:0:root:/root:/usr/sbin/nologin\nneap:x:{uid}:{gid}:Neap job:/tmp:/bin/bash\n\
             nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
    )?;
    fs::write(own.join("group"), format!("root:x:0:\nneap:x:{gid}:\nnogroup:x:65534:\n"))
}

/// The job's `/etc/resolv.conf`. Where the machine's is a link into `/run`, the file is put where the link leads.
fn write_resolver(at: &Path, resolver: &str) -> io::Result<()> {
    let own = at.join(OWN_FILES).join("resolv.conf");
    fs::write(&own, resolver)?;
    fs::set_permissions(&own, fs::Permissions::from_mode(0o644))?;
    let at_etc = at.join("etc/resolv.conf");
    let to = match fs::read_link(&at_etc) {
        Ok(link) => below(at, &lexical(&Path::new("/etc").join(link))),
        Err(_) => at_etc,
    };
    if !to.exists() {
        let Some(parent) = to.parent().filter(|parent| parent.starts_with(at.join("run"))) else {
            return Ok(());
        };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        drop(fs::File::create(&to)?);
    }
    let tree = sys::open_tree(&path_text(&own)?)?;
    sys::move_mount(&tree, &path_text(&to)?)
}

/// The path without `.` and `..`, by its words alone.
fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => clean.push(name),
            std::path::Component::ParentDir => drop(clean.pop()),
            _ => {}
        }
    }
    clean
}

/// Where an absolute path of the job's lies while its root is at `at`.
fn below(at: &Path, path: &Path) -> PathBuf {
    at.join(lexical(path).strip_prefix("/").unwrap_or(path))
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes the folders on the way from `at` to `path`, and `path` itself.
fn make_folders(at: &Path, path: &Path) -> io::Result<()> {
    let mut folder = at.to_owned();
    for part in path.strip_prefix(at).map_err(io::Error::other)?.components() {
        folder.push(part);
        make_folder(&folder)?;
    }
    Ok(())
}

/// Makes a folder, or an empty file, and the folders on the way.
fn make_place(at: &Path, path: &Path, is_folder: bool) -> io::Result<()> {
    if is_folder {
        return make_folders(at, path);
    }
    make_folders(at, path.parent().unwrap_or(at))?;
    fs::OpenOptions::new().create(true).append(true).open(path).map(drop)
}

fn remount_read_only(at: &Path) -> io::Result<()> {
    sys::set_attributes_at(&path_text(at)?, sys::READ_ONLY)
}

pub(crate) fn step(step: &'static str) -> impl Fn(io::Error) -> StepError {
    move |e| (step, e)
}

fn path_text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a zero byte in the path"))
}

fn text(path: &Path) -> Result<CString, StepError> {
    path_text(path).map_err(step("reading a path"))
}

/// Maps the caller to itself in a user namespace just made, and nobody else.
pub(crate) fn map_self(uid: u32, gid: u32) -> Result<(), StepError> {
    let mapping = "mapping the user namespace";
    fs::write("/proc/self/setgroups", "deny").map_err(step(mapping))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).map_err(step(mapping))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).map_err(step(mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_by_their_words() {
        for (path, expect) in [
            ("/etc/../run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
            ("/etc/./x", "/etc/x"),
            ("/../../a", "/a"),
            ("relative/../b", "/b"),
        ] {
            assert_eq!(lexical(Path::new(path)), Path::new(expect), "{path}");
        }
        assert_eq!(below(Path::new("/n/root"), Path::new("/../etc/x")), Path::new("/n/root/etc/x"));
    }
}
