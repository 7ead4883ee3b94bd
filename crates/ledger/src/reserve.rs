//! Disk space set aside for the log, so that a full disk stops new work and never the end of old work.
//!
//! Half of the reserve is blocks allocated for SQLite's write-ahead log, beyond its end: nobody else can take them. The
//! other half is two files. When the disk runs full, [`Reserve::look`] empties the first: its blocks serve whatever else
//! a server must write to stop jobs. Whoever filled the disk may take those too, so the second file is kept for the next
//! start and emptied only then. The reserve never decides what may be written meanwhile: the writer asks the command.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::limits::{RESERVE_DISK_SHARE, RESERVE_LOOKS_PER_CHECK};

/// The files, in the log's folder: for a server that runs, and for one that starts.
const FILE: &str = "reserve";
const START_FILE: &str = "reserve.start";
/// Each file has this part of the reserve.
const FILE_SHARE: u64 = 4;
const BLOCK_BYTES: u64 = 512;
const PIECE_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Reserve {
    /// The log's folder.
    folder: PathBuf,
    wal: PathBuf,
    /// The whole reserve; 0 switches it off.
    bytes: u64,
    in_use: bool,
    looks: u32,
}

impl Reserve {
    /// Sets space aside, as far as there is any. Call it before the log is opened: opening takes space, too.
    pub(crate) fn open(folder: &Path, database: &Path, bytes_max: u64) -> Self {
        let mut wal = database.as_os_str().to_owned();
        wal.push("-wal");
        let bytes = disk(folder).map_or(0, |disk| bytes_max.min(disk.total / RESERVE_DISK_SHARE));
        let mut reserve = Self { folder: folder.to_owned(), wal: wal.into(), bytes, in_use: false, looks: 0 };
        // A server that ended while the disk was full left an empty file.
        reserve.in_use = reserve.bytes > 0 && !reserve.is_filled();
        if reserve.look() {
            empty(&folder.join(START_FILE));
        }
        reserve
    }

    /// Whether the disk is so full that the reserve is in use. Costs one call of the system.
    pub(crate) fn look(&mut self) -> bool {
        if self.bytes == 0 {
            return self.in_use;
        }
        let Some(disk) = disk(&self.folder) else { return self.in_use };
        if self.in_use {
            if disk.free >= self.bytes && self.fill().is_ok() {
                self.in_use = false;
                tracing::info!(bytes = self.bytes, "the disk has room again: the log's reserve is refilled");
            }
        } else if disk.free < self.bytes / 4 {
            self.release();
        }
        self.looks = self.looks.wrapping_add(1);
        if !self.in_use && self.looks % RESERVE_LOOKS_PER_CHECK == 1 {
            self.extend_wal();
        }
        self.in_use
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// The disk is full, whatever it says of itself (a quota, for one).
    pub(crate) fn release(&mut self) {
        if self.bytes == 0 || self.in_use {
            return;
        }
        self.in_use = true;
        empty(&self.folder.join(FILE));
        // At once: whoever fills the disk takes free blocks, too.
        self.extend_wal();
        tracing::warn!(
            bytes = self.bytes,
            "the disk is full: the log's reserve is in use, and new work is refused until there is room"
        );
    }

    fn is_filled(&self) -> bool {
        [FILE, START_FILE].iter().all(|name| {
            let found = self.folder.join(name).metadata();
            found.is_ok_and(|found| found.blocks() * BLOCK_BYTES >= self.bytes / FILE_SHARE)
        })
    }

    fn fill(&self) -> io::Result<()> {
        for name in [START_FILE, FILE] {
            let mut options = OpenOptions::new();
            let path = self.folder.join(name);
            let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
            let bytes = self.bytes / FILE_SHARE;
            file.set_len(bytes)?;
            allocate(&file, bytes).inspect_err(|_| {
                let _ = file.set_len(0);
            })?;
        }
        Ok(())
    }

    /// Blocks for the write-ahead log beyond what it holds. There may be none yet, or no room: then the files
    /// have to do.
    fn extend_wal(&self) {
        let Ok(file) = OpenOptions::new().write(true).open(&self.wal) else { return };
        if file.metadata().is_ok_and(|meta| meta.blocks() * BLOCK_BYTES < self.bytes / 2) {
            let _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, self.bytes / 2);
        }
    }
}

fn empty(path: &Path) {
    let emptied = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(0));
    if let Err(error) = emptied {
        tracing::warn!(%error, path = %path.display(), "the log's reserve cannot be freed");
    }
}

/// Blocks for the first `bytes` of the file; zeros where the file system cannot allocate.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; PIECE_BYTES];
            let mut left = bytes;
            let mut file = file;
            while left > 0 {
                let piece = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
                file.write_all(&zeros[..piece])?;
                left -= piece as u64;
            }
            file.sync_data()
        }
        other => other.map_err(io::Error::from),
    }
}

/// Whether the log in this folder lives on its reserve: seen from outside, while its server runs or not.
pub fn reserve_is_in_use(folder: &Path) -> bool {
    folder.join(FILE).metadata().is_ok_and(|found| found.len() == 0)
}

struct Disk {
    total: u64,
    free: u64,
}

fn disk(folder: &Path) -> Option<Disk> {
    let fs = rustix::fs::statvfs(folder).ok()?;
    Some(Disk {
        total: fs.f_blocks.saturating_mul(fs.f_frsize),
        free: fs.f_bavail.saturating_mul(fs.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_set_aside_and_freed() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("neap.db");
        std::fs::write(folder.path().join("neap.db-wal"), "x").unwrap();
        let mut reserve = Reserve::open(folder.path(), &database, 2 * 1024 * 1024);
        let blocks = |name: &str| folder.path().join(name).metadata().unwrap().blocks() * BLOCK_BYTES;
        let each = 512 * 1024;
        assert!(
            !reserve.look() && blocks(FILE) >= each && blocks(START_FILE) >= each,
            "filled at the first look"
        );
        assert!(blocks("neap.db-wal") >= 1024 * 1024, "blocks beyond the end");
        assert_eq!(folder.path().join("neap.db-wal").metadata().unwrap().len(), 1, "which stays where it is");
        reserve.release();
        assert_eq!(blocks(FILE), 0);
        assert!(reserve_is_in_use(folder.path()));
        assert!(blocks(START_FILE) >= each, "for the next start");
        assert!(!reserve.look(), "there is room here: it is filled again");
        assert!(blocks(FILE) >= each && !reserve_is_in_use(folder.path()));
    }

    #[test]
    fn no_reserve_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::open(folder.path(), &folder.path().join("neap.db"), 0);
        reserve.release();
        assert!(!reserve.look());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
