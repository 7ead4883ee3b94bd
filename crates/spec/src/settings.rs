//! The settings of a job or step: resources, limits, distribution, queue, services, identity; their field tables and
//! how each is written on the wire.

use crate::duration::iso_from_seconds;
use crate::fields::{Field, Kind, canonical, field, given, scalar_text, text, text_map};
use crate::wire::camel;
use serde_json::{Map, Value, json};

pub(crate) const RESOURCES: &[Field] = &[
    field("instance_count", Kind::Whole(1)),
    field("instance_type", Kind::ListOr(&Kind::Text, &Kind::Text)),
    field("max_instance_count", Kind::Whole(1)),
    field("shm_size", Kind::Text),
    field("docker_args", Kind::ListOr(&Kind::Text, &Kind::Text)),
    field("locations", Kind::List(&Kind::Text)),
    field("properties", Kind::Entries(&Kind::Anything)),
];

const PROCESSES: &[Field] = &[field("process_count_per_instance", Kind::Whole(1))];

pub(crate) const DISTRIBUTIONS: &[(&str, &[Field])] = &[
    ("pytorch", PROCESSES),
    ("mpi", PROCESSES),
    ("tensorflow", &[field("worker_count", Kind::Whole(1)), field("parameter_server_count", Kind::Whole(0))]),
    (
        "ray",
        &[
            field("address", Kind::Text),
            field("port", Kind::Whole(1)),
            field("dashboard_port", Kind::Whole(1)),
            field("include_dashboard", Kind::Flag),
            field("head_node_additional_args", Kind::Text),
            field("worker_node_additional_args", Kind::Text),
        ],
    ),
];

const JOB_TIERS: &[&str] = &["spot", "basic", "standard", "premium", "null"];
const PRIORITIES: &[&str] = &["low", "medium", "high"];

pub(crate) const QUEUE_SETTINGS: &[Field] =
    &[field("job_tier", Kind::Word(JOB_TIERS)), field("priority", Kind::Word(PRIORITIES))];

const SERVICE_ENDS: &[Field] = &[
    field("nodes", Kind::TextOrNumber),
    field("port", Kind::Whole(1)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("endpoint", Kind::ReadOnly),
    field("status", Kind::ReadOnly),
];

pub(crate) const SERVICES: &[(&str, &[Field])] = &[
    (
        "ssh",
        &[
            field("ssh_public_keys", Kind::Text),
            field("nodes", Kind::TextOrNumber),
            field("port", Kind::Whole(1)),
            field("properties", Kind::Entries(&Kind::Scalar)),
        ],
    ),
    (
        "tensor_board",
        &[
            field("log_dir", Kind::Text),
            field("nodes", Kind::TextOrNumber),
            field("port", Kind::Whole(1)),
            field("properties", Kind::Entries(&Kind::Scalar)),
        ],
    ),
    ("vs_code", SERVICE_ENDS),
    ("jupyter_lab", SERVICE_ENDS),
    ("custom", SERVICE_ENDS),
    // What the server lists of itself; accepted so that a job can be submitted again as it was shown.
    ("studio", SERVICE_ENDS),
    ("tracking", SERVICE_ENDS),
];

/// A key of the YAML, its name in a job's body, and how it is written there.
type Setting = (&'static str, &'static str, fn(&Value) -> Value);

/// What every kind of job may have and is written the same way.
pub(crate) const OF_JOBS: &[Setting] = &[
    ("queue_settings", "queueSettings", queue_settings),
    ("services", "services", services),
    ("identity", "identity", identity),
];

pub(crate) const LIMITS: &[Field] = &[field("timeout", Kind::Whole(1))];

const MANAGED: &[Field] =
    &[field("client_id", Kind::Text), field("object_id", Kind::Text), field("msi_resource_id", Kind::Text)];

pub(crate) const IDENTITIES: &[(&str, &[Field])] =
    &[("user_identity", &[]), ("aml_token", &[]), ("managed", MANAGED), ("managed_identity", MANAGED)];

pub(crate) fn resources(value: &Value) -> Value {
    let joined = |value: &Value| match value {
        Value::Array(list) => list.iter().map(scalar_text).collect::<Vec<_>>().join(" "),
        other => scalar_text(other),
    };
    let mut body = Map::new();
    for (key, wire) in [
        ("instance_count", "instanceCount"),
        ("max_instance_count", "maxInstanceCount"),
        ("shm_size", "shmSize"),
        ("locations", "locations"),
    ] {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), value.clone());
        }
    }
    for (key, wire) in [("instance_type", "instanceType"), ("docker_args", "dockerArgs")] {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), joined(value).into());
        }
    }
    body.insert("properties".into(), given(value, "properties").cloned().unwrap_or_else(|| json!({})));
    Value::Object(body)
}

/// Seconds as the wire has them; what is bound to an input is written as it is.
pub(crate) fn duration(value: &Value) -> Value {
    value.as_u64().map_or_else(|| value.clone(), |seconds| iso_from_seconds(seconds).into())
}

pub(crate) fn limits(value: &Value) -> Option<Value> {
    let timeout = duration(given(value, "timeout")?);
    Some(json!({"jobLimitsType": "Command", "timeout": timeout}))
}

pub(crate) fn distribution(value: &Value) -> Value {
    if !value.is_object() {
        return value.clone();
    }
    let kind = match text(value, "type").map(str::to_lowercase).as_deref() {
        Some("mpi") => "Mpi",
        Some("tensorflow") => "TensorFlow",
        Some("ray") => "Ray",
        _ => "PyTorch",
    };
    let mut body = Map::new();
    body.insert("distributionType".into(), kind.into());
    copy_in_camel_case(value, &mut body);
    Value::Object(body)
}

pub(crate) fn queue_settings(value: &Value) -> Value {
    let mut body = Map::new();
    if let Some(tier) = text(value, "job_tier").and_then(|tier| canonical(tier, JOB_TIERS)) {
        let mut letters = tier.chars();
        let wire: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        body.insert("jobTier".into(), wire.into());
    }
    if let Some(priority) = text(value, "priority").and_then(|word| canonical(word, PRIORITIES)) {
        let rank = match priority {
            "low" => 1,
            "medium" => 2,
            _ => 3,
        };
        body.insert("priority".into(), rank.into());
    }
    Value::Object(body)
}

pub(crate) fn services(value: &Value) -> Value {
    let mut all = Map::new();
    for (name, service) in value.as_object().into_iter().flatten() {
        let word = text(service, "type").unwrap_or_default().replace(['_', '-'], "").to_lowercase();
        let kind = match word.as_str() {
            "ssh" => "SSH",
            "tensorboard" => "TensorBoard",
            "vscode" => "VSCode",
            "custom" => "Custom",
            "studio" | "tracking" => continue,
            _ => "JupyterLab",
        };
        let mut body = Map::new();
        body.insert("jobServiceType".into(), kind.into());
        if let Some(nodes) = given(service, "nodes") {
            let nodes = scalar_text(nodes);
            // Without a word it is the head node; "all" is the only other that Azure's wire knows.
            let nodes = match nodes.parse::<u32>() {
                Ok(index) => json!({"nodesValueType": "Custom", "nodeIndex": index}),
                Err(_) if nodes.eq_ignore_ascii_case("all") => json!({"nodesValueType": "All"}),
                Err(_) => json!({"nodesValueType": nodes}),
            };
            body.insert("nodes".into(), nodes);
        }
        if let Some(port) = given(service, "port") {
            body.insert("port".into(), port.clone());
        }
        let mut properties = text_map(given(service, "properties"));
        for (key, wire) in [("ssh_public_keys", "sshPublicKeys"), ("log_dir", "logDir")] {
            if let Some(value) = given(service, key) {
                properties[wire] = value.clone();
            }
        }
        if properties.as_object().is_some_and(|map| !map.is_empty()) {
            body.insert("properties".into(), properties);
        }
        all.insert(name.clone(), Value::Object(body));
    }
    Value::Object(all)
}

pub(crate) fn identity(value: &Value) -> Value {
    let word = text(value, "type").unwrap_or_default().replace(['_', '-'], "").to_lowercase();
    let kind = match word.as_str() {
        "useridentity" => "UserIdentity",
        "amltoken" => "AMLToken",
        _ => "Managed",
    };
    let mut body = Map::new();
    body.insert("identityType".into(), kind.into());
    for (key, wire) in
        [("client_id", "clientId"), ("object_id", "objectId"), ("msi_resource_id", "resourceId")]
    {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), value.clone());
        }
    }
    Value::Object(body)
}

fn copy_in_camel_case(value: &Value, body: &mut Map<String, Value>) {
    for (key, item) in value.as_object().into_iter().flatten() {
        if key != "type" && !item.is_null() {
            body.insert(camel(key), item.clone());
        }
    }
}
