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
    put(
        &mut map,
        "limits",
        text(resource, "/properties/limits/timeout")
            .and_then(neap_spec::seconds_from_iso)
            .map(|seconds| json!({ "timeout": seconds })),
    );
    put(
        &mut map,
        "distribution",
        full("distribution").map(|value| shallow(&value, &[("distributionType", "type")])),
    );
    put(&mut map, "queue_settings", full("queueSettings").map(|value| shallow(&value, &[])));
    put(&mut map, "identity", full("identity").map(|value| shallow(&value, &[("identityType", "type")])));
    put(
        &mut map,
        "services",
        full("services")
            .map(|services| each(&services, |service| shallow(service, &[("jobServiceType", "type")]))),
    );
    put(&mut map, "tags", full("tags"));
    put(&mut map, "properties", full("properties"));
    let reason =
        resource.pointer("/properties/properties").and_then(|properties| properties.get("neap.queueReason"));
    put(&mut map, "queue_reason", reason.cloned());
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
    put(&mut map, "path", value.get("uri").cloned());
    put(&mut map, "mode", text(value, "/mode").map(|word| mode(word).into()));
    put(&mut map, "description", value.get("description").cloned());
    Value::Object(map)
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
