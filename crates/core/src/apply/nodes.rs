//! Nodes: kept with their timers, and with where they stand in their cluster's indices.

use std::sync::Arc;

use super::clusters::with_cluster;
use super::{governance, money};
use crate::cluster::{Cluster, Tier};
use crate::event;
use crate::ids::NodeId;
use crate::location::Given;
use crate::meter::Payer;
use crate::mix::{Floor, Mix, Part};
use crate::node::{Node, NodeState};
use crate::state::{State, Timer};
use crate::units::{Capacity, Millis};

pub(super) fn requested(state: &mut State, at: Millis, e: &event::NodeRequested) {
    let cluster = state.clusters.get(&e.cluster).cloned();
    let Some(shape) = e.shape.clone().or_else(|| cluster.as_ref().map(|c| c.shape.clone())) else { return };
    let make = cluster.as_ref().map_or_else(|| "".into(), |cluster| cluster.make.clone());
    if let Some(cluster) = cluster {
        governance::count_node(state, &cluster, &shape, 1);
        give(state, &cluster.location, e.nominal, 1);
    }
    let node = Node {
        id: e.id,
        cluster: e.cluster,
        state: NodeState::Requested { deadline: e.deadline },
        since: at,
        reason: e.reason.clone(),
        shape,
        make,
        requested: at,
        metered: at,
        lease: e.lease,
        costs_until: None,
        caused_by: e.cause.and_then(|job| state.jobs.get(&job)).map(|job| Payer::of(state, job)),
        last: None,
        nominal: e.nominal,
        actual: None,
        used: Capacity::default(),
        exclusive: false,
        attempts: Vec::new(),
        silent: false,
        cordon: None,
    };
    state.nodes.insert(e.id, Arc::new(node));
    state.next.node = state.next.node.max(e.id.next());
    state.provided = state.provided.plus(e.nominal);
    let standing = state.nodes.get(&e.id).map(|node| Standing::of(node));
    with_cluster(state, e.cluster, |cluster| {
        cluster.nodes.insert(e.id);
        if let Some(standing) = standing {
            standing.enter(cluster, e.id);
        }
    });
    time_node(state, e.id);
    money::time_lease(state, e.id);
}

pub(super) fn enter(state: &mut State, at: Millis, id: NodeId, next: NodeState, reason: &str) {
    with_node(state, id, |node| {
        node.state = next;
        node.since = at;
        node.reason = reason.into();
    });
}

pub(super) fn gone(state: &mut State, id: NodeId) {
    untime_node(state, id);
    money::untime(state, id);
    let Some(node) = state.nodes.remove(&id) else { return };
    state.provided = state.provided.minus(node.nominal);
    if let Some(cluster) = state.clusters.get(&node.cluster).cloned() {
        governance::count_node(state, &cluster, &node.shape, -1);
        give(state, &cluster.location, node.nominal, -1);
    }
    let standing = Standing::of(&node);
    with_cluster(state, node.cluster, |cluster| {
        standing.leave(cluster, id);
        cluster.nodes.remove(&id);
        cluster.old.remove(&id);
    });
}

/// What a node takes of its location is counted (`sign` 1) or no longer (`sign` -1).
fn give(state: &mut State, location: &Arc<str>, nominal: Capacity, sign: i64) {
    let mut given = state.given.get(location).copied().unwrap_or_default();
    let cpus_milli = u64::from(nominal.cpus_milli);
    if sign > 0 {
        given.nodes += 1;
        given.cpus_milli += cpus_milli;
    } else {
        given.nodes = given.nodes.saturating_sub(1);
        given.cpus_milli = given.cpus_milli.saturating_sub(cpus_milli);
    }
    if given == Given::default() {
        state.given.remove(location);
    } else {
        state.given.insert(location.clone(), given);
    }
}

/// Changes a node and keeps everything that is counted or timed by it.
pub(super) fn with_node<T>(state: &mut State, id: NodeId, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
    untime_node(state, id);
    let node = Arc::make_mut(state.nodes.get_mut(&id)?);
    let before = Standing::of(node);
    let result = change(node);
    let after = Standing::of(node);
    let cluster = node.cluster;
    if before != after {
        with_cluster(state, cluster, |cluster| {
            before.leave(cluster, id);
            after.enter(cluster, id);
        });
    }
    time_node(state, id);
    Some(result)
}

/// Where a node stands in its cluster's indices.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing {
    live: bool,
    busy: bool,
    unheard: bool,
    idle: bool,
    open: bool,
    done: bool,
    tier: Tier,
}

impl Standing {
    fn of(node: &Node) -> Self {
        let live = node.is_live();
        let busy = live && !node.attempts.is_empty();
        let placeable = node.is_placeable();
        Self {
            live,
            busy,
            unheard: live && !busy && (node.silent || node.cordon.is_some()),
            idle: placeable && node.attempts.is_empty(),
            open: placeable && busy && !node.exclusive && node.free().cpus_milli > 0,
            done: node.is_done(),
            tier: node.shape.tier,
        }
    }

    fn leave(self, cluster: &mut Cluster, id: NodeId) {
        cluster.live -= u32::from(self.live);
        cluster.busy -= u32::from(self.busy);
        cluster.unheard -= u32::from(self.unheard);
        if self.idle {
            cluster.idle.remove(&id);
        }
        if self.open {
            cluster.open.remove(&id);
        }
        if self.done {
            cluster.done.remove(&id);
        }
        if let Some(mix) = &mut cluster.mix {
            self.leave_part(mix.part_mut(self.tier), id);
        }
    }

    fn leave_part(self, part: &mut Part, id: NodeId) {
        part.live -= u32::from(self.live);
        part.busy -= u32::from(self.busy);
        part.unheard -= u32::from(self.unheard);
        part.idle.remove(&id);
        part.open.remove(&id);
        part.nodes.remove(&id);
    }

    fn enter_part(self, part: &mut Part, id: NodeId) {
        part.live += u32::from(self.live);
        part.busy += u32::from(self.busy);
        part.unheard += u32::from(self.unheard);
        part.nodes.insert(id);
        if self.idle {
            part.idle.insert(id);
        }
        if self.open {
            part.open.insert(id);
        }
    }

    fn enter(self, cluster: &mut Cluster, id: NodeId) {
        cluster.live += u32::from(self.live);
        cluster.busy += u32::from(self.busy);
        cluster.unheard += u32::from(self.unheard);
        if self.idle {
            cluster.idle.insert(id);
        }
        if self.open {
            cluster.open.insert(id);
        }
        if self.done {
            cluster.done.insert(id);
        }
        if let Some(mix) = &mut cluster.mix {
            self.enter_part(mix.part_mut(self.tier), id);
        }
    }
}

/// A cluster's nodes by tier, as it is once it has this floor; without one, as they are counted.
pub(super) fn mixed(state: &State, cluster: &Cluster, floor: Option<&Floor>) -> Option<Mix> {
    let Some(floor) = floor else { return cluster.mix.clone() };
    let mut mix = Mix::of(floor.clone());
    for node in state.nodes_of(cluster) {
        Standing::of(node).enter_part(mix.part_mut(node.shape.tier), node.id);
    }
    Some(mix)
}

/// When a node next needs a look: its state's deadline, or the end of its idle time.
pub fn node_timer(state: &State, node: &Node) -> Option<Millis> {
    if node.is_idle() {
        let idle_ms = state.clusters.get(&node.cluster)?.scale.idle_ms;
        Some(node.since.plus(idle_ms))
    } else {
        node.state.deadline()
    }
}

pub(super) fn time_node(state: &mut State, id: NodeId) {
    if let Some(at) = state.nodes.get(&id).and_then(|node| node_timer(state, node)) {
        state.timers.insert((at, Timer::Node(id)));
    }
}

pub(super) fn untime_node(state: &mut State, id: NodeId) {
    if let Some(at) = state.nodes.get(&id).and_then(|node| node_timer(state, node)) {
        state.timers.remove(&(at, Timer::Node(id)));
    }
}
