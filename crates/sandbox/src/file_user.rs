//! File operations with another user's rights, for a few calls on this thread.
//!
//! Root that works inside a folder a job could have prepared takes the job's own file-system identity first. A link
//! that leads out of the folder then leads only to what the job could have reached itself.

use std::io;
use std::marker::PhantomData;

/// Runs `work` with the file-system user and group `uid`, and without supplementary groups. Only this thread changes.
///
/// The kernel takes the capabilities over files (DAC override, chown, fowner, mknod) away with the identity, and gives
/// them back with it. Without a `uid`, or where this process is not root, it only runs `work`.
///
/// # Errors
/// The kernel did not switch; `work` has not run.
pub fn with_file_user<T>(uid: Option<u32>, work: impl FnOnce() -> T) -> io::Result<T> {
    let _switched = match uid.filter(|uid| *uid != 0 && rustix::process::geteuid().is_root()) {
        Some(uid) => Some(Switched::to(uid)?),
        None => None,
    };
    Ok(work())
}

/// The identity is the other one for as long as this lives, also while a panic unwinds.
struct Switched {
    groups: Vec<libc::gid_t>,
    dumpable: libc::c_int,
    /// An identity belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl Switched {
    fn to(uid: u32) -> io::Result<Self> {
        // SAFETY: it takes no further arguments, and gives a small number.
        let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
        let switched = Self { groups: groups()?, dumpable, _not_send: PhantomData };
        if !switched.groups.is_empty() {
            set_groups(&[])?;
        }
        set_file_ids(uid, uid)?;
        Ok(switched)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let back = set_file_ids(0, 0);
        let groups = if self.groups.is_empty() { Ok(()) } else { set_groups(&self.groups) };
        if back.is_err() || groups.is_err() {
            // Everything this thread did from now on would be done by somebody else.
            std::process::abort();
        }
        // The kernel closes a process whose identity changed to all but root with CAP_SYS_PTRACE. Whoever fences the
        // node must still find its mark.
        // SAFETY: a plain number, which the kernel checks.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, self.dumpable, 0, 0, 0) };
    }
}

fn groups() -> io::Result<Vec<libc::gid_t>> {
    // SAFETY: with a size of 0 the call writes nothing.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).map_err(|_| io::Error::last_os_error())?];
    // SAFETY: `groups` has room for `count` ids.
    let count = unsafe { libc::getgroups(count, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).map_err(|_| io::Error::last_os_error())?);
    Ok(groups)
}

/// Raw, since libc's wrapper would change all threads.
fn set_groups(groups: &[libc::gid_t]) -> io::Result<()> {
    // SAFETY: pointer and length are those of a live slice.
    match unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The group first: the user takes the right to change it away.
fn set_file_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: both calls take any integer. They return the id before, so that a second call with an impossible id,
    // which changes nothing, tells whether the first one worked.
    let (gid_now, uid_now) = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        (libc::syscall(libc::SYS_setfsgid, u32::MAX), libc::syscall(libc::SYS_setfsuid, u32::MAX))
    };
    // The calls give an int, which a large id makes negative.
    if (gid_now as u32, uid_now as u32) == (gid, uid) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "taking the file rights of user {uid}: the kernel refused; the agent needs CAP_SETUID and CAP_SETGID"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const SOMEBODY: u32 = 1_999_000_001;

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn the_identity_is_the_users_inside_and_roots_again_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "s").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let (read, made) = with_file_user(Some(SOMEBODY), || {
            (std::fs::read(&secret).is_ok(), std::fs::write(dir.path().join("mine"), "m").is_ok())
        })
        .unwrap();
        assert!(made);
        if is_root() {
            assert!(!read, "another user reads no file of root's");
            let mine = dir.path().join("mine").metadata().unwrap();
            assert_eq!((mine.uid(), mine.gid()), (SOMEBODY, SOMEBODY));
        }
        assert!(std::fs::read(&secret).is_ok(), "the rights are back");
        assert!(std::fs::write(&secret, "t").is_ok());
    }

    #[test]
    fn a_panic_gives_the_identity_back() {
        let unwound = std::panic::catch_unwind(|| with_file_user(Some(SOMEBODY), || panic!("on purpose")));
        assert!(unwound.is_err());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "").unwrap();
        assert_eq!(path.metadata().unwrap().uid(), rustix::process::getuid().as_raw());
    }
}
