//! Jobs, code, data and run history over the faces, with no node to run on.

use crate::world::{World, cluster, ws};
use neap_core::command::{AttemptNews, Report};
use neap_core::job::Exit;
use neap_core::{AttemptId, Capacity, Command, JobId, NodeId};
use serde_json::{Value, json};

async fn world() -> World {
    let world = World::new().await;
    world.put(&ws("computes/cpu"), cluster(1)).await.expect(201);
    world
        .put(&ws("environments/e/versions/1"), json!({"properties": {"image": "python:3.11"}}))
        .await
        .expect(201);
    world
}

fn job(command: &str) -> Value {
    json!({"properties": {"jobType": "Command", "command": command, "computeId": ws("computes/cpu"), "environmentId": ws("environments/e/versions/1"),
        "experimentName": "exp", "displayName": "d", "outputs": {"o": {"jobOutputType": "uri_folder"}}, "tags": {"t": "1"}, "properties": {}, "isArchived": false}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_with_a_reason_and_can_be_edited_and_canceled() {
    let world = world().await;
    let made = world.put(&ws("jobs/j1"), job("echo hi")).await.expect(201).body;
    assert!(made["properties"]["services"]["Studio"]["endpoint"].is_string());
    let got = world.get(&ws("jobs/j1")).await.expect(200).body;
    assert_eq!(got["properties"]["status"], "Queued");
    assert!(!got["properties"]["properties"]["neap.queueReason"].as_str().unwrap_or("").is_empty(), "{got}");

    // The same again, also as GET answered it, is an update; another definition is a conflict that names the fields.
    world.put(&ws("jobs/j1"), job("echo hi")).await.expect(200);
    let mut archived = got.clone();
    archived["properties"]["isArchived"] = json!(true);
    archived["properties"]["tags"] = json!({"t": "2"});
    let updated = world.put(&ws("jobs/j1"), archived).await.expect(200).body;
    assert_eq!(
        (&updated["properties"]["isArchived"], &updated["properties"]["tags"]["t"]),
        (&json!(true), &json!("2"))
    );
    let refused = world.put(&ws("jobs/J1"), job("echo ho")).await.expect(409);
    assert_eq!(refused.code(), "JobNameTaken");
    assert!(refused.text.contains("these differ: command."), "{}", refused.text);

    let history = format!("/history/v1.0{}", ws("experiments/exp/runs/j1"));
    let edited = world
        .call("PATCH", &history, Some(json!({"hidden": false, "displayName": "new"})))
        .await
        .expect(200)
        .body;
    assert_eq!((&edited["hidden"], &edited["displayName"]), (&json!(false), &json!("new")));

    world.call("DELETE", &ws("jobs/j1"), None).await.expect(409);
    let canceled = world.post(&ws("jobs/j1/cancel"), Value::Null).await.expect(202);
    let status =
        canceled.header("azure-asyncoperation").trim_start_matches("https://127.0.0.1:8443").to_owned();
    assert_eq!(world.get(&status).await.expect(200).body["status"], "Succeeded");
    let got = world.get(&ws("jobs/j1")).await.expect(200).body;
    assert_eq!(got["properties"]["status"], "Canceled");
    assert!(got["properties"]["error"]["message"].as_str().unwrap().contains("ada"));
    world.post(&ws("jobs/j1/cancel"), Value::Null).await.expect(200);
    world.call("DELETE", &ws("jobs/j1"), None).await.expect(200);
    world.get(&ws("jobs/j1")).await.expect(404);
    assert_eq!(world.put(&ws("jobs/j1"), job("echo hi")).await.expect(409).code(), "JobNameTaken");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_points_at_must_be_there() {
    let world = world().await;
    let mut bad = job("echo ${{inputs.none}}");
    bad["properties"]["environmentId"] = json!(ws("environments/none/versions/1"));
    bad["properties"]["computeId"] = json!(ws("computes/none"));
    bad["properties"]["codeId"] = json!(ws("codes/none/versions/1"));
    let refused = world.put(&ws("jobs/j1"), bad).await.expect(400);
    let codes: Vec<_> = refused.body["error"]["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["code"].as_str().unwrap())
        .collect();
    for code in ["EnvironmentNotFound", "ComputeNotFound", "CodeNotFound", "BadArgument"] {
        assert!(codes.contains(&code), "{code} in {codes:?}");
    }
    let mut serverless = job("ls");
    serverless["properties"]["computeId"] = Value::Null;
    world.put(&ws("jobs/j2"), serverless).await.expect(201);
    let made = world.get(&ws("computes")).await.expect(200);
    let names: Vec<_> =
        made.body["value"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("serverless-")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_page_in_order_and_filter() {
    let world = world().await;
    for n in 0..5 {
        let mut body = job("ls");
        body["properties"]["tags"] = json!({"odd": (n % 2).to_string()});
        world.put(&ws(&format!("jobs/j{n}")), body).await.expect(201);
    }
    let names = |got: &Value| {
        got["value"]
            .as_array()
            .unwrap()
            .iter()
            .map(|j| j["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let (mut at, mut seen) = (ws("jobs?$top=2&listViewType=All"), Vec::new());
    loop {
        let page = world.get(&at).await.expect(200).body;
        seen.extend(names(&page));
        match page["nextLink"].as_str() {
            Some(next) => at = next.trim_start_matches("https://127.0.0.1:8443").to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["j4", "j3", "j2", "j1", "j0"]);
    let odd = world.get(&ws("jobs?tag=odd%3D1")).await.expect(200).body;
    assert_eq!(names(&odd), ["j3", "j1"]);
    assert_eq!(world.get(&ws("jobs?jobType=Pipeline")).await.expect(200).body["value"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn code_data_and_datastores() {
    let world = world().await;
    let upload = world
        .post(
            &ws("codes/u/versions/1/startPendingUpload"),
            json!({"pendingUploadType": "TemporaryBlobReference"}),
        )
        .await
        .expect(200)
        .body;
    let uri = upload["blobReferenceForConsumption"]["blobUri"].as_str().unwrap().to_owned();
    assert!(
        upload["blobReferenceForConsumption"]["credential"]["sasUri"]
            .as_str()
            .unwrap()
            .starts_with(&format!("{uri}?"))
    );
    let code = json!({"properties": {"codeUri": format!("{uri}/src"), "isAnonymous": true, "properties": {"hash_sha256": "abc", "hash_version": 202208}}});
    world.put(&ws("codes/u/versions/1"), code).await.expect(201);
    let found = world.get(&ws("codes/another/versions?hash=abc&hashVersion=202208")).await.expect(200).body;
    assert_eq!(found["value"][0]["id"], ws("codes/u/versions/1"));
    assert_eq!(world.get(&ws("codes/another/versions?hash=zzz")).await.expect(200).body["value"], json!([]));
    world
        .put(&ws("codes/v/versions/1"), json!({"properties": {"codeUri": "https://elsewhere/neapst9/c/src"}}))
        .await
        .expect(400);

    let container = world.get(&ws("environments/e")).await.expect(200).body;
    assert_eq!(
        (&container["properties"]["latestVersion"], &container["properties"]["nextVersion"]),
        (&json!("1"), &json!("2"))
    );
    world.get(&ws("environments/none")).await.expect(404);
    world
        .put(
            &ws("environments/e/versions/1"),
            json!({"properties": {"image": "python:3.11", "isArchived": true}}),
        )
        .await
        .expect(200);
    assert_eq!(
        world
            .put(&ws("environments/e/versions/1"), json!({"properties": {"image": "other"}}))
            .await
            .expect(400)
            .code(),
        "PropertyChangeNotAllowed"
    );

    let store = world.get(&ws("datastores/workspaceblobstore")).await.expect(200).body;
    assert_eq!(store["properties"]["accountName"], "127.0.0.1:8443/neapst1");
    let secret =
        world.post(&ws("datastores/workspaceblobstore/listSecrets"), json!({})).await.expect(200).body;
    assert!(secret["sasToken"].as_str().unwrap().contains("sig="));
    let own = json!({"properties": {"datastoreType": "AzureBlob", "accountName": "a", "containerName": "c", "credentials": {"credentialsType": "AccountKey", "secrets": {"key": "s3cret", "secretsType": "AccountKey"}}}});
    let made = world.put(&ws("datastores/mine"), own).await.expect(201);
    assert!(!made.text.contains("s3cret"));
    assert!(!world.get(&ws("datastores/mine")).await.expect(200).text.contains("s3cret"));
    assert_eq!(
        world.post(&ws("datastores/mine/listSecrets"), json!({})).await.expect(200).body["key"],
        "s3cret"
    );
    assert_eq!(
        world.get(&ws("datastores?isDefault=true")).await.expect(200).body["value"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(
        world.get(&ws("datastores")).await.expect(200).body["value"].as_array().map(Vec::len),
        Some(3)
    );
}

/// Says what an agent would: the node is ready, the attempt ran and ended well.
async fn run_to_the_end(world: &World) {
    let node = NodeId(1);
    let attempt = AttemptId { job: JobId(1), number: 1 };
    let news = |number, news| Report::Attempt { node, attempt, number, news };
    let actual = Capacity { cpus_milli: 4_000, memory_mb: 14 * 1024, gpus: 0 };
    for report in [
        Report::NodeReady { node, actual, isolation: "none".into() },
        news(1, AttemptNews::Started { facts: [("isolation".into(), "none".into())].into() }),
        news(2, AttemptNews::Ended { exit: Exit::Success }),
    ] {
        world.control.handle.submit("agent", Command::Report(report), Vec::new()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_too_quick_shows_its_log_once() {
    let world = world().await;
    world.put(&ws("jobs/j1"), job("echo hi")).await.expect(201);
    let details = format!("/history/v1.0{}", ws("runs/j1/details"));
    assert_eq!(world.get(&details).await.expect(200).body["status"], "Queued");
    run_to_the_end(&world).await;
    let arm = world.get(&ws("jobs/j1")).await.expect(200).body;
    assert_eq!(
        (&arm["properties"]["status"], &arm["properties"]["properties"]["neap.isolation"]),
        (&json!("Completed"), &json!("none"))
    );

    let first = world.get(&details).await.expect(200).body;
    assert_eq!(first["status"], "Finalizing");
    let url = first["logFiles"]["user_logs/std_log.txt"]
        .as_str()
        .unwrap()
        .trim_start_matches("https://127.0.0.1:8443")
        .to_owned();
    let open = |uri: &str| axum::http::Request::get(uri).body(axum::body::Body::empty()).unwrap();
    world.send(open(&url)).await.expect(200);
    world.send(open(&url.replace("for=ada", "for=eve"))).await.expect(403);
    world.send(open(&url.replace("/1?", "/2?"))).await.expect(403);
    assert_eq!(world.get(&details).await.expect(200).body["status"], "Completed");

    let data =
        world.post(&format!("/history/v1.0{}", ws("rundata")), json!({"runId": "j1"})).await.expect(200).body;
    let asset = data["runMetadata"]["outputs"]["o"]["assetId"].as_str().unwrap().to_owned();
    let resolved = world
        .post(
            &format!("/data/v1.0{}", ws("dataversion/batchGetResolvedUris")),
            json!({"values": [asset.clone()]}),
        )
        .await
        .expect(200)
        .body;
    assert!(
        resolved["values"][&asset]["uri"]
            .as_str()
            .unwrap()
            .ends_with("/datastores/workspaceblobstore/paths/azureml/j1/o/")
    );
    assert_eq!(
        world.get(&format!("/history/v1.0{}", ws("runs/j1/children"))).await.expect(200).body["value"],
        json!([])
    );

    assert_eq!(world.post(&ws("jobs/j1/cancel"), Value::Null).await.expect(409).code(), "JobAlreadyFinal");
}

#[tokio::test(flavor = "multi_thread")]
async fn neaps_own_words() {
    let world = world().await;
    world.put(&ws("jobs/j1"), job("echo hi")).await.expect(201);
    let nws = |tail: &str| {
        format!("/neap/v1{}", ws(tail).replace("/providers/Microsoft.MachineLearningServices", ""))
    };
    let status = world.get("/neap/v1/status").await.expect(200).body;
    assert_eq!((&status["clusters"], &status["jobs"]["queued"]), (&json!(1), &json!(1)));
    let explained = world.get(&nws("jobs/j1/explain")).await.expect(200).body;
    assert!(!explained["reasons"].as_array().unwrap().is_empty());
    let nodes = world.get(&nws("computes/cpu/nodes")).await.expect(200).body;
    assert_eq!(
        (&nodes["value"][0]["node_id"], &nodes["value"][0]["nominal"]["cpus"]),
        (&json!("n-1"), &json!(4.0))
    );
    world.get(&nws("computes/cpu/nodes/n-1/log")).await.expect(200);
    world.get(&nws("computes/cpu/nodes/n-7/log")).await.expect(404);
    assert_eq!(world.get("/neap/v1/openapi.json").await.expect(200).body["openapi"], "3.1.0");
    let log = world.get(&nws("jobs/j1/log?offset=0")).await.expect(200);
    assert_eq!((log.text.as_str(), log.header("x-neap-log-offset")), ("", "0"));

    // A follower ends with the job.
    let path = nws("jobs/j1/log?follow=true");
    let following = world.get(&path);
    let ending = async {
        tokio::task::yield_now().await;
        run_to_the_end(&world).await;
    };
    let (followed, ()) = tokio::join!(following, ending);
    followed.expect(200);
    let gone = world.get(&nws("computes/cpu/nodes?gone=true")).await.expect(200);
    assert_eq!(gone.body["value"].as_array().map(Vec::len), Some(1));
}
