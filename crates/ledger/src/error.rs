//! What can go wrong with the log, on what, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::limits;

const ADVICE_DAMAGED: &str = "Nothing was changed. Run `neap verify` to list everything that is damaged, \
     then restore the data folder from a backup.";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the data folder is in use by another server ({}); stop it with `neap down`, or use another folder (lock: {})",
        pid.map_or_else(|| "its pid is not known".into(), |pid| format!("pid {pid}")), lock.display())]
    InUse { pid: Option<u32>, lock: PathBuf },

    /// `seq` is 0 when the file cannot be read at all.
    #[error("the log is damaged: {}{what}. {advice}", if *seq == 0 { String::new() } else { format!("record {seq} ") })]
    Damaged { seq: u64, what: String, advice: String },

    #[error(
        "record {seq} is a '{kind}' event of version {version}, written by Neap {release}, and this release \
         cannot read it; start Neap {release} or newer"
    )]
    UnknownEvent { seq: u64, kind: String, version: u16, release: String },

    #[error("the disk that holds {} is full: nothing was written; writing goes on by itself once there is room", path.display())]
    Full { path: PathBuf },

    #[error("the log takes no writes: {reason}")]
    ReadOnly { reason: String },

    #[error("{} has schema version {found}, and this release knows up to {known}; start the newer Neap that wrote it", path.display())]
    NewerSchema { path: PathBuf, found: u32, known: u32 },

    #[error("{} has schema version {found}, and this release works with {known}; start the server once, which brings it \
         up to date", path.display())]
    OlderSchema { path: PathBuf, found: u32, known: u32 },

    #[error("SQLite was asked for {pragma} = {wanted} on {} and answered {found}; without it writes would not be \
         durable. Use a local file system", path.display())]
    NotDurable { path: PathBuf, pragma: &'static str, wanted: &'static str, found: String },

    #[error("the batch has an event of time {at} after one of time {last}; a log's time never goes back")]
    TimeWentBack { at: u64, last: u64 },

    #[error("there is no log at {}", path.display())]
    NoLedger { path: PathBuf },

    #[error("{doing} {}: {source}", path.display())]
    Folder { doing: &'static str, path: PathBuf, source: io::Error },

    #[error("{doing}: {source}")]
    Storage { doing: &'static str, source: rusqlite::Error },

    #[error("a document cannot be written as JSON: {0}")]
    DocumentJson(serde_json::Error),

    #[error("no random bytes from the system for a document's salt: {0}")]
    Random(String),

    #[error(
        "the document {document} is encrypted, and identity/vault.key does not open it: {detail}. Restore the \
         identity folder that belongs to this ledger"
    )]
    Seal { document: neap_core::DocHash, detail: String },
}

impl Error {
    pub(crate) fn damaged(seq: u64, what: impl Into<String>) -> Self {
        Self::Damaged { seq, what: what.into(), advice: ADVICE_DAMAGED.into() }
    }

    pub(crate) fn folder(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
                Self::Full { path: path.into() }
            } else {
                Self::Folder { doing, path: path.into(), source }
            }
        }
    }

    /// Sorts what SQLite says into a full disk, damage, or the rest.
    pub(crate) fn storage(doing: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full { path: path.into() },
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if is_nearly_full(path) => {
                Self::Full { path: path.into() }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::damaged(0, format!("{}: {source} (while {doing})", path.display()))
            }
            _ => Self::Storage { doing, source },
        }
    }

    /// A record that SQLite cannot hand out is a damaged record.
    pub(crate) fn record(seq: u64, path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) | None => {
                Self::damaged(seq, format!("cannot be read: {source}"))
            }
            Some(_) => Self::storage("reading the log", path)(source),
        }
    }
}

/// SQLite tells most full disks as such, but a failed sync or a failed index growth only as an I/O error.
fn is_nearly_full(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    rustix::fs::statvfs(folder)
        .is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) < limits::FULL_DISK_BYTES)
}
