//! Which alerts fire, and what is still to be told: sans-IO. Readings and ended jobs come in, notices lie in the
//! outbox until their delivery is confirmed.
//!
//! An alert fires once when its condition begins, and resolves once when the condition has been over for a while. The
//! whole of it is a value that the driver writes to a file before it delivers anything: what has fired survives a
//! restart, and a notice that was not delivered yet is delivered then. A crash between delivery and the next write
//! can deliver the same notice again, with the same fingerprint and start, which receivers take for the same.

use std::collections::{BTreeMap, VecDeque};

use neap_core::health::Figures;
use neap_core::job::{Outcome, Status};
use neap_core::units::{jobs_wait, many, nodes_are};
use neap_core::{BudgetId, ClusterId, DocHash, MicroUsd, Millis};
use serde::{Deserialize, Serialize};

use crate::limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The oldest job has waited this long.
    pub queue_delay_ms: u64,
    /// There have been more nodes than the minimum for this long.
    pub above_min_ms: u64,
    /// So many nodes in a row did not start.
    pub provisioning_failures: u32,
    /// So many nodes of a cluster were taken back within so long.
    pub evictions: u32,
    pub evictions_within_ms: u64,
    /// After a failed job, so long without another, the alert resolves.
    pub job_failure_quiet_ms: u64,
    /// As much of a limit is held, in percent. 0: nobody is told.
    pub quota_percent: u32,
    /// A condition must be over for this long before its alert resolves.
    pub resolve_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    JobFailure,
    QueueDelay,
    UnusableNodes,
    ProvisioningFailed,
    AboveMinimum,
    LedgerClosed,
    InvariantViolated,
    BudgetThreshold,
    QuotaNearLimit,
    EvictionStorm,
}

impl Kind {
    /// The `alertname`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::JobFailure => "NeapJobFailure",
            Self::QueueDelay => "NeapQueueDelay",
            Self::UnusableNodes => "NeapUnusableNodes",
            Self::ProvisioningFailed => "NeapProvisioningFailed",
            Self::AboveMinimum => "NeapAboveMinimum",
            Self::LedgerClosed => "NeapLedgerClosed",
            Self::InvariantViolated => "NeapInvariantViolated",
            Self::BudgetThreshold => "NeapBudgetThreshold",
            Self::QuotaNearLimit => "NeapQuotaNearLimit",
            Self::EvictionStorm => "NeapEvictionStorm",
        }
    }

    const fn severity(self) -> &'static str {
        match self {
            Self::LedgerClosed | Self::InvariantViolated => "critical",
            Self::JobFailure
            | Self::QueueDelay
            | Self::UnusableNodes
            | Self::ProvisioningFailed
            | Self::BudgetThreshold
            | Self::QuotaNearLimit
            | Self::EvictionStorm => "warning",
            Self::AboveMinimum => "info",
        }
    }
}

/// What an alert is about: a cluster, a budget, a limit on what may be held, or the server where there is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub kind: Kind,
    pub cluster: Option<ClusterId>,
    /// And which of its thresholds, in percent.
    #[serde(default)]
    pub budget: Option<(BudgetId, u32)>,
    #[serde(default)]
    pub quota: Option<QuotaMark>,
}

/// Tells limits apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QuotaMark(pub u64);

impl QuotaMark {
    pub fn of(name: &str) -> Self {
        let hash = DocHash::of(b"quota", name.as_bytes());
        Self(hash.0.iter().take(8).fold(0, |mark, byte| mark << 8 | u64::from(*byte)))
    }
}

/// A cluster as the rules look at it.
#[derive(Clone, Debug)]
pub struct ClusterReading {
    pub id: ClusterId,
    pub workspace: String,
    pub name: String,
    /// Its `owner` tag.
    pub owner: Option<String>,
    pub figures: Figures,
    pub last_boot_reason: Option<String>,
}

/// A budget as the rules look at it.
#[derive(Clone, Debug)]
pub struct BudgetReading {
    pub id: BudgetId,
    pub name: String,
    /// What it is on, in words.
    pub on: String,
    pub amount: MicroUsd,
    pub spent: MicroUsd,
    pub thresholds: Vec<u32>,
}

/// A limit as the rules look at it.
#[derive(Clone, Debug)]
pub struct QuotaReading {
    /// As Azure calls it.
    pub name: String,
    pub location: String,
    /// Whose limit it is, in words.
    pub of: String,
    pub limit: u64,
    pub held: u64,
    /// The cluster that holds the most of it, and its `owner` tag.
    pub holder: Option<String>,
    pub owner: Option<String>,
}

impl QuotaReading {
    fn mark(&self) -> QuotaMark {
        QuotaMark::of(&format!("{} {} {}", self.of, self.location, self.name))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub now: Millis,
    pub budgets: Vec<BudgetReading>,
    pub quotas: Vec<QuotaReading>,
    pub clusters: Vec<ClusterReading>,
    pub ledger_closed: Option<String>,
    pub violations: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeStatus {
    Firing,
    Resolved,
}

/// One thing to tell, whole: what it is about may be gone when it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub number: u64,
    pub status: NoticeStatus,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub starts_at: Millis,
    pub ends_at: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Firing {
    starts_at: Millis,
    /// Since when its condition is over.
    clear_since: Option<Millis>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FailedJob {
    at: Millis,
    summary: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Evictions {
    at: VecDeque<Millis>,
    last_reason: String,
}

/// Everything that is remembered. It is what the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alerts {
    /// Events up to here have been looked at.
    pub seen_seq: u64,
    #[serde(with = "pairs")]
    firing: BTreeMap<Key, Firing>,
    /// Since when clusters have had more nodes than their minimum.
    #[serde(with = "pairs")]
    above_min_since: BTreeMap<ClusterId, Millis>,
    /// The last failed job of a cluster, until another completes or it has been quiet for long.
    #[serde(with = "pairs")]
    failed_jobs: BTreeMap<ClusterId, FailedJob>,
    /// When nodes of a cluster were taken back, and for what the last was.
    #[serde(default, with = "pairs")]
    evictions: BTreeMap<ClusterId, Evictions>,
    outbox: VecDeque<Notice>,
    next_number: u64,
    /// Notices that no receiver took in time and that made room for newer ones.
    pub dropped: u64,
}

impl Alerts {
    /// Knows nothing yet, and is not interested in what happened before this event.
    pub fn from_here(seen_seq: u64) -> Self {
        Self { seen_seq, ..Self::default() }
    }

    pub fn firing(&self) -> impl Iterator<Item = Key> + '_ {
        self.firing.keys().copied()
    }

    /// A job has ended. A completed one ends the cluster's trouble with failed ones.
    pub fn job_ended(&mut self, cluster: ClusterId, name: &str, outcome: &Outcome, at: Millis) {
        match (outcome.status, &outcome.failure) {
            (Status::Completed, _) => {
                self.failed_jobs.remove(&cluster);
            }
            (Status::Failed, failure) => {
                let why = failure.as_ref().map_or_else(String::new, |f| {
                    format!(" ({}): {} {}", f.class.word(), f.message, f.next_step)
                });
                let summary = format!("Job '{name}' failed{why}");
                self.failed_jobs.insert(cluster, FailedJob { at, summary });
            }
            _ => {}
        }
    }

    /// A node was taken back.
    pub fn node_preempted(&mut self, cluster: ClusterId, reason: &str, at: Millis) {
        let evictions = self.evictions.entry(cluster).or_default();
        evictions.at.push_back(at);
        if evictions.at.len() > limits::EVICTIONS_COUNTED_MAX {
            evictions.at.pop_front();
        }
        reason.clone_into(&mut evictions.last_reason);
    }

    /// Looks at everything. True if something fired, resolved, or must be remembered.
    pub fn evaluate(&mut self, rules: Rules, reading: &Reading) -> bool {
        let before = (self.next_number, self.above_min_since.len(), self.failed_jobs.len());
        let now = reading.now;
        self.failed_jobs.retain(|cluster, failed| {
            now.since(failed.at) < rules.job_failure_quiet_ms
                && reading.clusters.iter().any(|c| c.id == *cluster)
        });
        self.evictions.retain(|cluster, evictions| {
            let recent = |at: &Millis| now.since(*at) < rules.evictions_within_ms;
            evictions.at.retain(recent);
            !evictions.at.is_empty() && reading.clusters.iter().any(|c| c.id == *cluster)
        });
        let mut holds: BTreeMap<Key, String> = BTreeMap::new();
        for cluster in &reading.clusters {
            self.look_at(rules, cluster, now, &mut holds);
        }
        self.above_min_since.retain(|cluster, _| reading.clusters.iter().any(|c| c.id == *cluster));
        for budget in &reading.budgets {
            reached(budget, &mut holds);
        }
        for quota in &reading.quotas {
            near_limit(rules, quota, &mut holds);
        }
        let server = |kind| Key { kind, cluster: None, budget: None, quota: None };
        if let Some(why) = &reading.ledger_closed {
            holds.insert(server(Kind::LedgerClosed), format!("Nothing can be recorded: {why}."));
        }
        if reading.violations > 0 {
            let summary = format!("{} broken invariants; see the server's log.", reading.violations);
            holds.insert(server(Kind::InvariantViolated), summary);
        }
        self.resolve(rules, &holds, reading);
        for (key, summary) in holds {
            self.fire(key, summary, reading);
        }
        before != (self.next_number, self.above_min_since.len(), self.failed_jobs.len())
    }

    fn look_at(
        &mut self,
        rules: Rules,
        cluster: &ClusterReading,
        now: Millis,
        holds: &mut BTreeMap<Key, String>,
    ) {
        let figures = &cluster.figures;
        let mut hold = |kind, summary: String| {
            holds.insert(Key { kind, cluster: Some(cluster.id), budget: None, quota: None }, summary);
        };
        if let Some(failed) = self.failed_jobs.get(&cluster.id) {
            hold(Kind::JobFailure, failed.summary.clone());
        }
        if figures.queued > 0 && figures.oldest_wait_ms >= rules.queue_delay_ms {
            let (waiting, seconds) = (figures.queued, figures.oldest_wait_ms / 1000);
            hold(Kind::QueueDelay, format!("{}, the oldest for {seconds} s.", jobs_wait(waiting)));
        }
        let taken =
            self.evictions.get(&cluster.id).filter(|taken| taken.at.len() >= rules.evictions as usize);
        if let Some(taken) = taken {
            let (count, seconds) = (taken.at.len(), rules.evictions_within_ms / 1000);
            let why = &taken.last_reason;
            hold(
                Kind::EvictionStorm,
                format!(
                    "{count} {} taken back within {seconds} s; the last: {why}. Jobs that must go on can ask for dedicated nodes.",
                    if count == 1 { "node was" } else { "nodes were" }
                ),
            );
        }
        let why =
            cluster.last_boot_reason.as_ref().map_or_else(String::new, |why| format!(" The last: {why}."));
        let unusable = figures.in_state("unusable");
        if unusable > 0 {
            hold(Kind::UnusableNodes, format!("{} unusable.{why}", nodes_are(unusable, "")));
        }
        if figures.boot_failures >= rules.provisioning_failures {
            let failures = figures.boot_failures;
            hold(
                Kind::ProvisioningFailed,
                format!("{} in a row did not start.{why}", many(failures, "node")),
            );
        }
        if figures.live > figures.min {
            let since = *self.above_min_since.entry(cluster.id).or_insert(now);
            if now.since(since) >= rules.above_min_ms {
                let (live, min, seconds) = (figures.live, figures.min, now.since(since) / 1000);
                let summary = format!("{} for {seconds} s; the minimum is {min}.", many(live, "node"));
                hold(Kind::AboveMinimum, summary);
            }
        } else {
            self.above_min_since.remove(&cluster.id);
        }
    }

    fn fire(&mut self, key: Key, summary: String, reading: &Reading) {
        if let Some(firing) = self.firing.get_mut(&key) {
            firing.clear_since = None;
            return;
        }
        let mut labels = BTreeMap::from([
            ("alertname".to_owned(), key.kind.name().to_owned()),
            ("severity".to_owned(), key.kind.severity().to_owned()),
        ]);
        if let Some(cluster) = reading.clusters.iter().find(|c| Some(c.id) == key.cluster) {
            labels.insert("workspace".into(), cluster.workspace.clone());
            labels.insert("cluster".into(), cluster.name.clone());
            labels.extend(cluster.owner.clone().map(|owner| ("owner".to_owned(), owner)));
        }
        if let Some((id, percent)) = key.budget
            && let Some(budget) = reading.budgets.iter().find(|budget| budget.id == id)
        {
            labels.insert("budget".into(), budget.name.clone());
            labels.insert("threshold".into(), percent.to_string());
        }
        if let Some(quota) = reading.quotas.iter().find(|quota| Some(quota.mark()) == key.quota) {
            labels.insert("quota".into(), quota.name.clone());
            labels.insert("location".into(), quota.location.clone());
            labels.insert("of".into(), quota.of.clone());
            labels.extend(quota.owner.clone().map(|owner| ("owner".to_owned(), owner)));
        }
        let annotations = BTreeMap::from([("summary".to_owned(), summary)]);
        let firing = Firing { starts_at: reading.now, clear_since: None, labels, annotations };
        self.tell(NoticeStatus::Firing, &firing, None);
        self.firing.insert(key, firing);
    }

    fn resolve(&mut self, rules: Rules, holds: &BTreeMap<Key, String>, reading: &Reading) {
        let now = reading.now;
        let mut over = Vec::new();
        for (key, firing) in &mut self.firing {
            if holds.contains_key(key) {
                continue;
            }
            let since = *firing.clear_since.get_or_insert(now);
            let gone = key.cluster.is_some_and(|id| !reading.clusters.iter().any(|c| c.id == id))
                || key.budget.is_some_and(|(id, _)| !reading.budgets.iter().any(|budget| budget.id == id))
                || key.quota.is_some_and(|mark| !reading.quotas.iter().any(|quota| quota.mark() == mark));
            if gone || now.since(since) >= rules.resolve_ms {
                over.push(*key);
            }
        }
        for key in over {
            if let Some(firing) = self.firing.remove(&key) {
                self.tell(NoticeStatus::Resolved, &firing, Some(now));
            }
        }
    }

    fn tell(&mut self, status: NoticeStatus, firing: &Firing, ends_at: Option<Millis>) {
        let notice = Notice {
            number: self.next_number,
            status,
            labels: firing.labels.clone(),
            annotations: firing.annotations.clone(),
            starts_at: firing.starts_at,
            ends_at,
        };
        self.next_number += 1;
        self.outbox.push_back(notice);
        if self.outbox.len() > limits::NOTICES_MAX {
            self.outbox.pop_front();
            self.dropped += 1;
        }
    }

    /// What to deliver next: always the oldest.
    pub fn next_notice(&self) -> Option<&Notice> {
        self.outbox.front()
    }

    pub fn delivered(&mut self, number: u64) {
        self.outbox.retain(|notice| notice.number != number);
    }
}

/// The thresholds that what was spent has come to.
fn reached(budget: &BudgetReading, holds: &mut BTreeMap<Key, String>) {
    let BudgetReading { name, on, amount, spent, .. } = budget;
    for percent in &budget.thresholds {
        if u128::from(spent.0) * 100 >= u128::from(amount.0) * u128::from(*percent) {
            let key = Key {
                kind: Kind::BudgetThreshold,
                cluster: None,
                budget: Some((budget.id, *percent)),
                quota: None,
            };
            let summary =
                format!("Budget '{name}' on {on}: {spent} of {amount} is spent, {percent} % or more.");
            holds.insert(key, summary);
        }
    }
}

/// Nearly as much is held as may be: what is asked for next may be refused.
fn near_limit(rules: Rules, quota: &QuotaReading, holds: &mut BTreeMap<Key, String>) {
    let QuotaReading { name, location, of, limit, held, holder, .. } = quota;
    let near = u128::from(*held) * 100 >= u128::from(*limit) * u128::from(rules.quota_percent);
    if rules.quota_percent == 0 || *limit == 0 || !near {
        return;
    }
    let most = holder.as_ref().map_or_else(String::new, |holder| format!(", most by '{holder}'"));
    let summary = format!(
        "{name} in {location}: {held} of {limit} of {of} are held{most}, {} % or more. 'neap quota request' asks for more.",
        rules.quota_percent
    );
    let quota = Some(quota.mark());
    holds.insert(Key { kind: Kind::QuotaNearLimit, cluster: None, budget: None, quota }, summary);
}

/// Maps whose keys are not text, as lists of pairs: JSON has no other way.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub fn deserialize<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
#[path = "alerts_tests.rs"]
mod tests;
