//! Whether a PUT under a used name asks for the same job. What GET adds, and what means the same, does not count.

use serde_json::{Map, Value};

/// Fields that may be edited, or that only answers carry.
const NOT_DEFINITION: &[&str] =
    &["displayName", "description", "tags", "properties", "isArchived", "status", "error", "parameters"];

/// The part of a request's `properties` that defines the job: kept, echoed by GET, compared by PUT.
pub(super) fn definition(properties: &Map<String, Value>) -> Value {
    let mut kept: Map<String, Value> = properties
        .iter()
        .filter(|(key, value)| !NOT_DEFINITION.contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    // A pipeline is shown by the steps that its component has.
    if kept.get("jobType").and_then(Value::as_str).is_some_and(|kind| kind.eq_ignore_ascii_case("pipeline")) {
        kept.remove("componentId");
    }
    if let Some(Value::Object(services)) = kept.get_mut("services") {
        super::services::as_asked(services);
        if services.is_empty() {
            kept.remove("services");
        }
    }
    Value::Object(kept)
}

/// The names of the fields in which two definitions differ.
pub(super) fn differing_fields(kept: &Value, asked: &Value) -> Vec<String> {
    let (kept, asked) = (plain(kept), plain(asked));
    let empty = Map::new();
    let (kept, asked) = (kept.as_object().unwrap_or(&empty), asked.as_object().unwrap_or(&empty));
    let mut fields: Vec<String> =
        kept.keys().chain(asked.keys()).filter(|key| kept.get(*key) != asked.get(*key)).cloned().collect();
    fields.sort();
    fields.dedup();
    fields
}

/// Without nulls, empty things, and values that are the default anyway; ids without regard to case.
fn plain(value: &Value) -> Value {
    let Value::Object(map) = value else { return value.clone() };
    let mut out = Map::new();
    for (key, value) in map {
        let value = plain(value);
        let is_default = match (key.as_str(), &value) {
            (_, Value::Null) => true,
            (_, Value::Object(map)) => map.is_empty(),
            (_, Value::Array(items)) => items.is_empty(),
            ("mode", Value::String(mode)) => mode == "ReadOnlyMount" || mode == "ReadWriteMount",
            ("instanceCount", count) => count == 1,
            ("shmSize", size) => size == "2g",
            // Present only beside values that are kept anyway.
            ("jobLimitsType" | "description", _) => true,
            ("experimentName", name) => name == "Default",
            _ => false,
        };
        if is_default {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("computeId" | "codeId" | "componentId" | "environmentId" | "jobType", Value::String(id)) => {
                Value::String(id.to_lowercase())
            }
            (_, value) => value,
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_get_adds_is_no_difference() {
        let asked = json!({"jobType": "Command", "command": "ls", "computeId": "/A/b", "inputs": {"d": {"uri": "u", "jobInputType": "uri_folder"}},
            "displayName": "x", "tags": {"a": "b"}, "properties": {}, "isArchived": false, "resources": {"properties": {}}});
        let kept = definition(asked.as_object().unwrap());
        assert_eq!(kept.get("displayName"), None);
        let again = json!({"jobType": "Command", "command": "ls", "computeId": "/a/B", "inputs": {"d": {"uri": "u", "jobInputType": "uri_folder", "mode": "ReadOnlyMount"}},
            "services": {"Studio": {"endpoint": "x"}, "Tracking": {}}, "status": "Completed", "limits": null, "outputs": {}, "isArchived": true,
            "resources": {"instanceCount": 1, "shmSize": "2g"}});
        assert_eq!(differing_fields(&kept, &definition(again.as_object().unwrap())), Vec::<String>::new());
    }

    #[test]
    fn differences_are_named() {
        let kept = json!({"command": "ls", "inputs": {"a": {"value": "1"}}, "codeId": "c"});
        let asked =
            json!({"command": "ls -l", "inputs": {"a": {"value": "2"}}, "limits": {"timeout": "PT1M"}});
        assert_eq!(differing_fields(&kept, &asked), ["codeId", "command", "inputs", "limits"]);
    }
}
