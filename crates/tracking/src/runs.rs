//! Runs: begun by clients, or the jobs of this installation. A job's status and times are the job's own.

use std::collections::BTreeMap;

use neap_core::{JobId, Millis, WorkspaceId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::entities::{DatasetInput, Lifecycle, NewRun, Page, Run, RunChange, RunStatus, Seen};
use crate::experiments::{self, from_sql, to_sql};
use crate::search::{self, Search, Subject};
use crate::{Error, Result, Tracking, limits, log, metrics};

impl Tracking {
    /// Begins a run in an experiment that is there and active.
    pub fn create_run(&self, workspace: WorkspaceId, run: &NewRun) -> Result<()> {
        check_name(&run.name)?;
        let tags: Vec<_> = run.tags.clone().into_iter().collect();
        log::check_tags(&tags)?;
        self.write(|connection| {
            experiments::key_of(connection, workspace, &run.experiment)?
                .ok_or_else(|| experiments::unknown(&run.experiment))?;
            let plain: u32 = connection.query_row(
                "SELECT count(*) FROM runs WHERE workspace = ?1 AND job IS NULL",
                params![to_sql(workspace.0)],
                |row| row.get(0),
            )?;
            if plain >= limits::PLAIN_RUNS_MAX {
                return Err(Error::Limit(format!(
                    "The workspace has {plain} runs, which is the most it may have."
                )));
            }
            let key = insert(connection, workspace, run)?;
            log::put_tags(connection, "run_tags", key, &tags)
        })
    }

    /// Writes jobs down as runs, those that are not there yet; `seen` is the newest job that was looked at.
    pub fn adopt_jobs(&self, workspace: WorkspaceId, jobs: &[NewRun], seen: Option<JobId>) -> Result<()> {
        if jobs.is_empty() && seen.is_none() {
            return Ok(());
        }
        self.write(|connection| {
            for job in jobs {
                if key_of(connection, workspace, &job.id)?.is_none() {
                    let key = insert(connection, workspace, job)?;
                    let tags: Vec<_> = job.tags.clone().into_iter().collect();
                    log::put_tags(connection, "run_tags", key, &tags)?;
                }
            }
            if let Some(seen) = seen {
                connection.execute(
                    "INSERT INTO jobs_seen (workspace, job) VALUES (?1, ?2)
                     ON CONFLICT (workspace) DO UPDATE SET job = max(job, excluded.job)",
                    params![to_sql(workspace.0), to_sql(seen.0)],
                )?;
            }
            Ok(())
        })
    }

    /// The newest job that [`Tracking::adopt_jobs`] was told of.
    pub fn jobs_seen(&self, workspace: WorkspaceId) -> Result<Option<JobId>> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT job FROM jobs_seen WHERE workspace = ?1")?;
            let found = statement.query_row(params![to_sql(workspace.0)], |row| row.get(0)).optional()?;
            Ok(found.map(|job| JobId(from_sql(job))))
        })
    }

    /// Jobs whose end is not copied here yet.
    pub fn unsettled_jobs(&self, workspace: WorkspaceId) -> Result<Vec<JobId>> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT job FROM runs WHERE workspace = ?1 AND settled = 0 AND job IS NOT NULL",
            )?;
            let rows = statement.query_map(params![to_sql(workspace.0)], |row| row.get(0))?;
            rows.map(|job| Ok(JobId(from_sql(job?)))).collect()
        })
    }

    /// Copies what jobs say of themselves.
    pub fn settle_jobs(&self, workspace: WorkspaceId, jobs: &[NewRun]) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.write(|connection| {
            let mut statement = connection.prepare_cached(
                "UPDATE runs SET status = ?3, started = ?4, ended = ?5, settled = ?6
                 WHERE workspace = ?1 AND job = ?2 AND settled = 0",
            )?;
            for job in jobs {
                statement.execute(params![
                    to_sql(workspace.0),
                    job.job.map(|id| to_sql(id.0)),
                    job.status.word(),
                    to_sql(job.started.0),
                    job.ended.map(|at| to_sql(at.0)),
                    job.status.is_final(),
                ])?;
            }
            Ok(())
        })
    }

    /// Whether there is such a run, and which job it is.
    pub fn seen(&self, workspace: WorkspaceId, id: &str) -> Result<Option<Seen>> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT job, settled, made_by FROM runs WHERE workspace = ?1 AND id = ?2")?;
            let found = statement
                .query_row(params![to_sql(workspace.0), id], |row| {
                    let job: Option<i64> = row.get(0)?;
                    let made_by: Option<i64> = row.get(2)?;
                    let number = |job| JobId(from_sql(job));
                    Ok(Seen { job: job.map(number), settled: row.get(1)?, made_by: made_by.map(number) })
                })
                .optional()?;
            Ok(found)
        })
    }

    pub fn run(&self, workspace: WorkspaceId, id: &str) -> Result<Run> {
        self.read(|connection| {
            let key = key_of(connection, workspace, id)?.ok_or_else(|| unknown(id))?;
            whole(connection, key)?.ok_or_else(|| unknown(id))
        })
    }

    pub fn update_run(&self, workspace: WorkspaceId, id: &str, change: &RunChange) -> Result<Run> {
        if let Some(name) = &change.name {
            check_name(name)?;
        }
        self.write(|connection| {
            let key = active_key(connection, workspace, id)?;
            connection.execute(
                "UPDATE runs SET status = coalesce(?2, status), started = coalesce(?3, started),
                   ended = coalesce(?4, ended), name = coalesce(?5, name) WHERE key = ?1",
                params![
                    key,
                    change.status.map(RunStatus::word),
                    change.started.map(|at| to_sql(at.0)),
                    change.ended.map(|at| to_sql(at.0)),
                    change.name,
                ],
            )?;
            if let Some(name) = &change.name {
                log::put_tags(connection, "run_tags", key, &[("mlflow.runName".to_owned(), name.clone())])?;
            }
            whole(connection, key)?.ok_or_else(|| unknown(id))
        })
    }

    pub fn set_run_lifecycle(&self, workspace: WorkspaceId, id: &str, to: Lifecycle) -> Result<()> {
        self.write(|connection| {
            let changed = connection.execute(
                "UPDATE runs SET deleted = ?3 WHERE workspace = ?1 AND id = ?2",
                params![to_sql(workspace.0), id, to == Lifecycle::Deleted],
            )?;
            if changed == 0 { Err(unknown(id)) } else { Ok(()) }
        })
    }

    /// Removes everything that a run has told, for good. One that is not there is no error.
    pub fn forget_run(&self, workspace: WorkspaceId, id: &str) -> Result<()> {
        self.write(|connection| {
            let Some(key) = key_of(connection, workspace, id)? else { return Ok(()) };
            connection.execute(
                "DELETE FROM points WHERE metric IN (SELECT key_id FROM run_metrics WHERE owner = ?1)",
                params![key],
            )?;
            for table in ["run_metrics", "run_params", "run_tags", "run_datasets", "run_models"] {
                connection.execute(&format!("DELETE FROM {table} WHERE owner = ?1"), params![key])?;
            }
            connection.execute("DELETE FROM runs WHERE key = ?1", params![key])?;
            Ok(())
        })
    }

    /// Removes everything of a workspace that is gone.
    pub fn forget_workspace(&self, workspace: WorkspaceId) -> Result<()> {
        let workspace = to_sql(workspace.0);
        let of = |table: &str| format!("(SELECT key FROM {table} WHERE workspace = ?1)");
        let (runs, models, experiments) = (of("runs"), of("models"), of("experiments"));
        let mut statements = vec![format!(
            "DELETE FROM points WHERE metric IN (SELECT key_id FROM run_metrics WHERE owner IN {runs})"
        )];
        for table in ["run_metrics", "run_params", "run_tags", "run_datasets", "run_models"] {
            statements.push(format!("DELETE FROM {table} WHERE owner IN {runs}"));
        }
        for table in ["model_params", "model_tags", "model_metrics"] {
            statements.push(format!("DELETE FROM {table} WHERE owner IN {models}"));
        }
        statements.push(format!("DELETE FROM experiment_tags WHERE owner IN {experiments}"));
        for table in ["runs", "models", "experiments", "jobs_seen"] {
            statements.push(format!("DELETE FROM {table} WHERE workspace = ?1"));
        }
        self.write(|connection| {
            for sql in &statements {
                connection.execute(sql, params![workspace])?;
            }
            Ok(())
        })
    }

    pub fn search_runs(&self, workspace: WorkspaceId, search: &Search) -> Result<Page<Run>> {
        let plan = search::plan(Subject::Run, workspace, search)?;
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

const COLUMNS: &str = "id, experiment, name, user, status, started, ended, deleted, job";

fn whole(connection: &Connection, key: i64) -> Result<Option<Run>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM runs WHERE key = ?1"))?;
    let Some(mut run) = statement.query_row(params![key], read).optional()? else { return Ok(None) };
    run.params = log::pairs(connection, "run_params", key)?;
    run.tags = log::pairs(connection, "run_tags", key)?;
    run.metrics = metrics::latest_of(connection, key)?;
    run.datasets = datasets(connection, key)?;
    let mut statement = connection.prepare_cached(
        "SELECT model, output, step FROM run_models WHERE owner = ?1 ORDER BY output, step, model",
    )?;
    let mut rows = statement.query(params![key])?;
    while let Some(row) = rows.next()? {
        if row.get(1)? {
            run.models_out.push((row.get(0)?, row.get(2)?));
        } else {
            run.models_in.push(row.get(0)?);
        }
    }
    Ok(Some(run))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Run> {
    let status: String = row.get(4)?;
    let ended: Option<i64> = row.get(6)?;
    let job: Option<i64> = row.get(8)?;
    Ok(Run {
        id: row.get(0)?,
        experiment: row.get(1)?,
        name: row.get(2)?,
        user: row.get(3)?,
        status: RunStatus::parse(&status).unwrap_or(RunStatus::Running),
        started: Millis(from_sql(row.get(5)?)),
        ended: ended.map(|at| Millis(from_sql(at))),
        lifecycle: Lifecycle::of(row.get(7)?),
        job: job.map(|job| JobId(from_sql(job))),
        params: BTreeMap::new(),
        tags: BTreeMap::new(),
        metrics: Vec::new(),
        datasets: Vec::new(),
        models_in: Vec::new(),
        models_out: Vec::new(),
    })
}

fn datasets(connection: &Connection, key: i64) -> Result<Vec<DatasetInput>> {
    let mut statement = connection.prepare_cached(
        "SELECT name, digest, source_type, source, schema, profile, tags FROM run_datasets WHERE owner = ?1
         ORDER BY rowid",
    )?;
    let rows = statement.query_map(params![key], |row| {
        let tags: String = row.get(6)?;
        Ok(DatasetInput {
            name: row.get(0)?,
            digest: row.get(1)?,
            source_type: row.get(2)?,
            source: row.get(3)?,
            schema: row.get(4)?,
            profile: row.get(5)?,
            tags: serde_json::from_str(&tags).unwrap_or_default(),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(crate) fn key_of(connection: &Connection, workspace: WorkspaceId, id: &str) -> Result<Option<i64>> {
    let mut statement = connection.prepare_cached("SELECT key FROM runs WHERE workspace = ?1 AND id = ?2")?;
    Ok(statement.query_row(params![to_sql(workspace.0), id], |row| row.get(0)).optional()?)
}

/// The run's number, if it may still be written to.
pub(crate) fn active_key(connection: &Connection, workspace: WorkspaceId, id: &str) -> Result<i64> {
    let mut statement =
        connection.prepare_cached("SELECT key, deleted FROM runs WHERE workspace = ?1 AND id = ?2")?;
    let found = statement
        .query_row(params![to_sql(workspace.0), id], |row| Ok((row.get(0)?, row.get::<_, bool>(1)?)))
        .optional()?;
    match found {
        None => Err(unknown(id)),
        Some((_, true)) => {
            Err(Error::invalid(format!("The run '{id}' is deleted; restore it to write to it.")))
        }
        Some((key, false)) => Ok(key),
    }
}

fn insert(connection: &Connection, workspace: WorkspaceId, run: &NewRun) -> Result<i64> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO runs (workspace, id, experiment, name, user, status, started, ended, job, settled,
                           made_by)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    statement.execute(params![
        to_sql(workspace.0),
        run.id,
        run.experiment,
        run.name,
        run.user,
        run.status.word(),
        to_sql(run.started.0),
        run.ended.map(|at| to_sql(at.0)),
        run.job.map(|job| to_sql(job.0)),
        run.job.is_none() || run.status.is_final(),
        run.made_by.map(|job| to_sql(job.0)),
    ])?;
    Ok(connection.last_insert_rowid())
}

fn check_name(name: &str) -> Result<()> {
    if name.len() > limits::RUN_NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "A run's name has at most {} bytes; this one has {}.",
            limits::RUN_NAME_BYTES_MAX,
            name.len()
        )));
    }
    Ok(())
}

pub(crate) fn unknown(id: &str) -> Error {
    Error::NotFound(format!("There is no run with id '{id}' in this workspace."))
}
