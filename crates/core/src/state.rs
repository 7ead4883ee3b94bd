//! The whole of what decides, as one persistent value: a clone is O(1), readers hold one and never wait.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::allowance::{Allowance, AllowanceKey};
use crate::budget::Budget;
use crate::charge::Kept;
use crate::cluster::Cluster;
use crate::family::{Family, Wait};
use crate::history::History;
use crate::ids::{BudgetId, ClusterId, DocHash, JobId, NameFingerprint, NodeId, ScheduleId, WorkspaceId};
use crate::job::Job;
use crate::location::Given;
use crate::lock::{Lock, LockScope};
use crate::node::Node;
use crate::quota::{QuotaKey, QuotaRequest, Usage};
use crate::schedule::Schedule;
use crate::settings::Settings;
use crate::units::{Capacity, Millis};

/// Raised when the shape of [`State`] changes: older snapshots are then passed over and the log replayed.
pub const STATE_VERSION: u32 = 11;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub settings: Settings,
    /// The time of the last event.
    pub now: Millis,
    /// While the server is being stopped: when patience with running attempts ends.
    pub draining: Option<Millis>,
    pub groups: OrdMap<GroupKey, Arc<Group>>,
    pub workspaces: OrdMap<WorkspaceId, Arc<Workspace>>,
    pub workspace_names: OrdMap<WorkspaceKey, WorkspaceId>,
    pub clusters: OrdMap<ClusterId, Arc<Cluster>>,
    /// (location, lower-case name): unique across workspaces.
    pub cluster_names: OrdMap<(Arc<str>, Arc<str>), ClusterId>,
    /// (workspace, lower-case name).
    pub cluster_index: OrdMap<(WorkspaceId, Arc<str>), ClusterId>,
    pub nodes: OrdMap<NodeId, Arc<Node>>,
    /// Jobs that have not ended.
    pub jobs: OrdMap<JobId, Arc<Job>>,
    /// Pipelines, sweeps and other jobs made of jobs, that have not ended.
    pub families: OrdMap<JobId, Arc<Family>>,
    /// What jobs and families wait for that may not start yet.
    pub waits: OrdMap<JobId, Arc<Wait>>,
    /// The same the other way round: who waits for a job or family. Kept by `apply`.
    pub awaited: OrdMap<JobId, OrdSet<JobId>>,
    /// Every job name ever used, also by finished and deleted jobs.
    pub job_names: OrdMap<(WorkspaceId, NameFingerprint), JobId>,
    pub schedules: OrdMap<ScheduleId, Arc<Schedule>>,
    /// (workspace, lower-case name).
    pub schedule_names: OrdMap<(WorkspaceId, Arc<str>), ScheduleId>,
    /// Those whose time has come, and whose job is not on record yet.
    pub schedules_due: OrdSet<ScheduleId>,
    /// How much may be held. A fresh server has no limits.
    pub quotas: OrdMap<QuotaKey, u64>,
    /// What is held and in use, with and without a limit. Kept by `apply`.
    pub quota_usage: OrdMap<QuotaKey, Usage>,
    pub quota_requests: OrdMap<u64, Arc<QuotaRequest>>,
    /// How much somebody may have running. A fresh server has no limits.
    pub allowances: OrdMap<AllowanceKey, Allowance>,
    /// By what is locked, and the lower-case name.
    pub locks: OrdMap<(LockScope, Arc<str>), Arc<Lock>>,
    pub budgets: OrdMap<BudgetId, Arc<Budget>>,
    /// What workspaces' storage holds, as it was last seen.
    pub kept: OrdMap<WorkspaceId, Kept>,
    /// Everything with a deadline, in the order it comes due.
    pub timers: OrdSet<(Millis, Timer)>,
    /// Clusters whose target was cut by the provider's limits: dirty again when a node goes.
    pub waiting_for_room: OrdSet<ClusterId>,
    /// Clusters that mind how much room there is for nodes: dirty again when there is more or less of it. Kept by `apply`.
    pub promising: OrdSet<ClusterId>,
    /// How long things took. Kept by `apply`; nothing is decided by it.
    pub history: History,
    /// Nominal capacity of all nodes that are not gone.
    pub provided: Capacity,
    /// What they take of each location, by its name. Kept by `apply`.
    pub given: OrdMap<Arc<str>, Given>,
    pub next: NextIds,
}

/// The next id of each kind: never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextIds {
    pub workspace: WorkspaceId,
    pub cluster: ClusterId,
    pub node: NodeId,
    pub job: JobId,
    pub schedule: ScheduleId,
    pub quota_request: u64,
    pub budget: BudgetId,
}

impl Default for NextIds {
    fn default() -> Self {
        Self {
            workspace: WorkspaceId(1),
            cluster: ClusterId(1),
            node: NodeId(1),
            job: JobId(1),
            schedule: ScheduleId(1),
            quota_request: 1,
            budget: BudgetId(1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// A transitional state's deadline, or the end of an idle node's patience.
    Node(NodeId),
    /// A stop's or a run's deadline; the end of a family's time.
    Job(JobId),
    /// When nodes may be tried again.
    Cluster(ClusterId),
    /// When a schedule fires next.
    Schedule(ScheduleId),
    Draining,
    /// When a node's money lease is to be renewed.
    Money(NodeId),
    /// When a budget's period ends.
    Budget(BudgetId),
    /// When a window on a cluster's scale opens or closes.
    Window(ClusterId),
}

impl Timer {
    /// The least of them in order, for ranges.
    pub const FIRST: Self = Self::Node(NodeId(0));
}

/// (subscription, group), lower-case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupKey {
    pub subscription: Arc<str>,
    pub name: Arc<str>,
}

impl GroupKey {
    pub fn new(subscription: &str, name: &str) -> Self {
        Self { subscription: subscription.to_lowercase().into(), name: name.to_lowercase().into() }
    }
}

/// (group, workspace), lower-case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkspaceKey {
    pub group: GroupKey,
    pub name: Arc<str>,
}

impl WorkspaceKey {
    pub fn new(subscription: &str, group: &str, name: &str) -> Self {
        Self { group: GroupKey::new(subscription, group), name: name.to_lowercase().into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub subscription: Arc<str>,
    pub name: Arc<str>,
    pub location: Arc<str>,
    pub document: DocHash,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub subscription: Arc<str>,
    pub group: Arc<str>,
    pub name: Arc<str>,
    pub location: Arc<str>,
    pub document: DocHash,
    pub created: Millis,
    pub modified: Millis,
    pub deleting: bool,
}

impl State {
    pub fn workspace(&self, subscription: &str, group: &str, name: &str) -> Option<&Arc<Workspace>> {
        let id = self.workspace_names.get(&WorkspaceKey::new(subscription, group, name))?;
        self.workspaces.get(id)
    }

    /// A workspace's cluster by name, without regard to case.
    pub fn cluster(&self, workspace: WorkspaceId, name: &str) -> Option<&Arc<Cluster>> {
        self.clusters.get(self.cluster_index.get(&(workspace, name.to_lowercase().into()))?)
    }

    pub fn clusters_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Arc<Cluster>> {
        self.clusters.values().filter(move |c| c.workspace == workspace)
    }

    /// A budget by name, without regard to case.
    pub fn budget(&self, name: &str) -> Option<&Arc<Budget>> {
        self.budgets.values().find(|budget| budget.name.eq_ignore_ascii_case(name))
    }

    /// A workspace's schedule by name, without regard to case.
    pub fn schedule(&self, workspace: WorkspaceId, name: &str) -> Option<&Arc<Schedule>> {
        self.schedules.get(self.schedule_names.get(&(workspace, name.to_lowercase().into()))?)
    }

    pub fn schedules_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Arc<Schedule>> {
        self.schedules.values().filter(move |schedule| schedule.workspace == workspace)
    }

    pub fn job_named(&self, workspace: WorkspaceId, name: &str) -> Option<JobId> {
        self.job_names.get(&(workspace, NameFingerprint::of(name))).copied()
    }

    /// The family that a job or family is part of.
    pub fn family_of(&self, id: JobId) -> Option<JobId> {
        match self.jobs.get(&id) {
            Some(job) => job.family,
            None => self.families.get(&id)?.family,
        }
    }

    /// Whether a job or family of this id has not ended.
    pub fn is_alive(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id) || self.families.contains_key(&id)
    }

    pub fn nodes_of<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Arc<Node>> {
        cluster.nodes.iter().filter_map(|id| self.nodes.get(id))
    }

    /// When the next timer comes due.
    pub fn wake_at(&self) -> Option<Millis> {
        self.timers.get_min().map(|(at, _)| *at)
    }
}
