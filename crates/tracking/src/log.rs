//! Logging: parameters, tags, points of metrics, datasets and models of a run. A batch is taken whole or not at all.

use std::collections::BTreeMap;

use neap_core::WorkspaceId;
use rusqlite::{Connection, OptionalExtension, params};

use crate::entities::{Batch, DatasetInput, Metric, Point};
use crate::experiments::to_sql;
use crate::{Error, Result, Tracking, limits, models, runs};

const MODEL_HISTORY: &str = "mlflow.log-model.history";

impl Tracking {
    /// Logs everything in the batch. The same batch again changes nothing.
    pub fn log(&self, workspace: WorkspaceId, run: &str, batch: &Batch) -> Result<()> {
        check_batch(batch)?;
        self.write(|connection| {
            let key = runs::active_key(connection, workspace, run)?;
            put_params(connection, "run_params", key, &batch.params, run)?;
            put_tags(connection, "run_tags", key, &batch.tags)?;
            put_metrics(connection, key, &batch.metrics, run)?;
            models::put_metrics(connection, workspace, &batch.metrics, run)
        })
    }

    pub fn delete_run_tag(&self, workspace: WorkspaceId, run: &str, tag: &str) -> Result<()> {
        self.write(|connection| {
            let key = runs::active_key(connection, workspace, run)?;
            remove_tag(connection, "run_tags", key, tag)
        })
    }

    /// The datasets and models that a run uses.
    pub fn log_inputs(
        &self,
        workspace: WorkspaceId,
        run: &str,
        datasets: &[DatasetInput],
        models: &[String],
    ) -> Result<()> {
        check_datasets(datasets)?;
        self.write(|connection| {
            let key = runs::active_key(connection, workspace, run)?;
            for dataset in datasets {
                put_dataset(connection, key, dataset)?;
            }
            bounded(connection, "run_datasets", key, limits::DATASETS_PER_RUN_MAX, "dataset inputs")?;
            let models: Vec<_> = models.iter().map(|model| (model.clone(), 0)).collect();
            put_models(connection, key, false, &models)
        })
    }

    /// Adds to the record of models in the tag `mlflow.log-model.history`, which is longer than other tags.
    pub fn record_model(&self, workspace: WorkspaceId, run: &str, model: serde_json::Value) -> Result<()> {
        self.write(|connection| {
            let key = runs::active_key(connection, workspace, run)?;
            let there: Option<String> = connection
                .query_row(
                    "SELECT value FROM run_tags WHERE owner = ?1 AND key = ?2",
                    params![key, MODEL_HISTORY],
                    |row| row.get(0),
                )
                .optional()?;
            let mut all: Vec<serde_json::Value> =
                there.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            all.push(model);
            let mut text = serde_json::to_string(&all).unwrap_or_default();
            while text.len() > limits::MODEL_HISTORY_BYTES_MAX && !all.is_empty() {
                all.remove(0);
                text = serde_json::to_string(&all).unwrap_or_default();
            }
            put_tags(connection, "run_tags", key, &[(MODEL_HISTORY.to_owned(), text)])
        })
    }

    /// The models that a run made, with the step of each.
    pub fn log_outputs(&self, workspace: WorkspaceId, run: &str, models: &[(String, i64)]) -> Result<()> {
        self.write(|connection| {
            let key = runs::active_key(connection, workspace, run)?;
            put_models(connection, key, true, models)
        })
    }
}

fn put_dataset(connection: &Connection, owner: i64, dataset: &DatasetInput) -> Result<()> {
    let context = dataset.tags.get("mlflow.data.context").map_or("", String::as_str);
    let tags = serde_json::to_string(&dataset.tags).unwrap_or_default();
    connection.execute(
        "INSERT OR IGNORE INTO run_datasets (owner, name, digest, context, source_type, source, schema, profile, tags)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            owner,
            dataset.name,
            dataset.digest,
            context,
            dataset.source_type,
            dataset.source,
            dataset.schema,
            dataset.profile,
            tags,
        ],
    )?;
    Ok(())
}

fn put_models(connection: &Connection, owner: i64, output: bool, models: &[(String, i64)]) -> Result<()> {
    for (model, step) in models {
        connection.execute(
            "INSERT INTO run_models (owner, model, output, step) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (owner, output, model) DO UPDATE SET step = excluded.step",
            params![owner, model, output, step],
        )?;
    }
    bounded(connection, "run_models", owner, limits::MODELS_PER_RUN_MAX, "models")
}

/// Takes a parameter once: another value under the same name is refused.
pub(crate) fn put_params(
    connection: &Connection,
    table: &str,
    owner: i64,
    given: &[(String, String)],
    of: &str,
) -> Result<()> {
    if given.is_empty() {
        return Ok(());
    }
    let mut problems = Vec::new();
    let mut insert = connection.prepare_cached(&format!(
        "INSERT INTO {table} (owner, key, value) VALUES (?1, ?2, ?3) ON CONFLICT (owner, key) DO NOTHING"
    ))?;
    let mut look =
        connection.prepare_cached(&format!("SELECT value FROM {table} WHERE owner = ?1 AND key = ?2"))?;
    for (key, value) in given {
        if insert.execute(params![owner, key, value])? == 0 {
            let there: String = look.query_row(params![owner, key], |row| row.get(0))?;
            if there != *value {
                problems.push(format!(
                    "The parameter '{key}' of '{of}' is '{}' already and cannot become '{}'.",
                    shortened(&there),
                    shortened(value)
                ));
            }
        }
    }
    if !problems.is_empty() {
        return Err(Error::Invalid(problems.join(" ")));
    }
    bounded(connection, table, owner, limits::PARAMS_PER_RUN_MAX, "parameters")
}

pub(crate) fn put_tags(
    connection: &Connection,
    table: &str,
    owner: i64,
    tags: &[(String, String)],
) -> Result<()> {
    if tags.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(&format!(
        "INSERT INTO {table} (owner, key, value) VALUES (?1, ?2, ?3)
         ON CONFLICT (owner, key) DO UPDATE SET value = excluded.value"
    ))?;
    for (key, value) in tags {
        statement.execute(params![owner, key, value])?;
    }
    bounded(connection, table, owner, limits::TAGS_MAX, "tags")
}

pub(crate) fn remove_tag(connection: &Connection, table: &str, owner: i64, tag: &str) -> Result<()> {
    let sql = format!("DELETE FROM {table} WHERE owner = ?1 AND key = ?2");
    if connection.execute(&sql, params![owner, tag])? == 0 {
        return Err(Error::NotFound(format!("There is no tag '{tag}'.")));
    }
    Ok(())
}

/// Whether the owner has no more rows than it may.
fn bounded(connection: &Connection, table: &str, owner: i64, max: u32, what: &str) -> Result<()> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT count(*) FROM {table} WHERE owner = ?1"))?;
    let count: u32 = statement.query_row(params![owner], |row| row.get(0))?;
    if count > max {
        return Err(Error::Limit(format!("It would have {count} {what}; at most {max} are kept.")));
    }
    Ok(())
}

pub(crate) fn pairs(connection: &Connection, table: &str, owner: i64) -> Result<BTreeMap<String, String>> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT key, value FROM {table} WHERE owner = ?1"))?;
    let rows = statement.query_map(params![owner], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A point in its own row, with NaN beside the number: SQLite keeps none.
pub(crate) fn number(value: f64) -> (f64, bool) {
    if value.is_nan() { (0.0, true) } else { (value, false) }
}

pub(crate) fn value_of(value: f64, nan: bool) -> f64 {
    if nan { f64::NAN } else { value }
}

/// Which of two points is a metric's last: the higher step, then the later time, then the greater value.
pub(crate) fn is_later(new: &Point, old: &Point) -> bool {
    let rank = |point: &Point| (point.step, point.timestamp);
    match rank(new).cmp(&rank(old)) {
        std::cmp::Ordering::Equal => new.value.total_cmp(&old.value).is_ge(),
        order => order.is_gt(),
    }
}

struct Series {
    id: i64,
    last: Point,
}

fn put_metrics(connection: &Connection, owner: i64, metrics: &[Metric], run: &str) -> Result<()> {
    if metrics.is_empty() {
        return Ok(());
    }
    let mut by_key: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    for metric in metrics {
        let point = Point { value: metric.value, timestamp: metric.timestamp, step: metric.step };
        by_key.entry(&metric.key).or_default().push(point);
    }
    let mut insert = connection.prepare_cached(
        "INSERT OR IGNORE INTO points (metric, timestamp, step, value, nan) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut update = connection.prepare_cached(
        "UPDATE run_metrics SET value = ?2, nan = ?3, timestamp = ?4, step = ?5, points = points + ?6
         WHERE key_id = ?1",
    )?;
    let (mut added, mut is_new) = (0_u64, false);
    for (key, points) in by_key {
        let (series, fresh) = series(connection, owner, key, &points)?;
        is_new |= fresh;
        let mut last = series.last;
        let mut here = 0_u64;
        for point in points {
            let (value, nan) = number(point.value);
            here += insert.execute(params![series.id, point.timestamp, point.step, value, nan])? as u64;
            if is_later(&point, &last) {
                last = point;
            }
        }
        let (value, nan) = number(last.value);
        update.execute(params![series.id, value, nan, last.timestamp, last.step, to_sql(here)])?;
        added += here;
    }
    if is_new {
        bounded(connection, "run_metrics", owner, limits::METRICS_PER_RUN_MAX, "metrics")?;
    }
    let total: i64 = connection
        .prepare_cached("UPDATE runs SET points = points + ?2 WHERE key = ?1 RETURNING points")?
        .query_row(params![owner, to_sql(added)], |row| row.get(0))?;
    if total > to_sql(limits::POINTS_PER_RUN_MAX) {
        return Err(Error::Limit(format!(
            "The run '{run}' would have {total} points of metrics; at most {} are kept. Log less often.",
            limits::POINTS_PER_RUN_MAX
        )));
    }
    Ok(())
}

/// The metric's row, made if there is none.
fn series(connection: &Connection, owner: i64, key: &str, points: &[Point]) -> Result<(Series, bool)> {
    let found = connection
        .prepare_cached(
            "SELECT key_id, value, nan, timestamp, step FROM run_metrics WHERE owner = ?1 AND key = ?2",
        )?
        .query_row(params![owner, key], |row| {
            Ok(Series {
                id: row.get(0)?,
                last: Point {
                    value: value_of(row.get(1)?, row.get(2)?),
                    timestamp: row.get(3)?,
                    step: row.get(4)?,
                },
            })
        })
        .optional()?;
    if let Some(series) = found {
        return Ok((series, false));
    }
    let first = points.first().copied().unwrap_or(Point { value: 0.0, timestamp: 0, step: 0 });
    let (value, nan) = number(first.value);
    connection.prepare_cached(
        "INSERT INTO run_metrics (owner, key, value, nan, timestamp, step, points) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)",
    )?
    .execute(params![owner, key, value, nan, first.timestamp, first.step])?;
    Ok((Series { id: connection.last_insert_rowid(), last: first }, true))
}

fn check_batch(batch: &Batch) -> Result<()> {
    let mut problems = Vec::new();
    let (metrics, params, tags) = (batch.metrics.len(), batch.params.len(), batch.tags.len());
    for (count, max, what) in [
        (metrics, limits::METRICS_PER_BATCH_MAX, "metrics"),
        (params, limits::PARAMS_PER_BATCH_MAX, "params"),
        (tags, limits::TAGS_PER_BATCH_MAX, "tags"),
        (metrics + params + tags, limits::ENTRIES_PER_BATCH_MAX, "metrics, params and tags together"),
    ] {
        if count > max {
            problems.push(format!("A batch has at most {max} {what}; this one has {count}."));
        }
    }
    for key in batch.metrics.iter().map(|metric| &metric.key) {
        check_key(key, "metric", &mut problems);
    }
    check_values(&batch.params, "parameter", limits::PARAM_BYTES_MAX, &mut problems);
    check_values(&batch.tags, "tag", limits::TAG_BYTES_MAX, &mut problems);
    all(&problems)
}

pub(crate) fn check_tags(tags: &[(String, String)]) -> Result<()> {
    let mut problems = Vec::new();
    check_values(tags, "tag", limits::TAG_BYTES_MAX, &mut problems);
    all(&problems)
}

pub(crate) fn check_params(params: &[(String, String)]) -> Result<()> {
    let mut problems = Vec::new();
    check_values(params, "parameter", limits::PARAM_BYTES_MAX, &mut problems);
    all(&problems)
}

fn check_datasets(datasets: &[DatasetInput]) -> Result<()> {
    let mut problems = Vec::new();
    for dataset in datasets {
        if dataset.name.is_empty() || dataset.digest.is_empty() {
            problems.push("A dataset has a name and a digest.".to_owned());
        }
        check_key(&dataset.name, "dataset", &mut problems);
        let texts = [Some(&dataset.source), dataset.schema.as_ref(), dataset.profile.as_ref()];
        if texts.into_iter().flatten().any(|text| text.len() > limits::DATASET_TEXT_BYTES_MAX) {
            problems.push(format!(
                "Source, schema and profile of the dataset '{}' have at most {} bytes each.",
                dataset.name,
                limits::DATASET_TEXT_BYTES_MAX
            ));
        }
        let tags: Vec<_> = dataset.tags.clone().into_iter().collect();
        check_values(&tags, "tag", limits::TAG_BYTES_MAX, &mut problems);
    }
    all(&problems)
}

fn all(problems: &[String]) -> Result<()> {
    if problems.is_empty() { Ok(()) } else { Err(Error::Invalid(problems.join(" "))) }
}

fn check_values(given: &[(String, String)], what: &str, bytes_max: usize, problems: &mut Vec<String>) {
    for (key, value) in given {
        check_key(key, what, problems);
        if value.len() > bytes_max {
            problems.push(format!(
                "The {what} '{}' has a value of {} bytes; at most {bytes_max} are kept.",
                shortened(key),
                value.len()
            ));
        }
    }
}

/// Names are used in paths by clients: none may lead out of its folder.
fn check_key(key: &str, what: &str, problems: &mut Vec<String>) {
    let leads_out = key.starts_with('/') || key.split('/').any(|part| part == "..");
    if key.is_empty() || key.len() > limits::KEY_BYTES_MAX || leads_out || key.chars().any(char::is_control) {
        problems.push(format!(
            "'{}' is no name for a {what}: 1 to {} bytes, no control characters, no '/' at the start and no '..' in it.",
            shortened(key),
            limits::KEY_BYTES_MAX
        ));
    }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
