//! A schedule: a job that is submitted again and again. When, is said from outside: the calendar's next time is on
//! record, and comes due here.
//!
//! `waiting → due → waiting…`. What is due stays so until its job is on record, so that a crash in between loses nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{DocHash, ScheduleId, WorkspaceId};
use crate::units::Millis;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub id: ScheduleId,
    pub workspace: WorkspaceId,
    pub name: Arc<str>,
    /// In whose name its jobs are submitted.
    pub owner: Arc<str>,
    pub enabled: bool,
    /// When it fires next; never, if absent.
    pub next: Option<Millis>,
    /// The time that has come and whose job is not on record yet.
    pub due: Option<Millis>,
    /// The last firings, oldest first.
    pub firings: Vec<Firing>,
    pub document: DocHash,
    pub created: Millis,
    pub modified: Millis,
}

impl Schedule {
    /// When it next needs a look.
    pub fn timer(&self) -> Option<Millis> {
        self.next.filter(|_| self.enabled && self.due.is_none())
    }
}

/// What became of one time, or of somebody's wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// The time that it was meant for.
    pub at: Millis,
    /// Somebody asked for it.
    pub forced: bool,
    pub job: Option<Arc<str>>,
    /// Why there is no job.
    pub problem: Option<Arc<str>>,
}
