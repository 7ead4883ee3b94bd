//! Single versions of assets. A version never changes but for what its kind lets.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::documents::AssetDocument;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Millis, Problem, Refusal};
use neap_ledger::AssetRow;
use serde_json::{Value, json};

use super::kind::{Kind, answered_properties, differing};
use super::{check_name, listed, missing, versions};
use crate::app::{self, App, internal, unreadable};
use crate::arm::{paths, system_data};
use crate::ask::Ask;
use crate::fields::{Fields, check_labels};
use crate::{limits, reply};

pub(super) fn show(
    app: &App,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    version: &str,
) -> Result<Response, Refusal> {
    let row = find(app, workspace, kind, name, version)?.ok_or_else(|| missing(kind, name, version))?;
    Ok(reply::ok(&answer(app, workspace, kind, &row)?))
}

pub(super) fn list(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
) -> Result<Response, Refusal> {
    let number = |key: &str| ask.query.get(key).and_then(|text| text.parse::<usize>().ok());
    let (top, skip) = (number("$top").unwrap_or(limits::PAGE_ROWS_MAX), number("$skip").unwrap_or(0));
    let mut rows = versions(app, workspace, kind, name)?;
    if ask.query.get("$orderBy").is_some_and(|order| order.to_ascii_lowercase().ends_with(" asc")) {
        rows.reverse();
    }
    let mut value = Vec::new();
    let mut passed = 0;
    for row in &rows {
        let answer = answer(app, workspace, kind, row)?;
        if !listed(ask, answer["properties"]["isArchived"] == true) {
            continue;
        }
        passed += 1;
        if passed > skip && value.len() < top {
            value.push(answer);
        }
    }
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

pub(super) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    version: &str,
) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    for (text, what) in [(name, "name"), (version, "version")] {
        check_name(kind, text, what, &mut problems);
    }
    let fields = Fields::of(body.get("properties"), "properties", &mut problems);
    check_labels(&fields, &mut problems);
    (kind.check)(&fields, &mut problems);
    let existing = find(app, workspace, kind, name, version)?;
    let kept: Option<AssetDocument> = existing.as_ref().map(|row| app.document(&row.document)).transpose()?;
    let asked = answered_properties(kind, body.get("properties"));
    if let Some(kept) = &kept {
        let differing = differing(kind, &kept.properties, &asked);
        if !differing.is_empty() {
            problems.push(Problem::new(
                Code::PropertyChangeNotAllowed,
                format!("The {} '{name}' version '{version}' exists and a version never changes; these differ: {}. Use a new version.", kind.word, differing.join(", ")),
            ));
        }
    }
    Refusal::unless_empty(problems)?;
    let document = AssetDocument {
        properties: asked,
        created_by: kept.as_ref().map_or_else(|| ask.caller.actor.clone(), |kept| kept.created_by.clone()),
        created_ms: existing.as_ref().map_or(app.now(), |row| row.created).0,
        sealed_secret: None,
    };
    let stored = app::document(&document)?;
    let command = Command::PutAsset {
        workspace: workspace.id,
        kind: kind.word.into(),
        name: name.into(),
        version: version.into(),
        document: stored.hash,
        content: None,
    };
    app.submit(&ask.caller, command, vec![stored]).await?;
    let row = find(app, workspace, kind, name, version)?
        .ok_or_else(|| internal("The asset was registered and is not in the tables."))?;
    let status = if existing.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(reply::json(status, &answer(app, workspace, kind, &row)?))
}

pub(super) async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    version: &str,
) -> Result<Response, Refusal> {
    if find(app, workspace, kind, name, version)?.is_none() {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    let command = Command::DeleteAsset {
        workspace: workspace.id,
        kind: kind.word.into(),
        name: name.into(),
        version: version.into(),
    };
    app.submit(&ask.caller, command, Vec::new()).await?;
    Ok(reply::empty(StatusCode::OK))
}

fn find(
    app: &App,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    version: &str,
) -> Result<Option<AssetRow>, Refusal> {
    app.control.reader().asset(workspace.id, kind.word, name, version).map_err(unreadable)
}

fn answer(app: &App, workspace: &Workspace, kind: Kind, row: &AssetRow) -> Result<Value, Refusal> {
    let document: AssetDocument = app.document(&row.document)?;
    let created = Millis(document.created_ms);
    Ok(json!({
        "id": paths::child_id(workspace, &format!("{}/{}/versions/{}", kind.plural, row.name, row.version)),
        "name": row.version,
        "type": format!("Microsoft.MachineLearningServices/workspaces/{}/versions", kind.plural),
        "properties": document.properties,
        "systemData": system_data(&document.created_by, created, created),
    }))
}
