//! What happened on one cluster in a time, read from the log event by event: the work that came, how long everything took,
//! what was declared and what was paid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::{Cut, Scale};
use crate::event::Event;
use crate::ids::{AttemptId, ClusterId, JobId, NodeId};
use crate::job::{Job, JobState, Need, Phase, Status};
use crate::lock;
use crate::meter::{self, Cause, Posting, Segment};
use crate::state::State;
use crate::units::{Capacity, Millis};
use crate::usage;

/// Boots and removals whose times are kept.
const TIMES_KEPT: usize = 1_000;

/// One try of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub placed: Millis,
    pub started: Option<Millis>,
    pub ended: Option<Millis>,
}

/// One job of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    pub name: Arc<str>,
    pub owner: Arc<str>,
    pub priority: u8,
    pub tier: crate::mix::TierChoice,
    pub need: Need,
    pub nodes: u32,
    pub timeout_ms: Option<u64>,
    /// When it might have been placed; none while it waited for others.
    pub ready: Option<Millis>,
    pub spans: Vec<Span>,
    pub ended: Option<(Millis, Status)>,
    /// It was there when the time began, with its id.
    pub carried: bool,
}

impl Work {
    fn of(job: &Job, ready: Option<Millis>, carried: bool) -> Self {
        Self {
            name: job.name.clone(),
            owner: job.owner.clone(),
            priority: job.priority,
            tier: job.tier,
            need: job.need,
            nodes: job.nodes,
            timeout_ms: job.timeout_ms,
            ready,
            spans: Vec::new(),
            ended: None,
            carried,
        }
    }
}

/// What is left of a time once it has been looked at.
#[derive(Clone, Debug)]
pub struct Record {
    pub cluster: ClusterId,
    pub from: Millis,
    pub to: Millis,
    /// How everything was at the beginning.
    pub opening: State,
    /// What was declared, and from when on.
    pub scales: Vec<(Millis, Scale)>,
    pub work: BTreeMap<JobId, Work>,
    pub boots_ms: Vec<u64>,
    pub leaves_ms: Vec<u64>,
    /// What was paid, by what for.
    pub spent: BTreeMap<Cause, u64>,
    /// Of that for idle nodes, what the minimum kept.
    pub idle_by_minimum: u64,
    /// What attempts cost, each as a whole.
    pub attempts: BTreeMap<AttemptId, u64>,
    /// The most that was in use of a node at once; none where of more than a tenth of what had nodes to itself nobody knows.
    pub peak: Option<Capacity>,
    pub locks: BTreeSet<String>,
}

impl Record {
    pub fn spent_in_all(&self) -> u64 {
        self.spent.values().sum()
    }

    /// The middle one.
    pub fn boot_ms(&self) -> u64 {
        middle(&self.boots_ms)
    }

    pub fn leave_ms(&self) -> u64 {
        middle(&self.leaves_ms)
    }
}

fn middle(times: &[u64]) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// Reads along.
#[derive(Debug)]
pub struct Recorder {
    cluster: ClusterId,
    from: Millis,
    to: Millis,
    opening: Option<State>,
    scales: Vec<(Millis, Scale)>,
    work: BTreeMap<JobId, Work>,
    boots_ms: Vec<u64>,
    leaves_ms: Vec<u64>,
    asked: BTreeMap<NodeId, Millis>,
    leaving: BTreeMap<NodeId, Millis>,
    spent: BTreeMap<Cause, u64>,
    idle_by_minimum: u64,
    attempts: BTreeMap<AttemptId, BTreeMap<Cause, u64>>,
    /// What whole attempts used, as far as it was measured.
    measured: BTreeMap<AttemptId, Capacity>,
    shared: Capacity,
    whole: BTreeSet<AttemptId>,
    locks: BTreeSet<String>,
    /// The time of the event before.
    last: Millis,
    over: bool,
}

impl Recorder {
    pub fn new(cluster: ClusterId, from: Millis, to: Millis) -> Self {
        Self {
            cluster,
            from,
            to,
            opening: None,
            scales: Vec::new(),
            work: BTreeMap::new(),
            boots_ms: Vec::new(),
            leaves_ms: Vec::new(),
            asked: BTreeMap::new(),
            leaving: BTreeMap::new(),
            spent: BTreeMap::new(),
            idle_by_minimum: 0,
            attempts: BTreeMap::new(),
            measured: BTreeMap::new(),
            shared: Capacity::default(),
            whole: BTreeSet::new(),
            locks: BTreeSet::new(),
            last: Millis(0),
            over: false,
        }
    }

    /// Takes in one event, by the state before it.
    pub fn see(&mut self, before: &State, at: Millis, event: &Event) {
        if self.over || at > self.to {
            return;
        }
        self.nodes(before, at, event);
        if at > self.from {
            self.begin(before);
        }
        if self.opening.is_some() {
            self.scale(before);
            self.money(before, at, event);
            self.jobs(before, at, event);
            if matches!(event, Event::ClusterDeleteRequested(e) if e.id == self.cluster) {
                (self.to, self.over) = (at, true);
            }
        }
        self.last = at;
    }

    /// What was seen, with how everything is at the end of it; none where the cluster was not there.
    pub fn finish(mut self, after: &State) -> Option<Record> {
        self.begin(after);
        if !self.over {
            self.scale(after);
            for segment in meter::open(after, self.to) {
                self.pay(after, &segment);
            }
        }
        let opening = self.opening?;
        let paid =
            |attempt: &AttemptId| self.attempts.get(attempt).map_or(0, |parts| parts.values().sum::<u64>());
        let whole: u64 = self.whole.iter().map(paid).sum();
        let measured: u64 = self.whole.iter().filter(|id| self.measured.contains_key(id)).map(paid).sum();
        // The short ones are not measured: they may be a tenth of it.
        let known = self.whole.is_empty() || (measured > 0 && measured * 10 >= whole * 9);
        let peak = self.measured.values().fold(self.shared, |peak, used| larger(peak, *used));
        Some(Record {
            cluster: self.cluster,
            from: self.from,
            to: self.to,
            opening,
            scales: self.scales,
            work: self.work,
            boots_ms: self.boots_ms,
            leaves_ms: self.leaves_ms,
            spent: self.spent,
            idle_by_minimum: self.idle_by_minimum,
            attempts: self.attempts.iter().map(|(id, parts)| (*id, parts.values().sum())).collect(),
            peak: known.then_some(peak),
            locks: self.locks,
        })
    }

    /// From the first event after `from` on, or from the cluster's creation.
    fn begin(&mut self, before: &State) {
        if self.opening.is_some() {
            return;
        }
        let Some(cluster) = before.clusters.get(&self.cluster) else { return };
        self.from = self.from.max(cluster.created);
        self.scales.push((self.from, cluster.scale));
        for job in before.jobs.values().filter(|job| job.cluster == self.cluster) {
            let mut work = Work::of(job, Some(self.from), true);
            match &job.state {
                JobState::Waiting => (work.ready, work.carried) = (None, false),
                JobState::Queued { .. } => {}
                JobState::Active(attempt) => {
                    let started = (attempt.phase != Phase::Assigned).then_some(attempt.since);
                    work.spans.push(Span { placed: attempt.placed, started, ended: None });
                }
            }
            self.work.insert(job.id, work);
        }
        self.opening = Some(before.clone());
    }

    fn scale(&mut self, before: &State) {
        let Some(cluster) = before.clusters.get(&self.cluster) else { return };
        if self.scales.last().is_none_or(|(_, scale)| *scale != cluster.scale) {
            self.scales.push((self.last.max(self.from), cluster.scale));
        }
    }

    fn nodes(&mut self, before: &State, at: Millis, event: &Event) {
        let ours = |id: &NodeId| before.nodes.get(id).is_some_and(|node| node.cluster == self.cluster);
        match event {
            Event::NodeRequested(e) if e.cluster == self.cluster => {
                self.asked.insert(e.id, at);
            }
            Event::NodeReady(e) => {
                if let Some(asked) = self.asked.remove(&e.id) {
                    keep(&mut self.boots_ms, at.since(asked));
                }
            }
            Event::NodeLeaving(e) if ours(&e.id) => {
                self.leaving.entry(e.id).or_insert(at);
            }
            Event::NodeGone(e) => {
                self.asked.remove(&e.id);
                if let Some(since) = self.leaving.remove(&e.id) {
                    keep(&mut self.leaves_ms, at.since(since));
                }
            }
            _ => {}
        }
    }

    fn money(&mut self, before: &State, at: Millis, event: &Event) {
        for posting in meter::postings(before, at, event) {
            match posting {
                Posting::Segment(segment) => self.pay(before, &segment),
                Posting::Recast { attempt, cause } => self.recast(attempt, cause),
                Posting::Charge(_) => {}
            }
        }
    }

    fn pay(&mut self, before: &State, segment: &Segment) {
        if segment.cluster != self.cluster {
            return;
        }
        let (a, b) = (segment.from.max(self.from), segment.to.min(self.to));
        if a >= b {
            return;
        }
        let cost = segment.cost_between(a, b);
        *self.spent.entry(segment.cause).or_default() += cost;
        if segment.cause == Cause::Idle && segment.payer.is_none() {
            self.idle_by_minimum += cost;
        }
        if segment.cause == Cause::Lock
            && let Some(cluster) = before.clusters.get(&self.cluster)
            && let Some(Cut::Lock { name, on, .. }) = lock::scaling_cut(before, cluster)
        {
            self.locks.insert(format!("'{name}' on {on}"));
        }
        if let (Some(payer), Some(number)) = (&segment.payer, segment.attempt) {
            let attempt = AttemptId { job: payer.job, number };
            *self.attempts.entry(attempt).or_default().entry(segment.cause).or_default() += cost;
        }
    }

    /// As the books do it.
    fn recast(&mut self, attempt: AttemptId, cause: Cause) {
        let Some(parts) = self.attempts.get_mut(&attempt) else { return };
        for old in Cause::OF_ATTEMPTS {
            let Some(cost) = parts.remove(&old) else { continue };
            *parts.entry(cause).or_default() += cost;
            if let Some(sum) = self.spent.get_mut(&old) {
                *sum = sum.saturating_sub(cost);
            }
            *self.spent.entry(cause).or_default() += cost;
        }
    }

    fn jobs(&mut self, before: &State, at: Millis, event: &Event) {
        match event {
            Event::JobSubmitted(e) if e.cluster == self.cluster => {
                let work = Work {
                    name: e.name.clone(),
                    owner: e.owner.clone(),
                    priority: e.priority,
                    tier: e.tier,
                    need: e.need,
                    nodes: e.nodes,
                    timeout_ms: e.timeout_ms,
                    ready: e.after.is_empty().then_some(at),
                    spans: Vec::new(),
                    ended: None,
                    carried: false,
                };
                self.work.insert(e.id, work);
            }
            Event::JobReleased(e) => {
                if let Some(work) = self.work.get_mut(&e.id) {
                    work.ready = Some(at);
                }
            }
            Event::JobPlaced(e) => {
                let Some(work) = self.work.get_mut(&e.id) else { return };
                work.spans.push(Span { placed: at, started: None, ended: None });
                match work.need {
                    Need::Whole => drop(self.whole.insert(AttemptId { job: e.id, number: e.attempt })),
                    Need::Share(share) => {
                        let used = before.nodes.get(&e.node).map_or(share, |node| node.used.plus(share));
                        self.shared = larger(self.shared, used);
                    }
                }
            }
            Event::AttemptStarted(e) => {
                if let Some(span) = self.span(e.id) {
                    span.started = span.started.or(Some(at));
                }
            }
            Event::AttemptMeasured(e) => {
                let gpus = before.clusters.get(&self.cluster).map_or(0, |cluster| cluster.shape.nominal.gpus);
                if let (true, Some(used)) = (self.work.contains_key(&e.id), usage::used(&e.facts, gpus)) {
                    let attempt = AttemptId { job: e.id, number: e.attempt };
                    let most = self.measured.entry(attempt).or_default();
                    *most = larger(*most, used);
                }
            }
            Event::JobRequeued(e) => self.ends(e.id, at),
            Event::JobEnded(e) => {
                self.ends(e.id, at);
                if let Some(work) = self.work.get_mut(&e.id) {
                    work.ended = Some((at, e.outcome.status));
                }
            }
            _ => {}
        }
    }

    fn span(&mut self, id: JobId) -> Option<&mut Span> {
        self.work.get_mut(&id)?.spans.last_mut()
    }

    fn ends(&mut self, id: JobId, at: Millis) {
        if let Some(span) = self.span(id) {
            span.ended = span.ended.or(Some(at));
        }
    }
}

fn keep(times: &mut Vec<u64>, ms: u64) {
    if times.len() >= TIMES_KEPT {
        times.remove(0);
    }
    times.push(ms);
}

fn larger(a: Capacity, b: Capacity) -> Capacity {
    Capacity {
        cpus_milli: a.cpus_milli.max(b.cpus_milli),
        memory_mb: a.memory_mb.max(b.memory_mb),
        gpus: a.gpus.max(b.gpus),
    }
}
