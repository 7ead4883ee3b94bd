//! The file: one connection that writes, a few that read beside it.

use std::fs::OpenOptions;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::watch;

use crate::{Error, Result, limits, schema};

const FILE: &str = "tracking.db";

/// Everything that runs have told.
#[derive(Debug)]
pub struct Tracking {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
    changes: watch::Sender<u64>,
}

impl Tracking {
    /// Opens the file in this folder, or makes both.
    ///
    /// # Assumptions
    /// No other process writes there.
    pub fn open(folder: &Path) -> Result<Self> {
        let file = |action, path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { action, path, source }
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(file("make the folder", folder))?;
        let path = folder.join(FILE);
        // Made here for its mode; what SQLite puts beside it gets the same.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(file("open", &path))?;
        let failed = || Error::database("open", &path);
        let writer = Connection::open(&path).map_err(failed())?;
        configure(&writer, limits::WRITER_CACHE_KB).map_err(failed())?;
        writer.pragma_update(None, "journal_mode", "WAL").map_err(failed())?;
        writer.pragma_update(None, "synchronous", "NORMAL").map_err(failed())?;
        writer.pragma_update(None, "wal_autocheckpoint", limits::CHECKPOINT_PAGES).map_err(failed())?;
        let kept = i64::try_from(limits::WAL_BYTES_KEPT).unwrap_or(i64::MAX);
        writer.pragma_update(None, "journal_size_limit", kept).map_err(failed())?;
        schema::prepare(&writer, &path)?;
        Ok(Self {
            path,
            writer: Mutex::new(writer),
            readers: Mutex::default(),
            changes: watch::Sender::new(0),
        })
    }

    /// Ticks after every write. A sweep waits here for its trials' metrics.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Everything `work` does becomes so together, or nothing of it does.
    pub(crate) fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut connection = lock(&self.writer);
        let failed = || Error::database("write to", &self.path);
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(failed())?;
        let done = work(&transaction).map_err(|e| e.at("write to", &self.path))?;
        transaction.commit().map_err(failed())?;
        drop(connection);
        self.changes.send_modify(|count| *count += 1);
        Ok(done)
    }

    pub(crate) fn read<T>(&self, ask: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let kept = lock(&self.readers).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => self.open_reader()?,
        };
        let answer = ask(&connection).map_err(|e| e.at("read", &self.path));
        let mut readers = lock(&self.readers);
        if readers.len() < limits::READERS_KEPT {
            readers.push(connection);
        }
        answer
    }

    fn open_reader(&self) -> Result<Connection> {
        let failed = || Error::database("open for reading", &self.path);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags).map_err(failed())?;
        configure(&connection, limits::READER_CACHE_KB).map_err(failed())?;
        Ok(connection)
    }
}

fn configure(connection: &Connection, cache_kb: u32) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_millis(limits::BUSY_TIMEOUT_MS))?;
    connection.set_prepared_statement_cache_capacity(limits::STATEMENTS_KEPT);
    connection.pragma_update(None, "cache_size", -i64::from(cache_kb))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "trusted_schema", false)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
