//! What somebody asks for. A command carries what was asked and the documents' hashes; never a decision.

use std::sync::Arc;

use crate::allowance::{Allowance, AllowanceKey};
use crate::budget::{AtCap, BudgetScope, Every, Label};
use crate::family::FamilyKind;
use crate::history::Like;
use crate::ids::{AttemptId, BudgetId, ClusterId, DocHash, JobId, NodeId, ScheduleId, WorkspaceId};
use crate::job::{AttemptFacts, Exit, Need, Outcome, Retry};
use crate::lock::{LockLevel, LockScope};
use crate::mix::TierChoice;
use crate::problem::Problem;
use crate::quota::QuotaKey;
use crate::settings::Settings;
use crate::state::GroupKey;
use crate::units::{Capacity, MicroUsd, Millis};
use crate::window::Span;

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// First of every life of a server.
    Start {
        release: Arc<str>,
        settings: Settings,
    },
    /// Place nothing more; stop what still runs at the deadline.
    Drain {
        deadline: Millis,
    },

    PutGroup {
        subscription: Arc<str>,
        name: Arc<str>,
        location: Arc<str>,
        document: DocHash,
    },
    DeleteGroup {
        subscription: Arc<str>,
        name: Arc<str>,
    },
    PutWorkspace(PutWorkspace),
    DeleteWorkspace {
        workspace: WorkspaceId,
    },
    /// So much is in a workspace's storage.
    MeasureStorage {
        workspace: WorkspaceId,
        bytes: u64,
    },
    PutAsset {
        workspace: WorkspaceId,
        kind: Arc<str>,
        name: Arc<str>,
        version: Arc<str>,
        document: DocHash,
        content: Option<Arc<str>>,
    },
    DeleteAsset {
        workspace: WorkspaceId,
        kind: Arc<str>,
        name: Arc<str>,
        version: Arc<str>,
    },
    /// What a document says is wiped; its hash stays in the chain.
    EraseDocument {
        document: DocHash,
    },

    PutCluster(PutCluster),
    /// A new definition that may differ also in what Azure keeps for ever: nodes are then replaced.
    RemakeCluster(RemakeCluster),
    DeleteCluster {
        cluster: ClusterId,
        reason: Arc<str>,
    },

    SubmitJob(SubmitJob),
    SubmitFamily(SubmitFamily),
    /// Whoever drives this family is done with it.
    CloseFamily {
        family: JobId,
        outcome: Outcome,
    },
    UpdateJob {
        job: JobId,
        meta: DocHash,
        archived: bool,
    },
    CancelJob {
        job: JobId,
        reason: Arc<str>,
    },
    /// `ended`: the caller has seen in the tables that the job is final.
    DeleteJob {
        job: JobId,
    },

    PutWindow(PutWindow),
    FillWindow(FillWindow),
    DeleteWindow {
        cluster: ClusterId,
        name: Arc<str>,
    },

    PutSchedule(PutSchedule),
    /// What became of a schedule's time, or of somebody's wish.
    RecordFiring(RecordFiring),
    DeleteSchedule {
        schedule: ScheduleId,
    },

    /// No `limit`: as much as there is.
    SetQuota {
        key: QuotaKey,
        limit: Option<u64>,
        by: Arc<str>,
    },
    RequestQuota(RequestQuota),
    AnswerQuota {
        request: u64,
        approved: bool,
        by: Arc<str>,
        reason: Arc<str>,
    },
    /// How much somebody may have running; no `allowance`: as much as there is.
    SetAllowance {
        key: AllowanceKey,
        allowance: Option<Allowance>,
        by: Arc<str>,
    },
    PutLock(PutLock),
    DeleteLock {
        scope: LockScope,
        name: Arc<str>,
    },

    /// A node is taken back: the one named, else the one with the most to lose. Its attempts have `grace_ms` to save
    /// what they have.
    Evict {
        cluster: ClusterId,
        node: Option<NodeId>,
        grace_ms: u64,
        reason: Arc<str>,
    },
    /// Nothing new on this node. `leave`: it goes once its attempts have ended.
    Cordon {
        node: NodeId,
        leave: bool,
        reason: Arc<str>,
    },
    Uncordon {
        node: NodeId,
    },

    PutBudget(PutBudget),
    DeleteBudget {
        budget: BudgetId,
    },

    /// From a provider or an agent.
    Report(Report),
    /// The last news of an attempt, and what its outputs become if that completes the job: both or neither are so.
    ReportOutputs {
        report: Report,
        assets: Vec<NewAsset>,
    },
}

/// Somebody wants another limit.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestQuota {
    pub key: QuotaKey,
    pub limit: u64,
    pub by: Arc<str>,
    pub reason: Arc<str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PutLock {
    pub scope: LockScope,
    pub name: Arc<str>,
    pub level: LockLevel,
    pub notes: Arc<str>,
    pub by: Arc<str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PutBudget {
    pub name: Arc<str>,
    /// Needed where there is none of this name yet.
    pub scope: Option<BudgetScope>,
    pub amount: Option<MicroUsd>,
    pub every: Option<Every>,
    pub at_cap: Option<AtCap>,
    pub thresholds: Option<Vec<u32>>,
    pub by: Arc<str>,
    /// What the face already found wrong while reading.
    pub problems: Vec<Problem>,
}

/// An asset version to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAsset {
    pub workspace: WorkspaceId,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub version: Arc<str>,
    pub document: DocHash,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PutWorkspace {
    pub subscription: Arc<str>,
    pub group: Arc<str>,
    pub name: Arc<str>,
    /// Required at creation.
    pub location: Option<Arc<str>>,
    pub document: DocHash,
    /// What the face already found wrong while reading.
    pub problems: Vec<Problem>,
}

/// A wanted definition. `None` means "as it is, or the default".
#[derive(Clone, Debug, PartialEq)]
pub struct PutCluster {
    pub workspace: WorkspaceId,
    pub name: Arc<str>,
    pub location: Option<Arc<str>>,
    pub size: Option<Arc<str>>,
    pub tier: Option<Arc<str>>,
    /// The resource group of its network, where it names one.
    pub network: Option<GroupKey>,
    pub min: Option<i64>,
    pub max: Option<i64>,
    pub idle_ms: Option<i64>,
    /// How many of the nodes of a low-priority cluster are dedicated.
    pub dedicated: Option<i64>,
    pub document: DocHash,
    /// Why, as the caller puts it: a ticket, a sentence.
    pub reference: Option<Arc<str>>,
    /// What the face already found wrong while reading, or sees changed that may not change.
    pub problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RemakeCluster {
    pub put: PutCluster,
    /// Another name for SSH and network, where they change.
    pub make: Option<Arc<str>>,
}

/// A window on a cluster's scale.
#[derive(Clone, Debug, PartialEq)]
pub struct PutWindow {
    pub cluster: ClusterId,
    pub name: Arc<str>,
    pub enabled: bool,
    pub min: Option<i64>,
    pub max: Option<i64>,
    /// What runs beyond the maximum is stopped.
    pub stops: bool,
    pub zone: Arc<str>,
    /// When it is open, by the calendar.
    pub spans: Vec<Span>,
    pub refill_at: Option<Millis>,
    pub document: DocHash,
    pub by: Arc<str>,
    /// What the face already found wrong while reading.
    pub problems: Vec<Problem>,
}

/// Further spans of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct FillWindow {
    pub cluster: ClusterId,
    pub name: Arc<str>,
    /// The definition that they were worked out of.
    pub document: DocHash,
    pub spans: Vec<Span>,
    pub refill_at: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SubmitJob {
    pub workspace: WorkspaceId,
    pub name: Arc<str>,
    /// As the caller named it, to be found in this workspace.
    pub cluster: Arc<str>,
    pub owner: Arc<str>,
    pub priority: u8,
    pub need: Need,
    /// On how many nodes it runs at once.
    pub nodes: u32,
    pub timeout_ms: Option<u64>,
    pub retry: Option<Arc<Retry>>,
    pub tier: TierChoice,
    /// The driven family that it becomes a member of.
    pub family: Option<JobId>,
    /// What it does, for finding others like it.
    pub like: Option<Like>,
    /// Its tags, as budgets know them.
    pub tags: Vec<Label>,
    pub document: DocHash,
    pub meta: DocHash,
    pub problems: Vec<Problem>,
}

/// A whole family at once: all of it or nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmitFamily {
    pub workspace: WorkspaceId,
    pub owner: Arc<str>,
    /// The first is the family itself; every other comes after its family and after what it waits for.
    pub members: Vec<NewMember>,
    pub problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewMember {
    pub name: Arc<str>,
    /// Where in the list its family is.
    pub family: usize,
    /// Where in the list those are that must complete first.
    pub after: Vec<usize>,
    pub what: NewMemberKind,
    /// Its own tags, as budgets know them.
    pub tags: Vec<Label>,
    pub document: DocHash,
    pub meta: DocHash,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NewMemberKind {
    Family {
        kind: FamilyKind,
        timeout_ms: Option<u64>,
    },
    Job {
        cluster: Arc<str>,
        priority: u8,
        need: Need,
        nodes: u32,
        timeout_ms: Option<u64>,
        retry: Option<Arc<Retry>>,
        like: Option<Like>,
        tier: TierChoice,
        /// Names its work: the same code, environment, command and inputs have the same name.
        work: Option<Arc<str>>,
        /// An earlier job did the same work: this one is complete at once.
        reused: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct PutSchedule {
    pub workspace: WorkspaceId,
    pub name: Arc<str>,
    pub owner: Arc<str>,
    pub enabled: bool,
    /// When it fires next, by the calendar.
    pub next: Option<Millis>,
    pub document: DocHash,
    /// What the face already found wrong while reading.
    pub problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RecordFiring {
    pub schedule: ScheduleId,
    /// The time that it was for.
    pub at: Millis,
    /// Somebody asked for it.
    pub forced: bool,
    /// The definition that was fired and that `next` was worked out of.
    pub document: DocHash,
    pub job: Option<Arc<str>>,
    pub problem: Option<Arc<str>>,
    pub next: Option<Millis>,
}

/// News of what became of an effect, or of the world by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The provider has made the node, or is about to; its agent is on its way.
    NodeCreating {
        node: NodeId,
    },
    /// The node's agent has joined. On record before it gets its certificate, so that a node joins once.
    NodePreparing {
        node: NodeId,
    },
    /// The provider cannot make it.
    NodeFailed {
        node: NodeId,
        reason: Arc<str>,
    },
    /// The agent is in and ready for work.
    NodeReady {
        node: NodeId,
        actual: Capacity,
        isolation: Arc<str>,
    },
    NodeSilent {
        node: NodeId,
    },
    NodeHeard {
        node: NodeId,
    },
    /// It is certain that nothing of the node runs any more: process exit, fence, removal, or lease ended.
    NodeGone {
        node: NodeId,
        reason: Arc<str>,
    },
    Attempt {
        node: NodeId,
        attempt: AttemptId,
        number: u64,
        news: AttemptNews,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttemptNews {
    Started {
        facts: AttemptFacts,
    },
    /// What it used, as far as the log keeps that.
    Measured {
        facts: AttemptFacts,
    },
    Finalizing,
    Ended {
        exit: Exit,
    },
}
