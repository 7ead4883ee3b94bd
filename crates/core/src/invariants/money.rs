//! B1: no grant passes the budget in force at that event; what is reserved is what leases say.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Violation, broken};
use crate::budget::{self, Budget};
use crate::cluster::Cut;
use crate::event::Event;
use crate::ids::BudgetId;
use crate::state::State;
use crate::units::Millis;

/// B1: what budgets have reserved is what the leases of nodes hold, from where the books end.
pub fn b1_leases_are_reserved(state: &State, out: &mut Vec<Violation>) {
    let mut counted: BTreeMap<(BudgetId, Millis), u64> = BTreeMap::new();
    for node in state.nodes.values() {
        for budget in budget::covering(state, node) {
            for (period, cost) in budget::reserved(budget, node) {
                *counted.entry((budget.id, period)).or_default() += cost;
            }
        }
        if let Some(lease) = node.lease.filter(|lease| lease.renew_at > lease.until) {
            broken(out, "B1", format!("node {} is to be renewed after its lease {lease:?}", node.id));
        }
    }
    for budget in state.budgets.values() {
        for (period, figures) in &budget.periods {
            let held = counted.remove(&(budget.id, *period)).unwrap_or(0);
            if held != figures.reserved.0 {
                let (name, kept) = (&budget.name, figures.reserved.0);
                broken(out, "B1", format!("budget '{name}': leases hold {held} and {kept} is kept"));
            }
        }
    }
    for ((id, _), held) in counted.into_iter().filter(|(_, held)| *held > 0) {
        broken(out, "B1", format!("budget {id}: leases hold {held} in a period that is not kept"));
    }
}

/// What was granted of each budget in each period, as of the last event.
#[derive(Clone, Debug, Default)]
pub(super) struct Granted {
    granted: BTreeMap<(BudgetId, Millis), u64>,
}

impl Granted {
    /// An event that grants leaves what is granted within the amount, or no larger than it was. Any other leaves it no
    /// larger. What is spent past a lease is no grant; it shows as excess.
    pub fn observe(&mut self, event: &Event, after: &State, out: &mut Vec<Violation>) {
        if after.budgets.is_empty() && self.granted.is_empty() {
            return;
        }
        let grants = matches!(event, Event::NodeRequested(_) | Event::MoneyLeased(_) | Event::JobPlaced(_));
        let mut now = BTreeMap::new();
        for budget in after.budgets.values() {
            let current = budget.every.period(after.now).0;
            for (period, figures) in &budget.periods {
                let (granted, amount) = (figures.granted(), budget.amount.0);
                let before = self.granted.get(&(budget.id, *period)).copied().unwrap_or(0);
                now.insert((budget.id, *period), granted);
                // What a node without a lease has cost already is in its first lease, also where its period is over.
                if granted <= before || matches!(event, Event::BudgetPut(_)) || (grants && *period < current)
                {
                    continue;
                }
                let (name, kind) = (&budget.name, event.kind());
                if !grants {
                    broken(
                        out,
                        "B1",
                        format!("{kind} makes {granted} of {before} granted by budget '{name}'"),
                    );
                } else if granted > amount {
                    broken(out, "B1", format!("{kind} makes {granted} of {amount} of budget '{name}'"));
                }
            }
        }
        self.granted = now;
    }
}

/// At least as long as the shortest that a new node is given.
const A_LEASE_MS: u64 = 300_000;

/// Whether an event of a second plan may have come with a later one. Near the end of a budget's period the part of a lease
/// that is the next period's grows with every moment. What is done for it waits for no timer, but what a cluster says about
/// money that it could not use anyway, or about room that it leaves to somebody who has just run out of money, may be older.
pub fn is_told_later(state: &State, event: &Event, now: Millis) -> bool {
    let Event::ClusterTarget(e) = event else { return false };
    let Some(cluster) = state.clusters.get(&e.id) else { return false };
    let is_of_money = |cut: &&Cut| matches!(cut, Cut::Budget { .. } | Cut::RoomWanted { .. });
    let of_money = |cuts: &[Cut]| cuts.iter().filter(is_of_money).count();
    let ends_soon = |budget: &Arc<Budget>| budget.period_ends.is_some_and(|end| end.since(now) < A_LEASE_MS);
    cluster.target == e.target
        && of_money(&cluster.cuts) != of_money(&e.cuts)
        && state.budgets.values().any(ends_soon)
}
