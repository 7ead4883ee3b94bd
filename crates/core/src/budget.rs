//! Budgets: how much money may be spent, on what, and how soon again. A node holds a *money lease*: what it may cost up to
//! a moment is reserved from every budget that may have to pay for it. The lease is renewed before its end, or the node
//! is let go early enough to be gone by then, with or without the server.
//!
//! What is committed of a budget is what was spent in the period and what is reserved. Only three things commit more:
//! asking for a node ([`grant`]), prolonging a lease ([`renewal`]), and putting a job on a node that is there
//! ([`admission`]). Each asks first whether it fits, so that no order of events passes the amount.
//!
//! A budget on a group, workspace or cluster pays for whatever its nodes do. One on a user, tag or job pays for nodes while
//! they are theirs; it reserves the whole node, and is charged what is posted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Cut};
use crate::event::Event;
use crate::ids::{AttemptId, BudgetId, ClusterId, DocHash, JobId, NodeId, WorkspaceId};
use crate::job::Job;
use crate::limits;
use crate::lock::{self, LockScope};
use crate::meter::{self, Payer};
use crate::node::{Node, NodeState};
use crate::planted::{self, Bug};
use crate::settings::Settings;
use crate::state::{GroupKey, State};
use crate::units::{MicroUsd, Millis};

/// A tag's name and value as jobs carry them into the log: nobody reads a tag there, and a budget finds it.
pub type Label = DocHash;

pub fn tag_label(name: &str, value: &str) -> Label {
    DocHash::of(b"tag", format!("{}\n{value}", name.to_lowercase()).as_bytes())
}

pub fn tag_labels(tags: &BTreeMap<String, String>) -> Vec<Label> {
    tags.iter().map(|(name, value)| tag_label(name, value)).collect()
}

/// Whose money it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    Group(GroupKey),
    Workspace(WorkspaceId),
    Cluster(ClusterId),
    /// Jobs of this owner, and what nodes cost because of them.
    User(Arc<str>),
    /// Jobs that were submitted with this tag.
    Tag {
        name: Arc<str>,
        value: Arc<str>,
    },
    /// One job by name, with everything it is made of. It need not be there yet.
    Job {
        workspace: WorkspaceId,
        name: Arc<str>,
    },
}

impl BudgetScope {
    /// It pays for everything a cluster does, whoever causes it.
    const fn is_of_places(&self) -> bool {
        match self {
            Self::Group(_) | Self::Workspace(_) | Self::Cluster(_) => true,
            Self::User(_) | Self::Tag { .. } | Self::Job { .. } => false,
        }
    }

    fn covers_cluster(&self, state: &State, cluster: &Cluster) -> bool {
        match self {
            Self::Group(key) => state
                .workspaces
                .get(&cluster.workspace)
                .is_some_and(|w| *key == GroupKey::new(&w.subscription, &w.group)),
            Self::Workspace(id) => cluster.workspace == *id,
            Self::Cluster(id) => cluster.id == *id,
            Self::User(_) | Self::Tag { .. } | Self::Job { .. } => false,
        }
    }

    fn covers_payer(&self, state: &State, payer: &Payer) -> bool {
        match self {
            Self::Group(_) | Self::Workspace(_) | Self::Cluster(_) => false,
            Self::User(owner) => payer.owner.eq_ignore_ascii_case(owner),
            Self::Tag { name, value } => payer.tags.contains(&tag_label(name, value)),
            Self::Job { workspace, name } => state
                .job_named(*workspace, name)
                .is_some_and(|id| payer.job == id || payer.families.contains(&id)),
        }
    }

    /// In the words of a message.
    pub fn words(&self, state: &State) -> String {
        match self {
            Self::Group(key) => lock::scope_words(state, &LockScope::Group(key.clone())),
            Self::Workspace(id) => lock::scope_words(state, &LockScope::Workspace(*id)),
            Self::Cluster(id) => lock::scope_words(state, &LockScope::Cluster(*id)),
            Self::User(owner) => format!("user '{owner}'"),
            Self::Tag { name, value } => format!("tag '{name}={value}'"),
            Self::Job { name, .. } => format!("job '{name}'"),
        }
    }
}

/// How soon there is new money. Days, weeks from Monday and months are those of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Every {
    Day,
    Week,
    Month,
    /// Never: the amount is for ever.
    Total,
}

const DAY_MS: u64 = 24 * 3_600 * 1_000;

impl Every {
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Total];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|every| every.word().eq_ignore_ascii_case(word))
    }

    /// `$10.00 a day`, `$10.00 in total`.
    fn of(self, amount: MicroUsd) -> String {
        match self {
            Self::Total => format!("{amount} in total"),
            Self::Day | Self::Week | Self::Month => format!("{amount} a {}", self.word()),
        }
    }

    /// From when to when the period around a moment lasts.
    pub fn period(self, at: Millis) -> (Millis, Millis) {
        let day = at.0 / DAY_MS;
        let days = |from: u64, count: u64| (Millis(from * DAY_MS), Millis((from + count) * DAY_MS));
        match self {
            Self::Day => days(day, 1),
            // The first day of all was a Thursday.
            Self::Week => days(day.saturating_sub((day + 3) % 7), 7),
            Self::Month => month(at).unwrap_or_else(|| days(day - day % 30, 30)),
            Self::Total => (Millis(0), Millis(u64::MAX)),
        }
    }
}

fn month(at: Millis) -> Option<(Millis, Millis)> {
    let at = Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()?;
    let first = at.to_zoned(TimeZone::UTC).date().first_of_month();
    let start = |date: jiff::civil::Date| {
        let at = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond();
        u64::try_from(at).ok().map(Millis)
    };
    Some((start(first)?, start(first.checked_add(1.month()).ok()?)?))
}

/// What becomes of nodes whose lease the budget does not renew. Both end them in time: the amount is hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtCap {
    /// Attempts get the ordinary signal to stop.
    StopNew,
    /// Attempts are told as when their node is taken away, and have its grace to save a checkpoint.
    CheckpointAndDrain,
}

impl AtCap {
    pub const ALL: [Self; 2] = [Self::StopNew, Self::CheckpointAndDrain];

    pub const fn word(self) -> &'static str {
        match self {
            Self::StopNew => "stop_new",
            Self::CheckpointAndDrain => "checkpoint_and_drain",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        let word = word.replace('-', "_");
        Self::ALL.into_iter().find(|at_cap| at_cap.word().eq_ignore_ascii_case(&word))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub id: BudgetId,
    pub name: Arc<str>,
    pub scope: BudgetScope,
    pub amount: MicroUsd,
    pub every: Every,
    pub at_cap: AtCap,
    /// Percentages of the amount at which somebody is told.
    pub thresholds: Vec<u32>,
    pub by: Arc<str>,
    /// It counts what is spent from here on.
    pub created: Millis,
    pub modified: Millis,
    /// When the period ends that was last begun; never, for a total.
    pub period_ends: Option<Millis>,
    /// By the period's start. Kept by `apply`.
    pub periods: BTreeMap<Millis, Figures>,
}

/// What became of the money of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// On the books.
    pub spent: MicroUsd,
    /// Of that, what was spent past a node's lease: it was there before the budget, or was removed late.
    pub excess: MicroUsd,
    /// Held by leases, from where the books end.
    pub reserved: MicroUsd,
}

impl Figures {
    pub const fn committed(self) -> u64 {
        self.spent.0.saturating_add(self.reserved.0)
    }

    /// What was granted of it.
    pub const fn granted(self) -> u64 {
        self.committed().saturating_sub(self.excess.0)
    }
}

impl Budget {
    /// Of the period around a moment.
    pub fn figures(&self, at: Millis) -> Figures {
        self.periods.get(&self.every.period(at).0).copied().unwrap_or_default()
    }

    pub fn left(&self, at: Millis) -> MicroUsd {
        MicroUsd(self.amount.0.saturating_sub(self.figures(at).committed()))
    }

    /// When there is new money.
    pub fn renews(&self, at: Millis) -> Option<Millis> {
        Some(self.every.period(at).1).filter(|_| self.every != Every::Total)
    }

    /// A cost that rises with time, divided among the periods it falls in, from when the budget counts.
    pub(crate) fn parts(&self, from: Millis, to: Millis, upto: impl Fn(Millis) -> u64) -> Vec<(Millis, u64)> {
        let mut parts = Vec::new();
        let mut from = from.max(self.created);
        while from < to {
            let (start, end) = self.every.period(from);
            let until = to.min(end);
            parts.push((start, upto(until).saturating_sub(upto(from))));
            from = until;
        }
        parts
    }
}

/// A node's money: what it costs up to `until` is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub until: Millis,
    /// From here on there is just time enough to be gone before `until`.
    pub renew_at: Millis,
}

/// How long it takes a node to be gone for certain: its attempts end, nobody prolongs its right to exist, it ends itself.
pub const fn removal_bound_ms(settings: &Settings) -> u64 {
    stop_patience_ms(settings) + settings.lease_ttl_ms + settings.leave_deadline_ms
}

/// As [`crate::decide`] counts it for any stop.
const fn stop_patience_ms(settings: &Settings) -> u64 {
    settings.stop_grace_ms * 2 + 5_000
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

/// The budgets that pay for what a cluster does, whoever causes it.
fn of_cluster<'a>(state: &'a State, cluster: &'a Cluster) -> impl Iterator<Item = &'a Arc<Budget>> {
    state.budgets.values().filter(move |budget| budget.scope.covers_cluster(state, cluster))
}

/// Those that pay for somebody's part.
fn of_payer<'a>(state: &'a State, payer: &'a Payer) -> impl Iterator<Item = &'a Arc<Budget>> {
    state.budgets.values().filter(move |budget| budget.scope.covers_payer(state, payer))
}

/// Whether any budget is on a user, a tag or a job.
fn any_of_payers(state: &State) -> bool {
    state.budgets.values().any(|budget| !budget.scope.is_of_places())
}

/// Whether an event may change what is committed. Where all budgets are on places, what happens on a node does not.
pub fn moves_money(state: &State, event: &Event) -> bool {
    if state.budgets.is_empty() {
        return false;
    }
    match event {
        Event::NodeRequested(_) | Event::MoneyLeased(_) | Event::NodeGone(_) => true,
        _ => any_of_payers(state) && !meter::ends_slice_of(state, event).is_empty(),
    }
}

/// Whether a budget pays for a part of a slice.
pub(crate) fn covers_segment(state: &State, budget: &Budget, segment: &meter::Segment) -> bool {
    let cluster = state.clusters.get(&segment.cluster);
    cluster.is_some_and(|cluster| budget.scope.covers_cluster(state, cluster))
        || segment.payer.as_ref().is_some_and(|payer| budget.scope.covers_payer(state, payer))
}

/// Every budget that may have to pay for what a node does until something happens to it.
pub fn covering<'a>(state: &'a State, node: &'a Node) -> Vec<&'a Arc<Budget>> {
    if state.budgets.is_empty() || node.shape.price.0 == 0 {
        return Vec::new();
    }
    let cluster = state.clusters.get(&node.cluster);
    let payers = if any_of_payers(state) { payers(state, node) } else { Vec::new() };
    let covers = |budget: &&Arc<Budget>| {
        cluster.is_some_and(|cluster| budget.scope.covers_cluster(state, cluster))
            || payers.iter().any(|payer| budget.scope.covers_payer(state, payer))
    };
    state.budgets.values().filter(covers).collect()
}

/// As the books will have it.
fn payers(state: &State, node: &Node) -> Vec<Payer> {
    if !node.attempts.is_empty() {
        let jobs = node.attempts.iter().filter_map(|id| state.jobs.get(&id.job));
        return jobs.map(|job| Payer::of(state, job)).collect();
    }
    match node.state {
        NodeState::Requested { .. }
        | NodeState::Creating { .. }
        | NodeState::Preparing { .. }
        | NodeState::Unusable { .. } => node.caused_by.iter().cloned().collect(),
        // The books charge nobody for a node that nobody has used yet; it stays reserved for whom it was asked for.
        NodeState::Ready | NodeState::Leaving { .. } | NodeState::Preempted { .. } => {
            node.last.as_ref().or(node.caused_by.as_ref()).into_iter().cloned().collect()
        }
    }
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

/// The lease of a node that is to be asked for, because of this job if of any; or which budget has no room for it. No lease
/// where nobody has to pay.
pub fn grant(
    state: &State,
    cluster: &Cluster,
    cause: Option<JobId>,
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
    let wish = |lease: Lease| Wish::New { price, nodes: 1, now, until: lease.until };
    if refusing(&budgets, wish(long), true).is_none() {
        return Ok(Some(long));
    }
    match refusing(&budgets, wish(least), false) {
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
    let budgets: Vec<_> = of_cluster(state, cluster).collect();
    no_room(state, &budgets, price, nodes, now)
}

/// Why a job may not have nodes now, if so: those who pay for it have not the money, and no free node is reserved for it.
pub fn bars(state: &State, cluster: &Cluster, job: &Job, now: Millis) -> Option<Cut> {
    if cluster.shape.price.0 == 0 || !any_of_payers(state) {
        return None;
    }
    let payer = Payer::of(state, job);
    of_payer(state, &payer).find_map(|budget| {
        let cut = no_room(state, &[budget], cluster.shape.price, job.nodes, now)?;
        let missing = job.nodes.saturating_sub(free_under(state, cluster, budget, now));
        if missing == 0 {
            None
        } else {
            no_room(state, &[budget], cluster.shape.price, missing, now).map(|_| cut)
        }
    })
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

fn no_room(state: &State, budgets: &[&Arc<Budget>], price: MicroUsd, nodes: u32, now: Millis) -> Option<Cut> {
    let until = least_new(&state.settings, now).until;
    let wish = Wish::New { price, nodes: nodes.into(), now, until };
    refusing(budgets, wish, false).map(|budget| cut(state, budget, price, nodes, now))
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

/// What a job's being put on these nodes takes: leases to be made or shortened first. `None`: there is no room for it.
pub fn admission(state: &State, job: &Job, nodes: &[NodeId], now: Millis) -> Option<Vec<(NodeId, Lease)>> {
    if state.budgets.is_empty() {
        return Some(Vec::new());
    }
    let nodes: Vec<&Arc<Node>> = nodes.iter().filter_map(|id| state.nodes.get(id)).collect();
    let mut held = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let covered = covering(state, node);
        // Its lease is over, or about to be, and was not renewed: it is on its way out.
        if !covered.is_empty() && node.lease.is_none_or(|lease| lease.renew_at <= now) {
            return None;
        }
        held.push(covered);
    }
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
        Some(budget) => Renewal::Refused(budget),
        None => Renewal::NotNow,
    }
}

/// Whether there is time to ask a node's attempts to end before its lease does.
pub fn may_ask_first(state: &State, node: &Node, now: Millis) -> bool {
    let needed = stop_patience_ms(&state.settings) + state.settings.lease_ttl_ms;
    node.lease.is_none_or(|lease| now.plus(needed) <= lease.until)
}

/// What is on the books of each budget's period, and what nodes have cost since, as of now.
pub fn spent_so_far(state: &State, now: Millis) -> BTreeMap<BudgetId, MicroUsd> {
    let mut spent: BTreeMap<_, _> =
        state.budgets.values().map(|budget| (budget.id, budget.figures(now).spent)).collect();
    if spent.is_empty() {
        return spent;
    }
    for segment in meter::open(state, now) {
        for budget in state.budgets.values().filter(|budget| covers_segment(state, budget, &segment)) {
            let current = budget.every.period(now).0;
            let whole = u128::from(segment.cost.0);
            let upto = |at: Millis| {
                let part = whole * u128::from(at.since(segment.from))
                    / u128::from(segment.to.since(segment.from).max(1));
                u64::try_from(part).unwrap_or(u64::MAX)
            };
            let parts = budget.parts(segment.from, segment.to, upto);
            let now: u64 = parts.iter().filter(|(period, _)| *period == current).map(|(_, cost)| cost).sum();
            if let Some(sum) = spent.get_mut(&budget.id) {
                sum.0 = sum.0.saturating_add(now);
            }
        }
    }
    spent
}

/// Budgets whose whole amount is less than the least that a job takes: it will never start under them.
pub fn never(state: &State, cluster: &Cluster, payer: &Payer, nodes: u32) -> Vec<String> {
    let needed = least_cost(&state.settings, cluster.shape.price, nodes);
    if needed == 0 {
        return Vec::new();
    }
    of_cluster(state, cluster)
        .chain(of_payer(state, payer))
        .filter(|budget| budget.amount.0 < needed)
        .map(|budget| too_small(state, budget, MicroUsd(needed), cluster))
        .collect()
}

pub(crate) fn too_small(state: &State, budget: &Budget, needed: MicroUsd, cluster: &Cluster) -> String {
    format!(
        "Budget '{}' on {} is {} and starting the job on compute '{}' takes {needed} at least: it cannot start. Raise the budget with 'neap budget create --name {} --amount', or use a cheaper size.",
        budget.name,
        budget.scope.words(state),
        budget.every.of(budget.amount),
        cluster.name,
        budget.name,
    )
}

/// The budget of one job, by its name, that is too small for it ever to start.
pub fn of_one_job<'a>(
    state: &'a State,
    workspace: WorkspaceId,
    name: &str,
    needed: u64,
) -> Option<&'a Arc<Budget>> {
    state.budgets.values().find(|budget| {
        let of_it = matches!(&budget.scope, BudgetScope::Job { workspace: of, name: job }
            if *of == workspace && job.eq_ignore_ascii_case(name));
        of_it && budget.amount.0 < needed
    })
}

/// The sentence of [`Cut::Budget`].
pub(crate) fn sentence(
    name: &str,
    amount: MicroUsd,
    every: Every,
    needed: MicroUsd,
    nodes: u32,
    renews: Option<Millis>,
) -> String {
    let (what, them) =
        if nodes == 1 { ("A node takes".to_owned(), "it") } else { (format!("{nodes} nodes take"), "them") };
    let wait = renews.map_or_else(String::new, |at| {
        format!(", or wait for its next {} at {}", every.word(), at.rfc3339())
    });
    format!(
        "{what} {needed} to be reserved for {them}, and budget '{name}' of {} has less left; raise it with 'neap budget create --name {name} --amount'{wait}.",
        every.of(amount)
    )
}

/// What there is of a budget, for a reason: `$9.20 is spent, $0.70 is reserved for nodes`.
pub fn figures_words(state: &State, id: BudgetId) -> Option<String> {
    let budget = state.budgets.get(&id)?;
    let figures = budget.figures(state.now);
    Some(format!(
        "Budget '{}' on {}: {}, {} is spent, {} is reserved for nodes, {} is left.",
        budget.name,
        budget.scope.words(state),
        budget.every.of(budget.amount),
        figures.spent,
        figures.reserved,
        budget.left(state.now),
    ))
}

/// Why a node or an attempt ends.
pub fn reason(budget: &Budget) -> Arc<str> {
    format!("budget '{}' of {} has nothing left for its node", budget.name, budget.every.of(budget.amount))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Millis {
        let at: Timestamp = text.parse().unwrap();
        Millis(at.as_millisecond() as u64)
    }

    fn period(every: Every, text: &str) -> (String, String) {
        let (from, to) = every.period(at(text));
        (from.rfc3339(), to.rfc3339())
    }

    #[test]
    fn periods_are_those_of_the_calendar() {
        let is = |from: &str, to: &str| (format!("{from}T00:00:00.000Z"), format!("{to}T00:00:00.000Z"));
        assert_eq!(period(Every::Day, "2024-02-28T23:59:59.999Z"), is("2024-02-28", "2024-02-29"));
        assert_eq!(period(Every::Week, "2024-03-03T12:00:00Z"), is("2024-02-26", "2024-03-04"), "a Sunday");
        assert_eq!(period(Every::Week, "2024-03-04T00:00:00Z"), is("2024-03-04", "2024-03-11"), "a Monday");
        assert_eq!(period(Every::Month, "2024-02-29T01:00:00Z"), is("2024-02-01", "2024-03-01"));
        assert_eq!(period(Every::Month, "2024-12-31T23:59:59Z"), is("2024-12-01", "2025-01-01"));
        assert_eq!(Every::Total.period(Millis(5)), (Millis(0), Millis(u64::MAX)));
    }

    #[test]
    fn a_cost_is_divided_among_the_periods_it_falls_in() {
        let budget = Budget {
            id: BudgetId(1),
            name: "b".into(),
            scope: BudgetScope::User("me".into()),
            amount: MicroUsd(1),
            every: Every::Day,
            at_cap: AtCap::StopNew,
            thresholds: vec![],
            by: "me".into(),
            created: Millis(100),
            modified: Millis(100),
            period_ends: None,
            periods: BTreeMap::new(),
        };
        let cost = |at: Millis| at.0;
        assert_eq!(
            budget.parts(Millis(0), Millis(150), cost),
            [(Millis(0), 50)],
            "nothing before it was there"
        );
        assert_eq!(
            budget.parts(Millis(DAY_MS - 5), Millis(2 * DAY_MS + 7), cost),
            [(Millis(0), 5), (Millis(DAY_MS), DAY_MS), (Millis(2 * DAY_MS), 7)]
        );
        assert_eq!(budget.parts(Millis(7), Millis(7), cost), []);
    }

    #[test]
    fn words_are_read_back() {
        for every in Every::ALL {
            assert_eq!(Every::parse(&every.word().to_uppercase()), Some(every));
        }
        assert_eq!(AtCap::parse("checkpoint-and-drain"), Some(AtCap::CheckpointAndDrain));
        assert_eq!(AtCap::parse("go-on"), None);
    }
}
