//! Which mini-batch is whose, and what came of it: one SQLite file beside the log.
//!
//! A mini-batch is claimed by one attempt of one worker. When that attempt no longer runs, the claim is void. A result is
//! taken once: the first one wins, and what comes later changes nothing.

use std::fs::OpenOptions;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::{Counts, Error, Result, limits};

const FILE: &str = "parallel.db";
const VERSION: u32 = 1;
const FREE: i64 = 0;
const CLAIMED: i64 = 1;
const DONE: i64 = 2;
const FAILED: i64 = 3;

const SCHEMA: &str = "
    CREATE TABLE families (
        family INTEGER PRIMARY KEY,
        -- What keeps all of it from going on, if anything does.
        fault  TEXT,
        total  INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE batches (
        family  INTEGER NOT NULL,
        number  INTEGER NOT NULL,
        files   TEXT    NOT NULL,
        items   INTEGER NOT NULL,
        state   INTEGER NOT NULL DEFAULT 0,
        job     INTEGER,
        attempt INTEGER,
        tries   INTEGER NOT NULL DEFAULT 0,
        missing INTEGER NOT NULL DEFAULT 0,
        error   TEXT,
        PRIMARY KEY (family, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX batches_by_state ON batches (family, state, number);
    CREATE TABLE results (
        family INTEGER NOT NULL,
        number INTEGER NOT NULL,
        rows   TEXT    NOT NULL,
        PRIMARY KEY (family, number)
    ) STRICT;
    PRAGMA user_version = 1;
";

/// Who holds a mini-batch: an attempt of a worker's job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    pub job: u64,
    pub attempt: u32,
}

/// What became of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Runs,
    /// The job goes on, but this attempt does not: its node is gone.
    Lost,
    /// The job has ended.
    Ended,
}

/// What a worker says of a mini-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub number: u32,
    pub report: Report,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// `items` went in and `returned` came out, as `rows` of text.
    Done {
        items: u64,
        returned: u64,
        rows: String,
    },
    Failed {
        error: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub number: u32,
    pub files: Vec<String>,
}

/// One exchange with a worker.
#[derive(Clone, Debug)]
pub struct Exchange<'a> {
    pub family: u64,
    pub holder: Holder,
    pub finished: &'a [Finished],
    /// What it works on, or is about to: of what it holds here, anything else never reached it.
    pub holding: &'a [u32],
    /// How many more it can take.
    pub want: u32,
    pub max_retries: u32,
    /// Files that workers write beside their rows are stored when they end: with a lost attempt they are gone, and so its
    /// results do not count.
    pub files_with_attempt: bool,
}

/// Every mini-batch of every parallel job that has not ended.
#[derive(Debug)]
pub struct Batches {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Batches {
    /// Opens the file in this folder, or makes both.
    ///
    /// # Assumptions
    /// No other process writes there.
    pub fn open(folder: &Path) -> Result<Self> {
        let file = |action, path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { action, path, source }
        };
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(file("make the folder", folder))?;
        let path = folder.join(FILE);
        // Made here for its mode; what SQLite puts beside it gets the same.
        let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        made.map_err(file("open", &path))?;
        let failed = || Error::database("open", &path);
        let connection = Connection::open(&path).map_err(failed())?;
        connection.busy_timeout(Duration::from_millis(limits::BUSY_TIMEOUT_MS)).map_err(failed())?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed())?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed())?;
        let found: u32 =
            connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed())?;
        match found {
            VERSION => {}
            0 => connection.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} COMMIT;")).map_err(failed())?,
            found => return Err(Error::Newer { path, found, known: VERSION }),
        }
        Ok(Self { path, connection: Mutex::new(connection) })
    }

    /// Writes the mini-batches of a family down, unless they are there already: the first list counts.
    pub fn begin(&self, family: u64, batches: &[Vec<String>]) -> Result<()> {
        self.write(|tx| {
            if total(tx, family)? > 0 {
                return Ok(());
            }
            tx.execute(
                "INSERT INTO families (family, total) VALUES (?1, ?2)
                 ON CONFLICT (family) DO UPDATE SET total = excluded.total",
                params![family as i64, batches.len() as i64],
            )?;
            let mut insert =
                tx.prepare("INSERT INTO batches (family, number, files, items) VALUES (?1, ?2, ?3, ?4)")?;
            for (number, files) in batches.iter().enumerate() {
                let text = serde_json::Value::from(files.clone()).to_string();
                insert.execute(params![family as i64, number as i64, text, files.len() as i64])?;
            }
            Ok(())
        })
    }

    /// Whether the mini-batches of a family are written down.
    pub fn has_begun(&self, family: u64) -> Result<bool> {
        self.write(|tx| Ok(total(tx, family)? > 0))
    }

    /// Says what keeps a family from going on. The first word counts.
    pub fn set_fault(&self, family: u64, fault: &str) -> Result<()> {
        let fault = cut(fault);
        self.write(|tx| {
            tx.execute(
                "INSERT INTO families (family, fault) VALUES (?1, ?2)
                 ON CONFLICT (family) DO UPDATE SET fault = coalesce(fault, excluded.fault)",
                params![family as i64, fault],
            )
            .map(drop)
        })
    }

    pub fn fault(&self, family: u64) -> Result<Option<String>> {
        self.write(|tx| {
            let fault = tx
                .query_row("SELECT fault FROM families WHERE family = ?1", [family as i64], |row| row.get(0))
                .optional()?;
            Ok(fault.flatten())
        })
    }

    /// Takes in what a worker finished and gives it more to do.
    pub fn exchange(&self, asked: &Exchange<'_>, fate: &dyn Fn(Holder) -> Fate) -> Result<Vec<Given>> {
        let Exchange { family, holder, finished, holding, want, max_retries, files_with_attempt } = asked;
        self.write(|tx| {
            for one in *finished {
                take_in(tx, *family, *holder, one, *max_retries)?;
            }
            release(tx, *family, *files_with_attempt, fate)?;
            let held = claimed_by(tx, *family, *holder)?;
            for number in held.iter().filter(|number| !holding.contains(number)) {
                set_free(tx, *family, *number)?;
            }
            let want = (*want).min(limits::GIVEN_MAX);
            let mut free = tx.prepare(
                "SELECT number, files FROM batches WHERE family = ?1 AND state = ?2 ORDER BY number LIMIT ?3",
            )?;
            let given: Vec<(i64, String)> = free
                .query_map(params![*family as i64, FREE, want], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let mut claim = tx.prepare(
                "UPDATE batches SET state = ?3, job = ?4, attempt = ?5 WHERE family = ?1 AND number = ?2",
            )?;
            let mut out = Vec::with_capacity(given.len());
            for (number, files) in given {
                claim.execute(params![*family as i64, number, CLAIMED, holder.job as i64, holder.attempt])?;
                let files = serde_json::from_str(&files).unwrap_or_default();
                out.push(Given { number: u32::try_from(number).unwrap_or(u32::MAX), files });
            }
            Ok(out)
        })
    }

    /// Frees what attempts held that no longer run.
    pub fn release(
        &self,
        family: u64,
        files_with_attempt: bool,
        fate: &dyn Fn(Holder) -> Fate,
    ) -> Result<()> {
        self.write(|tx| release(tx, family, files_with_attempt, fate))
    }

    pub fn counts(&self, family: u64) -> Result<Counts> {
        self.write(|tx| {
            let mut counts = Counts { total: total(tx, family)?, ..Counts::default() };
            let mut by_state = tx.prepare(
                "SELECT state, count(*), sum(missing), sum(items) FROM batches WHERE family = ?1 GROUP BY state",
            )?;
            let mut rows = by_state.query([family as i64])?;
            while let Some(row) = rows.next()? {
                let (state, count): (i64, i64) = (row.get(0)?, row.get(1)?);
                let (missing, items): (i64, i64) = (row.get(2)?, row.get(3)?);
                let count = count.unsigned_abs();
                match state {
                    FREE => counts.free = count,
                    CLAIMED => counts.claimed = count,
                    DONE => {
                        counts.done = count;
                        counts.items_failed += missing.unsigned_abs();
                    }
                    _ => {
                        counts.failed = count;
                        counts.items_failed += items.unsigned_abs();
                    }
                }
            }
            Ok(counts)
        })
    }

    /// The errors of mini-batches that were given up, the first ones.
    pub fn errors(&self, family: u64, count_max: u32) -> Result<Vec<(u32, String)>> {
        self.write(|tx| {
            let mut errors = tx.prepare(
                "SELECT number, coalesce(error, '') FROM batches WHERE family = ?1 AND state = ?2 ORDER BY number LIMIT ?3",
            )?;
            errors
                .query_map(params![family as i64, FAILED, count_max], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }

    /// Rows of the next mini-batch that has some, in order; `after` is the one before.
    pub fn rows_after(&self, family: u64, after: Option<u32>) -> Result<Option<(u32, String)>> {
        self.write(|tx| {
            tx.query_row(
                "SELECT number, rows FROM results WHERE family = ?1 AND number > ?2 ORDER BY number LIMIT 1",
                params![family as i64, after.map_or(-1, i64::from)],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
        })
    }

    /// Everything that is kept is kept for these.
    pub fn families(&self) -> Result<Vec<u64>> {
        self.write(|tx| {
            let mut all = tx.prepare("SELECT family FROM families ORDER BY family")?;
            all.query_map([], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))?.collect()
        })
    }

    pub fn forget(&self, family: u64) -> Result<()> {
        self.write(|tx| {
            for table in ["results", "batches", "families"] {
                tx.execute(&format!("DELETE FROM {table} WHERE family = ?1"), [family as i64])?;
            }
            Ok(())
        })
    }

    /// Everything `work` does becomes so together, or nothing of it does.
    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        let mut connection = lock(&self.connection);
        let failed = || Error::database("write to", &self.path);
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(failed())?;
        let done = work(&transaction).map_err(failed())?;
        transaction.commit().map_err(failed())?;
        Ok(done)
    }
}

fn total(tx: &Transaction<'_>, family: u64) -> rusqlite::Result<u64> {
    let found: Option<i64> = tx
        .query_row("SELECT total FROM families WHERE family = ?1", [family as i64], |row| row.get(0))
        .optional()?;
    Ok(found.map_or(0, i64::unsigned_abs))
}

/// Only from whoever holds it.
fn take_in(
    tx: &Transaction<'_>,
    family: u64,
    holder: Holder,
    finished: &Finished,
    max_retries: u32,
) -> rusqlite::Result<()> {
    let tries: Option<u32> = tx
        .query_row(
            "SELECT tries FROM batches WHERE family = ?1 AND number = ?2 AND state = ?3 AND job = ?4 AND attempt = ?5",
            params![family as i64, finished.number, CLAIMED, holder.job as i64, holder.attempt],
            |row| row.get(0),
        )
        .optional()?;
    let Some(tries) = tries else { return Ok(()) };
    match &finished.report {
        Report::Done { items, returned, rows } => {
            tx.execute(
                "UPDATE batches SET state = ?3, missing = ?4, error = NULL WHERE family = ?1 AND number = ?2",
                params![family as i64, finished.number, DONE, items.saturating_sub(*returned) as i64],
            )?;
            if !rows.is_empty() {
                tx.execute(
                    "INSERT OR REPLACE INTO results (family, number, rows) VALUES (?1, ?2, ?3)",
                    params![family as i64, finished.number, rows],
                )?;
            }
        }
        Report::Failed { error } => {
            let state = if tries < max_retries { FREE } else { FAILED };
            tx.execute(
                "UPDATE batches SET state = ?3, tries = tries + 1, error = ?4, job = NULL, attempt = NULL
                 WHERE family = ?1 AND number = ?2",
                params![family as i64, finished.number, state, cut(error)],
            )?;
        }
    }
    Ok(())
}

fn release(
    tx: &Transaction<'_>,
    family: u64,
    files_with_attempt: bool,
    fate: &dyn Fn(Holder) -> Fate,
) -> rusqlite::Result<()> {
    let mut holders =
        tx.prepare("SELECT DISTINCT state, job, attempt FROM batches WHERE family = ?1 AND job IS NOT NULL")?;
    let held: Vec<(i64, Holder)> = holders
        .query_map([family as i64], |row| {
            let job: i64 = row.get(1)?;
            Ok((row.get(0)?, Holder { job: job.unsigned_abs(), attempt: row.get(2)? }))
        })?
        .collect::<rusqlite::Result<_>>()?;
    for (state, holder) in held {
        let void = match (state, fate(holder)) {
            (CLAIMED, fate) => fate != Fate::Runs,
            (DONE, Fate::Lost) => files_with_attempt,
            _ => false,
        };
        if void {
            let of_holder = params![family as i64, state, holder.job as i64, holder.attempt, FREE];
            tx.execute(
                "DELETE FROM results WHERE family = ?1 AND number IN
                 (SELECT number FROM batches WHERE family = ?1 AND state = ?2 AND job = ?3 AND attempt = ?4)",
                params![family as i64, state, holder.job as i64, holder.attempt],
            )?;
            tx.execute(
                "UPDATE batches SET state = ?5, job = NULL, attempt = NULL, missing = 0
                 WHERE family = ?1 AND state = ?2 AND job = ?3 AND attempt = ?4",
                of_holder,
            )?;
        }
    }
    Ok(())
}

fn claimed_by(tx: &Transaction<'_>, family: u64, holder: Holder) -> rusqlite::Result<Vec<u32>> {
    let mut held = tx.prepare(
        "SELECT number FROM batches WHERE family = ?1 AND state = ?2 AND job = ?3 AND attempt = ?4",
    )?;
    held.query_map(params![family as i64, CLAIMED, holder.job as i64, holder.attempt], |row| row.get(0))?
        .collect()
}

fn set_free(tx: &Transaction<'_>, family: u64, number: u32) -> rusqlite::Result<()> {
    tx.execute(
        "UPDATE batches SET state = ?3, job = NULL, attempt = NULL WHERE family = ?1 AND number = ?2",
        params![family as i64, number, FREE],
    )
    .map(drop)
}

/// The end of an error says more than its beginning.
fn cut(error: &str) -> &str {
    let mut from = error.len().saturating_sub(limits::ERROR_BYTES_MAX);
    while !error.is_char_boundary(from) {
        from += 1;
    }
    &error[from..]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
