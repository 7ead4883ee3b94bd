//! What a node's money is reserved for: leases, who asks for one, and whether it fits.
//!
//! Only three things commit more of a budget: asking for a node ([`grant`]), prolonging a lease ([`renewal`]), and putting
//! a job on a node that is there ([`admission`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Budget, any_of_payers, covering, of_cluster, of_payer};
use crate::cluster::{Cluster, Cut};
use crate::ids::{AttemptId, JobId, NodeId};
use crate::job::Job;
use crate::limits;
use crate::meter::{self, Payer};
use crate::node::Node;
use crate::planted::{self, Bug};
use crate::settings::Settings;
use crate::state::State;
use crate::units::{MicroUsd, Millis};

/// A node's money: what it costs up to `until` is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub until: Millis,
    /// From here on there is just time enough to be gone before `until`.
    pub renew_at: Millis,
}

/// How long it takes a node to be gone for certain: its attempts end, nobody prolongs its right to exist, it ends itself.
pub const fn removal_bound_ms(settings: &Settings) -> u64 {
    settings.stop_span_ms() + settings.lease_ttl_ms + settings.leave_deadline_ms
}

fn lease(settings: &Settings, now: Millis, term_ms: u64) -> Lease {
    let bound = removal_bound_ms(settings);
    Lease { until: now.plus(bound + term_ms), renew_at: now.plus(term_ms) }
}

/// The least that a new node is given: with less it would not do much, and it must outlive its own start.
fn least_new(settings: &Settings, now: Millis) -> Lease {
    let bound = removal_bound_ms(settings);
    lease(settings, now, limits::LEASE_TERM_SHORT_MS.max(limits::BOOT_BOUND_MS.saturating_sub(bound)))
}

/// What a lease reserves of a budget, by period.
pub(crate) fn reserved(budget: &Budget, node: &Node) -> Vec<(Millis, u64)> {
    match node.lease {
        Some(lease) => budget.parts(node.metered, lease.until, |at| meter::bill(node, at)),
        None => Vec::new(),
    }
}

/// What somebody would reserve beyond what is.
#[derive(Clone, Copy)]
enum Wish<'a> {
    /// Of nodes that the budget does not pay for yet.
    New { price: MicroUsd, nodes: u64, now: Millis, until: Millis },
    /// Of a node that it pays for.
    Longer { node: &'a Node, now: Millis, until: Millis },
}

impl Wish<'_> {
    /// What is new counts as if all of it fell into the period of now, and where it falls: so that whether it fits does not
    /// change by the mere passing of time, and nobody has to look again before something happens or the period ends. A bill
    /// may be a micro-unit more than the price for the time, by where in it the time lies.
    fn extra(&self, budget: &Budget) -> Vec<(Millis, u64)> {
        match *self {
            Self::New { price, nodes, now, until } => {
                let upto = |at: Millis| u64::try_from(price.over(at.since(now))).unwrap_or(u64::MAX);
                let cost = |cost: u64| cost.saturating_add(1).saturating_mul(nodes);
                let mut parts = budget.parts(now, until, upto);
                if let Some((_, first)) = parts.first_mut() {
                    *first = upto(until);
                }
                parts.into_iter().map(|(period, part)| (period, cost(part))).collect()
            }
            Self::Longer { node, until, .. } => {
                let held: BTreeMap<Millis, u64> = reserved(budget, node).into_iter().collect();
                let parts = budget.parts(node.metered, until, |at| meter::bill(node, at));
                let beyond = |(period, cost): (Millis, u64)| {
                    (period, cost.saturating_sub(held.get(&period).copied().unwrap_or(0)))
                };
                parts.into_iter().map(beyond).collect()
            }
        }
    }

    const fn now(&self) -> Millis {
        match self {
            Self::New { now, .. } | Self::Longer { now, .. } => *now,
        }
    }
}

/// Whether all of it fits a budget, in every period that is not over. With `careful` it may take an eighth of what is left
/// at most: long leases are for where there is plenty.
fn fits(budget: &Budget, wishes: &[Wish<'_>], careful: bool) -> bool {
    let mut extra: BTreeMap<Millis, u64> = BTreeMap::new();
    let Some(now) = wishes.first().map(Wish::now) else { return true };
    for (period, cost) in wishes.iter().flat_map(|wish| wish.extra(budget)) {
        let sum = extra.entry(period).or_default();
        *sum = sum.saturating_add(cost);
    }
    let current = budget.every.period(now).0;
    extra.into_iter().filter(|(period, cost)| *period >= current && *cost > 0).all(|(period, cost)| {
        let committed = budget.periods.get(&period).map_or(0, |figures| figures.committed());
        let left = budget.amount.0.saturating_sub(committed);
        if careful { cost.saturating_mul(8) <= left } else { cost <= left }
    })
}

fn refusing<'a>(budgets: &[&'a Arc<Budget>], wish: Wish<'_>, careful: bool) -> Option<&'a Arc<Budget>> {
    budgets.iter().copied().find(|budget| !fits(budget, &[wish], careful))
}

/// The lease of the first of so many nodes that are to be asked for, because of this job if of any; or which budget has no
/// room for it. A long one only where all of them could have such. No lease where nobody has to pay.
pub fn grant(
    state: &State,
    cluster: &Cluster,
    cause: Option<JobId>,
    nodes: u32,
    now: Millis,
) -> Result<Option<Lease>, Cut> {
    let price = cluster.shape.price;
    if state.budgets.is_empty() || price.0 == 0 {
        return Ok(None);
    }
    let payer = cause.and_then(|id| state.jobs.get(&id)).map(|job| Payer::of(state, job));
    let mut budgets: Vec<_> = of_cluster(state, cluster).collect();
    budgets.extend(payer.iter().flat_map(|payer| of_payer(state, payer)));
    if budgets.is_empty() {
        return Ok(None);
    }
    let long = lease(&state.settings, now, limits::LEASE_TERM_LONG_MS);
    let least = least_new(&state.settings, now);
    let wish = |nodes: u32, lease: Lease| Wish::New { price, nodes: nodes.into(), now, until: lease.until };
    if refusing(&budgets, wish(nodes, long), true).is_none() {
        return Ok(Some(long));
    }
    match refusing(&budgets, wish(1, least), false) {
        None => Ok(Some(least)),
        Some(budget) => Err(cut(state, budget, price, 1, now)),
    }
}

/// Why a cluster may not have so many further nodes at once, if so, whoever causes them.
pub fn nodes_cut(state: &State, cluster: &Cluster, nodes: u32, now: Millis) -> Option<Cut> {
    let price = cluster.shape.price;
    if state.budgets.is_empty() || price.0 == 0 || nodes == 0 {
        return None;
    }
    nodes_cuts(state, cluster, nodes, now).next()
}

/// The same, for every budget that has not the room.
pub fn nodes_cuts<'a>(
    state: &'a State,
    cluster: &'a Cluster,
    nodes: u32,
    now: Millis,
) -> impl Iterator<Item = Cut> + 'a {
    let wanted = nodes > 0 && cluster.shape.price.0 > 0;
    let budgets = of_cluster(state, cluster).filter(move |_| wanted);
    budgets.filter_map(move |budget| no_room(state, budget, cluster.shape.price, nodes, now))
}

/// Why a job may not have nodes now, if so: those who pay for it have not the money, and no free node is reserved for it.
pub fn bars(state: &State, cluster: &Cluster, job: &Job, now: Millis) -> Option<Cut> {
    if cluster.shape.price.0 == 0 || !any_of_payers(state) {
        return None;
    }
    let payer = Payer::of(state, job);
    of_payer(state, &payer).find_map(|budget| barred_by(state, budget, cluster, job, now))
}

/// The same, for every budget that has not the money.
pub fn all_bars(state: &State, cluster: &Cluster, job: &Job, now: Millis) -> Vec<Cut> {
    let payer = Payer::of(state, job);
    let budgets = of_payer(state, &payer).filter(|_| cluster.shape.price.0 > 0);
    budgets.filter_map(|budget| barred_by(state, budget, cluster, job, now)).collect()
}

fn barred_by(state: &State, budget: &Budget, cluster: &Cluster, job: &Job, now: Millis) -> Option<Cut> {
    let cut = no_room(state, budget, cluster.shape.price, job.nodes, now)?;
    let missing = job.nodes.saturating_sub(free_under(state, cluster, budget, now));
    if missing == 0 {
        return None;
    }
    no_room(state, budget, cluster.shape.price, missing, now).map(|_| cut)
}

/// How many of a cluster's nodes are there or on their way, have nothing on them, and are paid for by this budget.
fn free_under(state: &State, cluster: &Cluster, budget: &Budget, now: Millis) -> u32 {
    let free = |node: &&Arc<Node>| {
        node.is_live()
            && node.attempts.is_empty()
            && node.cordon.is_none()
            && node.lease.is_some_and(|lease| lease.renew_at > now)
            && covering(state, node).iter().any(|other| other.id == budget.id)
    };
    u32::try_from(state.nodes_of(cluster).filter(free).count()).unwrap_or(u32::MAX)
}

fn no_room(state: &State, budget: &Budget, price: MicroUsd, nodes: u32, now: Millis) -> Option<Cut> {
    let until = least_new(&state.settings, now).until;
    let wish = Wish::New { price, nodes: nodes.into(), now, until };
    (!fits(budget, &[wish], false)).then(|| cut(state, budget, price, nodes, now))
}

fn cut(state: &State, budget: &Budget, price: MicroUsd, nodes: u32, now: Millis) -> Cut {
    Cut::Budget {
        budget: budget.id,
        name: budget.name.clone(),
        amount: budget.amount,
        every: budget.every,
        needed: MicroUsd(least_cost(&state.settings, price, nodes)),
        nodes,
        renews: budget.renews(now),
    }
}

/// What the least lease of so many nodes costs.
pub fn least_cost(settings: &Settings, price: MicroUsd, nodes: u32) -> u64 {
    let span = least_new(settings, Millis(0)).until.0;
    let cost = if price.0 == 0 { 0 } else { price.over(span) + 1 };
    u64::try_from(cost * u128::from(nodes)).unwrap_or(u64::MAX)
}

/// Whether a node's lease is over, or about to be, and was not renewed: it is on its way out, and takes nobody.
pub fn runs_out(state: &State, node: &Node, now: Millis) -> bool {
    !state.budgets.is_empty()
        && node.lease.is_none_or(|lease| lease.renew_at <= now)
        && !covering(state, node).is_empty()
}

/// What a job's being put on these nodes takes: leases to be made or shortened first. `None`: there is no room for it.
pub fn admission(state: &State, job: &Job, nodes: &[NodeId], now: Millis) -> Option<Vec<(NodeId, Lease)>> {
    if state.budgets.is_empty() {
        return Some(Vec::new());
    }
    let nodes: Vec<&Arc<Node>> = nodes.iter().filter_map(|id| state.nodes.get(id)).collect();
    if nodes.iter().any(|node| runs_out(state, node, now)) {
        return None;
    }
    let held: Vec<_> = nodes.iter().map(|node| covering(state, node)).collect();
    let payer = Payer::of(state, job);
    let mine: Vec<_> = of_payer(state, &payer).collect();
    if mine.is_empty() || planted::is(Bug::BudgetNotAsked) {
        return Some(Vec::new());
    }
    let least = least_new(&state.settings, now);
    // A lease that nobody pays for counts for nothing.
    let as_it_is = |at: usize| nodes[at].lease.filter(|_| !held[at].is_empty());
    for shorten in [false, true] {
        let lease_of = |at: usize| match as_it_is(at) {
            Some(lease) if shorten && lease.until > least.until => least,
            Some(lease) => lease,
            None => least,
        };
        let fits_all = mine.iter().all(|budget| {
            let new = |at: &usize| !held[*at].iter().any(|other| other.id == budget.id);
            let wishes: Vec<_> = (0..nodes.len())
                .filter(new)
                .map(|at| {
                    let until = lease_of(at).until.max(least.until);
                    Wish::New { price: nodes[at].shape.price, nodes: 1, now, until }
                })
                .collect();
            fits(budget, &wishes, false)
        });
        if fits_all {
            let changed = |at: &usize| as_it_is(*at) != Some(lease_of(*at)) && nodes[*at].shape.price.0 > 0;
            return Some((0..nodes.len()).filter(changed).map(|at| (nodes[at].id, lease_of(at))).collect());
        }
    }
    None
}

/// What becomes of a node whose lease is to be renewed.
#[derive(Debug)]
pub enum Renewal<'a> {
    /// Nobody has to pay for it, or its time has not come.
    NotNow,
    Until(Lease),
    /// This budget has nothing left for it.
    Refused(&'a Arc<Budget>),
}

pub fn renewal<'a>(state: &'a State, node: &'a Node, now: Millis) -> Renewal<'a> {
    if node.lease.is_some_and(|lease| lease.renew_at > now) {
        return Renewal::NotNow;
    }
    // What is on it is ending: it is looked at again when that is over.
    let ending = |id: &AttemptId| {
        let attempt = state.jobs.get(&id.job).and_then(|job| job.attempt());
        attempt.is_some_and(|attempt| attempt.stop.is_some())
    };
    if !node.attempts.is_empty() && node.attempts.iter().all(ending) {
        return Renewal::NotNow;
    }
    let budgets = covering(state, node);
    if budgets.is_empty() {
        return Renewal::NotNow;
    }
    let is_ending = |budget: &Budget| {
        let mut paid =
            node.attempts.iter().filter(|attempt| pays_for(state, budget, node, attempt)).peekable();
        paid.peek().is_some() && paid.all(ending)
    };
    let terms = [
        (limits::LEASE_TERM_LONG_MS, true),
        (limits::LEASE_TERM_SHORT_MS, true),
        (limits::LEASE_TERM_LEAST_MS, false),
    ];
    let mut refused = None;
    for (term_ms, careful) in terms {
        let lease = lease(&state.settings, now, term_ms);
        let wish = Wish::Longer { node, now, until: lease.until };
        match refusing(&budgets, wish, careful) {
            None => return Renewal::Until(lease),
            Some(budget) => refused = Some(budget),
        }
    }
    match refused {
        Some(_) if planted::is(Bug::BudgetIgnoredAtRenewal) => {
            Renewal::Until(lease(&state.settings, now, limits::LEASE_TERM_LEAST_MS))
        }
        Some(budget) if is_ending(budget) => Renewal::NotNow,
        Some(budget) => Renewal::Refused(budget),
        None => Renewal::NotNow,
    }
}

/// Whether several share a node, and a budget pays for some of them alone.
pub fn is_shared(state: &State, node: &Node) -> bool {
    node.attempts.len() > 1 && covering(state, node).iter().any(|budget| !budget.scope.is_of_places())
}

/// Whether a budget pays for what an attempt does on a node.
pub fn pays_for(state: &State, budget: &Budget, node: &Node, attempt: &AttemptId) -> bool {
    let cluster = state.clusters.get(&node.cluster);
    let job = state.jobs.get(&attempt.job);
    cluster.is_some_and(|cluster| budget.scope.covers_cluster(state, cluster))
        || job.is_some_and(|job| budget.scope.covers_payer(state, &Payer::of(state, job)))
}

/// Whether there is time to ask a node's attempts to end before its lease does.
pub fn may_ask_first(state: &State, node: &Node, now: Millis) -> bool {
    let needed = state.settings.stop_span_ms() + state.settings.lease_ttl_ms;
    node.lease.is_none_or(|lease| now.plus(needed) <= lease.until)
}
