//! Q1, K1 and W1: no grant passes a limit on cores, what a lock holds still is still, and nodes are replaced one by one.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdMap;

use super::{Violation, broken};
use crate::cluster::{Cluster, Shape};
use crate::event::Event;
use crate::ids::{ClusterId, NodeId};
use crate::lock;
use crate::node::{Node, NodeState};
use crate::plan::BY_ROLL;
use crate::quota::{self, Holder, QuotaKey, Usage};
use crate::state::State;

/// Q1: what is counted against limits is what clusters hold and nodes use.
pub fn q1_usage_is_counted(state: &State, out: &mut Vec<Violation>) {
    let mut counted: OrdMap<QuotaKey, Usage> = OrdMap::new();
    for cluster in state.clusters.values() {
        for (key, held) in quota::held_of(state, cluster) {
            counted.entry(key).or_default().held += held;
        }
        for node in state.nodes_of(cluster) {
            for key in quota::keys(state, cluster.workspace, &cluster.location, &node.shape) {
                if key.pool.counts_cores() {
                    counted.entry(key).or_default().in_use += quota::cores(&node.shape);
                }
            }
        }
    }
    let counted: OrdMap<_, _> = counted.into_iter().filter(|(_, usage)| *usage != Usage::default()).collect();
    if counted != state.quota_usage {
        broken(out, "Q1", format!("usage is {counted:?} and {:?} is kept", state.quota_usage));
    }
    for key in state.quotas.keys() {
        if let Holder::Workspace(id) = &key.holder
            && !state.workspaces.contains_key(id)
        {
            broken(out, "Q1", format!("a limit of workspace {id} is kept, which is not there"));
        }
    }
}

/// What each cluster had declared, to tell a larger maximum from a smaller one.
#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    declared: BTreeMap<ClusterId, BTreeMap<QuotaKey, u64>>,
    /// Nodes that were let go: where one does not go in time, that is said again.
    leaving: BTreeSet<NodeId>,
}

impl Grants {
    pub fn observe(&mut self, event: &Event, after: &State, out: &mut Vec<Violation>) {
        match event {
            Event::ClusterCreated(e) => self.declared(e.id, after, out),
            Event::ClusterUpdated(e) => self.declared(e.id, after, out),
            Event::NodeRequested(e) => {
                let Some(cluster) = after.clusters.get(&e.cluster) else { return };
                let shape = e.shape.as_ref().unwrap_or(&cluster.shape);
                for (key, limit) in limits_on(after, cluster, shape) {
                    let in_use = after.quota_usage.get(&key).map_or(0, |usage| usage.in_use);
                    if in_use > limit {
                        broken(out, "Q1", format!("node {} makes {in_use} of {limit} of {key}", e.id));
                    }
                }
                let place = after.settings.places.get(&cluster.location);
                let given = after.given.get(&cluster.location).copied().unwrap_or_default();
                let nodes_over = place.and_then(|place| place.nodes_max).is_some_and(|max| given.nodes > max);
                let cores_over = place
                    .and_then(|place| place.cores_max)
                    .is_some_and(|max| given.cpus_milli > max.saturating_mul(1_000));
                if nodes_over || cores_over {
                    let what =
                        format!("node {} makes {given:?} in {}, which has less", e.id, cluster.location);
                    broken(out, "Q1", what);
                }
                still(cluster, after, "asked for a node", out);
            }
            Event::NodeCordoned(e) if e.leave => one_by_one(e.id, after, out),
            Event::NodeGone(e) => {
                self.leaving.remove(&e.id);
            }
            Event::NodeLeaving(e) if self.leaving.insert(e.id) => {
                let Some(node) = after.nodes.get(&e.id) else { return };
                let by_scaling = node.reason.starts_with("idle") || node.reason.starts_with("max_instances");
                if let Some(cluster) = after.clusters.get(&node.cluster).filter(|_| by_scaling) {
                    still(cluster, after, "let a node go", out);
                }
            }
            _ => {}
        }
    }

    fn declared(&mut self, id: ClusterId, after: &State, out: &mut Vec<Violation>) {
        let Some(cluster) = after.clusters.get(&id) else { return };
        let takes = quota::held_of(after, cluster);
        let before = self.declared.insert(id, takes.clone()).unwrap_or_default();
        for (key, taken) in takes {
            // What takes no more of it than before passes, whatever the limit is by now.
            let Some(limit) = after.quotas.get(&key).copied() else { continue };
            if taken <= before.get(&key).copied().unwrap_or(0) {
                continue;
            }
            let held = after.quota_usage.get(&key).map_or(0, |usage| usage.held);
            if held > limit {
                broken(out, "Q1", format!("cluster {id} makes {held} of {limit} of {key}"));
            }
        }
    }
}

/// W1: of the nodes of an older definition one is replaced at a time.
fn one_by_one(id: NodeId, after: &State, out: &mut Vec<Violation>) {
    let by_roll = |node: &Node| node.cordon.as_ref().is_some_and(|cordon| cordon.reason.starts_with(BY_ROLL));
    let goes = |node: &Node| by_roll(node) && !matches!(node.state, NodeState::Unusable { .. });
    let Some(node) = after.nodes.get(&id).filter(|node| by_roll(node)) else { return };
    let Some(cluster) = after.clusters.get(&node.cluster) else { return };
    let others = cluster.old.iter().filter(|other| **other != id).filter_map(|id| after.nodes.get(id));
    if let Some(other) = others.into_iter().find(|node| goes(node)) {
        broken(out, "W1", format!("nodes {id} and {} are replaced at once", other.id));
    }
}

fn limits_on(state: &State, cluster: &Cluster, shape: &Shape) -> Vec<(QuotaKey, u64)> {
    let keys = quota::keys(state, cluster.workspace, &cluster.location, shape);
    keys.into_iter().filter_map(|key| state.quotas.get(&key).copied().map(|limit| (key, limit))).collect()
}

/// K1: a lock that stops scaling stops it.
fn still(cluster: &Cluster, after: &State, did: &str, out: &mut Vec<Violation>) {
    if lock::scaling_cut(after, cluster).is_some() && !cluster.is_deleting() {
        broken(out, "K1", format!("cluster {} {did} although a lock stops scaling", cluster.id));
    }
}
