//! Compute clusters (AmlCompute): parse → problems → command → answer.

mod advice;
mod answer;
mod identity;
mod nodes;
mod preview;
mod read;
mod write;

use axum::response::Response;
use neap_core::documents::ClusterDocument;
use neap_core::state::Workspace;
use neap_core::{ClusterId, MicroUsd, Refusal, State, WorkspaceId};
use neap_ledger::{Archived, JobFilter, Members};
use serde_json::{Value, json};

use super::errors;
use crate::app::{App, unreadable};
use crate::limits::ADVICE_JOBS_LOOKED_AT;
use crate::reply;

pub(crate) use identity::answer as identity_of;
pub(crate) use nodes::list_nodes;
pub(crate) use preview::definition;
pub(crate) use write::{command, delete, patch, put, put_body, remake};

pub(crate) fn list(app: &App, workspace: &Workspace) -> Result<Response, Refusal> {
    let state = app.state();
    let value: Vec<Value> = state
        .clusters_of(workspace.id)
        .map(|c| answer_of(app, &state, workspace, c))
        .collect::<Result<_, _>>()?;
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

pub(crate) fn get(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    Ok(reply::ok(&resource(app, workspace, name)?))
}

/// The resource as GET answers it.
pub(crate) fn resource(app: &App, workspace: &Workspace, name: &str) -> Result<Value, Refusal> {
    let state = app.state();
    let cluster = state.cluster(workspace.id, name).ok_or_else(|| errors::not_found("Compute", name))?;
    let mut answer = answer_of(app, &state, workspace, cluster)?;
    let advice = habits(app, cluster.workspace, cluster.id, cluster.declared.idle_ms, cluster.shape.price)?;
    if let Some(advice) = advice
        && let Some(warnings) = answer["properties"]["properties"]["neapWarnings"].as_array_mut()
    {
        warnings.push(advice.into());
    }
    Ok(answer)
}

/// What the times of a cluster's last jobs say about its idle time.
fn habits(
    app: &App,
    workspace: WorkspaceId,
    cluster: ClusterId,
    idle_ms: u64,
    price: MicroUsd,
) -> Result<Option<String>, Refusal> {
    let filter = JobFilter { archived: Archived::All, cluster: Some(cluster), members: Members::With };
    let rows =
        app.control.reader().jobs(workspace, &filter, None, ADVICE_JOBS_LOOKED_AT).map_err(unreadable)?;
    let times: Vec<_> = rows.iter().map(|row| (row.created, row.ended)).collect();
    Ok(advice::idle_advice(idle_ms, price, &times))
}

fn answer_of(
    app: &App,
    state: &State,
    workspace: &Workspace,
    cluster: &neap_core::cluster::Cluster,
) -> Result<Value, Refusal> {
    let document: ClusterDocument = app.document(&cluster.document)?;
    Ok(answer::cluster(&app.installation, state, workspace, cluster, &document))
}

/// Actions that Azure has on other kinds of compute.
pub(crate) fn refused_action(app: &App, workspace: &Workspace, name: &str, action: &str) -> Refusal {
    if app.state().cluster(workspace.id, name).is_none() {
        return errors::not_found("Compute", name);
    }
    errors::not_supported(match action {
        "start" | "stop" | "restart" => format!(
            "A compute cluster has no '{action}': it starts nodes when jobs are submitted and drops them when idle. Set min_instances to keep nodes, or max_instances to 0 to stop taking work."
        ),
        "listkeys" => "A compute cluster has no keys to list.".into(),
        "resize" => {
            "The size of a cluster cannot be changed so; 'neap compute update --size' replaces its nodes one by one.".into()
        }
        "enablesso"
        | "updateidleshutdownsetting"
        | "customservices"
        | "updatedatamounts"
        | "getallowedvmsizesforresize" => {
            format!("'{action}' is for compute instances, which Neap does not have; use a compute cluster.")
        }
        _ => format!("A compute cluster has no action '{action}'."),
    })
}
