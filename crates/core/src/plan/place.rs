//! Waiting jobs onto free nodes, strictly in queue order: a job that does not fit yet is not overtaken. A job on several
//! nodes is placed when it can have them all.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::draft::Draft;
use crate::event::JobPlaced;
use crate::ids::{ClusterId, NodeId};
use crate::job::{Job, Need};
use crate::planted::{self, Bug};
use crate::state::State;
use crate::units::{Capacity, Millis};

/// True if the budget ended before the queue or the room did.
pub fn place(draft: &mut Draft, id: ClusterId, now: Millis, budget: usize) -> bool {
    let mut search = Search::default();
    for _ in 0..budget {
        let Some((job, node)) = next_placement(&draft.state, id, &mut search) else { return false };
        let attempt = job.attempts_made + 1;
        let others = others(&draft.state, job, node);
        draft.emit(now, JobPlaced { id: job.id, attempt, node, others });
    }
    next_placement(&draft.state, id, &mut search).is_some()
}

fn next_placement<'a>(state: &'a State, id: ClusterId, search: &mut Search) -> Option<(&'a Job, NodeId)> {
    let cluster = state.clusters.get(&id)?;
    let mut job = state.jobs.get(&cluster.queue.get_min()?.job)?;
    if planted::is(Bug::GangOvertaken) && cluster.idle.len() < job.nodes as usize {
        job = state.jobs.get(&cluster.queue.iter().nth(1)?.job)?;
    }
    let node = match job.need {
        Need::Whole if cluster.idle.len() < job.nodes as usize => None,
        Need::Whole => cluster.idle.get_min().copied(),
        // Fill nodes that are shared already before breaking into a free one.
        Need::Share(share) => {
            let shared = search.shared(state, cluster, share);
            debug_assert_eq!(shared, cluster.open.iter().copied().find(|node| has_room(state, *node, share)));
            shared.or_else(|| search.break_into(cluster))
        }
    }?;
    Some((job, node))
}

/// The nodes of the ranks from 1 on.
fn others(state: &State, job: &Job, first: NodeId) -> Vec<NodeId> {
    if job.nodes <= 1 {
        return Vec::new();
    }
    let idle = state.clusters.get(&job.cluster).into_iter().flat_map(|cluster| cluster.idle.iter());
    let wanted = job.nodes as usize - 1 - usize::from(planted::is(Bug::GangHalfPlaced));
    idle.copied().filter(|node| *node != first).take(wanted).collect()
}

fn has_room(state: &State, node: NodeId, share: Capacity) -> bool {
    state.nodes.get(&node).is_some_and(|node| node.free().fits(share))
}

/// Finds the first shared node with room, without looking at full ones again and again. Within one pass nodes only fill
/// up: where there was no room for a share there will be none, but for nodes that were broken into since.
#[derive(Debug, Default)]
struct Search {
    shares: BTreeMap<(u32, u64, u32), Seen>,
    broken_into: Vec<NodeId>,
}

/// What is known about one share.
#[derive(Debug)]
struct Seen {
    /// Shared nodes below have no room, but for `fresh`.
    from: NodeId,
    fresh: BTreeSet<NodeId>,
    /// How many of those broken into have been looked at.
    news: usize,
}

impl Search {
    fn shared(&mut self, state: &State, cluster: &Cluster, share: Capacity) -> Option<NodeId> {
        let seen = self.shares.entry((share.cpus_milli, share.memory_mb, share.gpus)).or_insert_with(|| {
            Seen { from: NodeId(0), fresh: BTreeSet::new(), news: self.broken_into.len() }
        });
        let news = self.broken_into[seen.news..].iter().copied();
        seen.fresh.extend(news.filter(|node| *node < seen.from));
        seen.news = self.broken_into.len();
        while let Some(node) = seen.fresh.first().copied() {
            if has_room(state, node, share) {
                return Some(node);
            }
            seen.fresh.pop_first();
        }
        let found = cluster.open.range(seen.from..).copied().find(|node| has_room(state, *node, share));
        seen.from = found.unwrap_or(NodeId(u64::MAX));
        found
    }

    fn break_into(&mut self, cluster: &Cluster) -> Option<NodeId> {
        let node = cluster.idle.get_min().copied()?;
        self.broken_into.push(node);
        Some(node)
    }
}
