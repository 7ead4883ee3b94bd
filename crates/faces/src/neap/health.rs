//! `health`: one verdict on a cluster with the signals behind it. `/metrics` shows the same, from the same reading.

use axum::response::Response;
use neap_core::cluster::Cluster;
use neap_core::health::{self, Figures, Health, Seen, Verdict};
use neap_core::state::Workspace;
use neap_core::{Millis, Refusal, State};
use serde_json::{Value, json};

use crate::app::App;
use crate::arm::errors;
use crate::reply;

/// A cluster's figures and what they come to.
pub(crate) fn read(
    app: &App,
    state: &State,
    cluster: &Cluster,
    ledger_closed: Option<&str>,
    now: Millis,
) -> (Figures, Health) {
    let figures = Figures::of(state, cluster, now);
    let counted = app.control.metrics().clusters.get(&cluster.id);
    let system_failures = counted.map_or(0, |c| u32::try_from(c.system_failures.get()).unwrap_or(u32::MAX));
    let seen = Seen { ledger_closed, system_failures };
    let health = health::of(state, cluster, &figures, seen, app.observability.thresholds);
    (figures, health)
}

pub(crate) fn get(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let (state, now) = (app.state(), app.now());
    let cluster = state.cluster(workspace.id, name).ok_or_else(|| errors::not_found("Compute", name))?;
    let closed = app.control.ledger_closed();
    let (figures, health) = read(app, &state, cluster, closed.as_deref(), now);
    let nodes: serde_json::Map<String, Value> = figures
        .nodes
        .iter()
        .filter(|(_, count)| count.nodes > 0)
        .map(|(word, count)| ((*word).to_owned(), json!(count.nodes)))
        .collect();
    let signals: Vec<Value> = health
        .signals
        .iter()
        .map(|signal| {
            json!({
                "signal": signal.name,
                "verdict": signal.verdict.word(),
                "value": in_units(signal.metric, signal.value),
                "metric": signal.metric,
                "says": signal.says.trim_end(),
            })
        })
        .collect();
    Ok(reply::ok(&json!({
        "cluster": cluster.name,
        "verdict": health.verdict.word(),
        "healthy": health.verdict == Verdict::Healthy,
        "at": now.rfc3339(),
        "nodes": nodes,
        "target_nodes": figures.target,
        "min_nodes": figures.min,
        "max_nodes": figures.max,
        "jobs": {"queued": figures.queued, "active": figures.active},
        "signals": signals,
    })))
}

/// As the metric counts it.
#[allow(clippy::cast_precision_loss, reason = "milliseconds of a wait are far below where this loses any")]
fn in_units(metric: &str, value: u64) -> Value {
    if metric.ends_with("_seconds") { json!(value as f64 / 1000.0) } else { json!(value) }
}
