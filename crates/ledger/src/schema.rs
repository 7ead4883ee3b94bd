//! The tables and the steps that bring an older database to them. A released step is never changed.

use std::path::Path;

use neap_core::{State, apply, meter};
use rusqlite::{Connection, TransactionBehavior};

use crate::chain::read_events;
use crate::error::Error;
use crate::{costs, projection, upcast};

/// One step of the schema. `rebuild_tables` says that the query tables changed: they are projected anew from the log.
pub(crate) struct Step {
    pub sql: &'static str,
    pub rebuild_tables: bool,
}

pub(crate) const STEPS: &[Step] = &[
    Step { sql: include_str!("schema_1.sql"), rebuild_tables: false },
    // What it adds is of jobs that no earlier release could submit: there is nothing to project anew.
    Step { sql: include_str!("schema_2.sql"), rebuild_tables: false },
    Step { sql: include_str!("schema_3.sql"), rebuild_tables: true },
    // What it holds is of events that no earlier release wrote.
    Step { sql: include_str!("schema_4.sql"), rebuild_tables: false },
    Step { sql: include_str!("schema_5.sql"), rebuild_tables: false },
];

/// The query tables, each with the column that orders it: made from the log alone, and so makeable again.
pub(crate) const QUERY_TABLES: &[&str] =
    &["jobs", "nodes", "clusters", "assets", "costs", "charges", "revisions"];

pub(crate) fn migrate(connection: &mut Connection, path: &Path, steps: &[Step]) -> Result<(), Error> {
    let known = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    let found = version(connection, path)?;
    if found > known {
        return Err(Error::NewerSchema { path: path.into(), found, known });
    }
    let storage = || Error::storage("bringing the schema up to date", path);
    let steps = steps.get(found as usize..).unwrap_or_default();
    if steps.is_empty() {
        return Ok(());
    }
    // All of it or nothing; and tables are made again once, when each of them is there.
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(storage())?;
    for step in steps {
        transaction.execute_batch(step.sql).map_err(storage())?;
    }
    if steps.iter().any(|step| step.rebuild_tables) {
        rebuild(&transaction, path)?;
    }
    transaction.pragma_update(None, "user_version", known).map_err(storage())?;
    transaction.commit().map_err(storage())?;
    Ok(())
}

pub(crate) fn version(connection: &Connection, path: &Path) -> Result<u32, Error> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(Error::storage("reading the schema version", path))
}

fn rebuild(connection: &Connection, path: &Path) -> Result<(), Error> {
    for table in QUERY_TABLES {
        connection
            .execute(&format!("DELETE FROM {table}"), [])
            .map_err(Error::storage("emptying a query table", path))?;
    }
    let mut state = State::default();
    read_events(connection, path, 0, u64::MAX >> 1, |record| {
        let event = upcast::decode(&record.kind, record.version, &record.body)
            .map_err(|e| Error::damaged(record.seq, e.to_string()))?;
        let postings = meter::postings(&state, record.at, &event);
        apply::apply(&mut state, record.at, &event);
        costs::post(connection, record.seq, &postings)
            .and_then(|()| projection::project(connection, record.seq, record.at, &event))
            .map_err(Error::storage("rebuilding the query tables", path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: &[Step] = &[
        Step { sql: include_str!("schema_1.sql"), rebuild_tables: false },
        Step { sql: include_str!("schema_2.sql"), rebuild_tables: false },
        Step { sql: include_str!("schema_3.sql"), rebuild_tables: true },
        Step { sql: include_str!("schema_4.sql"), rebuild_tables: false },
        Step { sql: include_str!("schema_5.sql"), rebuild_tables: false },
        Step { sql: "ALTER TABLE clusters ADD COLUMN colour TEXT", rebuild_tables: true },
    ];

    #[test]
    fn steps_are_taken_once_and_in_order_and_tables_are_rebuilt() {
        let path = Path::new("memory");
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, path, STEPS).unwrap();
        connection
            .execute_batch(
                "INSERT INTO clusters (id, workspace, name, name_key, location, created) VALUES (1, 1, 'x', 'x', 'l', 0)",
            )
            .unwrap();
        migrate(&mut connection, path, NEXT).unwrap();
        migrate(&mut connection, path, NEXT).unwrap();
        assert_eq!(version(&connection, path).unwrap(), 6);
        let rows: i64 =
            connection.query_row("SELECT count(colour) + count(*) FROM clusters", [], |r| r.get(0)).unwrap();
        assert_eq!(rows, 0, "a row that no event made does not outlive a rebuild");
    }

    #[test]
    fn a_newer_database_is_refused() {
        let path = Path::new("memory");
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, path, NEXT).unwrap();
        let refused = migrate(&mut connection, path, STEPS);
        assert!(matches!(refused, Err(Error::NewerSchema { found: 6, known: 5, .. })), "{refused:?}");
    }
}
