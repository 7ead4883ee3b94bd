//! A compute resource as `az ml compute show` prints it, with what only the REST face has elsewhere: node counts,
//! allocation state and errors.

use super::{name_in_id, put, snake, snake_keys, text};
use serde_json::{Map, Value, json};

pub fn compute(resource: &Value) -> Value {
    let at = |pointer: &str| resource.pointer(pointer).cloned();
    let inner = |key: &str| resource.pointer(&format!("/properties/properties/{key}")).cloned();
    let mut map = Map::new();
    put(&mut map, "name", at("/name"));
    put(&mut map, "type", text(resource, "/properties/computeType").map(|kind| kind.to_lowercase().into()));
    put(
        &mut map,
        "location",
        at("/properties/computeLocation").filter(Value::is_string).or_else(|| at("/location")),
    );
    put(&mut map, "description", at("/properties/description"));
    put(&mut map, "size", inner("vmSize"));
    put(&mut map, "tier", text(resource, "/properties/properties/vmPriority").map(|tier| snake(tier).into()));
    put(&mut map, "min_instances", inner("scaleSettings/minNodeCount"));
    put(&mut map, "max_instances", inner("scaleSettings/maxNodeCount"));
    put(&mut map, "dedicated_instances", inner("neapDedicatedNodeCount").filter(Value::is_number));
    let idle = text(resource, "/properties/properties/scaleSettings/nodeIdleTimeBeforeScaleDown");
    put(&mut map, "idle_time_before_scale_down", idle.and_then(neap_spec::seconds_from_iso).map(Value::from));
    put(&mut map, "tags", at("/tags").filter(|tags| tags.as_object().is_some_and(|tags| !tags.is_empty())));
    put(&mut map, "identity", resource.get("identity").and_then(identity));
    put(
        &mut map,
        "ssh_settings",
        resource.pointer("/properties/properties/userAccountCredentials").and_then(ssh),
    );
    let access = text(resource, "/properties/properties/remoteLoginPortPublicAccess");
    put(
        &mut map,
        "ssh_public_access_enabled",
        match access {
            Some("Enabled") => Some(Value::Bool(true)),
            Some("Disabled") => Some(Value::Bool(false)),
            _ => None,
        },
    );
    if let Some(subnet) = inner("subnet/id").filter(Value::is_string) {
        put(&mut map, "network_settings", json!({ "subnet": subnet }));
    }
    put(&mut map, "enable_node_public_ip", inner("enableNodePublicIp"));
    put(&mut map, "current_nodes", inner("currentNodeCount"));
    put(&mut map, "target_nodes", inner("targetNodeCount"));
    put(
        &mut map,
        "nodes_by_tier",
        inner("neapNodesByTier").filter(Value::is_object).map(|tiers| snake_keys(&tiers)),
    );
    put(&mut map, "allocation_state", inner("allocationState"));
    put(&mut map, "node_state_counts", inner("nodeStateCounts").map(|counts| snake_keys(&counts)));
    put(&mut map, "scale_in_force", inner("neapSchedules").filter(Value::is_object));
    put(
        &mut map,
        "rolling",
        inner("neapRolling").filter(Value::is_object).map(|rolling| snake_keys(&rolling)),
    );
    // Nothing wrong is said too: an empty list is an answer.
    map.insert("errors".into(), inner("errors").filter(Value::is_array).unwrap_or_else(|| json!([])));
    put(&mut map, "provisioning_state", at("/properties/provisioningState"));
    let provisioning_errors = at("/properties/provisioningErrors");
    put(
        &mut map,
        "provisioning_errors",
        provisioning_errors.filter(|list| list.as_array().is_some_and(|l| !l.is_empty())),
    );
    put(&mut map, "created_on", at("/properties/createdOn"));
    put(&mut map, "id", at("/id"));
    put(
        &mut map,
        "resourceGroup",
        text(resource, "/id").and_then(|id| name_in_id(id, "resourceGroups")).map(Value::from),
    );
    Value::Object(map)
}

fn identity(identity: &Value) -> Option<Value> {
    let kind = text(identity, "/type").filter(|kind| !kind.eq_ignore_ascii_case("none"))?;
    let mut map = Map::new();
    let kind: Vec<String> = kind
        .split(',')
        .map(|part| match part.trim().to_lowercase().as_str() {
            "systemassigned" => "system_assigned".to_owned(),
            "userassigned" => "user_assigned".to_owned(),
            other => other.to_owned(),
        })
        .collect();
    map.insert("type".into(), kind.join(",").into());
    put(&mut map, "principal_id", identity.get("principalId").cloned());
    put(&mut map, "tenant_id", identity.get("tenantId").cloned());
    let users: Vec<Value> = identity
        .get("userAssignedIdentities")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(id, details)| {
            let mut user = Map::new();
            user.insert("resource_id".into(), id.as_str().into());
            put(&mut user, "principal_id", details.get("principalId").cloned());
            put(&mut user, "client_id", details.get("clientId").cloned());
            Value::Object(user)
        })
        .collect();
    if !users.is_empty() {
        map.insert("user_assigned_identities".into(), users.into());
    }
    Some(Value::Object(map))
}

/// Never the password, whatever the server sends.
fn ssh(credentials: &Value) -> Option<Value> {
    let user = credentials.get("adminUserName").filter(|name| name.is_string())?;
    let mut map = Map::new();
    map.insert("admin_username".into(), user.clone());
    put(&mut map, "ssh_key_value", credentials.get("adminUserSshPublicKey").cloned());
    Some(Value::Object(map))
}

#[cfg(test)]
mod tests {
    use super::compute;
    use neap_spec::{Document, Scope, compute_request};
    use serde_json::json;

    #[test]
    fn what_is_shown_can_be_sent_back() {
        let resource = json!({"id": "/subscriptions/S/resourceGroups/R/providers/x/workspaces/W/computes/c1", "name": "c1",
            "location": "westus", "tags": {"a": "b"}, "identity": {"type": "UserAssigned", "userAssignedIdentities": {"u": {"clientId": "c"}}},
            "properties": {"computeType": "AmlCompute", "computeLocation": "westus", "provisioningState": "Succeeded", "disableLocalAuth": false,
              "properties": {"vmSize": "STANDARD_DS3_V2", "vmPriority": "LowPriority",
                "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": "PT0S"},
                "userAccountCredentials": {"adminUserName": "u", "adminUserPassword": "never shown"},
                "subnet": {"id": "/sub/net"}, "remoteLoginPortPublicAccess": "NotSpecified", "enableNodePublicIp": true,
                "allocationState": "Resizing", "currentNodeCount": 1, "targetNodeCount": 2,
                "nodeStateCounts": {"idleNodeCount": 1}, "errors": null}}});
        let entity = compute(&resource);
        assert_eq!(
            entity,
            json!({"name": "c1", "type": "amlcompute", "location": "westus", "size": "STANDARD_DS3_V2",
            "tier": "low_priority", "min_instances": 0, "max_instances": 2, "idle_time_before_scale_down": 0, "tags": {"a": "b"},
            "identity": {"type": "user_assigned", "user_assigned_identities": [{"resource_id": "u", "client_id": "c"}]},
            "ssh_settings": {"admin_username": "u"}, "network_settings": {"subnet": "/sub/net"}, "enable_node_public_ip": true,
            "current_nodes": 1, "target_nodes": 2, "allocation_state": "Resizing", "node_state_counts": {"idle_node_count": 1},
            "errors": [], "provisioning_state": "Succeeded", "id": resource["id"], "resourceGroup": "R"})
        );
        let scope = Scope { subscription_id: "S".into(), resource_group: "R".into(), workspace: "W".into() };
        let body = compute_request(&Document::from_value(entity), &scope).unwrap().body;
        for pointer in [
            "/location",
            "/tags",
            "/properties/properties/scaleSettings",
            "/properties/properties/subnet",
            "/properties/properties/vmPriority",
            "/properties/properties/vmSize",
            "/properties/disableLocalAuth",
        ] {
            assert_eq!(body.pointer(pointer), resource.pointer(pointer), "{pointer}");
        }
    }
}
