//! Limits, what counts against them, and locks.

use std::sync::Arc;

use crate::cluster::{Cluster, Shape};
use crate::event::{AllowanceSet, LockDeleted, LockPut, QuotaAnswered, QuotaRequested, QuotaSet};
use crate::limits::QUOTA_REQUESTS_KEPT;
use crate::lock::{Lock, LockScope};
use crate::planted::{self, Bug};
use crate::quota::{self, Holder, QuotaAnswer, QuotaRequest, Usage};
use crate::state::State;
use crate::units::Millis;

pub(super) fn quota_set(state: &mut State, e: &QuotaSet) {
    match e.limit {
        Some(limit) => state.quotas.insert(e.key.clone(), limit),
        None => state.quotas.remove(&e.key),
    };
}

pub(super) fn allowance_set(state: &mut State, e: &AllowanceSet) {
    match e.allowance {
        Some(allowance) => state.allowances.insert(e.key.clone(), allowance),
        None => state.allowances.remove(&e.key),
    };
}

pub(super) fn quota_requested(state: &mut State, at: Millis, e: &QuotaRequested) {
    let request = QuotaRequest {
        id: e.id,
        key: e.key.clone(),
        limit: e.limit,
        by: e.by.clone(),
        reason: e.reason.clone(),
        at,
        answer: None,
    };
    state.quota_requests.insert(e.id, Arc::new(request));
    state.next.quota_request = state.next.quota_request.max(e.id + 1);
}

pub(super) fn quota_answered(state: &mut State, at: Millis, e: &QuotaAnswered) {
    if let Some(request) = state.quota_requests.get_mut(&e.id).map(Arc::make_mut) {
        request.answer =
            Some(QuotaAnswer { approved: e.approved, by: e.by.clone(), reason: e.reason.clone(), at });
    }
    let answered = state.quota_requests.values().filter(|request| request.answer.is_some());
    let answered: Vec<u64> = answered.map(|request| request.id).collect();
    for old in answered.iter().take(answered.len().saturating_sub(QUOTA_REQUESTS_KEPT)) {
        state.quota_requests.remove(old);
    }
}

/// What a cluster holds is counted (`sign` 1) or no longer (`sign` -1).
pub(super) fn count_held(state: &mut State, cluster: &Cluster, sign: i64) {
    let place = (cluster.workspace, &cluster.location);
    let floor = cluster.mix.as_ref().map(|mix| &mix.floor).filter(|_| !planted::is(Bug::FloorHeldAsLow));
    for (key, held) in quota::holdings(state, place, &cluster.shape, floor, cluster.declared) {
        count(state, key, |usage| usage.held = moved(usage.held, held, sign));
    }
}

/// What one of its nodes uses: by the node's own shape, which may be an older one than the cluster's.
pub(super) fn count_node(state: &mut State, cluster: &Cluster, shape: &Shape, sign: i64) {
    let cores = quota::cores(shape);
    for key in quota::keys(state, cluster.workspace, &cluster.location, shape) {
        if key.pool.counts_cores() {
            count(state, key, |usage| usage.in_use = moved(usage.in_use, cores, sign));
        }
    }
}

fn count(state: &mut State, key: quota::QuotaKey, change: impl FnOnce(&mut Usage)) {
    let mut usage = state.quota_usage.get(&key).copied().unwrap_or_default();
    change(&mut usage);
    if usage == Usage::default() {
        state.quota_usage.remove(&key);
    } else {
        state.quota_usage.insert(key, usage);
    }
}

fn moved(count: u64, by: u64, sign: i64) -> u64 {
    if sign > 0 { count + by } else { count.saturating_sub(by) }
}

pub(super) fn lock_put(state: &mut State, at: Millis, e: &LockPut) {
    let lock = Lock {
        scope: e.scope.clone(),
        name: e.name.clone(),
        level: e.level,
        notes: e.notes.clone(),
        by: e.by.clone(),
        at,
    };
    state.locks.insert((e.scope.clone(), e.name.to_lowercase().into()), Arc::new(lock));
}

pub(super) fn lock_deleted(state: &mut State, e: &LockDeleted) {
    state.locks.remove(&(e.scope.clone(), e.name.to_lowercase().into()));
}

/// What is gone has no locks and no budgets, and a workspace that is gone no limits.
pub(super) fn scope_gone(state: &mut State, scope: &LockScope) {
    if let LockScope::Workspace(id) = scope {
        let holder = Holder::Workspace(*id);
        let of_it: Vec<_> = state.quotas.keys().filter(|key| key.holder == holder).cloned().collect();
        for key in of_it {
            state.quotas.remove(&key);
        }
    }
    super::money::scope_gone(state, scope);
    let of_it: Vec<_> = state.locks.keys().filter(|(on, _)| on == scope).cloned().collect();
    for key in of_it {
        state.locks.remove(&key);
    }
}
