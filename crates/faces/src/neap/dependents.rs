//! `computes/NAME/dependents`: everything that hangs on a cluster, asked for before it is changed or deleted.

use axum::response::Response;
use neap_core::allowance::Within;
use neap_core::budget::BudgetScope;
use neap_core::cluster::Cluster;
use neap_core::documents::{AssetDocument, ScheduleDocument};
use neap_core::lock::LockScope;
use neap_core::state::Workspace;
use neap_core::{JobId, Refusal, State};
use serde_json::{Value, json};

use crate::app::{App, unreadable};
use crate::arm::errors;
use crate::limits;
use crate::reply;

/// Jobs that are named; all are counted.
const JOBS_NAMED_MAX: usize = 20;

pub(crate) fn get(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let state = app.state();
    let cluster = state.cluster(workspace.id, name).ok_or_else(|| errors::not_found("Compute", name))?;
    Ok(reply::ok(&of(app, &state, workspace, cluster)?))
}

pub(crate) fn of(
    app: &App,
    state: &State,
    workspace: &Workspace,
    cluster: &Cluster,
) -> Result<Value, Refusal> {
    let names = |ids: &mut dyn Iterator<Item = JobId>| -> Vec<String> {
        let jobs = ids.filter_map(|id| state.jobs.get(&id));
        jobs.take(JOBS_NAMED_MAX).map(|job| job.name.to_string()).collect()
    };
    let waiting = cluster.queue.len() + cluster.waiting.len();
    let mut wait = cluster.queue.iter().map(|key| key.job).chain(cluster.waiting.iter().copied());
    let mut schedules = Vec::new();
    for schedule in state.schedules_of(workspace.id) {
        let document: ScheduleDocument = app.document(&schedule.document)?;
        if runs_on(&document.job, &cluster.name) {
            schedules.push(json!({"name": schedule.name, "enabled": schedule.enabled}));
        }
    }
    let mut deployments = Vec::new();
    let reader = app.control.reader();
    for endpoint in reader.asset_names(workspace.id, "batch-endpoint").map_err(unreadable)? {
        let rows = reader
            .asset_versions(
                workspace.id,
                "batch-deployment",
                &endpoint.name,
                limits::DEPENDENTS_LOOKED_AT_MAX,
            )
            .map_err(unreadable)?;
        for row in rows {
            let document: AssetDocument = app.document(&row.document)?;
            if runs_on(&document.properties["properties"], &cluster.name) {
                deployments.push(format!("{}/{}", endpoint.name, row.version));
            }
        }
    }
    let budgets = state.budgets.values().filter(|budget| budget.scope == BudgetScope::Cluster(cluster.id));
    let locks = state.locks.values().filter(|lock| lock.scope == LockScope::Cluster(cluster.id));
    let allowances = state.allowances.keys().filter(|key| key.within == Within::Cluster(cluster.id));
    Ok(json!({
        "cluster": cluster.name,
        "nodes": cluster.nodes.len(),
        "jobs": {
            "running": cluster.active.len(),
            "waiting": waiting,
            "running_names": names(&mut cluster.active.iter().copied()),
            "waiting_names": names(&mut wait),
        },
        "job_schedules": schedules,
        "batch_deployments": deployments,
        "compute_schedules": cluster.windows.values().map(|window| window.name.clone()).collect::<Vec<_>>(),
        "budgets": budgets.map(|budget| budget.name.clone()).collect::<Vec<_>>(),
        "locks": locks.map(|lock| lock.name.clone()).collect::<Vec<_>>(),
        "limits": allowances.map(|key| key.who.words()).collect::<Vec<_>>(),
    }))
}

/// Whether a job's body names the cluster anywhere where a cluster is named.
fn runs_on(body: &Value, cluster: &str) -> bool {
    let is_key = |key: &str| {
        ["computeid", "compute", "defaultcompute", "default_compute"].contains(&key.to_lowercase().as_str())
    };
    let names = |value: &Value| {
        let last = value.as_str().and_then(|text| text.rsplit(['/', ':']).next());
        last.is_some_and(|last| last.eq_ignore_ascii_case(cluster))
    };
    match body {
        Value::Object(map) => {
            map.iter().any(|(key, value)| (is_key(key) && names(value)) || runs_on(value, cluster))
        }
        Value::Array(items) => items.iter().any(|item| runs_on(item, cluster)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_found_wherever_it_is_named() {
        let id = "/subscriptions/s/resourceGroups/g/providers/P/workspaces/w/computes/CPU";
        for body in [
            json!({"properties": {"computeId": id}}),
            json!({"properties": {"settings": {"default_compute": "azureml:cpu"}, "jobs": {}}}),
            json!({"properties": {"jobs": {"a": {"computeId": "cpu"}}}}),
            json!({"properties": {"steps": [{"compute": id}]}}),
        ] {
            assert!(runs_on(&body, "cpu"), "{body}");
        }
        assert!(!runs_on(&json!({"properties": {"computeId": "x/computes/cpu2", "name": "cpu"}}), "cpu"));
    }
}
