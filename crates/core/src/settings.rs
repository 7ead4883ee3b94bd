//! Configuration that decides something. It enters the log as an event at each start, so that a replay decides
//! the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::catalogue;
use crate::limits;
use crate::location::{Charges, Place};
use crate::own::Own;
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
    /// Those locations that say more than their name, by it.
    #[serde(default)]
    pub places: Arc<BTreeMap<Arc<str>, Place>>,
    /// What is paid for beside nodes.
    #[serde(default)]
    pub charges: Charges,
    /// Sizes and prices beside the catalogue's.
    #[serde(default)]
    pub own: Arc<Own>,
    pub provider: ProviderSettings,
    /// Who is in which team, for limits on what a team may have.
    #[serde(default)]
    pub teams: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Jobs that may wait on one cluster.
    #[serde(default = "waiting_jobs_max")]
    pub waiting_jobs_max: usize,
}

const fn waiting_jobs_max() -> usize {
    limits::QUEUE_LENGTH_MAX
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

/// How often a node is to be heard of, and how long it may be unheard before it gets nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub heartbeat_ms: u64,
    pub silence_ms: u64,
}

impl Settings {
    /// Patience with a stop: the grace, and as much again for the word to come back.
    pub const fn stop_span_ms(&self) -> u64 {
        self.stop_grace_ms * 2 + 5_000
    }

    /// As configured while there are few nodes. With many, slower, so that all together send no more than
    /// `HEARTBEATS_PER_S_MAX`; patience grows with it, and both stay well within the lease.
    pub fn pace(&self, nodes: usize) -> Pace {
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
        let slow = nodes.saturating_mul(1_000).div_ceil(limits::HEARTBEATS_PER_S_MAX);
        let slow = slow.min(self.lease_ttl_ms / limits::HEARTBEATS_PER_LEASE_MIN);
        if slow <= self.heartbeat_ms {
            return Pace { heartbeat_ms: self.heartbeat_ms, silence_ms: self.silence_ms };
        }
        let silence_ms = self.silence_ms.max(slow * limits::HEARTBEATS_MISSED_MAX);
        Pace { heartbeat_ms: slow, silence_ms }
    }
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
            places: Arc::default(),
            charges: Charges::default(),
            own: Arc::default(),
            provider: ProviderSettings { name: "local".into(), machine: None, nodes_max: 64, strict: false },
            teams: BTreeMap::new(),
            waiting_jobs_max: limits::QUEUE_LENGTH_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_nodes_send_as_configured_and_many_send_fewer() {
        let settings = Settings::default();
        let pace = |nodes| {
            let Pace { heartbeat_ms, silence_ms } = settings.pace(nodes);
            (heartbeat_ms, silence_ms)
        };
        assert_eq!(pace(0), (500, 2_000));
        assert_eq!(pace(2_000), (500, 2_000), "4,000 each second");
        assert_eq!(pace(2_001), (501, 2_004));
        assert_eq!(pace(10_000), (2_500, 10_000));
        assert_eq!(pace(60_000), (15_000, 60_000), "an eighth of the lease");
        assert_eq!(pace(usize::MAX), (15_000, 60_000), "and no slower");
    }

    #[test]
    fn heartbeat_silence_and_lease_keep_their_order_at_any_number_of_nodes() {
        for (heartbeat_ms, silence_ms, lease_ttl_ms) in
            [(500, 2_000, 120_000), (3_000, 8_000, 20_000), (100, 10_000, 11_000), (1, 2, 3)]
        {
            let settings = Settings { heartbeat_ms, silence_ms, lease_ttl_ms, ..Settings::default() };
            for nodes in [0, 1, 1_999, 2_001, 8_000, 10_000, 100_000, usize::MAX] {
                let pace = settings.pace(nodes);
                assert!(pace.heartbeat_ms >= heartbeat_ms && pace.silence_ms >= silence_ms);
                assert!(pace.heartbeat_ms < pace.silence_ms && pace.silence_ms < lease_ttl_ms, "{pace:?}");
            }
        }
    }
}
