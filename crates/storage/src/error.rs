//! What can go wrong with blobs, said so that a person knows what to do.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::BlobAddress;

/// A storage operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such container.
    #[error("container {container:?} of account {account:?} does not exist")]
    ContainerNotFound {
        /// The account.
        account: String,
        /// The container.
        container: String,
    },
    /// There is no such blob.
    #[error("blob {0} does not exist")]
    BlobNotFound(String),
    /// The blob was to be made new, and is there.
    #[error("blob {0} already exists")]
    BlobExists(String),
    /// The blob is not the version that the caller knows.
    #[error("blob {0} was changed since it was read; read it again")]
    ConditionNotMet(String),
    /// A name that cannot be stored.
    #[error("{what} {name:?} cannot be used: {why}")]
    BadName {
        /// Account, container, blob or metadata.
        what: &'static str,
        /// The name, cut if it is very long.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// Bytes were offered beyond the end of what is there.
    #[error(
        "{name} has {have_bytes} bytes, and bytes were offered from {offered_at}; send again from {have_bytes}"
    )]
    Gap {
        /// The blob.
        name: String,
        /// How much is there.
        have_bytes: u64,
        /// Where the offered bytes began.
        offered_at: u64,
    },
    /// A list of blocks names one that was never staged.
    #[error(
        "the block list of {name} names a block that was not uploaded ({block}); upload the blocks again"
    )]
    UnknownBlock {
        /// The blob.
        name: String,
        /// The block's id as the client wrote it.
        block: String,
    },
    /// Content does not have the checksum that was announced.
    #[error("the content of {0} does not have the MD5 that was sent with it; upload it again")]
    Md5Mismatch(String),
    /// Something is larger than its limit.
    #[error("{what} of {name} is larger than {max}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The blob.
        name: String,
        /// The limit.
        max: u64,
    },
    /// A range that lies outside of the blob.
    #[error("the range begins after the end of {name}, which has {length} bytes")]
    RangeNotSatisfiable {
        /// The blob.
        name: String,
        /// Its length.
        length: u64,
    },
    /// A text that should be a range, a marker, a time or an id, and is not.
    #[error("{what} {text:?} is not valid: {why}")]
    BadInput {
        /// What it should be.
        what: &'static str,
        /// What it is.
        text: String,
        /// Why not.
        why: &'static str,
    },
    /// The disk, or the owner's share of it, is full.
    #[error(
        "the disk is full: could not {action} {path}. Free space on that file system; nothing of this request was kept"
    )]
    DiskFull {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
    },
    /// The account (a workspace) keeps as much as it may.
    #[error(
        "the workspace keeps {} of the {} that it may (storage.workspace_mb_max), {holders}; nothing of this request \
         was kept. Delete what is no longer needed, or ask for more",
        crate::usage::mb(*kept_bytes), crate::usage::mb(*max_bytes)
    )]
    AccountFull {
        /// The account.
        account: String,
        /// What it keeps, with what is on its way in.
        kept_bytes: u64,
        /// What it may keep.
        max_bytes: u64,
        /// Its largest containers.
        holders: String,
    },
    /// A folder of the store was replaced by a link.
    #[error("{path} is a symbolic link, which the blob store never follows; remove it")]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// Any other failure of the file system.
    #[error("could not {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// The container of this blob is not there.
    pub(crate) fn no_container(address: &BlobAddress) -> Self {
        Self::ContainerNotFound {
            account: address.account().to_owned(),
            container: address.container().to_owned(),
        }
    }

    /// Turns a failure of the system into ours, telling a full disk from the rest.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull { action, path },
            _ => Self::Io { action, path, source },
        }
    }

    /// The same for what SQLite says.
    pub(crate) fn database(action: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull { action, path },
            _ => Self::Io { action, path, source: std::io::Error::other(source) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let path = Path::new("x");
        // ENOSPC and EDQUOT.
        for code in [28, 122] {
            let error = Error::io("write", path)(std::io::Error::from_raw_os_error(code));
            assert!(matches!(error, Error::DiskFull { .. }), "{code}");
        }
        let error = Error::io("write", path)(std::io::Error::from_raw_os_error(5));
        assert!(matches!(error, Error::Io { .. }));
        // SQLITE_FULL and SQLITE_IOERR.
        for (code, full) in [(13, true), (10, false)] {
            let said = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            let error = Error::database("write", path)(said);
            assert_eq!(matches!(error, Error::DiskFull { .. }), full, "{error}");
        }
    }
}
