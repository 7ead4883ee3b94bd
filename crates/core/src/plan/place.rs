//! Waiting jobs onto free nodes, in the order of the queue. The first that does not fit yet is promised its nodes; those
//! behind it may go before it only where that promise is kept. A job on several nodes is placed when it can have them
//! all.

use std::collections::{BTreeMap, BTreeSet};

use crate::allowance::Gate;
use crate::budget;
use crate::cluster::Cluster;
use crate::draft::Draft;
use crate::event::{JobPlaced, MoneyLeased};
use crate::ids::{ClusterId, NodeId};
use crate::job::{Job, Need};
use crate::limits::BACKFILL_LOOKED_AT_MAX;
use crate::plan::reserve::{Passing, Reservation};
use crate::plan::scale::{is_startable, short_of_money};
use crate::planted::{self, Bug};
use crate::queue::Order;
use crate::state::State;
use crate::units::{Capacity, Millis};

/// True if the budget ended before the queue or the room did.
pub fn place(draft: &mut Draft, id: ClusterId, now: Millis, budget: usize) -> bool {
    let mut left = budget;
    loop {
        match pass(draft, id, now, &mut left) {
            Pass::Again => {}
            Pass::Done { more } => return more,
        }
    }
}

enum Pass {
    Done {
        more: bool,
    },
    /// With the first that is placed it is said anew what everybody has used, and so whose turn it is.
    Again,
}

fn pass(draft: &mut Draft, id: ClusterId, now: Millis, left: &mut usize) -> Pass {
    let before = draft.state.clone();
    let Some(cluster) = before.clusters.get(&id) else { return Pass::Done { more: false } };
    let mut order = Order::new(&before, cluster).charging_only_what_is_placed();
    let mut gate = Gate::new(&before);
    let mut search = Search::default();
    let mut promised: Option<Reservation> = None;
    let mut looked_at = 0;
    while has_any_room(&draft.state, id) && looked_at < BACKFILL_LOOKED_AT_MAX {
        let Some(job) = order.next() else { break };
        if gate.holds(cluster, job).is_some() {
            order.pass_over();
            continue;
        }
        // Who waits for money holds nobody up, and neither do jobs of the same owner that others pay for.
        if budget::bars(&draft.state, cluster, job, now).is_some() {
            continue;
        }
        if *left == 0 {
            return Pass::Done { more: true };
        }
        let found = find(&draft.state, job, &mut search);
        let passing = match (found, &mut promised) {
            (Some(node), None) => Some((node, Passing::Free)),
            (Some(node), Some(promised)) => go_before(&draft.state, job, node, promised, now),
            (None, _) => None,
        };
        if let Some((node, how)) = passing {
            if !emit(draft, job, node, how, &mut search, now) {
                continue;
            }
            *left -= 1;
            if cluster.shares_at != now && cluster.lanes.len() > 1 {
                return Pass::Again;
            }
            gate.lets(cluster, job);
            order.placed();
            continue;
        }
        looked_at += 1;
        let startable = is_startable(&draft.state, cluster, job)
            && short_of_money(&draft.state, cluster, job, 0, now).is_none();
        if promised.is_none() && startable && !planted::is(Bug::GangOvertaken) {
            let Some(cluster) = draft.state.clusters.get(&id) else { break };
            promised = Some(Reservation::of(&draft.state, cluster, job, now));
        }
    }
    Pass::Done { more: false }
}

/// False if there is no money for it.
fn emit(draft: &mut Draft, job: &Job, node: NodeId, how: Passing, search: &mut Search, now: Millis) -> bool {
    let others = others(&draft.state, job, node);
    let nodes: Vec<NodeId> = std::iter::once(node).chain(others.iter().copied()).collect();
    let Some(leases) = budget::admission(&draft.state, job, &nodes, now) else { return false };
    for (node, lease) in leases {
        draft.emit(now, MoneyLeased { node, lease });
    }
    let until = match how {
        Passing::Free => None,
        Passing::Until(until) => Some(until),
    };
    let was_free = draft.state.nodes.get(&node).is_some_and(|node| node.attempts.is_empty());
    draft.emit(now, JobPlaced { id: job.id, attempt: job.attempts_made + 1, node, others, until });
    if was_free && matches!(job.need, Need::Share(_)) {
        search.broken_into.push(node);
    }
    true
}

/// Where a job may go before the one that is first, and until when: where it would go, or on another shared node.
fn go_before(
    state: &State,
    job: &Job,
    node: NodeId,
    promised: &mut Reservation,
    now: Millis,
) -> Option<(NodeId, Passing)> {
    if let Some(how) = promised.lets(state, job, node, now) {
        return Some((node, how));
    }
    let Need::Share(share) = job.need else { return None };
    let cluster = state.clusters.get(&job.cluster)?;
    let mut others = cluster.open.iter().copied().filter(|other| *other != node);
    let other = others.find(|other| has_room(state, *other, share))?;
    promised.lets(state, job, other, now).map(|how| (other, how))
}

fn has_any_room(state: &State, id: ClusterId) -> bool {
    state.clusters.get(&id).is_some_and(|cluster| !cluster.idle.is_empty() || !cluster.open.is_empty())
}

/// Where a job would go now; for one on several nodes, its first.
fn find(state: &State, job: &Job, search: &mut Search) -> Option<NodeId> {
    let cluster = state.clusters.get(&job.cluster)?;
    match job.need {
        Need::Whole if cluster.idle.len() < job.nodes as usize => None,
        Need::Whole => cluster.idle.get_min().copied(),
        // Fill nodes that are shared already before breaking into a free one.
        Need::Share(share) => {
            let shared = search.shared(state, cluster, share);
            debug_assert_eq!(shared, cluster.open.iter().copied().find(|node| has_room(state, *node, share)));
            // Nodes of an older definition may be smaller.
            match cluster.old.is_empty() {
                true => shared.or_else(|| cluster.idle.get_min().copied()),
                false => {
                    shared.or_else(|| cluster.idle.iter().copied().find(|node| has_room(state, *node, share)))
                }
            }
        }
    }
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
}
