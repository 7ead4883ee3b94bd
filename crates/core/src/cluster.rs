//! A cluster: declared once, rising and falling between its minimum and maximum.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::budget::{self, Every};
use crate::ids::{BudgetId, ClusterId, DocHash, JobId, NodeId, WorkspaceId};
use crate::location::Scarce;
use crate::lock::LockLevel;
use crate::mix::Mix;
use crate::node::Node;
use crate::queue::{Lane, Share};
use crate::quota::QuotaKey;
use crate::state::GroupKey;
use crate::units::{Capacity, MicroUsd, Millis, many, more_nodes_are, nodes_are};
use crate::window::{Scheduled, Windows};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    Dedicated,
    LowPriority,
}

impl Tier {
    /// As Azure answers it.
    pub const fn canonical(self) -> &'static str {
        match self {
            Self::Dedicated => "Dedicated",
            Self::LowPriority => "LowPriority",
        }
    }

    /// As it is said of nodes.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dedicated => "dedicated",
            Self::LowPriority => "low-priority",
        }
    }

    /// Any case, with or without `_`.
    pub fn parse(text: &str) -> Option<Self> {
        let plain: String =
            text.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect();
        match plain.as_str() {
            "dedicated" => Some(Self::Dedicated),
            "lowpriority" => Some(Self::LowPriority),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    pub min: u32,
    pub max: u32,
    pub idle_ms: u64,
}

/// What its nodes are. With Azure it may not change after creation; here nodes are then replaced one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Upper-cased: `STANDARD_DS3_V2`.
    pub size: Arc<str>,
    /// As quotas name it: `standardDSv2Family`.
    pub family: Arc<str>,
    pub nominal: Capacity,
    pub tier: Tier,
    /// Per node and hour; zero where no price is published.
    pub price: MicroUsd,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub id: ClusterId,
    pub workspace: WorkspaceId,
    pub name: Arc<str>,
    pub location: Arc<str>,
    pub shape: Shape,
    /// The resource group of its network, where it is in one: a lock there stops scaling.
    pub network: Option<GroupKey>,
    /// What is in force: as declared, or as a window has it.
    pub scale: Scale,
    /// What the user declared, and quotas count.
    pub declared: Scale,
    pub windows: Windows,
    /// What the windows make of it now.
    pub scheduled: Scheduled,
    /// Names what of its nodes is not in their shape (SSH, network); empty since its creation.
    pub make: Arc<str>,
    /// Where some of its nodes are dedicated and the others low priority.
    pub mix: Option<Mix>,
    /// Counts accepted definitions, from 1.
    pub revision: u32,
    /// What the user wrote, less what decides.
    pub document: DocHash,
    pub created: Millis,
    pub modified: Millis,
    pub phase: ClusterPhase,
    pub target: u32,
    pub target_since: Millis,
    /// Why the target is below what the work asks for.
    pub cuts: Vec<Cut>,
    pub boot: BootHealth,

    /// Every node that is not gone.
    pub nodes: OrdSet<NodeId>,
    /// How many of them are there or on their way, not on their way out. Kept by `apply`.
    pub live: u32,
    /// How many of those have attempts. Kept by `apply`.
    pub busy: u32,
    /// How many of those are unheard or cordoned and have none: they serve nobody. Kept by `apply`.
    pub unheard: u32,
    /// Nodes of an older definition, to be replaced. Kept by `apply`.
    pub old: OrdSet<NodeId>,
    /// Ready, heard, with nothing on it. Kept by `apply`.
    pub idle: OrdSet<NodeId>,
    /// Ready, heard, shared by some attempts and with room left. Kept by `apply`.
    pub open: OrdSet<NodeId>,
    /// With nothing on them, and only there to go. Kept by `apply`.
    pub done: OrdSet<NodeId>,
    /// Waiting jobs by priority and age. Kept by `apply`.
    pub queue: OrdSet<QueueKey>,
    /// The same by priority and owner. Kept by `apply`.
    pub lanes: OrdMap<Lane, OrdSet<JobId>>,
    /// What each owner used and uses of it. Kept by `apply`.
    pub shares: OrdMap<Arc<str>, Share>,
    /// When one of them last changed: whose turn it is follows from the cluster alone, and not from the clock.
    pub shares_at: Millis,
    /// Jobs that may not start yet.
    pub waiting: OrdSet<JobId>,
    /// Jobs with an attempt.
    pub active: OrdSet<JobId>,
}

impl Cluster {
    /// How much room there is for nodes decides what becomes of those who wait: room of its own is kept for the first of
    /// them, or they are for the tier that has some.
    pub fn minds_room(&self) -> bool {
        let has_room = !self.idle.is_empty() || !self.open.is_empty();
        (has_room || self.mix.is_some()) && !self.queue.is_empty()
    }

    /// Whether a node is of an older definition than the cluster's. A dedicated one may be of its floor.
    pub fn is_outdated(&self, node: &Node) -> bool {
        let of = |shape: &Shape| node.shape.size == shape.size && node.shape.tier == shape.tier;
        let same = of(&self.shape) || self.mix.as_ref().is_some_and(|mix| of(&mix.floor.shape));
        !same || node.make != self.make
    }

    /// Its dedicated work waits for room of the provider.
    pub fn wants_room(&self) -> bool {
        self.cuts.iter().any(|cut| matches!(cut, Cut::RoomWanted { .. }))
    }

    pub fn is_deleting(&self) -> bool {
        matches!(self.phase, ClusterPhase::Deleting { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterPhase {
    Live,
    Deleting { since: Millis },
}

/// Higher priority first, then the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueueKey {
    /// 255 minus the priority, so that the natural order is the right one.
    pub behind: u8,
    pub job: JobId,
}

/// How starting nodes has been going.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootHealth {
    /// Failures since the last node that came up.
    pub failures: u32,
    pub last_reason: Option<Arc<str>>,
    /// Nothing is requested before this.
    pub retry_at: Option<Millis>,
}

/// What keeps a target below demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cut {
    /// The work asks for more nodes than `max`.
    Maximum { wanted: u32, max: u32 },
    /// Of a cluster with nodes of both tiers: more of one are asked for than there may be of it.
    TierMaximum { tier: Tier, wanted: u32, max: u32 },
    /// The provider has no room for so many nodes of dedicated work: low-priority nodes are taken back for it, where
    /// that helps.
    RoomWanted { nodes: u32 },
    /// The room is for dedicated work on another cluster, or on this one.
    Yields { to: Arc<str> },
    /// The provider makes no more nodes than this, all clusters together.
    ProviderNodes { in_use: u32, max: u32 },
    /// `local.capacity: strict` and the machine is full, or its GPUs are all in nodes.
    ProviderCapacity { free: Capacity, needed: Capacity },
    /// The location has room for no more, all clusters together.
    Location { location: Arc<str>, of: Scarce, in_use: u64, max: u64, needed: u64 },
    /// The next job wants several nodes at once. The provider never makes as many, or another cluster's job, which
    /// came before, waits for as many too.
    ProviderAtOnce { wanted: u32, max: u32 },
    /// Nodes failed to start; the next try is later.
    BootBackoff { failures: u32, retry_at: Millis },
    /// A limit on cores.
    Quota { key: QuotaKey, limit: u64, in_use: u64, needed: u64 },
    /// Somebody, or a team, has as much running as is allowed.
    Allowance { who: Arc<str>, of: Arc<str>, limit: u64, in_use: u64, needed: u64 },
    /// A lock: nodes are neither added nor removed.
    Lock { name: Arc<str>, level: LockLevel, on: Arc<str>, group: bool },
    /// A budget has not the money. What is spent and reserved changes all the time; the budget itself says.
    Budget {
        budget: BudgetId,
        name: Arc<str>,
        amount: MicroUsd,
        every: Every,
        /// The least that would be reserved.
        needed: MicroUsd,
        nodes: u32,
        /// When there is new money.
        renews: Option<Millis>,
    },
    /// A window has a lower maximum in force than declared.
    Window {
        name: Arc<str>,
        wanted: u32,
        max: u32,
        declared: u32,
        /// When that changes, on the clock of its zone.
        until: Option<Arc<str>>,
        /// Of a mixed cluster: what it leaves to the tier that is wanted.
        #[serde(default)]
        left: Option<(Tier, u32)>,
    },
    /// The server is being stopped.
    Draining,
}

impl Cut {
    /// The provider, a quota or a budget has no room: when a node goes there may be.
    pub const fn is_for_room(&self) -> bool {
        match self {
            Self::ProviderNodes { .. }
            | Self::ProviderCapacity { .. }
            | Self::ProviderAtOnce { .. }
            | Self::Location { .. }
            | Self::RoomWanted { .. }
            | Self::Yields { .. }
            | Self::Quota { .. }
            | Self::Allowance { .. }
            | Self::Budget { .. } => true,
            Self::Maximum { .. }
            | Self::Window { .. }
            | Self::TierMaximum { .. }
            | Self::BootBackoff { .. }
            | Self::Lock { .. }
            | Self::Draining => false,
        }
    }

    /// One sentence for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Maximum { wanted, max } => {
                let wanted = nodes_are(*wanted, "");
                format!(
                    "{wanted} wanted and max_instances is {max}; raise max_instances or wait for a node to be free."
                )
            }
            Self::TierMaximum { tier: Tier::Dedicated, wanted, max } => {
                let are = if *wanted == 1 { "node is" } else { "nodes are" };
                format!(
                    "{wanted} dedicated {are} wanted and there may be {max} (dedicated_instances); raise it or wait for one to be free."
                )
            }
            Self::TierMaximum { tier: Tier::LowPriority, wanted, max } => {
                let are = if *wanted == 1 { "node is" } else { "nodes are" };
                format!(
                    "{wanted} low-priority {are} wanted and there may be {max} (max_instances less dedicated_instances); raise max_instances or wait for one to be free."
                )
            }
            Self::RoomWanted { nodes } => {
                format!(
                    "Dedicated work waits for room for {nodes} more; low-priority nodes are taken back for it, where that makes room."
                )
            }
            Self::Yields { to } => {
                format!(
                    "Dedicated work on compute '{to}' waits for the room that a low-priority node would take; it goes first."
                )
            }
            Self::ProviderNodes { in_use, max } => {
                format!(
                    "The provider makes at most {} (local.max_nodes) and {in_use} exist, over all clusters.",
                    many(*max, "node")
                )
            }
            Self::ProviderCapacity { free, needed } if needed.gpus > free.gpus => {
                format!(
                    "A node needs {} and {} of this machine's are free; a GPU is never in two nodes.",
                    many(needed.gpus, "GPU"),
                    free.gpus
                )
            }
            Self::ProviderCapacity { free, needed } => {
                format!("A node needs {needed}; the machine has {free} free and local.capacity is strict.")
            }
            Self::Location { location, of: Scarce::Nodes, in_use, max, needed } => {
                let more = more_nodes_are(u32::try_from(*needed).unwrap_or(u32::MAX), "");
                format!(
                    "{more} needed and {location} has {max} (locations in config.yaml), of which {in_use} are in use, over all clusters."
                )
            }
            Self::Location { location, of: Scarce::Cores, in_use, max, needed } => {
                format!(
                    "{needed} more cores are needed and {location} has {max} (locations in config.yaml), of which {in_use} are in use, over all clusters."
                )
            }
            Self::ProviderAtOnce { wanted, max } => {
                format!(
                    "The next job wants {wanted} nodes at once; the provider makes at most {max} over all clusters, and another job may come first."
                )
            }
            Self::BootBackoff { failures, retry_at } => {
                format!(
                    "{} in a row failed to start; the next is tried at {}.",
                    many(*failures, "node"),
                    retry_at.rfc3339()
                )
            }
            Self::Quota { key, limit, in_use, needed } => {
                format!(
                    "{needed} more cores are needed and {in_use} of {limit} are in use of {key}; ask for more with 'neap quota request {} --location {} --limit {}'.",
                    key.pool.flag(),
                    key.location,
                    in_use + needed
                )
            }
            Self::Allowance { who, of, limit, needed, .. } if needed > limit => {
                format!(
                    "A job needs {needed} of the {of} and {who} may have {limit} at a time, so that it never starts; raise the limit with 'neap quota user', or let the job ask for less."
                )
            }
            Self::Allowance { who, of, limit, in_use, needed } => {
                format!(
                    "A job needs {needed} more of the {of} that {who} may have at a time: {in_use} of {limit} are in use; it waits for one to end ('neap quota user' shows and sets the limits)."
                )
            }
            Self::Lock { name, level, on, group } => {
                let cure = if *group {
                    "; take it away, or lock the single resources instead of the group"
                } else {
                    "; take it away"
                };
                format!("The {} lock '{name}' on {on} stops scaling{cure}.", level.canonical())
            }
            Self::Budget { name, amount, every, needed, nodes, renews, .. } => {
                budget::sentence(name, *amount, *every, *needed, *nodes, *renews)
            }
            Self::Window { name, wanted, max, declared, until, left } => {
                let until = until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
                let (left, of) = match left {
                    Some((tier, left)) => (
                        format!(", which leaves {left} to {} nodes", tier.word()),
                        format!(" {}", tier.word()),
                    ),
                    None => Default::default(),
                };
                let wanted = match wanted {
                    1 => format!("1{of} node is wanted"),
                    n => format!("{n}{of} nodes are wanted"),
                };
                format!(
                    "The schedule '{name}' holds max_instances at {max}{until}{left}; {wanted}, and it is {declared} otherwise. Wait, or switch it off with 'neap compute schedule disable'."
                )
            }
            Self::Draining => "The server is being stopped.".into(),
        }
    }
}
