//! A job as run history tells it, and edits of its metadata.

use axum::response::Response;
use neap_core::Refusal;
use neap_core::documents::{JobDocument, JobMeta};
use neap_core::lock::{self, Act, LockScope};
use neap_core::state::Workspace;
use neap_ledger::JobRow;
use serde_json::{Map, Value, json};

use crate::app::{App, unreadable};
use crate::arm::{find_job, job_edit, output_uri};
use crate::ask::Ask;
use crate::fields::Fields;
use crate::{reply, story};

pub(crate) fn get(app: &App, workspace: &Workspace, run: &str) -> Result<Response, Refusal> {
    let row = find_job(app, workspace, run)?;
    Ok(reply::ok(&answer(app, workspace, &row)?))
}

pub(super) fn answer(app: &App, workspace: &Workspace, row: &JobRow) -> Result<Value, Refusal> {
    let document: JobDocument = app.document(&row.document)?;
    let meta: JobMeta = app.document(&row.meta)?;
    let outputs: Map<String, Value> = document
        .outputs
        .iter()
        .map(|(name, output)| {
            (
                name.clone(),
                json!({"assetId": asset_id(&row.name, name), "type": output_uri(workspace, output).1}),
            )
        })
        .collect();
    let logged = crate::mlflow::summary(app, workspace, &row.name)?;
    Ok(json!({
        "runNumber": row.id,
        "runId": row.name,
        "rootRunId": root_of(app, row)?,
        "parentRunId": parent_of(app, row)?.map(|parent| parent.name),
        "experimentId": neap_tracking::experiment_id(&app.installation.id, workspace.id, &document.experiment),
        "status": row.status.word(),
        "createdUtc": row.created.rfc3339(),
        "startTimeUtc": row.started.map(neap_core::Millis::rfc3339),
        "endTimeUtc": row.ended.map(neap_core::Millis::rfc3339),
        "displayName": meta.display_name.as_ref().unwrap_or(&row.name),
        "name": null,
        "dataContainerId": format!("dcid.{}", row.name),
        "description": meta.description,
        "hidden": row.archived,
        "runType": run_type(row, &document),
        "runTypeV2": {"orchestrator": null, "traits": [], "attribution": null, "computeType": "AmlCompute"},
        "properties": meta.properties,
        "tags": meta.tags,
        "inputs": {},
        "outputs": outputs,
        "error": super::details::error_of(row),
        "compute": {"target": row.cluster_name, "targetType": "amlctrain"},
        "target": row.cluster_name,
        "createdBy": {"userName": row.owner},
        "jobSpecification": null,
        "primaryMetric": null,
        "metrics": logged.metrics,
        "parameters": logged.params,
        "token": null,
    }))
}

fn run_type(row: &JobRow, document: &JobDocument) -> &'static str {
    match document.asked["jobType"].as_str() {
        Some("Pipeline") => "azureml.PipelineRun",
        Some("Sweep") => "hyperdrive",
        _ if row.family.is_some() => "azureml.StepRun",
        _ => "azureml.commandjob",
    }
}

fn parent_of(app: &App, row: &JobRow) -> Result<Option<JobRow>, Refusal> {
    match row.family {
        Some(family) => app.control.reader().job_by_id(family).map_err(unreadable),
        None => Ok(None),
    }
}

fn root_of(app: &App, row: &JobRow) -> Result<String, Refusal> {
    let mut root = row.clone();
    while let Some(parent) = parent_of(app, &root)? {
        root = parent;
    }
    Ok(root.name)
}

/// Newest last: the order in which steps were written, or trials made.
pub(crate) fn children(app: &App, workspace: &Workspace, run: &str) -> Result<Response, Refusal> {
    let parent = find_job(app, workspace, run)?;
    let value: Vec<Value> = story::members(app, &parent)?
        .iter()
        .map(|row| answer(app, workspace, row))
        .collect::<Result<_, _>>()?;
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

/// The id under which an output is asked for again.
pub(super) fn asset_id(run: &str, output: &str) -> String {
    format!("azureml|{run}|{output}")
}

pub(super) fn read_asset_id(id: &str) -> Option<(&str, &str)> {
    id.strip_prefix("azureml|")?.split_once('|')
}

pub(crate) async fn edit(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    run: &str,
) -> Result<Response, Refusal> {
    let row = find_job(app, workspace, run)?;
    let body = ask.json()?;
    let mut problems = Vec::new();
    let fields = Fields::of(Some(&body), "", &mut problems);
    let hidden = fields.flag("hidden", &mut problems);
    Refusal::unless_empty(problems)?;
    // What a job says of itself is taken; it has no name here.
    if !ask.caller.actor.is_empty() {
        lock::check(&app.state(), &LockScope::Workspace(workspace.id), Act::Change)?;
    }
    let row = job_edit(app, ask, row, &edits(&body), hidden).await?;
    Ok(reply::ok(&answer(app, workspace, &row)?))
}

/// The fields of a run that are a job's metadata. `name` is what older clients call the display name.
fn edits(body: &Value) -> Value {
    let mut out = Map::new();
    for (from, to) in [
        ("name", "displayName"),
        ("displayName", "displayName"),
        ("description", "description"),
        ("tags", "tags"),
        ("properties", "properties"),
    ] {
        if let Some(value) = body.get(from).filter(|value| !value.is_null()) {
            out.insert(to.into(), value.clone());
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asset_ids_are_read_back() {
        assert_eq!(read_asset_id(&asset_id("job_1", "o")), Some(("job_1", "o")));
        assert_eq!(read_asset_id("azureml:x:1"), None);
    }

    #[test]
    fn only_metadata_is_edited() {
        assert_eq!(
            edits(&json!({"hidden": true, "tags": {"a": "1"}, "status": "Completed", "description": null})),
            json!({"tags": {"a": "1"}})
        );
    }
}
