//! From a deployment and a call to the body of a pipeline job. Pure.
//!
//! A model is run by one parallel step, `batchscoring`, whose output `score` has the predictions: as Azure ML has it.
//! A pipeline component becomes the pipeline itself.

use neap_core::Problem;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::read;
use crate::arm::errors::bad;

pub(super) const STEP: &str = "batchscoring";
pub(super) const SCORE: &str = "score";
pub(super) const DATA: &str = "data";
pub(super) const MODEL: &str = "azureml_model";
/// On each job of an endpoint, so that it is known where it comes from.
pub(super) const ENDPOINT_PROPERTY: &str = "azureml.endpointName";
pub(super) const DEPLOYMENT_PROPERTY: &str = "azureml.deploymentName";

/// A model as a scoring script gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    pub id: String,
    /// `custom_model`, `mlflow_model`…
    pub kind: String,
}

/// What is asked of a deployment once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Call {
    pub experiment: Option<String>,
    pub display_name: Option<String>,
    /// By name, as a job's body has them.
    pub inputs: Map<String, Value>,
    pub outputs: Map<String, Value>,
    /// What the call says otherwise than the deployment, under the names of the deployment's properties.
    pub changes: Map<String, Value>,
}

/// The deployment's settings with the call's over them.
pub(super) fn changed(properties: &Value, call: &Call) -> Value {
    let mut out = properties.clone();
    for (key, value) in &call.changes {
        match (&mut out[key.as_str()], value) {
            (Value::Object(under), Value::Object(over)) => {
                under.extend(over.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            (under, over) => *under = over.clone(),
        }
    }
    out
}

/// The component that one step runs a model by. `code`, `script` and `environment` are those of the deployment, or
/// Neap's own for a model that needs none.
pub(super) fn component(properties: &Value, model: Option<&Model>) -> Value {
    let code = &properties["codeConfiguration"];
    let mut task = json!({
        "type": "run_function",
        "code": code["codeId"],
        "entry_script": code["scoringScript"],
        "environment": properties["environmentId"],
    });
    if properties["outputAction"] != "SummaryOnly" {
        task["append_row_to"] = json!(format!("${{{{outputs.{SCORE}}}}}"));
    }
    let mut inputs = json!({DATA: {"type": "uri_folder"}});
    if let Some(model) = model {
        inputs[MODEL] = json!({"type": model.kind});
    }
    let retry = &properties["retrySettings"];
    let timeout = retry["timeout"].as_str().map(read::seconds);
    let mut resources = properties["resources"].as_object().cloned().unwrap_or_default();
    let count = resources.remove("instanceCount");
    resources.insert("instance_count".into(), count.unwrap_or(json!(1)));
    json!({
        "type": "parallel",
        "display_name": STEP,
        "is_deterministic": false,
        "inputs": inputs,
        "outputs": {SCORE: {"type": "uri_folder"}},
        "task": task,
        "input_data": format!("${{{{inputs.{DATA}}}}}"),
        "mini_batch_size": plain(&properties["miniBatchSize"]),
        "error_threshold": properties["errorThreshold"],
        "logging_level": properties["loggingLevel"],
        "max_concurrency_per_instance": properties["maxConcurrencyPerInstance"],
        "retry_settings": {"max_retries": retry["maxRetries"], "timeout": timeout.and_then(Result::ok)},
        "resources": resources,
        "environment_variables": properties["environmentVariables"],
        "batch_endpoint": {
            "output": SCORE,
            "rows_file": properties["outputFileName"],
            "model": model.map(|_| MODEL),
        },
    })
}

/// A size may be written as a number; a component has it as text.
fn plain(value: &Value) -> Value {
    if value.is_number() { json!(value.to_string()) } else { value.clone() }
}

/// Where a call is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called<'a> {
    pub endpoint: &'a str,
    pub deployment: &'a str,
}

/// What the step is: written out, so that it can be looked at before it is registered, or the registered one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scoring<'a> {
    Written(&'a Value),
    Registered(&'a str),
}

/// The job that runs a model over the call's data.
pub(super) fn of_model(
    at: Called<'_>,
    properties: &Value,
    model: Option<&Model>,
    call: &Call,
    scoring: Scoring<'_>,
) -> Value {
    let mut inputs =
        json!({DATA: {"job_input_type": "literal", "value": format!("${{{{parent.inputs.{DATA}}}}}")}});
    if let Some(model) = model {
        inputs[MODEL] = json!({"job_input_type": model.kind, "uri": model.id});
    }
    let bound = format!("${{{{parent.outputs.{SCORE}}}}}");
    let mut step = match scoring {
        Scoring::Written(component) => {
            let mut step = component.clone();
            step["outputs"] = json!({SCORE: {"jobOutputType": "uri_folder", "value": bound}});
            step
        }
        Scoring::Registered(id) => {
            json!({"type": "parallel", "componentId": id, "outputs": {SCORE: {"type": "literal", "value": bound}}})
        }
    };
    step["inputs"] = inputs;
    step["computeId"] = properties["compute"].clone();
    let mut body = job(at, call);
    body["inputs"] = json!({DATA: call.inputs.values().next()});
    body["outputs"] =
        json!({SCORE: call.outputs.get(SCORE).unwrap_or(&json!({"jobOutputType": "uri_folder"}))});
    body["jobs"] = json!({STEP: step});
    json!({"properties": body})
}

/// The job that a pipeline component is, with the call's inputs and outputs; every problem with these.
pub(super) fn of_pipeline(
    at: Called<'_>,
    properties: &Value,
    spec: &Value,
    call: &Call,
) -> (Value, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut inputs = Map::new();
    let declared = |what: &str| spec[what].as_object().cloned().unwrap_or_default();
    for (name, wanted) in &declared("inputs") {
        match (call.inputs.get(name), &wanted["default"]) {
            (Some(given), _) => {
                let is_value = given["jobInputType"] == "literal";
                if is_value != is_literal(wanted) {
                    let kind = wanted["type"].as_str().unwrap_or("string");
                    let is = if is_value { "a value" } else { "data" };
                    let message = format!("The input '{name}' must be of type {kind}, and is {is}.");
                    problems.push(bad(message, &format!("properties.inputData.{name}")));
                }
                inputs.insert(name.clone(), given.clone());
            }
            (None, Value::Null) if is_flag(&wanted["optional"]) => {
                drop(inputs.insert(name.clone(), Value::Null));
            }
            (None, Value::Null) => problems.push(bad(
                format!("The input '{name}' of the pipeline has no value and no default."),
                &format!("properties.inputData.{name}"),
            )),
            (None, default) => {
                inputs.insert(name.clone(), json!({"jobInputType": "literal", "value": default}));
            }
        }
    }
    let mut outputs = Map::new();
    for (name, wanted) in &declared("outputs") {
        let kind = wanted["type"].as_str().unwrap_or("uri_folder");
        let given = call.outputs.get(name).cloned();
        outputs.insert(name.clone(), given.unwrap_or_else(|| json!({"jobOutputType": kind})));
    }
    for (given, what, field) in
        [(&call.inputs, "inputs", "inputData"), (&call.outputs, "outputs", "outputData")]
    {
        for name in given.keys().filter(|name| spec[what].get(name.as_str()).is_none()) {
            let message = format!("The pipeline has no '{name}' among its {what}.");
            problems.push(bad(message, &format!("properties.{field}.{name}")));
        }
    }
    let mut body = job(at, call);
    body["inputs"] = Value::Object(inputs);
    body["outputs"] = Value::Object(outputs);
    body["settings"] = properties["deploymentConfiguration"]["settings"].clone();
    body["jobs"] = spec["jobs"].clone();
    (json!({"properties": body}), problems)
}

/// What every job of an endpoint has.
fn job(at: Called<'_>, call: &Call) -> Value {
    let Called { endpoint, deployment } = at;
    let shown = call.display_name.clone().unwrap_or_else(|| format!("{endpoint} {deployment}"));
    json!({
        "jobType": "Pipeline",
        "displayName": shown,
        "experimentName": call.experiment.as_deref().unwrap_or(endpoint),
        "properties": {ENDPOINT_PROPERTY: endpoint, DEPLOYMENT_PROPERTY: deployment},
        "settings": {},
    })
}

pub(super) fn is_literal(declared: &Value) -> bool {
    let kind = declared["type"].as_str().unwrap_or("string").to_ascii_lowercase();
    matches!(kind.as_str(), "integer" | "number" | "boolean" | "string" | "float" | "str" | "int" | "bool")
}

fn is_flag(value: &Value) -> bool {
    value == true || value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// A name that follows from the content.
pub(super) fn hash(content: &[u8]) -> String {
    Sha256::digest(content).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
