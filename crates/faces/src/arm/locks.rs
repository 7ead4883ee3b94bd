//! `Microsoft.Authorization/locks` on resource groups, workspaces and clusters. What each stops is said in `neap_core::lock`.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::command::PutLock;
use neap_core::lock::{Lock, LockLevel, LockScope};
use neap_core::state::GroupKey;
use neap_core::{Code, Command, Refusal, State, names};
use serde_json::{Value, json};

use super::{ML, errors, groups, paths, system_data, workspaces};
use crate::app::App;
use crate::ask::Ask;
use crate::fields::Fields;
use crate::reply;

/// `scope` is the path before `providers/Microsoft.Authorization`, `rest` what follows `locks`.
pub(crate) async fn answer(app: &App, ask: &Ask, scope: &[&str], rest: &[&str]) -> Result<Response, Refusal> {
    let state = app.state();
    if let ("GET", ["subscriptions", s], []) = (ask.method.as_str(), scope, rest) {
        super::subscriptions::check(app, s)?;
        return Ok(listing(&state, |_| true));
    }
    let place = place(&state, scope).map_err(|missing| match (ask.method.as_str(), rest) {
        ("PUT", [name]) => with_the_rest(missing, name, ask),
        _ => missing,
    })?;
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let only_here =
                ask.query.get("$filter").is_some_and(|filter| filter.eq_ignore_ascii_case("atScope()"));
            let here = arm_id(&state, &place).unwrap_or_default().to_lowercase();
            Ok(listing(&state, |lock| {
                let there = arm_id(&state, &lock.scope).unwrap_or_default().to_lowercase();
                let inside = |inner: &str, outer: &str| {
                    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
                };
                lock.scope == place || (!only_here && (inside(&there, &here) || inside(&here, &there)))
            }))
        }
        ("GET", [name]) => match state.locks.get(&(place.clone(), name.to_lowercase().into())) {
            Some(lock) => Ok(reply::ok(&shown(&state, lock))),
            None => Err(no_lock(name)),
        },
        ("PUT", [name]) => {
            let there = state.locks.contains_key(&(place.clone(), name.to_lowercase().into()));
            let (level, notes) = read(name, &ask.json()?)?;
            let by = ask.caller.actor.as_str().into();
            let put = PutLock { scope: place.clone(), name: (*name).into(), level, notes: notes.into(), by };
            app.submit(&ask.caller, Command::PutLock(put), Vec::new()).await?;
            let state = app.state();
            let lock = state.locks.get(&(place, name.to_lowercase().into())).ok_or_else(|| no_lock(name))?;
            let status = if there { StatusCode::OK } else { StatusCode::CREATED };
            Ok(reply::json(status, &shown(&state, lock)))
        }
        ("DELETE", [name]) => {
            if !state.locks.contains_key(&(place.clone(), name.to_lowercase().into())) {
                return Ok(reply::empty(StatusCode::NO_CONTENT));
            }
            let command = Command::DeleteLock { scope: place, name: (*name).into() };
            app.submit(&ask.caller, command, Vec::new()).await?;
            Ok(reply::empty(StatusCode::OK))
        }
        (_, [] | [_]) => Err(errors::method_not_allowed(ask, "GET, PUT and DELETE")),
        _ => Err(errors::no_such_path(ask)),
    }
}

fn listing(state: &State, wanted: impl Fn(&Lock) -> bool) -> Response {
    let value: Vec<Value> =
        state.locks.values().filter(|lock| wanted(lock)).map(|lock| shown(state, lock)).collect();
    reply::ok(&json!({"value": value, "nextLink": null}))
}

fn no_lock(name: &str) -> Refusal {
    Refusal::because(
        Code::ResourceNotFound,
        format!("There is no lock '{name}' on it; 'neap lock list' shows all."),
    )
}

fn read(name: &str, body: &Value) -> Result<(LockLevel, String), Refusal> {
    let mut problems = Vec::new();
    let fields = Fields::of(Some(body), "", &mut problems);
    let properties = fields.object("properties", &mut problems);
    let level = properties.text("level", &mut problems);
    let notes = properties.text("notes", &mut problems).unwrap_or_default().to_owned();
    let parsed = level.and_then(LockLevel::parse);
    if parsed.is_none() {
        let message =
            format!("The level of a lock is CanNotDelete or ReadOnly, not '{}'.", level.unwrap_or_default());
        problems.push(errors::bad(&message, "properties.level"));
    }
    problems.extend(names::check_lock_name(name));
    Refusal::unless_empty(problems)?;
    parsed
        .map(|level| (level, notes))
        .ok_or_else(|| Refusal::because(Code::BadArgument, "A lock needs a level."))
}

/// What is wrong with a lock is told beside that there is nothing to be locked.
fn with_the_rest(mut missing: Refusal, name: &str, ask: &Ask) -> Refusal {
    let read = ask.json().and_then(|body| read(name, &body));
    missing.problems.extend(read.err().into_iter().flat_map(|refusal| refusal.problems));
    missing
}

fn place(state: &State, scope: &[&str]) -> Result<LockScope, Refusal> {
    match scope {
        ["subscriptions", s, "resourcegroups", g] => {
            groups::find(state, s, g)?;
            Ok(LockScope::Group(GroupKey::new(s, g)))
        }
        ["subscriptions", s, "resourcegroups", g, "providers", ML, "workspaces", w] => {
            Ok(LockScope::Workspace(workspaces::find(state, s, g, w)?.id))
        }
        ["subscriptions", s, "resourcegroups", g, "providers", ML, "workspaces", w, "computes", c] => {
            let workspace = workspaces::find(state, s, g, w)?;
            match state.cluster(workspace.id, c) {
                Some(cluster) => Ok(LockScope::Cluster(cluster.id)),
                None => {
                    Err(Refusal::because(Code::ResourceNotFound, format!("The compute '{c}' was not found.")))
                }
            }
        }
        _ => Err(Refusal::because(
            Code::NotSupported,
            "Locks are on resource groups, workspaces and computes here; a subscription or another resource cannot be locked.",
        )),
    }
}

fn arm_id(state: &State, scope: &LockScope) -> Option<String> {
    match scope {
        LockScope::Group(key) => {
            state.groups.get(key).map(|group| paths::group_id(&group.subscription, &group.name))
        }
        LockScope::Workspace(id) => state.workspaces.get(id).map(|workspace| paths::workspace_id(workspace)),
        LockScope::Cluster(id) => {
            let cluster = state.clusters.get(id)?;
            Some(paths::cluster_id(state.workspaces.get(&cluster.workspace)?, cluster))
        }
    }
}

fn shown(state: &State, lock: &Lock) -> Value {
    let scope = arm_id(state, &lock.scope).unwrap_or_default();
    json!({
        "id": format!("{scope}/providers/Microsoft.Authorization/locks/{}", lock.name),
        "name": lock.name,
        "type": "Microsoft.Authorization/locks",
        "properties": {"level": lock.level.canonical(), "notes": lock.notes, "owners": []},
        "systemData": system_data(&lock.by, lock.at, lock.at),
    })
}
