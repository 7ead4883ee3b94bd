//! Clusters: their definition, what is wanted of them, and how starting their nodes goes.

use std::sync::Arc;

use super::governance;
use super::nodes::{self, time_node, untime_node};
use crate::cluster::{BootHealth, Cluster, ClusterPhase, Cut, Scale};
use crate::event;
use crate::history;
use crate::ids::{ClusterId, NodeId};
use crate::lock::LockScope;
use crate::mix::Mix;
use crate::state::{State, Timer};
use crate::units::Millis;

pub(super) fn created(state: &mut State, at: Millis, e: &event::ClusterCreated) {
    let cluster = Cluster {
        id: e.id,
        workspace: e.workspace,
        name: e.name.clone(),
        location: e.location.clone(),
        shape: e.shape.clone(),
        network: e.network.clone(),
        scale: e.scale,
        declared: e.scale,
        windows: Default::default(),
        scheduled: Default::default(),
        make: "".into(),
        mix: e.floor.clone().map(Mix::of),
        revision: 1,
        document: e.document,
        created: at,
        modified: at,
        phase: ClusterPhase::Live,
        target: 0,
        target_since: at,
        cuts: Vec::new(),
        boot: BootHealth::default(),
        nodes: Default::default(),
        live: 0,
        busy: 0,
        unheard: 0,
        old: Default::default(),
        idle: Default::default(),
        open: Default::default(),
        done: Default::default(),
        lanes: Default::default(),
        shares: Default::default(),
        shares_at: Default::default(),
        queue: Default::default(),
        waiting: Default::default(),
        active: Default::default(),
    };
    let lower: Arc<str> = e.name.to_lowercase().into();
    state.cluster_names.insert((e.location.clone(), lower.clone()), e.id);
    state.cluster_index.insert((e.workspace, lower), e.id);
    governance::count_held(state, &cluster, 1);
    state.clusters.insert(e.id, Arc::new(cluster));
    state.next.cluster = state.next.cluster.max(e.id.next());
}

pub(super) fn updated(state: &mut State, at: Millis, e: &event::ClusterUpdated) {
    let Some(cluster) = state.clusters.get(&e.id).cloned() else { return };
    governance::count_held(state, &cluster, -1);
    let mixed = nodes::mixed(state, &cluster, e.floor.as_ref());
    // An idle node's timer hangs on the cluster's idle time: take the old ones away, put the new ones in.
    let idle: Vec<NodeId> = cluster.nodes.iter().copied().collect();
    for id in &idle {
        untime_node(state, *id);
    }
    with_cluster(state, e.id, |cluster| {
        cluster.declared = e.scale;
        // Where there are windows, the plan says what is in force.
        let in_force = Scale { max: cluster.scale.max.min(e.scale.max), ..cluster.scale };
        cluster.scale = if cluster.windows.is_empty() { e.scale } else { in_force };
        cluster.scale.idle_ms = e.scale.idle_ms;
        cluster.scale.min = cluster.scale.min.min(cluster.scale.max);
        if let Some(remade) = &e.remade {
            cluster.shape = remade.shape.clone();
            cluster.make = remade.make.clone();
            cluster.network.clone_from(&remade.network);
        }
        cluster.mix = mixed;
        cluster.revision = e.revision;
        cluster.document = e.document;
        cluster.modified = at;
    });
    for id in &idle {
        time_node(state, *id);
    }
    if e.remade.is_some()
        && let Some(cluster) = state.clusters.get(&e.id)
    {
        let old =
            state.nodes_of(cluster).filter(|node| cluster.is_outdated(node)).map(|node| node.id).collect();
        with_cluster(state, e.id, |cluster| cluster.old = old);
    }
    if let Some(cluster) = state.clusters.get(&e.id).cloned() {
        governance::count_held(state, &cluster, 1);
    }
}

pub(super) fn deleted(state: &mut State, id: ClusterId) {
    set_boot(state, id, BootHealth::default());
    history::cluster_deleted(state, id);
    if let Some(cluster) = state.clusters.remove(&id) {
        cluster.scheduled.next.map(|at| state.timers.remove(&(at, Timer::Window(id))));
        let lower: Arc<str> = cluster.name.to_lowercase().into();
        state.cluster_names.remove(&(cluster.location.clone(), lower.clone()));
        state.cluster_index.remove(&(cluster.workspace, lower));
        state.waiting_for_room.remove(&id);
        state.promising.remove(&id);
        governance::count_held(state, &cluster, -1);
        governance::scope_gone(state, &LockScope::Cluster(id));
    }
}

pub(super) fn target(state: &mut State, at: Millis, e: &event::ClusterTarget) {
    if e.cuts.iter().any(Cut::is_for_room) {
        state.waiting_for_room.insert(e.id);
    } else {
        state.waiting_for_room.remove(&e.id);
    }
    with_cluster(state, e.id, |cluster| {
        if cluster.target != e.target {
            cluster.target_since = at;
        }
        cluster.target = e.target;
        cluster.cuts.clone_from(&e.cuts);
    });
}

pub(super) fn set_boot(state: &mut State, id: ClusterId, health: BootHealth) {
    let Some(cluster) = state.clusters.get(&id) else { return };
    if cluster.boot == health {
        return;
    }
    if let Some(old) = cluster.boot.retry_at {
        state.timers.remove(&(old, Timer::Cluster(id)));
    }
    if let Some(new) = health.retry_at {
        state.timers.insert((new, Timer::Cluster(id)));
    }
    with_cluster(state, id, |cluster| cluster.boot = health);
}

pub(super) fn with_cluster(state: &mut State, id: ClusterId, change: impl FnOnce(&mut Cluster)) {
    let Some(cluster) = state.clusters.get_mut(&id).map(Arc::make_mut) else { return };
    let before = cluster.minds_room();
    change(cluster);
    match (before, cluster.minds_room()) {
        (false, true) => drop(state.promising.insert(id)),
        (true, false) => drop(state.promising.remove(&id)),
        (true, true) | (false, false) => {}
    }
}
