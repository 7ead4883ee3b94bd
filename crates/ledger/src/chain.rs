//! The hash chain: how a record's hash is made, and the walk that checks one record after another.

use std::path::Path;
use std::sync::Arc;

use neap_core::Millis;
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, Row, params};
use sha2::{Digest, Sha256};

use crate::error::Error;

pub type Hash = [u8; 32];

/// What the first record follows.
pub const GENESIS: Hash = [0; 32];

/// The last record of a log; `seq` 0 is a log without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub seq: u64,
    pub hash: Hash,
    pub at: Millis,
}

impl Head {
    pub const EMPTY: Self = Self { seq: 0, hash: GENESIS, at: Millis(0) };
}

/// A record as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub seq: u64,
    pub at: Millis,
    pub kind: String,
    pub version: u16,
    pub actor: Arc<str>,
    pub body: Vec<u8>,
    pub previous: Hash,
    pub hash: Hash,
}

impl Envelope {
    pub fn computed_hash(&self) -> Hash {
        link(&self.previous, self.seq, self.at, &self.kind, self.version, &self.actor, &self.body)
    }
}

/// Every part of variable length goes in behind its length, so that no two records can read the same.
pub(crate) fn link(
    previous: &Hash,
    seq: u64,
    at: Millis,
    kind: &str,
    version: u16,
    actor: &str,
    body: &[u8],
) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(b"neap event 1");
    hasher.update(previous);
    hasher.update(seq.to_le_bytes());
    hasher.update(at.0.to_le_bytes());
    for part in [kind.as_bytes(), &version.to_le_bytes(), actor.as_bytes(), body] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Where the chain does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Break {
    pub seq: u64,
    pub what: String,
}

impl From<Break> for Error {
    fn from(b: Break) -> Self {
        Self::damaged(b.seq, b.what)
    }
}

impl Head {
    /// Takes the next record in if it follows.
    pub(crate) fn follow(&mut self, next: &Envelope) -> Result<(), Break> {
        let broken = |seq, what: &str| Err(Break { seq, what: what.into() });
        if next.seq != self.seq + 1 {
            return broken(self.seq + 1, &format!("is missing (the next that is there is {})", next.seq));
        }
        if next.previous != self.hash {
            return broken(next.seq, "does not follow from the record before it");
        }
        if next.computed_hash() != next.hash {
            return broken(next.seq, "has contents that do not match its hash");
        }
        if next.at < self.at {
            return broken(next.seq, "is dated before the record before it");
        }
        *self = Self { seq: next.seq, hash: next.hash, at: next.at };
        Ok(())
    }
}

pub(crate) const INSERT: &str = "INSERT INTO events (seq, at_ms, kind, version, actor, body, previous, hash) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// Hands the records after `after`, up to `upto`, to `take`, in order.
pub(crate) fn read_events(
    connection: &Connection,
    path: &Path,
    after: u64,
    upto: u64,
    mut take: impl FnMut(Envelope) -> Result<(), Error>,
) -> Result<(), Error> {
    let storage = || Error::record(after + 1, path);
    let mut statement = connection
        .prepare_cached(
            "SELECT seq, at_ms, kind, version, actor, body, previous, hash FROM events \
             WHERE seq > ?1 AND seq <= ?2 ORDER BY seq",
        )
        .map_err(storage())?;
    let mut rows = statement.query(params![to_sql(after), to_sql(upto)]).map_err(storage())?;
    let mut last = after;
    // The actor is nearly always one of a few: keep the last one shared.
    let mut actor: Arc<str> = "".into();
    loop {
        let envelope = match rows.next().map_err(Error::record(last + 1, path))? {
            None => return Ok(()),
            Some(row) => read_envelope(row, &mut actor).map_err(Error::record(last + 1, path))?,
        };
        last = envelope.seq;
        take(envelope)?;
    }
}

fn read_envelope(row: &Row<'_>, actor: &mut Arc<str>) -> rusqlite::Result<Envelope> {
    let actor_now = text(row, 4)?;
    if **actor != *actor_now {
        *actor = actor_now.into();
    }
    Ok(Envelope {
        seq: from_sql(row.get(0)?),
        at: Millis(from_sql(row.get(1)?)),
        kind: text(row, 2)?.into(),
        version: row.get(3)?,
        actor: actor.clone(),
        body: bytes(row, 5)?.to_vec(),
        previous: hash(row, 6)?,
        hash: hash(row, 7)?,
    })
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r str> {
    row.get_ref(column)?
        .as_str()
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(e)))
}

fn bytes<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    match row.get_ref(column)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        other => Err(rusqlite::Error::InvalidColumnType(column, "body".into(), other.data_type())),
    }
}

pub(crate) fn hash(row: &Row<'_>, column: usize) -> rusqlite::Result<Hash> {
    let bytes = bytes(row, column)?;
    bytes.try_into().map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(e)))
}

/// SQLite's integers are signed; ids, times and numbers of records stay far below the sign.
pub(crate) const fn to_sql(value: u64) -> i64 {
    value.cast_signed()
}

pub(crate) const fn from_sql(value: i64) -> u64 {
    value.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_splits_of_the_same_bytes_have_one_hash() {
        let of = |kind: &str, actor: &str, body: &[u8]| link(&GENESIS, 1, Millis(1), kind, 1, actor, body);
        assert_ne!(of("ab", "c", b"d"), of("a", "bc", b"d"));
        assert_ne!(of("ab", "c", b"d"), of("ab", "cd", b""));
        assert_ne!(of("a", "", b""), of("", "a", b""));
    }
}
