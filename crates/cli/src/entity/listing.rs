//! Rows of lists: nodes, sizes, usages, workspaces.

use super::{name_in_id, put, text};
use serde_json::{Map, Value, json};

/// A node: Neap's own row, with the addresses of ARM's.
pub fn node(own: &Value, arm: Option<&Value>) -> Value {
    let at = |key: &str| own.get(key).cloned().unwrap_or(Value::Null);
    let address = |key: &str| arm.and_then(|arm| arm.get(key)).cloned().unwrap_or(Value::Null);
    json!({
        "node_id": at("node_id"),
        "node_state": at("state"),
        "since": at("since"),
        "reason": at("reason"),
        "current_job_name": at("job"),
        "jobs": at("jobs"),
        "job_names": names(own),
        "private_ip_address": address("privateIpAddress"),
        "public_ip_address": address("publicIpAddress"),
        "port": address("port"),
        "nominal": at("nominal"),
        "actual": at("actual"),
        "gpus": at("gpus"),
        "tier": at("tier"),
        "cordoned": at("cordoned"),
        "cordon_reason": at("cordon_reason"),
    })
}

/// Of all that share a node, for a table.
fn names(node: &Value) -> String {
    let jobs = node["jobs"].as_array().into_iter().flatten();
    jobs.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

pub fn vm_size(size: &Value) -> Value {
    let at = |key: &str| size.get(key).cloned().unwrap_or(Value::Null);
    json!({
        "name": at("name"),
        "family": at("family"),
        "v_cp_us": at("vCPUs"),
        "gpus": at("gpus"),
        "memory_gb": at("memoryGB"),
        "os_vhd_size_mb": at("osVhdSizeMB"),
        "max_resource_volume_mb": at("maxResourceVolumeMB"),
        "low_priority_capable": at("lowPriorityCapable"),
        "premium_io": at("premiumIO"),
        "supported_compute_types": at("supportedComputeTypes"),
        "estimated_vm_prices": size.get("estimatedVMPrices").map_or(Value::Null, super::snake_keys),
        "usd_per_hour": price(size, "Standard"),
        "low_priority_usd_per_hour": price(size, "LowPriority"),
        "retired": at("neapRetired"),
    })
}

/// What a node costs in this tier, if it can be had.
fn price(size: &Value, tier: &str) -> Value {
    let prices = size.pointer("/estimatedVMPrices/values").and_then(Value::as_array).into_iter().flatten();
    let mut of_tier = prices.filter(|price| price["vmTier"] == tier);
    of_tier.next().map_or(Value::Null, |price| price["retailPrice"].clone())
}

pub fn usage(usage: &Value) -> Value {
    let at = |key: &str| usage.get(key).cloned().unwrap_or(Value::Null);
    json!({
        "name": usage.get("name").map_or(Value::Null, super::snake_keys),
        "current_value": at("currentValue"),
        "limit": at("limit"),
        "unit": text(usage, "/unit").map(str::to_lowercase),
        "aml_workspace_location": at("amlWorkspaceLocation"),
        "type": at("type"),
        "id": at("id"),
    })
}

pub fn workspace(resource: &Value) -> Value {
    let at = |pointer: &str| resource.pointer(pointer).cloned();
    let mut map = Map::new();
    put(&mut map, "name", at("/name"));
    put(&mut map, "location", at("/location"));
    put(
        &mut map,
        "resource_group",
        text(resource, "/id").and_then(|id| name_in_id(id, "resourceGroups")).map(Value::from),
    );
    put(&mut map, "display_name", at("/properties/friendlyName"));
    put(&mut map, "description", at("/properties/description"));
    put(&mut map, "tags", at("/tags").filter(|tags| tags.as_object().is_some_and(|tags| !tags.is_empty())));
    put(&mut map, "provisioning_state", at("/properties/provisioningState"));
    put(&mut map, "discovery_url", at("/properties/discoveryUrl"));
    put(&mut map, "mlflow_tracking_uri", at("/properties/mlFlowTrackingUri"));
    put(&mut map, "id", at("/id"));
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_price_of_each_tier_that_it_has() {
        let size = json!({"name": "S", "estimatedVMPrices": {"values": [
            {"retailPrice": 0.0458, "osType": "Linux", "vmTier": "LowPriority"}]}});
        let row = vm_size(&size);
        assert_eq!((&row["usd_per_hour"], &row["low_priority_usd_per_hour"]), (&Value::Null, &json!(0.0458)));
    }
}
