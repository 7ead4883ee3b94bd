//! Everything that can have happened. Events carry outcomes, never inputs to a later computation.
//!
//! A released kind and version is never changed: a new meaning is a new version, and the old one is lifted by an
//! upcaster in the ledger.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::allowance::{Allowance, AllowanceKey};
use crate::budget::{AtCap, BudgetScope, Every, Label, Lease};
use crate::cluster::{Cut, Scale, Shape};
use crate::family::FamilyKind;
use crate::history::Like;
use crate::ids::{BudgetId, ClusterId, DocHash, JobId, NodeId, ScheduleId, WorkspaceId};
use crate::job::{AttemptFacts, Cause, Exit, Need, Outcome, Phase, Retry, StopReason};
use crate::lock::{LockLevel, LockScope};
use crate::mix::{Floor, TierChoice};
use crate::quota::QuotaKey;
use crate::settings::Settings;
use crate::state::GroupKey;
use crate::units::{Capacity, MicroUsd, Millis};
use crate::window::Span;

#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("event kind '{kind}' version {version} is unknown to this release")]
    Unknown { kind: String, version: u16 },
    #[error("the body of a '{kind}' event cannot be read: {source}")]
    Body { kind: String, source: serde_json::Error },
}

macro_rules! events {
    ($($(#[$doc:meta])* $kind:literal v $version:literal $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl From<$name> for Event {
            fn from(event: $name) -> Self { Self::$name(event) }
        })*

        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Event { $($name($name),)* }

        impl Event {
            pub const KINDS: &[(&'static str, u16)] = &[$(($kind, $version),)*];

            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$name(_) => $kind,)* }
            }

            pub const fn version(&self) -> u16 {
                match self { $(Self::$name(_) => $version,)* }
            }

            /// The body as JSON.
            pub fn encode(&self) -> Vec<u8> {
                match self {
                    $(Self::$name(body) => serde_json::to_vec(body),)*
                }
                .unwrap_or_else(|e| unreachable!("events always serialise: {e}"))
            }

            pub fn decode(kind: &str, version: u16, body: &[u8]) -> Result<Self, DecodeError> {
                match (kind, version) {
                    $(($kind, $version) => serde_json::from_slice(body).map(Self::$name),)*
                    _ => return Err(DecodeError::Unknown { kind: kind.into(), version }),
                }
                .map_err(|source| DecodeError::Body { kind: kind.into(), source })
            }
        }
    };
}

/// What nodes of a cluster are from a revision on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remade {
    pub shape: Shape,
    pub make: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<GroupKey>,
}

const fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_one(count: &u32) -> bool {
    *count == 1
}

events! {
    /// The control plane began to serve, with this configuration. Ends a draining.
    "server.started" v 1 ServerStarted { release: Arc<str>, settings: Settings, }
    /// Nothing new is placed; at the deadline running attempts are stopped and go back to the queue.
    "server.draining" v 1 ServerDraining { deadline: Millis, }

    "group.put" v 1 GroupPut { subscription: Arc<str>, name: Arc<str>, location: Arc<str>, document: DocHash, }
    "group.deleted" v 1 GroupDeleted { subscription: Arc<str>, name: Arc<str>, }

    "workspace.created" v 1 WorkspaceCreated {
        id: WorkspaceId,
        subscription: Arc<str>,
        group: Arc<str>,
        name: Arc<str>,
        location: Arc<str>,
        document: DocHash,
    }
    "workspace.updated" v 1 WorkspaceUpdated { id: WorkspaceId, document: DocHash, }
    /// Its clusters go first.
    "workspace.delete_requested" v 1 WorkspaceDeleteRequested { id: WorkspaceId, }
    "workspace.deleted" v 1 WorkspaceDeleted { id: WorkspaceId, }

    /// What a workspace's storage held when it was looked at; it counts until the next look.
    "storage.measured" v 1 StorageMeasured { workspace: WorkspaceId, bytes: u64, }

    /// A code, environment, data, datastore… version. It decides nothing here; the tables list it.
    "asset.put" v 1 AssetPut {
        workspace: WorkspaceId,
        kind: Arc<str>,
        name: Arc<str>,
        version: Arc<str>,
        document: DocHash,
        /// What the client calls its content hash, for looking a snapshot up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Arc<str>>,
    }
    "asset.deleted" v 1 AssetDeleted { workspace: WorkspaceId, kind: Arc<str>, name: Arc<str>, version: Arc<str>, }

    "cluster.created" v 2 ClusterCreated {
        id: ClusterId,
        workspace: WorkspaceId,
        name: Arc<str>,
        location: Arc<str>,
        shape: Shape,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<GroupKey>,
        scale: Scale,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        floor: Option<Floor>,
        document: DocHash,
        /// Why, as whoever did it put it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reference: Option<Arc<str>>,
    }
    "cluster.updated" v 1 ClusterUpdated {
        id: ClusterId,
        revision: u32,
        scale: Scale,
        /// Absent: as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        floor: Option<Floor>,
        document: DocHash,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reference: Option<Arc<str>>,
        /// Its nodes are others from here on: those that are there are replaced one by one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remade: Option<Remade>,
    }
    /// What windows make of a cluster's minimum and maximum from now on; `next` is when to look again.
    "cluster.scheduled" v 1 ClusterScheduled {
        id: ClusterId,
        min: u32,
        max: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_by: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_by: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Millis>,
    }
    /// A window on a cluster's scale, with when it is open: the calendar's answer.
    "window.put" v 1 WindowPut {
        cluster: ClusterId,
        name: Arc<str>,
        enabled: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<u32>,
        #[serde(default)]
        stops: bool,
        zone: Arc<str>,
        spans: Vec<Span>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refill_at: Option<Millis>,
        document: DocHash,
        by: Arc<str>,
    }
    "window.filled" v 1 WindowFilled {
        cluster: ClusterId,
        name: Arc<str>,
        spans: Vec<Span>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refill_at: Option<Millis>,
    }
    "window.deleted" v 1 WindowDeleted { cluster: ClusterId, name: Arc<str>, }
    "cluster.delete_requested" v 1 ClusterDeleteRequested { id: ClusterId, reason: Arc<str>, }
    "cluster.deleted" v 1 ClusterDeleted { id: ClusterId, }
    /// How many nodes there should be, and what kept it from being more.
    "cluster.target" v 1 ClusterTarget { id: ClusterId, target: u32, demand: u32, cuts: Vec<Cut>, }

    "node.requested" v 1 NodeRequested {
        id: NodeId,
        cluster: ClusterId,
        nominal: Capacity,
        /// Where it is another than the cluster's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<Shape>,
        /// The job that waits for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<JobId>,
        deadline: Millis,
        reason: Arc<str>,
        /// Its money, where a budget pays for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Lease>,
    }
    "node.creating" v 1 NodeCreating { id: NodeId, deadline: Millis, }
    "node.preparing" v 1 NodePreparing { id: NodeId, deadline: Millis, }
    "node.ready" v 1 NodeReady { id: NodeId, actual: Capacity, isolation: Arc<str>, }
    "node.silent" v 1 NodeSilent { id: NodeId, }
    "node.heard" v 1 NodeHeard { id: NodeId, }
    "node.leaving" v 1 NodeLeaving { id: NodeId, deadline: Millis, reason: Arc<str>, }
    /// `retry_at` is when the cluster may ask for another.
    "node.unusable" v 1 NodeUnusable { id: NodeId, deadline: Millis, reason: Arc<str>, retry_at: Option<Millis>, }
    /// It is taken back; at the deadline it is removed, whatever is on it.
    "node.preempted" v 1 NodePreempted { id: NodeId, deadline: Millis, reason: Arc<str>, }
    /// Nothing new is placed on it. `leave`: it goes once its attempts have ended.
    "node.cordoned" v 1 NodeCordoned { id: NodeId, leave: bool, reason: Arc<str>, }
    "node.uncordoned" v 1 NodeUncordoned { id: NodeId, }
    "node.gone" v 1 NodeGone { id: NodeId, reason: Arc<str>, }

    "job.submitted" v 1 JobSubmitted {
        id: JobId,
        workspace: WorkspaceId,
        cluster: ClusterId,
        name: Arc<str>,
        owner: Arc<str>,
        priority: u8,
        need: Need,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// How often it is tried again, where it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<Arc<Retry>>,
        /// Which nodes it takes, where a cluster has both tiers.
        #[serde(default, skip_serializing_if = "TierChoice::is_open")]
        tier: TierChoice,
        /// On how many nodes it runs at once.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        nodes: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        family: Option<JobId>,
        /// What must complete before it may start.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<JobId>,
        /// Its tags, as budgets know them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<Label>,
        /// What it does, for finding others like it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        like: Option<Like>,
        /// What names its work: a later step with the same may take its outputs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        work: Option<Arc<str>>,
        document: DocHash,
        /// The part that may change: display name, tags, description, properties.
        meta: DocHash,
    }
    /// A pipeline, a sweep, a parallel job: a job made of jobs, in the same sequence of ids and names. It ends with
    /// `job.ended`.
    "family.opened" v 1 FamilyOpened {
        id: JobId,
        workspace: WorkspaceId,
        name: Arc<str>,
        owner: Arc<str>,
        kind: FamilyKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        family: Option<JobId>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<JobId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// When its time is up; absent while it waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Millis>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<Label>,
        document: DocHash,
        meta: DocHash,
    }
    /// A driven family takes no more members, and ends as this when the last is done.
    "family.closing" v 1 FamilyClosing { id: JobId, outcome: Outcome, }
    /// Everything that a job or family waited for has completed.
    "job.released" v 1 JobReleased {
        id: JobId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Millis>,
    }
    "job.updated" v 1 JobUpdated { id: JobId, meta: DocHash, archived: bool, }
    /// `others` are the nodes of the ranks from 1 on, for a job on several.
    "job.placed" v 1 JobPlaced {
        id: JobId,
        attempt: u32,
        node: NodeId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<NodeId>,
        /// It goes before somebody who was promised its room for then: here it is stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Millis>,
    }
    "attempt.started" v 1 AttemptStarted {
        id: JobId,
        attempt: u32,
        report: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_deadline: Option<Millis>,
        #[serde(default, skip_serializing_if = "AttemptFacts::is_empty")]
        facts: AttemptFacts,
    }
    /// News of one rank; the attempt as a whole starts with its last rank.
    "rank.reported" v 1 RankReported { id: JobId, attempt: u32, rank: u32, report: u64, phase: Phase, }
    /// The rank's node is free of it. No `exit`: the node was lost.
    "rank.ended" v 1 RankEnded {
        id: JobId,
        attempt: u32,
        rank: u32,
        node: NodeId,
        report: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<Exit>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    }
    /// What an attempt used of its GPUs, once it is over; of one rank, where there are several.
    "attempt.measured" v 1 AttemptMeasured {
        id: JobId,
        attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
        report: u64,
        facts: AttemptFacts,
    }
    "attempt.finalizing" v 1 AttemptFinalizing { id: JobId, attempt: u32, report: u64, }
    "attempt.stop_requested" v 1 AttemptStopRequested {
        id: JobId,
        attempt: u32,
        why: StopReason,
        deadline: Millis,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Arc<str>>,
    }
    /// The job goes back to its place in the queue. `cause` says which of its tries that costs.
    "job.requeued" v 2 JobRequeued { id: JobId, attempt: u32, reason: Arc<str>, cause: Cause, }
    "job.cancel_requested" v 1 JobCancelRequested { id: JobId, reason: Arc<str>, }
    /// `exit` is how the accepted attempt ended; absent when none was.
    "job.ended" v 1 JobEnded {
        id: JobId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<Exit>,
        outcome: Outcome,
    }
    "job.deleted" v 1 JobDeleted { id: JobId, }
    /// `next` is the calendar's answer for this definition.
    "schedule.put" v 1 SchedulePut {
        id: ScheduleId,
        workspace: WorkspaceId,
        name: Arc<str>,
        owner: Arc<str>,
        enabled: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Millis>,
        document: DocHash,
    }
    /// Its time has come. It stays due until what became of it is on record.
    "schedule.due" v 1 ScheduleDue { id: ScheduleId, at: Millis, }
    /// The job for this time was submitted, or the problem says why not.
    "schedule.triggered" v 1 ScheduleTriggered {
        id: ScheduleId,
        at: Millis,
        /// Somebody asked for it: what is due, and when it fires next, stay.
        forced: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Millis>,
    }
    "schedule.deleted" v 1 ScheduleDeleted { id: ScheduleId, }
    /// How much may be held. No `limit`: as much as there is.
    "quota.set" v 1 QuotaSet {
        key: QuotaKey,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
        by: Arc<str>,
    }
    "quota.requested" v 1 QuotaRequested { id: u64, key: QuotaKey, limit: u64, by: Arc<str>, reason: Arc<str>, }
    "quota.answered" v 1 QuotaAnswered { id: u64, approved: bool, by: Arc<str>, reason: Arc<str>, }
    /// How much somebody may have running. No `allowance`: as much as there is.
    "allowance.set" v 1 AllowanceSet {
        key: AllowanceKey,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        allowance: Option<Allowance>,
        by: Arc<str>,
    }
    "lock.put" v 1 LockPut { scope: LockScope, name: Arc<str>, level: LockLevel, notes: Arc<str>, by: Arc<str>, }
    "lock.deleted" v 1 LockDeleted { scope: LockScope, name: Arc<str>, }
    /// How much may be spent. Of one that is there only the amount, what happens at it, and whom to tell change.
    "budget.put" v 1 BudgetPut {
        id: BudgetId,
        name: Arc<str>,
        scope: BudgetScope,
        amount: MicroUsd,
        every: Every,
        at_cap: AtCap,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        thresholds: Vec<u32>,
        by: Arc<str>,
        /// When its period ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period_ends: Option<Millis>,
    }
    /// There is new money.
    "budget.renewed" v 1 BudgetRenewed {
        id: BudgetId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period_ends: Option<Millis>,
    }
    "budget.deleted" v 1 BudgetDeleted { id: BudgetId, }
    /// What a node costs up to then is reserved.
    "money.leased" v 1 MoneyLeased { node: NodeId, lease: Lease, }
    /// What a node has cost up to here is on the books, by what was true until now; it goes on with what it does.
    "node.metered" v 1 NodeMetered { id: NodeId, }
    /// A document's body was erased; its hash stays in the chain.
    "document.erased" v 1 DocumentErased { document: DocHash, }
}
