//! Inputs and outputs as clients write them.

use std::collections::BTreeMap;

use neap_core::documents::{Delivery, InputDocument, OutputDocument};
use serde_json::{Value, json};

use super::super::references::tests::Fake;
use super::{Fields, fill, literal, read_inputs, read_outputs};
use crate::arm::paths::sample_workspace;

const OWN: &str = "azureml://datastores/workspaceblobstore/paths";

#[allow(clippy::needless_pass_by_value, reason = "cases read better with the literal itself")]
fn inputs(body: Value) -> (BTreeMap<String, InputDocument>, Vec<String>) {
    let (mut found, mut problems) = (BTreeMap::new(), Vec::new());
    let body = json!({"inputs": body});
    let fields = Fields::of(Some(&body), "properties", &mut problems);
    read_inputs(&fields, &sample_workspace(), &Fake::default(), &mut found, &mut problems).unwrap();
    (found, problems.into_iter().map(|p| p.message).collect())
}

#[allow(clippy::needless_pass_by_value, reason = "cases read better with the literal itself")]
fn outputs(body: Value) -> (BTreeMap<String, OutputDocument>, Vec<String>) {
    let (mut found, mut problems) = (BTreeMap::new(), Vec::new());
    let body = json!({"outputs": body});
    let fields = Fields::of(Some(&body), "properties", &mut problems);
    let shelf = Fake::with(&[("data", "taken", "3", json!({}))]);
    read_outputs("job1", &fields, &sample_workspace(), &shelf, &mut found, &mut problems).unwrap();
    (found, problems.into_iter().map(|p| p.message).collect())
}

#[test]
fn literals_are_what_python_prints() {
    for (value, expect) in [
        (json!("as is"), "as is"),
        (json!(true), "True"),
        (json!(false), "False"),
        (json!(3), "3"),
        (json!(0.5), "0.5"),
        (json!(2.0), "2.0"),
        (json!(0.0001), "0.0001"),
        (json!(0.00001), "1e-05"),
        (json!(1.5e-7), "1.5e-07"),
        (json!(1e22), "1e+22"),
        (json!(-3e-10), "-3e-10"),
    ] {
        assert_eq!(literal(&value), expect, "{value}");
    }
}

#[test]
fn every_type_and_mode_of_an_input() {
    let one = |kind: &str, mode: Option<&str>, path: &str| {
        let (mut found, problems) =
            inputs(json!({"x": {"jobInputType": kind, "uri": format!("{OWN}/{path}"), "mode": mode}}));
        found.remove("x").ok_or_else(|| problems.join(" "))
    };
    let how = |kind: &str, mode: Option<&str>, path: &str| match one(kind, mode, path).unwrap() {
        InputDocument::File { how, .. } => ("file", how),
        InputDocument::Folder { how, .. } => ("folder", how),
        InputDocument::Any { how, .. } => ("any", how),
        InputDocument::Literal { .. } => panic!("{kind} {mode:?} is no literal"),
    };
    assert_eq!(how("uri_file", None, "a"), ("file", Delivery::ReadOnly));
    assert_eq!(how("uri_folder", Some("ReadOnlyMount"), "a"), ("folder", Delivery::ReadOnly));
    assert_eq!(how("uri_folder", Some("ReadWriteMount"), "a"), ("folder", Delivery::ReadWrite));
    assert_eq!(how("mltable", Some("Download"), "a"), ("folder", Delivery::Copy));
    assert_eq!(how("mltable", Some("EvalMount"), "a"), ("folder", Delivery::Evaluated));
    assert_eq!(how("mltable", Some("EvalDownload"), "a"), ("folder", Delivery::Evaluated));
    assert_eq!(how("mlflow_model", Some("ro_mount"), "a"), ("any", Delivery::ReadOnly));
    assert_eq!(how("custom_model", None, "a/"), ("folder", Delivery::ReadOnly));
    assert_eq!(how("triton_model", None, "a"), ("any", Delivery::ReadOnly));
    let direct = one("uri_folder", Some("Direct"), "a").unwrap();
    assert_eq!(direct, InputDocument::Literal { value: format!("{OWN}/a") });
    assert!(one("uri_folder", Some("EvalMount"), "a").unwrap_err().contains("mltable only"));
    assert!(one("uri_folder", Some("Upwards"), "a").unwrap_err().contains("is not known"));
    assert!(one("uri_thing", None, "a").unwrap_err().contains("unknown type"));
}

#[test]
fn every_problem_of_the_inputs_at_once() {
    let (found, problems) = inputs(json!({
        "good": {"jobInputType": "literal", "value": 1},
        "../up": {"jobInputType": "literal", "value": 1},
        "none": {"jobInputType": "literal"},
        "lost": {"jobInputType": "uri_file"},
        "odd": {"jobInputType": "uri_file", "uri": "gopher://x/y"},
    }));
    assert_eq!(found.len(), 1);
    assert_eq!(problems.len(), 4, "{problems:#?}");
}

#[test]
fn outputs_and_their_places() {
    let (found, problems) = outputs(json!({
        "plain": {"jobOutputType": "uri_folder"},
        "one": {"jobOutputType": "uri_file", "mode": "Upload"},
        "artifacts": {"jobOutputType": "uri_folder"},
        "there": {"jobOutputType": "mltable", "uri": "azureml://datastores/${{default_datastore}}/paths/runs/${{name}}/${{ output_name }}"},
        "self": {"jobOutputType": "uri_folder", "mode": "Direct"},
        "kept": {"jobOutputType": "custom_model", "assetName": "best"},
        "table": {"jobOutputType": "uri_file", "assetName": "t", "assetVersion": 4},
    }));
    assert_eq!(problems, Vec::<String>::new());
    let place = |name: &str| {
        let output = &found[name];
        (
            output.at().container.as_str(),
            output.at().path.as_str(),
            output.asset_type(),
            output.more().how,
            output.more().own_place,
        )
    };
    let own = "azureml-blobstore";
    assert_eq!(place("plain"), (own, "azureml/job1/plain/", "uri_folder", Delivery::ReadWrite, true));
    assert_eq!(place("one"), (own, "azureml/job1/one/one", "uri_file", Delivery::Copy, true));
    assert_eq!(
        place("artifacts"),
        ("azureml", "ExperimentRun/dcid.job1/", "uri_folder", Delivery::ReadWrite, true)
    );
    assert_eq!(place("there"), (own, "runs/job1/there/", "mltable", Delivery::ReadWrite, false));
    let direct = found["self"].more().direct.as_deref().unwrap();
    assert!(direct.ends_with("/datastores/workspaceblobstore/paths/azureml/job1/self/"), "{direct}");
    let model = found["kept"].more().register.as_ref().unwrap();
    assert_eq!((model.kind.as_str(), model.name.as_str(), &model.version), ("model", "best", &None));
    assert_eq!((&model.properties["flavors"], &model.properties["jobName"]), (&json!({}), &json!("job1")));
    let table = found["table"].more().register.as_ref().unwrap();
    assert_eq!((table.kind.as_str(), table.version.as_deref()), ("data", Some("4")));
    assert!(table.properties["dataUri"].as_str().unwrap().ends_with("/paths/azureml/job1/table/table"));
}

#[test]
fn problems_of_outputs() {
    for (body, word) in [
        (json!({"jobOutputType": "odd"}), "unknown type"),
        (json!({"mode": "ReadOnlyMount"}), "rw_mount"),
        (json!({"mode": "EvalMount"}), "rw_mount"),
        (json!({"uri": "https://example.com/x"}), "cannot be written"),
        (json!({"uri": "azureml://datastores/${{other}}/paths/x"}), "${{other}}"),
        (json!({"assetName": "a b"}), "assetName"),
        (json!({"assetVersion": "1"}), "needs a name"),
        (json!({"assetName": "taken", "assetVersion": "3"}), "already"),
    ] {
        let (_, problems) = outputs(json!({"o": body}));
        assert!(problems.len() == 1 && problems[0].contains(word), "{body}: {problems:?}");
    }
}

#[test]
fn words_in_paths() {
    assert_eq!(fill("a/${{name}}/${{output_name}}/b", "j", "o"), "a/j/o/b");
    assert_eq!(fill("a/${{unknown}}/${{", "j", "o"), "a/${{unknown}}/${{");
}
