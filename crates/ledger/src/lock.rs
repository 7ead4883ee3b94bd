//! One server per data folder: a lock file that the kernel lets go of when its holder dies, however it dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Lock {
    /// Held open: closing it is letting go.
    _file: File,
}

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Self, Error> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(Error::folder("opening the lock file", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The pid is a courtesy: the refusal stands without it.
                let _ = file.read_to_string(&mut text);
                return Err(Error::InUse { pid: text.trim().parse().ok(), lock: path.into() });
            }
            Err(TryLockError::Error(source)) => return Err(Error::folder("locking", path)(source)),
        }
        // A full disk must not keep the server from starting to serve reads: the lock holds without the pid.
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{}", std::process::id()));
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "the lock is held, but its file does not name this process");
        }
        Ok(Self { _file: file })
    }
}
