//! What nodes cost, who pays, and for what.
//!
//! Between two events a node does one thing; that time is a *slice*. The event that ends it closes it into segments, one
//! for each who had a part of the node. A node costs `price · (t − asked for)`, rounded down once, and a segment is a
//! difference of two such figures: so the segments of a node sum to its bill, to the last micro-unit.
//!
//! Nothing here is in the log: segments follow from it, and can be made again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::Label;
use crate::charge::{self, Charge};
use crate::event::{AttemptStarted, Event};
use crate::ids::{AttemptId, ClusterId, JobId, NodeId};
use crate::job::{Cause as Again, Job, Need, Phase, Status};
use crate::lock;
use crate::node::{Node, NodeState};
use crate::planted::{self, Bug};
use crate::state::State;
use crate::units::{Capacity, MicroUsd, Millis};
use crate::usage;

/// What a slice was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// From asking for the node to its being ready, for the job that was waited with.
    Boot,
    /// The same, in vain.
    FailedBoot,
    /// Ready, and nothing on it.
    Idle,
    /// Idle for longer than its idle time, because a lock stops scaling.
    Lock,
    /// The attempt's environment, code and inputs were made ready.
    Staging,
    /// Of that, what it took to pull its image.
    Pull,
    /// Of that, what it took to build its environment.
    Build,
    Run,
    /// The attempt's job failed.
    Failed,
    Canceled,
    /// The attempt did not count: its node was lost or it went back to the queue.
    Lost,
    /// From the word that the node is taken back to its being gone.
    Eviction,
    /// The node was on its way out.
    Leaving,
}

impl Cause {
    pub const ALL: [Self; 13] = [
        Self::Boot,
        Self::FailedBoot,
        Self::Idle,
        Self::Lock,
        Self::Staging,
        Self::Pull,
        Self::Build,
        Self::Run,
        Self::Failed,
        Self::Canceled,
        Self::Lost,
        Self::Eviction,
        Self::Leaving,
    ];

    /// What turns out to have been in vain once its attempt has ended badly.
    pub const OF_ATTEMPTS: [Self; 4] = [Self::Staging, Self::Pull, Self::Build, Self::Run];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::FailedBoot => "failed-boot",
            Self::Idle => "idle",
            Self::Lock => "lock",
            Self::Staging => "staging",
            Self::Pull => "image-pull",
            Self::Build => "environment-build",
            Self::Run => "run",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Lost => "lost",
            Self::Eviction => "eviction",
            Self::Leaving => "leaving",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.word() == word)
    }
}

/// Who pays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payer {
    pub job: JobId,
    pub owner: Arc<str>,
    /// What its job is part of, the innermost first, and the tags it was submitted with: budgets ask.
    pub families: Vec<JobId>,
    pub tags: Vec<Label>,
}

impl Payer {
    pub fn of(state: &State, job: &Job) -> Self {
        let around = |id: &JobId| state.families.get(id).and_then(|family| family.family);
        let families = std::iter::successors(job.family, around).collect();
        Self { job: job.id, owner: job.owner.clone(), families, tags: job.tags.clone() }
    }
}

/// One part of one slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub node: NodeId,
    pub cluster: ClusterId,
    pub from: Millis,
    pub to: Millis,
    pub cost: MicroUsd,
    pub cause: Cause,
    /// Nobody where the cluster keeps the node by its minimum.
    pub payer: Option<Payer>,
    pub attempt: Option<u32>,
}

impl Segment {
    /// The part that falls between two moments within it: a difference, so that parts sum to the whole.
    pub fn cost_between(&self, a: Millis, b: Millis) -> u64 {
        part_of(self.cost, (self.from, self.to), (a, b)).0
    }

    /// The same time and money in parts of so many milliseconds each, and what is left; the causes are those of the parts.
    fn divided(self, parts: &[(Cause, u64)]) -> Vec<Self> {
        let mut out = Vec::new();
        let mut from = self.from;
        for (cause, ms) in parts {
            let to = from.plus(*ms).min(self.to);
            if from < to {
                let cost = MicroUsd(self.cost_between(from, to));
                out.push(Self { from, to, cost, cause: *cause, ..self.clone() });
            }
            from = to;
        }
        if from < self.to || out.is_empty() {
            let cost = MicroUsd(self.cost_between(from, self.to));
            out.push(Self { from, cost, ..self });
        }
        out
    }
}

/// The part of a cost that falls between `a` and `b`, by the time: a difference, so that adjoining parts sum to the whole.
pub fn part_of(cost: MicroUsd, (from, to): (Millis, Millis), (a, b): (Millis, Millis)) -> MicroUsd {
    let upto = |moment: Millis| {
        let part = u128::from(cost.0) * u128::from(moment.since(from)) / u128::from(to.since(from).max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    MicroUsd(upto(b.min(to)).saturating_sub(upto(a.max(from))))
}

/// What an event means for the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posting {
    Segment(Segment),
    /// How the attempt ended is known: what it ran for was in vain.
    Recast {
        attempt: AttemptId,
        cause: Cause,
    },
    /// Beside nodes.
    Charge(Charge),
}

/// What an event closes, by the state before it.
pub fn postings(before: &State, at: Millis, event: &Event) -> Vec<Posting> {
    let mut out = closed(before, at, event);
    if let Event::AttemptStarted(e) = event {
        out = out.into_iter().flat_map(|posting| preparations(posting, e)).collect();
    }
    if matches!(event, Event::NodeUnusable(_)) {
        for posting in &mut out {
            if let Posting::Segment(segment) = posting {
                segment.cause = Cause::FailedBoot;
            }
        }
    }
    let recast = match event {
        // What was saved is not lost; what it cost to be taken back is on the books as that.
        Event::JobRequeued(e) if e.cause == Again::Preempted => None,
        Event::JobRequeued(e) => Some((e.id, e.attempt, Cause::Lost)),
        Event::JobEnded(e) => match (e.attempt, e.outcome.status) {
            (Some(attempt), Status::Failed) => Some((e.id, attempt, Cause::Failed)),
            (Some(attempt), Status::Canceled) => Some((e.id, attempt, Cause::Canceled)),
            _ => None,
        },
        _ => None,
    };
    if let Some((job, number, cause)) = recast {
        out.push(Posting::Recast { attempt: AttemptId { job, number }, cause });
    }
    out.extend(charge::charges(before, at, event).into_iter().map(Posting::Charge));
    out
}

/// The slices that an event ends, each as a whole: what budgets are charged with.
pub(crate) fn closed(before: &State, at: Millis, event: &Event) -> Vec<Posting> {
    let mut out: Vec<Posting> = Vec::new();
    for id in ends_slice_of(before, event) {
        if let Some(node) = before.nodes.get(&id) {
            close(before, node, node.metered, at, &mut out);
        }
    }
    out
}

/// What it took to pull the image and to build the environment is apart from the rest of an attempt's staging.
fn preparations(posting: Posting, started: &AttemptStarted) -> Vec<Posting> {
    let ms = |key: &str| usage::number(&started.facts, key).unwrap_or(0);
    match posting {
        Posting::Segment(segment)
            if segment.cause == Cause::Staging
                && segment.payer.as_ref().is_some_and(|payer| payer.job == started.id) =>
        {
            let parts = [(Cause::Pull, ms(usage::PULL_MS)), (Cause::Build, ms(usage::BUILD_MS))];
            segment.divided(&parts).into_iter().map(Posting::Segment).collect()
        }
        other => vec![other],
    }
}

/// What nodes that are not gone have cost since their last slice was closed: as if all of them ended now.
pub fn open(state: &State, now: Millis) -> Vec<Segment> {
    open_between(state, Millis(0), now)
}

/// The same, of the time between two moments alone.
pub fn open_between(state: &State, from: Millis, to: Millis) -> Vec<Segment> {
    let mut out = Vec::new();
    for node in state.nodes.values() {
        close(state, node, node.metered.max(from), to, &mut out);
    }
    let segment = |posting| match posting {
        Posting::Segment(segment) => Some(segment),
        Posting::Recast { .. } | Posting::Charge(_) => None,
    };
    out.into_iter().filter_map(segment).collect()
}

/// The nodes that do something else from this event on. `apply` marks them as billed up to here.
pub fn ends_slice_of(before: &State, event: &Event) -> Vec<NodeId> {
    let held = |id: &JobId| -> Vec<NodeId> {
        before
            .jobs
            .get(id)
            .and_then(|job| job.attempt())
            .map(|attempt| attempt.nodes_held().collect())
            .unwrap_or_default()
    };
    match event {
        Event::NodeReady(e) => vec![e.id],
        Event::NodeUnusable(e) => vec![e.id],
        Event::NodeLeaving(e) => vec![e.id],
        Event::NodePreempted(e) => vec![e.id],
        Event::NodeGone(e) => vec![e.id],
        Event::NodeMetered(e) => vec![e.id],
        Event::JobPlaced(e) => std::iter::once(e.node).chain(e.others.iter().copied()).collect(),
        Event::AttemptStarted(e) => held(&e.id),
        Event::RankEnded(e) => vec![e.node],
        Event::JobRequeued(e) => held(&e.id),
        Event::JobEnded(e) => held(&e.id),
        // A lock keeps idle nodes from here on, or does so no longer.
        Event::LockPut(_) | Event::LockDeleted(_) => {
            before.clusters.values().flat_map(|cluster| cluster.idle.iter().copied()).collect()
        }
        _ => Vec::new(),
    }
}

/// What a node has cost from the first to `at`.
pub fn bill(node: &Node, at: Millis) -> u64 {
    let at = node.costs_until.map_or(at, |until| at.min(until));
    u64::try_from(node.shape.price.over(at.since(node.requested))).unwrap_or(u64::MAX)
}

fn close(state: &State, node: &Node, from: Millis, to: Millis, out: &mut Vec<Posting>) {
    let part = |from: Millis, to: Millis, cause: Cause, payer: Option<Payer>| {
        let cost = MicroUsd(bill(node, to) - bill(node, from));
        Segment { node: node.id, cluster: node.cluster, from, to, cost, cause, payer, attempt: None }
    };
    if from >= to {
        return;
    }
    match node.state {
        _ if !node.attempts.is_empty() => shared(state, node, &part(from, to, Cause::Run, None), out),
        NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. } => {
            out.push(Posting::Segment(part(from, to, Cause::Boot, node.caused_by.clone())));
        }
        NodeState::Unusable { .. } => {
            out.push(Posting::Segment(part(from, to, Cause::FailedBoot, node.caused_by.clone())));
        }
        NodeState::Preempted { .. } => {
            out.push(Posting::Segment(part(from, to, Cause::Eviction, node.last.clone())));
        }
        NodeState::Leaving { .. } => {
            out.push(Posting::Segment(part(from, to, Cause::Leaving, node.last.clone())));
        }
        NodeState::Ready => {
            let cluster = state.clusters.get(&node.cluster);
            let by_minimum = cluster.is_some_and(|cluster| cluster.live <= cluster.scale.min);
            let payer = node.last.clone().filter(|_| !by_minimum);
            // What a lock costs is what is over the idle time.
            let locked = cluster.is_some_and(|cluster| lock::scaling_cut(state, cluster).is_some());
            let patience = cluster.map_or(0, |cluster| cluster.scale.idle_ms);
            let over = if locked { node.since.plus(patience).max(from).min(to) } else { to };
            if from < over {
                out.push(Posting::Segment(part(from, over, Cause::Idle, payer.clone())));
            }
            if over < to {
                out.push(Posting::Segment(part(over, to, Cause::Lock, payer)));
            }
        }
    }
}

/// Divides a slice among those who share the node, by their dominant share of it.
fn shared(state: &State, node: &Node, whole: &Segment, out: &mut Vec<Posting>) {
    let weigh = |id: &AttemptId| state.jobs.get(&id.job).map_or(0, |job| weight(job.need, node.nominal));
    let weights: Vec<u64> = node.attempts.iter().map(weigh).collect();
    for (id, cost) in node.attempts.iter().zip(split(whole.cost.0, &weights)) {
        let job = state.jobs.get(&id.job);
        let phase = job.and_then(|job| job.attempt()).and_then(|attempt| attempt.phase_on(node.id));
        let cause = match (node.state, phase) {
            (NodeState::Preempted { .. }, _) => Cause::Eviction,
            (_, Some(Phase::Assigned)) => Cause::Staging,
            _ => Cause::Run,
        };
        let payer = job.map(|job| Payer::of(state, job));
        out.push(Posting::Segment(Segment {
            cost: MicroUsd(cost),
            cause,
            payer,
            attempt: Some(id.number),
            ..whole.clone()
        }));
    }
}

/// The largest of a job's shares of the node's resources, in millionths.
fn weight(need: Need, nominal: Capacity) -> u64 {
    let part = |share: u64, of: u64| {
        let part = (u128::from(share) * 1_000_000).checked_div(of.into()).unwrap_or(0);
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    match need {
        Need::Whole => 1_000_000,
        Need::Share(share) => part(share.cpus_milli.into(), nominal.cpus_milli.into())
            .max(part(share.memory_mb, nominal.memory_mb))
            .max(part(share.gpus.into(), nominal.gpus.into()))
            .max(1),
    }
}

/// Parts in proportion to `weights` that sum to the whole; what rounding leaves goes to the first ones.
fn split(whole: u64, weights: &[u64]) -> Vec<u64> {
    let total: u64 = weights.iter().sum::<u64>().max(1);
    let exact = |weight: &u64| {
        u64::try_from(u128::from(whole) * u128::from(*weight) / u128::from(total)).unwrap_or(0)
    };
    let mut parts: Vec<u64> = weights.iter().map(exact).collect();
    let mut left = if planted::is(Bug::CostRounded) { 0 } else { whole - parts.iter().sum::<u64>() };
    for part in &mut parts {
        let one = left.min(1);
        *part += one;
        left -= one;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjoining_times_sum_to_the_whole() {
        let whole = (Millis(1_000), Millis(8_000));
        let times = [(0, 2_333), (2_333, 5_000), (5_000, 5_000), (5_000, 9_000)];
        let parts = times.map(|(a, b)| part_of(MicroUsd(10_007), whole, (Millis(a), Millis(b))).0);
        assert_eq!(parts, [1_905, 3_813, 0, 4_289]);
        assert_eq!(parts.iter().sum::<u64>(), 10_007);
        assert_eq!(part_of(MicroUsd(5), (Millis(3), Millis(3)), (Millis(0), Millis(9))), MicroUsd(0));
    }

    #[test]
    fn parts_sum_to_the_whole() {
        assert_eq!(split(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(split(7, &[500_000, 250_000]), [5, 2]);
        assert_eq!(split(0, &[3, 4]), [0, 0]);
        for whole in [1, 2, 99, 1_000_003] {
            assert_eq!(split(whole, &[7, 11, 13, 1]).iter().sum::<u64>(), whole);
        }
    }

    #[test]
    fn the_dominant_share_weighs() {
        let node = Capacity { cpus_milli: 4_000, memory_mb: 16_000, gpus: 2 };
        let share = |cpus_milli, memory_mb, gpus| Need::Share(Capacity { cpus_milli, memory_mb, gpus });
        assert_eq!(weight(share(1_000, 1_000, 0), node), 250_000);
        assert_eq!(weight(share(1_000, 12_000, 0), node), 750_000);
        assert_eq!(weight(share(1_000, 1_000, 1), node), 500_000);
        assert_eq!(weight(Need::Whole, node), 1_000_000);
    }
}
