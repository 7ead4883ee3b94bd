//! The one writer. A batch is one transaction: documents, events and query tables are durable together or not at all.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use neap_core::meter::Posting;
use neap_core::{Event, Millis, State};
use rusqlite::{Connection, OptionalExtension, params};

use crate::chain::{self, Head, to_sql};
use crate::check::ChainCheck;
use crate::document::Document;
use crate::error::Error;
use crate::lock::Lock;
use crate::reader::{Damage, Reader};
use crate::recent::Recent;
use crate::reserve::Reserve;
use crate::seal::{self, Seal, Sealing};
use crate::snapshot::{self, Snapshotter};
use crate::start::Started;
use crate::{costs, database, limits, past, projection, schema, start};

#[derive(Clone, Debug)]
pub struct Options {
    /// Events between two snapshots.
    pub snapshot_every: u64,
    /// What keeps a second server out; by default `neap.lock` in the ledger's own folder.
    pub lock: Option<PathBuf>,
    /// Walk the chain before the snapshot in the background.
    pub check_older_chain: bool,
    /// Written beside the first record of each release, so that a record nobody knows can name its writer.
    pub release: String,
    /// The most pages the database may have; `None` is SQLite's own limit.
    pub pages_max: Option<u32>,
    /// Disk space set aside for the log; see [`Ledger::look_at_disk`]. 0: none.
    pub reserve_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            snapshot_every: limits::SNAPSHOT_EVERY_EVENTS,
            lock: None,
            check_older_chain: true,
            release: env!("CARGO_PKG_VERSION").into(),
            pages_max: None,
            reserve_bytes: 0,
        }
    }
}

#[derive(Debug)]
pub struct Opened {
    pub ledger: Ledger,
    pub state: State,
    pub head: Head,
    /// Events applied on top of the snapshot.
    pub replayed: u64,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub entries: Vec<Entry>,
    pub documents: Vec<Document>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub at: Millis,
    pub actor: Arc<str>,
    pub event: Event,
    /// What it means for the books.
    pub postings: Vec<Posting>,
}

/// Owned by the thread that writes.
#[derive(Debug)]
pub struct Ledger {
    // Fields are dropped in this order: the threads end, then the connections close, the writer's last so that it
    // carries the write-ahead log over, and only then is the lock let go.
    check: Option<ChainCheck>,
    snapshotter: Snapshotter,
    reader: Reader,
    recent: Recent,
    connection: Connection,
    path: PathBuf,
    head: Head,
    release: String,
    release_is_noted: bool,
    damage: Damage,
    reserve: Reserve,
    seal: Sealing,
    _lock: Lock,
}

impl Ledger {
    /// Opens the log in `dir`, making it if there is none, and rebuilds the state.
    ///
    /// # Guarantees
    /// Every record after the snapshot was checked. Nobody else writes while the ledger lives.
    ///
    /// # Errors
    /// [`Error::InUse`] while another server has the folder; [`Error::Damaged`] and [`Error::UnknownEvent`] with the
    /// record's number: nothing has then been changed.
    pub fn open(dir: &Path, options: Options) -> Result<Opened, Error> {
        let snapshots = snapshot::folder(dir);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&snapshots)
            .map_err(Error::folder("making the folder", &snapshots))?;
        let lock = Lock::take(options.lock.as_deref().unwrap_or(&dir.join("neap.lock")))?;
        snapshot::sweep_parts(&snapshots);

        let path = dir.join(database::FILE);
        past::sweep(&path);
        // Before anything is opened: on a full disk that takes the reserve.
        let mut reserve = Reserve::open(dir, &path, options.reserve_bytes);
        create_private(&path)?;
        let mut connection = database::open_writer(&path)?;
        if let Some(pages) = options.pages_max {
            connection
                .pragma_update(None, "max_page_count", pages)
                .map_err(Error::storage("limiting the log's size", &path))?;
        }
        schema::migrate(&mut connection, &path, schema::STEPS)?;
        let started = start::start(&connection, &path, &snapshots, u64::MAX >> 1)?;

        let damage = Damage::default();
        let check = match started.snapshot {
            Some(until) if options.check_older_chain => {
                Some(ChainCheck::begin(&path, until, damage.clone())?)
            }
            Some(_) | None => None,
        };
        let recent = Recent::default();
        let last_snapshot = started.snapshot.map_or(0, |head| head.seq);
        let mut warnings = started.warnings;
        if reserve.look() {
            warnings.push(format!(
                "the disk that holds {} is full: jobs can be stopped and deleted, and new work is refused until there is room",
                dir.display()
            ));
        }
        let ledger = Self {
            check,
            snapshotter: Snapshotter::new(snapshots, options.snapshot_every, last_snapshot),
            reader: Reader::new(&path, damage.clone(), recent.clone()),
            recent,
            connection,
            path,
            head: started.head,
            release: options.release,
            release_is_noted: false,
            damage,
            reserve,
            seal: None,
            _lock: lock,
        };
        ledger.keep_wal_small(false, ledger.reserve.is_in_use());
        let Started { state, head, replayed, .. } = started;
        Ok(Opened { ledger, state, head, replayed, warnings })
    }

    /// From now on documents are sealed when they are written, and opened when they are read.
    ///
    /// # Errors
    /// [`Error::Seal`] if the newest sealed document does not open: this is another installation's key.
    pub fn seal_with(&mut self, seal: Arc<dyn Seal>) -> Result<(), Error> {
        self.reader = self.reader.sealed(seal.clone());
        self.reader.check_seal()?;
        self.seal = Some(seal);
        Ok(())
    }

    /// Writes a batch as one transaction. On return it is on the disk, or nothing of it is. `at` is when the
    /// documents were written; each event brings its own time.
    ///
    /// # Errors
    /// [`Error::Full`]: there was no room; the same ledger goes on once there is. [`Error::ReadOnly`]: damage was found.
    pub fn append(&mut self, at: Millis, batch: &Batch) -> Result<Head, Error> {
        if let Some(reason) = self.damage.get() {
            return Err(Error::ReadOnly { reason: reason.clone() });
        }
        if batch.entries.is_empty() && batch.documents.is_empty() {
            return Ok(self.head);
        }
        let written = self.write(at, batch);
        match written {
            Ok(head) => {
                self.head = head;
                self.release_is_noted |= !batch.entries.is_empty();
                self.remember(batch);
                Ok(head)
            }
            Err(error) => {
                self.after_failure();
                if matches!(error, Error::Full { .. }) {
                    let was = self.reserve.is_in_use();
                    self.reserve.release();
                    self.keep_wal_small(was, true);
                }
                Err(error)
            }
        }
    }

    /// Whether the disk is so full that the reserve is in use: then only what stops, deletes and cleans should be
    /// written. Frees the reserve when the disk runs full, and takes it back when there is room.
    pub fn look_at_disk(&mut self) -> bool {
        let was = self.reserve.is_in_use();
        let is = self.reserve.look();
        self.keep_wal_small(was, is);
        is
    }

    /// In this order: what was written and erased in one batch is erased.
    fn remember(&self, batch: &Batch) {
        self.recent.keep(&batch.documents);
        for entry in &batch.entries {
            if let Event::DocumentErased(erased) = &entry.event {
                self.recent.erase(&erased.document);
            }
        }
    }

    pub fn head(&self) -> Head {
        self.head
    }

    /// Whether enough has happened since the last snapshot, and none is being written.
    pub fn snapshot_due(&self) -> bool {
        self.snapshotter.due(self.head)
    }

    /// Begins a snapshot of `state`, which must be the one at `head`, on another thread. Waits only if the one before
    /// is still being written. A snapshot that fails is told in the log of the server, and costs only a longer start.
    pub fn write_snapshot(&mut self, state: &State, head: Head) -> Result<(), Error> {
        self.snapshotter.begin(state.clone(), head)
    }

    /// Returns when no snapshot is being written, with the last one's outcome.
    pub fn wait_for_snapshot(&mut self) -> Result<(), Error> {
        self.snapshotter.wait()
    }

    /// The last record that the background check found good, if there is one under way or done.
    pub fn checked(&self) -> Option<u64> {
        self.check.as_ref().map(ChainCheck::checked)
    }

    /// Returns when the background check is done.
    pub fn wait_for_check(&mut self) {
        if let Some(check) = &mut self.check {
            check.wait();
        }
    }

    /// Why nothing is written any more, if so.
    pub fn read_only(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    fn write(&self, at: Millis, batch: &Batch) -> Result<Head, Error> {
        let storage = || Error::storage("writing to the log", &self.path);
        let transaction = self.connection.unchecked_transaction().map_err(storage())?;
        self.write_documents(at, batch)?;
        let mut head = self.head;
        for entry in &batch.entries {
            if entry.at < head.at {
                return Err(Error::TimeWentBack { at: entry.at.0, last: head.at.0 });
            }
            head = self.write_event(head, entry).map_err(storage())?;
        }
        if !self.release_is_noted && !batch.entries.is_empty() {
            self.note_release().map_err(storage())?;
        }
        neap_crash::point("in-transaction-before-commit");
        transaction.commit().map_err(storage())?;
        Ok(head)
    }

    fn write_documents(&self, at: Millis, batch: &Batch) -> Result<(), Error> {
        let storage = || Error::storage("writing to the log", &self.path);
        // The same document again is the same row, and one that was erased stays erased.
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO documents (hash, salt, body, written_ms) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        ).map_err(storage())?;
        for document in &batch.documents {
            let (salt, body) = seal::to_row(&self.seal, &document.hash, &document.salt, &document.body)?;
            insert.execute(params![document.hash.0, salt, body, to_sql(at.0)]).map_err(storage())?;
        }
        Ok(())
    }

    fn write_event(&self, head: Head, entry: &Entry) -> rusqlite::Result<Head> {
        let (seq, at, event) = (head.seq + 1, entry.at, &entry.event);
        let (kind, version, body) = (event.kind(), event.version(), event.encode());
        let hash = chain::link(&head.hash, seq, at, kind, version, &entry.actor, &body);
        self.connection.prepare_cached(chain::INSERT)?.execute(params![
            to_sql(seq),
            to_sql(at.0),
            kind,
            version,
            entry.actor,
            body,
            head.hash,
            hash
        ])?;
        costs::post(&self.connection, seq, &entry.postings)?;
        projection::project(&self.connection, seq, at, event)?;
        if let Event::DocumentErased(erased) = event {
            projection::erase(&self.connection, erased)?;
        }
        Ok(Head { seq, hash, at })
    }

    /// While the reserve is in use the write-ahead log goes round in what it has.
    fn keep_wal_small(&self, was_in_use: bool, is_in_use: bool) {
        if was_in_use == is_in_use {
            return;
        }
        let pages = if is_in_use { limits::RESERVE_CHECKPOINT_PAGES } else { limits::WAL_CHECKPOINT_PAGES };
        if let Err(error) = self.connection.pragma_update(None, "wal_autocheckpoint", pages) {
            tracing::warn!(%error, "the write-ahead log may grow");
        }
    }

    fn note_release(&self) -> rusqlite::Result<()> {
        let last: Option<String> = self
            .connection
            .query_row("SELECT release FROM releases ORDER BY first_seq DESC LIMIT 1", [], |row| row.get(0))
            .optional()?;
        if last.as_deref() != Some(&self.release) {
            self.connection.execute(
                "INSERT INTO releases (first_seq, release) VALUES (?1, ?2)",
                params![to_sql(self.head.seq + 1), self.release],
            )?;
        }
        Ok(())
    }

    /// A failed transaction must have left nothing. If the log does not end where it did, what is in memory and what
    /// is on the disk have parted, and writing on would fork the chain.
    fn after_failure(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a failed transaction was not rolled back");
        }
        let stored = self
            .connection
            .query_row("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1", [], |row| {
                Ok((chain::from_sql(row.get(0)?), chain::hash(row, 1)?))
            })
            .optional();
        match stored {
            Ok(found) if found.unwrap_or((0, chain::GENESIS)) == (self.head.seq, self.head.hash) => {}
            Ok(found) => {
                let found = found.map_or(0, |(seq, _)| seq);
                let reason = format!(
                    "after a failed write the log ends at record {found} instead of {}; restart the server",
                    self.head.seq
                );
                tracing::error!(reason);
                let _ = self.damage.set(reason);
            }
            // The disk may be in trouble for a while: the next append finds out.
            Err(error) => tracing::warn!(%error, "the end of the log could not be read after a failed write"),
        }
    }
}

/// SQLite gives its side files the mode of the database, and takes an empty file for a new one.
fn create_private(path: &Path) -> Result<(), Error> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(Error::folder("making the file", path))
}
