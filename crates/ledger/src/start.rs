//! From files to a state: the newest good snapshot, then every record after it, each checked before it is applied.

use std::path::Path;

use neap_core::event::DecodeError;
use neap_core::{Event, State, apply};
use rusqlite::{Connection, OptionalExtension, params};

use crate::chain::{Envelope, Head, hash, read_events, to_sql};
use crate::error::Error;
use crate::{snapshot, upcast};

pub(crate) struct Started {
    pub state: State,
    pub head: Head,
    /// The record whose snapshot the state began from; what is before it was not looked at.
    pub snapshot: Option<Head>,
    pub replayed: u64,
    pub warnings: Vec<String>,
}

/// Rebuilds the state up to record `upto`.
pub(crate) fn start(
    connection: &Connection,
    path: &Path,
    snapshots: &Path,
    upto: u64,
) -> Result<Started, Error> {
    let mut warnings = Vec::new();
    let found = newest_snapshot(connection, path, snapshots, upto, &mut warnings)?;
    let snapshot = found.as_ref().map(|(head, _)| *head);
    let (mut head, mut state) = found.unwrap_or((Head::EMPTY, State::default()));
    let first = head.seq;
    read_events(connection, path, head.seq, upto, |record| {
        head.follow(&record)?;
        let event = decode(connection, path, &record)?;
        apply::apply(&mut state, record.at, &event);
        Ok(())
    })?;
    Ok(Started { state, head, snapshot, replayed: head.seq - first, warnings })
}

/// Reads a record's event; one that this release does not know is refused naming the release that wrote it.
pub(crate) fn decode(connection: &Connection, path: &Path, record: &Envelope) -> Result<Event, Error> {
    match upcast::decode(&record.kind, record.version, &record.body) {
        Ok(event) => Ok(event),
        Err(DecodeError::Unknown { kind, version }) => {
            let release =
                release_at(connection, path, record.seq)?.unwrap_or_else(|| "of an unknown release".into());
            Err(Error::UnknownEvent { seq: record.seq, kind, version, release })
        }
        Err(error @ DecodeError::Body { .. }) => {
            Err(Error::damaged(record.seq, format!("cannot be read: {error}")))
        }
    }
}

fn release_at(connection: &Connection, path: &Path, seq: u64) -> Result<Option<String>, Error> {
    connection
        .query_row(
            "SELECT release FROM releases WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1",
            params![to_sql(seq)],
            |row| row.get(0),
        )
        .optional()
        .map_err(Error::storage("looking up the release that wrote a record", path))
}

fn newest_snapshot(
    connection: &Connection,
    path: &Path,
    snapshots: &Path,
    upto: u64,
    warnings: &mut Vec<String>,
) -> Result<Option<(Head, State)>, Error> {
    for seq in snapshot::list(snapshots).into_iter().filter(|seq| *seq <= upto) {
        let mut pass_over = |why: &str| {
            tracing::warn!(seq, why, "a snapshot is passed over");
            warnings.push(format!("the snapshot of record {seq} is passed over: {why}"));
        };
        let (head, state) = match snapshot::read(snapshots, seq) {
            Ok(read) => read,
            Err(why) => {
                pass_over(&why);
                continue;
            }
        };
        let stored = connection
            .query_row("SELECT hash FROM events WHERE seq = ?1", params![to_sql(seq)], |row| hash(row, 0))
            .optional()
            .map_err(Error::record(seq, path))?;
        match stored {
            Some(stored) if stored == head.hash => return Ok(Some((head, state))),
            Some(_) => pass_over("it was made from another log, or the record was changed since"),
            // A snapshot is only written of what is durable: the log has lost its end.
            None => {
                let what = format!(
                    "is missing: the log has been cut, for a snapshot of record {seq} exists (if the log was put back \
                     from an older backup on purpose, remove {} first)",
                    snapshots.display()
                );
                return Err(Error::damaged(last_seq(connection, path)? + 1, what));
            }
        }
    }
    Ok(None)
}

pub(crate) fn last_seq(connection: &Connection, path: &Path) -> Result<u64, Error> {
    connection
        .query_row("SELECT coalesce(max(seq), 0) FROM events", [], |row| row.get::<_, i64>(0))
        .map(crate::chain::from_sql)
        .map_err(Error::storage("looking for the last record", path))
}
