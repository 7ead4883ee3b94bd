//! Schedules, datastores, batch endpoints and deployments as `az ml` shows them.

use super::{name_in_id, put, snake_keys, text};
use serde_json::{Map, Value, json};

/// What all of them begin with.
fn head(resource: &Value) -> Map<String, Value> {
    let mut map = Map::new();
    put(&mut map, "name", resource.get("name").cloned());
    for (key, wire) in [("display_name", "displayName"), ("description", "description")] {
        put(&mut map, key, resource.pointer(&format!("/properties/{wire}")).cloned());
    }
    map
}

/// What all of them end with.
fn tail(mut map: Map<String, Value>, resource: &Value) -> Value {
    let full = |value: &Value| value.as_object().is_some_and(|all| !all.is_empty());
    let tags = resource.get("tags").or_else(|| resource.pointer("/properties/tags"));
    put(&mut map, "tags", tags.filter(|tags| full(tags)).cloned());
    let properties = resource.pointer("/properties/properties").filter(|all| full(all));
    put(&mut map, "properties", properties.cloned());
    put(&mut map, "provisioning_state", resource.pointer("/properties/provisioningState").cloned());
    put(&mut map, "creation_context", resource.get("systemData").map(snake_keys));
    put(&mut map, "id", resource.get("id").cloned());
    let group = text(resource, "/id").and_then(|id| name_in_id(id, "resourceGroups"));
    put(&mut map, "resourceGroup", group.map(Value::from));
    Value::Object(map)
}

pub fn schedule(resource: &Value) -> Value {
    let mut map = head(resource);
    put(&mut map, "is_enabled", resource.pointer("/properties/isEnabled").cloned());
    if let Some(trigger) = resource.pointer("/properties/trigger") {
        let mut shown = snake_keys(trigger);
        if let Value::Object(inner) = &mut shown
            && let Some(kind) = inner.shift_remove("trigger_type")
        {
            inner.insert("type".into(), kind.as_str().unwrap_or_default().to_lowercase().into());
            inner.retain(|_, item| !item.is_null());
        }
        map.insert("trigger".into(), shown);
    }
    if let Some(definition) = resource.pointer("/properties/action/jobDefinition") {
        let shown = super::definition(&json!({ "properties": definition }));
        let source = text(definition, "/sourceJobId").and_then(|id| name_in_id(id, "jobs"));
        let shown = match (source, shown) {
            (Some(name), Value::Object(mut rest)) => {
                rest.insert("job".into(), format!("azureml:{name}").into());
                Value::Object(rest)
            }
            (_, shown) => shown,
        };
        map.insert("create_job".into(), shown);
    }
    tail(map, resource)
}

/// Never a secret, whatever the server sends. Neap's own kinds are shown as what they are, and not as the container
/// through which Azure's clients reach them.
pub fn datastore(resource: &Value) -> Value {
    let own = resource.pointer("/properties/neap").filter(|own| own.is_object());
    let properties = own.or_else(|| resource.get("properties")).unwrap_or(&Value::Null);
    let at = |key: &str| properties.get(key).cloned();
    let mut map = head(resource);
    let kind = properties.get("datastoreType").and_then(Value::as_str).map(|kind| super::snake(kind).into());
    put(&mut map, "type", kind);
    for (key, wire) in [
        ("account_name", "accountName"),
        ("container_name", "containerName"),
        ("endpoint", "endpoint"),
        ("protocol", "protocol"),
        ("filesystem", "filesystem"),
        ("path", "path"),
        ("bucket", "bucket"),
        ("region", "region"),
        ("is_default", "isDefault"),
    ] {
        put(&mut map, key, at(wire));
    }
    let credentials = properties.pointer("/credentials/credentialsType").and_then(Value::as_str);
    put(&mut map, "credentials", credentials.map(|kind| json!({"type": super::snake(kind)})));
    tail(map, resource)
}

pub fn batch_endpoint(resource: &Value) -> Value {
    let at = |key: &str| resource.pointer(&format!("/properties/{key}")).cloned();
    let mut map = head(resource);
    put(&mut map, "auth_mode", Value::from("aad_token"));
    put(&mut map, "location", resource.get("location").cloned());
    put(&mut map, "scoring_uri", at("scoringUri"));
    let default = text(resource, "/properties/defaults/deploymentName");
    put(&mut map, "defaults", default.map(|name| json!({ "deployment_name": name })));
    tail(map, resource)
}

pub fn batch_deployment(resource: &Value) -> Value {
    let at = |key: &str| resource.pointer(&format!("/properties/{key}")).cloned();
    let mut map = head(resource);
    let endpoint = text(resource, "/id").and_then(|id| name_in_id(id, "batchEndpoints"));
    put(&mut map, "endpoint_name", endpoint.map(Value::from));
    let named = |pointer: &str, kind: &str| {
        text(resource, pointer).map(|id| match (name_in_id(id, kind), name_in_id(id, "versions")) {
            (Some(name), Some(version)) => format!("azureml:{name}:{version}").into(),
            (Some(name), None) => format!("azureml:{name}").into(),
            _ => Value::from(id),
        })
    };
    put(&mut map, "model", named("/properties/model/assetId", "models"));
    put(&mut map, "environment", named("/properties/environmentId", "environments"));
    put(&mut map, "compute", named("/properties/compute", "computes"));
    put(
        &mut map,
        "component",
        named("/properties/deploymentConfiguration/componentId/assetId", "components"),
    );
    let mut code = Map::new();
    put(&mut code, "code", named("/properties/codeConfiguration/codeId", "codes"));
    put(&mut code, "scoring_script", at("codeConfiguration/scoringScript"));
    if !code.is_empty() {
        map.insert("code_configuration".into(), Value::Object(code));
    }
    for (key, wire) in [
        ("error_threshold", "errorThreshold"),
        ("mini_batch_size", "miniBatchSize"),
        ("max_concurrency_per_instance", "maxConcurrencyPerInstance"),
        ("output_file_name", "outputFileName"),
        ("logging_level", "loggingLevel"),
        ("environment_variables", "environmentVariables"),
    ] {
        put(&mut map, key, at(wire));
    }
    let action = text(resource, "/properties/outputAction").map(|action| super::snake(action).into());
    put(&mut map, "output_action", action);
    if let Some(retry) = resource.pointer("/properties/retrySettings").filter(|retry| retry.is_object()) {
        let mut shown = Map::new();
        put(&mut shown, "max_retries", retry.get("maxRetries").cloned());
        let timeout = text(retry, "/timeout").and_then(neap_spec::seconds_from_iso);
        put(&mut shown, "timeout", timeout.map(Value::from));
        map.insert("retry_settings".into(), Value::Object(shown));
    }
    let count = at("resources/instanceCount");
    put(&mut map, "resources", count.map(|count| json!({ "instance_count": count })));
    tail(map, resource)
}
