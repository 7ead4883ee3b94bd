//! Batch inference: endpoints, their deployments, and calls of them.

pub mod deployment;
pub mod endpoint;
mod invoke;

use super::resource::Resource;
use crate::client::segment;
use crate::entity;
use crate::failure::Outcome;
use crate::output::Column;
use crate::session::Session;
use serde_json::Value;

const ENDPOINT_COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Default", "defaults.deployment_name"),
    ("State", "provisioning_state"),
    ("Scoring", "scoring_uri"),
];

const DEPLOYMENT_COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Endpoint", "endpoint_name"),
    ("Model", "model"),
    ("Compute", "compute"),
    ("State", "provisioning_state"),
];

const ENDPOINT: Resource =
    Resource { word: "batch endpoint", entity: entity::batch_endpoint, columns: ENDPOINT_COLUMNS };
const DEPLOYMENT: Resource =
    Resource { word: "batch deployment", entity: entity::batch_deployment, columns: DEPLOYMENT_COLUMNS };

fn endpoint_path(session: &Session, endpoint: &str) -> String {
    session.path(&format!("batchEndpoints/{}", segment(endpoint)))
}

fn deployment_path(session: &Session, endpoint: &str, deployment: &str) -> String {
    format!("{}/deployments/{}", endpoint_path(session, endpoint), segment(deployment))
}

/// The jobs that calls of an endpoint, or of one of its deployments, made.
async fn list_jobs(session: &Session, path: &str) -> Outcome<()> {
    const COLUMNS: &[Column] = &[("Name", "name"), ("Status", "status"), ("Deployment", "deployment")];
    let rows = session.client.list(&format!("{path}/jobs"), None).await?;
    let shown = rows.iter().map(|row| {
        let at = |pointer: &str| row.pointer(pointer).cloned().unwrap_or(Value::Null);
        serde_json::json!({
            "name": at("/name"),
            "status": at("/properties/status"),
            "deployment": at("/properties/deployment"),
            "id": at("/id"),
        })
    });
    session.print(&Value::Array(shown.collect()), COLUMNS)
}
