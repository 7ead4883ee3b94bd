//! Experiments. A job's `experiment_name` makes one when it is first heard of.

use std::collections::BTreeMap;

use neap_core::{Millis, WorkspaceId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::entities::{Experiment, Lifecycle, Page};
use crate::search::{self, Search, Subject};
use crate::{Error, Result, Tracking, limits, log};

/// What runs go to that name none. Clients call it `0`.
pub const DEFAULT_EXPERIMENT: &str = "Default";

/// The id of the experiment that is first called so: the same in every table and every life of this installation.
#[must_use]
pub fn experiment_id(installation: &str, workspace: WorkspaceId, name: &str) -> String {
    neap_identity::derived_guid(&[installation, "experiment", &workspace.to_string(), name])
}

impl Tracking {
    /// Makes an experiment with this id; one whose name is taken is refused, also by a deleted one.
    pub fn create_experiment(
        &self,
        workspace: WorkspaceId,
        id: &str,
        name: &str,
        tags: &[(String, String)],
        now: Millis,
    ) -> Result<()> {
        check_name(name)?;
        log::check_tags(tags)?;
        self.write(|connection| {
            if let Some(found) = find_by_name(connection, workspace, name)? {
                let state =
                    if found.lifecycle == Lifecycle::Deleted { " and is deleted: restore it" } else { "" };
                return Err(Error::Exists(format!("An experiment '{name}' exists already{state}.")));
            }
            let key = insert(connection, workspace, id, name, now)?;
            log::put_tags(connection, "experiment_tags", key, tags)
        })
    }

    /// The experiment with this id; it is made under this name if there is none.
    pub fn ensure_experiment(&self, workspace: WorkspaceId, id: &str, name: &str, now: Millis) -> Result<()> {
        if self.read(|connection| key_of(connection, workspace, id))?.is_some() {
            return Ok(());
        }
        check_name(name)?;
        self.write(|connection| {
            if key_of(connection, workspace, id)?.is_none()
                && find_by_name(connection, workspace, name)?.is_none()
            {
                insert(connection, workspace, id, name, now)?;
            }
            Ok(())
        })
    }

    pub fn experiment(&self, workspace: WorkspaceId, id: &str) -> Result<Option<Experiment>> {
        let sql = format!("SELECT {COLUMNS} FROM experiments t WHERE t.workspace = ?1 AND t.id = ?2");
        self.read(|connection| one(connection, &sql, params![to_sql(workspace.0), id]))
    }

    pub fn experiment_by_name(&self, workspace: WorkspaceId, name: &str) -> Result<Option<Experiment>> {
        self.read(|connection| find_by_name(connection, workspace, name))
    }

    pub fn rename_experiment(&self, workspace: WorkspaceId, id: &str, name: &str, now: Millis) -> Result<()> {
        check_name(name)?;
        self.write(|connection| {
            let key = key_of(connection, workspace, id)?.ok_or_else(|| unknown(id))?;
            if find_by_name(connection, workspace, name)?.is_some_and(|other| other.id != id) {
                return Err(Error::Exists(format!("An experiment '{name}' exists already.")));
            }
            connection.execute(
                "UPDATE experiments SET name = ?2, updated = ?3 WHERE key = ?1",
                params![key, name, to_sql(now.0)],
            )?;
            Ok(())
        })
    }

    pub fn set_experiment_lifecycle(
        &self,
        workspace: WorkspaceId,
        id: &str,
        to: Lifecycle,
        now: Millis,
    ) -> Result<()> {
        self.write(|connection| {
            let changed = connection.execute(
                "UPDATE experiments SET deleted = ?3, updated = ?4 WHERE workspace = ?1 AND id = ?2",
                params![to_sql(workspace.0), id, to == Lifecycle::Deleted, to_sql(now.0)],
            )?;
            if changed == 0 { Err(unknown(id)) } else { Ok(()) }
        })
    }

    pub fn set_experiment_tag(
        &self,
        workspace: WorkspaceId,
        id: &str,
        tag: (String, String),
        now: Millis,
    ) -> Result<()> {
        let tags = [tag];
        log::check_tags(&tags)?;
        self.write(|connection| {
            let key = key_of(connection, workspace, id)?.ok_or_else(|| unknown(id))?;
            log::put_tags(connection, "experiment_tags", key, &tags)?;
            connection
                .execute("UPDATE experiments SET updated = ?2 WHERE key = ?1", params![key, to_sql(now.0)])?;
            Ok(())
        })
    }

    pub fn delete_experiment_tag(&self, workspace: WorkspaceId, id: &str, tag: &str) -> Result<()> {
        self.write(|connection| {
            let key = key_of(connection, workspace, id)?.ok_or_else(|| unknown(id))?;
            log::remove_tag(connection, "experiment_tags", key, tag)
        })
    }

    pub fn search_experiments(&self, workspace: WorkspaceId, search: &Search) -> Result<Page<Experiment>> {
        let plan = search::plan(Subject::Experiment, workspace, search)?;
        self.read(|connection| {
            let keys = plan.keys(connection)?;
            let sql = format!("SELECT {COLUMNS} FROM experiments t WHERE t.key = ?1");
            let mut items = Vec::with_capacity(keys.items.len());
            for key in keys.items {
                items.extend(one(connection, &sql, params![key])?);
            }
            Ok(Page { items, next: keys.next })
        })
    }
}

const COLUMNS: &str = "t.key, t.id, t.name, t.deleted, t.created, t.updated";

fn one(connection: &Connection, sql: &str, by: impl rusqlite::Params) -> Result<Option<Experiment>> {
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row(by, |row| Ok((row.get::<_, i64>(0)?, read(row)?))).optional()?;
    let Some((key, mut experiment)) = found else { return Ok(None) };
    experiment.tags = log::pairs(connection, "experiment_tags", key)?;
    Ok(Some(experiment))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Experiment> {
    Ok(Experiment {
        id: row.get(1)?,
        name: row.get(2)?,
        lifecycle: Lifecycle::of(row.get(3)?),
        created: Millis(from_sql(row.get(4)?)),
        updated: Millis(from_sql(row.get(5)?)),
        tags: BTreeMap::new(),
    })
}

fn find_by_name(connection: &Connection, workspace: WorkspaceId, name: &str) -> Result<Option<Experiment>> {
    let sql = format!("SELECT {COLUMNS} FROM experiments t WHERE t.workspace = ?1 AND t.name = ?2");
    one(connection, &sql, params![to_sql(workspace.0), name])
}

pub(crate) fn key_of(connection: &Connection, workspace: WorkspaceId, id: &str) -> Result<Option<i64>> {
    let mut statement =
        connection.prepare_cached("SELECT key FROM experiments WHERE workspace = ?1 AND id = ?2")?;
    Ok(statement.query_row(params![to_sql(workspace.0), id], |row| row.get(0)).optional()?)
}

fn insert(connection: &Connection, workspace: WorkspaceId, id: &str, name: &str, now: Millis) -> Result<i64> {
    let count: u32 = connection.query_row(
        "SELECT count(*) FROM experiments WHERE workspace = ?1",
        params![to_sql(workspace.0)],
        |row| row.get(0),
    )?;
    if count >= limits::EXPERIMENTS_MAX {
        return Err(Error::Limit(format!(
            "The workspace has {count} experiments, which is the most it may have. Use one of them."
        )));
    }
    connection.execute(
        "INSERT INTO experiments (workspace, id, name, created, updated) VALUES (?1, ?2, ?3, ?4, ?4)",
        params![to_sql(workspace.0), id, name, to_sql(now.0)],
    )?;
    Ok(connection.last_insert_rowid())
}

fn check_name(name: &str) -> Result<()> {
    if name.trim().is_empty() || name.len() > limits::EXPERIMENT_NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "An experiment's name has 1 to {} bytes; this one has {}.",
            limits::EXPERIMENT_NAME_BYTES_MAX,
            name.len()
        )));
    }
    Ok(())
}

pub(crate) fn unknown(id: &str) -> Error {
    Error::NotFound(format!("There is no experiment with id '{id}' in this workspace."))
}

/// SQLite's numbers are signed.
pub(crate) fn to_sql(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn from_sql(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
