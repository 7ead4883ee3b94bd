//! The end of a cluster, of a workspace, and of the day: jobs first, then nodes, then the thing itself.

use std::sync::Arc;

use crate::cluster::ClusterPhase;
use crate::decide::cancel_events;
use crate::draft::Draft;
use crate::event::{
    ClusterDeleteRequested, ClusterDeleted, ClusterTarget, JobCancelRequested, NodeLeaving, ScheduleDeleted,
    WorkspaceDeleted,
};
use crate::ids::{ClusterId, NodeId, WorkspaceId};
use crate::node::NodeState;
use crate::planted::{self, Bug};
use crate::units::Millis;

/// One pass at a cluster that is being deleted. True if the budget ended first.
pub fn cluster(draft: &mut Draft, id: ClusterId, now: Millis, budget: usize) -> bool {
    let Some(cluster) = draft.state.clusters.get(&id).cloned() else { return false };
    debug_assert!(matches!(cluster.phase, ClusterPhase::Deleting { .. }));
    let reason: Arc<str> = format!("The compute '{}' was deleted.", cluster.name).into();
    let jobs = cluster.queue.iter().map(|key| key.job);
    let jobs = jobs.chain(cluster.waiting.iter().copied()).chain(cluster.active.iter().copied());
    let mut room = budget;
    for job in jobs {
        let Some(job) = draft.state.jobs.get(&job).filter(|job| job.cancel.is_none()).cloned() else {
            continue;
        };
        let events = cancel_events(&draft.state, &job, reason.clone(), now);
        if room < events.len() {
            return true;
        }
        room -= events.len();
        for event in events {
            draft.emit(now, event);
        }
    }
    leave_unused(draft, id, &reason, now);
    let Some(cluster) = draft.state.clusters.get(&id) else { return false };
    let idle = cluster.active.is_empty() && cluster.queue.is_empty() && cluster.waiting.is_empty();
    let unused = cluster.nodes.is_empty() && idle;
    if unused || planted::is(Bug::ClusterDeletedEarly) {
        draft.emit(now, ClusterDeleted { id });
    }
    false
}

/// One pass at a cluster while the server is being stopped: whatever has no work goes.
pub fn drain(draft: &mut Draft, id: ClusterId, now: Millis) {
    leave_unused(draft, id, &"the server is being stopped".into(), now);
    let Some(cluster) = draft.state.clusters.get(&id) else { return };
    let cuts = vec![crate::cluster::Cut::Draining];
    let target = cluster.live.min(cluster.scale.max);
    if cluster.cuts != cuts || cluster.target != target {
        draft.emit(now, ClusterTarget { id, target, demand: 0, cuts });
    }
}

fn leave_unused(draft: &mut Draft, id: ClusterId, reason: &Arc<str>, now: Millis) {
    let Some(cluster) = draft.state.clusters.get(&id) else { return };
    let unused: Vec<NodeId> = draft
        .state
        .nodes_of(cluster)
        .filter(|node| node.attempts.is_empty() && !matches!(node.state, NodeState::Leaving { .. }))
        .map(|node| node.id)
        .collect();
    let deadline = now.plus(draft.state.settings.leave_deadline_ms);
    for id in unused {
        draft.emit(now, NodeLeaving { id, deadline, reason: reason.clone() });
    }
}

/// A workspace that is being deleted: its schedules, its families of jobs and its clusters go first.
pub fn workspace(draft: &mut Draft, id: WorkspaceId, now: Millis) {
    let Some(workspace) = draft.state.workspaces.get(&id).filter(|w| w.deleting).cloned() else { return };
    let schedules: Vec<_> = draft.state.schedules_of(id).map(|schedule| schedule.id).collect();
    for schedule in schedules {
        draft.emit(now, ScheduleDeleted { id: schedule });
    }
    let families: Vec<_> = draft
        .state
        .families
        .values()
        .filter(|f| f.workspace == id)
        .map(|f| (f.id, f.cancel.is_some()))
        .collect();
    for (family, ending) in &families {
        if !ending {
            let reason = format!("The workspace '{}' was deleted.", workspace.name).into();
            draft.emit(now, JobCancelRequested { id: *family, reason });
        }
    }
    let clusters: Vec<_> = draft.state.clusters_of(id).map(|c| (c.id, c.is_deleting())).collect();
    if clusters.is_empty() && families.is_empty() {
        draft.emit(now, WorkspaceDeleted { id });
        return;
    }
    for (cluster, deleting) in clusters {
        if !deleting {
            let reason = format!("The workspace '{}' was deleted.", workspace.name).into();
            draft.emit(now, ClusterDeleteRequested { id: cluster, reason });
        }
    }
}
