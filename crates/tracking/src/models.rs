//! Logged models: what a run made, with its parameters, tags and metrics. Their files lie in the blob store.

use std::collections::BTreeMap;

use neap_core::{Millis, WorkspaceId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::entities::{LoggedModel, Metric, ModelMetric, ModelStatus, NewModel, Page, Point};
use crate::experiments::{self, from_sql, to_sql};
use crate::log::{self, is_later, number, value_of};
use crate::search::{self, Search, Subject};
use crate::{Error, Result, Tracking, limits};

impl Tracking {
    pub fn create_model(&self, workspace: WorkspaceId, model: &NewModel, now: Millis) -> Result<LoggedModel> {
        if model.name.len() > limits::KEY_BYTES_MAX || model.name.contains(['/', ':', '\0']) {
            return Err(Error::invalid(format!(
                "'{}' is no name for a model: at most {} bytes, without '/' and ':'.",
                model.name,
                limits::KEY_BYTES_MAX
            )));
        }
        log::check_params(&model.params)?;
        log::check_tags(&model.tags)?;
        self.write(|connection| {
            experiments::key_of(connection, workspace, &model.experiment)?
                .ok_or_else(|| experiments::unknown(&model.experiment))?;
            let count: u32 = connection.query_row(
                "SELECT count(*) FROM models WHERE workspace = ?1",
                params![to_sql(workspace.0)],
                |row| row.get(0),
            )?;
            if count >= limits::MODELS_MAX {
                return Err(Error::Limit(format!(
                    "The workspace has {count} logged models, which is the most it may have. Delete some."
                )));
            }
            connection.execute(
                "INSERT INTO models (workspace, id, experiment, name, kind, source_run, status, created, updated)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)",
                params![
                    to_sql(workspace.0),
                    model.id,
                    model.experiment,
                    model.name,
                    model.kind,
                    model.source_run,
                    ModelStatus::Pending.word(),
                    to_sql(now.0),
                ],
            )?;
            let key = connection.last_insert_rowid();
            log::put_params(connection, "model_params", key, &model.params, &model.id)?;
            log::put_tags(connection, "model_tags", key, &model.tags)?;
            whole(connection, key)?.ok_or_else(|| unknown(&model.id))
        })
    }

    pub fn model(&self, workspace: WorkspaceId, id: &str) -> Result<LoggedModel> {
        self.read(|connection| {
            let key = key_of(connection, workspace, id)?;
            whole(connection, key)?.ok_or_else(|| unknown(id))
        })
    }

    pub fn finish_model(
        &self,
        workspace: WorkspaceId,
        id: &str,
        status: ModelStatus,
        now: Millis,
    ) -> Result<LoggedModel> {
        self.write(|connection| {
            let key = key_of(connection, workspace, id)?;
            connection.execute(
                "UPDATE models SET status = ?2, updated = ?3 WHERE key = ?1",
                params![key, status.word(), to_sql(now.0)],
            )?;
            whole(connection, key)?.ok_or_else(|| unknown(id))
        })
    }

    pub fn log_model_params(
        &self,
        workspace: WorkspaceId,
        id: &str,
        given: &[(String, String)],
    ) -> Result<()> {
        log::check_params(given)?;
        self.write(|connection| {
            let key = key_of(connection, workspace, id)?;
            log::put_params(connection, "model_params", key, given, id)
        })
    }

    pub fn set_model_tags(
        &self,
        workspace: WorkspaceId,
        id: &str,
        tags: &[(String, String)],
    ) -> Result<LoggedModel> {
        log::check_tags(tags)?;
        self.write(|connection| {
            let key = key_of(connection, workspace, id)?;
            log::put_tags(connection, "model_tags", key, tags)?;
            whole(connection, key)?.ok_or_else(|| unknown(id))
        })
    }

    pub fn delete_model_tag(&self, workspace: WorkspaceId, id: &str, tag: &str) -> Result<()> {
        self.write(|connection| {
            let key = key_of(connection, workspace, id)?;
            log::remove_tag(connection, "model_tags", key, tag)
        })
    }

    pub fn delete_model(&self, workspace: WorkspaceId, id: &str) -> Result<()> {
        self.write(|connection| {
            let key = key_of(connection, workspace, id)?;
            for table in ["model_params", "model_tags", "model_metrics"] {
                connection.execute(&format!("DELETE FROM {table} WHERE owner = ?1"), params![key])?;
            }
            connection.execute("DELETE FROM models WHERE key = ?1", params![key])?;
            Ok(())
        })
    }

    pub fn search_models(&self, workspace: WorkspaceId, search: &Search) -> Result<Page<LoggedModel>> {
        let plan = search::plan(Subject::Model, workspace, search)?;
        self.read(|connection| {
            let keys = plan.keys(connection)?;
            let mut items = Vec::with_capacity(keys.items.len());
            for key in keys.items {
                items.extend(whole(connection, key)?);
            }
            Ok(Page { items, next: keys.next })
        })
    }
}

/// Points that name a model are the model's too: the last of each is kept there.
pub(crate) fn put_metrics(
    connection: &Connection,
    workspace: WorkspaceId,
    metrics: &[Metric],
    run: &str,
) -> Result<()> {
    for metric in metrics {
        let Some(model) = &metric.model else { continue };
        let owner = key_of(connection, workspace, model)?;
        let (dataset, digest) = metric.dataset.clone().unwrap_or_default();
        let new = Point { value: metric.value, timestamp: metric.timestamp, step: metric.step };
        let old = connection
            .prepare_cached(
                "SELECT value, nan, timestamp, step FROM model_metrics
                 WHERE owner = ?1 AND key = ?2 AND dataset = ?3 AND digest = ?4 AND run = ?5",
            )?
            .query_row(params![owner, metric.key, dataset, digest, run], |row| {
                Ok(Point {
                    value: value_of(row.get(0)?, row.get(1)?),
                    timestamp: row.get(2)?,
                    step: row.get(3)?,
                })
            })
            .optional()?;
        if old.is_some_and(|old| !is_later(&new, &old)) {
            continue;
        }
        let (value, nan) = number(new.value);
        connection
            .prepare_cached(
                "INSERT INTO model_metrics (owner, key, dataset, digest, run, value, nan, timestamp, step)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (owner, key, dataset, digest, run) DO UPDATE SET
                   value = excluded.value, nan = excluded.nan, timestamp = excluded.timestamp, step = excluded.step",
            )?
            .execute(params![owner, metric.key, dataset, digest, run, value, nan, new.timestamp, new.step])?;
    }
    Ok(())
}

fn key_of(connection: &Connection, workspace: WorkspaceId, id: &str) -> Result<i64> {
    connection
        .prepare_cached("SELECT key FROM models WHERE workspace = ?1 AND id = ?2")?
        .query_row(params![to_sql(workspace.0), id], |row| row.get(0))
        .optional()?
        .ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Error {
    Error::NotFound(format!("There is no logged model with id '{id}' in this workspace."))
}

fn whole(connection: &Connection, key: i64) -> Result<Option<LoggedModel>> {
    let found = connection
        .prepare_cached(
            "SELECT id, experiment, name, kind, source_run, status, created, updated FROM models WHERE key = ?1",
        )?
        .query_row(params![key], |row| {
            let status: String = row.get(5)?;
            Ok(LoggedModel {
                id: row.get(0)?,
                experiment: row.get(1)?,
                name: row.get(2)?,
                kind: row.get(3)?,
                source_run: row.get(4)?,
                status: ModelStatus::parse(&status).unwrap_or(ModelStatus::Pending),
                created: Millis(from_sql(row.get(6)?)),
                updated: Millis(from_sql(row.get(7)?)),
                params: BTreeMap::new(),
                tags: BTreeMap::new(),
                metrics: Vec::new(),
            })
        })
        .optional()?;
    let Some(mut model) = found else { return Ok(None) };
    model.params = log::pairs(connection, "model_params", key)?;
    model.tags = log::pairs(connection, "model_tags", key)?;
    let mut statement = connection.prepare_cached(
        "SELECT key, value, nan, timestamp, step, run, dataset, digest FROM model_metrics WHERE owner = ?1 ORDER BY key",
    )?;
    let rows = statement.query_map(params![key], |row| {
        let (dataset, digest): (String, String) = (row.get(6)?, row.get(7)?);
        Ok(ModelMetric {
            key: row.get(0)?,
            last: Point {
                value: value_of(row.get(1)?, row.get(2)?),
                timestamp: row.get(3)?,
                step: row.get(4)?,
            },
            run: row.get(5)?,
            dataset: (!dataset.is_empty()).then_some((dataset, digest)),
        })
    })?;
    model.metrics = rows.collect::<rusqlite::Result<_>>()?;
    Ok(Some(model))
}
