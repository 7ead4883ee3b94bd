//! A pipeline's step as the body of the job that it is. Steps are written in snake_case, jobs in camelCase.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::outputs::Made;

pub(super) struct Parts<'a> {
    pub kind: &'a str,
    pub node: &'a Value,
    pub spec: &'a Value,
    /// Of a sweep: what is tried.
    pub trial: Option<&'a Value>,
    pub compute: Option<&'a str>,
    pub experiment: &'a str,
    pub display_name: &'a str,
    pub inputs: Map<String, Value>,
    pub outputs: Map<String, Value>,
    /// Fills in the pipeline's own inputs.
    pub fill: &'a dyn Fn(&str) -> String,
}

pub(super) fn job(parts: &Parts<'_>) -> Value {
    let Parts { node, spec, .. } = parts;
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            out.insert(key.into(), value);
        }
    };
    put("experimentName", json!(parts.experiment));
    put(
        "displayName",
        node["display_name"].as_str().map_or_else(|| json!(parts.display_name), |name| json!(name)),
    );
    put("computeId", json!(parts.compute));
    put("inputs", Value::Object(parts.inputs.clone()));
    put("outputs", Value::Object(parts.outputs.clone()));
    for key in ["tags", "properties", "description"] {
        put(key, node[key].clone());
    }
    for (from, to) in [("identity", "identity"), ("queue_settings", "queueSettings")] {
        put(to, camel(first(&[node, spec], from)));
    }
    // Their names are the user's.
    if let Value::Object(services) = first(&[node, spec], "services") {
        let named = services.iter().map(|(name, service)| (name.clone(), camel(service)));
        put("services", Value::Object(named.collect()));
    }
    // What a trial asks for holds where the sweep is silent.
    let of_trial = parts.trial.map_or(&Value::Null, |trial| &trial["resources"]);
    put("resources", camel(merged(&merged(of_trial, &spec["resources"]), &node["resources"])));
    match parts.kind {
        "sweep" => {
            put("jobType", json!("Sweep"));
            let trial = parts.trial.unwrap_or(&Value::Null);
            put("trial", Value::Object(command(trial, node, parts.fill)));
            for (from, to) in [
                ("search_space", "searchSpace"),
                ("sampling_algorithm", "samplingAlgorithm"),
                ("early_termination", "earlyTermination"),
                ("objective", "objective"),
                ("limits", "limits"),
            ] {
                // The names within a search space are the user's.
                let value = first(&[node, spec], from).clone();
                put(to, if from == "search_space" { value } else { camel(&value) });
            }
        }
        "parallel" => {
            put("jobType", json!("Parallel"));
            for key in [
                "task",
                "input_data",
                "mini_batch_size",
                "partition_keys",
                "mini_batch_error_threshold",
                "error_threshold",
                "logging_level",
                "max_concurrency_per_instance",
                "retry_settings",
                "environment_variables",
                "batch_endpoint",
            ] {
                put(key, first(&[node, spec], key).clone());
            }
        }
        _ => {
            put("jobType", json!("Command"));
            put("limits", limits(first(&[node, spec], "limits")));
            for (key, value) in command(spec, node, parts.fill) {
                put(&key, value);
            }
        }
    }
    json!({"properties": out})
}

/// What a command component by itself says of a job, without its inputs and outputs.
pub(in crate::arm::jobs) fn of_component(spec: &Value) -> Value {
    let mut out = command(spec, &Value::Null, &|text| text.to_owned());
    for (from, to) in [("resources", "resources"), ("identity", "identity"), ("services", "services")] {
        if !spec[from].is_null() {
            out.insert(to.into(), camel(&spec[from]));
        }
    }
    if !spec["limits"].is_null() {
        out.insert("limits".into(), limits(&spec["limits"]));
    }
    out.insert("jobType".into(), json!("Command"));
    json!({"properties": out})
}

/// What a command is run with: of a step, or of a sweep's trial.
fn command(spec: &Value, node: &Value, fill: &dyn Fn(&str) -> String) -> Map<String, Value> {
    let mut out = Map::new();
    let plain_id = |value: &Value| {
        value.as_str().map(|id| {
            let short = id.strip_prefix("azureml:").unwrap_or(id);
            // A short name keeps its prefix, so that it is read as one.
            json!(if short.starts_with('/') && !short.starts_with("//") { short } else { id })
        })
    };
    if let Some(command) = spec["command"].as_str() {
        out.insert("command".into(), json!(fill(command)));
    }
    for (from, to) in [("code", "codeId"), ("environment", "environmentId")] {
        if let Some(id) = plain_id(first(&[node, spec], from)) {
            out.insert(to.into(), id);
        }
    }
    let distribution = first(&[node, spec], "distribution");
    if distribution.is_object() {
        out.insert("distribution".into(), camel(distribution));
    }
    let mut variables = Map::new();
    for from in [spec, node] {
        for (key, value) in from["environment_variables"].as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.clone(), |text| json!(fill(text)));
            variables.insert(key.clone(), value);
        }
    }
    if !variables.is_empty() {
        out.insert("environmentVariables".into(), Value::Object(variables));
    }
    out
}

/// The definition of a pipeline within a pipeline, to be shown.
pub(super) fn nested(node: &Value, experiment: &str) -> Value {
    let mut out = node.as_object().cloned().unwrap_or_default();
    out.insert("jobType".into(), json!("Pipeline"));
    out.insert("experimentName".into(), json!(experiment));
    Value::Object(out)
}

/// The same job with its outputs where they truly are.
pub(super) fn with_outputs(mut job: Value, made: &BTreeMap<String, Made>) -> Value {
    for (name, made) in made {
        job["properties"]["outputs"][name]["uri"] = json!(made.uri);
    }
    job
}

fn first<'a>(among: &[&'a Value], key: &str) -> &'a Value {
    among.iter().map(|value| &value[key]).find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

/// One object over another.
fn merged(under: &Value, over: &Value) -> Value {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            let mut out = under.clone();
            out.extend(
                over.iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())),
            );
            Value::Object(out)
        }
        (under, Value::Null) => under.clone(),
        (_, over) => over.clone(),
    }
}

/// A time limit: seconds in a step, an ISO duration in a job.
fn limits(value: &Value) -> Value {
    let mut out = camel(value);
    if let Some(seconds) = out["timeout"].as_u64() {
        out["timeout"] = json!(format!("PT{seconds}S"));
    }
    out
}

/// Keys in camelCase; what lies under `properties`, and names that users chose, stay as they are.
fn camel(value: impl std::borrow::Borrow<Value>) -> Value {
    match value.borrow() {
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map {
                let value = if key == "properties" { value.clone() } else { camel(value) };
                out.insert(camel_key(key), value);
            }
            for (from, to) in
                [("type", "distributionType"), ("type", "identityType"), ("type", "jobServiceType")]
            {
                if let Some(kind) = out.get(from).cloned() {
                    out.entry(to).or_insert(kind);
                }
            }
            Value::Object(out)
        }
        Value::Array(items) => items.iter().map(camel).collect(),
        plain => plain.clone(),
    }
}

fn camel_key(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    let mut upper = false;
    for c in key.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}
