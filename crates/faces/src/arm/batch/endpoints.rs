//! Batch endpoints: parse → problems → command → answer.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::{Map, Value, json};

use super::check_name;
use super::record::{self, Content, Kept, Which};
use crate::app::App;
use crate::arm::errors::{bad, not_supported};
use crate::arm::paths;
use crate::ask::Ask;
use crate::fields::{Fields, check_tags};
use crate::{limits, reply};

pub(super) fn get(app: &App, ask: &Ask, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let kept = record::find(app, workspace, Which::endpoint(name))?;
    Ok(reply::ok(&answer(ask, workspace, &kept)))
}

pub(super) fn list(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let kept = record::endpoints(app, workspace)?;
    let value: Vec<Value> = kept.iter().map(|kept| answer(ask, workspace, kept)).collect();
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

pub(super) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let before = record::look(app, workspace, Which::endpoint(name))?;
    let kept = write(app, ask, workspace, name, &ask.json()?, before.as_ref()).await?;
    let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(reply::json(status, &answer(ask, workspace, &kept)))
}

/// Fields that are there replace those that were.
pub(super) async fn patch(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let before = record::find(app, workspace, Which::endpoint(name))?;
    let body = merged(&before, &ask.json()?);
    let kept = write(app, ask, workspace, name, &body, Some(&before)).await?;
    Ok(reply::ok(&answer(ask, workspace, &kept)))
}

/// What is on record, with the fields of a body over it.
pub(super) fn merged(before: &Kept, body: &Value) -> Value {
    let mut properties = before.properties.as_object().cloned().unwrap_or_default();
    for (key, value) in body["properties"].as_object().into_iter().flatten() {
        properties.insert(key.clone(), value.clone());
    }
    let tags = if body["tags"].is_null() { &before.tags } else { &body["tags"] };
    json!({"tags": tags, "properties": properties})
}

async fn write(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    body: &Value,
    before: Option<&Kept>,
) -> Result<Kept, Refusal> {
    let there = record::deployments(app, workspace, name)?;
    let names: Vec<&str> = there.iter().filter(|_| before.is_some()).map(|kept| kept.name.as_str()).collect();
    let (content, mut problems) = read(body, &names);
    problems.extend(check_name(name, "endpoint"));
    if before.is_none() && record::endpoints(app, workspace)?.len() >= limits::BATCH_ENDPOINTS_MAX {
        let most = limits::BATCH_ENDPOINTS_MAX;
        let message = format!("The workspace has {most} batch endpoints; delete one that is not needed.");
        problems.push(Problem::new(Code::LimitReached, message));
    }
    Refusal::unless_empty(problems)?;
    if before.is_none() {
        // Of an endpoint that was deleted while somebody put a deployment.
        for left in &there {
            record::delete(app, &ask.caller, workspace, Which::deployment(name, &left.name)).await?;
        }
    }
    record::put(app, &ask.caller, workspace, Which::endpoint(name), before, content).await
}

/// What is kept of a body, and everything that is wrong with it. `deployments` are those of the endpoint.
fn read(body: &Value, deployments: &[&str]) -> (Content, Vec<Problem>) {
    let mut problems = Vec::new();
    let top = Fields::of(Some(body), "", &mut problems);
    let tags = top.strings("tags", &mut problems).unwrap_or_default();
    check_tags(&tags, "tags", &mut problems);
    let fields = top.object("properties", &mut problems);
    let mut properties = Map::new();
    if let Some(mode) = fields.text("authMode", &mut problems)
        && !mode.eq_ignore_ascii_case("aadToken")
    {
        let message = format!("Batch endpoints take tokens (authMode aadToken); '{mode}' is not supported.");
        problems.push(Problem::new(Code::NotSupported, message).at("properties.authMode"));
    }
    properties.insert("authMode".into(), json!("AADToken"));
    if let Some(description) = fields.text("description", &mut problems) {
        properties.insert("description".into(), json!(description));
    }
    let own = fields.strings("properties", &mut problems).unwrap_or_default();
    properties.insert("properties".into(), json!(own));
    if fields.value("keys").is_some() {
        let message = "Batch endpoints have no keys of their own; callers show a token.";
        problems.push(Problem::new(Code::NotSupported, message).at("properties.keys"));
    }
    let defaults = fields.object("defaults", &mut problems);
    if let Some(name) = defaults.text("deploymentName", &mut problems).filter(|name| !name.is_empty()) {
        if deployments.contains(&name) {
            properties.insert("defaults".into(), json!({"deploymentName": name}));
        } else {
            let message = format!(
                "The endpoint has no deployment '{name}' that could be its default{}.",
                such_as(deployments)
            );
            problems.push(bad(message, "properties.defaults.deploymentName"));
        }
    }
    (Content { tags: json!(tags), properties: Value::Object(properties), made: Value::Null }, problems)
}

/// The names there are, to end a sentence with.
pub(super) fn such_as(names: &[&str]) -> String {
    if names.is_empty() { "; it has none yet".into() } else { format!("; it has {}", names.join(", ")) }
}

/// Its deployments go with it, the endpoint last: a deletion that was cut short can be asked for again. Jobs stay.
pub(super) async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    if record::look(app, workspace, Which::endpoint(name))?.is_none() {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    for deployment in record::deployments(app, workspace, name)? {
        record::delete(app, &ask.caller, workspace, Which::deployment(name, &deployment.name)).await?;
    }
    record::delete(app, &ask.caller, workspace, Which::endpoint(name)).await?;
    Ok(reply::empty(StatusCode::OK))
}

/// An endpoint whose default is about to go has none.
pub(super) async fn forget_default(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    endpoint: &str,
    deployment: &str,
) -> Result<(), Refusal> {
    let mut kept = record::find(app, workspace, Which::endpoint(endpoint))?;
    if kept.properties["defaults"]["deploymentName"] != deployment {
        return Ok(());
    }
    if let Some(properties) = kept.properties.as_object_mut() {
        properties.remove("defaults");
    }
    let content = Content { tags: kept.tags.take(), properties: kept.properties.take(), made: Value::Null };
    record::put(app, &ask.caller, workspace, Which::endpoint(endpoint), Some(&kept), content).await.map(drop)
}

pub(super) fn no_keys(app: &App, workspace: &Workspace, name: &str) -> Result<Refusal, Refusal> {
    record::find(app, workspace, Which::endpoint(name))?;
    Ok(not_supported(format!(
        "The batch endpoint '{name}' takes tokens (authMode AADToken) and has no keys; show a token as for any other request."
    )))
}

pub(super) fn id(workspace: &Workspace, endpoint: &str) -> String {
    paths::child_id(workspace, &format!("batchEndpoints/{endpoint}"))
}

fn answer(ask: &Ask, workspace: &Workspace, kept: &Kept) -> Value {
    let id = id(workspace, &kept.name);
    let mut properties = kept.properties.as_object().cloned().unwrap_or_default();
    properties.entry("defaults").or_insert(Value::Null);
    properties.insert("provisioningState".into(), json!("Succeeded"));
    properties.insert("scoringUri".into(), json!(format!("{}{id}/jobs", ask.base)));
    properties.insert("swaggerUri".into(), Value::Null);
    json!({
        "id": id,
        "name": kept.name,
        "type": format!("{}/workspaces/batchEndpoints", paths::NAMESPACE),
        "location": workspace.location,
        "tags": kept.tags,
        "properties": properties,
        "systemData": kept.system_data(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_wrong_is_said_at_once() {
        let body = json!({
            "tags": {"a": []},
            "properties": {"authMode": "Key", "keys": {"primaryKey": "x"}, "defaults": {"deploymentName": "none"}},
        });
        let (_, problems) = read(&body, &["v1", "v2"]);
        let at: Vec<_> = problems.iter().filter_map(|problem| problem.target.as_deref()).collect();
        assert_eq!(
            at,
            ["tags.a", "properties.authMode", "properties.keys", "properties.defaults.deploymentName"]
        );
        assert!(problems[3].message.contains("it has v1, v2"), "{}", problems[3].message);
    }

    #[test]
    fn what_is_answered_can_be_put_again() {
        let body = json!({"location": "eastus", "tags": {"a": "1"}, "properties": {
            "authMode": "aadToken", "description": "d", "defaults": {"deploymentName": "v1"}, "provisioningState": "Succeeded",
            "scoringUri": "https://h/x/jobs", "swaggerUri": null, "properties": {}}});
        let (content, problems) = read(&body, &["v1"]);
        assert_eq!(problems, []);
        assert_eq!(
            content.properties,
            json!({"authMode": "AADToken", "description": "d", "properties": {}, "defaults": {"deploymentName": "v1"}})
        );
        let (again, problems) =
            read(&json!({"tags": content.tags, "properties": content.properties}), &["v1"]);
        assert_eq!((again.properties, problems), (content.properties, Vec::new()));
    }
}
