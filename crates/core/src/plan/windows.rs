//! What a cluster's windows make of its scale from now on; and, where a window asks for it, the end of what runs beyond.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::decide::preempt;
use crate::draft::Draft;
use crate::event::ClusterScheduled;
use crate::ids::{ClusterId, NodeId};
use crate::lock;
use crate::mix;
use crate::node::{Node, NodeState};
use crate::planted::{self, Bug};
use crate::state::State;
use crate::units::Millis;
use crate::window;

/// Minimum and maximum as they are now. Says it once, and when to look again.
pub fn hold(draft: &mut Draft, id: ClusterId, now: Millis) {
    let Some(cluster) = draft.state.clusters.get(&id) else { return };
    if cluster.windows.is_empty()
        && cluster.scheduled == Default::default()
        && cluster.scale == cluster.declared
    {
        return;
    }
    let (scale, scheduled) = window::in_force(cluster.declared, &cluster.windows, now);
    if planted::is(Bug::WindowNeverCloses) && scale.max > cluster.scale.max {
        return;
    }
    if scale == cluster.scale && scheduled == cluster.scheduled {
        return;
    }
    draft.emit(
        now,
        ClusterScheduled {
            id,
            min: scale.min,
            max: scale.max,
            min_by: scheduled.min_by,
            max_by: scheduled.max_by,
            until: scheduled.until,
            next: scheduled.next,
        },
    );
}

/// Where the window that holds the maximum asks for it, nodes beyond are taken back: those first that have worked least.
pub fn stop(draft: &mut Draft, id: ClusterId, now: Millis) {
    while let Some((node, reason)) = too_many(&draft.state, id) {
        let Some(node) = draft.state.nodes.get(&node).cloned() else { return };
        let grace_ms = draft.state.settings.stop_grace_ms;
        for event in preempt(&draft.state, &node, grace_ms, reason, now) {
            draft.emit(now, event);
        }
    }
}

fn too_many(state: &State, id: ClusterId) -> Option<(NodeId, Arc<str>)> {
    let cluster = state.clusters.get(&id)?;
    let holder = cluster.scheduled.max_by.as_deref()?;
    let stops = cluster.windows.get(&*holder.to_lowercase()).is_some_and(|window| window.stops);
    if !stops || lock::scaling_cut(state, cluster).is_some() {
        return None;
    }
    // Nodes with nothing on them go first. Of a mixed cluster each tier has a maximum of its own.
    let parts = mix::parts(cluster);
    let part = parts.iter().find(|part| part.busy > part.scale.max)?;
    let reason = format!("the schedule '{holder}' holds max_instances at {}", cluster.scale.max);
    least_to_lose(state, part).map(|node| (node.id, reason.into()))
}

fn least_to_lose<'a>(state: &'a State, cluster: &'a Cluster) -> Option<&'a Arc<Node>> {
    let since = |node: &Node| {
        let attempts = node.attempts.iter().filter_map(|id| state.jobs.get(&id.job)?.attempt());
        attempts.map(|attempt| attempt.since).min()
    };
    let busy = |node: &&Arc<Node>| node.state == NodeState::Ready && !node.attempts.is_empty();
    state.nodes_of(cluster).filter(busy).max_by_key(|node| (since(node), node.id))
}
