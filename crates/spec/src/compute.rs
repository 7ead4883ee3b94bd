//! `type: amlcompute` files to the body of a compute PUT: the one that the Azure SDK sends.
//!
//! Only shape is checked here. Sizes, locations, name rules and bounds between fields are the server's to refuse, all
//! in one answer, so that every client hears the same words.

use crate::document::Document;
use crate::duration::iso_from_seconds;
use crate::error::Error;
use crate::fields::{Checker, Field, Kind, canonical, field, given, required, text, text_map};
use crate::scope::Scope;
use serde_json::{Map, Value, json};
use std::path::Path;

/// A compute PUT.
#[derive(Debug, Clone, PartialEq)]
pub struct ComputeRequest {
    pub name: String,
    pub body: Value,
}

const TIERS: &[&str] = &["dedicated", "low_priority"];
const IDENTITIES: &[&str] = &["system_assigned", "user_assigned", "system_assigned,user_assigned", "none"];

const FIELDS: &[Field] = &[
    required("name", Kind::Name),
    required("type", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("location", Kind::Text),
    field("size", Kind::Text),
    field("tier", Kind::Word(TIERS)),
    field("min_instances", Kind::Whole(i64::MIN)),
    field("max_instances", Kind::Whole(i64::MIN)),
    // Neap's own: of a low-priority cluster, how many nodes are dedicated.
    field("dedicated_instances", Kind::Whole(i64::MIN)),
    field("nodes_by_tier", Kind::ReadOnly),
    field("idle_time_before_scale_down", Kind::Whole(0)),
    field("ssh_public_access_enabled", Kind::Flag),
    field("ssh_settings", Kind::Object(SSH)),
    field("network_settings", Kind::Object(NETWORK)),
    field("identity", Kind::Object(IDENTITY)),
    field("enable_node_public_ip", Kind::Flag),
    field("resource_id", Kind::Text),
    field("id", Kind::ReadOnly),
    field("created_on", Kind::ReadOnly),
    field("provisioning_state", Kind::ReadOnly),
    field("provisioning_errors", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
    field("current_nodes", Kind::ReadOnly),
    field("target_nodes", Kind::ReadOnly),
    field("allocation_state", Kind::ReadOnly),
    field("node_state_counts", Kind::ReadOnly),
    field("errors", Kind::ReadOnly),
    field("scale_in_force", Kind::ReadOnly),
    field("rolling", Kind::ReadOnly),
];

const SSH: &[Field] = &[
    required("admin_username", Kind::Text),
    field("admin_password", Kind::Text),
    field("ssh_key_value", Kind::Text),
];

const NETWORK: &[Field] = &[
    field("vnet_name", Kind::Text),
    field("subnet", Kind::Text),
    field("public_ip_address", Kind::ReadOnly),
    field("private_ip_address", Kind::ReadOnly),
];

const IDENTITY: &[Field] = &[
    field("type", Kind::Word(IDENTITIES)),
    field("user_assigned_identities", Kind::List(&Kind::ObjectOr(USER_IDENTITY, &Kind::Text))),
    field("principal_id", Kind::ReadOnly),
    field("tenant_id", Kind::ReadOnly),
];

const USER_IDENTITY: &[Field] = &[
    required("resource_id", Kind::Text),
    field("principal_id", Kind::ReadOnly),
    field("client_id", Kind::ReadOnly),
];

/// Checks a compute specification and builds its PUT.
///
/// # Errors
/// [`Error::Problems`] with every problem; [`Error::NotSupported`] for a compute type that is not a cluster.
pub fn compute_request(document: &Document, scope: &Scope) -> Result<ComputeRequest, Error> {
    let spec = &document.value;
    if let Some(kind) = text(spec, "type") {
        refuse_other_types(kind)?;
    }
    let mut checker = Checker::new(document, Path::new(""));
    checker.check_document(FIELDS);
    check_identity(&mut checker, spec);
    check_network(&mut checker, spec);
    if !checker.problems.is_empty() {
        return Err(Error::Problems(checker.problems));
    }
    Ok(ComputeRequest { name: text(spec, "name").unwrap_or_default().to_owned(), body: body(spec, scope) })
}

fn refuse_other_types(kind: &str) -> Result<(), Error> {
    let instead = match kind.to_lowercase().as_str() {
        "amlcompute" => return Ok(()),
        "computeinstance" => {
            "a compute instance is a notebook machine, which Neap does not offer; declare a cluster \
             (type: amlcompute) with max_instances: 1 instead"
        }
        "virtualmachine" | "virtual_machine" => {
            "attaching a virtual machine is not offered; declare a cluster (type: amlcompute), whose nodes Neap \
             makes itself"
        }
        "kubernetes" | "aks" => {
            "attaching a Kubernetes cluster as a compute is not offered; declare a cluster (type: amlcompute)"
        }
        "synapsespark" | "synapse_spark" => {
            "Spark pools are not offered; declare a cluster (type: amlcompute)"
        }
        _ => {
            return Err(Error::NotSupported(format!(
                "`{kind}` is not a compute type that Neap knows; use `type: amlcompute`"
            )));
        }
    };
    Err(Error::NotSupported(format!("type {kind}: {instead}")))
}

fn check_identity(checker: &mut Checker<'_>, spec: &Value) {
    let Some(identity) = given(spec, "identity") else { return };
    let users = given(identity, "user_assigned_identities").and_then(Value::as_array).map_or(0, Vec::len);
    match text(identity, "type").and_then(|word| canonical(word, IDENTITIES)) {
        Some("user_assigned") if users == 0 => {
            checker.problem(
                "identity.user_assigned_identities",
                "a user_assigned identity needs at least one resource_id",
            );
        }
        Some("system_assigned" | "none") if users > 0 => {
            checker.problem(
                "identity.user_assigned_identities",
                "these belong to `type: user_assigned`; a cluster has one system-assigned identity or \
                 user-assigned ones",
            );
        }
        _ => {}
    }
}

fn check_network(checker: &mut Checker<'_>, spec: &Value) {
    let Some(network) = given(spec, "network_settings") else { return };
    match (text(network, "vnet_name"), text(network, "subnet")) {
        (Some(_), None) => {
            checker.problem("network_settings.subnet", "required when vnet_name is given");
        }
        (None, Some(subnet)) if !subnet.starts_with('/') => {
            checker.problem("network_settings.vnet_name", "required, unless subnet is a full resource id");
        }
        _ => {}
    }
}

fn body(spec: &Value, scope: &Scope) -> Value {
    let whole = |key: &str, default: u64| given(spec, key).cloned().unwrap_or_else(|| default.into());
    let idle = given(spec, "idle_time_before_scale_down").and_then(Value::as_u64).unwrap_or(120);
    let mut inner = Map::new();
    inner.insert("vmSize".into(), text(spec, "size").unwrap_or("STANDARD_DS3_V2").into());
    if let Some(tier) = text(spec, "tier").and_then(|tier| canonical(tier, TIERS)) {
        inner.insert(
            "vmPriority".into(),
            if tier == "low_priority" { "LowPriority" } else { "Dedicated" }.into(),
        );
    }
    inner.insert(
        "scaleSettings".into(),
        json!({
            "maxNodeCount": whole("max_instances", 4),
            "minNodeCount": whole("min_instances", 0),
            "nodeIdleTimeBeforeScaleDown": iso_from_seconds(idle),
        }),
    );
    if let Some(dedicated) = given(spec, "dedicated_instances") {
        inner.insert("neapDedicatedNodeCount".into(), dedicated.clone());
    }
    if let Some(id) = subnet_id(spec, scope) {
        inner.insert("subnet".into(), json!({ "id": id }));
    }
    if let Some(ssh) = given(spec, "ssh_settings") {
        let mut credentials = Map::new();
        for (key, wire) in [
            ("admin_username", "adminUserName"),
            ("admin_password", "adminUserPassword"),
            ("ssh_key_value", "adminUserSshPublicKey"),
        ] {
            if let Some(value) = given(ssh, key) {
                credentials.insert(wire.into(), value.clone());
            }
        }
        inner.insert("userAccountCredentials".into(), Value::Object(credentials));
    }
    let ssh_access = match given(spec, "ssh_public_access_enabled").and_then(Value::as_bool) {
        Some(true) => "Enabled",
        Some(false) => "Disabled",
        None => "NotSpecified",
    };
    inner.insert("remoteLoginPortPublicAccess".into(), ssh_access.into());
    let public_ip = given(spec, "enable_node_public_ip").and_then(Value::as_bool).unwrap_or(true);
    inner.insert("enableNodePublicIp".into(), public_ip.into());
    inner.insert("osType".into(), "Linux".into());

    let mut properties = Map::new();
    properties.insert("computeType".into(), "AmlCompute".into());
    if let Some(description) = given(spec, "description") {
        properties.insert("description".into(), description.clone());
    }
    properties.insert("disableLocalAuth".into(), given(spec, "ssh_settings").is_none().into());
    properties.insert("properties".into(), Value::Object(inner));

    let mut body = Map::new();
    if let Some(location) = given(spec, "location") {
        body.insert("location".into(), location.clone());
    }
    if given(spec, "tags").is_some() {
        body.insert("tags".into(), text_map(given(spec, "tags")));
    }
    if let Some(identity) = given(spec, "identity").and_then(identity_body) {
        body.insert("identity".into(), identity);
    }
    body.insert("properties".into(), Value::Object(properties));
    Value::Object(body)
}

fn subnet_id(spec: &Value, scope: &Scope) -> Option<String> {
    let network = given(spec, "network_settings")?;
    let subnet = text(network, "subnet")?;
    if subnet.starts_with('/') {
        return Some(subnet.to_owned());
    }
    text(network, "vnet_name").map(|vnet| scope.subnet_id(vnet, subnet))
}

fn identity_body(identity: &Value) -> Option<Value> {
    let mut users = Map::new();
    for user in given(identity, "user_assigned_identities").and_then(Value::as_array).into_iter().flatten() {
        if let Some(id) = text(user, "resource_id").or_else(|| user.as_str()) {
            users.insert(id.to_owned(), json!({}));
        }
    }
    let word = text(identity, "type").and_then(|word| canonical(word, IDENTITIES));
    let wire = match word {
        Some("system_assigned") => "SystemAssigned",
        Some("user_assigned") => "UserAssigned",
        Some("none") => "None",
        Some(_) => "SystemAssigned,UserAssigned",
        None if !users.is_empty() => "UserAssigned",
        None => return None,
    };
    let mut body = Map::new();
    body.insert("type".into(), wire.into());
    if !users.is_empty() {
        body.insert("userAssignedIdentities".into(), Value::Object(users));
    }
    Some(Value::Object(body))
}
