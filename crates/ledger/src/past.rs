//! The past: state and query tables as they were after one record, made again from the log.
//!
//! The log is the source, from its first record on: nothing is undone, and nothing that is there now is read but
//! records and documents. The tables go to a file of their own beside the log, which is removed when the last reader
//! of it is gone. It never writes to the log.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use neap_core::{Event, Millis, State, apply, meter};
use rusqlite::{Connection, OptionalExtension, params};

use crate::chain::{Head, from_sql, read_events, to_sql};
use crate::error::Error;
use crate::reader::Reader;
use crate::start::{self, last_seq};
use crate::{costs, limits, projection, schema};

/// How everything was after one record.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The last record that had happened.
    pub seq: u64,
    pub state: State,
    /// Answers from the tables as they were.
    pub reader: Reader,
}

/// What the log reaches from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    pub first: Millis,
    pub last: Millis,
}

/// A file that goes with its last user.
#[derive(Debug)]
pub(crate) struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "a file of the past stays until the next start");
        }
    }
}

fn folder(log: &Path) -> PathBuf {
    log.with_file_name("past")
}

/// What a server that was killed has left.
pub(crate) fn sweep(log: &Path) {
    let _ = std::fs::remove_dir_all(folder(log));
}

/// The times of the first and of the last record; none in an empty log.
pub(crate) fn reach(connection: &Connection, path: &Path) -> Result<Option<Reach>, Error> {
    let last = last_seq(connection, path)?;
    let (first, last) = (time_of(connection, path, 1)?, time_of(connection, path, last)?);
    Ok(first.zip(last).map(|(first, last)| Reach { first, last }))
}

fn time_of(connection: &Connection, path: &Path, seq: u64) -> Result<Option<Millis>, Error> {
    connection
        .prepare_cached("SELECT at_ms FROM events WHERE seq = ?1")
        .and_then(|mut statement| {
            statement.query_row(params![to_sql(seq)], |row| row.get::<_, i64>(0)).optional()
        })
        .map(|found| found.map(|at| Millis(from_sql(at))))
        .map_err(Error::storage("looking for the time of a record", path))
}

/// The last record at or before a time; none before the first. Time never goes back in a log, so that it is searched
/// by halves.
pub(crate) fn record_at(connection: &Connection, path: &Path, at: Millis) -> Result<Option<u64>, Error> {
    let (mut good, mut above) = (0, last_seq(connection, path)? + 1);
    while above - good > 1 {
        let middle = good + (above - good) / 2;
        match time_of(connection, path, middle)? {
            Some(time) if time <= at => good = middle,
            Some(_) => above = middle,
            None => return Err(Error::damaged(middle, "is missing")),
        }
    }
    Ok((good > 0).then_some(good))
}

/// Tells every event up to record `seq`, with the state before it, and gives the state after the last.
pub(crate) fn replay(
    connection: &Connection,
    path: &Path,
    seq: u64,
    mut see: impl FnMut(&State, Millis, &Event),
) -> Result<State, Error> {
    let (mut head, mut state) = (Head::EMPTY, State::default());
    while head.seq < seq {
        let upto = seq.min(head.seq + limits::CHECK_CHUNK_RECORDS);
        let before = head.seq;
        read_events(connection, path, before, upto, |record| {
            head.follow(&record)?;
            let event = start::decode(connection, path, &record)?;
            see(&state, record.at, &event);
            apply::apply(&mut state, record.at, &event);
            Ok(())
        })?;
        if head.seq == before {
            return Err(Error::damaged(before + 1, "is missing"));
        }
    }
    Ok(state)
}

/// State and tables after record `seq`.
pub(crate) fn rebuild(
    connection: &Connection,
    path: &Path,
    seq: u64,
) -> Result<(State, PathBuf, Temporary), Error> {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let folder = folder(path);
    std::fs::create_dir_all(&folder).map_err(Error::folder("making the folder", &folder))?;
    let file = folder.join(format!("{seq}-{}.db", FILES.fetch_add(1, Ordering::Relaxed)));
    let temporary = Temporary(file.clone());
    let storage = || Error::storage("making tables of the past", &file);
    let mut tables = Connection::open(&file).map_err(storage())?;
    tables.set_prepared_statement_cache_capacity(limits::STATEMENTS_KEPT);
    tables.pragma_update(None, "synchronous", "OFF").map_err(storage())?;
    schema::migrate(&mut tables, &file, schema::STEPS)?;
    // Should it break off, the file is thrown away: there is nothing to roll back to.
    tables.pragma_update(None, "journal_mode", "OFF").map_err(storage())?;
    tables.execute_batch("BEGIN").map_err(storage())?;
    let (mut head, mut state) = (Head::EMPTY, State::default());
    // In pieces, so that the write-ahead log is not held meanwhile.
    while head.seq < seq {
        let upto = seq.min(head.seq + limits::CHECK_CHUNK_RECORDS);
        let before = head.seq;
        read_events(connection, path, before, upto, |record| {
            head.follow(&record)?;
            let event = start::decode(connection, path, &record)?;
            let postings = meter::postings(&state, record.at, &event);
            apply::apply(&mut state, record.at, &event);
            costs::post(&tables, record.seq, &postings)
                .and_then(|()| projection::project(&tables, record.seq, record.at, &event))
                .map_err(Error::storage("making tables of the past", path))
        })?;
        if head.seq == before {
            return Err(Error::damaged(before + 1, "is missing"));
        }
    }
    tables.execute_batch("COMMIT").map_err(storage())?;
    Ok((state, file, temporary))
}
