//! Runs, experiments and models as MLflow writes them.

use std::collections::BTreeMap;

use neap_core::Millis;
use neap_tracking::{DatasetInput, Experiment, Latest, LoggedModel, Point, Run};
use serde_json::{Value, json};

/// Where the files of a run are, as clients address them.
pub(super) fn run_artifacts(run: &str) -> String {
    format!("mlflow-artifacts:/{}", super::artifacts::run_folder(run))
}

pub(super) fn experiment(experiment: &Experiment) -> Value {
    json!({
        "experiment_id": experiment.id,
        "name": experiment.name,
        "artifact_location": "mlflow-artifacts:/ExperimentRun",
        "lifecycle_stage": experiment.lifecycle.word(),
        "creation_time": experiment.created.0,
        "last_update_time": experiment.updated.0,
        "tags": pairs(&experiment.tags),
    })
}

pub(super) fn info(run: &Run) -> Value {
    json!({
        "run_id": run.id,
        "run_uuid": run.id,
        "run_name": run.name,
        "experiment_id": run.experiment,
        "user_id": run.user,
        "status": run.status.word(),
        "start_time": run.started.0,
        "end_time": run.ended.map(|Millis(at)| at),
        "artifact_uri": run_artifacts(&run.id),
        "lifecycle_stage": run.lifecycle.word(),
    })
}

pub(super) fn run(run: &Run) -> Value {
    let metrics: Vec<Value> = run.metrics.iter().map(latest).collect();
    let models_in: Vec<Value> = run.models_in.iter().map(|id| json!({"model_id": id})).collect();
    let models_out: Vec<Value> =
        run.models_out.iter().map(|(id, step)| json!({"model_id": id, "step": step})).collect();
    json!({
        "info": info(run),
        "data": {"metrics": metrics, "params": pairs(&run.params), "tags": pairs(&run.tags)},
        "inputs": {"dataset_inputs": run.datasets.iter().map(dataset).collect::<Vec<_>>(), "model_inputs": models_in},
        "outputs": {"model_outputs": models_out},
    })
}

fn dataset(input: &DatasetInput) -> Value {
    json!({
        "tags": pairs(&input.tags),
        "dataset": {
            "name": input.name, "digest": input.digest, "source_type": input.source_type, "source": input.source,
            "schema": input.schema, "profile": input.profile,
        },
    })
}

fn latest(metric: &Latest) -> Value {
    point(&metric.key, &metric.last)
}

pub(super) fn point(key: &str, point: &Point) -> Value {
    json!({"key": key, "value": number(point.value), "timestamp": point.timestamp, "step": point.step})
}

/// JSON has no word for these; protobuf's JSON has.
pub(crate) fn number(value: f64) -> Value {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        json!(value)
    }
}

pub(super) fn pairs(map: &BTreeMap<String, String>) -> Vec<Value> {
    map.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

pub(super) fn model(model: &LoggedModel) -> Value {
    let metrics: Vec<Value> = model
        .metrics
        .iter()
        .map(|metric| {
            let mut value = point(&metric.key, &metric.last);
            value["model_id"] = json!(model.id);
            value["run_id"] = json!(metric.run);
            if let Some((name, digest)) = &metric.dataset {
                value["dataset_name"] = json!(name);
                value["dataset_digest"] = json!(digest);
            }
            value
        })
        .collect();
    json!({
        "info": {
            "model_id": model.id,
            "experiment_id": model.experiment,
            "name": model.name,
            "creation_timestamp_ms": model.created.0,
            "last_updated_timestamp_ms": model.updated.0,
            "artifact_uri": format!("mlflow-artifacts:/{}", super::artifacts::model_folder(&model.id)),
            "status": model.status.word(),
            "model_type": model.kind,
            "source_run_id": model.source_run,
            "tags": pairs(&model.tags),
        },
        "data": {"params": pairs(&model.params), "metrics": metrics},
    })
}
