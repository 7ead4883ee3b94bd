//! Datastores: the workspace's own two, and records of others. Secrets are sealed and leave only by `listSecrets`.

use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use neap_core::documents::AssetDocument;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Millis, Problem, Refusal};
use neap_storage::foreign::{Definition, container_of_datastore, is_foreign};
use serde_json::{Value, json};

use super::{errors, paths, system_data};
use crate::app::{self, App, internal, unreadable};
use crate::ask::Ask;
use crate::elsewhere::{self, DATASTORE as KIND, DATASTORE_VERSION as VERSION};
use crate::fields::Fields;
use crate::reply;
use crate::workspace_files::{self, ARTIFACT_STORE, BLOB_STORE, container_of};

fn envelope(workspace: &Workspace, name: &str, properties: &Value, by: &str, created: Millis) -> Value {
    json!({
        "id": paths::child_id(workspace, &format!("datastores/{name}")),
        "name": name,
        "type": "Microsoft.MachineLearningServices/workspaces/datastores",
        "properties": properties,
        "systemData": system_data(by, created, created),
    })
}

/// Clients build blob URLs as `https://{accountName}.blob.core.windows.net`, so the account's name carries our host.
fn built_in(ask: &Ask, workspace: &Workspace, name: &str, container: &str) -> Value {
    let account = workspace_files::account(workspace.id);
    let properties = json!({
        "datastoreType": "AzureBlob",
        "accountName": format!("{}/{account}", ask.authority()),
        "containerName": container,
        "endpoint": "core.windows.net",
        "protocol": "https",
        "isDefault": name == BLOB_STORE,
        "credentials": {"credentialsType": "Sas"},
        "serviceDataAccessAuthIdentity": "None",
        "description": null,
        "tags": {},
        "properties": {},
    });
    envelope(workspace, name, &properties, "", workspace.created)
}

/// Neap's own kinds, which clients have no word for, are shown as containers of this server, through which their blobs
/// are reached; what they truly are stands beside it.
fn shown(ask: &Ask, workspace: &Workspace, name: &str, properties: &Value) -> Value {
    let kind = properties["datastoreType"].as_str().unwrap_or_default();
    if !is_own_kind(kind) {
        return properties.clone();
    }
    let mut shown = properties.clone();
    let account = workspace_files::account(workspace.id);
    shown["neap"] = properties.clone();
    for (key, value) in [
        ("datastoreType", json!("AzureBlob")),
        ("accountName", json!(format!("{}/{account}", ask.authority()))),
        ("containerName", json!(container_of_datastore(name))),
        ("endpoint", json!("core.windows.net")),
        ("protocol", json!("https")),
        ("credentials", json!({"credentialsType": "Sas"})),
        ("serviceDataAccessAuthIdentity", json!("None")),
    ] {
        shown[key] = value;
    }
    shown["properties"]["neap.datastoreType"] = json!(kind);
    shown
}

fn is_own_kind(kind: &str) -> bool {
    matches!(kind, elsewhere::S3_TYPE | elsewhere::FOLDER_TYPE)
}

fn built_ins(ask: &Ask, workspace: &Workspace) -> Vec<Value> {
    [BLOB_STORE, ARTIFACT_STORE]
        .into_iter()
        .filter_map(|name| container_of(name).map(|container| built_in(ask, workspace, name, container)))
        .collect()
}

fn find(app: &App, workspace: &Workspace, name: &str) -> Result<(AssetDocument, Millis), Refusal> {
    let row = app.control.reader().asset(workspace.id, KIND, name, VERSION).map_err(unreadable)?.ok_or_else(
        || Refusal::because(Code::ResourceNotFound, format!("Could not find datastore: {name}.")),
    )?;
    Ok((app.document(&row.document)?, row.created))
}

pub(crate) fn list(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let mut value = built_ins(ask, workspace);
    if ask.query.flag("isDefault") {
        value.truncate(1);
    } else {
        for row in app.control.reader().asset_names(workspace.id, KIND).map_err(unreadable)? {
            let document: AssetDocument = app.document(&row.document)?;
            value.push(envelope(
                workspace,
                &row.name,
                &shown(ask, workspace, &row.name, &document.properties),
                &document.created_by,
                row.created,
            ));
        }
    }
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

pub(crate) fn get(app: &App, ask: &Ask, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    if let Some(container) = container_of(name) {
        return Ok(reply::ok(&built_in(ask, workspace, &name.to_lowercase(), container)));
    }
    let (document, created) = find(app, workspace, name)?;
    let properties = shown(ask, workspace, name, &document.properties);
    Ok(reply::ok(&envelope(workspace, name, &properties, &document.created_by, created)))
}

pub(crate) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    if container_of(name).is_some() {
        return Err(Refusal::because(
            Code::PropertyChangeNotAllowed,
            format!("The datastore '{name}' is the workspace's own and cannot be changed."),
        ));
    }
    let body = ask.json()?;
    let mut problems = Vec::new();
    let fields = Fields::of(body.get("properties"), "properties", &mut problems);
    if fields.text("datastoreType", &mut problems).is_none() {
        problems.push(errors::bad(
            "A datastore needs a 'datastoreType', for example AzureBlob.",
            "properties.datastoreType",
        ));
    }
    let good = (1..=255).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !good {
        problems.push(errors::bad(
            format!("'{name}' cannot name a datastore: letters, digits, '_' and '-' can."),
            "name",
        ));
    }
    if fields.flag("isDefault", &mut problems) == Some(true) {
        problems.push(errors::bad(
            "Another default datastore is not supported yet; it is workspaceblobstore.",
            "properties.isDefault",
        ));
    }
    let mut properties = body["properties"].clone();
    let existing = find(app, workspace, name).ok();
    problems.extend(check(app, workspace, name, &properties, existing.as_ref().map(|(found, _)| found))?);
    Refusal::unless_empty(problems)?;
    let secrets = properties["credentials"]
        .as_object_mut()
        .and_then(|credentials| credentials.remove("secrets"))
        .filter(|s| !s.is_null());
    properties["isDefault"] = json!(false);
    for key in ["tags", "properties"] {
        if !properties[key].is_object() {
            properties[key] = json!({});
        }
    }
    let sealed_secret = match secrets {
        Some(secrets) => {
            let sealed = app
                .vault
                .seal(&elsewhere::vault_name(workspace.id, name), secrets.to_string().as_bytes())
                .map_err(|e| internal(e.to_string()))?;
            Some(STANDARD.encode(sealed))
        }
        // A GET sent back carries no secrets: they stay.
        None => existing.as_ref().and_then(|(document, _)| document.sealed_secret.clone()),
    };
    let now = app.now();
    let document =
        AssetDocument { properties, created_by: ask.caller.actor.clone(), created_ms: now.0, sealed_secret };
    let kept = app::document(&document)?;
    let command = Command::PutAsset {
        workspace: workspace.id,
        kind: KIND.into(),
        name: name.into(),
        version: VERSION.into(),
        document: kept.hash,
        content: None,
    };
    app.submit(&ask.caller, command, vec![kept]).await?;
    let status = if existing.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let properties = shown(ask, workspace, name, &document.properties);
    Ok(reply::json(status, &envelope(workspace, name, &properties, &document.created_by, now)))
}

/// What is wrong with the definition of a datastore that jobs could use. Other types are kept as they came.
fn check(
    app: &App,
    workspace: &Workspace,
    name: &str,
    properties: &Value,
    existing: Option<&AssetDocument>,
) -> Result<Vec<Problem>, Refusal> {
    let kind = properties["datastoreType"].as_str().unwrap_or_default();
    if !matches!(kind, "AzureBlob" | "AzureDataLakeGen2" | elsewhere::S3_TYPE | elsewhere::FOLDER_TYPE) {
        return Ok(Vec::new());
    }
    if properties["containerName"].as_str().is_some_and(is_foreign) {
        let message = format!(
            "This is how the datastore '{name}' is shown, not what it is; send its own definition, which is under 'neap' in the answer."
        );
        return Ok(vec![errors::bad(message, "properties.containerName")]);
    }
    let given = Some(&properties["credentials"]["secrets"]).filter(|secrets| !secrets.is_null()).cloned();
    let secrets = match (given, existing) {
        (Some(secrets), _) => Some(secrets),
        (None, Some(existing)) => elsewhere::opened_secrets(app, workspace.id, name, existing)?,
        (None, None) => None,
    };
    let mut problems =
        elsewhere::check_credentials(app, workspace.id, name, &properties["credentials"]["secrets"])?;
    let rules = &app.data.rules;
    problems.extend(match elsewhere::definition(properties, secrets.as_ref()) {
        Err(why) => vec![errors::bad(format!("The datastore '{name}': {why}"), "properties")],
        Ok(Definition::Folder(path)) if rules.readable_root(&path).is_none() => vec![errors::bad(
            format!(
                "The folder '{}' is not below one of inputs.allow or outputs.allow in the server's configuration.",
                path.display()
            ),
            "properties.path",
        )],
        Ok(_) => Vec::new(),
    });
    Ok(problems)
}

pub(crate) async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    if container_of(name).is_some() {
        return Err(Refusal::because(
            Code::PropertyChangeNotAllowed,
            format!("The datastore '{name}' is the workspace's own and cannot be deleted."),
        ));
    }
    if find(app, workspace, name).is_err() {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    let command = Command::DeleteAsset {
        workspace: workspace.id,
        kind: KIND.into(),
        name: name.into(),
        version: VERSION.into(),
    };
    app.submit(&ask.caller, command, Vec::new()).await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(crate) fn list_secrets(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    if let Some(container) = container_of(name) {
        let account = workspace_files::account(workspace.id);
        let token = workspace_files::container_signature(app, &account, container);
        return Ok(reply::ok(&json!({"secretsType": "Sas", "sasToken": token})));
    }
    let (document, _) = find(app, workspace, name)?;
    if is_own_kind(document.properties["datastoreType"].as_str().unwrap_or_default()) {
        // For this server's own door to it: the store's true secrets stay here.
        let account = workspace_files::account(workspace.id);
        let token = workspace_files::container_signature(app, &account, &container_of_datastore(name));
        return Ok(reply::ok(&json!({"secretsType": "Sas", "sasToken": token})));
    }
    let Some(mut secrets) = elsewhere::opened_secrets(app, workspace.id, name, &document)? else {
        return Err(Refusal::because(
            Code::ResourceNotFound,
            format!("The datastore '{name}' has no secrets."),
        ));
    };
    if secrets["secretsType"].is_null() {
        secrets["secretsType"] = document.properties["credentials"]["credentialsType"].clone();
    }
    tracing::info!(actor = ask.caller.actor, datastore = name, "datastore secrets were handed out");
    Ok(reply::ok(&secrets))
}
