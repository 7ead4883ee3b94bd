//! The container of an asset's name: what all its versions share, put on record or read off the newest version.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::documents::AssetDocument;
use neap_core::state::Workspace;
use neap_core::{Command, Millis, Refusal};
use neap_ledger::AssetRow;
use serde_json::{Value, json};

use super::{Kind, check_name, listed, missing, versions};
use crate::app::{self, App, internal, unreadable};
use crate::arm::{paths, system_data};
use crate::ask::Ask;
use crate::fields::{Fields, check_labels};
use crate::reply;

/// Of a container there is one version.
const CONTAINER_VERSION: &str = "1";

pub(super) fn list(app: &App, ask: &Ask, workspace: &Workspace, kind: Kind) -> Result<Response, Refusal> {
    let rows = app.control.reader().asset_names(workspace.id, kind.word).map_err(unreadable)?;
    let mut value = Vec::new();
    // Environments that belong to one job are not listed.
    for row in rows
        .iter()
        .filter(|row| !matches!(row.name.as_str(), "CliV2AnonymousEnvironment" | "azureml_anonymous"))
    {
        let answer = answer(app, workspace, kind, &row.name)?.unwrap_or_default();
        if listed(ask, answer["properties"]["isArchived"] == true) {
            value.push(answer);
        }
    }
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

pub(super) fn show(app: &App, workspace: &Workspace, kind: Kind, name: &str) -> Result<Response, Refusal> {
    let answer = answer(app, workspace, kind, name)?.ok_or_else(|| missing(kind, name, ""))?;
    Ok(reply::ok(&answer))
}

/// What was put for the name as a whole.
fn kept(app: &App, workspace: &Workspace, kind: Kind, name: &str) -> Result<Option<AssetDocument>, Refusal> {
    let row = app
        .control
        .reader()
        .asset(workspace.id, &kind.container_word(), name, CONTAINER_VERSION)
        .map_err(unreadable)?;
    row.map(|row| app.document(&row.document)).transpose()
}

fn answer(app: &App, workspace: &Workspace, kind: Kind, name: &str) -> Result<Option<Value>, Refusal> {
    let rows = versions(app, workspace, kind, name)?;
    // The newest that is not archived; if all are, the newest.
    let mut latest: Option<(&AssetRow, AssetDocument)> = None;
    for row in &rows {
        let document: AssetDocument = app.document(&row.document)?;
        let is_active = document.properties["isArchived"] != true;
        if is_active || latest.is_none() {
            latest = Some((row, document));
        }
        if is_active {
            break;
        }
    }
    let (latest_row, latest) = latest.map_or((None, None), |(row, document)| (Some(row), Some(document)));
    let kept = kept(app, workspace, kind, name)?;
    let Some(source) = kept.as_ref().or(latest.as_ref()) else { return Ok(None) };
    let of_latest = |key: &str| latest.as_ref().map_or(Value::Null, |latest| latest.properties[key].clone());
    let of_kept = |key: &str| kept.as_ref().map(|kept| kept.properties[key].clone());
    let object = |value: Value| if value.is_object() { value } else { json!({}) };
    let created = Millis(source.created_ms);
    Ok(Some(json!({
        "id": paths::child_id(workspace, &format!("{}/{name}", kind.plural)),
        "name": name,
        "type": format!("Microsoft.MachineLearningServices/workspaces/{}", kind.plural),
        "properties": {
            "description": source.properties["description"],
            "tags": object(source.properties["tags"].clone()),
            "properties": object(of_kept("properties").unwrap_or_default()),
            "isArchived": of_kept("isArchived").unwrap_or(json!(false)) == true,
            "dataType": of_latest("dataType"),
            "latestVersion": latest_row.map(|row| &row.version),
            "nextVersion": next_version(rows.iter().map(|row| row.version.as_str())),
        },
        "systemData": system_data(&source.created_by, created, created),
    })))
}

pub(super) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    check_name(kind, name, "name", &mut problems);
    let fields = Fields::of(body.get("properties"), "properties", &mut problems);
    check_labels(&fields, &mut problems);
    fields.flag("isArchived", &mut problems);
    Refusal::unless_empty(problems)?;
    let existing = answer(app, workspace, kind, name)?;
    let asked = &body["properties"];
    let keep = |key: &str| {
        let before = existing.as_ref().map_or(Value::Null, |existing| existing["properties"][key].clone());
        asked.get(key).filter(|value| !value.is_null()).cloned().unwrap_or(before)
    };
    let document = AssetDocument {
        properties: json!({
            "description": keep("description"),
            "tags": keep("tags"),
            "properties": keep("properties"),
            "isArchived": keep("isArchived"),
        }),
        created_by: ask.caller.actor.clone(),
        created_ms: app.now().0,
        sealed_secret: None,
    };
    let stored = app::document(&document)?;
    let command = Command::PutAsset {
        workspace: workspace.id,
        kind: kind.container_word().into(),
        name: name.into(),
        version: CONTAINER_VERSION.into(),
        document: stored.hash,
        content: None,
    };
    app.submit(&ask.caller, command, vec![stored]).await?;
    let status = if existing.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let answer = answer(app, workspace, kind, name)?
        .ok_or_else(|| internal("The asset's container was put and is not in the tables."))?;
    Ok(reply::json(status, &answer))
}

/// The name with all its versions.
pub(super) async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
) -> Result<Response, Refusal> {
    let rows = versions(app, workspace, kind, name)?;
    let kept = kept(app, workspace, kind, name)?;
    if rows.is_empty() && kept.is_none() {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    let mut gone: Vec<(String, String)> = rows.into_iter().map(|row| (row.kind, row.version)).collect();
    gone.extend(kept.map(|_| (kind.container_word(), CONTAINER_VERSION.to_owned())));
    for (word, version) in gone {
        let command = Command::DeleteAsset {
            workspace: workspace.id,
            kind: word.into(),
            name: name.into(),
            version: version.into(),
        };
        app.submit(&ask.caller, command, Vec::new()).await?;
    }
    Ok(reply::empty(StatusCode::OK))
}

fn next_version<'a>(versions: impl Iterator<Item = &'a str>) -> String {
    let highest: u64 = versions.filter_map(|version| version.parse().ok()).max().unwrap_or(0);
    highest.saturating_add(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_up() {
        assert_eq!(next_version([].into_iter()), "1");
        assert_eq!(next_version(["2", "10", "x"].into_iter()), "11");
    }
}
