//! Configuration that decides something. It enters the log as an event at each start, so that a replay decides
//! the same.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::catalogue;
use crate::units::Capacity;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Canonical location names that clusters and workspaces may be in.
    pub locations: Arc<[String]>,
    /// How long a node may be unheard before its attempts may run elsewhere.
    pub lease_ttl_ms: u64,
    /// A node unheard for this long gets nothing new.
    pub silence_ms: u64,
    pub heartbeat_ms: u64,
    /// From the wish for a node to the provider's word that it is on its way, and from there to its agent's joining.
    pub create_deadline_ms: u64,
    /// From there to the agent's word that it is ready, without progress.
    pub prepare_deadline_ms: u64,
    /// From the order to go to the provider's word that it is gone, after which it is fenced by force again.
    pub leave_deadline_ms: u64,
    /// How long a broken node is shown before it is removed.
    pub unusable_keep_ms: u64,
    /// Between the polite and the final signal when an attempt is stopped.
    pub stop_grace_ms: u64,
    pub provider: ProviderSettings,
}

/// What the node maker can give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderSettings {
    pub name: Arc<str>,
    /// What the machine behind the provider truly has; `None` where each node is a machine of its own.
    pub machine: Option<Capacity>,
    pub nodes_max: u32,
    /// Count real cores and memory instead of letting nodes overcommit.
    pub strict: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            locations: catalogue::regions().map(String::from).collect(),
            lease_ttl_ms: 120_000,
            silence_ms: 2_000,
            heartbeat_ms: 500,
            create_deadline_ms: 60_000,
            prepare_deadline_ms: 60_000,
            leave_deadline_ms: 30_000,
            unusable_keep_ms: 300_000,
            stop_grace_ms: 5_000,
            provider: ProviderSettings { name: "local".into(), machine: None, nodes_max: 64, strict: false },
        }
    }
}
