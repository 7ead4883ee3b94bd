//! A call of an endpoint, read from its body with every problem at once. Pure.

use neap_core::{Code, Problem};
use serde_json::{Map, Value, json};

use super::job::{Call, SCORE};
use crate::arm::errors::bad;
use crate::fields::Fields;

/// What a call may say otherwise than its deployment, under the same names.
const CHANGES: &[&str] = &[
    "errorThreshold",
    "miniBatchSize",
    "maxConcurrencyPerInstance",
    "retrySettings",
    "outputFileName",
    "loggingLevel",
    "environmentVariables",
    "resources",
];
const KNOWN: &[&str] = &[
    "name",
    "properties",
    "displayName",
    "experimentName",
    "inputData",
    "outputData",
    "outputDataset",
    "dataset",
    "compute",
];

#[derive(Debug)]
pub(super) struct Read {
    /// The job's.
    pub name: Option<String>,
    pub call: Call,
    pub problems: Vec<Problem>,
}

/// `pipeline`: the deployment runs a pipeline component, and not a model.
pub(super) fn read(body: &Value, pipeline: bool) -> Read {
    let mut problems = Vec::new();
    let top = Fields::of(Some(body), "", &mut problems);
    let fields = top.object("properties", &mut problems);
    for (key, _) in fields.entries() {
        let known = |list: &[&str]| list.iter().any(|word| word.eq_ignore_ascii_case(key));
        if !known(KNOWN) && (pipeline || !known(CHANGES)) {
            let message = if known(CHANGES) {
                format!("'{key}' is for a model; the steps of a pipeline have their own settings.")
            } else {
                format!("'{key}' is not known of a call, and would have no effect.")
            };
            problems.push(bad(message, &fields.place(key)));
        }
    }
    let about = fields.object("properties", &mut problems);
    let text = |key: &str, problems: &mut Vec<Problem>| {
        let given = fields.text(key, problems).or_else(|| about.text(key, problems));
        given.filter(|text| !text.is_empty()).map(String::from)
    };
    let mut call = Call {
        experiment: text("experimentName", &mut problems),
        display_name: text("displayName", &mut problems),
        inputs: ports(&fields, "inputData", "jobInputType", &mut problems),
        outputs: ports(&fields, "outputData", "jobOutputType", &mut problems),
        changes: changes(&fields, &mut problems),
    };
    let name = text("name", &mut problems);
    if fields.value("dataset").is_some() {
        let message = "'dataset' of the first version of the API is not supported; give 'inputData'.";
        problems.push(Problem::new(Code::NotSupported, message).at("properties.dataset"));
    }
    if !pipeline {
        one_input(&call, &mut problems);
        one_output(&fields, &mut call, &mut problems);
    }
    Read { name, call, problems }
}

/// Inputs or outputs, as a job's body has them.
fn ports(fields: &Fields<'_>, what: &str, type_key: &str, problems: &mut Vec<Problem>) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, value) in fields.object(what, problems).entries() {
        let place = format!("properties.{what}.{name}");
        let port = Fields::of(Some(value), &place, problems);
        if !port.is_present() {
            continue;
        }
        let given = port.text(type_key, problems).unwrap_or("");
        let kind = match given.to_ascii_lowercase().replace('_', "").as_str() {
            "urifolder" => "uri_folder",
            "urifile" => "uri_file",
            "mltable" => "mltable",
            "mlflowmodel" => "mlflow_model",
            "custommodel" => "custom_model",
            "tritonmodel" => "triton_model",
            "literal" => "literal",
            _ => {
                let message = format!(
                    "'{name}' has the unknown type '{given}': UriFolder, UriFile, MLTable or Literal."
                );
                problems.push(bad(message, &port.place(type_key)));
                continue;
            }
        };
        let mut kept = Map::from_iter([(type_key.to_owned(), json!(kind))]);
        for key in ["uri", "mode"] {
            if let Some(text) = port.text(key, problems) {
                kept.insert(key.into(), json!(text));
            }
        }
        if kind == "literal" {
            match port.value("value") {
                Some(value) => drop(kept.insert("value".into(), value.clone())),
                None => problems.push(bad(format!("The input '{name}' has no 'value'."), &place)),
            }
        }
        out.insert(name.clone(), Value::Object(kept));
    }
    out
}

fn changes(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Map<String, Value> {
    let mut out: Map<String, Value> =
        CHANGES.iter().filter_map(|key| Some(((*key).to_owned(), fields.value(key)?.clone()))).collect();
    let compute = fields.object("compute", problems);
    match compute.text("target", problems).filter(|target| !target.is_empty()) {
        Some(target) if target.eq_ignore_ascii_case("local") => {
            let message = "A call runs on a cluster; local compute is not supported.";
            problems.push(Problem::new(Code::NotSupported, message).at(compute.place("target")));
        }
        Some(target) => drop(out.insert("compute".into(), json!(target))),
        // A client that names none says isLocal, and means the deployment's.
        None => {}
    }
    if let Some(count) = compute.integer("instanceCount", problems) {
        out.entry("resources").or_insert_with(|| json!({}))["instanceCount"] = json!(count);
    }
    out
}

fn one_input(call: &Call, problems: &mut Vec<Problem>) {
    let is_value = |input: &Value| input["jobInputType"] == "literal";
    for (name, _) in call.inputs.iter().filter(|(_, input)| is_value(input)) {
        let message =
            format!("'{name}' is a value; a model is run over data (UriFolder, UriFile or MLTable).");
        problems.push(bad(message, &format!("properties.inputData.{name}")));
    }
    let data: Vec<&str> =
        call.inputs.iter().filter(|(_, input)| !is_value(input)).map(|(name, _)| name.as_str()).collect();
    match data.as_slice() {
        [_] => {}
        [] if problems.iter().any(|p| p.target.as_deref().is_some_and(|at| at.contains("inputData"))) => {}
        [] => problems.push(bad(
            "A call needs an input: {\"inputData\": {\"NAME\": {\"jobInputType\": \"UriFolder\", \"uri\": …}}}.",
            "properties.inputData",
        )),
        several => problems.push(bad(
            format!("A model is run over one input, and the call has {}.", several.join(", ")),
            "properties.inputData",
        )),
    }
}

/// A model has one output, whatever the call names it: the folder with the file of rows, or that file itself.
fn one_output(fields: &Fields<'_>, call: &mut Call, problems: &mut Vec<Problem>) {
    let mut given: Vec<Value> =
        std::mem::take(&mut call.outputs).into_iter().map(|(_, output)| output).collect();
    let dataset = fields.object("outputDataset", problems);
    if dataset.is_present() {
        let store = dataset.text("datastoreId", problems).unwrap_or("");
        let store = store.trim_start_matches("azureml:").rsplit('/').next().unwrap_or("");
        let path = dataset.text("path", problems).unwrap_or("").trim_matches('/');
        let uri = format!("azureml://datastores/{store}/paths/{path}");
        given.push(json!({"jobOutputType": "uri_folder", "uri": uri}));
    }
    if given.len() > 1 {
        problems.push(bad("A model has one output, and the call gives several.", "properties.outputData"));
    }
    let Some(mut output) = given.into_iter().next() else { return };
    let uri = output["uri"].as_str().unwrap_or("").to_owned();
    match output["jobOutputType"].as_str() {
        Some("uri_folder") => {
            if !uri.is_empty() && !uri.ends_with('/') {
                output["uri"] = json!(format!("{uri}/"));
            }
        }
        Some("uri_file") => match uri.rsplit_once('/') {
            Some((folder, file)) if !file.is_empty() => {
                call.changes.insert("outputFileName".into(), json!(file));
                output["uri"] = json!(format!("{folder}/"));
                output["jobOutputType"] = json!("uri_folder");
            }
            _ => problems.push(bad(format!("'{uri}' is not the place of a file."), "properties.outputData")),
        },
        _ => {
            problems.push(bad("The output of a model is a UriFolder or a UriFile.", "properties.outputData"));
        }
    }
    call.outputs.insert(SCORE.into(), output);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(body: &Value, pipeline: bool) -> Vec<String> {
        read(body, pipeline).problems.into_iter().filter_map(|problem| problem.target).collect()
    }

    #[test]
    fn what_the_client_sends() {
        let body = json!({"properties": {
            "inputData": {"UriFolder": {"jobInputType": "UriFolder", "uri": "azureml://datastores/d/paths/x/"}},
            "outputData": {"any": {"jobOutputType": "UriFile", "uri": "azureml://datastores/d/paths/o/p.csv"}},
            "miniBatchSize": 3, "compute": {"isLocal": true, "target": "cpu", "instanceCount": 2}, "name": "n",
            "properties": {"experimentName": "e"}}});
        let Read { name, call, problems } = read(&body, false);
        assert_eq!(problems, []);
        assert_eq!((name.as_deref(), call.experiment.as_deref()), (Some("n"), Some("e")));
        assert_eq!(
            call.inputs["UriFolder"],
            json!({"jobInputType": "uri_folder", "uri": "azureml://datastores/d/paths/x/"})
        );
        assert_eq!(
            call.outputs[SCORE],
            json!({"jobOutputType": "uri_folder", "uri": "azureml://datastores/d/paths/o/"})
        );
        assert_eq!(
            Value::Object(call.changes),
            json!({"miniBatchSize": 3, "outputFileName": "p.csv", "compute": "cpu", "resources": {"instanceCount": 2}})
        );
    }

    #[test]
    fn keys_are_read_without_regard_to_case_and_the_older_output_too() {
        let body = json!({"properties": {"InputData": {"a": {"JobInputType": "UriFile", "Uri": "https://h/x.csv"}},
            "outputDataset": {"datastoreId": "azureml:/x/datastores/ds", "path": "/p/"}}});
        let Read { call, problems, .. } = read(&body, false);
        assert_eq!(problems, []);
        assert_eq!(call.inputs["a"]["jobInputType"], "uri_file");
        assert_eq!(call.outputs[SCORE]["uri"], "azureml://datastores/ds/paths/p/");
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let body = json!({"properties": {"inputData": {"a": {"jobInputType": "Literal", "value": 1}, "b": {"jobInputType": "Cloud"}},
            "dataset": "x", "wings": 1, "compute": {"target": "local"}}});
        assert_eq!(
            problems(&body, false),
            [
                "properties.wings",
                "properties.inputData.b.jobInputType",
                "properties.compute.target",
                "properties.dataset",
                "properties.inputData.a"
            ]
        );
        assert_eq!(problems(&Value::Null, false), ["properties.inputData"]);
        let data = json!({"jobInputType": "UriFolder", "uri": "x"});
        assert_eq!(
            problems(&json!({"properties": {"inputData": {"a": data, "b": data}}}), false),
            ["properties.inputData"]
        );
        assert_eq!(
            problems(&json!({"properties": {"inputData": {"a": data}, "miniBatchSize": 1}}), true),
            ["properties.miniBatchSize"]
        );
        assert_eq!(problems(&Value::Null, true), Vec::<String>::new());
    }
}
