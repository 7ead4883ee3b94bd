//! A job made of jobs: a pipeline of steps, a sweep of trials, a parallel job's workers. It takes no node itself.
//!
//! `waiting → open → ended`. Members are jobs or families; each knows its family. A family of *steps* is complete when
//! its members are; a *driven* one gets its members, and its end, from outside of the core by commands.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdSet;
use serde::{Deserialize, Serialize};

use crate::budget::Label;
use crate::ids::{DocHash, JobId, WorkspaceId};
use crate::job::{Cancel, Class, Failure, Outcome, Status};
use crate::units::Millis;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    pub id: JobId,
    pub workspace: WorkspaceId,
    pub name: Arc<str>,
    pub owner: Arc<str>,
    pub document: DocHash,
    /// The family that this one is part of.
    pub family: Option<JobId>,
    /// Its tags as it was submitted with them, and those of the families around it.
    pub tags: Vec<Label>,
    pub kind: FamilyKind,
    pub opened: Millis,
    pub timeout_ms: Option<u64>,
    /// When its time is up, once it is open.
    pub deadline: Option<Millis>,
    /// Members that have not ended. Kept by `apply`.
    pub members: OrdSet<JobId>,
    /// The first member that did not complete, and what became of it.
    pub failed: Option<FailedMember>,
    /// Set once somebody wants it to end.
    pub cancel: Option<Cancel>,
    /// Set once a driven family is to take no more members: what it ends as.
    pub closing: Option<Closing>,
}

/// An [`Outcome`] as the state keeps it: snapshots leave no field out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    pub status: Status,
    pub failure: Option<Failure>,
}

impl From<&Outcome> for Closing {
    fn from(outcome: &Outcome) -> Self {
        Self { status: outcome.status, failure: outcome.failure.clone() }
    }
}

impl From<&Closing> for Outcome {
    fn from(closing: &Closing) -> Self {
        Self { status: closing.status, failure: closing.failure.clone() }
    }
}

impl Family {
    /// Nothing new may be started in it.
    pub fn is_ending(&self) -> bool {
        let stopped = matches!(self.kind, FamilyKind::Steps { go_on: false }) && self.failed.is_some();
        self.cancel.is_some() || self.closing.is_some() || stopped
    }

    pub fn status(&self, waits: bool) -> Status {
        match (&self.cancel, waits) {
            (Some(_), _) => Status::CancelRequested,
            (None, true) => Status::NotStarted,
            (None, false) => Status::Running,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FamilyKind {
    /// `go_on`: when a member fails, those that do not need it still run.
    Steps {
        go_on: bool,
    },
    Driven,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedMember {
    pub job: JobId,
    pub name: Arc<str>,
    pub status: Status,
    /// Whose matter it was: the family's too.
    pub class: Class,
    pub message: Arc<str>,
}

/// What a member waits for before it may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub family: JobId,
    pub on: BTreeSet<JobId>,
    /// One of those did not complete: it never will start.
    pub in_vain: Option<JobId>,
}

impl Wait {
    pub fn is_over(&self) -> bool {
        self.on.is_empty() || self.in_vain.is_some()
    }
}
