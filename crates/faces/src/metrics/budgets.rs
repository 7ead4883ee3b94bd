//! Each budget: its amount, what is spent and reserved of it in this period, and what went beyond leases.

use neap_core::budget;

use super::exposition::{Exposition, Kind};
use crate::app::App;

/// Of money, to a dollar.
const MICRO: u64 = 1_000_000;

pub(crate) fn write(out: &mut Exposition, app: &App) {
    let (state, now) = (app.state(), app.now());
    let spent = budget::spent_so_far(&state, now);
    let mut gauge = |name, help: &str, value: &dyn Fn(&budget::Budget) -> u64| {
        let mut family = out.family(name, Kind::Gauge, help);
        for budget in state.budgets.values() {
            family.parts(&[("budget", &budget.name), ("period", budget.every.word())], value(budget), MICRO);
        }
    };
    gauge("neap_budget_amount_dollars", "How much may be spent in a period.", &|budget| budget.amount.0);
    gauge("neap_budget_spent_dollars", "What was spent in this period, up to now.", &|budget| {
        spent.get(&budget.id).map_or(0, |spent| spent.0)
    });
    gauge("neap_budget_committed_dollars", "What was spent and what is reserved for nodes.", &|budget| {
        budget.figures(now).committed()
    });
    gauge("neap_budget_excess_dollars", "What was spent past the leases of nodes.", &|budget| {
        budget.figures(now).excess.0
    });
}
