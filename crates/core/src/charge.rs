//! What is paid for beside nodes: storage that is kept, and bytes that go from one location to another, at the prices of
//! the configuration. Node costs are in `meter.rs`, and these are never among them.
//!
//! Storage is known by samples: what a workspace's storage held when it was looked at counts until the next look. Transfer
//! is known by what a node fetched and stored for an attempt, where the cluster is elsewhere than its workspace.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{AttemptMeasured, Event};
use crate::ids::{ClusterId, JobId, WorkspaceId};
use crate::state::State;
use crate::units::{MicroUsd, Millis};
use crate::usage;

pub const GIGABYTE: u64 = 1_000_000_000;
/// Thirty days.
pub const MONTH_MS: u64 = 30 * 24 * 3600 * 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChargeKind {
    Storage,
    Transfer,
}

impl ChargeKind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Transfer => "transfer",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::Storage, Self::Transfer].into_iter().find(|kind| kind.word() == word)
    }
}

/// What a workspace's storage holds, as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub bytes: u64,
    /// Up to when it is on the books.
    pub since: Millis,
    /// What rounding has left over so far, in parts of a micro-dollar.
    pub carry: u128,
}

impl Kept {
    /// What it costs up to a moment, and what rounding leaves.
    fn upto(&self, price: MicroUsd, at: Millis) -> (MicroUsd, u128) {
        let whole = u128::from(GIGABYTE) * u128::from(MONTH_MS);
        let exact =
            (u128::from(self.bytes) * u128::from(price.0)).saturating_mul(at.since(self.since).into());
        let exact = exact.saturating_add(self.carry);
        (MicroUsd(u64::try_from(exact / whole).unwrap_or(u64::MAX)), exact % whole)
    }

    /// The same from a moment on.
    fn from(self, price: MicroUsd, at: Millis) -> Self {
        let (_, carry) = self.upto(price, at);
        Self { since: self.since.max(at), carry, ..self }
    }
}

/// One item of the bill beside nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    pub workspace: WorkspaceId,
    pub kind: ChargeKind,
    pub from: Millis,
    pub to: Millis,
    pub cost: MicroUsd,
    pub bytes: u64,
    pub cluster: Option<ClusterId>,
    /// Whose job, where it is one's.
    pub payer: Option<(JobId, Arc<str>)>,
}

/// What an event closes, by the state before it.
pub(crate) fn charges(before: &State, at: Millis, event: &Event) -> Vec<Charge> {
    match event {
        Event::ServerStarted(_) => {
            before.kept.keys().filter_map(|workspace| storage(before, *workspace, at)).collect()
        }
        Event::StorageMeasured(e) => storage(before, e.workspace, at).into_iter().collect(),
        Event::WorkspaceDeleted(e) => storage(before, e.id, at).into_iter().collect(),
        Event::AttemptMeasured(e) => transfer(before, at, e).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// What is kept, as if all of it were settled now.
pub fn open(state: &State, now: Millis) -> Vec<Charge> {
    state.kept.keys().filter_map(|workspace| storage(state, *workspace, now)).collect()
}

fn storage(state: &State, workspace: WorkspaceId, at: Millis) -> Option<Charge> {
    let kept = state.kept.get(&workspace)?;
    let (cost, _) = kept.upto(state.settings.charges.storage_gb_month, at);
    (kept.since < at).then_some(Charge {
        workspace,
        kind: ChargeKind::Storage,
        from: kept.since,
        to: at,
        cost,
        bytes: kept.bytes,
        cluster: None,
        payer: None,
    })
}

fn transfer(state: &State, at: Millis, e: &AttemptMeasured) -> Option<Charge> {
    let job = state.jobs.get(&e.id)?;
    let (cluster, workspace) = (state.clusters.get(&job.cluster)?, state.workspaces.get(&job.workspace)?);
    let moved = |key: &str| usage::number(&e.facts, key).unwrap_or(0);
    let bytes = moved(usage::FETCHED_BYTES).saturating_add(moved(usage::STORED_BYTES));
    if cluster.location == workspace.location || bytes == 0 {
        return None;
    }
    let exact = u128::from(bytes) * u128::from(state.settings.charges.transfer_gb.0) / u128::from(GIGABYTE);
    Some(Charge {
        workspace: workspace.id,
        kind: ChargeKind::Transfer,
        from: at,
        to: at,
        cost: MicroUsd(u64::try_from(exact).unwrap_or(u64::MAX)),
        bytes,
        cluster: Some(cluster.id),
        payer: Some((job.id, job.owner.clone())),
    })
}

/// Storage was looked at, or its price may be another from here on.
pub(crate) fn settle(state: &mut State, at: Millis, event: &Event) {
    let price = state.settings.charges.storage_gb_month;
    match event {
        Event::ServerStarted(_) => {
            state.kept = state.kept.iter().map(|(id, kept)| (*id, kept.from(price, at))).collect();
        }
        Event::StorageMeasured(e) => {
            let before = state.kept.get(&e.workspace).map(|kept| kept.from(price, at));
            let carry = before.map_or(0, |kept| kept.carry);
            state.kept.insert(e.workspace, Kept { bytes: e.bytes, since: at, carry });
        }
        Event::WorkspaceDeleted(e) => drop(state.kept.remove(&e.id)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounding_leaves_is_not_lost() {
        let price = MicroUsd(20_000);
        let mut kept = Kept { bytes: 1_000_000, since: Millis(0), carry: 0 };
        let mut paid = 0;
        for hour in 1..=720 {
            let at = Millis(hour * 3_600_000);
            paid += kept.upto(price, at).0.0;
            kept = kept.from(price, at);
        }
        assert_eq!((paid, kept.carry), (20, 0), "a megabyte for a month, by the hour");
        let whole = Kept { bytes: GIGABYTE, since: Millis(0), carry: 0 };
        assert_eq!(whole.upto(price, Millis(MONTH_MS)).0, price);
    }
}
