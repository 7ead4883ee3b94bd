//! Endpoints and deployments as the ledger keeps them: assets, as datastores are. A deployment is a version of its
//! endpoint's name.

use neap_core::documents::AssetDocument;
use neap_core::state::Workspace;
use neap_core::{Command, Millis, Refusal};
use neap_ledger::AssetRow;
use serde_json::{Value, json};

use crate::app::{self, App, unreadable};
use crate::arm::{errors, system_data};
use crate::ask::Caller;
use crate::limits;

const ENDPOINT: &str = "batch-endpoint";
const DEPLOYMENT: &str = "batch-deployment";
/// An endpoint is not versioned; the ledger's assets are.
const ENDPOINT_VERSION: &str = "1";

/// What is named: an endpoint, or one of its deployments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which<'a> {
    pub endpoint: &'a str,
    pub deployment: Option<&'a str>,
}

impl<'a> Which<'a> {
    pub const fn endpoint(endpoint: &'a str) -> Self {
        Self { endpoint, deployment: None }
    }

    pub const fn deployment(endpoint: &'a str, deployment: &'a str) -> Self {
        Self { endpoint, deployment: Some(deployment) }
    }

    fn kind(self) -> &'static str {
        if self.deployment.is_some() { DEPLOYMENT } else { ENDPOINT }
    }

    fn version(self) -> &'a str {
        self.deployment.unwrap_or(ENDPOINT_VERSION)
    }
}

/// One of them on record.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub name: String,
    pub tags: Value,
    /// As answered, less what is made up when it is.
    pub properties: Value,
    /// What Neap made for it, which is not the user's.
    pub made: Value,
    created_by: String,
    created_ms: u64,
    modified_ms: u64,
}

impl Kept {
    fn of(app: &App, row: &AssetRow, name: &str) -> Result<Self, Refusal> {
        let mut document: AssetDocument = app.document(&row.document)?;
        let modified_ms = document.properties["modifiedMs"].as_u64().unwrap_or(document.created_ms);
        Ok(Self {
            name: name.to_owned(),
            tags: document.properties["tags"].take(),
            properties: document.properties["properties"].take(),
            made: document.properties["made"].take(),
            created_by: document.created_by,
            created_ms: document.created_ms,
            modified_ms,
        })
    }

    pub fn system_data(&self) -> Value {
        system_data(&self.created_by, Millis(self.created_ms), Millis(self.modified_ms))
    }
}

pub(super) fn look(app: &App, workspace: &Workspace, which: Which<'_>) -> Result<Option<Kept>, Refusal> {
    let reader = app.control.reader();
    let row =
        reader.asset(workspace.id, which.kind(), which.endpoint, which.version()).map_err(unreadable)?;
    let name = which.deployment.unwrap_or(which.endpoint);
    row.map(|row| Kept::of(app, &row, name)).transpose()
}

/// The same, or Azure's words for its absence. Of what belongs to no endpoint there is none.
pub(super) fn find(app: &App, workspace: &Workspace, which: Which<'_>) -> Result<Kept, Refusal> {
    let endpoint = look(app, workspace, Which::endpoint(which.endpoint))?
        .ok_or_else(|| errors::not_found("batch endpoint", which.endpoint))?;
    match which.deployment {
        None => Ok(endpoint),
        Some(name) => look(app, workspace, which)?.ok_or_else(|| errors::not_found("batch deployment", name)),
    }
}

pub(super) fn endpoints(app: &App, workspace: &Workspace) -> Result<Vec<Kept>, Refusal> {
    let rows = app.control.reader().asset_names(workspace.id, ENDPOINT).map_err(unreadable)?;
    rows.iter().map(|row| Kept::of(app, row, &row.name)).collect()
}

/// Oldest first.
pub(super) fn deployments(app: &App, workspace: &Workspace, endpoint: &str) -> Result<Vec<Kept>, Refusal> {
    let reader = app.control.reader();
    let rows = reader
        .asset_versions(workspace.id, DEPLOYMENT, endpoint, limits::PAGE_ROWS_MAX as u32)
        .map_err(unreadable)?;
    rows.iter().rev().map(|row| Kept::of(app, row, &row.version)).collect()
}

/// What of a record is new.
pub(super) struct Content {
    pub tags: Value,
    pub properties: Value,
    pub made: Value,
}

pub(super) async fn put(
    app: &App,
    caller: &Caller,
    workspace: &Workspace,
    which: Which<'_>,
    before: Option<&Kept>,
    content: Content,
) -> Result<Kept, Refusal> {
    let now_ms = app.now().0;
    let Content { tags, properties, made } = content;
    let document = AssetDocument {
        properties: json!({"tags": tags, "properties": properties, "made": made, "modifiedMs": now_ms}),
        created_by: before.map_or_else(|| caller.actor.clone(), |kept| kept.created_by.clone()),
        created_ms: before.map_or(now_ms, |kept| kept.created_ms),
        sealed_secret: None,
    };
    let stored = app::document(&document)?;
    let command = Command::PutAsset {
        workspace: workspace.id,
        kind: which.kind().into(),
        name: which.endpoint.into(),
        version: which.version().into(),
        document: stored.hash,
        content: None,
    };
    app.submit(caller, command, vec![stored]).await?;
    Ok(Kept {
        name: which.deployment.unwrap_or(which.endpoint).to_owned(),
        tags,
        properties,
        made,
        created_by: document.created_by,
        created_ms: document.created_ms,
        modified_ms: now_ms,
    })
}

pub(super) async fn delete(
    app: &App,
    caller: &Caller,
    workspace: &Workspace,
    which: Which<'_>,
) -> Result<(), Refusal> {
    let command = Command::DeleteAsset {
        workspace: workspace.id,
        kind: which.kind().into(),
        name: which.endpoint.into(),
        version: which.version().into(),
    };
    app.submit(caller, command, Vec::new()).await.map(drop)
}
