//! Reading metrics: the last value of each, and histories in pages.

use neap_core::WorkspaceId;
use rusqlite::{Connection, OptionalExtension, params};

use crate::entities::{Latest, Page, Point};
use crate::experiments::from_sql;
use crate::log::{number, value_of};
use crate::{Error, Result, Tracking, limits, runs};

impl Tracking {
    /// The last point of one metric of a run; none if it logged none, or is no run yet.
    pub fn latest(&self, workspace: WorkspaceId, run: &str, metric: &str) -> Result<Option<Point>> {
        self.read(|connection| {
            let Some(key) = runs::key_of(connection, workspace, run)? else { return Ok(None) };
            let found = connection
                .prepare_cached(
                    "SELECT value, nan, timestamp, step FROM run_metrics WHERE owner = ?1 AND key = ?2",
                )?
                .query_row(params![key, metric], |row| {
                    Ok(Point {
                        value: value_of(row.get(0)?, row.get(1)?),
                        timestamp: row.get(2)?,
                        step: row.get(3)?,
                    })
                })
                .optional()?;
            Ok(found)
        })
    }

    /// The last point of every metric of a run, by name.
    pub fn latest_all(&self, workspace: WorkspaceId, run: &str) -> Result<Vec<Latest>> {
        self.read(|connection| match runs::key_of(connection, workspace, run)? {
            Some(key) => latest_of(connection, key),
            None => Ok(Vec::new()),
        })
    }

    /// Every point of one metric, in the order in which early termination looks at them: by step, then by time. For
    /// the planner's side; clients page through [`Tracking::history_page`].
    pub fn history(&self, workspace: WorkspaceId, run: &str, metric: &str) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let page =
                self.history_page(workspace, run, metric, token.as_deref(), limits::PAGE_POINTS_MAX)?;
            points.extend(page.items);
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        points.sort_by_key(|point| (point.step, point.timestamp));
        Ok(points)
    }

    /// A page of a metric's history, by time, then by step.
    pub fn history_page(
        &self,
        workspace: WorkspaceId,
        run: &str,
        metric: &str,
        token: Option<&str>,
        limit: u32,
    ) -> Result<Page<Point>> {
        let limit = limit.clamp(1, limits::PAGE_POINTS_MAX);
        let after = token.map(read_token).transpose()?;
        self.read(|connection| {
            let Some(id) = series_of(connection, workspace, run, metric)? else {
                return Ok(Page { items: Vec::new(), next: None });
            };
            let after = after.unwrap_or((i64::MIN, i64::MIN, f64::NEG_INFINITY, -1));
            let mut statement = connection.prepare_cached(
                "SELECT value, nan, timestamp, step FROM points
                 WHERE metric = ?1 AND (timestamp, step, value, nan) > (?2, ?3, ?4, ?5)
                 ORDER BY timestamp, step, value, nan LIMIT ?6",
            )?;
            let rows = statement.query_map(
                params![id, after.0, after.1, after.2, after.3, i64::from(limit) + 1],
                |row| {
                    Ok(Point {
                        value: value_of(row.get(0)?, row.get(1)?),
                        timestamp: row.get(2)?,
                        step: row.get(3)?,
                    })
                },
            )?;
            let mut items: Vec<Point> = rows.collect::<rusqlite::Result<_>>()?;
            let more = items.len() > limit as usize;
            items.truncate(limit as usize);
            let next = items.last().filter(|_| more).map(token_of);
            Ok(Page { items, next })
        })
    }
}

fn series_of(
    connection: &Connection,
    workspace: WorkspaceId,
    run: &str,
    metric: &str,
) -> Result<Option<i64>> {
    let Some(key) = runs::key_of(connection, workspace, run)? else { return Ok(None) };
    Ok(connection
        .prepare_cached("SELECT key_id FROM run_metrics WHERE owner = ?1 AND key = ?2")?
        .query_row(params![key, metric], |row| row.get(0))
        .optional()?)
}

pub(crate) fn latest_of(connection: &Connection, owner: i64) -> Result<Vec<Latest>> {
    let mut statement = connection.prepare_cached(
        "SELECT key, value, nan, timestamp, step, points FROM run_metrics WHERE owner = ?1 ORDER BY key",
    )?;
    let rows = statement.query_map(params![owner], |row| {
        Ok(Latest {
            key: row.get(0)?,
            last: Point {
                value: value_of(row.get(1)?, row.get(2)?),
                timestamp: row.get(3)?,
                step: row.get(4)?,
            },
            points: from_sql(row.get(5)?),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A page goes on after its last point, so that points that come in meanwhile move no page.
fn token_of(point: &Point) -> String {
    let (value, nan) = number(point.value);
    format!("{}.{}.{:x}.{}", point.timestamp, point.step, value.to_bits(), u8::from(nan))
}

fn read_token(token: &str) -> Result<(i64, i64, f64, i64)> {
    let read = || {
        let mut parts = token.split('.');
        let timestamp = parts.next()?.parse().ok()?;
        let step = parts.next()?.parse().ok()?;
        let bits = u64::from_str_radix(parts.next()?, 16).ok()?;
        let nan = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some((timestamp, step, f64::from_bits(bits), nan))
    };
    read().ok_or_else(|| Error::invalid("The page token is not one of this server's."))
}
