//! Versioned assets as `az ml` shows them: components, data, environments, models.

use super::{name_in_id, put, snake_keys, text};
use neap_spec::Collection;
use serde_json::{Map, Value};

/// One version of an asset.
pub fn version(resource: &Value, collection: Collection) -> Value {
    let at = |key: &str| resource.pointer(&format!("/properties/{key}")).cloned();
    let id = text(resource, "/id").unwrap_or_default();
    let mut map = Map::new();
    put(&mut map, "name", name_in_id(id, collection.plural()).map(Value::from));
    put(&mut map, "version", resource.get("name").cloned());
    match collection {
        Collection::Components => put_component(&mut map, resource),
        Collection::Data => {
            put(&mut map, "type", at("dataType"));
            put(&mut map, "path", at("dataUri"));
        }
        Collection::Environments => {
            put(&mut map, "image", at("image"));
            put(&mut map, "conda_file", at("condaFile"));
            put(&mut map, "build", resource.pointer("/properties/build").map(build));
            put(&mut map, "os_type", text(resource, "/properties/osType").map(|os| os.to_lowercase().into()));
            put(
                &mut map,
                "inference_config",
                resource.pointer("/properties/inferenceConfig").map(snake_keys),
            );
        }
        Collection::Models => {
            put(&mut map, "type", at("modelType"));
            put(&mut map, "path", at("modelUri"));
            let flavors =
                at("flavors").filter(|flavors| flavors.as_object().is_some_and(|all| !all.is_empty()));
            put(&mut map, "flavors", flavors);
            put(&mut map, "job_name", at("jobName"));
            put(&mut map, "stage", at("stage"));
        }
    }
    put(&mut map, "description", at("description"));
    for key in ["tags", "properties"] {
        put(&mut map, key, at(key).filter(|all| all.as_object().is_some_and(|all| !all.is_empty())));
    }
    put(&mut map, "archived", at("isArchived").filter(|archived| *archived == Value::Bool(true)));
    put(&mut map, "creation_context", resource.get("systemData").map(snake_keys));
    put(&mut map, "id", resource.get("id").cloned());
    put(&mut map, "resourceGroup", name_in_id(id, "resourceGroups").map(Value::from));
    Value::Object(map)
}

/// A name and what is newest of it.
pub fn container(resource: &Value) -> Value {
    let at = |key: &str| resource.pointer(&format!("/properties/{key}")).cloned();
    let mut map = Map::new();
    put(&mut map, "name", resource.get("name").cloned());
    put(&mut map, "latest_version", at("latestVersion"));
    put(&mut map, "type", at("dataType"));
    put(&mut map, "description", at("description"));
    put(&mut map, "tags", at("tags").filter(|tags| tags.as_object().is_some_and(|tags| !tags.is_empty())));
    put(&mut map, "archived", at("isArchived").filter(|archived| *archived == Value::Bool(true)));
    put(&mut map, "creation_context", resource.get("systemData").map(snake_keys));
    put(&mut map, "id", resource.get("id").cloned());
    Value::Object(map)
}

/// A component's specification is its file; what the clients add to it stays out.
fn put_component(map: &mut Map<String, Value>, resource: &Value) {
    let spec = resource.pointer("/properties/componentSpec").and_then(Value::as_object);
    for (key, item) in spec.into_iter().flatten() {
        if !matches!(key.as_str(), "name" | "version" | "_source" | "sourceJobId" | "$schema") {
            put(map, key, item.clone());
        }
    }
}

fn build(build: &Value) -> Value {
    let mut map = Map::new();
    put(&mut map, "path", build.get("contextUri").cloned());
    put(&mut map, "dockerfile_path", build.get("dockerfilePath").cloned());
    Value::Object(map)
}
