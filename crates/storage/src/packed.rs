//! Small blobs without files of their own. A blob that only grows by appends, which is what a job's log
//! is, stands in one database as long as it is small: a file and its folders cost far more than the few
//! lines that most jobs write.
//!
//! A commit is in the hands of the system when an append returns, and is not forced to disk: the process
//! may die, and loses nothing; a power cut may take the last moments, as it does with files. Which of a
//! file and a row of the same name counts is not decided here, see `place.rs`.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use crate::properties::OPEN_FLAGS;
use crate::{
    BlobAddress, BlobProperties, Error, Headers, PACKED_CACHE_KB, PACKED_CHECKPOINT_PAGES,
    PACKED_ROWS_AT_ONCE, PACKED_WAL_BYTES, PACKED_WAL_DISK_SHARE, Result,
};

/// Account names have no dot, so this is nobody's account.
const FILE: &str = "packed.db";

const SCHEMA_VERSION: u32 = 1;

/// In the order in which containers are listed. The bytes stand last, so that the rest of a row is read
/// without them.
const SCHEMA: &str = "
    CREATE TABLE packed (
        account     TEXT    NOT NULL,
        container   TEXT    NOT NULL,
        name        TEXT    NOT NULL,
        length      INTEGER NOT NULL,
        modified_ms INTEGER NOT NULL,
        revision    INTEGER NOT NULL,
        body        BLOB    NOT NULL,
        PRIMARY KEY (account, container, name)
    ) STRICT, WITHOUT ROWID;
    PRAGMA user_version = 1;
";

/// The first revision is any number, so that a blob that is made anew has another ETag; halved, so that
/// counting on from it never comes to the end.
const INSERT: &str = "
    INSERT INTO packed (account, container, name, length, modified_ms, revision, body)
    VALUES (?1, ?2, ?3, length(?4), CAST(1000 * unixepoch('subsec') AS INTEGER), random() / 2, ?4)";

const GROW: &str = "
    UPDATE packed SET
        length = length + length(?4),
        modified_ms = CAST(1000 * unixepoch('subsec') AS INTEGER),
        revision = revision + 1,
        body = CAST(body || ?4 AS BLOB)
    WHERE account = ?1 AND container = ?2 AND name = ?3";

/// The packed blobs of a store.
#[derive(Debug)]
pub(crate) struct Packed {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// A packed blob with its bytes.
pub(crate) struct PackedBlob {
    pub properties: BlobProperties,
    pub body: Vec<u8>,
}

impl Packed {
    /// Opens the database in the store's folder, or makes it.
    pub fn open(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        let failed = || Error::database("open", &path);
        // Made here for its mode; what SQLite puts beside it gets the same.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OPEN_FLAGS)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        let connection = Connection::open(&path).map_err(failed())?;
        // One process owns the folder and has one connection: without locks an append takes a third less.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed())?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed())?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed())?;
        connection.pragma_update(None, "cache_size", -i64::from(PACKED_CACHE_KB)).map_err(failed())?;
        connection.pragma_update(None, "wal_autocheckpoint", PACKED_CHECKPOINT_PAGES).map_err(failed())?;
        prepare_schema(&connection, &path)?;
        set_room_aside(root, &path);
        Ok(Self { path, connection: Mutex::new(connection) })
    }

    /// How long the blob is; none if there is no such row.
    pub fn length(&self, address: &BlobAddress) -> Result<Option<u64>> {
        self.row(
            address,
            "SELECT length FROM packed WHERE account = ?1 AND container = ?2 AND name = ?3",
            |row| number(row, 0),
        )
    }

    pub fn last_byte(&self, address: &BlobAddress) -> Result<Option<u8>> {
        let sql = "SELECT substr(body, -1) FROM packed WHERE account = ?1 AND container = ?2 AND name = ?3";
        let byte = self.row(address, sql, |row| row.get::<_, Vec<u8>>(0))?;
        Ok(byte.and_then(|byte| byte.first().copied()))
    }

    pub fn properties(&self, address: &BlobAddress) -> Result<Option<BlobProperties>> {
        let sql = "SELECT length, modified_ms, revision FROM packed
            WHERE account = ?1 AND container = ?2 AND name = ?3";
        self.row(address, sql, |row| properties(row, 0))
    }

    pub fn blob(&self, address: &BlobAddress) -> Result<Option<PackedBlob>> {
        let sql = "SELECT length, modified_ms, revision, body FROM packed
            WHERE account = ?1 AND container = ?2 AND name = ?3";
        self.row(address, sql, |row| Ok(PackedBlob { properties: properties(row, 0)?, body: row.get(3)? }))
    }

    fn row<T>(
        &self,
        address: &BlobAddress,
        sql: &str,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let connection = self.lock();
        let found = cached(&connection, sql).and_then(|mut statement| {
            statement
                .query_row(params![address.account(), address.container(), address.name()], read)
                .optional()
        });
        found.map_err(Error::database("read", &self.path))
    }

    /// Makes a blob of these bytes, if `allowed` says so. It is asked while no container's blobs can be
    /// removed from here, so that none is left in one that is gone.
    pub fn insert(
        &self,
        address: &BlobAddress,
        bytes: &[u8],
        allowed: impl FnOnce() -> bool,
    ) -> Result<bool> {
        let connection = self.lock();
        if !allowed() {
            return Ok(false);
        }
        self.write(&connection, INSERT, address, bytes)
    }

    /// Adds bytes to a blob. False if there is no such row.
    pub fn grow(&self, address: &BlobAddress, bytes: &[u8]) -> Result<bool> {
        self.write(&self.lock(), GROW, address, bytes)
    }

    fn write(&self, connection: &Connection, sql: &str, address: &BlobAddress, bytes: &[u8]) -> Result<bool> {
        let changed = cached(connection, sql).and_then(|mut statement| {
            statement.execute(params![address.account(), address.container(), address.name(), bytes])
        });
        Ok(changed.map_err(Error::database("append to", &self.path))? > 0)
    }

    /// Removes the row, if there is one.
    pub fn remove(&self, address: &BlobAddress) -> Result<()> {
        let connection = self.lock();
        let sql = "DELETE FROM packed WHERE account = ?1 AND container = ?2 AND name = ?3";
        let removed = cached(&connection, sql).and_then(|mut statement| {
            statement.execute(params![address.account(), address.container(), address.name()])
        });
        removed.map(drop).map_err(Error::database("remove a blob from", &self.path))
    }

    /// Removes a container's rows, some at a time, so that appends elsewhere go on.
    pub fn remove_container(&self, account: &str, container: &str) -> Result<()> {
        let sql = "DELETE FROM packed WHERE account = ?1 AND container = ?2 AND name IN
            (SELECT name FROM packed WHERE account = ?1 AND container = ?2 LIMIT ?3)";
        loop {
            let connection = self.lock();
            let removed = cached(&connection, sql)
                .and_then(|mut statement| statement.execute(params![account, container, PACKED_ROWS_AT_ONCE]))
                .map_err(Error::database("remove blobs from", &self.path))?;
            if removed < usize::from(PACKED_ROWS_AT_ONCE) {
                return Ok(());
            }
        }
    }

    /// The bytes of an account's packed blobs, together. In pages, so that nobody waits long for a turn.
    pub fn account_bytes(&self, account: &str) -> Result<u64> {
        let (mut bytes, mut container) = (0, String::new());
        while let Some((_, next)) =
            self.container_after(account, &container)?.filter(|(found, _)| found == account)
        {
            let mut from = String::new();
            loop {
                let page = self.page(account, &next, &from)?;
                bytes += page.iter().map(|(_, properties)| properties.length).sum::<u64>();
                match page.last() {
                    // The least name after it.
                    Some((last, _)) => from = format!("{last}\0"),
                    None => break,
                }
            }
            container = next;
        }
        Ok(bytes)
    }

    /// The bytes of packed blobs by account and container.
    pub fn container_bytes(&self) -> Result<Vec<(String, String, u64)>> {
        let sql = "SELECT account, container, sum(length) FROM packed GROUP BY account, container";
        let connection = self.lock();
        let rows = cached(&connection, sql).and_then(|mut statement| {
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, number(row, 2)?)))?.collect()
        });
        rows.map_err(Error::database("read", &self.path))
    }

    pub fn remove_account(&self, account: &str) -> Result<()> {
        let mut container = String::new();
        while let Some((_, next)) =
            self.container_after(account, &container)?.filter(|(found, _)| found == account)
        {
            self.remove_container(account, &next)?;
            container = next;
        }
        Ok(())
    }

    /// The account and name of the first container after this one that has packed blobs.
    pub fn container_after(&self, account: &str, container: &str) -> Result<Option<(String, String)>> {
        let sql = "SELECT account, container FROM packed WHERE (account, container) > (?1, ?2)
            ORDER BY account, container LIMIT 1";
        let connection = self.lock();
        let found = cached(&connection, sql).and_then(|mut statement| {
            statement.query_row(params![account, container], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        });
        found.map_err(Error::database("read", &self.path))
    }

    /// A container's blobs from this name on, in the order of the names' bytes: at most
    /// [`PACKED_ROWS_AT_ONCE`].
    pub fn page(&self, account: &str, container: &str, from: &str) -> Result<Vec<(String, BlobProperties)>> {
        let sql = "SELECT name, length, modified_ms, revision FROM packed
            WHERE account = ?1 AND container = ?2 AND name >= ?3 ORDER BY name LIMIT ?4";
        let connection = self.lock();
        let rows = cached(&connection, sql).and_then(|mut statement| {
            statement
                .query_map(params![account, container, from, PACKED_ROWS_AT_ONCE], |row| {
                    Ok((row.get(0)?, properties(row, 1)?))
                })?
                .collect()
        });
        rows.map_err(Error::database("list", &self.path))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks for the write-ahead log, which take no room from its length: on a full disk blobs can still be removed. Where
/// the file system cannot, or has no room, nothing is set aside.
fn set_room_aside(root: &Path, database: &Path) {
    let Ok(disk) = rustix::fs::statvfs(root) else { return };
    let total = disk.f_blocks.saturating_mul(disk.f_frsize);
    let bytes = PACKED_WAL_BYTES.min(total / PACKED_WAL_DISK_SHARE);
    // What is left of a nearly full disk is for those who need it to start.
    if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes.saturating_mul(2) {
        return;
    }
    let mut wal = database.as_os_str().to_owned();
    wal.push("-wal");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(OPEN_FLAGS);
    if let Ok(file) = options.open(Path::new(&wal)) {
        let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes);
    }
}

fn prepare_schema(connection: &Connection, path: &Path) -> Result<()> {
    let failed = || Error::database("open", path);
    let found: u32 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed())?;
    match found {
        SCHEMA_VERSION => Ok(()),
        0 => connection.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} COMMIT;")).map_err(failed()),
        newer => Err(Error::Io {
            action: "open",
            path: path.to_owned(),
            source: std::io::Error::other(format!(
                "it has schema version {newer}, and this release knows {SCHEMA_VERSION}; start the newer Neap that wrote it"
            )),
        }),
    }
}

fn cached<'c>(connection: &'c Connection, sql: &str) -> rusqlite::Result<CachedStatement<'c>> {
    connection.prepare_cached(sql)
}

/// Length, time and revision, from this column on.
fn properties(row: &Row<'_>, at: usize) -> rusqlite::Result<BlobProperties> {
    Ok(BlobProperties {
        length: number(row, at)?,
        etag: format!("0x{:016X}", row.get::<_, i64>(at + 2)?),
        last_modified_ms: row.get(at + 1)?,
        headers: Headers::default(),
    })
}

fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(at)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(at, value))
}

#[cfg(test)]
mod tests;
