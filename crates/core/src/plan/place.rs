//! Waiting jobs onto free nodes, in the order of the queue. The first that does not fit yet is promised its nodes; those
//! behind it may go before it only where that promise is kept. A job on several nodes is placed when it can have them
//! all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::allowance::Gate;
use crate::budget;
use crate::cluster::{Cluster, Tier};
use crate::draft::Draft;
use crate::event::{JobPlaced, MoneyLeased};
use crate::ids::{ClusterId, NodeId};
use crate::job::{Job, Need};
use crate::limits::BACKFILL_LOOKED_AT_MAX;
use crate::mix;
use crate::node::Node;
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
        let left_before = left;
        match pass(draft, id, now, &mut left) {
            Pass::Again => {}
            // Whoever was placed took what a job that was promised its nodes would have been paid for with: it may wait
            // for money now, and hold nobody up.
            Pass::Done { more: false } if left < left_before && !draft.state.budgets.is_empty() => {}
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
    let mut sides: Vec<Side> = mix::parts(cluster).iter().map(|part| Side::of(cluster, part)).collect();
    loop {
        close(&draft.state, id, &mut sides, &mut order);
        if sides.iter().all(|side| side.closed) {
            break;
        }
        let Some(job) = order.next() else { break };
        if gate.holds(cluster, job).is_some() {
            order.pass_over();
            continue;
        }
        // Who waits for money holds nobody up, and neither do jobs of the same owner that others pay for.
        let Some(now_there) = draft.state.clusters.get(&id).cloned() else { break };
        let mut parts = match planted::is(Bug::TierIgnored) {
            true => mix::parts(&now_there).into_iter().enumerate().collect(),
            false => mix::parts_for(&now_there, job),
        };
        parts.retain(|(_, part)| budget::bars(&draft.state, part, job, now).is_none());
        if parts.is_empty() {
            continue;
        }
        if *left == 0 {
            return Pass::Done { more: true };
        }
        let found = parts.iter().find_map(|(at, part)| sides[*at].find(&draft.state, part, job, now));
        if let Some((nodes, how)) = found {
            if !emit(draft, job, &nodes, how, now) {
                continue;
            }
            *left -= 1;
            if cluster.shares_at != now && cluster.lanes.len() > 1 {
                return Pass::Again;
            }
            for side in &mut sides {
                side.taken(&draft.state, job, nodes[0]);
            }
            gate.lets(cluster, job);
            order.placed();
            continue;
        }
        for (at, _) in &parts {
            sides[*at].looked_at += 1;
        }
        promise(&draft.state, job, &parts, &mut sides, now);
    }
    Pass::Done { more: false }
}

/// The first that cannot be placed in a part is promised its nodes there; one that may have them in either, where they
/// come first.
fn promise(state: &State, job: &Job, parts: &[(usize, Cow<'_, Cluster>)], sides: &mut [Side], now: Millis) {
    if planted::is(Bug::GangOvertaken) {
        return;
    }
    let open = parts.iter().filter(|(at, part)| {
        sides[*at].promised.is_none()
            && is_startable(state, part, job)
            && short_of_money(state, part, job, 0, now).is_none()
    });
    let best = open.map(|(at, part)| (*at, Reservation::of(state, part, job, now)));
    if let Some((at, reservation)) = best.min_by_key(|(at, reservation)| (reservation.comes(), *at)) {
        sides[at].promised = Some(reservation);
    }
}

/// Where there is no room, or enough were looked at, nobody else is.
fn close(state: &State, id: ClusterId, sides: &mut [Side], order: &mut Order<'_>) {
    let Some(cluster) = state.clusters.get(&id) else { return };
    let alone = sides.len() == 1;
    for (side, part) in sides.iter_mut().zip(mix::parts(cluster)) {
        let has_room = !part.idle.is_empty() || !part.open.is_empty();
        side.closed |= !has_room || side.looked_at >= BACKFILL_LOOKED_AT_MAX;
        if side.closed && !alone && !planted::is(Bug::TierIgnored) {
            order.close(Some(part.shape.tier));
        }
    }
}

/// What a pass knows of one part of a cluster.
#[derive(Debug)]
struct Side {
    /// Where there are two.
    tier: Option<Tier>,
    search: Search,
    promised: Option<Reservation>,
    looked_at: usize,
    closed: bool,
}

impl Side {
    fn of(cluster: &Cluster, part: &Cluster) -> Self {
        let tier = cluster.mix.as_ref().map(|_| part.shape.tier);
        Self { tier, search: Search::default(), promised: None, looked_at: 0, closed: false }
    }

    /// The nodes that a job would have now, its first one first, and what it must keep to.
    fn find(
        &mut self,
        state: &State,
        part: &Cluster,
        job: &Job,
        now: Millis,
    ) -> Option<(Vec<NodeId>, Passing)> {
        let node = find(state, part, job, &mut self.search, now)?;
        let (node, how) = match &mut self.promised {
            None => (node, Passing::Free),
            Some(promised) => go_before(state, part, job, node, promised, now)?,
        };
        Some((std::iter::once(node).chain(others(part, job, node)).collect(), how))
    }

    /// A job was placed, and a free node may be shared now.
    fn taken(&mut self, state: &State, job: &Job, node: NodeId) {
        let first_on_it = |node: &Arc<Node>| {
            node.attempts.len() == 1 && self.tier.is_none_or(|tier| tier == node.shape.tier)
        };
        if matches!(job.need, Need::Share(_)) && state.nodes.get(&node).is_some_and(first_on_it) {
            self.search.broken_into.push(node);
        }
    }
}

/// False if there is no money for it.
fn emit(draft: &mut Draft, job: &Job, nodes: &[NodeId], how: Passing, now: Millis) -> bool {
    let Some((node, others)) = nodes.split_first() else { return false };
    let Some(leases) = budget::admission(&draft.state, job, nodes, now) else { return false };
    for (node, lease) in leases {
        draft.emit(now, MoneyLeased { node, lease });
    }
    let until = match how {
        Passing::Free => None,
        Passing::Until(until) => Some(until),
    };
    let (attempt, others) = (job.attempts_made + 1, others.to_vec());
    draft.emit(now, JobPlaced { id: job.id, attempt, node: *node, others, until });
    true
}

/// Where a job may go before the one that is first, and until when: where it would go, or on another shared node.
fn go_before(
    state: &State,
    part: &Cluster,
    job: &Job,
    node: NodeId,
    promised: &mut Reservation,
    now: Millis,
) -> Option<(NodeId, Passing)> {
    if let Some(how) = promised.lets(state, job, node, now) {
        return Some((node, how));
    }
    let Need::Share(share) = job.need else { return None };
    let mut others = part.open.iter().copied().filter(|other| *other != node);
    let other = others.find(|other| has_room(state, *other, share, now))?;
    promised.lets(state, job, other, now).map(|how| (other, how))
}

/// Where a job would go now; for one on several nodes, its first.
fn find(state: &State, part: &Cluster, job: &Job, search: &mut Search, now: Millis) -> Option<NodeId> {
    match job.need {
        Need::Whole if part.idle.len() < job.nodes as usize => None,
        Need::Whole => part.idle.get_min().copied(),
        // Fill nodes that are shared already before breaking into a free one.
        Need::Share(share) => {
            let shared = search.shared(state, part, share, now);
            debug_assert_eq!(
                shared,
                part.open.iter().copied().find(|node| has_room(state, *node, share, now))
            );
            // Nodes of an older definition may be smaller.
            match part.old.is_empty() {
                true => shared.or_else(|| part.idle.get_min().copied()),
                false => shared
                    .or_else(|| part.idle.iter().copied().find(|node| has_room(state, *node, share, now))),
            }
        }
    }
}

/// The nodes of the ranks from 1 on.
fn others(part: &Cluster, job: &Job, first: NodeId) -> Vec<NodeId> {
    if job.nodes <= 1 {
        return Vec::new();
    }
    let wanted = job.nodes as usize - 1 - usize::from(planted::is(Bug::GangHalfPlaced));
    part.idle.iter().copied().filter(|node| *node != first).take(wanted).collect()
}

/// Whether a node takes a share now.
pub fn has_room(state: &State, node: NodeId, share: Capacity, now: Millis) -> bool {
    state.nodes.get(&node).is_some_and(|node| node.free().fits(share) && !budget::runs_out(state, node, now))
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
    fn shared(&mut self, state: &State, cluster: &Cluster, share: Capacity, now: Millis) -> Option<NodeId> {
        let seen = self.shares.entry((share.cpus_milli, share.memory_mb, share.gpus)).or_insert_with(|| {
            Seen { from: NodeId(0), fresh: BTreeSet::new(), news: self.broken_into.len() }
        });
        let news = self.broken_into[seen.news..].iter().copied();
        seen.fresh.extend(news.filter(|node| *node < seen.from));
        seen.news = self.broken_into.len();
        while let Some(node) = seen.fresh.first().copied() {
            if has_room(state, node, share, now) {
                return Some(node);
            }
            seen.fresh.pop_first();
        }
        let found = cluster.open.range(seen.from..).copied().find(|node| has_room(state, *node, share, now));
        seen.from = found.unwrap_or(NodeId(u64::MAX));
        found
    }
}
