//! A state in the making: events are applied as they are decided, and what they touched is remembered.
//!
//! A batch runs on a draft, which is published after the commit or dropped if it fails.

use std::collections::BTreeSet;

use crate::apply::apply;
use crate::budget;
use crate::cluster::Cut;
use crate::event::{Event, MoneyLeased, NodeMetered};
use crate::ids::{ClusterId, JobId, NodeId, WorkspaceId};
use crate::meter::{self, Posting};
use crate::planted::{self, Bug};
use crate::state::State;
use crate::units::Millis;

#[derive(Clone, Debug)]
pub struct Draft {
    pub state: State,
    pub events: Vec<Event>,
    /// What each of them means for the books.
    pub postings: Vec<Vec<Posting>>,
    pub touched: Touched,
    /// The disk is full: the planner places no job and asks for no node.
    pub disk_is_full: bool,
}

/// What events were about: where planning looks again, and where effects are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub workspaces: BTreeSet<WorkspaceId>,
    pub clusters: BTreeSet<ClusterId>,
    pub nodes: BTreeSet<NodeId>,
    pub jobs: BTreeSet<JobId>,
    pub families: BTreeSet<JobId>,
}

impl Draft {
    pub fn new(state: State) -> Self {
        Self {
            state,
            events: Vec::new(),
            postings: Vec::new(),
            touched: Touched::default(),
            disk_is_full: false,
        }
    }

    pub fn emit(&mut self, at: Millis, event: impl Into<Event>) {
        let event = event.into();
        self.touch(&event);
        self.postings.push(meter::postings(&self.state, at, &event));
        let budgets = self.state.budgets.clone();
        apply(&mut self.state, at, &event);
        // Money was reserved, spent or given back: whoever waits for it looks again.
        if !budgets.ptr_eq(&self.state.budgets) {
            self.touched.clusters.extend(self.state.waiting_for_room.iter());
            self.touched.clusters.extend(self.state.promising.iter());
        }
        self.events.push(event);
    }

    fn touch(&mut self, event: &Event) {
        // It may leave money to somebody whose jobs wait, or take it.
        if budget::moves_money(&self.state, event) {
            self.touch_waiting();
            self.touched.clusters.extend(self.state.waiting_for_room.iter());
        }
        match event {
            Event::ServerStarted(_) | Event::ServerDraining(_) => {
                self.touched.clusters.extend(self.state.clusters.keys());
            }
            Event::GroupPut(_)
            | Event::GroupDeleted(_)
            | Event::AssetPut(_)
            | Event::StorageMeasured(_)
            | Event::AssetDeleted(_)
            | Event::DocumentErased(_)
            | Event::JobUpdated(_)
            | Event::JobDeleted(_)
            | Event::SchedulePut(_)
            | Event::ScheduleDue(_)
            | Event::ScheduleTriggered(_)
            | Event::ScheduleDeleted(_) => {}
            Event::QuotaRequested(_) | Event::QuotaAnswered(_) => {}
            Event::BudgetRenewed(_) => self.touched.clusters.extend(self.state.waiting_for_room.iter()),
            Event::MoneyLeased(MoneyLeased { node, .. }) | Event::NodeMetered(NodeMetered { id: node }) => {
                self.node(*node);
                self.touched.clusters.extend(self.state.promising.iter());
                self.touched.clusters.extend(self.state.waiting_for_room.iter());
            }
            Event::QuotaSet(e) => {
                let there = self.state.clusters.values().filter(|cluster| cluster.location == e.key.location);
                self.touched.clusters.extend(there.map(|cluster| cluster.id));
            }
            Event::BudgetPut(_)
            | Event::BudgetDeleted(_)
            | Event::LockPut(_)
            | Event::LockDeleted(_)
            | Event::AllowanceSet(_) => {
                self.touched.clusters.extend(self.state.clusters.keys());
            }
            Event::WorkspaceCreated(e) => self.workspace(e.id),
            Event::WorkspaceUpdated(e) => self.workspace(e.id),
            Event::WorkspaceDeleteRequested(e) => self.workspace(e.id),
            Event::WorkspaceDeleted(e) => self.workspace(e.id),
            Event::ClusterCreated(e) => {
                // Whether there is low priority at all says what dedicated work is told that waits for room.
                self.touched.clusters.extend(self.state.waiting_for_room.iter());
                self.cluster(e.id);
            }
            Event::ClusterUpdated(e) => {
                self.claim_changes(e.id);
                self.cluster(e.id);
            }
            Event::ClusterDeleteRequested(e) => {
                self.claim_changes(e.id);
                self.cluster(e.id);
            }
            Event::ClusterDeleted(e) => {
                self.touched.clusters.extend(self.state.waiting_for_room.iter());
                if let Some(cluster) = self.state.clusters.get(&e.id) {
                    self.touched.workspaces.insert(cluster.workspace);
                }
                self.cluster(e.id);
            }
            Event::ClusterTarget(e) => {
                let wants = |cuts: &[Cut]| cuts.iter().any(|cut| matches!(cut, Cut::RoomWanted { .. }));
                let wanted = self.state.clusters.get(&e.id).is_some_and(|cluster| cluster.wants_room());
                // Dedicated work has its room now, or waits for it: low priority looks whether there is any for it.
                if wanted != wants(&e.cuts) {
                    self.touched.clusters.extend(self.state.promising.iter());
                    self.touched.clusters.extend(self.state.waiting_for_room.iter());
                }
                self.cluster(e.id);
            }
            Event::ClusterScheduled(e) => self.cluster(e.id),
            Event::WindowPut(e) => self.cluster(e.cluster),
            Event::WindowFilled(e) => self.cluster(e.cluster),
            Event::WindowDeleted(e) => self.cluster(e.cluster),
            Event::NodeRequested(e) => {
                self.touched.nodes.insert(e.id);
                self.cluster(e.cluster);
                self.touched.clusters.extend(self.state.promising.iter());
                // What it takes of a quota or of its location may bind somebody else who waits.
                if self.room_is_claimed()
                    || !self.state.quotas.is_empty()
                    || !self.state.budgets.is_empty()
                    || self.state.settings.has_places_with_limits()
                {
                    self.touched.clusters.extend(self.state.waiting_for_room.iter());
                }
            }
            Event::NodeCreating(e) => self.node(e.id),
            Event::NodePreparing(e) => self.node(e.id),
            Event::NodeReady(e) => self.node(e.id),
            Event::NodeSilent(e) => self.node(e.id),
            Event::NodeHeard(e) => self.node(e.id),
            Event::NodeLeaving(e) => self.node_goes(e.id),
            Event::NodeUnusable(e) => self.node_goes(e.id),
            Event::NodePreempted(e) => self.node_goes(e.id),
            Event::NodeCordoned(e) => self.node(e.id),
            Event::NodeUncordoned(e) => self.node(e.id),
            Event::NodeGone(e) => {
                self.node(e.id);
                self.touched.clusters.extend(self.state.promising.iter());
                // Room came free: whoever waits for it looks again.
                if !planted::is(Bug::RoomNotReturned) {
                    self.touched.clusters.extend(self.state.waiting_for_room.iter());
                }
            }
            Event::JobSubmitted(e) => {
                self.touched.jobs.insert(e.id);
                self.cluster(e.cluster);
            }
            Event::FamilyOpened(e) => {
                self.touched.jobs.insert(e.id);
                self.touched.families.insert(e.id);
            }
            Event::FamilyClosing(e) => {
                self.touched.families.insert(e.id);
            }
            Event::JobReleased(e) => self.job(e.id),
            Event::JobPlaced(e) => {
                self.node(e.node);
                for other in &e.others {
                    self.node(*other);
                }
                self.job(e.id);
                self.one_more_runs();
            }
            Event::RankReported(e) => self.job(e.id),
            Event::RankEnded(e) => {
                self.node(e.node);
                self.job(e.id);
            }
            Event::AttemptStarted(e) => self.job(e.id),
            Event::AttemptMeasured(e) => self.job(e.id),
            Event::AttemptFinalizing(e) => self.job(e.id),
            Event::AttemptStopRequested(e) => self.job(e.id),
            Event::JobRequeued(e) => {
                self.job(e.id);
                self.allowed_again();
            }
            Event::JobCancelRequested(e) => self.job(e.id),
            Event::JobEnded(e) => {
                self.job(e.id);
                self.allowed_again();
                if !planted::is(Bug::FamilyNeverCloses) {
                    self.touched.families.extend(self.state.family_of(e.id));
                }
                self.touched.workspaces.extend(self.state.families.get(&e.id).map(|f| f.workspace));
                for waiter in self.state.awaited.get(&e.id).into_iter().flatten() {
                    // The family that the waiter is in, and the waiter itself if it is one.
                    let is_family = self.state.families.contains_key(waiter);
                    self.touched.families.extend(is_family.then_some(*waiter));
                    self.touched.families.extend(self.state.waits.get(waiter).map(|wait| wait.family));
                }
            }
        }
    }

    /// Somebody has one running more: who waits beneath the same limit may ask for less, on whichever cluster.
    fn one_more_runs(&mut self) {
        if !self.state.allowances.is_empty() {
            self.touch_waiting();
        }
    }

    fn touch_waiting(&mut self) {
        let waiting = self.state.clusters.values().filter(|cluster| !cluster.queue.is_empty());
        self.touched.clusters.extend(waiting.map(|cluster| cluster.id));
    }

    /// There is less that could be taken back, where somebody waits for that.
    fn node_goes(&mut self, id: NodeId) {
        self.node(id);
        if self.room_is_claimed() {
            self.touched.clusters.extend(self.state.promising.iter());
            self.touched.clusters.extend(self.state.waiting_for_room.iter());
        }
    }

    /// What dedicated work waits for may be another size now: whoever lets it go first looks again.
    fn claim_changes(&mut self, id: ClusterId) {
        if self.state.clusters.get(&id).is_some_and(|cluster| cluster.wants_room()) {
            self.touched.clusters.extend(self.state.promising.iter());
            self.touched.clusters.extend(self.state.waiting_for_room.iter());
        }
    }

    fn room_is_claimed(&self) -> bool {
        let waiting = self.state.waiting_for_room.iter();
        waiting.filter_map(|id| self.state.clusters.get(id)).any(|cluster| cluster.wants_room())
    }

    /// Somebody has one running less: whoever waits for that looks again.
    fn allowed_again(&mut self) {
        if !self.state.allowances.is_empty() || !self.state.budgets.is_empty() {
            self.touched.clusters.extend(self.state.promising.iter());
            self.touched.clusters.extend(self.state.waiting_for_room.iter());
        }
    }

    fn workspace(&mut self, id: WorkspaceId) {
        self.touched.workspaces.insert(id);
    }

    fn cluster(&mut self, id: ClusterId) {
        self.touched.clusters.insert(id);
    }

    fn node(&mut self, id: NodeId) {
        self.touched.nodes.insert(id);
        if let Some(node) = self.state.nodes.get(&id) {
            self.touched.clusters.insert(node.cluster);
        }
    }

    fn job(&mut self, id: JobId) {
        self.touched.jobs.insert(id);
        if let Some(job) = self.state.jobs.get(&id) {
            self.touched.clusters.insert(job.cluster);
            if let Some(attempt) = job.attempt() {
                self.touched.nodes.extend(attempt.nodes_held());
            }
        }
        if self.state.families.contains_key(&id) {
            self.touched.families.insert(id);
        }
    }
}
