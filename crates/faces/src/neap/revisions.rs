//! `revisions`: every accepted definition of a cluster, with who and why.

use axum::response::Response;
use neap_core::cluster::Scale;
use neap_core::documents::ClusterDocument;
use neap_core::state::Workspace;
use neap_core::{DocHash, Event, Refusal};
use serde_json::{Value, json};

use crate::app::{App, unreadable};
use crate::arm::errors;
use crate::reply;

/// As many as anybody reads.
const REVISIONS_MAX: u32 = 1_000;

pub(crate) fn list(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let state = app.state();
    let Some(cluster) = state.cluster(workspace.id, name) else {
        return Err(errors::not_found("Compute", name));
    };
    let revisions = app.control.reader().revisions(cluster.id, REVISIONS_MAX).map_err(unreadable)?;
    let mut value = Vec::with_capacity(revisions.len());
    // Newest first: a revision has the shape of the last one up to it that says one.
    let shaped = |at: usize| {
        revisions[at..].iter().find_map(|revision| match &revision.event {
            Event::ClusterCreated(e) => Some(e.shape.clone()),
            Event::ClusterUpdated(e) => e.remade.as_ref().map(|remade| remade.shape.clone()),
            _ => None,
        })
    };
    for (at, revision) in revisions.iter().enumerate() {
        let (scale, document, reference): (Scale, DocHash, _) = match &revision.event {
            Event::ClusterCreated(e) => (e.scale, e.document, &e.reference),
            Event::ClusterUpdated(e) => (e.scale, e.document, &e.reference),
            _ => continue,
        };
        let floor = match &revision.event {
            Event::ClusterCreated(e) => e.floor.as_ref(),
            Event::ClusterUpdated(e) => e.floor.as_ref(),
            _ => None,
        };
        // Going back to before there was one takes it away.
        let dedicated = floor.map(|floor| floor.nodes).or(cluster.mix.as_ref().map(|_| 0));
        let document: ClusterDocument = app.document(&document)?;
        let shape = shaped(at);
        value.push(json!({
            "revision": revision.revision,
            "at": revision.at.rfc3339(),
            "by": revision.actor,
            "reference": reference,
            "current": revision.revision == cluster.revision,
            "min_instances": scale.min,
            "max_instances": scale.max,
            "dedicated_instances": dedicated,
            "idle_time_before_scale_down": scale.idle_ms / 1_000,
            "size": shape.as_ref().map(|shape| shape.size.clone()),
            "tier": shape.as_ref().map(|shape| shape.tier.canonical()),
            "subnet": document.subnet,
            "enable_node_public_ip": document.public_ip,
            "ssh_public_access": document.remote_login,
            "ssh_admin_username": document.admin_user,
            "ssh_key_value": document.admin_key,
            "tags": document.tags,
            "description": document.description,
        }));
    }
    Ok(reply::ok(&json!({"value": Value::Array(value)})))
}
