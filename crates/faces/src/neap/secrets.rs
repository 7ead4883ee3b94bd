//! `secrets`: values that jobs and datastores use by name. A value goes in and is never answered again.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::documents::AssetDocument;
use neap_core::secrets::{KIND, VERSION, check_name, check_value, vault_name};
use neap_core::state::Workspace;
use neap_core::{Code, Command, Refusal, limits};
use neap_ledger::AssetRow;
use serde_json::{Value, json};

use crate::app::{self, App, internal, unreadable};
use crate::arm::errors;
use crate::ask::Ask;
use crate::fields::Fields;
use crate::reply;

pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    rest: &[&str],
) -> Result<Response, Refusal> {
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let rows = app.control.reader().asset_names(workspace.id, KIND).map_err(unreadable)?;
            let value = rows.iter().map(|row| shown(app, row)).collect::<Result<Vec<_>, _>>()?;
            Ok(reply::ok(&json!({"value": value})))
        }
        ("GET", [name]) => {
            let row = find(app, workspace, name)?.ok_or_else(|| no_secret(name))?;
            Ok(reply::ok(&shown(app, &row)?))
        }
        ("PUT", [name]) => put(app, ask, workspace, name).await,
        ("DELETE", [name]) => delete(app, ask, workspace, name).await,
        (_, [] | [_]) => Err(errors::method_not_allowed(ask, "GET, PUT and DELETE")),
        _ => Err(errors::no_such_path(ask)),
    }
}

fn find(app: &App, workspace: &Workspace, name: &str) -> Result<Option<AssetRow>, Refusal> {
    app.control.reader().asset(workspace.id, KIND, name, VERSION).map_err(unreadable)
}

fn no_secret(name: &str) -> Refusal {
    let message = format!("The secret '{name}' does not exist; 'neap secret list' shows those that do.");
    Refusal::because(Code::ResourceNotFound, message)
}

fn shown(app: &App, row: &AssetRow) -> Result<Value, Refusal> {
    let document: AssetDocument = app.document(&row.document)?;
    Ok(json!({
        "name": row.name,
        "created": row.created.rfc3339(),
        // An erased document (a question about the past) has no time of its own.
        "modified": neap_core::Millis(document.created_ms.max(row.created.0)).rfc3339(),
        "modified_by": document.created_by,
    }))
}

async fn put(app: &App, ask: &Ask, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    let fields = Fields::of(Some(&body), "", &mut problems);
    fields.only(&["value"], &[], "a secret", &mut problems);
    if let Err(why) = check_name(name) {
        problems.push(errors::bad(why, "name"));
    }
    let value = fields.text("value", &mut problems).unwrap_or_default();
    if let Err(why) = check_value(value) {
        problems.push(errors::bad(why, "value"));
    }
    let earlier = find(app, workspace, name)?;
    if earlier.is_none() {
        let there = app.control.reader().asset_names(workspace.id, KIND).map_err(unreadable)?.len();
        if there >= limits::SECRETS_PER_WORKSPACE_MAX {
            let message = format!(
                "The workspace has {there} secrets, and at most {} are kept. Delete one that nobody uses.",
                limits::SECRETS_PER_WORKSPACE_MAX
            );
            problems.push(neap_core::Problem::new(Code::LimitReached, message).at("name"));
        }
    }
    Refusal::unless_empty(problems)?;
    let sealed = app
        .vault
        .encode(&vault_name(workspace.id, name), value.as_bytes())
        .map_err(|e| internal(e.to_string()))?;
    let document = AssetDocument {
        properties: json!({}),
        created_by: ask.caller.actor.clone(),
        created_ms: app.now().0,
        sealed_secret: Some(sealed),
    };
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
    if let Some(earlier) = &earlier {
        erase(app, ask, earlier).await?;
    }
    let row = find(app, workspace, name)?.ok_or_else(|| no_secret(name))?;
    let status = if earlier.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(reply::json(status, &shown(app, &row)?))
}

async fn delete(app: &App, ask: &Ask, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let Some(row) = find(app, workspace, name)? else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    let command = Command::DeleteAsset {
        workspace: workspace.id,
        kind: KIND.into(),
        name: name.into(),
        version: VERSION.into(),
    };
    app.submit(&ask.caller, command, Vec::new()).await?;
    erase(app, ask, &row).await?;
    Ok(reply::empty(StatusCode::OK))
}

/// A value that is no longer used is wiped from the ledger's file. If the server dies before this, it stays there
/// encrypted.
async fn erase(app: &App, ask: &Ask, row: &AssetRow) -> Result<(), Refusal> {
    let command = Command::EraseDocument { document: row.document };
    app.submit(&ask.caller, command, Vec::new()).await.map(drop)
}
