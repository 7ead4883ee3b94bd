//! A job as ARM answers it: what was asked, how it stands, and Neap's own facts among its properties.

use std::collections::BTreeMap;

use neap_core::documents::{JobDocument, JobMeta, OutputDocument};
use neap_core::gpus;
use neap_core::job::Status;
use neap_core::state::Workspace;
use neap_core::{AttemptId, Refusal};
use neap_ledger::{JobRow, NodeRow};
use serde_json::{Map, Value, json};

use crate::app::{App, unreadable};
use crate::arm::{paths, system_data};
use crate::estimates::{self, Estimate};

pub(crate) fn answer(app: &App, base: &str, workspace: &Workspace, row: &JobRow) -> Result<Value, Refusal> {
    let document: JobDocument = app.document(&row.document)?;
    let mut meta: JobMeta = app.document(&row.meta)?;
    let (reasons, estimate) = if matches!(row.status, Status::Queued | Status::NotStarted) {
        (neap_core::explain::queue_reasons(&app.state_now(), row.id), estimates::of(app, row.id))
    } else {
        (Vec::new(), None)
    };
    let node = match row.node {
        Some(node) => app.control.reader().node(node).map_err(unreadable)?,
        None => None,
    };
    let id = paths::child_id(workspace, &format!("jobs/{}", row.name));
    let mut properties = match document.asked.clone() {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    super::parallel::shown_to_clients(&mut properties, &mut meta.properties);
    let mut services = match properties.remove("services") {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    for (name, endpoint) in [
        ("Tracking", format!("{base}/history/v1.0{}/runs/{}", paths::workspace_id(workspace), row.name)),
        ("Studio", format!("{base}{id}")),
    ] {
        services.insert(
            name.into(),
            json!({"jobServiceType": name, "endpoint": endpoint, "port": null, "status": null, "errorMessage": null, "properties": null, "nodes": null}),
        );
    }
    crate::services::shown(app, base, workspace, row, &document, &mut services);
    properties.entry("jobType").or_insert_with(|| json!("Command"));
    for (key, value) in [
        ("status", json!(row.status.word())),
        ("displayName", json!(meta.display_name.as_ref().unwrap_or(&row.name))),
        ("description", json!(meta.description)),
        ("experimentName", json!(document.experiment)),
        ("isArchived", json!(row.archived)),
        ("tags", json!(meta.tags)),
        ("services", Value::Object(services)),
        (
            "properties",
            json!(facts(row, node.as_ref(), (meta.properties, used_now(app, row)), (&reasons, estimate))),
        ),
    ] {
        properties.insert(key.into(), value);
    }
    for key in ["inputs", "outputs", "environmentVariables"] {
        properties.entry(key).or_insert_with(|| json!({}));
    }
    if let Some(error) = error_of(row) {
        properties.insert("error".into(), error);
    }
    Ok(json!({
        "id": id,
        "name": row.name,
        "type": "Microsoft.MachineLearningServices/workspaces/jobs",
        "properties": properties,
        "systemData": system_data(&row.owner, row.created, row.ended.or(row.started).unwrap_or(row.created)),
    }))
}

/// The user's properties and Neap's facts beside them.
fn facts(
    row: &JobRow,
    node: Option<&NodeRow>,
    (mut properties, used_now): (BTreeMap<String, String>, Vec<(&str, String)>),
    (reasons, estimate): (&[String], Option<Estimate>),
) -> BTreeMap<String, String> {
    let mut tell = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            properties.insert(format!("neap.{key}"), value);
        }
    };
    if let Some(estimate) = estimate {
        tell("queuePosition", estimate.place.map(|place| place.to_string()));
        let start = estimate.start.p50.map_or_else(|| "unknown".into(), neap_core::Millis::rfc3339);
        tell("estimatedStart", Some(start));
        tell("estimatedStartP95", estimate.start.p95.map(neap_core::Millis::rfc3339));
        tell("estimatedStartUnknown", estimate.unknown);
    }
    tell("queueReason", Some(reasons.join(" ")).filter(|text| !text.is_empty()));
    tell("reason", row.reason.clone().filter(|_| row.failure.is_none()));
    tell("node", row.node.map(|id| format!("n-{id}")));
    // What the size says and what the machine gives: on a small machine they differ.
    tell("nodeNominal", node.map(|node| node.nominal.to_string()));
    tell("nodeActual", node.and_then(|node| node.actual).map(|actual| actual.to_string()));
    tell("attempt", Some(row.attempt.to_string()).filter(|_| row.attempt > 0));
    tell("startedOn", row.started.map(neap_core::Millis::rfc3339));
    tell("endedOn", row.ended.map(neap_core::Millis::rfc3339));
    // Nobody failed where somebody canceled.
    let failed = row.failure.as_ref().filter(|f| &*f.code != "JobCanceled");
    tell("failureClass", failed.map(|f| f.class.word().into()));
    tell("nextStep", row.failure.as_ref().map(|f| f.next_step.to_string()));
    // The rest is asked for by itself: `neap job show --provenance`.
    for (key, value) in row.facts.iter().filter(|(key, _)| !key.starts_with(neap_core::job::PROVENANCE)) {
        tell(key.strip_prefix("neap.").unwrap_or(key), Some(value.clone()));
    }
    for (key, value) in used_now {
        tell(key, Some(value));
    }
    if row.status.is_final() {
        properties.extend(gpus::hint(&row.facts).map(|hint| (gpus::HINT.to_owned(), hint)));
    }
    properties
}

/// How much a running job uses its GPUs at the moment. What it used is among its facts once it is over.
fn used_now(app: &App, row: &JobRow) -> Vec<(&'static str, String)> {
    let Some(node) = row.node.filter(|_| row.status == Status::Running) else { return Vec::new() };
    let attempt = AttemptId { job: row.id, number: row.attempt };
    let gpus = app.control.gpus().of_attempt(node, attempt);
    let seen: Vec<u64> = gpus.iter().filter_map(|gpu| gpu.utilization).map(u64::from).collect();
    let Some(mean) = seen.iter().sum::<u64>().checked_div(seen.len() as u64) else { return Vec::new() };
    let memory: u64 = gpus.iter().filter_map(|gpu| gpu.memory_used_mb).sum();
    let total: u64 = gpus.iter().map(|gpu| gpu.memory_mb).sum();
    vec![
        ("gpu.utilization_now", mean.to_string()),
        ("gpu.memory_now_mb", memory.to_string()),
        ("gpu.memory_total_mb", total.to_string()),
    ]
}

fn error_of(row: &JobRow) -> Option<Value> {
    row.failure.as_ref().map(|f| {
        json!({
            "code": f.code,
            "message": f.message,
            "details": [
                {"code": "FailureClass", "message": f.class.word()},
                {"code": "NextStep", "message": f.next_step},
            ],
        })
    })
}

/// The long form of an output's place, and its type.
pub(crate) fn output_uri<'a>(workspace: &Workspace, output: &'a OutputDocument) -> (String, &'a str) {
    (super::data::uri_of(workspace, output.at()), output.asset_type())
}
