//! A node: `requested → creating → preparing → ready → leaving → gone`, with `unusable` and `preempted` on the side.
//!
//! Idle and running are both *ready*: a ready node with attempts is running. Every state but ready has a
//! deadline; a ready node is bounded by its lease.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::Lease;
use crate::cluster::Shape;
use crate::ids::{AttemptId, ClusterId, NodeId};
use crate::meter::Payer;
use crate::units::{Capacity, Millis};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub cluster: ClusterId,
    pub state: NodeState,
    /// When the state began; for an idle node, when it became idle.
    pub since: Millis,
    /// Why it is in this state, in words.
    pub reason: Arc<str>,
    /// What it was asked for as, which may be an older shape than its cluster's.
    pub shape: Shape,
    /// What its cluster's `make` was then.
    pub make: Arc<str>,
    /// When it was asked for: it costs from here on.
    pub requested: Millis,
    /// Up to when its cost is on the books.
    pub metered: Millis,
    /// Its money, where a budget pays for it.
    pub lease: Option<Lease>,
    /// It ended itself at this moment at the latest, while the server was away: it costs no more from there on.
    pub costs_until: Option<Millis>,
    /// Who waited for it.
    pub caused_by: Option<Payer>,
    /// Who used it last.
    pub last: Option<Payer>,
    /// What its size says; scheduling counts with this.
    pub nominal: Capacity,
    /// What it truly has, once it has said so.
    pub actual: Option<Capacity>,
    pub used: Capacity,
    /// One attempt holds the whole node.
    pub exclusive: bool,
    pub attempts: Vec<AttemptId>,
    /// Not heard of for a while: nothing new is placed on it.
    pub silent: bool,
    /// Somebody, or a new definition of its cluster, wants nothing new on it.
    pub cordon: Option<Cordon>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    /// It goes once its attempts have ended; else it stays, for somebody to look at.
    pub leave: bool,
    pub reason: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// Wanted; the provider has been or will be asked.
    Requested {
        deadline: Millis,
    },
    /// The provider has made it, or is about to; its agent is awaited.
    Creating {
        deadline: Millis,
    },
    /// Its agent has joined and is awaited with what it found.
    Preparing {
        deadline: Millis,
    },
    Ready,
    /// It is being removed. Past the deadline the provider is asked again, by force.
    Leaving {
        deadline: Millis,
    },
    /// Broken, shown for a while, then removed.
    Unusable {
        deadline: Millis,
    },
    /// It is taken back: its attempts save what they can and go back to the queue. At the deadline it is removed.
    Preempted {
        deadline: Millis,
    },
}

impl NodeState {
    pub const fn deadline(self) -> Option<Millis> {
        match self {
            Self::Requested { deadline }
            | Self::Creating { deadline }
            | Self::Preparing { deadline }
            | Self::Leaving { deadline }
            | Self::Unusable { deadline }
            | Self::Preempted { deadline } => Some(deadline),
            Self::Ready => None,
        }
    }
}

impl Node {
    pub fn is_idle(&self) -> bool {
        matches!(self.state, NodeState::Ready) && self.attempts.is_empty()
    }

    /// Counts toward the target: it is there or on its way, and not on its way out.
    pub const fn is_live(&self) -> bool {
        match self.state {
            NodeState::Requested { .. }
            | NodeState::Creating { .. }
            | NodeState::Preparing { .. }
            | NodeState::Ready => true,
            NodeState::Leaving { .. } | NodeState::Unusable { .. } | NodeState::Preempted { .. } => false,
        }
    }

    /// Something new may be placed on it.
    pub const fn is_placeable(&self) -> bool {
        matches!(self.state, NodeState::Ready) && !self.silent && self.cordon.is_none()
    }

    /// It has nothing on it, and is only there to go.
    pub fn is_done(&self) -> bool {
        let drained = self.is_live() && self.cordon.as_ref().is_some_and(|cordon| cordon.leave);
        self.attempts.is_empty() && (drained || matches!(self.state, NodeState::Preempted { .. }))
    }

    pub fn free(&self) -> Capacity {
        if self.exclusive { Capacity::default() } else { self.nominal.minus(self.used) }
    }

    /// The word Azure has for it.
    pub fn azure_state(&self) -> &'static str {
        match self.state {
            NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. } => {
                "preparing"
            }
            NodeState::Ready if self.attempts.is_empty() => "idle",
            NodeState::Ready => "running",
            NodeState::Leaving { .. } => "leaving",
            NodeState::Unusable { .. } => "unusable",
            NodeState::Preempted { .. } => "preempted",
        }
    }

    /// Neap's own, finer word.
    pub fn word(&self) -> &'static str {
        match self.state {
            NodeState::Requested { .. } => "requested",
            NodeState::Creating { .. } => "creating",
            NodeState::Preparing { .. } => "preparing",
            NodeState::Ready if self.attempts.is_empty() => "idle",
            NodeState::Ready => "running",
            NodeState::Leaving { .. } => "leaving",
            NodeState::Unusable { .. } => "unusable",
            NodeState::Preempted { .. } => "preempted",
        }
    }
}
