//! What a run says of itself: metrics, parameters, tags, inputs and outputs.

use neap_tracking::{Batch, DatasetInput, Metric};
use serde_json::{Value, json};

use super::faults::Fault;
use super::given::Given;
use super::{Asked, jobs};

pub(super) fn metric(asked: &Asked) -> Result<Value, Fault> {
    log(asked, &Batch { metrics: vec![read_metric(asked, &asked.given)?], ..Batch::default() })
}

pub(super) fn parameter(asked: &Asked) -> Result<Value, Fault> {
    let param = (asked.given.need("key")?.to_owned(), asked.given.value());
    log(asked, &Batch { params: vec![param], ..Batch::default() })
}

pub(super) fn set_tag(asked: &Asked) -> Result<Value, Fault> {
    let tag = (asked.given.need("key")?.to_owned(), asked.given.value());
    log(asked, &Batch { tags: vec![tag], ..Batch::default() })
}

pub(super) fn batch(asked: &Asked) -> Result<Value, Fault> {
    let given = &asked.given;
    let metrics: Result<Vec<Metric>, Fault> =
        given.list("metrics").iter().map(|entry| read_metric(asked, entry)).collect();
    log(asked, &Batch { metrics: metrics?, params: given.pairs("params"), tags: given.pairs("tags") })
}

fn log(asked: &Asked, batch: &Batch) -> Result<Value, Fault> {
    let run = asked.given.run_id()?;
    jobs::known(asked, run)?;
    asked.app.tracking.log(asked.workspace.id, run, batch)?;
    Ok(json!({}))
}

fn read_metric(asked: &Asked, entry: &Given) -> Result<Metric, Fault> {
    let now = || i64::try_from(asked.app.now().0).unwrap_or(i64::MAX);
    let dataset = entry
        .text("dataset_name")
        .map(|name| (name.to_owned(), entry.text("dataset_digest").unwrap_or_default().to_owned()));
    Ok(Metric {
        key: entry.need("key")?.to_owned(),
        value: entry.float("value")?,
        timestamp: entry.integer("timestamp")?.unwrap_or_else(now),
        step: entry.integer("step")?.unwrap_or(0),
        model: entry.text("model_id").map(String::from),
        dataset,
    })
}

pub(super) fn delete_tag(asked: &Asked) -> Result<Value, Fault> {
    let run = asked.given.run_id()?;
    jobs::known(asked, run)?;
    asked.app.tracking.delete_run_tag(asked.workspace.id, run, asked.given.need("key")?)?;
    Ok(json!({}))
}

pub(super) fn inputs(asked: &Asked) -> Result<Value, Fault> {
    let run = asked.given.run_id()?;
    jobs::known(asked, run)?;
    let datasets: Vec<DatasetInput> = asked.given.list("datasets").iter().map(read_dataset).collect();
    asked.app.tracking.log_inputs(asked.workspace.id, run, &datasets, &model_ids(asked))?;
    Ok(json!({}))
}

fn read_dataset(entry: &Given) -> DatasetInput {
    let dataset = entry.object("dataset");
    let text = |key: &str| dataset.text(key).unwrap_or_default().to_owned();
    DatasetInput {
        name: text("name"),
        digest: text("digest"),
        source_type: text("source_type"),
        source: text("source"),
        schema: dataset.text("schema").map(String::from),
        profile: dataset.text("profile").map(String::from),
        tags: entry.pairs("tags").into_iter().collect(),
    }
}

fn model_ids(asked: &Asked) -> Vec<String> {
    asked.given.list("models").iter().filter_map(|entry| entry.text("model_id").map(String::from)).collect()
}

pub(super) fn outputs(asked: &Asked) -> Result<Value, Fault> {
    let run = asked.given.run_id()?;
    jobs::known(asked, run)?;
    let models: Result<Vec<(String, i64)>, Fault> = asked
        .given
        .list("models")
        .iter()
        .map(|entry| Ok((entry.need("model_id")?.to_owned(), entry.integer("step")?.unwrap_or(0))))
        .collect();
    asked.app.tracking.log_outputs(asked.workspace.id, run, &models?)?;
    Ok(json!({}))
}

/// The record of a model that older clients keep with the run.
pub(super) fn model(asked: &Asked) -> Result<Value, Fault> {
    let run = asked.given.run_id()?;
    jobs::known(asked, run)?;
    let model = serde_json::from_str(asked.given.need("model_json")?)
        .map_err(|e| Fault::invalid(format!("'model_json' is not JSON: {e}.")))?;
    asked.app.tracking.record_model(asked.workspace.id, run, model)?;
    Ok(json!({}))
}
