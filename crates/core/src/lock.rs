//! Locks: what may not be deleted, or not be changed at all, until somebody takes the lock away.
//!
//! | lock | on a cluster | on a workspace | on a resource group, its own or that of its network |
//! |---|---|---|---|
//! | `CanNotDelete` | it is not deleted; it scales | neither it nor what is in it is deleted; clusters scale | the same, and clusters do not scale |
//! | `ReadOnly` | not changed either, and does not scale | nothing in it is changed or submitted, and clusters do not scale | the same |
//!
//! Scaling makes and removes things in a group, so that a lock on the group stops it, as in Azure; there the cluster seems
//! stuck at resizing, here it says so ([`Cut::Lock`]). Canceling a job is never stopped: it only ends spending.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Cut};
use crate::ids::{ClusterId, WorkspaceId};
use crate::problem::{Code, Refusal};
use crate::state::{GroupKey, State};
use crate::units::Millis;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockLevel {
    CanNotDelete,
    ReadOnly,
}

impl LockLevel {
    pub const fn canonical(self) -> &'static str {
        match self {
            Self::CanNotDelete => "CanNotDelete",
            Self::ReadOnly => "ReadOnly",
        }
    }

    /// Any case.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::CanNotDelete, Self::ReadOnly]
            .into_iter()
            .find(|level| level.canonical().eq_ignore_ascii_case(text))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LockScope {
    Group(GroupKey),
    Workspace(WorkspaceId),
    Cluster(ClusterId),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub scope: LockScope,
    pub name: Arc<str>,
    pub level: LockLevel,
    pub notes: Arc<str>,
    pub by: Arc<str>,
    pub at: Millis,
}

/// What somebody is about to do to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Change,
    Delete,
}

impl LockLevel {
    const fn stops(self, act: Act) -> bool {
        match (self, act) {
            (Self::ReadOnly, _) | (Self::CanNotDelete, Act::Delete) => true,
            (Self::CanNotDelete, Act::Change) => false,
        }
    }
}

/// Refuses what a lock on this scope, or on one around it, stops; a deletion also for a lock on anything inside.
pub fn check(state: &State, scope: &LockScope, act: Act) -> Result<(), Refusal> {
    if state.locks.is_empty() {
        return Ok(());
    }
    let around = around(state, scope);
    let binds = |lock: &&Arc<Lock>| {
        let inside = act == Act::Delete && self::around(state, &lock.scope).contains(scope);
        lock.level.stops(act) && (around.contains(&lock.scope) || inside)
    };
    match state.locks.values().find(binds) {
        None => Ok(()),
        Some(lock) => Err(Refusal::because(Code::ScopeLocked, sentence(state, lock, act))),
    }
}

fn sentence(state: &State, lock: &Lock, act: Act) -> String {
    let what = match act {
        Act::Change => "changed",
        Act::Delete => "deleted",
    };
    format!(
        "It cannot be {what}: the {} lock '{}' on {} stops that. Whoever may can take it away with 'neap lock delete --name {}'.",
        lock.level.canonical(),
        lock.name,
        scope_words(state, &lock.scope),
        lock.name,
    )
}

/// The scope itself and those it lies in.
fn around(state: &State, scope: &LockScope) -> Vec<LockScope> {
    let mut scopes = vec![scope.clone()];
    let mut workspace = None;
    if let LockScope::Cluster(id) = scope
        && let Some(cluster) = state.clusters.get(id)
    {
        scopes.push(LockScope::Workspace(cluster.workspace));
        workspace = Some(cluster.workspace);
    }
    if let LockScope::Workspace(id) = scope {
        workspace = Some(*id);
    }
    if let Some(workspace) = workspace.and_then(|id| state.workspaces.get(&id)) {
        scopes.push(LockScope::Group(GroupKey::new(&workspace.subscription, &workspace.group)));
    }
    scopes
}

/// Why a cluster may neither grow nor shrink, if so.
pub fn scaling_cut(state: &State, cluster: &Cluster) -> Option<Cut> {
    if state.locks.is_empty() {
        return None;
    }
    scaling_cuts(state, cluster).next()
}

/// Every lock that keeps it so.
pub fn scaling_cuts<'a>(state: &'a State, cluster: &Cluster) -> impl Iterator<Item = Cut> + 'a {
    let mut scopes = around(state, &LockScope::Cluster(cluster.id));
    scopes.extend(cluster.network.clone().map(LockScope::Group));
    let binds = move |lock: &&Arc<Lock>| {
        let on_group = matches!(lock.scope, LockScope::Group(_));
        (on_group || lock.level == LockLevel::ReadOnly) && scopes.contains(&lock.scope)
    };
    state.locks.values().filter(binds).map(|lock| Cut::Lock {
        name: lock.name.clone(),
        level: lock.level,
        on: scope_words(state, &lock.scope).into(),
        group: matches!(lock.scope, LockScope::Group(_)),
    })
}

/// In the words of a message.
pub fn scope_words(state: &State, scope: &LockScope) -> String {
    match scope {
        LockScope::Group(key) => {
            let name = state.groups.get(key).map_or_else(|| key.name.clone(), |group| group.name.clone());
            format!("resource group '{name}'")
        }
        LockScope::Workspace(id) => {
            let name = state.workspaces.get(id).map_or_else(|| id.to_string(), |w| w.name.to_string());
            format!("workspace '{name}'")
        }
        LockScope::Cluster(id) => {
            let name = state.clusters.get(id).map_or_else(|| id.to_string(), |c| c.name.to_string());
            format!("compute '{name}'")
        }
    }
}
