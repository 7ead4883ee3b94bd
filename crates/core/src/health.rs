//! How a cluster is: its figures, read once from a published state, and one verdict with the signals behind it.
//!
//! Metrics, alerts, `neap compute health` and the REST face all show these same figures. It decides nothing and
//! changes nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Cut};
use crate::explain;
use crate::job::{Class, JobState};
use crate::node::NodeState;
use crate::state::State;
use crate::units::Millis;

/// Neap's words for the states of a node, in the order of a node's life.
pub const NODE_WORDS: [&str; 7] =
    ["requested", "creating", "preparing", "idle", "running", "leaving", "unusable"];

/// A node that is idle this much longer than its idle time, above the minimum, should have gone.
const IDLE_SLACK_MS: u64 = 60_000;
/// So many in a row are no accident.
const ROW_FAILING: u32 = 3;
/// A wait this many times the threshold is a standstill.
const STANDSTILL: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Healthy,
    Degraded,
    Failing,
}

impl Verdict {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Failing => "failing",
        }
    }

    /// 0, 1, 2: as the gauge shows it.
    pub const fn level(self) -> u64 {
        match self {
            Self::Healthy => 0,
            Self::Degraded => 1,
            Self::Failing => 2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// A job that waits longer than this is a sign.
    pub queue_delay_ms: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { queue_delay_ms: 600_000 }
    }
}

/// What no state shows: the driver has seen it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<'a> {
    /// Why the ledger takes no writes, if it does not.
    pub ledger_closed: Option<&'a str>,
    /// Jobs that failed through no fault of their own since the last that completed.
    pub system_failures: u32,
}

/// Nodes of one state, and what their sizes say they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCount {
    pub nodes: u32,
    pub cpus_milli: u64,
    pub gpus: u64,
}

/// A cluster in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Every word of [`NODE_WORDS`], also with zero.
    pub nodes: BTreeMap<&'static str, NodeCount>,
    pub silent: u32,
    /// Idle for much longer than the idle time, and not needed for the minimum.
    pub overdue_idle: u32,
    pub live: u32,
    pub target: u32,
    pub min: u32,
    pub max: u32,
    pub queued: u64,
    pub active: u64,
    pub oldest_wait_ms: u64,
    pub boot_failures: u32,
    /// What cuts the target now.
    pub cuts: Vec<&'static str>,
}

impl Figures {
    pub fn of(state: &State, cluster: &Cluster, now: Millis) -> Self {
        let mut figures = Self {
            nodes: NODE_WORDS.into_iter().map(|word| (word, NodeCount::default())).collect(),
            live: cluster.live,
            target: cluster.target,
            min: cluster.scale.min,
            max: cluster.scale.max,
            queued: cluster.queue.len() as u64,
            active: cluster.active.len() as u64,
            oldest_wait_ms: oldest_wait_ms(state, cluster, now),
            boot_failures: cluster.boot.failures,
            cuts: cluster.cuts.iter().map(cut_word).collect(),
            ..Self::default()
        };
        let patience_ms = cluster.scale.idle_ms.saturating_add(IDLE_SLACK_MS);
        let mut overdue = 0;
        for node in state.nodes_of(cluster) {
            let count = figures.nodes.entry(node.word()).or_default();
            count.nodes += 1;
            count.cpus_milli += u64::from(node.nominal.cpus_milli);
            count.gpus += u64::from(node.nominal.gpus);
            figures.silent += u32::from(node.silent && matches!(node.state, NodeState::Ready));
            overdue += u32::from(node.is_idle() && now.since(node.since) > patience_ms);
        }
        figures.overdue_idle = overdue.min(cluster.live.saturating_sub(cluster.scale.min));
        figures
    }

    pub fn in_state(&self, word: &str) -> u32 {
        self.nodes.get(word).map_or(0, |count| count.nodes)
    }
}

/// A short word for a cut, for labels.
pub const fn cut_word(cut: &Cut) -> &'static str {
    match cut {
        Cut::Maximum { .. } => "maximum",
        Cut::Window { .. } => "schedule",
        Cut::TierMaximum { .. } => "tier_maximum",
        Cut::RoomWanted { .. } => "room_wanted",
        Cut::Yields { .. } => "yields",
        Cut::ProviderNodes { .. } => "provider_nodes",
        Cut::ProviderCapacity { .. } => "provider_capacity",
        Cut::ProviderAtOnce { .. } => "provider_at_once",
        Cut::Location { .. } => "location",
        Cut::BootBackoff { .. } => "boot_backoff",
        Cut::Quota { .. } => "quota",
        Cut::Allowance { .. } => "allowance",
        Cut::Lock { .. } => "lock",
        Cut::Budget { .. } => "budget",
        Cut::Draining => "draining",
    }
}

/// Whether a failure is the service's matter rather than the job's.
pub const fn is_systems_fault(class: Class) -> bool {
    match class {
        Class::Identity | Class::QuotaCapacity | Class::Preempted | Class::System => true,
        Class::UserCode | Class::InputData | Class::Environment => false,
    }
}

/// How long the job that waits longest has waited.
///
/// Within a priority the queue is in order of submission, so the first job that never came back has waited longest
/// of those behind it: only the first few of each priority are looked at, however long the queue is.
fn oldest_wait_ms(state: &State, cluster: &Cluster, now: Millis) -> u64 {
    let mut oldest = now;
    let mut next = cluster.queue.get_min().copied();
    while let Some(first) = next {
        for key in cluster.queue.range(first..).take_while(|key| key.behind == first.behind) {
            let Some(job) = state.jobs.get(&key.job) else { continue };
            let JobState::Queued { since, .. } = job.state else { continue };
            oldest = oldest.min(since);
            if since == job.submitted {
                break;
            }
        }
        next = first.behind.checked_add(1).and_then(|behind| {
            let start = crate::cluster::QueueKey { behind, job: crate::ids::JobId(0) };
            cluster.queue.range(start..).next().copied()
        });
    }
    now.since(oldest)
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    pub name: &'static str,
    /// The metric that shows the same number.
    pub metric: &'static str,
    /// In milliseconds where the metric is in seconds.
    pub value: u64,
    pub verdict: Verdict,
    /// A whole sentence; for a healthy signal what is well.
    pub says: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub verdict: Verdict,
    /// Every signal, worst first.
    pub signals: Vec<Signal>,
}

/// The verdict is that of the worst signal.
pub fn of(
    state: &State,
    cluster: &Cluster,
    figures: &Figures,
    seen: Seen<'_>,
    thresholds: Thresholds,
) -> Health {
    let mut signals = vec![
        ledger(seen),
        queue_delay(state, cluster, figures, thresholds),
        boot_failures(cluster, figures),
        unusable(figures),
        silent(figures),
        provider_limit(cluster),
        system_failures(seen),
        overdue_idle(figures),
    ];
    signals.sort_by_key(|signal| std::cmp::Reverse(signal.verdict));
    let verdict = signals.first().map_or(Verdict::Healthy, |signal| signal.verdict);
    Health { verdict, signals }
}

fn signal(
    name: &'static str,
    metric: &'static str,
    value: u64,
    verdict: Verdict,
    says: impl Into<String>,
) -> Signal {
    Signal { name, metric, value, verdict, says: says.into() }
}

fn row(count: u32) -> Verdict {
    match count {
        0 => Verdict::Healthy,
        n if n < ROW_FAILING => Verdict::Degraded,
        _ => Verdict::Failing,
    }
}

fn ledger(seen: Seen<'_>) -> Signal {
    let (value, verdict, says) = match seen.ledger_closed {
        None => (1, Verdict::Healthy, "The ledger takes writes.".to_owned()),
        Some(why) => (0, Verdict::Failing, format!("The ledger takes no writes: {why}.")),
    };
    signal("ledger_writable", "neap_ledger_writable", value, verdict, says)
}

fn queue_delay(state: &State, cluster: &Cluster, figures: &Figures, thresholds: Thresholds) -> Signal {
    let (wait, limit) = (figures.oldest_wait_ms, thresholds.queue_delay_ms);
    let verdict = if figures.queued == 0 || wait < limit {
        Verdict::Healthy
    } else if wait < limit.saturating_mul(STANDSTILL) {
        Verdict::Degraded
    } else {
        Verdict::Failing
    };
    let says = match figures.queued {
        0 => "No job waits.".to_owned(),
        n => {
            let first = cluster.queue.get_min().map(|key| explain::queue_reasons(state, key.job));
            let why = first.unwrap_or_default().join(" ");
            format!("{n} wait, the oldest for {} s. {why}", wait / 1000)
        }
    };
    signal("oldest_wait", "neap_queue_oldest_wait_seconds", wait, verdict, says)
}

fn boot_failures(cluster: &Cluster, figures: &Figures) -> Signal {
    let says = match (figures.boot_failures, &cluster.boot.last_reason) {
        (0, _) => "Nodes start.".to_owned(),
        (n, Some(why)) => format!("{n} in a row did not start; the last: {why}."),
        (n, None) => format!("{n} in a row did not start."),
    };
    let count = figures.boot_failures;
    signal("boot_failures", "neap_node_boot_failures", u64::from(count), row(count), says)
}

fn unusable(figures: &Figures) -> Signal {
    let count = figures.in_state("unusable");
    let verdict = match count {
        0 => Verdict::Healthy,
        _ if figures.live == 0 && figures.queued > 0 => Verdict::Failing,
        _ => Verdict::Degraded,
    };
    let says = match count {
        0 => "No node is unusable.".to_owned(),
        n => format!(
            "{n} {} unusable; `neap compute list-nodes` says why.",
            if n == 1 { "node is" } else { "nodes are" }
        ),
    };
    signal("unusable_nodes", "neap_nodes", u64::from(count), verdict, says)
}

fn silent(figures: &Figures) -> Signal {
    let ready = figures.in_state("idle") + figures.in_state("running");
    let verdict = match figures.silent {
        0 => Verdict::Healthy,
        n if n >= ready => Verdict::Failing,
        _ => Verdict::Degraded,
    };
    let says = match figures.silent {
        0 => "Every node is heard of.".to_owned(),
        n => format!("{n} of {ready} nodes have not been heard of for a while."),
    };
    signal("silent_nodes", "neap_nodes_silent", u64::from(figures.silent), verdict, says)
}

fn provider_limit(cluster: &Cluster) -> Signal {
    // The cluster's own maximum is a wish, not a fault; failed boots have a signal of their own.
    let cuts: Vec<String> = cluster
        .cuts
        .iter()
        .filter(|cut| match cut {
            Cut::ProviderNodes { .. }
            | Cut::ProviderCapacity { .. }
            | Cut::ProviderAtOnce { .. }
            | Cut::Location { .. }
            | Cut::RoomWanted { .. }
            | Cut::Yields { .. }
            | Cut::Quota { .. }
            | Cut::Lock { .. }
            | Cut::Budget { .. }
            | Cut::Draining => true,
            Cut::Maximum { .. }
            | Cut::TierMaximum { .. }
            | Cut::Window { .. }
            | Cut::BootBackoff { .. }
            | Cut::Allowance { .. } => false,
        })
        .map(Cut::sentence)
        .collect();
    let verdict = if cuts.is_empty() { Verdict::Healthy } else { Verdict::Degraded };
    let says = if cuts.is_empty() {
        "The provider gives what is asked for, and neither quota, budget nor lock stands against it."
            .to_owned()
    } else {
        cuts.join(" ")
    };
    signal("provider_limit", "neap_cluster_cut", cuts.len() as u64, verdict, says)
}

fn system_failures(seen: Seen<'_>) -> Signal {
    let count = seen.system_failures;
    let says = match count {
        0 => "No job has failed through no fault of its own since the last that completed.".to_owned(),
        n => format!("{n} in a row failed through no fault of their own."),
    };
    signal("system_failures", "neap_job_system_failures", u64::from(count), row(count), says)
}

fn overdue_idle(figures: &Figures) -> Signal {
    let count = figures.overdue_idle;
    let verdict = if count == 0 { Verdict::Healthy } else { Verdict::Degraded };
    let says = match count {
        0 => "No node is kept longer than its idle time.".to_owned(),
        n => format!("{n} should have gone: idle for longer than the cluster's idle time."),
    };
    signal("overdue_idle", "neap_nodes_idle_overdue", u64::from(count), verdict, says)
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
