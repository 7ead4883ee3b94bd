//! File rules that the kernel keeps for a process and all that it starts, whatever is mounted where: the second layer
//! behind the root of its own. Kernels before 5.13 have none; newer ones know more rules, and each gets what it knows.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::sys;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// Everything about files that the first version knows: reading, writing, making and removing.
const FIRST: u64 = (1 << 13) - 1;
/// Rights that make sense on a file that is no folder.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const SCOPE_ABSTRACT_SOCKETS: u64 = 1;
const SCOPE_SIGNALS: u64 = 1 << 1;

/// The version of the rules that this kernel knows; none if it has no Landlock, or does not use it.
pub(crate) fn version() -> Option<u32> {
    sys::landlock_version().ok()
}

fn rights_known(version: u32) -> u64 {
    let mut rights = FIRST;
    if version >= 2 {
        rights |= REFER;
    }
    if version >= 3 {
        rights |= TRUNCATE;
    }
    if version >= 5 {
        rights |= IOCTL_DEV;
    }
    rights
}

/// What a process may do below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// List folders, and nothing else.
    List,
    /// Read and execute.
    Read,
    /// Read, and write to what is there: devices, and the process's own files below `/proc`.
    Use,
    /// Everything.
    Change,
}

impl Access {
    fn rights(self) -> u64 {
        match self {
            Self::List => READ_DIR,
            Self::Read => EXECUTE | READ_FILE | READ_DIR,
            Self::Use => EXECUTE | READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV,
            Self::Change => u64::MAX,
        }
    }
}

/// Restricts the calling process to these paths for ever. It must have given up new privileges. A path that is not
/// there needs no rule.
pub(crate) fn restrict(
    version: u32,
    rules: &[(&Path, Access)],
    program: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let known = rights_known(version);
    let scopes = if version >= 6 { SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS } else { 0 };
    let set = sys::landlock_new(known, scopes, version)?;
    for (path, access) in rules {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let at: OwnedFd = match rustix::fs::open(*path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS) => continue,
            other => other?,
        };
        let is_folder = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&at)?.st_mode).is_dir();
        let rights = access.rights() & known & if is_folder { u64::MAX } else { OF_FILES };
        sys::landlock_allow(&set, at.as_raw_fd(), rights)?;
    }
    if let Some(program) = program {
        sys::landlock_allow(&set, program.as_raw_fd(), EXECUTE | READ_FILE)?;
    }
    sys::landlock_enter(&set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_asked_for_no_more_than_it_knows() {
        for (version, expect) in
            [(1, 0x1fff), (2, 0x3fff), (3, 0x7fff), (4, 0x7fff), (5, 0xffff), (9, 0xffff)]
        {
            assert_eq!(rights_known(version), expect, "version {version}");
        }
        assert_eq!(Access::Change.rights() & rights_known(1), FIRST);
        assert_eq!(Access::Read.rights() & (WRITE_FILE | TRUNCATE), 0);
    }
}
