//! Histories of metrics.

use axum::http::StatusCode;
use axum::response::Response;
use neap_tracking::{Point, limits};
use serde::Serialize;
use serde_json::{Value, json};

use super::faults::Fault;
use super::{Asked, jobs, wire};
use crate::reply;

/// Points of one metric, over all runs, that one page of a chart shows.
const CHART_POINTS_MAX: usize = 2_500;
/// Runs of one chart.
const CHART_RUNS_MAX: usize = 100;

/// A page of points, as it is written.
#[derive(Serialize)]
struct History<'a> {
    metrics: Vec<Written<'a>>,
    next_page_token: Option<String>,
}

#[derive(Serialize)]
struct Written<'a> {
    key: &'a str,
    value: Value,
    timestamp: i64,
    step: i64,
}

pub(super) fn history(asked: &Asked) -> Result<Response, Fault> {
    let given = &asked.given;
    let (run, key) = (given.run_id()?, given.need("metric_key")?);
    jobs::known(asked, run)?;
    let workspace = asked.workspace.id;
    if asked.app.tracking.seen(workspace, run)?.is_none() {
        return Err(Fault::not_found(format!("There is no run with id '{run}' in this workspace.")));
    }
    let limit =
        given.integer("max_results")?.and_then(|n| u32::try_from(n).ok()).unwrap_or(limits::PAGE_POINTS_MAX);
    let page = asked.app.tracking.history_page(workspace, run, key, given.text("page_token"), limit)?;
    let written = |point: &Point| Written {
        key,
        value: wire::number(point.value),
        timestamp: point.timestamp,
        step: point.step,
    };
    let metrics = page.items.iter().map(written).collect();
    let text = serde_json::to_string(&History { metrics, next_page_token: page.next })
        .map_err(|e| Fault::internal(format!("The history could not be written: {e}.")))?;
    Ok(reply::json_text(StatusCode::OK, text))
}

/// For charts: the points of several runs between two steps, thinned out where there are many.
pub(super) fn bulk_interval(asked: &Asked) -> Result<Value, Fault> {
    let given = &asked.given;
    let key = given.need("metric_key")?;
    let runs = given.texts("run_ids");
    if runs.is_empty() || runs.len() > CHART_RUNS_MAX {
        return Err(Fault::invalid(format!("'run_ids' names 1 to {CHART_RUNS_MAX} runs.")));
    }
    let from = given.integer("start_step")?.unwrap_or(i64::MIN);
    let to = given.integer("end_step")?.unwrap_or(i64::MAX);
    let asked_points = given.integer("max_results")?.and_then(|n| usize::try_from(n).ok());
    let most = asked_points.unwrap_or(CHART_POINTS_MAX).clamp(1, CHART_POINTS_MAX);
    let mut out = Vec::new();
    for run in runs {
        jobs::known(asked, &run)?;
        let points = asked.app.tracking.history(asked.workspace.id, &run, key)?;
        let within: Vec<Point> =
            points.into_iter().filter(|point| (from..=to).contains(&point.step)).collect();
        for point in thinned(&within, most) {
            let mut value = wire::point(key, point);
            value["run_id"] = json!(run);
            out.push(value);
        }
    }
    Ok(json!({"metrics": out}))
}

/// At most so many points, the last always among them.
fn thinned(points: &[Point], most: usize) -> impl Iterator<Item = &Point> {
    let every = points.len().div_ceil(most).max(1);
    let last = points.len().saturating_sub(1);
    points.iter().enumerate().filter(move |(at, _)| at % every == 0 || *at == last).map(|(_, point)| point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_keep_the_first_and_the_last_point() {
        let points: Vec<Point> = (0..1_000).map(|step| Point { value: 0.0, timestamp: 0, step }).collect();
        let kept: Vec<i64> = thinned(&points, 100).map(|point| point.step).collect();
        assert_eq!((kept.first(), kept.last()), (Some(&0), Some(&999)));
        assert!(kept.len() <= 101);
        assert_eq!(thinned(&points[..3], 100).count(), 3);
        assert_eq!(thinned(&[], 100).count(), 0);
    }
}
