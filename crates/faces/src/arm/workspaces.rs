//! Workspaces: the place that clusters, jobs and assets belong to.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::command::PutWorkspace;
use neap_core::documents::PlaceDocument;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Problem, Refusal, State};
use serde_json::{Map, Value, json};

use super::errors::not_supported;
use super::lro::{self, Operation};
use super::paths;
use crate::app::{self, App};
use crate::ask::Ask;
use crate::fields::{Fields, check_tags};
use crate::reply;

/// The workspace, or Azure's words for its absence.
pub(crate) fn find(
    state: &State,
    subscription: &str,
    group: &str,
    name: &str,
) -> Result<Arc<Workspace>, Refusal> {
    if let Some(workspace) = state.workspace(subscription, group, name) {
        return Ok(workspace.clone());
    }
    super::groups::find(state, subscription, group)?;
    Err(Refusal::because(
        Code::ResourceNotFound,
        format!(
            "The Resource 'Microsoft.MachineLearningServices/workspaces/{name}' under resource group '{group}' was not found."
        ),
    ))
}

pub(crate) fn answer(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Value, Refusal> {
    let document: PlaceDocument = app.document(&workspace.document)?;
    let words = [app.installation.id.as_str(), "workspace", &workspace.id.to_string()];
    let mut properties = match document.properties {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let account = crate::workspace_files::account(workspace.id);
    let storage = format!(
        "{}/providers/Microsoft.Storage/storageAccounts/{account}",
        paths::group_id(&workspace.subscription, &workspace.group)
    );
    for (key, default) in [
        ("friendlyName", json!(workspace.name)),
        ("description", json!("")),
        ("publicNetworkAccess", json!("Enabled")),
        ("hbiWorkspace", json!(false)),
    ] {
        properties.entry(key).or_insert(default);
    }
    for (key, value) in [
        ("workspaceId", json!(paths::derived_guid(&words))),
        ("discoveryUrl", json!(format!("{}/discovery", ask.base))),
        ("mlFlowTrackingUri", json!(crate::mlflow::tracking_uri(&ask.base, workspace))),
        ("storageAccount", json!(storage)),
        ("keyVault", Value::Null),
        ("applicationInsights", Value::Null),
        ("containerRegistry", Value::Null),
        ("creationTime", json!(workspace.created.rfc3339())),
        ("provisioningState", json!(if workspace.deleting { "Deleting" } else { "Succeeded" })),
        ("tenantId", json!(app.installation.tenant_id)),
        ("v1LegacyMode", json!(false)),
    ] {
        properties.insert(key.into(), value);
    }
    Ok(json!({
        "id": paths::workspace_id(workspace),
        "name": workspace.name,
        "type": "Microsoft.MachineLearningServices/workspaces",
        "location": workspace.location,
        "tags": document.tags,
        "kind": "Default",
        "sku": {"name": "Basic", "tier": "Basic"},
        "identity": identity(app, workspace, document.identity.as_ref()),
        "systemData": super::system_data("", workspace.created, workspace.modified),
        "properties": properties,
    }))
}

fn identity(app: &App, workspace: &Workspace, asked: Option<&Value>) -> Value {
    let mut identity = asked.cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
    identity["type"] = json!("SystemAssigned");
    identity["principalId"] =
        json!(paths::derived_guid(&[&app.installation.id, "workspace-principal", &workspace.id.to_string()]));
    identity["tenantId"] = json!(app.installation.tenant_id);
    identity
}

pub(crate) fn list(
    app: &App,
    ask: &Ask,
    subscription: &str,
    group: Option<&str>,
) -> Result<Response, Refusal> {
    super::subscriptions::check(app, subscription)?;
    let state = app.state();
    if let Some(group) = group {
        super::groups::find(&state, subscription, group)?;
    }
    let value: Vec<Value> = state
        .workspaces
        .values()
        .filter(|w| {
            w.subscription.eq_ignore_ascii_case(subscription)
                && group.is_none_or(|g| w.group.eq_ignore_ascii_case(g))
        })
        .map(|w| answer(app, ask, w))
        .collect::<Result<_, _>>()?;
    Ok(reply::ok(&json!({"value": value})))
}

pub(crate) fn get(
    app: &App,
    ask: &Ask,
    subscription: &str,
    group: &str,
    name: &str,
) -> Result<Response, Refusal> {
    let workspace = find(&app.state(), subscription, group, name)?;
    Ok(reply::ok(&answer(app, ask, &workspace)?))
}

/// PUT and PATCH: what is absent stays as it is.
pub(crate) async fn put(
    app: &App,
    ask: &Ask,
    subscription: &str,
    group: &str,
    name: &str,
) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let created = write(app, ask, subscription, group, name, &body).await?;
    let workspace = find(&app.state(), subscription, group, name)?;
    Ok(reply::json(
        if created { StatusCode::CREATED } else { StatusCode::OK },
        &answer(app, ask, &workspace)?,
    ))
}

pub(crate) async fn patch(
    app: &App,
    ask: &Ask,
    subscription: &str,
    group: &str,
    name: &str,
) -> Result<Response, Refusal> {
    find(&app.state(), subscription, group, name)?;
    put(app, ask, subscription, group, name).await
}

/// Creates or updates from a resource body; says whether it was created. Used by PUT and by template deployments.
pub(crate) async fn write(
    app: &App,
    ask: &Ask,
    subscription: &str,
    group: &str,
    name: &str,
    body: &Value,
) -> Result<bool, Refusal> {
    super::subscriptions::check(app, subscription)?;
    let state = app.state();
    super::groups::find(&state, subscription, group)?;
    let current = state.workspace(subscription, group, name);
    let mut document: PlaceDocument = match current {
        Some(workspace) => app.document(&workspace.document)?,
        None => PlaceDocument::default(),
    };
    let mut problems = Vec::new();
    let location = read(body, &mut document, &mut problems);
    let kept = app::document(&document)?;
    let command = Command::PutWorkspace(PutWorkspace {
        subscription: subscription.into(),
        group: group.into(),
        name: name.into(),
        location: location.map(Into::into),
        document: kept.hash,
        problems,
    });
    app.submit(&ask.caller, command, vec![kept]).await?;
    if current.is_none() {
        let workspace = find(&app.state(), subscription, group, name)?;
        crate::workspace_files::open_workspace(app, workspace.id).await?;
    }
    Ok(current.is_none())
}

/// Takes from the body what a workspace keeps; the location comes back canonical.
fn read(body: &Value, document: &mut PlaceDocument, problems: &mut Vec<Problem>) -> Option<String> {
    let fields = Fields::of(Some(body), "", problems);
    if let Some(kind) = fields.text("kind", problems)
        && !kind.eq_ignore_ascii_case("default")
    {
        problems.push(
            Problem::new(Code::NotSupported, format!("Workspaces of kind '{kind}' are not supported; leave 'kind' out for an ordinary workspace.")).at("kind"),
        );
    }
    if let Some(tags) = fields.strings("tags", problems) {
        check_tags(&tags, "tags", problems);
        document.tags = tags;
    }
    if let Some(identity) = fields.value("identity") {
        document.identity = Some(identity.clone());
    }
    let properties = fields.object("properties", problems);
    if properties.is_present() {
        let mut kept = match std::mem::take(&mut document.properties) {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        for (key, value) in properties.entries() {
            kept.insert(key.clone(), value.clone());
        }
        document.properties = Value::Object(kept);
    }
    fields.text("location", problems).map(neap_core::names::canonical_location)
}

pub(crate) async fn delete(
    app: &App,
    ask: &Ask,
    subscription: &str,
    group: &str,
    name: &str,
) -> Result<Response, Refusal> {
    let state = app.state();
    let Some(workspace) = state.workspace(subscription, group, name) else {
        super::groups::find(&state, subscription, group)?;
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    if !workspace.deleting {
        app.submit(&ask.caller, Command::DeleteWorkspace { workspace: workspace.id }, Vec::new()).await?;
    }
    Ok(lro::accepted(
        ask,
        &workspace.subscription,
        &workspace.location,
        Operation::DeleteWorkspace(workspace.id),
    ))
}

/// Calls on a workspace that Azure has and Neap does not.
pub(crate) fn refused_action(action: &str) -> Refusal {
    not_supported(format!(
        "'{action}' is not supported on a workspace: storage, keys and identity belong to the Neap installation itself. Datastore secrets come from 'datastores/{{name}}/listSecrets'."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_body_is_read_and_merged() {
        let mut document = PlaceDocument {
            properties: json!({"description": "old", "friendlyName": "f"}),
            ..PlaceDocument::default()
        };
        let mut problems = Vec::new();
        let body = json!({"location": "West US", "tags": {"a": "b"}, "kind": "default", "properties": {"description": "new", "keyVault": null}});
        assert_eq!(read(&body, &mut document, &mut problems).as_deref(), Some("westus"));
        assert_eq!(document.properties, json!({"description": "new", "friendlyName": "f"}));
        assert!(problems.is_empty());
        read(&json!({"kind": "hub", "tags": [], "location": 3}), &mut document, &mut problems);
        assert_eq!(problems.len(), 3);
    }
}
