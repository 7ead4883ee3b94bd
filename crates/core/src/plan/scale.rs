//! How many nodes there should be. The only place that decides to add a node, or to let one go for lack of work.
//!
//! demand = nodes with work + nodes that the waiting jobs need · target = clamp(demand, min, max), cut by what the
//! provider can give, each cut recorded · up at once, the whole gap · down when a node has been idle for the
//! cluster's idle time and the count is above what is needed · when `max` is lowered idle nodes go at once.

use std::sync::Arc;

use crate::cluster::{Cluster, Cut};
use crate::draft::Draft;
use crate::event::{ClusterTarget, NodeLeaving, NodeRequested};
use crate::ids::ClusterId;
use crate::job::Need;
use crate::planted::{self, Bug};
use crate::state::State;
use crate::units::{Capacity, Millis};

pub fn scale(draft: &mut Draft, id: ClusterId, now: Millis) {
    let Some(cluster) = draft.state.clusters.get(&id) else { return };
    let demand = demand(&draft.state, cluster);
    // A node that was let go may have made room for another, and one that comes may let another go.
    let cuts = loop {
        let events_before = draft.events.len();
        let cuts = step(draft, id, demand, now);
        if draft.events.len() == events_before {
            break cuts;
        }
    };
    let Some(after) = draft.state.clusters.get(&id) else { return };
    let target = after.live.min(after.scale.max);
    if after.target != target || after.cuts != cuts {
        draft.emit(now, ClusterTarget { id, target, demand, cuts });
    }
}

/// Asks for what is missing and lets go of what is too much; says what kept it from asking for more.
fn step(draft: &mut Draft, id: ClusterId, demand: u32, now: Millis) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let Some(cluster) = draft.state.clusters.get(&id).cloned() else { return cuts };
    let desired = demand.clamp(cluster.scale.min, cluster.scale.max);
    if demand > cluster.scale.max {
        cuts.push(Cut::Maximum { wanted: demand, max: cluster.scale.max });
    }

    // A node that nobody hears of serves nobody, but it still counts against the maximum.
    let serving = cluster.live - cluster.unheard;
    if serving < desired {
        let gap = if planted::is(Bug::MaxIgnored) {
            desired - serving
        } else {
            (desired - serving).min(cluster.scale.max.saturating_sub(cluster.live))
        };
        grow(draft, &cluster, gap, now, &mut cuts);
    }
    shrink(draft, id, desired, now);
    cuts
}

/// Nodes needed by running and waiting work; counted no further than one above the maximum.
fn demand(state: &State, cluster: &Cluster) -> u32 {
    let enough = cluster.scale.max.saturating_add(1);
    let mut nodes = cluster.busy;
    let mut room = Capacity::default();
    for key in &cluster.queue {
        if nodes >= enough {
            break;
        }
        match state.jobs.get(&key.job).map(|job| (job.need, job.nodes)) {
            None => {}
            // It cannot have them all, so it needs none, and nothing behind it is placed either.
            Some((Need::Whole, several)) if several > cluster.scale.max && several > 1 => break,
            Some((Need::Whole, several)) => nodes = nodes.saturating_add(several),
            Some((Need::Share(share), _)) if room.fits(share) => room = room.minus(share),
            Some((Need::Share(share), _)) => {
                nodes += 1;
                room = cluster.shape.nominal.minus(share);
            }
        }
    }
    nodes
}

fn grow(draft: &mut Draft, cluster: &Cluster, gap: u32, now: Millis, cuts: &mut Vec<Cut>) {
    if let Some(retry_at) = cluster.boot.retry_at.filter(|at| *at > now) {
        cuts.push(Cut::BootBackoff { failures: cluster.boot.failures, retry_at });
        return;
    }
    let reason: Arc<str> = if cluster.queue.is_empty() {
        format!("min_instances is {}", cluster.scale.min).into()
    } else {
        format!("{} jobs wait", cluster.queue.len()).into()
    };
    for _ in 0..gap {
        if let Some(cut) = provider_cut(&draft.state, cluster.shape.nominal) {
            cuts.push(cut);
            return;
        }
        let deadline = now.plus(draft.state.settings.create_deadline_ms);
        let id = draft.state.next.node;
        draft.emit(
            now,
            NodeRequested {
                id,
                cluster: cluster.id,
                nominal: cluster.shape.nominal,
                deadline,
                reason: reason.clone(),
            },
        );
    }
}

/// Why the provider can make no further node, if so.
pub fn provider_cut(state: &State, nominal: Capacity) -> Option<Cut> {
    let provider = &state.settings.provider;
    let in_use = u32::try_from(state.nodes.len()).unwrap_or(u32::MAX);
    if in_use >= provider.nodes_max {
        return Some(Cut::ProviderNodes { in_use, max: provider.nodes_max });
    }
    if let Some(machine) = provider.machine.filter(|_| provider.strict) {
        let free = machine.minus(state.provided);
        // A size larger than the machine gives what the machine has; it still needs all of it.
        let needed = nominal.min(machine);
        if !free.fits(needed) {
            return Some(Cut::ProviderCapacity { free, needed });
        }
    }
    None
}

/// Lets idle nodes go: at once when there are more than `max`, after their idle time otherwise. Unheard ones first,
/// and never so many that fewer than `desired` can serve.
fn shrink(draft: &mut Draft, id: ClusterId, desired: u32, now: Millis) {
    let Some(cluster) = draft.state.clusters.get(&id).filter(|c| c.live > desired).cloned() else { return };
    let mut live = cluster.live;
    let mut serving = cluster.live - cluster.unheard;
    // Below `max` only idle nodes may go; those that are heard have an index, so that busy ones cost nothing.
    let candidates =
        if live > cluster.scale.max || cluster.unheard > 0 { &cluster.nodes } else { &cluster.idle };
    let mut spare: Vec<_> = candidates
        .iter()
        .filter_map(|id| draft.state.nodes.get(id))
        .filter(|node| node.is_live() && (node.attempts.is_empty() || planted::is(Bug::BusyNodeRemoved)))
        .cloned()
        .collect();
    spare.sort_by_key(|node| (!node.silent, node.id));
    for node in spare {
        if live <= desired {
            return;
        }
        let reason: Arc<str> = if live > cluster.scale.max {
            format!("max_instances was lowered to {}", cluster.scale.max).into()
        } else if !node.silent && serving <= desired {
            continue;
        } else if node.is_idle() && now >= node.since.plus(cluster.scale.idle_ms) {
            format!("idle for {} s", now.since(node.since) / 1000).into()
        } else {
            continue;
        };
        let deadline = now.plus(draft.state.settings.leave_deadline_ms);
        draft.emit(now, NodeLeaving { id: node.id, deadline, reason });
        live -= 1;
        serving -= u32::from(!node.silent);
    }
}
