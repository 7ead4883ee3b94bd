//! Clusters over the ARM face: every rule of AmlCompute that a client can see.

use crate::world::{ML, SUB, World, cluster, ws};
use axum::http::Request;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_from_creation_to_deletion() {
    let world = World::new().await;
    let path = ws("computes/cpu-cluster");
    let made = world.put(&path, cluster(4)).await.expect(201).body;
    assert_eq!(made["properties"]["provisioningState"], "Succeeded");
    assert_eq!(made["properties"]["properties"]["vmSize"], "STANDARD_DS3_V2");
    assert_eq!(made["properties"]["properties"]["vmPriority"], "Dedicated");
    assert_eq!(made["properties"]["properties"]["scaleSettings"]["nodeIdleTimeBeforeScaleDown"], "PT2M");

    // What GET answers can be sent back, in any case of the path.
    let got = world.get(&path).await.expect(200).body;
    let again = world
        .put(
            &path.replace("resourceGroups", "resourcegroups").replace("/subscriptions", "//subscriptions"),
            got.clone(),
        )
        .await;
    assert_eq!(
        again.expect(200).body["properties"]["properties"]["scaleSettings"],
        got["properties"]["properties"]["scaleSettings"]
    );

    // Both shapes of PATCH change only what they name.
    world
        .call("PATCH", &path, Some(json!({"properties": {"scaleSettings": {"maxNodeCount": 8}}})))
        .await
        .expect(200);
    let patched = world
        .call("PATCH", &path, Some(json!({"properties": {"properties": {"scaleSettings": {"nodeIdleTimeBeforeScaleDown": "PT0S"}}}})))
        .await
        .expect(200);
    assert_eq!(
        patched.body["properties"]["properties"]["scaleSettings"],
        json!({"minNodeCount": 0, "maxNodeCount": 8, "nodeIdleTimeBeforeScaleDown": "PT0S"})
    );
    let listed = world.get(&ws("computes")).await.expect(200);
    assert_eq!(listed.body["value"].as_array().map(Vec::len), Some(1));
    let nodes = world.post(&format!("{path}/listNodes"), Value::Null).await.expect(200);
    assert_eq!(nodes.body["nodes"], json!([]));

    let deleted =
        world.call("DELETE", &format!("{path}?underlyingResourceAction=Delete"), None).await.expect(202);
    let status =
        deleted.header("azure-asyncoperation").trim_start_matches("https://127.0.0.1:8443").to_owned();
    assert_eq!(deleted.header("x-ms-retry-after-ms"), "200");
    assert_eq!(deleted.header("retry-after"), "");
    assert_eq!(world.get(&status).await.expect(200).body["status"], "Succeeded");
    assert_eq!(world.get(&path).await.expect(404).code(), "ResourceNotFound");
    world.call("DELETE", &path, None).await.expect(204);
    let never = status.replace("delete-cluster-1", "delete-cluster-99");
    assert_eq!(world.get(&never).await.expect(404).code(), "OperationNotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_wrong_is_said_in_one_error() {
    let world = World::new().await;
    let body = json!({"location": "atlantis", "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "Standard_Nope", "vmPriority": "sometimes",
        "scaleSettings": {"minNodeCount": 5, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": "-PT5S"}, "osType": "Windows"}}});
    let refused = world.put(&ws("computes/cpu-1"), body).await.expect(400);
    let codes: Vec<_> = refused.body["error"]["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["code"].as_str().unwrap())
        .collect();
    for code in [
        "NotSupported",
        "InvalidScaleSettings",
        "InvalidResourceName",
        "LocationNotAvailable",
        "InvalidVmSize",
        "BadArgument",
    ] {
        assert!(codes.contains(&code), "{code} in {codes:?}");
    }
    assert_eq!(refused.header("retry-after"), "");
    assert!(
        refused.body["error"]["additionalInfo"][0]["info"]["page"]
            .as_str()
            .unwrap()
            .starts_with("docs/errors/")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_change_is_refused_in_words() {
    let world = World::new().await;
    let path = ws("computes/abc");
    let mut first = cluster(2);
    first["properties"]["disableLocalAuth"] = json!(false);
    first["properties"]["properties"]["userAccountCredentials"] =
        json!({"adminUserName": "u", "adminUserPassword": "secret-pw", "adminUserSshPublicKey": "k"});
    first["identity"] = json!({"type": "Systemassigned"});
    let made = world.put(&path, first.clone()).await.expect(201);
    assert!(!made.text.contains("secret-pw"));
    assert_eq!(made.body["identity"]["type"], "SystemAssigned");
    assert_eq!(made.body["identity"]["principalId"].as_str().map(str::len), Some(36));
    assert_eq!(made.body["properties"]["properties"]["neapWarnings"].as_array().map(Vec::len), Some(3));
    world.put(&path, first.clone()).await.expect(200);
    for (at, value) in [
        ("/location", json!("eastus")),
        ("/properties/properties/vmSize", json!("STANDARD_DS2_v2")),
        ("/properties/properties/vmPriority", json!("LowPriority")),
        ("/properties/properties/subnet", json!({"id": "/x"})),
        ("/properties/properties/enableNodePublicIp", json!(false)),
        ("/properties/properties/remoteLoginPortPublicAccess", json!("Enabled")),
        ("/properties/properties/userAccountCredentials/adminUserPassword", json!("other")),
        ("/properties/properties/userAccountCredentials/adminUserSshPublicKey", json!("k2")),
    ] {
        let mut changed = first.clone();
        let (parent, key) = at.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[key] = value;
        let refused = world.put(&path, changed).await.expect(400);
        assert_eq!(refused.code(), "PropertyChangeNotAllowed", "{at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_unique_in_a_region_across_workspaces() {
    let world = World::new().await;
    world.put(&ws("computes/shared"), cluster(1)).await.expect(201);
    let other = ws("").replace("workspaces/default", "workspaces/other");
    world.put(&other, json!({"location": "westus"})).await.expect(201);
    let refused = world.put(&format!("{other}/computes/SHARED"), cluster(1)).await.expect(409);
    assert_eq!(refused.code(), "ComputeNameTaken");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_neap_does_not_have_says_what_to_use() {
    let world = World::new().await;
    world.put(&ws("computes/abc"), cluster(1)).await.expect(201);
    for (method, path, body) in [
        (
            "PUT",
            ws("computes/ci"),
            json!({"location": "westus", "properties": {"computeType": "ComputeInstance", "properties": {}}}),
        ),
        ("POST", ws("computes/abc/start"), Value::Null),
        ("POST", ws("computes/abc/stop"), Value::Null),
        ("PUT", ws("onlineEndpoints/e"), json!({})),
        ("POST", ws("listKeys"), Value::Null),
    ] {
        let refused = world.call(method, &path, Some(body)).await.expect(400);
        assert_eq!(refused.code(), "NotSupported", "{path}");
    }
    world.get(&ws("nonsense")).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn before_and_around_the_clusters() {
    let world = World::new().await;
    let open = Request::get("//metadata/endpoints?api-version=2022-09-01")
        .header("host", "h:1")
        .body(axum::body::Body::empty())
        .unwrap();
    assert_eq!(world.send(open).await.expect(200).body["resourceManager"], "https://h:1/");
    let closed = Request::get("/subscriptions").body(axum::body::Body::empty()).unwrap();
    let refused = world.send(closed).await.expect(401);
    assert_eq!(refused.code(), "AuthenticationFailed");
    assert!(refused.header("www-authenticate").starts_with("Bearer"));
    assert!(!refused.header("x-ms-request-id").is_empty());
    assert_eq!(
        world.get("/subscriptions?api-version=2022-12-01").await.expect(200).body["value"][0]["subscriptionId"],
        SUB
    );
    let provider = world.get(&format!("/subscriptions/{SUB}/{ML}")).await.expect(200);
    assert!(provider.text.contains("workspaces/computes"));
    let sizes = world.get(&format!("/subscriptions/{SUB}/{ML}/locations/westus/vmSizes")).await.expect(200);
    assert!(sizes.body["value"].as_array().unwrap().len() > 100);
    world.put(&ws("computes/abc"), cluster(3)).await.expect(201);
    let usages = world.get(&format!("/subscriptions/{SUB}/{ML}/locations/westus/usages")).await.expect(200);
    let dedicated = usages.body["value"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"]["value"] == "Total Cluster Dedicated Regional vCPUs")
        .unwrap();
    assert_eq!((&dedicated["currentValue"], &dedicated["current_value"]), (&json!(12), &json!(12)));
    let resources = world
        .get(&format!("/subscriptions/{SUB}/resources?$filter=resourceGroup%20eq%20%27neap%27"))
        .await
        .expect(200);
    assert_eq!(resources.body["value"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        world.get("/subscriptions/other/resourceGroups/neap").await.expect(404).code(),
        "ResourceGroupNotFound"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_makes_a_workspace_and_a_cluster() {
    let world = World::new().await;
    let at = format!(
        "/subscriptions/{SUB}/resourcegroups/neap/providers/Microsoft.Resources/deployments/new1-9?api-version=2020-06-01"
    );
    let body = json!({"properties": {"mode": "incremental", "parameters": {"name": {"value": "new1"}, "location": {"value": "westus"}},
        "template": {"parameters": {"name": {"type": "string"}, "location": {"type": "string"}}, "resources": [
            {"type": "Microsoft.Storage/storageAccounts", "name": "sa"},
            {"type": "Microsoft.MachineLearningServices/workspaces", "name": "[parameters('name')]", "location": "[parameters('location')]", "properties": {"friendlyName": "f"}},
            {"type": "Microsoft.MachineLearningServices/workspaces/computes", "name": "[concat(parameters('name'), '/gpu-x')]", "location": "[parameters('location')]",
             "properties": {"computeType": "AmlCompute", "properties": {"vmSize": "STANDARD_DS3_V2"}}}]}}});
    let made = world.put(&at, body.clone()).await.expect(201);
    assert_eq!(made.body["properties"]["provisioningState"], "Succeeded");
    assert_eq!(made.body["properties"]["neapNotes"].as_array().map(Vec::len), Some(1));
    let workspace = ws("").replace("workspaces/default", "workspaces/new1");
    assert_eq!(world.get(&workspace).await.expect(200).body["properties"]["friendlyName"], "f");
    world.get(&format!("{workspace}/computes/gpu-x")).await.expect(200);
    world.get(&at).await.expect(200);
    let operations = world.get(&at.replace("?", "/operations?")).await.expect(200);
    assert_eq!(operations.body["value"].as_array().map(Vec::len), Some(2));
    world.put(&at, body).await.expect(200);
    world.call("DELETE", &workspace, None).await.expect(202);
}

/// The template that a released client sends, where the reference beside the project has it.
#[tokio::test(flavor = "multi_thread")]
async fn the_sdks_own_workspace_template() {
    let at = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/reference/exchanges/workspace_create.json");
    let Ok(text) = std::fs::read_to_string(&at) else {
        #[allow(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: the recorded exchange is not beside the project");
        }
        return;
    };
    let exchanges: Value = serde_json::from_str(&text).unwrap();
    let sent = exchanges.as_array().unwrap().iter().find(|e| e["method"] == "PUT").unwrap();
    let world = World::new().await;
    world
        .put(&format!("/subscriptions/{SUB}/resourceGroups/rg1"), json!({"location": "eastus"}))
        .await
        .expect(201);
    let path = sent["path"].as_str().unwrap().replace("00000000-0000-0000-0000-00000000000a", SUB);
    let made = world.put(&path, sent["request_body"].clone()).await.expect(201);
    assert_eq!(made.body["properties"]["provisioningState"], "Succeeded");
    let workspace =
        world.get(&format!("/subscriptions/{SUB}/resourceGroups/rg1/{ML}/workspaces/new1")).await.expect(200);
    assert_eq!(workspace.body["tags"]["createdByToolkit"], "sdk-v2-1.35.2");
}
