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

use crate::cluster::Cluster;
use crate::event::Event;
use crate::ids::{BudgetId, ClusterId, DocHash, WorkspaceId};
use crate::lock::{self, LockScope};
use crate::meter::{self, Payer};
use crate::node::{Node, NodeState};
use crate::state::{GroupKey, State};
use crate::units::{MicroUsd, Millis};

mod lease;

pub(crate) use lease::reserved;
pub use lease::{
    Lease, Renewal, admission, all_bars, bars, grant, is_shared, least_cost, may_ask_first, nodes_cut,
    nodes_cuts, pays_for, removal_bound_ms, renewal, runs_out,
};

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
    let (of, raise) =
        (every.of(amount), format!("raise it with 'neap budget create --name {name} --amount'"));
    if needed > amount {
        return format!(
            "{what} {needed} to be reserved for {them}, which is more than the whole of budget '{name}' of {of}; {raise}."
        );
    }
    let wait = renews.map_or_else(String::new, |at| {
        format!(", or wait for its next {} at {}", every.word(), at.rfc3339())
    });
    format!(
        "{what} {needed} to be reserved for {them}, and budget '{name}' of {of} has less left; {raise}{wait}."
    )
}

/// What there is of a budget, for a reason: `$9.20 is spent, $0.70 is reserved for nodes`.
pub fn figures_words(state: &State, id: BudgetId) -> Option<String> {
    let budget = state.budgets.get(&id)?;
    let spent = spent_so_far(state, state.now).get(&id).copied().unwrap_or_default();
    let reserved = MicroUsd(budget.figures(state.now).committed().saturating_sub(spent.0));
    Some(format!(
        "Budget '{}' on {}: {}, {} is spent, {} is reserved for nodes, {} is left.",
        budget.name,
        budget.scope.words(state),
        budget.every.of(budget.amount),
        spent,
        reserved,
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
