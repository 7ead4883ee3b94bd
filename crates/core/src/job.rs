//! A job and its attempts. Only one attempt is ever accepted.
//!
//! `waiting → queued ⇄ active(attempt) → ended`. The state holds only jobs that have not ended; of the others it keeps
//! the fingerprint of the name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::Label;
use crate::cluster::Tier;
use crate::event::RankEnded;
use crate::history::Like;
use crate::ids::{AttemptId, ClusterId, DocHash, JobId, NodeId, WorkspaceId};
use crate::limits;
use crate::mix::TierChoice;
use crate::units::{Capacity, Millis};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub workspace: WorkspaceId,
    pub cluster: ClusterId,
    pub name: Arc<str>,
    pub document: DocHash,
    pub owner: Arc<str>,
    pub submitted: Millis,
    pub priority: u8,
    pub need: Need,
    /// How many nodes it runs on, all at once.
    pub nodes: u32,
    /// The pipeline, sweep or other family that it is part of.
    pub family: Option<JobId>,
    /// What it does, for finding others like it.
    pub like: Option<Like>,
    /// Its tags as it was submitted with them, and those of its families.
    pub tags: Vec<Label>,
    pub timeout_ms: Option<u64>,
    /// What it asks for when an attempt does not succeed; without, the defaults.
    pub retry: Option<Arc<Retry>>,
    pub tier: TierChoice,
    pub attempts_made: u32,
    /// Attempts that ended through no fault of the job.
    pub attempts_lost: u32,
    pub attempts_preempted: u32,
    pub attempts_unprepared: u32,
    /// Attempts that ended with an exit that is worth another try.
    pub attempts_failed: u32,
    pub state: JobState,
    /// Set once somebody wants it to end.
    pub cancel: Option<Cancel>,
}

impl Job {
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.state {
            JobState::Waiting | JobState::Queued { .. } => None,
            JobState::Active(attempt) => Some(attempt),
        }
    }

    pub fn attempt_id(&self) -> Option<AttemptId> {
        self.attempt().map(|a| AttemptId { job: self.id, number: a.number })
    }

    /// The tier that its nodes must be of now, if any.
    pub fn tier(&self) -> Option<Tier> {
        if self.fell_back() { Some(Tier::Dedicated) } else { self.tier.only }
    }

    /// Its nodes were taken back as often as it bears: it takes dedicated ones only.
    pub fn fell_back(&self) -> bool {
        self.tier.dedicated_after.is_some_and(|most| self.attempts_preempted >= most)
    }

    /// How often it may be tried again for this cause; `None` is as often as it happens.
    pub fn retries(&self, cause: Cause) -> Option<u32> {
        let asked = self.retry.as_deref();
        match cause {
            Cause::NodeLost => {
                Some(asked.and_then(|retry| retry.node_lost).unwrap_or(limits::ATTEMPTS_LOST_MAX - 1))
            }
            // No fault of the job's: as often as it happens, unless the job says otherwise.
            Cause::Preempted => asked.and_then(|retry| retry.preempted),
            Cause::Unprepared => Some(limits::ATTEMPTS_UNPREPARED_MAX - 1),
            Cause::ExitCode => Some(asked.map_or(0, |retry| retry.max)),
            Cause::ServerStopped | Cause::Budget => None,
        }
    }

    /// How often it was tried again for this cause.
    pub fn retried(&self, cause: Cause) -> u32 {
        match cause {
            Cause::NodeLost => self.attempts_lost,
            Cause::Preempted => self.attempts_preempted,
            Cause::Unprepared => self.attempts_unprepared,
            Cause::ExitCode => self.attempts_failed,
            Cause::ServerStopped | Cause::Budget => 0,
        }
    }

    pub fn status(&self) -> Status {
        match (&self.cancel, &self.state) {
            (Some(_), _) => Status::CancelRequested,
            (None, JobState::Waiting) => Status::NotStarted,
            (None, JobState::Queued { .. }) => Status::Queued,
            (None, JobState::Active(attempt)) => match attempt.phase {
                Phase::Assigned => Status::Preparing,
                Phase::Running => Status::Running,
                Phase::Finalizing => Status::Finalizing,
            },
        }
    }
}

/// Why an attempt did not count, and the job goes back to its place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its node went, or lost contact with the server.
    NodeLost,
    /// Its node was taken away for somebody else.
    Preempted,
    /// The system could not bring its code, data or environment in place.
    Unprepared,
    /// It ended with an exit code that the job asks to be tried again for.
    ExitCode,
    /// The server was being stopped.
    ServerStopped,
    /// A budget had nothing left for its node.
    Budget,
}

impl Cause {
    pub const ALL: [Self; 6] = [
        Self::NodeLost,
        Self::Preempted,
        Self::Unprepared,
        Self::ExitCode,
        Self::ServerStopped,
        Self::Budget,
    ];
}

/// How often a job is tried again, by cause, as its submitter wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Worth another try. A signal counts as 128 and its number, as shells have it.
    #[serde(default)]
    pub exit_codes: Vec<i32>,
    /// How often for one of these.
    #[serde(default)]
    pub max: u32,
    #[serde(default)]
    pub node_lost: Option<u32>,
    #[serde(default)]
    pub preempted: Option<u32>,
}

/// How much of a node a job takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Need {
    Whole,
    Share(Capacity),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// For other members of its family to complete; `State::waits` says which.
    Waiting,
    /// `reason` is set when it came back here: why the last attempt did not count.
    Queued {
        since: Millis,
        reason: Option<Arc<str>>,
    },
    Active(Attempt),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub number: u32,
    pub node: NodeId,
    pub phase: Phase,
    pub since: Millis,
    /// When it was placed.
    pub placed: Millis,
    /// It went before somebody who was promised its room for then: it is stopped here, and goes back.
    pub until: Option<Millis>,
    /// The highest report of this attempt that was taken in.
    pub last_report: u64,
    pub stop: Option<Stop>,
    /// When `limits.timeout` passes, once it runs.
    pub run_deadline: Option<Millis>,
    /// Of an attempt on several nodes, its part on each, the one on `node` first. Empty for an attempt on one.
    pub ranks: Vec<Rank>,
    /// The first rank that did not succeed: it is what the job ends for.
    pub blame: Option<Blame>,
}

/// The part of an attempt that runs on one of its several nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    pub node: NodeId,
    pub phase: Phase,
    pub last_report: u64,
    /// It has ended, and its node is free of it.
    pub over: bool,
}

/// How a rank ended that did not succeed; without an exit, its node was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blame {
    pub rank: u32,
    pub exit: Option<Exit>,
    pub reason: Arc<str>,
}

impl Blame {
    /// What the job ends for once this rank has ended too: the first that did not succeed. A node that was lost outweighs
    /// an exit, since the others fail when one of them is suddenly gone, and may be heard of sooner.
    pub(crate) fn after(before: Option<Self>, ended: &RankEnded) -> Option<Self> {
        if ended.exit == Some(Exit::Success) {
            return before;
        }
        match before {
            Some(before) if before.exit.is_none() || ended.exit.is_some() => Some(before),
            Some(_) | None => {
                let reason = ended.reason.clone().unwrap_or_default();
                Some(Self { rank: ended.rank, exit: ended.exit.clone(), reason })
            }
        }
    }
}

impl Attempt {
    /// The rank on this node, counted from 0.
    pub fn rank_on(&self, node: NodeId) -> Option<u32> {
        if self.ranks.is_empty() {
            return (self.node == node).then_some(0);
        }
        self.ranks.iter().position(|rank| rank.node == node).and_then(|at| u32::try_from(at).ok())
    }

    /// How far it is on this node; `None` where it has no part, or no longer.
    pub fn phase_on(&self, node: NodeId) -> Option<Phase> {
        if self.ranks.is_empty() {
            return (self.node == node).then_some(self.phase);
        }
        self.ranks.iter().find(|rank| rank.node == node && !rank.over).map(|rank| rank.phase)
    }

    /// The highest report from this node that was taken in.
    pub fn last_report_on(&self, node: NodeId) -> u64 {
        match self.ranks.iter().find(|rank| rank.node == node) {
            Some(rank) => rank.last_report,
            None => self.last_report,
        }
    }

    /// The nodes that still have a part of it.
    pub fn nodes_held(&self) -> impl Iterator<Item = NodeId> {
        let alone = self.ranks.is_empty().then_some(self.node);
        alone.into_iter().chain(self.ranks.iter().filter(|rank| !rank.over).map(|rank| rank.node))
    }

    /// The nodes it was placed on, by rank.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let alone = self.ranks.is_empty().then_some(self.node);
        alone.into_iter().chain(self.ranks.iter().map(|rank| rank.node))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    Assigned,
    Running,
    Finalizing,
}

/// An order to end an attempt, and when patience ends: then its node is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub why: StopReason,
    pub deadline: Millis,
    /// In words, where there is more to say.
    pub reason: Option<Arc<str>>,
}

impl Stop {
    /// Of an attempt whose node is taken back: what is left of its processes' grace.
    pub fn preempt_grace_ms(&self, now: Millis) -> u64 {
        self.deadline.since(now).saturating_sub(limits::PREEMPT_MARGIN_MS) / 2
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    Cancel,
    Timeout,
    /// The server is being stopped: the job goes back to its place in the queue.
    Draining,
    /// Another rank of it did not succeed or was lost: they end together.
    Rank,
    /// Its node is taken back: it may save what it has, and goes back to its place in the queue.
    Preempt,
    /// A budget has nothing left for its node: the job goes back to its place in the queue.
    Budget,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    pub at: Millis,
    pub reason: Arc<str>,
}

/// Azure's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Status {
    NotStarted,
    Queued,
    Provisioning,
    Preparing,
    Running,
    Finalizing,
    CancelRequested,
    Completed,
    Failed,
    Canceled,
}

impl Status {
    pub const ALL: [Self; 10] = [
        Self::NotStarted,
        Self::Queued,
        Self::Provisioning,
        Self::Preparing,
        Self::Running,
        Self::Finalizing,
        Self::CancelRequested,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Self::NotStarted => "NotStarted",
            Self::Queued => "Queued",
            Self::Provisioning => "Provisioning",
            Self::Preparing => "Preparing",
            Self::Running => "Running",
            Self::Finalizing => "Finalizing",
            Self::CancelRequested => "CancelRequested",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Canceled => "Canceled",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word().eq_ignore_ascii_case(word))
    }

    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}

/// How an attempt ended, as its node told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Success,
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    OutOfMemory {
        limit_mb: u64,
    },
    Timeout,
    Stopped,
    LeaseLost,
    PrepareFailed {
        class: Class,
        message: Arc<str>,
    },
    FinalizeFailed {
        message: Arc<str>,
    },
    /// It wrote more than its disk quota, or its outputs are larger.
    DiskQuota {
        message: Arc<str>,
    },
    /// The node's disk ran short, and this attempt had taken most of it.
    DiskShort {
        message: Arc<str>,
    },
    /// Of several processes on the node, the first that did not succeed, by its rank among all of the job.
    Process {
        rank: u32,
        exit: Box<Self>,
    },
}

impl Exit {
    /// The command's exit code as a shell would give it; none where it is not the command that ended the attempt.
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Code { code } => Some(*code),
            Self::Signal { signal } => Some(128 + signal),
            Self::OutOfMemory { .. } => Some(137),
            Self::Process { exit, .. } => exit.exit_code(),
            Self::Success
            | Self::Timeout
            | Self::Stopped
            | Self::LeaseLost
            | Self::PrepareFailed { .. }
            | Self::FinalizeFailed { .. }
            | Self::DiskQuota { .. }
            | Self::DiskShort { .. } => None,
        }
    }
}

/// Whose matter a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    UserCode,
    InputData,
    Environment,
    Identity,
    QuotaCapacity,
    Preempted,
    System,
}

impl Class {
    pub const fn word(self) -> &'static str {
        match self {
            Self::UserCode => "user code",
            Self::InputData => "input data",
            Self::Environment => "environment",
            Self::Identity => "identity",
            Self::QuotaCapacity => "quota/capacity",
            Self::Preempted => "preempted",
            Self::System => "system",
        }
    }
}

/// How a job ended. `failure` is absent for a completed one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub class: Class,
    /// Azure's word for the error, e.g. `UserError`.
    pub code: Arc<str>,
    pub message: Arc<str>,
    pub next_step: Arc<str>,
}

impl Outcome {
    pub const fn completed() -> Self {
        Self { status: Status::Completed, failure: None }
    }

    pub fn failed(class: Class, code: &str, message: impl Into<Arc<str>>, next_step: &str) -> Self {
        Self {
            status: Status::Failed,
            failure: Some(Failure {
                class,
                code: code.into(),
                message: message.into(),
                next_step: next_step.into(),
            }),
        }
    }

    pub fn canceled(class: Class, code: &str, message: impl Into<Arc<str>>, next_step: &str) -> Self {
        Self { status: Status::Canceled, ..Self::failed(class, code, message, next_step) }
    }
}

/// Facts whose names begin with this are told as the job's provenance, and not among its properties.
pub const PROVENANCE: &str = "provenance.";

/// Small facts an attempt brings along (isolation, interpreter), shown in the job's properties.
pub type AttemptFacts = BTreeMap<String, String>;
