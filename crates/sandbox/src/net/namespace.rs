//! Network namespaces: entering one for a moment, and keeping one alive by a name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::mount::UnmountFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

const PRESENT: &str = "/proc/thread-self/ns/net";
/// `statfs` calls the kernel's namespace files this.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// The calling thread's namespace.
pub(crate) fn present() -> io::Result<OwnedFd> {
    Ok(File::open(PRESENT)?.into())
}

/// Takes the calling thread back where it came from, however the work ends.
struct Return(OwnedFd);

impl Drop for Return {
    fn drop(&mut self) {
        if enter(self.0.as_fd()).is_err() {
            // Going on in the wrong namespace would be worse than ending.
            std::process::abort();
        }
    }
}

/// Does something in a namespace, on the calling thread. Other threads stay where they are; processes that `work`
/// starts run there.
pub(crate) fn inside<T>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let home = present()?;
    enter(namespace)?;
    let _return = Return(home);
    work()
}

fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

/// Makes a namespace that stays until [`release`], whoever ends.
pub(crate) fn create_pinned(pin: &Path) -> io::Result<OwnedFd> {
    release(pin)?;
    File::options().write(true).create_new(true).mode(0o600).open(pin)?;
    let _return = Return(present()?);
    // SAFETY: no file descriptors are unshared, only this thread's network namespace; `_return` takes it back.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    rustix::mount::mount_bind(PRESENT, pin)?;
    present()
}

/// The namespace behind a pin. None if there is no pin, or only the file that it would be mounted on.
pub(crate) fn open_pinned(pin: &Path) -> io::Result<Option<OwnedFd>> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(pin) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let is_namespace = rustix::fs::fstatfs(&file)?.f_type as u64 == NSFS_MAGIC;
    Ok(is_namespace.then(|| file.into()))
}

/// Lets a pinned namespace end with its last process and socket. Fine if there is none.
pub(crate) fn release(pin: &Path) -> io::Result<()> {
    // A name may have been mounted over more than once.
    while open_pinned(pin)?.is_some() {
        rustix::mount::unmount(pin, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
    }
    match std::fs::remove_file(pin) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
