//! The same work again, through the planner, under another declaration of the cluster: what it would have cost, and how
//! long jobs would have waited.
//!
//! Jobs come when they came and take as long as they took; nodes take as long to come and to go as the middle one did.
//! Nothing else stands in the way: limits, locks and budgets are left out, and so is what other clusters did.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::record::{Record, Work};
use crate::Command;
use crate::cluster::Scale;
use crate::command::{AttemptNews, Report, SubmitJob};
use crate::decide::decide;
use crate::draft::Draft;
use crate::event::{ClusterUpdated, Event};
use crate::ids::{AttemptId, ClusterId, JobId, NodeId};
use crate::job::{AttemptFacts, Exit, JobState};
use crate::limits::RERUN_STEPS_MAX;
use crate::meter::{self, Cause, Posting};
use crate::node::NodeState;
use crate::plan::{Dirty, plan_into};
use crate::state::{State, Timer};
use crate::units::{Capacity, Millis};

/// Long enough that nothing that is only played runs into it.
const NEVER_MS: u64 = 100 * 366 * 24 * 3600 * 1000;

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    pub spent: BTreeMap<Cause, u64>,
    /// Jobs that could have been placed in the time, and how long they waited for that.
    pub jobs: u64,
    pub waited_ms: u64,
    pub waited_max_ms: u64,
    /// Nodes that were asked for.
    pub boots: u32,
    /// It took more steps than are taken for one question, and was left off.
    pub cut_short: bool,
}

impl Course {
    pub fn cost(&self) -> u64 {
        self.spent.values().sum()
    }

    pub fn mean_wait_ms(&self) -> u64 {
        self.waited_ms / self.jobs.max(1)
    }
}

/// Runs the record's work once more, with every declaration changed like this.
pub fn rerun(record: &Record, change: impl Fn(Scale) -> Scale) -> Course {
    let mut world = World::new(record, &change);
    for steps in 0.. {
        let Some(now) = world.next().filter(|now| *now <= record.to) else { break };
        if steps >= RERUN_STEPS_MAX {
            world.course.cut_short = true;
            break;
        }
        world.step(now);
    }
    world.finish()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Scale(usize),
    Creating(NodeId),
    Booted(NodeId),
    Gone(NodeId),
    Started(NodeId, AttemptId),
    Ended(NodeId, AttemptId),
    Submit(JobId),
    /// By the id that it has here.
    Cancel(JobId),
}

struct World<'a> {
    record: &'a Record,
    scales: Vec<(Millis, Scale)>,
    state: State,
    dirty: Dirty,
    wake_at: Option<Millis>,
    due: BinaryHeap<Reverse<(Millis, u64, What)>>,
    caused: u64,
    /// Which job of the record one of here stands for.
    of: BTreeMap<JobId, JobId>,
    /// Those that have not been placed yet, since when.
    waiting: BTreeMap<JobId, Millis>,
    boot_ms: u64,
    leave_ms: u64,
    course: Course,
}

impl<'a> World<'a> {
    fn new(record: &'a Record, change: &impl Fn(Scale) -> Scale) -> Self {
        let mut world = Self {
            record,
            scales: record.scales.iter().map(|(at, scale)| (*at, change(*scale))).collect(),
            state: alone(&record.opening, record.cluster, record.from),
            dirty: Dirty { clusters: [record.cluster].into(), timers_seen: record.from, ..Dirty::default() },
            wake_at: Some(record.from),
            due: BinaryHeap::new(),
            caused: 0,
            of: BTreeMap::new(),
            waiting: BTreeMap::new(),
            boot_ms: record.boot_ms(),
            leave_ms: record.leave_ms(),
            course: Course::default(),
        };
        for at in 0..world.scales.len() {
            world.after(world.scales[at].0, 0, What::Scale(at));
        }
        world.carry_over();
        for (id, work) in &record.work {
            if let Some(ready) = work.ready.filter(|_| !work.carried) {
                world.after(ready, 0, What::Submit(*id));
            }
        }
        world
    }

    /// What was there at the beginning goes on from where it was.
    fn carry_over(&mut self) {
        let from = self.record.from;
        for node in self.state.nodes.values().cloned().collect::<Vec<_>>() {
            match node.state {
                NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. } => {
                    let left = self.boot_ms.saturating_sub(from.since(node.requested));
                    self.after(from, left, What::Booted(node.id));
                }
                NodeState::Leaving { .. } | NodeState::Unusable { .. } | NodeState::Preempted { .. } => {
                    self.after(from, self.leave_ms, What::Gone(node.id));
                }
                NodeState::Ready => {}
            }
        }
        for (id, work) in self.record.work.iter().filter(|(_, work)| work.carried) {
            let Some(job) = self.state.jobs.get(id).cloned() else { continue };
            self.of.insert(*id, *id);
            match &job.state {
                JobState::Active(attempt) => {
                    let left = took(work, self.record).saturating_sub(from.since(attempt.placed));
                    for node in attempt.nodes_held().collect::<Vec<_>>() {
                        let attempt = AttemptId { job: *id, number: attempt.number };
                        self.after(from, 0, What::Started(node, attempt));
                        self.after(from, left.max(1), What::Ended(node, attempt));
                    }
                }
                JobState::Queued { .. } | JobState::Waiting => self.waits(*id, work, from),
            }
        }
    }

    fn waits(&mut self, here: JobId, work: &Work, since: Millis) {
        self.waiting.insert(here, since);
        if let (true, Some((at, _))) = (work.spans.is_empty(), work.ended) {
            self.after(at, 0, What::Cancel(here));
        }
    }

    fn next(&self) -> Option<Millis> {
        let due = self.due.peek().map(|Reverse((at, _, _))| *at);
        [due, self.wake_at].into_iter().flatten().min()
    }

    fn after(&mut self, at: Millis, ms: u64, what: What) {
        self.caused += 1;
        self.due.push(Reverse((at.plus(ms), self.caused, what)));
    }

    fn step(&mut self, now: Millis) {
        let mut draft = Draft::new(self.state.clone());
        while let Some(Reverse((at, _, what))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            self.happens(&mut draft, what, now);
        }
        self.wake_at = plan_into(&mut draft, &mut self.dirty, now);
        for event in std::mem::take(&mut draft.events) {
            self.obeys(&draft.state, &event, now);
        }
        self.charge(std::mem::take(&mut draft.postings));
        self.state = draft.state;
    }

    fn happens(&mut self, draft: &mut Draft, what: What, now: Millis) {
        match what {
            What::Scale(at) => {
                let Some(cluster) = draft.state.clusters.get(&self.record.cluster).cloned() else { return };
                let scale = self.scales[at].1;
                if scale != cluster.scale {
                    let (id, revision, document) = (cluster.id, cluster.revision + 1, cluster.document);
                    draft.emit(
                        now,
                        ClusterUpdated {
                            id,
                            revision,
                            scale,
                            floor: None,
                            document,
                            reference: None,
                            remade: None,
                        },
                    );
                }
            }
            What::Submit(id) => {
                let Some(work) = self.record.work.get(&id) else { return };
                let here = draft.state.next.job;
                if told(draft, submit(&draft.state, self.record.cluster, here, work), now) {
                    self.of.insert(here, id);
                    self.waits(here, work, now);
                }
            }
            What::Cancel(job) => {
                if self.waiting.remove(&job).is_some() {
                    told(draft, Some(Command::CancelJob { job, reason: "as it was".into() }), now);
                }
            }
            What::Creating(node) => drop(report(draft, Report::NodeCreating { node }, now)),
            What::Booted(node) => {
                report(draft, Report::NodeCreating { node }, now);
                report(draft, Report::NodePreparing { node }, now);
                let actual = draft.state.nodes.get(&node).map_or_else(Capacity::default, |n| n.nominal);
                report(draft, Report::NodeReady { node, actual, isolation: "".into() }, now);
            }
            What::Gone(node) => drop(report(draft, Report::NodeGone { node, reason: "it went".into() }, now)),
            What::Started(node, attempt) => {
                news(draft, node, attempt, AttemptNews::Started { facts: AttemptFacts::new() }, now);
            }
            What::Ended(node, attempt) => {
                news(draft, node, attempt, AttemptNews::Ended { exit: Exit::Success }, now);
            }
        }
    }

    /// The world does what was decided.
    fn obeys(&mut self, state: &State, event: &Event, now: Millis) {
        match event {
            Event::NodeRequested(e) => {
                self.course.boots += 1;
                self.after(now, 0, What::Creating(e.id));
                self.after(now, self.boot_ms, What::Booted(e.id));
            }
            Event::NodeLeaving(e) => self.after(now, self.leave_ms, What::Gone(e.id)),
            Event::JobPlaced(e) => {
                if let Some(since) = self.waiting.remove(&e.id) {
                    self.waited(now.since(since));
                }
                let Some(work) = self.of.get(&e.id).and_then(|id| self.record.work.get(id)) else { return };
                let (staging, all) = (staging(work), took(work, self.record).max(1));
                for node in std::iter::once(e.node).chain(e.others.iter().copied()) {
                    let attempt = AttemptId { job: e.id, number: e.attempt };
                    self.after(now, staging.min(all - 1), What::Started(node, attempt));
                    self.after(now, all, What::Ended(node, attempt));
                }
            }
            // It goes back, and does all of it again.
            Event::AttemptStopRequested(e) => {
                let nodes =
                    state.jobs.get(&e.id).and_then(|job| job.attempt()).map(|attempt| attempt.nodes_held());
                for node in nodes.into_iter().flatten().collect::<Vec<_>>() {
                    self.after(now, 0, What::Ended(node, AttemptId { job: e.id, number: e.attempt }));
                }
            }
            _ => {}
        }
    }

    fn waited(&mut self, ms: u64) {
        self.course.jobs += 1;
        self.course.waited_ms += ms;
        self.course.waited_max_ms = self.course.waited_max_ms.max(ms);
    }

    fn charge(&mut self, postings: Vec<Vec<Posting>>) {
        for posting in postings.into_iter().flatten() {
            if let Posting::Segment(segment) = posting {
                *self.course.spent.entry(segment.cause).or_default() += segment.cost.0;
            }
        }
    }

    fn finish(mut self) -> Course {
        let to = self.record.to;
        for since in std::mem::take(&mut self.waiting).into_values() {
            self.waited(to.since(since));
        }
        for segment in meter::open(&self.state, to) {
            *self.course.spent.entry(segment.cause).or_default() += segment.cost.0;
        }
        self.course
    }
}

/// How long all its tries took together; of one that was not over, that it was not.
fn took(work: &Work, record: &Record) -> u64 {
    let span = |end: Option<Millis>, placed: Millis| match end {
        Some(end) => end.since(placed),
        None => record.to.since(placed) + record.to.since(record.from) + 1,
    };
    work.spans.iter().map(|one| span(one.ended, one.placed)).sum()
}

/// From its being placed to its command, the first time.
fn staging(work: &Work) -> u64 {
    let first = work.spans.iter().find_map(|span| Some(span.started?.since(span.placed)));
    first.unwrap_or(0)
}

fn submit(state: &State, cluster: ClusterId, here: JobId, work: &Work) -> Option<Command> {
    let cluster = state.clusters.get(&cluster)?;
    Some(Command::SubmitJob(SubmitJob {
        workspace: cluster.workspace,
        name: format!("again-{here}").into(),
        cluster: cluster.name.clone(),
        owner: work.owner.clone(),
        priority: work.priority,
        need: work.need,
        nodes: work.nodes,
        // What it took is known; nothing here is stopped for taking it.
        timeout_ms: None,
        retry: None,
        tier: work.tier,
        like: None,
        family: None,
        tags: Vec::new(),
        document: cluster.document,
        meta: cluster.document,
        problems: Vec::new(),
    }))
}

fn told(draft: &mut Draft, command: Option<Command>, now: Millis) -> bool {
    let Some(Ok(events)) = command.map(|command| decide(&draft.state, command, now)) else { return false };
    let any = !events.is_empty();
    for event in events {
        draft.emit(now, event);
    }
    any
}

fn report(draft: &mut Draft, report: Report, now: Millis) -> bool {
    told(draft, Some(Command::Report(report)), now)
}

fn news(draft: &mut Draft, node: NodeId, attempt: AttemptId, news: AttemptNews, now: Millis) {
    let current = draft.state.jobs.get(&attempt.job).and_then(|job| job.attempt());
    let Some(number) = current
        .filter(|current| current.number == attempt.number)
        .map(|current| current.last_report_on(node) + 1)
    else {
        return;
    };
    report(draft, Report::Attempt { node, attempt, number, news }, now);
}

/// The cluster as it was, with nothing else around it, and nothing that stands in its way.
fn alone(opening: &State, id: ClusterId, from: Millis) -> State {
    let mut state = opening.clone();
    let settings = &mut state.settings;
    settings.provider.nodes_max = u32::MAX;
    settings.provider.strict = false;
    settings.provider.machine = None;
    settings.places = Arc::default();
    settings.create_deadline_ms = NEVER_MS;
    settings.prepare_deadline_ms = NEVER_MS;
    settings.leave_deadline_ms = NEVER_MS;
    state.draining = None;
    state.quotas.clear();
    state.allowances.clear();
    state.locks.clear();
    state.budgets.clear();
    state.families.clear();
    state.waits.clear();
    state.awaited.clear();
    state.schedules_due.clear();
    state.clusters = opening.clusters.get(&id).map(|cluster| (id, cluster.clone())).into_iter().collect();
    let nodes = opening.nodes.iter().filter(|(_, node)| node.cluster == id);
    state.nodes = nodes.map(|(id, node)| (*id, node.clone())).collect();
    let jobs = opening.jobs.iter().filter(|(_, job)| job.cluster == id && job.state != JobState::Waiting);
    state.jobs = jobs.map(|(id, job)| (*id, job.clone())).collect();
    state.waiting_for_room.clear();
    let names: Vec<_> = state.workspaces.values().cloned().collect();
    for workspace in names {
        state.workspaces.insert(
            workspace.id,
            Arc::new(crate::state::Workspace { deleting: false, ..(*workspace).clone() }),
        );
    }
    for node in state.nodes.keys().copied().collect::<Vec<_>>() {
        if let Some(node) = state.nodes.get_mut(&node).map(Arc::make_mut) {
            (node.metered, node.lease, node.costs_until) = (node.metered.max(from), None, None);
        }
    }
    for job in state.jobs.keys().copied().collect::<Vec<_>>() {
        if let Some(job) = state.jobs.get_mut(&job).map(Arc::make_mut) {
            (job.family, job.timeout_ms) = (None, None);
            if let JobState::Active(attempt) = &mut job.state {
                attempt.run_deadline = None;
            }
        }
    }
    if let Some(cluster) = state.clusters.get_mut(&id).map(Arc::make_mut) {
        (cluster.boot, cluster.cuts) = (Default::default(), Vec::new());
        cluster.waiting.clear();
    }
    let ours = |timer: &Timer| match timer {
        // Those of nodes that are on their way are played.
        Timer::Node(node) => state.nodes.get(node).is_some_and(|node| node.is_idle()),
        _ => false,
    };
    state.timers = state.timers.iter().filter(|(_, timer)| ours(timer)).copied().collect();
    state
}
