//! `listNodes`.

use axum::response::Response;
use neap_core::Refusal;
use neap_core::state::Workspace;
use serde_json::{Value, json};

use super::super::{errors, with_snake_twins};
use crate::app::App;
use crate::reply;

pub(crate) fn list_nodes(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let state = app.state();
    let cluster = state.cluster(workspace.id, name).ok_or_else(|| errors::not_found("Compute", name))?;
    let nodes: Vec<Value> = state
        .nodes_of(cluster)
        .map(|node| {
            let run = node
                .attempts
                .first()
                .and_then(|attempt| state.jobs.get(&attempt.job))
                .map(|job| job.name.clone());
            json!({
                "nodeId": format!("n-{}", node.id),
                // Nodes open no port: there is no address to give.
                "privateIpAddress": null,
                "publicIpAddress": null,
                "port": null,
                "nodeState": node.azure_state(),
                "runId": run,
            })
        })
        .collect();
    Ok(reply::ok(&json!({"nodes": with_snake_twins(&Value::Array(nodes)), "nextLink": null})))
}
