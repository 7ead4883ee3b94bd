//! Waiting jobs onto free nodes, strictly in queue order: a job that does not fit yet is not overtaken.

use crate::draft::Draft;
use crate::event::JobPlaced;
use crate::ids::{ClusterId, NodeId};
use crate::job::{Job, Need};
use crate::state::State;
use crate::units::Millis;

/// True if the budget ended before the queue or the room did.
pub fn place(draft: &mut Draft, id: ClusterId, now: Millis, budget: usize) -> bool {
    for _ in 0..budget {
        let Some((job, node)) = next_placement(&draft.state, id) else { return false };
        let attempt = job.attempts_made + 1;
        draft.emit(now, JobPlaced { id: job.id, attempt, node });
    }
    next_placement(&draft.state, id).is_some()
}

fn next_placement(state: &State, id: ClusterId) -> Option<(&Job, NodeId)> {
    let cluster = state.clusters.get(&id)?;
    let job = state.jobs.get(&cluster.queue.get_min()?.job)?;
    let node = match job.need {
        Need::Whole => cluster.idle.get_min().copied(),
        // Fill nodes that are shared already before breaking into a free one.
        Need::Share(share) => cluster
            .open
            .iter()
            .find(|node| state.nodes.get(*node).is_some_and(|n| n.free().fits(share)))
            .or_else(|| cluster.idle.get_min())
            .copied(),
    }?;
    Some((job, node))
}
