//! The parts of a job: inputs, outputs, resources, limits, distribution, services, identity; their field tables and
//! how each is written on the wire.

use crate::duration::iso_from_seconds;
use crate::fields::{Checker, Field, Kind, canonical, field, given, scalar_text, text, text_map};
use crate::scope::Scope;
use crate::suggest::nearest;
use serde_json::{Map, Value, json};

const INPUT_TYPES: &[&str] =
    &["uri_folder", "uri_file", "mltable", "mlflow_model", "custom_model", "triton_model"];
const INPUT_MODES: &[&str] = &["ro_mount", "rw_mount", "download", "direct", "eval_mount", "eval_download"];
const OUTPUT_MODES: &[&str] = &["rw_mount", "mount", "upload", "direct"];
const LITERAL_TYPES: &[&str] = &["string", "integer", "number", "boolean"];

pub(crate) const INPUT_OBJECT: &[Field] = &[
    field(
        "type",
        Kind::Word(&[
            "uri_folder",
            "uri_file",
            "mltable",
            "mlflow_model",
            "custom_model",
            "triton_model",
            "string",
            "integer",
            "number",
            "boolean",
        ]),
    ),
    field("path", Kind::Text),
    field("mode", Kind::Word(INPUT_MODES)),
    field("value", Kind::Scalar),
    field("description", Kind::Text),
    field("path_on_compute", Kind::Text),
    field("datastore", Kind::Text),
];

pub(crate) const OUTPUT_OBJECT: &[Field] = &[
    field("type", Kind::Word(INPUT_TYPES)),
    field("path", Kind::Text),
    field("mode", Kind::Word(OUTPUT_MODES)),
    field("name", Kind::Text),
    field("version", Kind::TextOrNumber),
    field("description", Kind::Text),
    field("path_on_compute", Kind::Text),
];

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
];

const MANAGED: &[Field] =
    &[field("client_id", Kind::Text), field("object_id", Kind::Text), field("msi_resource_id", Kind::Text)];

pub(crate) const IDENTITIES: &[(&str, &[Field])] =
    &[("user_identity", &[]), ("aml_token", &[]), ("managed", MANAGED), ("managed_identity", MANAGED)];

/// What an input asks for.
#[derive(Debug)]
pub(crate) enum InputPlan {
    /// An optional input that was left empty.
    Absent,
    Ready(Value),
    /// The body still lacks its `uri`: this local path is to be uploaded.
    Upload(Value, String),
}

pub(crate) fn input(value: &Value, scope: &Scope) -> Result<InputPlan, String> {
    let literal = |value: &Value| json!({"jobInputType": "literal", "value": scalar_text(value)});
    if value.is_null() {
        return Ok(InputPlan::Absent);
    }
    if !value.is_object() {
        return Ok(InputPlan::Ready(literal(value)));
    }
    if let Some(inner) = given(value, "value") {
        return Ok(InputPlan::Ready(literal(inner)));
    }
    let Some(path) = text(value, "path") else {
        return Err("needs a `path` (data) or a `value` (a literal)".to_owned());
    };
    let word = text(value, "type").unwrap_or("uri_folder");
    if canonical(word, LITERAL_TYPES).is_some() {
        return Err(format!("`type: {word}` is a literal and takes `value`, not `path`"));
    }
    let kind = canonical(word, INPUT_TYPES).unwrap_or("uri_folder");
    let mut body = Map::new();
    body.insert("jobInputType".into(), kind.into());
    let mode = text(value, "mode").and_then(|mode| canonical(mode, INPUT_MODES));
    if let Some(mode) = mode {
        body.insert("mode".into(), mode_on_the_wire(mode).into());
    }
    for (key, wire) in [("description", "description"), ("path_on_compute", "pathOnCompute")] {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), value.clone());
        }
    }
    match data_reference(path, kind, scope)? {
        Some(uri) => {
            body.insert("uri".into(), uri.into());
            Ok(InputPlan::Ready(Value::Object(body)))
        }
        None => {
            let path = path.strip_prefix("file://").or_else(|| path.strip_prefix("file:")).unwrap_or(path);
            Ok(InputPlan::Upload(Value::Object(body), path.to_owned()))
        }
    }
}

/// The URI or id of data that is not a local path.
fn data_reference(path: &str, kind: &str, scope: &Scope) -> Result<Option<String>, String> {
    if path.starts_with("file:") {
        return Ok(None);
    }
    if path.starts_with("azureml://") || path.contains("://") || path.starts_with("runs:/") {
        return Ok(Some(path.to_owned()));
    }
    let Some(name) = path.strip_prefix("azureml:") else { return Ok(None) };
    if name.starts_with('/') {
        return Ok(Some(name.to_owned()));
    }
    let collection = if kind.ends_with("_model") { "models" } else { "data" };
    match name.split_once(':') {
        Some((name, version)) if !name.is_empty() && !version.is_empty() => {
            Ok(Some(format!("{}/{collection}/{name}/versions/{version}", scope.workspace_id())))
        }
        _ => Err(format!("`{path}` names no version; write azureml:NAME:VERSION")),
    }
}

fn mode_on_the_wire(mode: &str) -> &'static str {
    match mode {
        "ro_mount" => "ReadOnlyMount",
        "download" => "Download",
        "direct" => "Direct",
        "eval_mount" => "EvalMount",
        "eval_download" => "EvalDownload",
        "upload" => "Upload",
        _ => "ReadWriteMount",
    }
}

pub(crate) fn output(value: &Value) -> Value {
    let mut body = Map::new();
    let kind = text(value, "type").and_then(|word| canonical(word, INPUT_TYPES)).unwrap_or("uri_folder");
    body.insert("jobOutputType".into(), kind.into());
    if let Some(mode) = text(value, "mode").and_then(|mode| canonical(mode, OUTPUT_MODES)) {
        body.insert("mode".into(), mode_on_the_wire(mode).into());
    }
    for (key, wire) in [
        ("path", "uri"),
        ("name", "assetName"),
        ("description", "description"),
        ("path_on_compute", "pathOnCompute"),
    ] {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), value.clone());
        }
    }
    if let Some(version) = given(value, "version") {
        body.insert("assetVersion".into(), scalar_text(version).into());
    }
    Value::Object(body)
}

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

pub(crate) fn limits(value: &Value) -> Option<Value> {
    let seconds = given(value, "timeout")?.as_u64()?;
    Some(json!({"jobLimitsType": "Command", "timeout": iso_from_seconds(seconds)}))
}

pub(crate) fn distribution(value: &Value) -> Value {
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
            _ => "JupyterLab",
        };
        let mut body = Map::new();
        body.insert("jobServiceType".into(), kind.into());
        if let Some(nodes) = given(service, "nodes") {
            let nodes = scalar_text(nodes);
            // Without a word it is the head node; "all" is the only other that the wire knows.
            if nodes.eq_ignore_ascii_case("all") {
                body.insert("nodes".into(), json!({"nodesValueType": "All"}));
            }
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
        if key == "type" || item.is_null() {
            continue;
        }
        let mut wire = String::with_capacity(key.len());
        let mut raise = false;
        for letter in key.chars() {
            if letter == '_' {
                raise = true;
            } else if std::mem::take(&mut raise) {
                wire.extend(letter.to_uppercase());
            } else {
                wire.push(letter);
            }
        }
        body.insert(wire, item.clone());
    }
}

/// Every `${{inputs.x}}` and `${{outputs.y}}` of the command must name something that is declared.
pub(crate) fn check_references(checker: &mut Checker<'_>, spec: &Value) {
    let Some(mut rest) = text(spec, "command") else { return };
    let mut seen = Vec::new();
    while let Some(start) = rest.find("${{") {
        rest = &rest[start + 3..];
        let Some(end) = rest.find("}}") else {
            checker.problem("command", "a `${{` has no closing `}}`");
            return;
        };
        let reference = rest[..end].trim();
        rest = &rest[end + 2..];
        if seen.contains(&reference) {
            continue;
        }
        seen.push(reference);
        let Some((section @ ("inputs" | "outputs"), name)) = reference.split_once('.') else { continue };
        let declared = given(spec, section).and_then(Value::as_object);
        // `inputs.model.path` is not a form of command jobs, so the whole rest is the name.
        if declared.is_some_and(|map| map.contains_key(name)) {
            continue;
        }
        let near = declared.and_then(|map| nearest(name, map.keys().map(String::as_str)));
        let mut message = format!("${{{{{reference}}}}} is not declared in `{section}`");
        if let Some(near) = near {
            message.push_str(&format!("; did you mean `{near}`?"));
        }
        checker.problem("command", message);
    }
}
