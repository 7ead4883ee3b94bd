//! Versioned assets that are kept as they came: environments, data, components and models.
//!
//! A name has a *container*: what all its versions share. It is on record only where somebody put it, to archive the
//! name as a whole or to describe it; otherwise it is read off the newest version. `kind` says what may be registered,
//! `version` keeps single versions, `container` speaks of names as a whole.

mod container;
mod kind;
mod version;

use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use neap_ledger::AssetRow;

use super::errors;
use crate::app::{App, unreadable};
use crate::ask::Ask;
use crate::limits;

pub(crate) use kind::{COMPONENTS, DATA, ENVIRONMENTS, Kind, MODELS};

pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    rest: &[&str],
) -> Result<Response, Refusal> {
    // A client that resolves a label asks for the name with the prefix that references have.
    let rest: Vec<&str> = rest.iter().map(|part| part.strip_prefix("azureml:").unwrap_or(part)).collect();
    match (ask.method.as_str(), rest.as_slice()) {
        ("GET", []) => container::list(app, ask, workspace, kind),
        ("GET", [name]) => container::show(app, workspace, kind, name),
        ("PUT", [name]) => container::put(app, ask, workspace, kind, name).await,
        ("DELETE", [name]) => container::delete(app, ask, workspace, kind, name).await,
        ("GET", [name, "versions"]) => version::list(app, ask, workspace, kind, name),
        ("GET", [name, "versions", version]) => version::show(app, workspace, kind, name, version),
        ("PUT", [name, "versions", version]) => version::put(app, ask, workspace, kind, name, version).await,
        ("DELETE", [name, "versions", version]) => {
            version::delete(app, ask, workspace, kind, name, version).await
        }
        ("POST", [_, "versions", _, "startpendingupload"]) => Err(errors::not_supported(
            "A pending upload is for code; upload data through the datastore 'workspaceblobstore'.",
        )),
        _ => Err(errors::no_such_path(ask)),
    }
}

/// Which of the archived and the others a list has.
fn listed(ask: &Ask, archived: bool) -> bool {
    match ask.query.get("listViewType").unwrap_or("ActiveOnly").to_ascii_lowercase().as_str() {
        "all" => true,
        "archivedonly" => archived,
        _ => !archived,
    }
}

fn missing(kind: Kind, name: &str, version: &str) -> Refusal {
    Refusal::because(
        Code::ResourceNotFound,
        format!("No {} exists for name: {name}, version: {version}.", kind.word),
    )
}

/// Newest first.
fn versions(app: &App, workspace: &Workspace, kind: Kind, name: &str) -> Result<Vec<AssetRow>, Refusal> {
    let reader = app.control.reader();
    reader.asset_versions(workspace.id, kind.word, name, limits::PAGE_ROWS_MAX as u32).map_err(unreadable)
}

fn check_name(kind: Kind, text: &str, what: &str, problems: &mut Vec<Problem>) {
    if !good_name(text) {
        problems.push(
            Problem::new(
                Code::InvalidResourceName,
                format!(
                    "'{text}' cannot be the {what} of a {}: 1 to 255 letters, digits, '-', '_' and '.'.",
                    kind.word
                ),
            )
            .at(what),
        );
    }
}

pub(crate) fn good_name(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !text.starts_with('.')
}
