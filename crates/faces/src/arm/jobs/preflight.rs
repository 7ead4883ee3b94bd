//! What would fail on a node, found out before there is one: inputs that lie elsewhere and cannot be read, more data than the
//! disk has room for, an identity that the cluster does not have. Beside `presence.rs` (what lies here) and `read.rs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use neap_core::documents::{BlobPath, ClusterDocument, InputDocument, JobDocument};
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use neap_storage::{ListEntry, ListQuery, Store, foreign};
use serde_json::Value;

use super::data::Shape;
use crate::app::{App, internal};
use crate::arm::computes;
use crate::arm::errors::bad;
use crate::elsewhere;
use crate::limits;

/// Every problem that can be known without a node. What could not be asked in time is noted in the job's log.
pub(super) async fn check(
    app: &App,
    workspace: &Workspace,
    cluster: &str,
    document: &mut JobDocument,
) -> Result<Vec<Problem>, Refusal> {
    let mut problems = Vec::new();
    let (mut bytes, mut notes) = (0_u64, Vec::new());
    for (name, found) in far_inputs(app, document).await {
        match found {
            Far::There(size) => bytes = bytes.saturating_add(size),
            Far::Missing(problem) => problems.push(problem),
            Far::Late => notes.push(format!(
                "Where the input '{name}' lies did not answer within {} s when the job was submitted.",
                limits::PREFLIGHT_MS / 1_000
            )),
        }
    }
    document.preamble.extend(notes);
    problems.extend(room(app, document, bytes).await?);
    problems.extend(identity(app, workspace, cluster, &document.asked["identity"])?);
    Ok(problems)
}

/// What was found out about an input elsewhere.
enum Far {
    /// With its bytes, as far as they were seen.
    There(u64),
    Missing(Problem),
    Late,
}

/// All of them at once, within one deadline.
async fn far_inputs(app: &App, document: &JobDocument) -> Vec<(String, Far)> {
    let mut asked = Vec::new();
    for (name, input) in &document.inputs {
        let (at, shape, query) = match input {
            InputDocument::Literal { .. } => continue,
            InputDocument::File { at, query, .. } => (at, Shape::File, query.clone()),
            InputDocument::Folder { at, .. } => (at, Shape::Folder, None),
            InputDocument::Any { at, .. } => (at, Shape::Any, None),
        };
        if !foreign::is_foreign(&at.container) || at.container == foreign::FILE {
            continue;
        }
        let (app, name, at) = (app.clone(), name.clone(), at.clone());
        let look = async move {
            let found = look(&app, &name, &at, shape, query.as_deref());
            let found = tokio::time::timeout(Duration::from_millis(limits::PREFLIGHT_MS), found).await;
            (name, found.unwrap_or(Far::Late))
        };
        asked.push(tokio::spawn(look));
    }
    let mut found = Vec::new();
    for task in asked {
        // A task that came to no end has nothing to say.
        found.extend(task.await.ok());
    }
    found
}

async fn look(app: &App, name: &str, at: &BlobPath, shape: Shape, query: Option<&str>) -> Far {
    let place = format!("properties.inputs.{name}.uri");
    let opened = match elsewhere::open(app, &at.account, &at.container, &at.path, query, false) {
        Ok(opened) => opened,
        Err(refusal) => {
            let says = refusal.problems.first().map(|problem| problem.message.clone()).unwrap_or_default();
            return Far::Missing(bad(format!("The input '{name}' cannot be read: {says}"), &place));
        }
    };
    let missing = |error: &foreign::Error| {
        let cure = match error {
            foreign::Error::NotFound(_) => "correct its path, or put it there first",
            foreign::Error::Refused(_) => "use a public address, or ask the operator to list this one",
            foreign::Error::Denied(_) => "correct the datastore's credentials, or what they may read",
            _ => "see that this server reaches it, and submit the job again",
        };
        Far::Missing(bad(format!("The input '{name}' cannot be read: {error}; {cure}."), &place))
    };
    let file = opened.name.trim_end_matches('/');
    if matches!(shape, Shape::File | Shape::Any) {
        match opened.store.head(file).await {
            Ok(entry) => return Far::There(entry.bytes),
            Err(foreign::Error::NotFound(_)) if shape == Shape::Any => {}
            Err(error) => return missing(&error),
        }
    }
    let folder = if file.is_empty() { String::new() } else { format!("{file}/") };
    match opened.store.list(&folder, None, limits::PREFLIGHT_ENTRIES_MAX).await {
        Ok(listing) if listing.entries.is_empty() => missing(&foreign::Error::NotFound(folder)),
        Ok(listing) => Far::There(listing.entries.iter().map(|entry| entry.bytes).sum()),
        Err(error) => missing(&error),
    }
}

/// Where nodes are on this machine, their copies of inputs are on its disk.
async fn room(app: &App, document: &JobDocument, far_bytes: u64) -> Result<Option<Problem>, Refusal> {
    if &*app.state().settings.provider.name != "local" {
        return Ok(None);
    }
    let near: Vec<BlobPath> = document.inputs.values().filter_map(|input| input.at().cloned()).collect();
    let (store, folder) = (Arc::clone(&app.store), app.server.node_logs.clone());
    let counted = tokio::task::spawn_blocking(move || {
        let near: u64 = near.iter().map(|at| bytes_near(&store, at)).sum();
        (near.saturating_add(far_bytes), free_bytes(&folder))
    });
    let (needed, free) =
        counted.await.map_err(|e| internal(format!("A storage call did not come to an end: {e}.")))?;
    Ok(free.filter(|free| needed > *free).map(|free| {
        let message = format!(
            "The inputs have {} MB, and {} MB are free on the disk where nodes keep their copies; make room, or bring less.",
            needed >> 20,
            free >> 20
        );
        Problem::new(Code::ResourceTooLarge, message).at("properties.inputs")
    }))
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|folder| folder.exists())?;
    rustix::fs::statvfs(there).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// As far as they are counted: at least so many.
fn bytes_near(store: &Store, at: &BlobPath) -> u64 {
    if at.container == foreign::FILE {
        return bytes_on_disk(&Path::new("/").join(&at.path), &mut limits::PREFLIGHT_ENTRIES_MAX.clone());
    }
    if foreign::is_foreign(&at.container) {
        return 0;
    }
    let query = ListQuery {
        prefix: at.path.clone(),
        results_max: Some(limits::PREFLIGHT_ENTRIES_MAX),
        ..ListQuery::default()
    };
    let page = store.list(&at.account, &at.container, &query).unwrap_or_default();
    let bytes = |entry: &ListEntry| match entry {
        ListEntry::Blob { properties, .. } => properties.length,
        ListEntry::Prefix(_) => 0,
    };
    page.entries.iter().map(bytes).sum()
}

/// `left` entries are looked at.
fn bytes_on_disk(path: &Path, left: &mut usize) -> u64 {
    let Ok(found) = std::fs::symlink_metadata(path) else { return 0 };
    if found.is_file() {
        return found.len();
    }
    let mut bytes = 0_u64;
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let Some(fewer) = left.checked_sub(1) else { break };
        *left = fewer;
        bytes = bytes.saturating_add(bytes_on_disk(&entry.path(), left));
    }
    bytes
}

/// A managed identity that is named must be one of the cluster's.
fn identity(
    app: &App,
    workspace: &Workspace,
    cluster: &str,
    asked: &Value,
) -> Result<Option<Problem>, Refusal> {
    let kind = ["identityType", "type"].iter().find_map(|key| asked[*key].as_str()).unwrap_or_default();
    let named =
        ["resourceId", "clientId", "objectId", "msiResourceId"].iter().find_map(|key| asked[*key].as_str());
    let Some(named) = named.filter(|named| kind.to_lowercase().starts_with("managed") && !named.is_empty())
    else {
        return Ok(None);
    };
    let state = app.state();
    let Some(cluster) = state.cluster(workspace.id, cluster) else { return Ok(None) };
    let document: ClusterDocument = app.document(&cluster.document)?;
    let has = computes::identity_of(&app.installation, cluster.id, document.identity.as_ref());
    let known = |text: &str| text.eq_ignore_ascii_case(named);
    let users = has["userAssignedIdentities"].as_object();
    let principal = has["principalId"].as_str().is_some_and(known);
    let user = users.into_iter().flatten().any(|(id, ids)| {
        known(id) || ["principalId", "clientId"].iter().any(|key| ids[*key].as_str().is_some_and(known))
    });
    if principal || user {
        return Ok(None);
    }
    let names: Vec<&str> = users.into_iter().flatten().map(|(id, _)| id.as_str()).collect();
    let has = if names.is_empty() { "none of that kind".to_owned() } else { names.join(", ") };
    Ok(Some(bad(
        format!(
            "The identity '{named}' is not one of compute '{}', which has {has}; give it one with 'neap compute update -n {} --user-assigned-identities ID'.",
            cluster.name, cluster.name
        ),
        "properties.identity",
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_so_far() {
        let folder = std::env::temp_dir().join(format!("neap-preflight-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        std::fs::write(folder.join("a"), [0; 10]).unwrap();
        std::fs::write(folder.join("deep/b"), [0; 5]).unwrap();
        assert_eq!(bytes_on_disk(&folder, &mut 100), 15);
        assert_eq!(bytes_on_disk(&folder.join("a"), &mut 100), 10);
        assert_eq!(bytes_on_disk(&folder, &mut 0), 0);
        assert_eq!(bytes_on_disk(&folder.join("none"), &mut 100), 0);
        assert!(free_bytes(&folder.join("not/yet")).is_some_and(|bytes| bytes > 0));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
