//! T1: nodes and jobs keep to their tiers. Also what is counted of a mixed cluster's parts.

use std::sync::Arc;

use super::{Violation, broken};
use crate::cluster::{Cluster, Tier};
use crate::event::Event;
use crate::mix::{self, Part};
use crate::node::Node;
use crate::plan;
use crate::state::State;

/// N1, of mixed clusters: each node is in the part of its tier, and counted there as it is counted in the whole.
pub fn n1_parts_are_counted(state: &State, out: &mut Vec<Violation>) {
    for cluster in state.clusters.values() {
        let Some(mix) = &cluster.mix else { continue };
        for tier in [Tier::Dedicated, Tier::LowPriority] {
            let expect = counted(state, cluster, tier);
            if *mix.part(tier) != expect {
                let kept = mix.part(tier);
                broken(
                    out,
                    "N1",
                    format!("cluster {} has {expect:?} of {tier:?} and keeps {kept:?}", cluster.id),
                );
            }
        }
    }
}

fn counted(state: &State, cluster: &Cluster, tier: Tier) -> Part {
    let mut part = Part::default();
    let nodes: Vec<&Arc<Node>> = state.nodes_of(cluster).filter(|node| node.shape.tier == tier).collect();
    for node in nodes {
        let busy = node.is_live() && !node.attempts.is_empty();
        part.nodes.insert(node.id);
        part.live += u32::from(node.is_live());
        part.busy += u32::from(busy);
        let serves_nobody = node.is_live() && !busy && (node.silent || node.cordon.is_some());
        part.unheard += u32::from(serves_nobody);
        if node.is_placeable() && node.attempts.is_empty() {
            part.idle.insert(node.id);
        }
        if cluster.open.contains(&node.id) {
            part.open.insert(node.id);
        }
    }
    part
}

/// T1: a job is on nodes of the tier that it chose, no tier has more nodes asked for than there may be of it, and only low
/// priority is taken back for dedicated work, which then gets the room.
pub(super) fn observe(event: &Event, after: &State, out: &mut Vec<Violation>) {
    match event {
        Event::JobPlaced(e) => {
            let Some(job) = after.jobs.get(&e.id) else { return };
            let Some(cluster) = after.clusters.get(&job.cluster).filter(|c| c.mix.is_some()) else { return };
            let nodes = std::iter::once(e.node).chain(e.others.iter().copied());
            let tiers: Vec<Tier> =
                nodes.filter_map(|id| after.nodes.get(&id)).map(|node| node.shape.tier).collect();
            let wanted = job.tier();
            if tiers.iter().any(|tier| wanted.is_some_and(|wanted| wanted != *tier)) {
                broken(
                    out,
                    "T1",
                    format!("job {} wants {wanted:?} on cluster {} and got {tiers:?}", job.id, cluster.id),
                );
            }
            if tiers.windows(2).any(|pair| pair[0] != pair[1]) {
                broken(out, "T1", format!("job {} has nodes of both tiers", job.id));
            }
        }
        Event::NodeRequested(e) => {
            let (Some(cluster), Some(node)) = (after.clusters.get(&e.cluster), after.nodes.get(&e.id)) else {
                return;
            };
            let Some(part) = mix::parts(cluster).into_iter().nth(mix::part_of(cluster, &node.shape)) else {
                return;
            };
            let (dedicated, low) = mix::maximums(cluster, cluster.scale);
            let most = match node.shape.tier {
                Tier::Dedicated => dedicated,
                Tier::LowPriority => low,
            };
            if cluster.mix.is_some() && part.live > most {
                let live = part.live;
                broken(out, "T1", format!("node {} makes {live} of {most} {:?}", e.id, node.shape.tier));
            }
            if plan::took_claimed_room(after, node) {
                broken(out, "T1", format!("low-priority node {} takes the room of dedicated work", e.id));
            }
        }
        Event::NodePreempted(e) => {
            let Some(node) = after.nodes.get(&e.id) else { return };
            if e.reason.starts_with("dedicated work") && node.shape.tier == Tier::Dedicated {
                broken(out, "T1", format!("dedicated node {} was taken back for dedicated work", e.id));
            }
        }
        _ => {}
    }
}
