//! Code snapshots: found by their content's hash, uploaded to a container of their own, then registered.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::documents::AssetDocument;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Millis, Refusal};
use neap_ledger::AssetRow;
use serde_json::{Value, json};

use super::{errors, paths, system_data};
use crate::app::{self, App, internal, unreadable};
use crate::ask::Ask;
use crate::fields::Fields;
use crate::{limits, reply, workspace_files};

const KIND: &str = "code";

fn answer(app: &App, workspace: &Workspace, row: &AssetRow) -> Result<Value, Refusal> {
    let document: AssetDocument = app.document(&row.document)?;
    let created = Millis(document.created_ms);
    Ok(json!({
        "id": paths::child_id(workspace, &format!("codes/{}/versions/{}", row.name, row.version)),
        "name": row.version,
        "type": "Microsoft.MachineLearningServices/workspaces/codes/versions",
        "properties": document.properties,
        "systemData": system_data(&document.created_by, created, created),
    }))
}

/// With a hash: the snapshot with that content, under whatever name it was registered. Clients then upload nothing.
pub(crate) fn list(app: &App, ask: &Ask, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let reader = app.control.reader();
    let rows: Vec<AssetRow> = match ask.query.get("hash") {
        Some(hash) => {
            reader.asset_by_content(workspace.id, KIND, hash).map_err(unreadable)?.into_iter().collect()
        }
        None => reader
            .asset_versions(workspace.id, KIND, name, limits::PAGE_ROWS_MAX as u32)
            .map_err(unreadable)?,
    };
    let value: Vec<Value> = rows.iter().map(|row| answer(app, workspace, row)).collect::<Result<_, _>>()?;
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

pub(crate) fn get(app: &App, workspace: &Workspace, name: &str, version: &str) -> Result<Response, Refusal> {
    let row = find(app, workspace, name, version)?
        .ok_or_else(|| errors::not_found("Code version", &format!("{name}:{version}")))?;
    Ok(reply::ok(&answer(app, workspace, &row)?))
}

fn find(app: &App, workspace: &Workspace, name: &str, version: &str) -> Result<Option<AssetRow>, Refusal> {
    app.control.reader().asset(workspace.id, KIND, name, version).map_err(unreadable)
}

pub(crate) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    version: &str,
) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    let fields = Fields::of(body.get("properties"), "properties", &mut problems);
    let uri = fields.text("codeUri", &mut problems).unwrap_or("");
    match workspace_files::blob_of_url(uri, workspace.id) {
        Some(blob) if workspace_files::container_exists(app, blob.account.clone(), blob.container.clone()).await? => {}
        _ => problems.push(errors::bad(
            format!("'codeUri' is '{uri}', which is not in this workspace's storage; ask for a place with startPendingUpload."),
            "properties.codeUri",
        )),
    }
    Refusal::unless_empty(problems)?;
    let existing = find(app, workspace, name, version)?;
    if let Some(row) = &existing {
        let kept: AssetDocument = app.document(&row.document)?;
        if kept.properties["codeUri"] != uri {
            return Err(Refusal::because(
                Code::PropertyChangeNotAllowed,
                format!("The code '{name}' has a version '{version}' with other content; use a new version."),
            ));
        }
    }
    let mut properties = body["properties"].clone();
    properties["provisioningState"] = json!("Succeeded");
    let content = properties["properties"]["hash_sha256"].as_str().map(Into::into);
    let document = AssetDocument {
        properties,
        created_by: ask.caller.actor.clone(),
        created_ms: existing.as_ref().map_or(app.now(), |row| row.created).0,
        sealed_secret: None,
    };
    let kept = app::document(&document)?;
    let command = Command::PutAsset {
        workspace: workspace.id,
        kind: KIND.into(),
        name: name.into(),
        version: version.into(),
        document: kept.hash,
        content,
    };
    app.submit(&ask.caller, command, vec![kept]).await?;
    let row = find(app, workspace, name, version)?
        .ok_or_else(|| internal("The code was registered and is not in the tables."))?;
    let status = if existing.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(reply::json(status, &answer(app, workspace, &row)?))
}

/// A new container each time, with a URL that opens it for an hour. The container is the URL's last segment: clients
/// build the code's address from it.
pub(crate) async fn start_pending_upload(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
) -> Result<Response, Refusal> {
    let account = workspace_files::account(workspace.id);
    let container = workspace_files::new_snapshot(app, workspace.id).await?;
    let uri = format!("{}/{account}/{container}", ask.base);
    let signature = workspace_files::container_signature(app, &account, &container);
    Ok(reply::ok(&json!({
        "pendingUploadId": neap_identity::random_guid().map_err(|e| internal(e.to_string()))?,
        "pendingUploadType": "TemporaryBlobReference",
        "blobReferenceForConsumption": {
            "blobUri": uri,
            "storageAccountArmId": format!("{}/providers/Microsoft.Storage/storageAccounts/{account}", paths::group_id(&workspace.subscription, &workspace.group)),
            "credential": {"credentialType": "SAS", "sasUri": format!("{uri}?{signature}")},
        },
    })))
}
