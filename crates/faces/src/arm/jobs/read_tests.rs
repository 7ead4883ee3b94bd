//! Job bodies in, definitions and problems out.

use neap_core::Capacity;
use neap_core::cluster::Tier;
use neap_core::documents::{EnvironmentDocument, InputDocument, OutputDocument};
use neap_core::job::Need;
use neap_core::problem::Code;
use serde_json::{Value, json};

use super::super::references::tests::Fake;
use super::{AskedJob, read};
use crate::arm::paths::{sample_workspace, workspace_id};

fn check(body: &Value) -> AskedJob {
    let shelf = Fake::with(&[
        ("code", "u", "1", json!({"codeUri": "https://h:1/neapst1/snapshot-x/src"})),
        ("environment", "e", "1", json!({"image": "python:3.11"})),
    ]);
    read("job1", body, &sample_workspace(), &shelf).unwrap()
}

#[allow(clippy::needless_pass_by_value, reason = "cases read better with the literal itself")]
fn job(changes: Value) -> Value {
    let ws = workspace_id(&sample_workspace());
    let mut properties = json!({"jobType": "Command", "command": "python train.py", "environmentId": "azureml:e:1", "computeId": format!("{ws}/computes/cpu")});
    for (key, value) in changes.as_object().unwrap() {
        properties[key] = value.clone();
    }
    json!({"properties": properties})
}

fn codes(asked: &AskedJob) -> Vec<(Code, &str)> {
    asked.problems.iter().map(|p| (p.code, p.target.as_deref().unwrap_or(""))).collect()
}

#[test]
fn what_the_sdk_sends_is_read() {
    let ws = workspace_id(&sample_workspace());
    let asked = check(&job(json!({
        "displayName": "d", "description": "x", "experimentName": "exp1", "codeId": format!("{ws}/codes/u/versions/1"),
        "command": "python train.py --x ${{inputs.x}} $[[--y ${{inputs.y}}]] --out ${{outputs.o}}",
        "inputs": {"x": {"jobInputType": "literal", "value": "3"}, "d": {"jobInputType": "uri_folder", "uri": "azureml://datastores/workspaceblobstore/paths/a"}},
        "outputs": {"o": {"jobOutputType": "uri_folder"}, "f": {"jobOutputType": "uri_file"}},
        "environmentVariables": {"K": "V"}, "tags": {}, "properties": {}, "isArchived": false,
        "limits": {"jobLimitsType": "Command", "timeout": "PT1H"}, "queueSettings": {"priority": 3},
        "resources": {"instanceCount": 1, "properties": {"neap": {"cpus": "0.5", "memory_gb": 1}}}})));
    assert_eq!(asked.problems, []);
    assert_eq!((asked.cluster.as_str(), asked.priority, asked.timeout_ms), ("cpu", 3, Some(3_600_000)));
    assert_eq!(asked.need, Need::Share(Capacity { cpus_milli: 500, memory_mb: 1_024, gpus: 0 }));
    let document = asked.document;
    let image = EnvironmentDocument::Image { image: "python:3.11".into(), packages: None };
    assert_eq!((document.experiment.as_str(), document.environment), ("exp1", image));
    assert_eq!(document.code.map(|c| (c.container, c.path)), Some(("snapshot-x".into(), "src/".into())));
    assert!(matches!(&document.inputs["d"], InputDocument::Folder { at, .. } if at.path == "a/"));
    assert!(
        matches!(&document.outputs["o"], OutputDocument::Folder { at, .. } if at.path == "azureml/job1/o/")
    );
    assert!(
        matches!(&document.outputs["f"], OutputDocument::File { at, .. } if at.path == "azureml/job1/f/f")
    );
    assert_eq!(document.preamble, Vec::<String>::new());
    assert_eq!(document.asked.get("displayName"), None);
}

#[test]
fn every_problem_is_told_at_once() {
    let asked = check(&job(
        json!({"command": "ls ${{inputs.nope}}", "environmentId": "azureml:none:1", "codeId": "azureml:none:1",
        "limits": {"timeout": "soon"}, "resources": {"instanceCount": 0}, "queueSettings": {"priority": 9},
        "distribution": {"distributionType": "Horovod"}, "inputs": {"d": {"jobInputType": "uri_folder", "uri": "gopher://b/x"}}}),
    ));
    let mut found: Vec<_> = codes(&asked).into_iter().map(|(code, _)| code).collect();
    found.sort();
    assert_eq!(
        found,
        [
            Code::BadArgument,
            Code::BadArgument,
            Code::BadArgument,
            Code::BadArgument,
            Code::BadArgument,
            Code::NotSupported,
            Code::EnvironmentNotFound,
            Code::CodeNotFound
        ]
    );
}

#[test]
fn where_it_cannot_run_is_said() {
    for (changes, expect) in [
        (
            json!({"computeId": "/subscriptions/s1/resourceGroups/neap/providers/Microsoft.MachineLearningServices/workspaces/other/computes/c"}),
            (Code::ComputeNotFound, "properties.computeId"),
        ),
        (
            json!({"resources": {"properties": {"neap": {"isolation": "container"}}}}),
            (Code::NotSupported, "properties.resources.properties.neap.isolation"),
        ),
        (
            json!({"properties": {"neap.isolation": "container"}}),
            (Code::NotSupported, "properties.resources.properties.neap.isolation"),
        ),
    ] {
        assert_eq!(codes(&check(&job(changes.clone()))), [expect], "{changes}");
    }
    for kind in ["AutoML", "Spark", "Odd"] {
        let refusal =
            read("j", &job(json!({"jobType": kind})), &sample_workspace(), &Fake::default()).unwrap_err();
        assert_eq!(refusal.code(), Code::NotSupported, "{kind}");
    }
}

#[test]
fn a_job_without_a_cluster_gets_one_of_its_size_and_tier() {
    let serverless = "/subscriptions/s1/resourceGroups/neap/providers/Microsoft.MachineLearningServices/workspaces/default/computes/serverless";
    let plain = check(&job(json!({"computeId": null})));
    assert_eq!(plain.problems, []);
    let wanted = plain.serverless.clone().unwrap();
    assert_eq!((wanted.size.as_str(), wanted.tier, wanted.nodes), ("STANDARD_DS3_V2", Tier::Dedicated, 1));
    assert!(plain.cluster.starts_with("serverless-"), "{}", plain.cluster);
    assert_eq!(check(&job(json!({"computeId": serverless}))).cluster, plain.cluster, "the same for the same");
    let spot = check(&job(json!({"computeId": serverless, "queueSettings": {"jobTier": "Spot"},
        "resources": {"instanceType": "Standard_F4s_v2", "instanceCount": 2}})));
    assert_eq!(spot.problems, []);
    assert_eq!(spot.document.preamble, Vec::<String>::new(), "both have effect");
    let wanted = spot.serverless.unwrap();
    assert_eq!((wanted.size.as_str(), wanted.tier, wanted.nodes), ("Standard_F4s_v2", Tier::LowPriority, 2));
    assert_ne!(spot.cluster, plain.cluster);
    assert_eq!(check(&job(json!({}))).serverless, None, "it names one");
}

#[test]
fn what_has_no_effect_is_said_in_the_log() {
    let asked = check(&job(
        json!({"identity": {"identityType": "AMLToken"}, "services": {"jl": {"jobServiceType": "JupyterLab", "port": 8888}, "Studio": {}},
        "resources": {"maxInstanceCount": 4}, "queueSettings": {"jobTier": "Spot"}, "newThing": 1,
        "outputs": {"m": {"jobOutputType": "custom_model", "assetName": "best"}}}),
    ));
    assert_eq!(asked.problems, []);
    assert_eq!(asked.document.preamble.len(), 3, "{:#?}", asked.document.preamble);
}
