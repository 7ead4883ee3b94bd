//! A cluster's nodes with reasons and true capacity, and their boot logs, also after they are gone.

use axum::response::Response;
use neap_core::lock::{self, Act, LockScope};
use neap_core::state::Workspace;
use neap_core::{Capacity, ClusterId, Command, JobId, NodeId, Refusal};
use serde_json::{Value, json};

use crate::app::{App, internal, unreadable};
use crate::arm::errors;
use crate::ask::Ask;
use crate::{limits, reply};

/// The cluster of this name, or the last that had it when nodes that are gone are asked for.
fn find(app: &App, workspace: &Workspace, name: &str, also_deleted: bool) -> Result<Vec<ClusterId>, Refusal> {
    let live = app.state().cluster(workspace.id, name).map(|cluster| cluster.id);
    let mut ids: Vec<ClusterId> = live.into_iter().collect();
    if also_deleted {
        let rows = app.control.reader().cluster_rows(workspace.id, name).map_err(unreadable)?;
        ids.extend(rows.into_iter().map(|row| row.id).filter(|id| Some(*id) != live));
    }
    if ids.is_empty() { Err(errors::not_found("Compute", name)) } else { Ok(ids) }
}

pub(crate) fn list(app: &App, ask: &Ask, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let gone = ask.query.flag("gone");
    let state = app.state();
    let mut value = Vec::new();
    for cluster in find(app, workspace, name, gone)? {
        for row in app.control.reader().nodes(cluster, gone, limits::NODES_MAX as u32).map_err(unreadable)? {
            let node = state.nodes.get(&row.id);
            let cordon = node.and_then(|node| node.cordon.as_ref());
            let jobs: Vec<_> = node
                .into_iter()
                .flat_map(|node| node.attempts.iter())
                .filter_map(|attempt| state.jobs.get(&attempt.job))
                .map(|job| job.name.clone())
                .collect();
            value.push(json!({
                "node_id": format!("n-{}", row.id),
                "state": row.state,
                "tier": node.map(|node| node.shape.tier.canonical()),
                "since": row.since.rfc3339(),
                "reason": row.reason,
                "cordoned": cordon.is_some(),
                "cordon_reason": cordon.map(|cordon| &*cordon.reason),
                "job": jobs.first(),
                "jobs": jobs,
                "nominal": capacity(row.nominal),
                "actual": row.actual.map(capacity),
                "gpus": gpus(app, row.id),
                "isolation": row.isolation,
                "created": row.created.rfc3339(),
                "gone": row.gone.map(neap_core::Millis::rfc3339),
            }));
        }
    }
    Ok(reply::ok(&json!({"value": value})))
}

/// A node's GPUs as it told them last: whose each is, and how much it is used.
fn gpus(app: &App, node: NodeId) -> Vec<Value> {
    let state = app.state();
    let job = |job| state.jobs.get(&JobId(job)).map(|job| job.name.clone());
    app.control
        .gpus()
        .of(node)
        .into_iter()
        .map(|gpu| {
            json!({
                "uuid": gpu.uuid,
                "name": gpu.name,
                "memory_mb": gpu.memory_mb,
                "emulated": gpu.emulated,
                "job": gpu.attempt.and_then(|attempt| job(attempt.job)),
                "utilization_percent": gpu.utilization,
                "memory_used_mb": gpu.memory_used_mb,
            })
        })
        .collect()
}

fn capacity(capacity: Capacity) -> Value {
    json!({"cpus": f64::from(capacity.cpus_milli) / 1000.0, "memory_mb": capacity.memory_mb, "gpus": capacity.gpus})
}

pub(crate) async fn log(
    app: &App,
    workspace: &Workspace,
    name: &str,
    node: &str,
) -> Result<Response, Refusal> {
    let clusters = find(app, workspace, name, true)?;
    let missing = || errors::not_found("Node", node);
    let id = node_id(node).ok_or_else(missing)?;
    let row = app
        .control
        .reader()
        .node(id)
        .map_err(unreadable)?
        .filter(|row| clusters.contains(&row.cluster))
        .ok_or_else(missing)?;
    let path = app.server.node_logs.join(format!("{}.log", row.id));
    match tokio::fs::read(&path).await {
        Ok(bytes) => Ok(reply::text(bytes)),
        // The node was asked for and its provider has not begun: there is nothing to tell yet.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(reply::text(Vec::new())),
        Err(e) => Err(internal(format!("The boot log of {node} could not be read: {e}."))),
    }
}

/// Keeps new work off a node, lets it on again, or has the node go once its work is done.
pub(crate) async fn change(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    node: &str,
    verb: &str,
) -> Result<Response, Refusal> {
    let state = app.state();
    let cluster = state.cluster(workspace.id, name).ok_or_else(|| errors::not_found("Compute", name))?;
    let id = node_id(node).filter(|id| cluster.nodes.contains(id));
    let id = id.ok_or_else(|| errors::not_found("Node", node))?;
    lock::check(&state, &LockScope::Cluster(cluster.id), Act::Change)?;
    let body = ask.json()?;
    let said = body.get("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
    let reason = said.map_or_else(|| format!("{} asked for it ({verb})", ask.caller.actor), str::to_owned);
    let command = match verb {
        "uncordon" => Command::Uncordon { node: id },
        verb => Command::Cordon { node: id, leave: verb == "drain", reason: reason.into() },
    };
    app.submit(&ask.caller, command, Vec::new()).await?;
    let state = app.state();
    let node = state.nodes.get(&id);
    Ok(reply::ok(&json!({
        "node_id": format!("n-{id}"),
        "state": node.map_or("gone", |node| node.word()),
        "cordoned": node.is_some_and(|node| node.cordon.is_some()),
        "leaves": node.is_none_or(|node| !node.is_live() || node.cordon.as_ref().is_some_and(|c| c.leave)),
        "jobs": node.map_or(0, |node| node.attempts.len()),
    })))
}

pub(super) fn node_id(text: &str) -> Option<NodeId> {
    text.strip_prefix("n-").unwrap_or(text).parse().ok().map(NodeId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names() {
        assert_eq!(node_id("n-3"), Some(NodeId(3)));
        assert_eq!(node_id("3"), Some(NodeId(3)));
        assert_eq!(node_id("../3"), None);
    }
}
