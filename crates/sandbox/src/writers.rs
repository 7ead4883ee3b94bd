//! Whether anybody can still write to a file: a descriptor opened for writing outlives every change of owner and mode.

use std::os::fd::{AsFd, AsRawFd};

/// Whether the file of this read-only descriptor may be open for writing somewhere, or mapped for it. In doubt it is.
///
/// Asks the kernel for a read lease, which it refuses while there is a writer, and gives it back at once. Call it
/// when nobody else may open the file for writing any more: to open a leased file is a signal to its holder.
pub fn may_have_writers(file: impl AsFd) -> bool {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: both commands take the descriptor, which is open, and a plain integer.
    unsafe {
        if libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) != 0 {
            return true;
        }
        libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_descriptor_for_writing_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let writer = File::create(&path).unwrap();
        assert!(may_have_writers(File::open(&path).unwrap()));
        drop(writer);
        assert!(!may_have_writers(File::open(&path).unwrap()));
    }
}
