//! A job resource as `az ml job show` prints it, with the reason why it waits or failed.

use super::{name_in_id, put, snake, snake_keys, text};
use serde_json::{Map, Value, json};

/// Whether a status is one that a job does not leave.
pub fn is_final(status: &str) -> bool {
    matches!(status, "Completed" | "Failed" | "Canceled" | "NotResponding")
}

pub fn job(resource: &Value) -> Value {
    let at = |key: &str| resource.pointer(&format!("/properties/{key}")).cloned();
    let full = |key: &str| at(key).filter(|value| value.as_object().is_none_or(|map| !map.is_empty()));
    let mut map = Map::new();
    put(&mut map, "name", resource.get("name").cloned());
    put(&mut map, "type", text(resource, "/properties/jobType").map(|kind| kind.to_lowercase().into()));
    put(&mut map, "status", at("status"));
    for (key, wire) in [
        ("display_name", "displayName"),
        ("experiment_name", "experimentName"),
        ("description", "description"),
        ("command", "command"),
    ] {
        put(&mut map, key, at(wire));
    }
    put(&mut map, "code", text(resource, "/properties/codeId").map(|id| reference(id, "codes").into()));
    put(
        &mut map,
        "environment",
        text(resource, "/properties/environmentId").map(|id| reference(id, "environments").into()),
    );
    put(
        &mut map,
        "compute",
        text(resource, "/properties/computeId").map(|id| match name_in_id(id, "computes") {
            Some(name) => format!("azureml:{name}").into(),
            None => Value::from(id),
        }),
    );
    put(&mut map, "environment_variables", full("environmentVariables"));
    put(&mut map, "inputs", full("inputs").map(|inputs| each(&inputs, input)));
    put(&mut map, "outputs", full("outputs").map(|outputs| each(&outputs, output)));
    put(&mut map, "resources", at("resources").map(|value| shallow(&value, &[])));
    put(&mut map, "limits", full("limits").and_then(|value| limits(&value)));
    put(
        &mut map,
        "settings",
        full("settings").map(|value| without(&value, "_source")).map(|value| settings(&value)),
    );
    put(&mut map, "jobs", full("jobs").map(|jobs| each(&jobs, step)));
    put(
        &mut map,
        "component",
        text(resource, "/properties/componentId").map(|id| reference(id, "components").into()),
    );
    put_sweep(&mut map, resource);
    put(
        &mut map,
        "distribution",
        full("distribution").map(|value| renamed(&super::snake_keys(&value), "distribution_type")),
    );
    put(&mut map, "queue_settings", full("queueSettings").map(|value| queue(&value)));
    let identity = full("identity").map(|value| renamed(&shallow(&value, &[]), "identity_type"));
    put(&mut map, "identity", identity);
    put(
        &mut map,
        "services",
        full("services")
            .map(|services| each(&services, |service| renamed(&shallow(service, &[]), "job_service_type"))),
    );
    put(&mut map, "tags", full("tags"));
    put(&mut map, "properties", full("properties"));
    let fact = |key: &str| {
        resource.pointer("/properties/properties").and_then(|properties| properties.get(key)).cloned()
    };
    put(&mut map, "queue_reason", fact("neap.queueReason"));
    let place = fact("neap.queuePosition").and_then(|place| place.as_str()?.parse::<u64>().ok());
    put(&mut map, "queue_position", place.map(Value::from));
    put(&mut map, "estimated_start", fact("neap.estimatedStart"));
    put(&mut map, "estimated_start_p95", fact("neap.estimatedStartP95"));
    put(&mut map, "estimated_start_unknown", fact("neap.estimatedStartUnknown"));
    put(&mut map, "failure_class", fact("neap.failureClass"));
    put(&mut map, "next_step", fact("neap.nextStep"));
    put(&mut map, "error", at("error"));
    put(&mut map, "archived", at("isArchived").filter(|archived| *archived == Value::Bool(true)));
    put(&mut map, "creation_context", resource.get("systemData").and_then(creation_context));
    put(&mut map, "id", resource.get("id").cloned());
    put(
        &mut map,
        "resourceGroup",
        text(resource, "/id").and_then(|id| name_in_id(id, "resourceGroups")).map(Value::from),
    );
    Value::Object(map)
}

/// `.../environments/e/versions/1` is `azureml:e:1`; what is no such id stays as it is.
fn reference(id: &str, kind: &str) -> String {
    match (name_in_id(id, kind), name_in_id(id, "versions")) {
        (Some(name), Some(version)) if id.starts_with('/') => format!("azureml:{name}:{version}"),
        _ => id.to_owned(),
    }
}

fn each(map: &Value, entity: impl Fn(&Value) -> Value) -> Value {
    let entries = map.as_object().into_iter().flatten();
    Value::Object(entries.map(|(name, value)| (name.clone(), entity(value))).collect::<Map<_, _>>())
}

fn mode(wire: &str) -> &str {
    match wire {
        "ReadOnlyMount" => "ro_mount",
        "ReadWriteMount" => "rw_mount",
        "Download" => "download",
        "Upload" => "upload",
        "Direct" => "direct",
        "EvalMount" => "eval_mount",
        "EvalDownload" => "eval_download",
        other => other,
    }
}

fn input(value: &Value) -> Value {
    if text(value, "/jobInputType") == Some("literal") {
        return value.get("value").cloned().unwrap_or(Value::Null);
    }
    data(value, "/jobInputType")
}

fn output(value: &Value) -> Value {
    let mut entity = data(value, "/jobOutputType");
    if let Value::Object(map) = &mut entity {
        put(map, "name", value.get("assetName").cloned());
        put(map, "version", value.get("assetVersion").cloned());
    }
    entity
}

fn data(value: &Value, kind: &str) -> Value {
    let mut map = Map::new();
    put(&mut map, "type", value.pointer(kind).cloned());
    put(&mut map, "path", text(value, "/uri").map(|uri| data_reference(uri).into()));
    put(&mut map, "mode", text(value, "/mode").map(|word| mode(word).into()));
    put(&mut map, "description", value.get("description").cloned());
    put(&mut map, "path_on_compute", value.get("pathOnCompute").cloned());
    Value::Object(map)
}

/// Registered data as files name it; any other place as it is.
fn data_reference(uri: &str) -> String {
    let kind = if uri.contains("/models/") { "models" } else { "data" };
    reference(uri, kind)
}

/// Keys in snake_case on the first level, some renamed; nulls and empty maps left out. The inner maps are the user's.
fn shallow(value: &Value, renamed: &[(&str, &str)]) -> Value {
    let mut map = Map::new();
    for (key, item) in value.as_object().into_iter().flatten() {
        if item.as_object().is_some_and(Map::is_empty) {
            continue;
        }
        match renamed.iter().find(|(wire, _)| wire == key) {
            Some((_, name)) => put(&mut map, name, item.as_str().map(|word| snake(word).into())),
            None => put(&mut map, &snake(key), item.clone()),
        }
    }
    Value::Object(map)
}

/// Durations in seconds, counts as they are.
fn limits(value: &Value) -> Option<Value> {
    let mut map = Map::new();
    for key in ["maxTotalTrials", "maxConcurrentTrials"] {
        put(&mut map, &snake(key), value.get(key).cloned());
    }
    for key in ["timeout", "trialTimeout"] {
        let seconds = value.get(key).and_then(Value::as_str).and_then(neap_spec::seconds_from_iso);
        put(&mut map, &snake(key), seconds.map(Value::from));
    }
    (!map.is_empty()).then_some(Value::Object(map))
}

fn without(value: &Value, key: &str) -> Value {
    let entries = value.as_object().into_iter().flatten().filter(|(name, _)| *name != key);
    Value::Object(entries.map(|(name, item)| (name.clone(), item.clone())).collect())
}

fn settings(value: &Value) -> Value {
    let mut shown = value.clone();
    for (key, kind) in [("default_compute", "computes"), ("default_datastore", "datastores")] {
        if let Some(name) = value.get(key).and_then(Value::as_str).and_then(|id| name_in_id(id, kind)) {
            shown[key] = format!("azureml:{name}").into();
        }
    }
    shown
}

/// A step of a pipeline: the wire has it in snake_case already, with ids for its component and compute.
fn step(node: &Value) -> Value {
    let mut map = Map::new();
    for (key, item) in node.as_object().into_iter().flatten() {
        let (key, item) = match key.as_str() {
            "_source" | "name" => continue,
            "componentId" => ("component", item.as_str().map(|id| reference(id, "components").into())),
            "trial" => ("trial", text(item, "/componentId").map(|id| reference(id, "components").into())),
            "computeId" => (
                "compute",
                item.as_str().map(|id| {
                    name_in_id(id, "computes")
                        .map_or_else(|| id.into(), |name| format!("azureml:{name}").into())
                }),
            ),
            "inputs" => ("inputs", Some(each(item, |value| node_end(value, "/job_input_type")))),
            "outputs" => ("outputs", Some(each(item, |value| node_end(value, "/job_output_type")))),
            "limits" if item.get("job_limits_type").is_some() => (
                "limits",
                text(item, "/timeout")
                    .and_then(neap_spec::seconds_from_iso)
                    .map(|seconds| json!({ "timeout": seconds })),
            ),
            "distribution" => ("distribution", Some(renamed(item, "distribution_type"))),
            "identity" => ("identity", Some(renamed(item, "identity_type"))),
            "early_termination" => ("early_termination", Some(policy(item))),
            "services" => ("services", Some(each(item, |service| renamed(service, "job_service_type")))),
            "queue_settings" => ("queue_settings", Some(queue(item))),
            "partition_keys" => (
                "partition_keys",
                item.as_str().and_then(|list| serde_json::from_str(list).ok()).or_else(|| Some(item.clone())),
            ),
            other => (other, Some(item.clone())),
        };
        put(&mut map, key, item);
    }
    Value::Object(map)
}

fn node_end(value: &Value, kind: &str) -> Value {
    let bound = value.get("value").and_then(Value::as_str).filter(|text| text.starts_with("${{"));
    let mode_of = |value: &Value| text(value, "/mode").map(|word| Value::from(mode(word)));
    let registered = ["name", "version"].iter().any(|key| value.get(*key).is_some());
    match (value.get("value"), bound, mode_of(value)) {
        (Some(_), Some(bound), None) if !registered => bound.into(),
        (Some(literal), None, _) => literal.clone(),
        (_, bound, mode) => {
            let mut map = Map::new();
            let kind = value.pointer(kind).filter(|kind| **kind != "literal").cloned();
            put(&mut map, "type", kind);
            let place = text(value, "/uri").map(|uri| data_reference(uri).into());
            put(&mut map, "path", bound.map(Value::from).or(place));
            put(&mut map, "mode", mode);
            for key in ["name", "version", "description"] {
                put(&mut map, key, value.get(key).cloned());
            }
            Value::Object(map)
        }
    }
}

/// `distribution_type: PyTorch` is `type: pytorch`; the rest stays.
fn renamed(value: &Value, kind: &str) -> Value {
    let mut map = Map::new();
    for (key, item) in value.as_object().into_iter().flatten() {
        if key == kind {
            put(&mut map, "type", item.as_str().map(|word| type_word(word).into()));
        } else if key == "resource_id" && kind == "identity_type" {
            put(&mut map, "msi_resource_id", item.clone());
        } else if key == "nodes" {
            put(&mut map, "nodes", Value::from("all"));
        } else if key == "properties" && kind == "job_service_type" {
            service_properties(&mut map, item);
        } else {
            put(&mut map, key, item.clone());
        }
    }
    Value::Object(map)
}

/// The words of the wire as files write them.
fn type_word(word: &str) -> String {
    match word {
        "PyTorch" | "TensorFlow" | "Mpi" | "Ray" => word.to_lowercase(),
        "AMLToken" => "aml_token".to_owned(),
        "VSCode" => "vs_code".to_owned(),
        other => snake(other),
    }
}

fn service_properties(map: &mut Map<String, Value>, properties: &Value) {
    let mut rest = Map::new();
    for (key, item) in properties.as_object().into_iter().flatten() {
        match key.as_str() {
            "sshPublicKeys" => put(map, "ssh_public_keys", item.clone()),
            "logDir" => put(map, "log_dir", item.clone()),
            _ => put(&mut rest, key, item.clone()),
        }
    }
    if !rest.is_empty() {
        map.insert("properties".into(), Value::Object(rest));
    }
}

fn queue(value: &Value) -> Value {
    let mut map = Map::new();
    let tier = value.get("job_tier").or_else(|| value.get("jobTier")).and_then(Value::as_str);
    put(&mut map, "job_tier", tier.map(|tier| tier.to_lowercase().into()));
    let rank = value.get("priority");
    let word = match rank.and_then(Value::as_u64) {
        Some(1) => Some(Value::from("low")),
        Some(2) => Some(Value::from("medium")),
        Some(3) => Some(Value::from("high")),
        _ => rank.cloned(),
    };
    put(&mut map, "priority", word);
    Value::Object(map)
}

/// A policy of early termination, its keys in snake_case already.
fn policy(value: &Value) -> Value {
    let mut shown = renamed(value, "policy_type");
    // The clients' word for "every one".
    if shown.get("evaluation_interval").and_then(Value::as_u64) == Some(0)
        && let Value::Object(inner) = &mut shown
    {
        inner.shift_remove("evaluation_interval");
    }
    shown
}

fn put_sweep(map: &mut Map<String, Value>, resource: &Value) {
    let at = |key: &str| resource.pointer(&format!("/properties/{key}"));
    put(map, "objective", at("objective").map(|objective| shallow(objective, &[])));
    if let Some(sampling) = at("samplingAlgorithm") {
        let mut shown = renamed(&super::snake_keys(sampling), "sampling_algorithm_type");
        if let Value::Object(inner) = &shown
            && inner.len() == 1
        {
            shown = inner.values().next().cloned().unwrap_or(Value::Null);
        }
        put(map, "sampling_algorithm", shown);
    }
    put(map, "early_termination", at("earlyTermination").map(|value| policy(&super::snake_keys(value))));
    if let Some(spaces) = at("searchSpace") {
        put(map, "search_space", each(spaces, distribution));
    }
    if let Some(trial) = at("trial") {
        let mut shown = Map::new();
        put(&mut shown, "command", trial.get("command").cloned());
        put(&mut shown, "code", text(trial, "/codeId").map(|id| reference(id, "codes").into()));
        let environment = text(trial, "/environmentId").map(|id| reference(id, "environments").into());
        put(&mut shown, "environment", environment);
        put(&mut shown, "environment_variables", trial.get("environmentVariables").cloned());
        put(&mut shown, "resources", trial.get("resources").map(|value| shallow(value, &[])));
        let distribution = trial.get("distribution");
        put(
            &mut shown,
            "distribution",
            distribution.map(|value| renamed(&super::snake_keys(value), "distribution_type")),
        );
        put(map, "trial", Value::Object(shown));
    }
}

/// `["uniform", [a, b]]` is `{type: uniform, min_value: a, max_value: b}`.
fn distribution(space: &Value) -> Value {
    let (Some(kind), Some(arguments)) = (space.pointer("/0").and_then(Value::as_str), space.pointer("/1"))
    else {
        return space.clone();
    };
    let names: &[&str] = match kind {
        "choice" => &["values"],
        "randint" => &["upper"],
        "uniform" | "loguniform" => &["min_value", "max_value"],
        "quniform" | "qloguniform" => &["min_value", "max_value", "q"],
        "normal" | "lognormal" => &["mu", "sigma"],
        _ => &["mu", "sigma", "q"],
    };
    let mut map = Map::new();
    map.insert("type".into(), kind.into());
    for (index, name) in names.iter().enumerate() {
        let item = arguments.get(index).cloned().unwrap_or(Value::Null);
        let item = match (*name, item) {
            ("values", Value::Array(list)) => list.iter().map(nested_choice).collect(),
            (_, item) => item,
        };
        map.insert((*name).to_owned(), item);
    }
    Value::Object(map)
}

fn nested_choice(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, item)| {
                    let inner = item.pointer("/1").is_some_and(Value::is_array)
                        && item.pointer("/0").is_some_and(Value::is_string);
                    (key.clone(), if inner { distribution(item) } else { item.clone() })
                })
                .collect(),
        ),
        other => other.clone(),
    }
}

/// A service of a job, as the history lists it.
pub fn service(service: &Value) -> Value {
    shallow(service, &[])
}

/// What a job was defined by: everything that is shown of it but its name and what became of it.
pub fn definition(resource: &Value) -> Value {
    let Value::Object(mut map) = job(resource) else { return Value::Null };
    for key in [
        "name",
        "status",
        "error",
        "queue_reason",
        "failure_class",
        "next_step",
        "archived",
        "creation_context",
        "id",
        "resourceGroup",
        "display_name",
    ] {
        map.remove(key);
    }
    // A name that was made up for the one job is not the next one's.
    let shown =
        text(resource, "/properties/displayName").filter(|shown| text(resource, "/name") != Some(*shown));
    put(&mut map, "display_name", shown.map(Value::from));
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.retain(|key, _| {
            !["neap.", "azureml.", "_azureml", "mlflow.", "best_child"].iter().any(|own| key.starts_with(own))
        });
    }
    if let Some(Value::Object(services)) = map.get_mut("services") {
        services.retain(|_, service| {
            !matches!(service.get("type").and_then(Value::as_str), Some("studio" | "tracking"))
        });
        for service in services.values_mut().filter_map(Value::as_object_mut) {
            for key in ["endpoint", "status", "error_message"] {
                service.remove(key);
            }
        }
    }
    for key in ["properties", "services"] {
        if map.get(key).and_then(Value::as_object).is_some_and(Map::is_empty) {
            map.remove(key);
        }
    }
    Value::Object(map)
}

/// A row of the run history: a step of a pipeline, a trial of a sweep.
pub fn run(run: &Value) -> Value {
    let at = |key: &str| run.get(key).cloned();
    let mut map = Map::new();
    put(&mut map, "name", at("runId"));
    put(&mut map, "type", at("runType"));
    put(&mut map, "status", at("status"));
    put(&mut map, "display_name", at("displayName"));
    put(&mut map, "experiment_name", at("experimentName"));
    put(&mut map, "parent_job_name", at("parentRunId"));
    put(&mut map, "compute", at("target").or_else(|| run.pointer("/compute/target").cloned()));
    put(&mut map, "start_time", at("startTimeUtc"));
    put(&mut map, "end_time", at("endTimeUtc"));
    put(&mut map, "tags", at("tags").filter(|tags| tags.as_object().is_some_and(|tags| !tags.is_empty())));
    put(
        &mut map,
        "properties",
        at("properties").filter(|all| all.as_object().is_some_and(|all| !all.is_empty())),
    );
    put(&mut map, "error", run.pointer("/error/error").cloned().or_else(|| at("error")));
    if let Some(created) = at("createdUtc").filter(|created| !created.is_null()) {
        map.insert("creation_context".into(), json!({ "created_at": created }));
    }
    Value::Object(map)
}

/// The properties of a job that only the history knows, as ARM would have them.
pub fn properties_of_run(run: &Value) -> Value {
    let at = |key: &str| run.get(key).cloned().unwrap_or(Value::Null);
    json!({
        "jobType": "Command",
        "displayName": at("displayName"),
        "description": at("description"),
        "experimentName": at("experimentName"),
        "status": at("status"),
        "tags": at("tags"),
        "properties": at("properties"),
        "error": run.pointer("/error/error").cloned().unwrap_or(Value::Null),
    })
}

fn creation_context(system_data: &Value) -> Option<Value> {
    let context = snake_keys(system_data);
    context.as_object().is_some_and(|map| !map.is_empty()).then_some(context)
}

#[cfg(test)]
mod tests {
    use super::job;
    use serde_json::json;

    #[test]
    fn a_job_looks_like_its_file() {
        let entity = job(
            &json!({"id": "/subscriptions/S/resourceGroups/R/x/workspaces/W/jobs/j", "name": "j", "systemData": {"createdAt": "t"},
            "properties": {"jobType": "Command", "status": "Queued", "command": "ls", "computeId": "/a/computes/cpu", "environmentId": "/a/environments/e/versions/2",
              "codeId": "/a/codes/u/versions/1", "inputs": {"x": {"jobInputType": "literal", "value": "3"}, "d": {"jobInputType": "uri_file", "uri": "u", "mode": "Download"}},
              "outputs": {"o": {"jobOutputType": "uri_folder", "mode": null}}, "limits": {"timeout": "PT1M"}, "tags": {},
              "services": {"Studio": {"jobServiceType": "Studio", "endpoint": "e"}}, "resources": {"instanceCount": 1, "properties": {}},
              "properties": {"neap.queueReason": "no node is free"}, "isArchived": false}}),
        );
        assert_eq!(
            entity,
            json!({"name": "j", "type": "command", "status": "Queued", "command": "ls", "code": "azureml:u:1",
            "environment": "azureml:e:2", "compute": "azureml:cpu", "inputs": {"x": "3", "d": {"type": "uri_file", "path": "u", "mode": "download"}},
            "outputs": {"o": {"type": "uri_folder"}}, "resources": {"instance_count": 1}, "limits": {"timeout": 60},
            "services": {"Studio": {"type": "studio", "endpoint": "e"}}, "properties": {"neap.queueReason": "no node is free"},
            "queue_reason": "no node is free", "creation_context": {"created_at": "t"},
            "id": "/subscriptions/S/resourceGroups/R/x/workspaces/W/jobs/j", "resourceGroup": "R"})
        );
    }
}
