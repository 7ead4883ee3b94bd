//! Inputs and outputs of jobs and steps: their field tables, and how each is written on the wire.

use crate::fields::{Checker, Field, Kind, canonical, field, given, join, scalar_text, text};
use crate::plan::Collection;
use crate::planner::{Planner, Reference};
use serde_json::{Map, Value, json};

pub(crate) const DATA_TYPES: &[&str] =
    &["uri_folder", "uri_file", "mltable", "mlflow_model", "custom_model", "triton_model"];
const INPUT_MODES: &[&str] = &["ro_mount", "rw_mount", "download", "direct", "eval_mount", "eval_download"];
const OUTPUT_MODES: &[&str] = &["rw_mount", "mount", "upload", "direct"];
const LITERAL_TYPES: &[&str] = &["string", "integer", "number", "boolean"];

const INPUT_OBJECT: &[Field] = &[
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
    field("default", Kind::Scalar),
    field("optional", Kind::Flag),
    field("description", Kind::Text),
    field("path_on_compute", Kind::Text),
    field("datastore", Kind::Text),
];

const OUTPUT_OBJECT: &[Field] = &[
    field(
        "type",
        Kind::Word(&["uri_folder", "uri_file", "mltable", "mlflow_model", "custom_model", "triton_model"]),
    ),
    field("path", Kind::Text),
    field("mode", Kind::Word(OUTPUT_MODES)),
    field("name", Kind::Text),
    field("version", Kind::TextOrNumber),
    field("description", Kind::Text),
    field("path_on_compute", Kind::Text),
];

pub(crate) const INPUTS: Kind = Kind::Entries(&Kind::ObjectOr(INPUT_OBJECT, &Kind::Scalar));
pub(crate) const OUTPUTS: Kind = Kind::Entries(&Kind::ObjectOr(OUTPUT_OBJECT, &Kind::Text));

/// Whether a value is one expression that names something of the pipeline around a step.
pub(crate) fn binding(value: &Value) -> Option<&str> {
    let bound = value.as_str().or_else(|| text(value, "path"))?.trim();
    (bound.starts_with("${{") && bound.ends_with("}}")).then_some(bound)
}

/// All inputs of a job, in camelCase.
pub(crate) fn of_job(planner: &mut Planner<'_>, checker: &mut Checker<'_>, spec: &Value) -> Value {
    let mut all = Map::new();
    for (name, value) in given(spec, "inputs").and_then(Value::as_object).into_iter().flatten() {
        if let Some(body) = input(planner, checker, &join("inputs", name), value) {
            all.insert(name.clone(), body);
        }
    }
    Value::Object(all)
}

/// One input; `None` if it was left empty, or is wrong.
pub(crate) fn input(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    value: &Value,
) -> Option<Value> {
    let literal = |value: &Value| json!({"jobInputType": "literal", "value": scalar_text(value)});
    if value.is_null() || value.is_array() {
        return None;
    }
    if !value.is_object() {
        return Some(literal(value));
    }
    if let Some(inner) = given(value, "value") {
        return Some(literal(inner));
    }
    let mode = text(value, "mode").and_then(|mode| canonical(mode, INPUT_MODES));
    if let Some(bound) = binding(value) {
        let mut body = literal(&bound.into());
        if let Some(mode) = mode {
            body["mode"] = mode_on_the_wire(mode).into();
        }
        return Some(body);
    }
    let word = text(value, "type").unwrap_or("uri_folder");
    let literal_type = canonical(word, LITERAL_TYPES);
    let Some(path) = text(value, "path") else {
        if let Some(default) = given(value, "default") {
            return Some(literal(default));
        }
        if given(value, "optional").and_then(Value::as_bool) != Some(true) {
            checker.problem(place, "needs a `path` (data) or a `value` (a literal)");
        }
        return None;
    };
    if literal_type.is_some() {
        checker.problem(place, format!("`type: {word}` is a literal and takes `value`, not `path`"));
        return None;
    }
    let kind = canonical(word, DATA_TYPES).unwrap_or("uri_folder");
    let mut body = Map::new();
    body.insert("jobInputType".into(), kind.into());
    if let Some(mode) = mode {
        body.insert("mode".into(), mode_on_the_wire(mode).into());
    }
    for (key, wire) in [("description", "description"), ("path_on_compute", "pathOnCompute")] {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), value.clone());
        }
    }
    let uri = data_uri(planner, checker, &join(place, "path"), path, kind)?;
    body.insert("uri".into(), uri.into());
    Some(Value::Object(body))
}

/// The URI or id of data: as it is, looked up, or uploaded first.
pub(crate) fn data_uri(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    path: &str,
    kind: &str,
) -> Option<String> {
    if path.starts_with("file:") {
        return planner.data(checker, place, path);
    }
    if path.contains("://") || path.starts_with("runs:/") {
        return Some(path.to_owned());
    }
    let collection = if kind.ends_with("_model") { Collection::Models } else { Collection::Data };
    match planner.reference(checker, place, path, collection)? {
        Reference::Given(id) => Some(id),
        Reference::Latest(name) => Some(planner.latest(collection, &name)),
        Reference::Other => planner.data(checker, place, path),
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

/// All outputs of a job, in camelCase.
pub(crate) fn outputs_of_job(checker: &mut Checker<'_>, spec: &Value) -> Value {
    let mut all = Map::new();
    for (name, value) in given(spec, "outputs").and_then(Value::as_object).into_iter().flatten() {
        if value.is_string() {
            let place = join("outputs", name);
            checker
                .problem(&place, "an output of a job is a mapping, as in {type: uri_folder, mode: upload}");
        }
        all.insert(name.clone(), output(value));
    }
    Value::Object(all)
}

pub(crate) fn output(value: &Value) -> Value {
    let mut body = Map::new();
    body.insert("jobOutputType".into(), output_type(value).into());
    if let Some(mode) = output_mode(value) {
        body.insert("mode".into(), mode.into());
    }
    for (key, wire) in [("path", "uri"), ("name", "assetName"), ("description", "description")] {
        if let Some(value) = given(value, key) {
            body.insert(wire.into(), value.clone());
        }
    }
    if let Some(version) = given(value, "version") {
        body.insert("assetVersion".into(), scalar_text(version).into());
    }
    if let Some(path) = given(value, "path_on_compute") {
        body.insert("pathOnCompute".into(), path.clone());
    }
    Value::Object(body)
}

/// An output of a step: bound to one of the pipeline's, or its own.
pub(crate) fn step_output(value: &Value, kind: &str) -> Value {
    if let Some(bound) = binding(value) {
        let mut body = json!({"value": bound, "type": "literal"});
        if let Some(mode) = output_mode(value) {
            body["mode"] = mode.into();
        }
        for key in ["name", "version"] {
            if let Some(item) = given(value, key) {
                body[key] = scalar_text(item).into();
            }
        }
        return body;
    }
    let mut body = crate::wire::snake_keys(&output(value), 1);
    if let Value::Object(map) = &mut body {
        map.insert("job_output_type".into(), kind.into());
        for (wire, key) in [("asset_name", "name"), ("asset_version", "version")] {
            if let Some(item) = map.shift_remove(wire) {
                map.insert(key.into(), item);
            }
        }
    }
    body
}

pub(crate) fn output_type(value: &Value) -> &'static str {
    text(value, "type").and_then(|word| canonical(word, DATA_TYPES)).unwrap_or("uri_folder")
}

/// The mode as files write it, in its one spelling.
pub(crate) fn written_output_mode(value: &Value) -> Option<&'static str> {
    text(value, "mode").and_then(|mode| canonical(mode, OUTPUT_MODES))
}

fn output_mode(value: &Value) -> Option<&'static str> {
    written_output_mode(value).map(mode_on_the_wire)
}
