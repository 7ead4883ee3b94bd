//! The tables. `key` is a row's own number; `owner` is the `key` of what a row belongs to.

use std::path::Path;

use rusqlite::Connection;

use crate::{Error, Result};

pub(crate) const VERSION: u32 = 2;

const SCHEMA: &str = "
    CREATE TABLE experiments (
        key       INTEGER PRIMARY KEY,
        workspace INTEGER NOT NULL,
        id        TEXT    NOT NULL,
        name      TEXT    NOT NULL,
        deleted   INTEGER NOT NULL DEFAULT 0,
        created   INTEGER NOT NULL,
        updated   INTEGER NOT NULL,
        UNIQUE (workspace, id),
        UNIQUE (workspace, name)
    ) STRICT;
    CREATE TABLE experiment_tags (
        owner INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (owner, key)
    ) STRICT, WITHOUT ROWID;

    -- `job` is the number of the job that a run is; such a run's status and times are the job's, copied here until
    -- they are final (`settled`).
    CREATE TABLE runs (
        key        INTEGER PRIMARY KEY,
        workspace  INTEGER NOT NULL,
        id         TEXT    NOT NULL,
        experiment TEXT    NOT NULL,
        name       TEXT    NOT NULL,
        user       TEXT    NOT NULL,
        status     TEXT    NOT NULL,
        started    INTEGER NOT NULL,
        ended      INTEGER,
        deleted    INTEGER NOT NULL DEFAULT 0,
        job        INTEGER,
        settled    INTEGER NOT NULL DEFAULT 1,
        points     INTEGER NOT NULL DEFAULT 0,
        -- The number of the job whose token began the run; absent where the owner began it.
        made_by    INTEGER,
        UNIQUE (workspace, id)
    ) STRICT;
    CREATE INDEX runs_by_experiment ON runs (workspace, experiment, started DESC);
    CREATE INDEX runs_plain ON runs (workspace) WHERE job IS NULL;
    CREATE INDEX runs_unsettled ON runs (workspace) WHERE settled = 0;
    CREATE TABLE run_params (
        owner INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (owner, key)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE run_tags (
        owner INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (owner, key)
    ) STRICT, WITHOUT ROWID;

    -- One row per metric of a run, with its last value: the highest step, and of those the latest.
    CREATE TABLE run_metrics (
        key_id    INTEGER PRIMARY KEY,
        owner     INTEGER NOT NULL,
        key       TEXT    NOT NULL,
        value     REAL    NOT NULL,
        nan       INTEGER NOT NULL,
        timestamp INTEGER NOT NULL,
        step      INTEGER NOT NULL,
        points    INTEGER NOT NULL,
        UNIQUE (owner, key)
    ) STRICT;
    -- The whole point is the key: the same point again, from a client that did not hear the answer, changes nothing.
    CREATE TABLE points (
        metric    INTEGER NOT NULL,
        timestamp INTEGER NOT NULL,
        step      INTEGER NOT NULL,
        value     REAL    NOT NULL,
        nan       INTEGER NOT NULL,
        PRIMARY KEY (metric, timestamp, step, value, nan)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE run_datasets (
        owner       INTEGER NOT NULL,
        name        TEXT    NOT NULL,
        digest      TEXT    NOT NULL,
        context     TEXT    NOT NULL,
        source_type TEXT    NOT NULL,
        source      TEXT    NOT NULL,
        schema      TEXT,
        profile     TEXT,
        tags        TEXT    NOT NULL,
        PRIMARY KEY (owner, name, digest, context)
    ) STRICT;
    -- `output` is 1 for a model that the run made, 0 for one that it used.
    CREATE TABLE run_models (
        owner INTEGER NOT NULL, model TEXT NOT NULL, output INTEGER NOT NULL, step INTEGER NOT NULL,
        PRIMARY KEY (owner, output, model)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE models (
        key        INTEGER PRIMARY KEY,
        workspace  INTEGER NOT NULL,
        id         TEXT    NOT NULL,
        experiment TEXT    NOT NULL,
        name       TEXT    NOT NULL,
        kind       TEXT    NOT NULL,
        source_run TEXT    NOT NULL,
        status     TEXT    NOT NULL,
        created    INTEGER NOT NULL,
        updated    INTEGER NOT NULL,
        UNIQUE (workspace, id)
    ) STRICT;
    CREATE INDEX models_by_experiment ON models (workspace, experiment);
    CREATE TABLE model_params (
        owner INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (owner, key)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE model_tags (
        owner INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (owner, key)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE model_metrics (
        owner     INTEGER NOT NULL,
        key       TEXT    NOT NULL,
        dataset   TEXT    NOT NULL,
        digest    TEXT    NOT NULL,
        run       TEXT    NOT NULL,
        value     REAL    NOT NULL,
        nan       INTEGER NOT NULL,
        timestamp INTEGER NOT NULL,
        step      INTEGER NOT NULL,
        PRIMARY KEY (owner, key, dataset, digest, run)
    ) STRICT;

    -- Up to which job a workspace's jobs were looked through for runs.
    CREATE TABLE jobs_seen (workspace INTEGER PRIMARY KEY, job INTEGER NOT NULL) STRICT;
    PRAGMA user_version = 2;
";

/// From version 1. Nobody knows which job began the runs that are there: no job's token writes to them any more.
const FROM_1: &str = "ALTER TABLE runs ADD COLUMN made_by INTEGER; PRAGMA user_version = 2;";

pub(crate) fn prepare(connection: &Connection, path: &Path) -> Result<()> {
    let failed = || Error::database("open", path);
    let found: u32 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed())?;
    match found {
        VERSION => Ok(()),
        1 => connection.execute_batch(&format!("BEGIN IMMEDIATE; {FROM_1} COMMIT;")).map_err(failed()),
        0 => connection.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} COMMIT;")).map_err(failed()),
        found => Err(Error::Newer { path: path.to_owned(), found, known: VERSION }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_the_release_before_is_brought_up_to_date() {
        let connection = Connection::open_in_memory().unwrap();
        let before = SCHEMA
            .replace("made_by    INTEGER,\n", "")
            .replace("PRAGMA user_version = 2", "PRAGMA user_version = 1");
        assert_ne!(before, SCHEMA);
        connection.execute_batch(&before).unwrap();
        let run = "INSERT INTO runs (workspace, id, experiment, name, user, status, started) VALUES (1, 'r', 'e', 'n', 'u', 'FINISHED', 1)";
        connection.execute(run, []).unwrap();
        for _ in 0..2 {
            prepare(&connection, Path::new("memory")).unwrap();
            let made_by: Option<i64> = connection
                .query_row("SELECT made_by FROM runs WHERE id = 'r'", [], |row| row.get(0))
                .unwrap();
            assert_eq!(made_by, None);
        }
    }
}
