//! Limits, locks, budgets, windows and other sizes that people set, lower and take away in the middle of everything; all are gone once faults stop.

use std::sync::Arc;

use neap_core::budget::{AtCap, BudgetScope, Every};
use neap_core::command::{PutBudget, PutCluster, PutLock, PutWindow, RemakeCluster};
use neap_core::lock::{LockLevel, LockScope};
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::state::GroupKey;
use neap_core::window::Span;
use neap_core::{ClusterId, Command, MicroUsd, Millis};

use crate::users::{CLUSTERS, DOCUMENT, GROUP, Request, SUBSCRIPTION, WORKSPACE};
use crate::world::World;

/// Cores of a node of the default size.
const CORES: u64 = 4;

impl World {
    /// Now and then somebody governs.
    pub fn govern(&mut self) {
        let Some(state) = self.server.as_ref().map(|server| server.machine.state().clone()) else { return };
        let Some(dice) = self.users.law.as_mut() else { return };
        if !dice.once_in(3) {
            return;
        }
        let command = match dice.below(10) {
            0..3 => {
                let pools =
                    [Pool::Dedicated, Pool::Family("standardDSv2Family".into()), Pool::NodesPerCluster];
                let holders = [Holder::Subscription(SUBSCRIPTION.into()), Holder::Workspace(WORKSPACE)];
                let key = QuotaKey {
                    holder: holders[dice.below(2) as usize].clone(),
                    location: "westus".into(),
                    pool: pools[dice.below(3) as usize].clone(),
                };
                let limit = (!dice.once_in(4)).then(|| dice.below(6) * CORES);
                Command::SetQuota { key, limit, by: "user".into() }
            }
            3 => {
                let mut scopes = vec![
                    LockScope::Group(GroupKey::new(SUBSCRIPTION, GROUP)),
                    LockScope::Workspace(WORKSPACE),
                ];
                let found = CLUSTERS.iter().filter_map(|name| state.cluster(WORKSPACE, name));
                scopes.extend(found.map(|cluster| LockScope::Cluster(cluster.id)));
                let at = dice.below(scopes.len() as u64) as usize;
                let level = if dice.once_in(2) { LockLevel::ReadOnly } else { LockLevel::CanNotDelete };
                let (name, notes, by) = ("lock".into(), "".into(), "user".into());
                Command::PutLock(PutLock { scope: scopes.swap_remove(at), name, level, notes, by })
            }
            6..9 => {
                let nodes: Vec<_> = state.nodes.values().map(|node| (node.id, node.cluster)).collect();
                let at = dice.below(nodes.len() as u64) as usize;
                let Some((node, cluster)) = nodes.get(at).copied() else { return };
                match dice.below(4) {
                    0 => Command::Cordon { node, leave: dice.once_in(2), reason: "looked at".into() },
                    1 => Command::Uncordon { node },
                    _ => {
                        let (grace_ms, reason) = (dice.below(4_000), "wanted elsewhere".into());
                        Command::Evict { cluster, node: Some(node), grace_ms, reason }
                    }
                }
            }
            _ => {
                let locks: Vec<_> = state.locks.values().cloned().collect();
                let at = dice.below(locks.len() as u64) as usize;
                let Some(lock) = locks.get(at) else { return };
                Command::DeleteLock { scope: lock.scope.clone(), name: lock.name.clone() }
            }
        };
        self.ask(command, Request::Cluster);
    }

    /// Now and then somebody puts a window on a cluster's scale or takes one away, or wants other nodes.
    pub fn change_habits(&mut self) {
        let Some(state) = self.server.as_ref().map(|server| server.machine.state().clone()) else { return };
        let Some(dice) = self.users.habits.as_mut() else { return };
        if !dice.once_in(4) {
            return;
        }
        let Some(cluster) = state.cluster(WORKSPACE, CLUSTERS[dice.below(2) as usize]) else { return };
        let name: Arc<str> = format!("window-{}", dice.below(2)).into();
        let command = match dice.below(5) {
            0 => Command::DeleteWindow { cluster: cluster.id, name },
            1 | 2 => {
                let from = state.now.plus(dice.below(60_000));
                let lasts_ms = 1_000 + dice.below(60_000);
                let span = |from: Millis| Span { from, until: from.plus(lasts_ms), offsets: (0, 0) };
                Command::PutWindow(PutWindow {
                    cluster: cluster.id,
                    name,
                    enabled: !dice.once_in(6),
                    min: dice.once_in(3).then(|| dice.below(2) as i64),
                    max: Some(dice.below(2) as i64),
                    stops: dice.once_in(2),
                    zone: "UTC".into(),
                    spans: vec![span(from), span(from.plus(90_000))],
                    refill_at: None,
                    document: DOCUMENT,
                    by: "user".into(),
                    problems: Vec::new(),
                })
            }
            _ => {
                let sizes = ["Standard_DS3_v2", "Standard_DS2_v2", "Standard_DS4_v2"];
                let size = sizes.get(dice.below(4) as usize).map(|size| (*size).into());
                let put = PutCluster {
                    workspace: WORKSPACE,
                    name: cluster.name.clone(),
                    location: None,
                    size: size.clone(),
                    tier: None,
                    network: None,
                    reference: None,
                    min: Some(cluster.declared.min.into()),
                    max: Some(cluster.declared.max.into()),
                    idle_ms: i64::try_from(cluster.declared.idle_ms).ok(),
                    dedicated: None,
                    document: DOCUMENT,
                    problems: Vec::new(),
                };
                // Without a size it is the login that changes.
                let make = size.is_none().then(|| format!("login-{}", cluster.revision).into());
                Command::RemakeCluster(RemakeCluster { put, make })
            }
        };
        self.ask(command, Request::Cluster);
    }

    /// Now and then somebody sets a budget, raises or lowers it, or takes it away.
    pub fn budget(&mut self) {
        let Some(state) = self.server.as_ref().map(|server| server.machine.state().clone()) else { return };
        let Some(dice) = self.users.purse.as_mut() else { return };
        if !dice.once_in(6) {
            return;
        }
        let name: Arc<str> = format!("budget-{}", dice.below(3)).into();
        let existing = state.budget(&name);
        if let Some(budget) = existing
            && dice.once_in(4)
        {
            let budget = budget.id;
            return self.ask(Command::DeleteBudget { budget }, Request::Cluster);
        }
        let cluster = ClusterId(dice.between(1, 2));
        let job = format!("job-{}", dice.between(1, 8)).into();
        let scope = match dice.below(5) {
            0 => BudgetScope::Group(GroupKey::new(SUBSCRIPTION, GROUP)),
            1 => BudgetScope::Workspace(WORKSPACE),
            2 => BudgetScope::Cluster(cluster),
            3 => BudgetScope::User("user".into()),
            _ => BudgetScope::Job { workspace: WORKSPACE, name: job },
        };
        let every = if dice.once_in(3) { Every::Total } else { Every::Day };
        let put = PutBudget {
            name,
            scope: existing.is_none().then_some(scope),
            // Of the default size, a few nodes for a few minutes.
            amount: Some(MicroUsd(1 + dice.below(10) * 6_000)),
            every: existing.is_none().then_some(every),
            at_cap: Some(AtCap::ALL[dice.below(2) as usize]),
            thresholds: None,
            by: "user".into(),
            problems: Vec::new(),
        };
        self.ask(Command::PutBudget(put), Request::Cluster);
    }

    /// What would keep the world from coming to rest is taken away.
    pub fn lift_limits(&mut self) {
        let Some(state) = self.server.as_ref().map(|server| server.machine.state().clone()) else { return };
        for key in state.quotas.keys() {
            let command = Command::SetQuota { key: key.clone(), limit: None, by: "user".into() };
            self.ask(command, Request::Cluster);
        }
        for node in state.nodes.values().filter(|node| node.cordon.is_some() && node.is_live()) {
            self.ask(Command::Uncordon { node: node.id }, Request::Cluster);
        }
        for cluster in state.clusters.values() {
            for window in cluster.windows.values() {
                let command = Command::DeleteWindow { cluster: cluster.id, name: window.name.clone() };
                self.ask(command, Request::Cluster);
            }
        }
        for budget in state.budgets.keys() {
            self.ask(Command::DeleteBudget { budget: *budget }, Request::Cluster);
        }
        for lock in state.locks.values() {
            let command = Command::DeleteLock { scope: lock.scope.clone(), name: lock.name.clone() };
            self.ask(command, Request::Cluster);
        }
    }
}
