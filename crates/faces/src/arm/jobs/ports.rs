//! The inputs and outputs of a job: from its body to documents, with every problem at once.

use std::collections::BTreeMap;

use neap_core::documents::{Delivery, InputDocument, OutputDetails, OutputDocument, Registration};
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::{Value, json};

use super::data::{self, Asked, Shape};
use super::references::Shelf;
use crate::arm::assets;
use crate::arm::errors::bad;
use crate::fields::Fields;
use crate::workspace_files;

/// A type of data, as Azure ML words it.
fn shape_of(kind: &str) -> Option<Shape> {
    Some(match kind {
        "uri_file" => Shape::File,
        "uri_folder" | "mltable" => Shape::Folder,
        "custom_model" | "mlflow_model" | "triton_model" => Shape::Any,
        _ => return None,
    })
}

fn is_model(kind: &str) -> bool {
    kind.ends_with("_model")
}

/// Names become parts of paths and of the names of variables.
fn check_name(name: &str, what: &str, place: &str, problems: &mut Vec<Problem>) -> bool {
    let good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !good {
        problems
            .push(bad(format!("'{name}' cannot name an {what}: letters, digits, '_' and '-' can."), place));
    }
    good
}

/// A literal as a Python program would print it: that is what clients make of them.
pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) if number.is_f64() => {
            let text = format!("{:?}", number.as_f64().unwrap_or_default());
            match text.split_once('e') {
                Some((digits, exponent)) => {
                    let (sign, exponent) = match exponent.strip_prefix('-') {
                        Some(exponent) => ('-', exponent),
                        None => ('+', exponent),
                    };
                    format!("{digits}e{sign}{exponent:0>2}")
                }
                None => text,
            }
        }
        other => other.to_string(),
    }
}

enum Mode {
    Files(Delivery),
    Direct,
}

/// The wire's words and those of YAML.
fn mode_of(text: &str) -> Option<Mode> {
    Some(match text.to_ascii_lowercase().replace('_', "").as_str() {
        "readonlymount" | "romount" => Mode::Files(Delivery::ReadOnly),
        "readwritemount" | "rwmount" | "mount" => Mode::Files(Delivery::ReadWrite),
        "download" | "upload" => Mode::Files(Delivery::Copy),
        "evalmount" | "evaldownload" => Mode::Files(Delivery::Evaluated),
        "direct" => Mode::Direct,
        _ => return None,
    })
}

pub(super) fn read_inputs(
    fields: &Fields<'_>,
    workspace: &Workspace,
    shelf: &dyn Shelf,
    inputs: &mut BTreeMap<String, InputDocument>,
    problems: &mut Vec<Problem>,
) -> Result<(), Refusal> {
    for (name, value) in fields.object("inputs", problems).entries() {
        let place = format!("properties.inputs.{name}");
        if !check_name(name, "input", &place, problems) {
            continue;
        }
        let input = Fields::of(Some(value), &place, problems);
        let kind = input.text("jobInputType", problems).unwrap_or("literal").to_ascii_lowercase();
        if kind == "literal" {
            match input.value("value") {
                Some(value) => {
                    inputs.insert(name.clone(), InputDocument::Literal { value: literal(value) });
                }
                None => problems.push(bad(format!("The input '{name}' has no 'value'."), &place)),
            }
            continue;
        }
        let Some(shape) = shape_of(&kind) else {
            problems.push(bad(format!("The input '{name}' has the unknown type '{kind}'."), &place));
            continue;
        };
        let mode = input.text("mode", problems).map_or(Some(Mode::Files(Delivery::ReadOnly)), mode_of);
        let wrong = match &mode {
            None => Some(
                "is not known: ro_mount, rw_mount, download and direct are, and for mltable eval_mount and eval_download",
            ),
            Some(Mode::Files(Delivery::Evaluated)) if kind != "mltable" => {
                Some("is for the type mltable only")
            }
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            problems.push(bad(format!("The mode of the input '{name}' {wrong}."), &input.place("mode")));
            continue;
        }
        let Some(uri) = input.text("uri", problems).filter(|uri| !uri.is_empty()) else {
            problems.push(bad(format!("The input '{name}' has no 'uri'."), &place));
            continue;
        };
        let place = input.place("uri");
        let asked = Asked { uri, shape, model: is_model(&kind), place: &place };
        match (data::input(shelf, workspace, asked)?, mode) {
            (Err(problem), _) => problems.push(problem),
            (Ok(_), None) => {}
            (Ok(found), Some(Mode::Direct)) => {
                inputs.insert(name.clone(), InputDocument::Literal { value: found.uri });
            }
            (Ok(found), Some(Mode::Files(how))) => {
                let at = found.at;
                let document = match found.shape {
                    Shape::File => InputDocument::File { at, how, query: found.query },
                    Shape::Folder => InputDocument::Folder { at, how },
                    Shape::Any => InputDocument::Any { at, how },
                };
                inputs.insert(name.clone(), document);
            }
        }
    }
    Ok(())
}

/// Where outputs lie whose places are known: those of a pipeline, which its steps make.
pub(super) fn places_of(
    job: &str,
    outputs: &Value,
    workspace: &Workspace,
    shelf: &dyn Shelf,
    places: &mut BTreeMap<String, OutputDocument>,
    problems: &mut Vec<Problem>,
) -> Result<(), Refusal> {
    let body = json!({"outputs": outputs});
    let fields = Fields::of(Some(&body), "properties", problems);
    read_outputs(job, &fields, workspace, shelf, places, problems)
}

pub(super) fn read_outputs(
    job: &str,
    fields: &Fields<'_>,
    workspace: &Workspace,
    shelf: &dyn Shelf,
    outputs: &mut BTreeMap<String, OutputDocument>,
    problems: &mut Vec<Problem>,
) -> Result<(), Refusal> {
    for (name, value) in fields.object("outputs", problems).entries() {
        let place = format!("properties.outputs.{name}");
        if !check_name(name, "output", &place, problems) {
            continue;
        }
        let output = Fields::of(Some(value), &place, problems);
        let kind = output.text("jobOutputType", problems).unwrap_or("uri_folder").to_ascii_lowercase();
        // A model that a job makes is a folder of files.
        let shape = match shape_of(&kind) {
            Some(Shape::File) => Shape::File,
            Some(Shape::Folder | Shape::Any) => Shape::Folder,
            None => {
                problems.push(bad(format!("The output '{name}' has the unknown type '{kind}'."), &place));
                continue;
            }
        };
        let mode = output.text("mode", problems).map_or(Some(Mode::Files(Delivery::ReadWrite)), mode_of);
        let mode = mode
            .filter(|mode| matches!(mode, Mode::Direct | Mode::Files(Delivery::ReadWrite | Delivery::Copy)));
        if mode.is_none() {
            let message =
                format!("The mode of the output '{name}' is not one of rw_mount, upload and direct.");
            problems.push(bad(message, &output.place("mode")));
        }
        let mut more = OutputDetails {
            asset_type: (!kind.starts_with("uri_")).then(|| kind.clone()),
            own_place: true,
            ..OutputDetails::default()
        };
        let default = || {
            let folder = format!("azureml/{job}/{name}/");
            let path = if shape == Shape::File { folder + name } else { folder };
            workspace_files::default_output(workspace.id, path)
        };
        let at = match output.text("uri", problems).filter(|uri| !uri.is_empty()) {
            Some(uri) => {
                let place = output.place("uri");
                let uri = fill(uri, job, name);
                let asked = Asked { uri: &uri, shape, model: false, place: &place };
                match data::output(shelf, workspace, asked)? {
                    Ok(found) => {
                        // Steps of a pipeline are told their default places in so many words.
                        more.own_place = found.at == default();
                        found.at
                    }
                    Err(problem) => {
                        problems.push(problem);
                        continue;
                    }
                }
            }
            // Every job's artifacts, under a name by which another step can ask for them.
            None if name == data::ARTIFACTS && shape == Shape::Folder => data::artifacts(workspace, job),
            None => default(),
        };
        match mode {
            Some(Mode::Files(how)) => more.how = how,
            Some(Mode::Direct) => more.direct = Some(data::uri_of(workspace, &at)),
            None => continue,
        }
        more.register = registration(job, &output, &kind, &data::uri_of(workspace, &at), shelf, problems)?;
        let document = match shape {
            Shape::File => OutputDocument::File { at, more },
            Shape::Folder | Shape::Any => OutputDocument::Folder { at, more },
        };
        outputs.insert(name.clone(), document);
    }
    Ok(())
}

/// The words that the path of an output may hold.
fn fill(uri: &str, job: &str, output: &str) -> String {
    let mut out = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some((before, inside)) = rest.split_once("${{") {
        let Some((word, after)) = inside.split_once("}}") else { break };
        out.push_str(before);
        match word.trim() {
            "name" => out.push_str(job),
            "output_name" => out.push_str(output),
            "default_datastore" => out.push_str(workspace_files::BLOB_STORE),
            // Left as it is: nothing has such a name, so it is refused with its words.
            other => out.push_str(&format!("${{{{{other}}}}}")),
        }
        rest = after;
    }
    out + rest
}

/// What an output is to be registered as, if it has a name for that.
fn registration(
    job: &str,
    output: &Fields<'_>,
    kind: &str,
    uri: &str,
    shelf: &dyn Shelf,
    problems: &mut Vec<Problem>,
) -> Result<Option<Registration>, Refusal> {
    let version = output.value("assetVersion").map(literal).filter(|version| !version.is_empty());
    let Some(name) = output.text("assetName", problems).filter(|name| !name.is_empty()) else {
        if version.is_some() {
            problems.push(bad(
                "An output with a version needs a name to be registered by.",
                &output.place("assetVersion"),
            ));
        }
        return Ok(None);
    };
    for (text, key) in [(Some(name), "assetName"), (version.as_deref(), "assetVersion")] {
        if text.is_some_and(|text| !assets::good_name(text)) {
            let message = format!(
                "'{}' cannot be the {key} of an output: 1 to 255 letters, digits, '-', '_' and '.'.",
                text.unwrap_or_default()
            );
            problems.push(Problem::new(Code::InvalidResourceName, message).at(output.place(key)));
            return Ok(None);
        }
    }
    let asset = if is_model(kind) { "model" } else { "data" };
    if let Some(version) = &version
        && shelf.asset(asset, name, Some(version))?.is_some()
    {
        let message = format!(
            "The {asset} '{name}' has a version '{version}' already, and a version never changes; leave the version out, or choose another."
        );
        problems.push(bad(message, &output.place("assetVersion")));
        return Ok(None);
    }
    let mut properties = json!({
        "description": output.value("description"),
        "tags": {},
        "properties": {},
        "isAnonymous": false,
        "isArchived": false,
        "provisioningState": "Succeeded",
    });
    let more = if is_model(kind) {
        json!({"modelType": kind, "modelUri": uri, "flavors": {}, "jobName": job})
    } else {
        json!({"dataType": kind, "dataUri": uri})
    };
    for (key, value) in more.as_object().into_iter().flatten() {
        properties[key] = value.clone();
    }
    Ok(Some(Registration { kind: asset.into(), name: name.into(), version, properties }))
}

#[cfg(test)]
#[path = "ports_tests.rs"]
mod tests;
