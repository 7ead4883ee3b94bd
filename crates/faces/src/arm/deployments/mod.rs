//! Template deployments, as far as they make workspaces and clusters. A deployment is whole when it is answered, and
//! is remembered as an asset of the workspace it was for.

mod allowance;
mod expression;
mod functions;
mod parser;
mod template;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::documents::AssetDocument;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Problem, Refusal};
use serde_json::{Value, json};

use self::template::{Planned, Scope};
use super::{computes, errors, groups, paths, workspaces};
use crate::app::{self, App, unreadable};
use crate::ask::Ask;
use crate::reply;

const KIND: &str = "deployment";

pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    subscription: &str,
    group: &str,
    rest: &[&str],
) -> Result<Response, Refusal> {
    match (ask.method.as_str(), rest) {
        ("PUT", [name]) => put(app, ask, subscription, group, name).await,
        ("GET", []) => list(app, subscription, group),
        ("GET", [name]) => Ok(reply::ok(&find(app, subscription, group, name)?)),
        ("HEAD", [name]) => {
            let found = find(app, subscription, group, name).is_ok();
            Ok(reply::empty(if found { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }))
        }
        ("GET", [name, "operations"]) => operations(app, subscription, group, name),
        // It never takes long enough to be canceled.
        ("POST", [_, "cancel"]) => Err(Refusal::because(
            Code::JobAlreadyFinal,
            "The deployment has already ended and cannot be canceled.",
        )),
        ("POST", [name, "validate"]) => validate(app, ask, subscription, group, name),
        _ => Err(errors::no_such_path(ask)),
    }
}

fn scope(app: &App, subscription: &str, group: &str, name: &str) -> Result<Scope, Refusal> {
    super::subscriptions::check(app, subscription)?;
    let state = app.state();
    let group = groups::find(&state, subscription, group)?;
    Ok(Scope {
        subscription: subscription.into(),
        tenant: app.installation.tenant_id.clone(),
        group: group.name.to_string(),
        location: group.location.to_string(),
        deployment: name.into(),
    })
}

fn validate(app: &App, ask: &Ask, subscription: &str, group: &str, name: &str) -> Result<Response, Refusal> {
    let plan = template::plan(&ask.json()?, &scope(app, subscription, group, name)?)?;
    Ok(reply::ok(
        &json!({"properties": {"provisioningState": "Succeeded", "validatedResources": plan.resources.iter().map(|r| json!({"id": r.id})).collect::<Vec<_>>()}}),
    ))
}

async fn put(app: &App, ask: &Ask, subscription: &str, group: &str, name: &str) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let scope = scope(app, subscription, group, name)?;
    let plan = template::plan(&body, &scope)?;
    if !plan
        .resources
        .iter()
        .any(|resource| matches!(resource.kind, Planned::Workspace { .. } | Planned::Compute { .. }))
    {
        return Err(errors::not_supported(
            "The template makes no workspace and no compute cluster; Neap deploys nothing else.",
        ));
    }
    let mut touched: Option<Arc<Workspace>> = None;
    for resource in &plan.resources {
        match &resource.kind {
            Planned::Workspace { name } => {
                workspaces::write(app, ask, subscription, &scope.group, name, &resource.body).await?;
                touched = Some(workspaces::find(&app.state(), subscription, &scope.group, name)?);
            }
            Planned::Compute { workspace, name } => {
                let workspace = workspaces::find(&app.state(), subscription, &scope.group, workspace)?;
                computes::put_body(app, ask, &workspace, name, &resource.body).await?;
                touched = Some(workspace);
            }
            // Storage, vaults and the like: a workspace of Neap brings its own.
            Planned::NotNeeded => {}
        }
    }
    let answer = deployment(app, &scope, &body, &plan);
    let existed = find(app, subscription, group, name).is_ok();
    if let Some(workspace) = touched {
        let document = AssetDocument {
            properties: answer.clone(),
            created_by: ask.caller.actor.clone(),
            created_ms: app.now().0,
            sealed_secret: None,
        };
        let kept = app::document(&document)?;
        let command = Command::PutAsset {
            workspace: workspace.id,
            kind: KIND.into(),
            name: name.into(),
            version: "1".into(),
            document: kept.hash,
            content: None,
        };
        app.submit(&ask.caller, command, vec![kept]).await?;
    }
    Ok(reply::json(if existed { StatusCode::OK } else { StatusCode::CREATED }, &answer))
}

fn deployment(app: &App, scope: &Scope, body: &Value, plan: &template::Plan) -> Value {
    let notes: Vec<String> = plan
        .resources
        .iter()
        .filter(|resource| matches!(resource.kind, Planned::NotNeeded))
        .map(|resource| {
            format!(
                "'{}' is not made: a workspace of Neap brings its own storage, secrets and logs.",
                resource.id
            )
        })
        .collect();
    json!({
        "id": format!("{}/providers/Microsoft.Resources/deployments/{}", paths::group_id(&scope.subscription, &scope.group), scope.deployment),
        "name": scope.deployment,
        "type": "Microsoft.Resources/deployments",
        "properties": {
            "provisioningState": "Succeeded",
            "mode": body["properties"]["mode"].as_str().unwrap_or("Incremental"),
            "timestamp": app.now().rfc3339(),
            "duration": "PT0S",
            "correlationId": paths::derived_guid(&[&app.installation.id, "deployment", &scope.group, &scope.deployment]),
            "parameters": plan.parameters,
            "outputs": plan.outputs,
            "outputResources": plan.resources.iter().filter(|r| !matches!(r.kind, Planned::NotNeeded)).map(|r| json!({"id": r.id})).collect::<Vec<_>>(),
            "providers": [],
            "dependencies": [],
            "neapNotes": notes,
        },
    })
}

fn of_group(app: &App, subscription: &str, group: &str) -> Result<Vec<Arc<Workspace>>, Refusal> {
    let state = app.state();
    groups::find(&state, subscription, group)?;
    Ok(state
        .workspaces
        .values()
        .filter(|w| w.subscription.eq_ignore_ascii_case(subscription) && w.group.eq_ignore_ascii_case(group))
        .cloned()
        .collect())
}

fn find(app: &App, subscription: &str, group: &str, name: &str) -> Result<Value, Refusal> {
    for workspace in of_group(app, subscription, group)? {
        if let Some(row) = app.control.reader().asset(workspace.id, KIND, name, "1").map_err(unreadable)? {
            return Ok(app.document::<AssetDocument>(&row.document)?.properties);
        }
    }
    Err(Problem::new(Code::ResourceNotFound, format!("Deployment '{name}' could not be found.")).into())
}

fn list(app: &App, subscription: &str, group: &str) -> Result<Response, Refusal> {
    let mut value = Vec::new();
    for workspace in of_group(app, subscription, group)? {
        for row in app.control.reader().asset_names(workspace.id, KIND).map_err(unreadable)? {
            value.push(app.document::<AssetDocument>(&row.document)?.properties);
        }
    }
    Ok(reply::ok(&json!({"value": value})))
}

fn operations(app: &App, subscription: &str, group: &str, name: &str) -> Result<Response, Refusal> {
    let deployment = find(app, subscription, group, name)?;
    let value: Vec<Value> = deployment["properties"]["outputResources"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(index, resource)| {
            let id = resource["id"].as_str().unwrap_or("");
            let (kind, resource_name) = if let Some((_, name)) = id.split_once("/computes/") {
                ("Microsoft.MachineLearningServices/workspaces/computes", name)
            } else {
                ("Microsoft.MachineLearningServices/workspaces", id.rsplit('/').next().unwrap_or(""))
            };
            json!({
                "id": format!("{}/operations/{index}", deployment["id"].as_str().unwrap_or("")),
                "operationId": index.to_string(),
                "properties": {
                    "provisioningOperation": "Create",
                    "provisioningState": "Succeeded",
                    "timestamp": deployment["properties"]["timestamp"],
                    "duration": "PT0S",
                    "statusCode": "OK",
                    "targetResource": {"id": id, "resourceType": kind, "resourceName": resource_name},
                },
            })
        })
        .collect();
    Ok(reply::ok(&json!({"value": value})))
}
