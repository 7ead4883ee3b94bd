//! Connections: how the writer's and the readers' are opened, and the settings without which nothing is written.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::Error;
use crate::limits;

pub(crate) const FILE: &str = "neap.db";

/// The one connection that writes. Refuses a database on which a commit would not be durable.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, Error> {
    let storage = || Error::storage("opening the log", path);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(storage())?;
    configure(&connection, limits::WRITER_CACHE_KB).map_err(storage())?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(storage())?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(storage())?;
    connection.pragma_update(None, "foreign_keys", true).map_err(storage())?;
    // An erased document leaves nothing of itself in the file.
    connection.pragma_update(None, "secure_delete", true).map_err(storage())?;
    connection.pragma_update(None, "wal_autocheckpoint", limits::WAL_CHECKPOINT_PAGES).map_err(storage())?;
    connection
        .pragma_update(None, "journal_size_limit", crate::chain::to_sql(limits::WAL_BYTES_KEPT))
        .map_err(storage())?;

    let mode: String =
        connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(storage())?;
    demand(path, "journal_mode", "wal", mode)?;
    let synchronous: i64 =
        connection.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(storage())?;
    demand(path, "synchronous", "2", synchronous.to_string())?;
    Ok(connection)
}

fn demand(path: &Path, pragma: &'static str, wanted: &'static str, found: String) -> Result<(), Error> {
    if found == wanted { Ok(()) } else { Err(Error::NotDurable { path: path.into(), pragma, wanted, found }) }
}

/// A connection that cannot write, beside the writer or without one.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, Error> {
    let storage = || Error::storage("opening the log for reading", path);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(storage())?;
    configure(&connection, limits::READER_CACHE_KB).map_err(storage())?;
    Ok(connection)
}

fn configure(connection: &Connection, cache_kb: u32) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_millis(limits::BUSY_TIMEOUT_MS))?;
    connection.set_prepared_statement_cache_capacity(limits::STATEMENTS_KEPT);
    connection.pragma_update(None, "cache_size", -i64::from(cache_kb))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "trusted_schema", false)
}
