//! The children of a job: the steps of a pipeline, the trials of a sweep, as the run history lists them.

use crate::client::segment;
use crate::failure::Outcome;
use crate::session::Session;
use serde_json::Value;

/// The runs below a job, in the order the server has them.
pub async fn list(session: &Session, parent: &str, limit: Option<usize>) -> Outcome<Vec<Value>> {
    session.client.list(&session.history_path(&format!("runs/{}/children", segment(parent))), limit).await
}

/// What people know a child by: its step's name, else its own.
pub fn label(run: &Value) -> &str {
    let said = |key: &str| run.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let step = run.pointer("/properties/azureml.moduleName").and_then(Value::as_str);
    step.or_else(|| said("displayName")).or_else(|| said("runId")).unwrap_or("?")
}

/// Whether a run has children of its own.
pub fn has_children(run: &Value) -> bool {
    let kind = run.get("runType").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    kind.contains("pipeline") || kind.contains("hyperdrive") || kind.contains("sweep")
}
