//! Budgets: what was spent and what is reserved of each, kept as nodes do this and that.
//!
//! Around every event that ends a node's slice or changes its lease, what the node had reserved is taken back, the slice is
//! charged to those who pay for it, and what it reserves from then on is put in again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget::{self, Budget, BudgetScope, Figures};
use crate::event::{BudgetDeleted, BudgetPut, BudgetRenewed, Event, MoneyLeased};
use crate::ids::{BudgetId, NodeId};
use crate::limits::BUDGET_PERIODS_KEPT;
use crate::lock::LockScope;
use crate::meter::{self, Posting, Segment};
use crate::node::Node;
use crate::planted::{self, Bug};
use crate::state::{State, Timer};
use crate::units::Millis;

/// Before the event: charges slices that end, and takes back what those nodes had reserved. Returns which.
pub(super) fn settle(state: &mut State, at: Millis, event: &Event) -> Vec<NodeId> {
    if state.budgets.is_empty() {
        return Vec::new();
    }
    let mut nodes = meter::ends_slice_of(state, event);
    match event {
        Event::NodeRequested(e) => nodes.push(e.id),
        Event::MoneyLeased(e) => nodes.push(e.node),
        _ => {}
    }
    nodes.sort_unstable();
    nodes.dedup();
    if !nodes.is_empty() {
        let held: Vec<_> = nodes.iter().flat_map(|id| reserved_by(state, *id)).collect();
        change(state, held, |figures, cost| {
            figures.reserved.0 = figures.reserved.0.saturating_sub(cost);
        });
        charge(state, at, event);
    }
    nodes
}

/// After the event: what these nodes reserve now.
pub(super) fn reserve(state: &mut State, nodes: &[NodeId]) {
    let held: Vec<_> = nodes.iter().flat_map(|id| reserved_by(state, *id)).collect();
    change(state, held, |figures, cost| figures.reserved.0 = figures.reserved.0.saturating_add(cost));
}

type Parts = Vec<(BudgetId, Millis, u64)>;

fn reserved_by(state: &State, id: NodeId) -> Parts {
    let Some(node) = state.nodes.get(&id) else { return Vec::new() };
    let of = |budget: &Arc<Budget>| {
        let (id, parts) = (budget.id, budget::reserved(budget, node));
        parts.into_iter().map(move |(period, cost)| (id, period, cost))
    };
    budget::covering(state, node).into_iter().flat_map(of).collect()
}

fn change(state: &mut State, parts: Parts, mut each: impl FnMut(&mut Figures, u64)) {
    for (id, period, cost) in parts.into_iter().filter(|(_, _, cost)| *cost > 0) {
        if let Some(budget) = state.budgets.get_mut(&id).map(Arc::make_mut) {
            each(budget.periods.entry(period).or_default(), cost);
        }
    }
}

/// Charges what the event posts. A node's slice is summed up for each budget before it is divided among periods, so that
/// no more is charged to one of them than was reserved in it.
fn charge(state: &mut State, at: Millis, event: &Event) {
    let mut slices: BTreeMap<(NodeId, Millis, Millis), Vec<Segment>> = BTreeMap::new();
    for posting in meter::closed(state, at, event) {
        if let Posting::Segment(segment) = posting {
            slices.entry((segment.node, segment.from, segment.to)).or_default().push(segment);
        }
    }
    let (mut spent, mut excess): (Parts, Parts) = (Vec::new(), Vec::new());
    for ((id, from, to), segments) in slices {
        let Some(node) = state.nodes.get(&id) else { continue };
        for budget in state.budgets.values() {
            let covered = segments.iter().filter(|segment| budget::covers_segment(state, budget, segment));
            let cost = covered.fold(0_u64, |sum, segment| sum.saturating_add(segment.cost.0));
            if cost == 0 {
                continue;
            }
            let upto = |moment: Millis| share(node, from, to, cost, moment);
            let split_from = if planted::is(Bug::PeriodNotSplit) {
                vec![(budget.every.period(to).0, cost)]
            } else {
                budget.parts(from, to, upto)
            };
            spent.extend(split_from.into_iter().map(|(period, cost)| (budget.id, period, cost)));
            let leased = node.lease.map_or(from, |lease| lease.until.max(from));
            let over = budget.parts(leased, to, upto);
            excess.extend(over.into_iter().map(|(period, cost)| (budget.id, period, cost)));
        }
    }
    change(state, spent, |figures, cost| figures.spent.0 = figures.spent.0.saturating_add(cost));
    change(state, excess, |figures, cost| figures.excess.0 = figures.excess.0.saturating_add(cost));
}

/// What of a part of a slice had come together at a moment: in step with the node's bill, and rounded down.
fn share(node: &Node, from: Millis, to: Millis, cost: u64, at: Millis) -> u64 {
    let since = |at: Millis| u128::from(meter::bill(node, at).saturating_sub(meter::bill(node, from)));
    let whole = since(to).max(1);
    u64::try_from(u128::from(cost) * since(at) / whole).unwrap_or(u64::MAX)
}

pub(super) fn put(state: &mut State, at: Millis, e: &BudgetPut) {
    if let Some(budget) = state.budgets.get_mut(&e.id).map(Arc::make_mut) {
        budget.amount = e.amount;
        budget.at_cap = e.at_cap;
        budget.thresholds.clone_from(&e.thresholds);
        budget.modified = at;
        return;
    }
    let budget = Budget {
        id: e.id,
        name: e.name.clone(),
        scope: e.scope.clone(),
        amount: e.amount,
        every: e.every,
        at_cap: e.at_cap,
        thresholds: e.thresholds.clone(),
        by: e.by.clone(),
        created: at,
        modified: at,
        period_ends: e.period_ends,
        periods: BTreeMap::new(),
    };
    state.budgets.insert(e.id, Arc::new(budget));
    state.next.budget = state.next.budget.max(e.id.next());
    time(state, e.id, None, e.period_ends);
    // Leases that are there count.
    let nodes: Vec<NodeId> = state.nodes.keys().copied().collect();
    let held = nodes.iter().flat_map(|id| reserved_by(state, *id)).filter(|(of, _, _)| *of == e.id).collect();
    change(state, held, |figures, cost| figures.reserved.0 = figures.reserved.0.saturating_add(cost));
}

pub(super) fn renewed(state: &mut State, at: Millis, e: &BudgetRenewed) {
    let Some(budget) = state.budgets.get_mut(&e.id).map(Arc::make_mut) else { return };
    let before = std::mem::replace(&mut budget.period_ends, e.period_ends);
    let current = budget.every.period(at).0;
    let many = budget.periods.len().saturating_sub(BUDGET_PERIODS_KEPT);
    let old: Vec<Millis> = budget
        .periods
        .iter()
        .filter(|(period, figures)| **period < current && figures.reserved.0 == 0)
        .map(|(period, _)| *period)
        .take(many)
        .collect();
    for period in old {
        budget.periods.remove(&period);
    }
    time(state, e.id, before, e.period_ends);
}

pub(super) fn deleted(state: &mut State, e: &BudgetDeleted) {
    if let Some(budget) = state.budgets.remove(&e.id) {
        time(state, e.id, budget.period_ends, None);
    }
}

fn time(state: &mut State, id: BudgetId, before: Option<Millis>, after: Option<Millis>) {
    before.map(|at| state.timers.remove(&(at, Timer::Budget(id))));
    after.map(|at| state.timers.insert((at, Timer::Budget(id))));
}

pub(super) fn leased(state: &mut State, e: &MoneyLeased) {
    untime(state, e.node);
    if let Some(node) = state.nodes.get_mut(&e.node).map(Arc::make_mut) {
        node.lease = Some(e.lease);
    }
    time_lease(state, e.node);
}

/// When a node's money needs a look.
pub fn lease_timer(node: &Node) -> Option<Millis> {
    node.lease.map(|lease| lease.renew_at)
}

pub(super) fn time_lease(state: &mut State, id: NodeId) {
    if let Some(at) = state.nodes.get(&id).and_then(|node| lease_timer(node)) {
        state.timers.insert((at, Timer::Money(id)));
    }
}

pub(super) fn untime(state: &mut State, id: NodeId) {
    if let Some(at) = state.nodes.get(&id).and_then(|node| lease_timer(node)) {
        state.timers.remove(&(at, Timer::Money(id)));
    }
}

/// A server that lived would have renewed a lease, or let the node go, before the lease ended. One that comes back after a
/// lease's end and whose log ends before it was away; and the node has ended itself by then, for nobody prolonged it.
pub(super) fn server_was_away(state: &mut State, last: Millis, at: Millis) {
    let ended: Vec<NodeId> = state
        .nodes
        .values()
        .filter(|node| node.lease.is_some_and(|lease| last < lease.until && lease.until <= at))
        .map(|node| node.id)
        .collect();
    for id in ended {
        if let Some(node) = state.nodes.get_mut(&id).map(Arc::make_mut) {
            node.costs_until = node.costs_until.or(node.lease.map(|lease| lease.until));
        }
    }
}

/// What is gone has no budgets.
pub(super) fn scope_gone(state: &mut State, scope: &LockScope) {
    let of_it = |budget: &&Arc<Budget>| match (&budget.scope, scope) {
        (BudgetScope::Group(key), LockScope::Group(gone)) => key == gone,
        (BudgetScope::Workspace(id) | BudgetScope::Job { workspace: id, .. }, LockScope::Workspace(gone)) => {
            id == gone
        }
        (BudgetScope::Cluster(id), LockScope::Cluster(gone)) => id == gone,
        _ => false,
    };
    let gone: Vec<BudgetId> = state.budgets.values().filter(of_it).map(|budget| budget.id).collect();
    for id in gone {
        deleted(state, &BudgetDeleted { id });
    }
}
