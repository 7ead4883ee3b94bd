//! Limits and locks: setting them, asking for more, taking them away.

use std::sync::Arc;

use crate::allowance::{Allowance, AllowanceKey, Who, Within};
use crate::command::{PutLock, RequestQuota};
use crate::event::{AllowanceSet, Event, LockDeleted, LockPut, QuotaAnswered, QuotaRequested, QuotaSet};
use crate::limits;
use crate::lock::LockScope;
use crate::names;
use crate::problem::{Code, Problem, Refusal};
use crate::quota::{Holder, QuotaKey, QuotaRequest};
use crate::state::State;

/// `None` takes the limit away. A limit below what is held is taken: it stops growth, and says so in `usages`.
pub fn set_quota(
    state: &State,
    key: QuotaKey,
    limit: Option<u64>,
    by: Arc<str>,
) -> Result<Vec<Event>, Refusal> {
    let key = known(state, key)?;
    if state.quotas.get(&key).copied() == limit {
        return Ok(Vec::new());
    }
    Ok(vec![QuotaSet { key, limit, by }.into()])
}

/// `None` takes the limit away.
pub fn set_allowance(
    state: &State,
    key: AllowanceKey,
    allowance: Option<Allowance>,
    by: Arc<str>,
) -> Result<Vec<Event>, Refusal> {
    let there = match key.within {
        Within::Workspace(id) => state.workspaces.contains_key(&id),
        Within::Cluster(id) => state.clusters.contains_key(&id),
    };
    if !there {
        return Err(Refusal::because(Code::ResourceNotFound, "What the limit is for was not found."));
    }
    if let Who::Team(team) = &key.who
        && allowance.is_some()
        && !state.settings.teams.contains_key(team)
    {
        let known: Vec<&str> = state.settings.teams.keys().map(|name| &**name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("There is no team '{team}'; 'teams' in the configuration has: {known}.");
        return Err(Refusal::because(Code::BadArgument, message));
    }
    if allowance.is_some_and(|allowance| allowance.jobs.is_none() && allowance.cores.is_none()) {
        let message = "Say how many jobs or cores may run at a time.";
        return Err(Refusal::because(Code::BadArgument, message));
    }
    if state.allowances.get(&key).copied() == allowance {
        return Ok(Vec::new());
    }
    let is_new = allowance.is_some() && !state.allowances.contains_key(&key);
    if is_new && state.allowances.len() >= limits::ALLOWANCES_MAX {
        let message = format!("There are {} such limits, which is the most.", state.allowances.len());
        return Err(Refusal::because(Code::LimitReached, message));
    }
    Ok(vec![AllowanceSet { key, allowance, by }.into()])
}

pub fn request_quota(state: &State, request: RequestQuota) -> Result<Vec<Event>, Refusal> {
    let RequestQuota { key, limit, by, reason } = request;
    let key = known(state, key)?;
    let open = state.quota_requests.values().filter(|request| request.answer.is_none()).count();
    if open >= limits::QUOTA_REQUESTS_OPEN_MAX {
        let message = format!(
            "{open} requests wait for an answer, which is the limit; have some of them answered first."
        );
        return Err(Refusal::because(Code::LimitReached, message));
    }
    match state.quotas.get(&key) {
        None => Err(Refusal::because(
            Code::BadArgument,
            format!("There is no limit on {key}: nothing needs to be asked for."),
        )),
        Some(now) if limit <= *now => {
            Err(Refusal::because(Code::BadArgument, format!("The limit on {key} is {now} already.")))
        }
        Some(_) => Ok(vec![QuotaRequested { id: state.next.quota_request, key, limit, by, reason }.into()]),
    }
}

pub fn answer_quota(
    state: &State,
    id: u64,
    approved: bool,
    by: Arc<str>,
    reason: Arc<str>,
) -> Result<Vec<Event>, Refusal> {
    let Some(request) = state.quota_requests.get(&id) else {
        return Err(Refusal::because(Code::ResourceNotFound, format!("There is no quota request {id}.")));
    };
    if let Some(answer) = &request.answer {
        let word = if answer.approved { "approved" } else { "denied" };
        let (by, at) = (&answer.by, answer.at.rfc3339());
        let message = format!("The quota request {id} was {word} by '{by}' at {at}; it is answered once.");
        return Err(Refusal::because(Code::QuotaRequestAnswered, message));
    }
    if approved {
        may_be_approved(state, id, request)?;
    }
    let mut events = vec![QuotaAnswered { id, approved, by: by.clone(), reason }.into()];
    if approved {
        events.push(QuotaSet { key: request.key.clone(), limit: Some(request.limit), by }.into());
    }
    Ok(events)
}

/// What was asked for must still be more than there is, and no more than what is around it allows.
fn may_be_approved(state: &State, id: u64, request: &QuotaRequest) -> Result<(), Refusal> {
    let (key, limit) = (&request.key, request.limit);
    let refused = |why: String| Err(Refusal::because(Code::BadArgument, format!("{why} Deny request {id}.")));
    match state.quotas.get(key) {
        None => refused(format!("There is no limit on {key} any more, and approving would set one.")),
        Some(now) if limit <= *now => {
            refused(format!("The limit on {key} is {now} by now, and {limit} would be no more."))
        }
        Some(_) => match above(state, key).filter(|above| limit > *above) {
            Some(above) => {
                refused(format!("{limit} is above the subscription's limit on it, which is {above}."))
            }
            None => Ok(()),
        },
    }
}

/// The limit of the subscription that a workspace's is a part of.
fn above(state: &State, key: &QuotaKey) -> Option<u64> {
    let Holder::Workspace(id) = &key.holder else { return None };
    let subscription = state.workspaces.get(id)?.subscription.to_lowercase();
    let above = QuotaKey { holder: Holder::Subscription(subscription.into()), ..key.clone() };
    state.quotas.get(&above).copied()
}

/// The key with its location as every cluster spells it; a workspace's limit needs the workspace.
fn known(state: &State, mut key: QuotaKey) -> Result<QuotaKey, Refusal> {
    let mut problems = Vec::new();
    key.location = super::places::known_location(state, &key.location, &mut problems);
    if let Holder::Workspace(id) = &key.holder {
        super::places::live_workspace(state, *id)?;
    }
    Refusal::unless_empty(problems)?;
    Ok(key)
}

pub fn put_lock(state: &State, put: PutLock) -> Result<Vec<Event>, Refusal> {
    let PutLock { scope, name, level, notes, by } = put;
    let mut problems: Vec<Problem> = names::check_lock_name(&name).into_iter().collect();
    if !is_there(state, &scope) {
        problems.push(Problem::new(Code::ResourceNotFound, "What is to be locked was not found."));
    }
    let is_new = !state.locks.contains_key(&(scope.clone(), name.to_lowercase().into()));
    if is_new && state.locks.len() >= limits::LOCKS_MAX {
        problems.push(Problem::new(
            Code::LimitReached,
            format!("There are {} locks, which is the limit.", limits::LOCKS_MAX),
        ));
    }
    Refusal::unless_empty(problems)?;
    Ok(vec![LockPut { scope, name, level, notes, by }.into()])
}

pub fn delete_lock(state: &State, scope: LockScope, name: &str) -> Result<Vec<Event>, Refusal> {
    match state.locks.get(&(scope.clone(), name.to_lowercase().into())) {
        None => Err(Refusal::because(Code::ResourceNotFound, format!("There is no lock '{name}' on it."))),
        Some(lock) => Ok(vec![LockDeleted { scope, name: lock.name.clone() }.into()]),
    }
}

fn is_there(state: &State, scope: &LockScope) -> bool {
    match scope {
        LockScope::Group(key) => state.groups.contains_key(key),
        LockScope::Workspace(id) => state.workspaces.get(id).is_some_and(|workspace| !workspace.deleting),
        LockScope::Cluster(id) => state.clusters.get(id).is_some_and(|cluster| !cluster.is_deleting()),
    }
}
