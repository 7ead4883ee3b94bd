//! Resource groups and workspaces: where everything else lives.

use std::sync::Arc;

use crate::event::{
    Event, GroupDeleted, GroupPut, StorageMeasured, WorkspaceCreated, WorkspaceDeleteRequested,
    WorkspaceUpdated,
};
use crate::ids::{DocHash, WorkspaceId};
use crate::lock::{self, Act, LockScope};
use crate::names;
use crate::problem::{Code, Problem, Refusal};
use crate::state::{GroupKey, State, Workspace};

use crate::command::PutWorkspace;

pub fn put_group(
    state: &State,
    subscription: Arc<str>,
    name: Arc<str>,
    location: &str,
    document: DocHash,
) -> Result<Vec<Event>, Refusal> {
    let mut problems: Vec<Problem> = names::check_resource_group_name(&name).into_iter().collect();
    let location = known_location(state, location, &mut problems);
    if let Some(group) = state.groups.get(&GroupKey::new(&subscription, &name))
        && *group.location != *location
        && problems.is_empty()
    {
        problems.push(
            Problem::new(
                Code::PropertyChangeNotAllowed,
                format!(
                    "The resource group '{name}' is in {}; its location cannot be changed to {location}.",
                    group.location
                ),
            )
            .at("location"),
        );
    }
    Refusal::unless_empty(problems)?;
    lock::check(state, &LockScope::Group(GroupKey::new(&subscription, &name)), Act::Change)?;
    Ok(vec![GroupPut { subscription, name, location, document }.into()])
}

pub fn delete_group(state: &State, subscription: Arc<str>, name: Arc<str>) -> Result<Vec<Event>, Refusal> {
    let key = GroupKey::new(&subscription, &name);
    if !state.groups.contains_key(&key) {
        return Err(Refusal::because(
            Code::ResourceGroupNotFound,
            format!("Resource group '{name}' could not be found."),
        ));
    }
    lock::check(state, &LockScope::Group(key.clone()), Act::Delete)?;
    let inside: Vec<_> = state
        .workspace_names
        .iter()
        .filter(|(k, _)| k.group == key)
        .filter_map(|(_, id)| state.workspaces.get(id))
        .collect();
    let mut events: Vec<Event> =
        inside.iter().filter(|w| !w.deleting).map(|w| WorkspaceDeleteRequested { id: w.id }.into()).collect();
    events.push(GroupDeleted { subscription, name }.into());
    Ok(events)
}

pub fn put_workspace(state: &State, put: PutWorkspace) -> Result<Vec<Event>, Refusal> {
    super::refuse_while_draining(state)?;
    let mut problems = put.problems;
    if let Some(existing) = state.workspace(&put.subscription, &put.group, &put.name) {
        if existing.deleting {
            return Err(being_deleted("workspace", &put.name));
        }
        if let Some(location) = &put.location
            && names::canonical_location(location) != *existing.location
        {
            problems.push(
                Problem::new(
                    Code::PropertyChangeNotAllowed,
                    format!(
                        "The workspace '{}' is in {}; its location cannot be changed.",
                        put.name, existing.location
                    ),
                )
                .at("location"),
            );
        }
        lock::check(state, &LockScope::Workspace(existing.id), Act::Change)?;
        Refusal::unless_empty(problems)?;
        return Ok(vec![WorkspaceUpdated { id: existing.id, document: put.document }.into()]);
    }
    problems.extend(names::check_workspace_name(&put.name));
    if !state.groups.contains_key(&GroupKey::new(&put.subscription, &put.group)) {
        problems.push(Problem::new(
            Code::ResourceGroupNotFound,
            format!("Resource group '{}' could not be found; create it first.", put.group),
        ));
    }
    lock::check(state, &LockScope::Group(GroupKey::new(&put.subscription, &put.group)), Act::Change)?;
    let location = match &put.location {
        Some(location) => known_location(state, location, &mut problems),
        None => {
            problems.push(Problem::new(Code::BadArgument, "A workspace needs a location.").at("location"));
            "".into()
        }
    };
    Refusal::unless_empty(problems)?;
    Ok(vec![
        WorkspaceCreated {
            id: state.next.workspace,
            subscription: put.subscription,
            group: put.group,
            name: put.name,
            location,
            document: put.document,
        }
        .into(),
    ])
}

/// Nothing is on record where nothing has changed.
pub fn measure_storage(state: &State, workspace: WorkspaceId, bytes: u64) -> Vec<Event> {
    let same = state.kept.get(&workspace).is_some_and(|kept| kept.bytes == bytes);
    if same || !state.workspaces.contains_key(&workspace) {
        return Vec::new();
    }
    vec![StorageMeasured { workspace, bytes }.into()]
}

pub fn delete_workspace(state: &State, id: WorkspaceId) -> Result<Vec<Event>, Refusal> {
    match state.workspaces.get(&id) {
        None => Err(Refusal::because(Code::ResourceNotFound, "The workspace was not found.")),
        Some(workspace) if workspace.deleting => Ok(Vec::new()),
        Some(_) => {
            lock::check(state, &LockScope::Workspace(id), Act::Delete)?;
            Ok(vec![WorkspaceDeleteRequested { id }.into()])
        }
    }
}

/// The workspace, if things may still be put into it.
pub fn live_workspace(state: &State, id: WorkspaceId) -> Result<&Arc<Workspace>, Refusal> {
    match state.workspaces.get(&id) {
        None => Err(Refusal::because(Code::ParentResourceNotFound, "The workspace was not found.")),
        Some(workspace) if workspace.deleting => Err(being_deleted("workspace", &workspace.name)),
        Some(workspace) => Ok(workspace),
    }
}

/// The workspace, if things in it may be changed: it is there, and no lock stops that.
pub fn open_workspace(state: &State, id: WorkspaceId) -> Result<&Arc<Workspace>, Refusal> {
    let workspace = live_workspace(state, id)?;
    lock::check(state, &LockScope::Workspace(id), Act::Change)?;
    Ok(workspace)
}

pub fn being_deleted(kind: &str, name: &str) -> Refusal {
    Refusal::because(
        Code::ResourceBeingDeleted,
        format!("The {kind} '{name}' is being deleted; wait until it is gone."),
    )
}

/// The canonical location, or a problem that names some that exist.
pub fn known_location(state: &State, text: &str, problems: &mut Vec<Problem>) -> Arc<str> {
    let canonical = names::canonical_location(text);
    if !state.settings.locations.contains(&canonical) {
        let some: Vec<&str> = state.settings.locations.iter().take(5).map(String::as_str).collect();
        problems.push(
            Problem::new(
                Code::LocationNotAvailable,
                format!(
                    "The location '{text}' is not known here. Known are, for example: {}.",
                    some.join(", ")
                ),
            )
            .at("location"),
        );
    }
    canonical.into()
}
