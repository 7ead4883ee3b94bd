//! What became of a replay, read from the events alone: when each task began and ended, and where nodes' time went.

use std::collections::BTreeMap;

use neap_core::event::Event;
use neap_core::{JobId, Millis, NodeId};

use super::START;
use super::scene::Task;

/// The whole of it, in virtual milliseconds from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// One for each task, in the order in which they were given.
    pub spans: Vec<Span>,
    pub nodes: NodeTime,
    /// When the last task ended: nothing is counted beyond.
    pub end_ms: u64,
    /// Everything that was decided or planned.
    pub events: u64,
    pub placements: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub submit_ms: u64,
    pub placed_ms: u64,
    pub end_ms: u64,
}

impl Span {
    pub const fn waited_ms(self) -> u64 {
        self.placed_ms.saturating_sub(self.submit_ms)
    }
}

/// The time of all nodes together, from the wish for each to its absence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTime {
    pub boot_ms: u64,
    /// With at least one task on it.
    pub busy_ms: u64,
    pub idle_ms: u64,
    pub leave_ms: u64,
    /// How many there ever were, and at once.
    pub made: u32,
    pub most: u32,
}

impl NodeTime {
    /// The same of two courses together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            boot_ms: self.boot_ms + other.boot_ms,
            busy_ms: self.busy_ms + other.busy_ms,
            idle_ms: self.idle_ms + other.idle_ms,
            leave_ms: self.leave_ms + other.leave_ms,
            made: self.made + other.made,
            most: self.most.max(other.most),
        }
    }

    pub const fn total_ms(self) -> u64 {
        self.boot_ms + self.busy_ms + self.idle_ms + self.leave_ms
    }
}

/// Waiting times by nearest rank: each is one that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub mean_ms: u64,
    pub p50_ms: u64,
    pub p95_ms: u64,
    pub max_ms: u64,
}

impl Waiting {
    pub fn of(waits_ms: impl IntoIterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = waits_ms.into_iter().collect();
        sorted.sort_unstable();
        let Some(max_ms) = sorted.last().copied() else { return Self::default() };
        let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let mean_ms = sorted.iter().sum::<u64>() / sorted.len() as u64;
        Self { mean_ms, p50_ms: rank(50), p95_ms: rank(95), max_ms }
    }
}

/// Where a job stands in the order of submission: ids are given from 1 on.
pub(crate) fn place_of(job: JobId) -> usize {
    usize::try_from(job.0).unwrap_or(usize::MAX).saturating_sub(1)
}

/// Reads events as they come and keeps the sums.
#[derive(Debug)]
pub(crate) struct Meter {
    spans: Vec<Span>,
    nodes: BTreeMap<NodeId, Standing>,
    /// Where each active job is.
    active: BTreeMap<JobId, NodeId>,
    time: NodeTime,
    ended: usize,
    events: u64,
    placements: u64,
    now: Millis,
}

#[derive(Debug)]
struct Standing {
    phase: Phase,
    since: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Boot,
    /// Ready, with so many tasks on it.
    Ready(u32),
    Leave,
}

impl Meter {
    pub fn new(tasks: &[Task]) -> Self {
        let span = |task: &Task| Span { submit_ms: task.submit_ms, placed_ms: 0, end_ms: 0 };
        Self {
            spans: tasks.iter().map(span).collect(),
            nodes: BTreeMap::new(),
            active: BTreeMap::new(),
            time: NodeTime::default(),
            ended: 0,
            events: 0,
            placements: 0,
            now: START,
        }
    }

    pub fn ended(&self) -> usize {
        self.ended
    }

    pub fn see(&mut self, at: Millis, event: &Event, order: &[usize]) {
        self.now = at;
        self.events += 1;
        match event {
            Event::NodeRequested(e) => self.node_wanted(e.id),
            Event::NodeReady(e) => self.node_is(e.id, |_| Phase::Ready(0)),
            Event::NodeLeaving(e) => self.node_is(e.id, |_| Phase::Leave),
            Event::NodeUnusable(e) => self.node_is(e.id, |_| Phase::Leave),
            Event::NodeGone(e) => self.node_gone(e.id),
            Event::JobPlaced(e) => {
                self.placements += 1;
                self.spans[order[place_of(e.id)]].placed_ms = at.since(START);
                self.active.insert(e.id, e.node);
                self.tasks_on(e.node, |tasks| tasks + 1);
            }
            Event::JobRequeued(e) => self.job_leaves(e.id),
            Event::JobEnded(e) => {
                self.ended += 1;
                self.spans[order[place_of(e.id)]].end_ms = at.since(START);
                self.job_leaves(e.id);
            }
            Event::ServerStarted(_)
            | Event::ServerDraining(_)
            | Event::GroupPut(_)
            | Event::GroupDeleted(_)
            | Event::WorkspaceCreated(_)
            | Event::WorkspaceUpdated(_)
            | Event::WorkspaceDeleteRequested(_)
            | Event::WorkspaceDeleted(_)
            | Event::StorageMeasured(_)
            | Event::AssetPut(_)
            | Event::AssetDeleted(_)
            | Event::DocumentErased(_)
            | Event::ClusterCreated(_)
            | Event::ClusterUpdated(_)
            | Event::ClusterTarget(_)
            | Event::ClusterDeleteRequested(_)
            | Event::ClusterDeleted(_)
            | Event::NodeCreating(_)
            | Event::NodePreparing(_)
            | Event::NodeSilent(_)
            | Event::NodeHeard(_)
            | Event::NodePreempted(_)
            | Event::NodeCordoned(_)
            | Event::NodeUncordoned(_)
            | Event::JobSubmitted(_)
            | Event::FamilyOpened(_)
            | Event::FamilyClosing(_)
            | Event::ClusterScheduled(_)
            | Event::WindowFilled(_)
            | Event::WindowDeleted(_)
            | Event::WindowPut(_)
            | Event::SchedulePut(_)
            | Event::ScheduleDue(_)
            | Event::ScheduleTriggered(_)
            | Event::ScheduleDeleted(_)
            | Event::QuotaSet(_)
            | Event::QuotaRequested(_)
            | Event::QuotaAnswered(_)
            | Event::AllowanceSet(_)
            | Event::LockPut(_)
            | Event::LockDeleted(_)
            | Event::BudgetPut(_)
            | Event::BudgetRenewed(_)
            | Event::BudgetDeleted(_)
            | Event::MoneyLeased(_)
            | Event::NodeMetered(_)
            | Event::JobReleased(_)
            | Event::RankReported(_)
            | Event::RankEnded(_)
            | Event::AttemptStarted(_)
            | Event::AttemptMeasured(_)
            | Event::AttemptFinalizing(_)
            | Event::AttemptStopRequested(_)
            | Event::JobCancelRequested(_)
            | Event::JobUpdated(_)
            | Event::JobDeleted(_) => {}
        }
    }

    /// Nodes that are there yet are counted up to now.
    pub fn finish(mut self) -> Course {
        while let Some((_, standing)) = self.nodes.pop_first() {
            self.count(&standing);
        }
        Course {
            spans: self.spans,
            nodes: self.time,
            end_ms: self.now.since(START),
            events: self.events,
            placements: self.placements,
        }
    }

    fn node_wanted(&mut self, id: NodeId) {
        self.nodes.insert(id, Standing { phase: Phase::Boot, since: self.now });
        self.time.made += 1;
        self.time.most = self.time.most.max(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
    }

    fn node_is(&mut self, id: NodeId, next: impl FnOnce(Phase) -> Phase) {
        if let Some(standing) = self.nodes.remove(&id) {
            self.count(&standing);
            self.nodes.insert(id, Standing { phase: next(standing.phase), since: self.now });
        }
    }

    fn node_gone(&mut self, id: NodeId) {
        if let Some(standing) = self.nodes.remove(&id) {
            self.count(&standing);
        }
    }

    fn tasks_on(&mut self, id: NodeId, change: impl FnOnce(u32) -> u32) {
        self.node_is(id, |phase| match phase {
            Phase::Ready(tasks) => Phase::Ready(change(tasks)),
            Phase::Boot | Phase::Leave => phase,
        });
    }

    fn job_leaves(&mut self, job: JobId) {
        if let Some(node) = self.active.remove(&job) {
            self.tasks_on(node, |tasks| tasks.saturating_sub(1));
        }
    }

    fn count(&mut self, standing: &Standing) {
        let span_ms = self.now.since(standing.since);
        let sum = match standing.phase {
            Phase::Boot => &mut self.time.boot_ms,
            Phase::Ready(0) => &mut self.time.idle_ms,
            Phase::Ready(_) => &mut self.time.busy_ms,
            Phase::Leave => &mut self.time.leave_ms,
        };
        *sum += span_ms;
    }
}
