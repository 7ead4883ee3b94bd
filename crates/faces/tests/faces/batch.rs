//! Batch endpoints over the faces, with no node to run on: what is kept, what is refused, and which jobs calls make.

use crate::world::{World, cluster, ws};
use axum::body::Body;
use serde_json::{Value, json};

/// A workspace with a pipeline component that needs no files.
async fn world() -> World {
    let world = World::new().await;
    world.put(&ws("computes/cpu"), cluster(1)).await.expect(201);
    let image = json!({"properties": {"image": "python:3.11"}});
    world.put(&ws("environments/e/versions/1"), image).await.expect(201);
    let say = json!({"type": "command", "command": "echo ${{inputs.word}}", "environment": ws("environments/e/versions/1"),
        "inputs": {"word": {"type": "string"}}});
    let whole = json!({"type": "pipeline", "inputs": {"word": {"type": "string"}, "times": {"type": "integer", "default": 2}},
        "jobs": {"say": {"type": "command", "componentId": ws("components/say/versions/1"),
            "inputs": {"word": {"job_input_type": "literal", "value": "${{parent.inputs.word}}"}}}}});
    for (name, spec) in [("say", say), ("whole", whole)] {
        let body = json!({"properties": {"componentSpec": spec}});
        world.put(&ws(&format!("components/{name}/versions/1")), body).await.expect(201);
    }
    world.put(&ws("batchEndpoints/talks"), json!({"tags": {"a": "1"}, "properties": {}})).await.expect(201);
    world
}

fn deployment(component: &str) -> Value {
    json!({"properties": {"deploymentConfiguration": {"deploymentConfigurationType": "PipelineComponent",
        "componentId": {"referenceType": "Id", "assetId": ws(&format!("components/{component}/versions/1"))},
        "settings": {"default_compute": ws("computes/cpu")}}}})
}

fn word(text: &str) -> Value {
    json!({"properties": {"inputData": {"word": {"jobInputType": "Literal", "value": text}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_a_job_and_the_same_call_the_same_job() {
    let world = world().await;
    let path = ws("batchEndpoints/talks/deployments/v1");
    let made = world.put(&path, deployment("whole")).await.expect(201).body;
    assert_eq!(made["properties"]["provisioningState"], "Succeeded");
    assert_eq!(world.get(&path).await.expect(200).body, made);
    world.put(&path, made).await.expect(200);

    let refused = world.post(&ws("batchEndpoints/talks/jobs"), word("hi")).await.expect(400);
    assert!(
        refused.text.contains("no default deployment") && refused.text.contains("it has v1"),
        "{}",
        refused.text
    );
    let default = json!({"properties": {"defaults": {"deploymentName": "v1"}}});
    let endpoint = world.call("PATCH", &ws("batchEndpoints/talks"), Some(default)).await.expect(200).body;
    assert_eq!(
        (&endpoint["tags"]["a"], &endpoint["properties"]["defaults"]["deploymentName"]),
        (&json!("1"), &json!("v1"))
    );

    let uri = endpoint["properties"]["scoringUri"]
        .as_str()
        .unwrap()
        .trim_start_matches("https://127.0.0.1:8443")
        .to_owned();
    let job = world.post(&uri, word("hi")).await.expect(201).body;
    let name = job["name"].as_str().unwrap();
    assert_eq!(job["properties"]["deployment"], "v1");
    let whole = world.get(&ws(&format!("jobs/{name}"))).await.expect(200).body["properties"].clone();
    assert_eq!((&whole["jobType"], &whole["experimentName"]), (&json!("Pipeline"), &json!("talks")));
    assert_eq!(whole["inputs"]["word"]["value"], "hi");
    assert_eq!(whole["inputs"]["times"]["value"], 2);

    let again = |text: &str| {
        let headers = [("repeatability-request-id", "1-2"), ("azureml-model-deployment", "v1")];
        let request = headers
            .iter()
            .fold(world.request("POST", &uri), |request, (key, value)| request.header(*key, *value));
        request.body(Body::from(word(text).to_string())).unwrap()
    };
    let first = world.send(again("a")).await.expect(201).body;
    assert_eq!(world.send(again("a")).await.expect(201).body["name"], first["name"]);

    let listed = |body: Value| {
        let rows = body["value"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["name"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    for path in ["batchEndpoints/talks/jobs", "batchEndpoints/talks/deployments/v1/jobs"] {
        assert_eq!(listed(world.get(&ws(path)).await.expect(200).body), ["batchjob-1-2", name], "{path}");
        let other = format!("/mferp/managementfrontend{}", ws(path));
        assert_eq!(listed(world.get(&other).await.expect(200).body), ["batchjob-1-2", name], "{other}");
    }

    // Deployments go with their endpoint; jobs stay.
    world.call("DELETE", &ws("batchEndpoints/talks"), None).await.expect(200);
    world.get(&path).await.expect(404);
    world.get(&ws(&format!("jobs/{name}"))).await.expect(200);
    world.put(&ws("batchEndpoints/talks"), json!({"properties": {}})).await.expect(201);
    assert_eq!(
        listed(world.get(&ws("batchEndpoints/talks/deployments")).await.expect(200).body),
        Vec::<String>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_at_once_and_nothing_is_kept() {
    let world = world().await;
    let targets = |refused: &Value| {
        let details = refused["error"]["details"].as_array().cloned().unwrap_or_default();
        let mut out: Vec<String> =
            details.iter().map(|d| d["target"].as_str().unwrap_or("").to_owned()).collect();
        out.sort();
        out
    };
    let mut asked = deployment("say");
    asked["properties"]["miniBatchSize"] = json!(0);
    let refused = world.put(&ws("batchEndpoints/talks/deployments/v_1"), asked).await.expect(400).body;
    assert_eq!(
        targets(&refused),
        ["name", "properties.deploymentConfiguration.componentId.assetId", "properties.miniBatchSize"]
    );
    let mut asked = deployment("whole");
    asked["properties"]["deploymentConfiguration"]["settings"]["default_compute"] = json!("nosuch");
    let refused = world.put(&ws("batchEndpoints/talks/deployments/v1"), asked).await.expect(400);
    assert_eq!(refused.code(), "ComputeNotFound", "{}", refused.text);
    let model = json!({"properties": {"compute": "azureml:cpu", "model": {"referenceType": "Id", "assetId": "azureml:nosuch:1"},
        "codeConfiguration": {"codeId": "azureml:nosuch:1", "scoringScript": "s.py"}, "environmentId": "azureml:nosuch:1"}});
    let refused = world.put(&ws("batchEndpoints/talks/deployments/v1"), model).await.expect(400).body;
    assert_eq!(
        targets(&refused),
        ["properties.codeConfiguration.codeId", "properties.environmentId", "properties.model.assetId"]
    );
    world.get(&ws("batchEndpoints/talks/deployments/v1")).await.expect(404);

    world.put(&ws("batchEndpoints/talks/deployments/v1"), deployment("whole")).await.expect(201);
    let wrong = json!({"properties": {"inputData": {"wrod": {"jobInputType": "Literal", "value": "x"}}, "miniBatchSize": 2}});
    let refused = world.post(&ws("batchEndpoints/talks/deployments/v1/jobs"), wrong).await.expect(400).body;
    assert_eq!(
        targets(&refused),
        ["properties.inputData.word", "properties.inputData.wrod", "properties.miniBatchSize"]
    );
    world.post(&ws("batchEndpoints/talks/deployments/v2/jobs"), word("x")).await.expect(404);
    world.post(&ws("batchEndpoints/talks/listKeys"), Value::Null).await.expect(400);
    world.call("DELETE", &ws("batchEndpoints/talks/deployments/v2"), None).await.expect(204);
    assert_eq!(world.get(&ws("jobs")).await.expect(200).body["value"], json!([]));
}
