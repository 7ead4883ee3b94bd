//! Dedicated work that the provider has no room for takes low-priority nodes back. What it frees is kept for it: until it
//! has its nodes, low priority asks for none that would take the room again.
//!
//! Nothing is taken that does not help, and no more than is wanted: nodes that are on their way out count as room.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::cluster::{Cluster, Cut, Tier};
use crate::decide::preempt;
use crate::draft::Draft;
use crate::ids::{ClusterId, NodeId};
use crate::limits::RECLAIM_GRACE_MS;
use crate::mix;
use crate::node::{Node, NodeState};
use crate::plan::scale::counted;
use crate::state::State;
use crate::units::{Capacity, Millis};

/// What the provider has, or would have, for nodes in one location.
#[derive(Clone, Copy, Debug)]
struct Room<'a> {
    state: &'a State,
    location: &'a str,
    nodes: u32,
    /// Without a machine of its own there is no end to it.
    machine: Option<Capacity>,
    /// Of the location, where it has a limit.
    nodes_there: Option<u32>,
    cpus_milli_there: Option<u64>,
}

/// What one node takes: of the machine what is counted, of its location its cores.
#[derive(Clone, Copy, Debug)]
struct Each {
    machine: Capacity,
    cpus_milli: u64,
}

impl<'a> Room<'a> {
    fn free(state: &'a State, location: &'a str) -> Self {
        let provider = &state.settings.provider;
        let in_use = u32::try_from(state.nodes.len()).unwrap_or(u32::MAX);
        let place = state.settings.places.get(location);
        let given = state.given.get(location).copied().unwrap_or_default();
        let cores = place.and_then(|place| place.cores_max);
        Self {
            state,
            location,
            nodes: provider.nodes_max.saturating_sub(in_use),
            machine: provider.machine.map(|machine| machine.minus(state.provided)),
            nodes_there: place.and_then(|place| place.nodes_max).map(|max| max.saturating_sub(given.nodes)),
            cpus_milli_there: cores.map(|max| max.saturating_mul(1_000).saturating_sub(given.cpus_milli)),
        }
    }

    fn is_there(self, node: &Node) -> bool {
        self.state.clusters.get(&node.cluster).is_some_and(|cluster| *cluster.location == *self.location)
    }

    fn with(self, node: &Node) -> Self {
        let (there, cpus) = (u32::from(self.is_there(node)), u64::from(node.nominal.cpus_milli));
        Self {
            nodes: self.nodes.saturating_add(1),
            machine: self.machine.map(|machine| machine.plus(node.nominal)),
            nodes_there: self.nodes_there.map(|nodes| nodes.saturating_add(there)),
            cpus_milli_there: self.cpus_milli_there.map(|free| free + cpus * u64::from(there)),
            ..self
        }
    }

    /// With one node less, which may be in another location.
    fn without(self, each: Each, location: &str) -> Self {
        let there = u32::from(self.location == location);
        Self {
            nodes: self.nodes.saturating_sub(1),
            machine: self.machine.map(|machine| machine.minus(each.machine)),
            nodes_there: self.nodes_there.map(|nodes| nodes.saturating_sub(there)),
            cpus_milli_there: self
                .cpus_milli_there
                .map(|free| free.saturating_sub(each.cpus_milli * u64::from(there))),
            ..self
        }
    }

    fn fits(self, each: Each) -> bool {
        self.nodes > 0
            && self.machine.is_none_or(|machine| machine.fits(each.machine))
            && self.nodes_there.is_none_or(|nodes| nodes > 0)
            && self.cpus_milli_there.is_none_or(|free| free >= each.cpus_milli)
    }

    /// Whether a node's going would bring nearer what is missing.
    fn is_helped_by(self, node: &Node, each: Each) -> bool {
        let of_machine = |machine: Capacity| {
            (machine.cpus_milli < each.machine.cpus_milli && node.nominal.cpus_milli > 0)
                || (machine.memory_mb < each.machine.memory_mb && node.nominal.memory_mb > 0)
                || (machine.gpus < each.machine.gpus && node.nominal.gpus > 0)
        };
        let of_place =
            self.nodes_there == Some(0) || self.cpus_milli_there.is_some_and(|free| free < each.cpus_milli);
        self.nodes == 0 || self.machine.is_some_and(of_machine) || (of_place && self.is_there(node))
    }
}

/// What one node of this size takes of the provider.
fn each(state: &State, nominal: Capacity) -> Each {
    let provider = &state.settings.provider;
    let most = provider.machine.map_or(nominal, |machine| nominal.min(machine));
    Each { machine: counted(provider, most), cpus_milli: nominal.cpus_milli.into() }
}

/// With what is on its way out, and is gone soon.
fn soon<'a>(state: &'a State, location: &'a str) -> Room<'a> {
    let goes =
        |node: &&Arc<Node>| matches!(node.state, NodeState::Leaving { .. } | NodeState::Preempted { .. });
    state.nodes.values().filter(goes).fold(Room::free(state, location), |room, node| room.with(node))
}

fn can_be_taken(node: &Node) -> bool {
    node.is_live() && node.shape.tier == Tier::LowPriority
}

/// Takes back what makes room for `wanted` further nodes of a dedicated part, as far as that is possible. Says that they
/// are wanted, where there is low priority at all.
pub(super) fn take_back(draft: &mut Draft, part: &Cluster, wanted: u32, now: Millis) -> Option<Cut> {
    if part.shape.tier != Tier::Dedicated || wanted == 0 {
        return None;
    }
    let low = |cluster: &Arc<Cluster>| cluster.shape.tier == Tier::LowPriority;
    if !draft.state.clusters.values().any(low) {
        return None;
    }
    let reason: Arc<str> = format!("dedicated work on compute '{}' needs the room", part.name).into();
    for id in victims(&draft.state, part, wanted) {
        let Some(node) = draft.state.nodes.get(&id).cloned() else { continue };
        for event in preempt(&draft.state, &node, RECLAIM_GRACE_MS, reason.clone(), now) {
            draft.emit(now, event);
        }
    }
    Some(Cut::RoomWanted { nodes: wanted })
}

/// Which low-priority nodes go, those with the least to lose first.
fn victims(state: &State, part: &Cluster, wanted: u32) -> Vec<NodeId> {
    let each = each(state, part.shape.nominal);
    let mut room = soon(state, &part.location);
    let mut left: Vec<&Arc<Node>> = state.nodes.values().filter(|node| can_be_taken(node)).collect();
    left.sort_by_key(|node| (!node.attempts.is_empty(), Reverse(began(state, node)), Reverse(node.id)));
    let mut taken = Vec::new();
    for _ in 0..wanted {
        let (mut with, mut rest, mut for_it) = (room, left.clone(), Vec::new());
        while !with.fits(each) {
            let Some(at) = rest.iter().position(|node| with.is_helped_by(node, each)) else { return taken };
            let node = rest.remove(at);
            with = with.with(node);
            for_it.push(node.id);
        }
        taken.append(&mut for_it);
        (room, left) = (with.without(each, &part.location), rest);
    }
    taken
}

/// When the work on a node began.
fn began(state: &State, node: &Node) -> Millis {
    let attempts = node.attempts.iter().filter_map(|id| state.jobs.get(&id.job)?.attempt());
    attempts.map(|attempt| attempt.since).min().unwrap_or(node.since)
}

/// Why a low-priority part may have no further node though there were room: dedicated work waits for that room, and can
/// have it.
pub(crate) fn yields(state: &State, part: &Cluster) -> Option<Cut> {
    if part.shape.tier != Tier::LowPriority {
        return None;
    }
    let can_have = |cluster: &&Arc<Cluster>| {
        let low = state.nodes.values().filter(|node| can_be_taken(node));
        let reach = low.fold(soon(state, &cluster.location), |room, node| room.with(node));
        reach.fits(each(state, cluster.shape.nominal))
    };
    let mut to = state.waiting_for_room.iter().filter_map(|id| claims(state, *id));
    to.find(|cluster| competes(state, part, cluster) && can_have(cluster))
        .map(|cluster| Cut::Yields { to: cluster.name.clone() })
}

/// Whether a low-priority node that was just asked for took the place of dedicated work that could have had it.
pub(crate) fn took_claimed_room(after: &State, node: &Node) -> bool {
    let mut claims = after.waiting_for_room.iter().filter_map(|id| claims(after, *id));
    node.shape.tier == Tier::LowPriority
        && claims.any(|cluster| {
            let free = Room::free(after, &cluster.location);
            let each = each(after, cluster.shape.nominal);
            !free.fits(each) && free.with(node).fits(each)
        })
}

fn claims(state: &State, id: ClusterId) -> Option<&Arc<Cluster>> {
    let waits = |cluster: &&Arc<Cluster>| {
        !cluster.is_deleting()
            && !cluster.queue.is_empty()
            && cluster.wants_room()
            && mix::maximums(cluster, cluster.scale).0 > 0
    };
    state.clusters.get(&id).filter(waits)
}

/// Whether a node of one takes what a node of the other is missing.
fn competes(state: &State, low: &Cluster, wants: &Cluster) -> bool {
    let free = Room::free(state, &wants.location);
    let (takes, wanted) = (each(state, low.shape.nominal), each(state, wants.shape.nominal));
    let after = free.without(takes, &low.location);
    // There is room for both.
    if after.fits(wanted) && free.nodes > 0 {
        return false;
    }
    let of_machine = |machine: Capacity| {
        (takes.machine.cpus_milli > 0 && machine.cpus_milli < wanted.machine.cpus_milli)
            || (takes.machine.memory_mb > 0 && machine.memory_mb < wanted.machine.memory_mb)
            || (takes.machine.gpus > 0 && machine.gpus < wanted.machine.gpus)
    };
    let of_place = low.location == wants.location
        && (after.nodes_there == Some(0)
            || after.cpus_milli_there.is_some_and(|left| left < wanted.cpus_milli));
    after.nodes == 0 || after.machine.is_some_and(of_machine) || of_place
}
