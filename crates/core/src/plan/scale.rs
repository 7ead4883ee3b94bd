//! How many nodes there should be. The only place that decides to add a node, or to let one go for lack of work.
//!
//! demand = nodes with work + nodes that the waiting jobs need · target = clamp(demand, min, max), cut by what the
//! provider can give, each cut recorded · up at once, the whole gap · down when a node has been idle for the
//! cluster's idle time and the count is above what is needed · when `max` is lowered idle nodes go at once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::allowance::Gate;
use crate::budget;
use crate::cluster::{Cluster, Cut};
use crate::draft::Draft;
use crate::event::{ClusterTarget, NodeLeaving, NodeRequested};
use crate::ids::{ClusterId, JobId, NodeId};
use crate::job::{Job, Need};
use crate::location;
use crate::lock;
use crate::mix;
use crate::node::{Node, NodeState};
use crate::plan::reclaim;
use crate::planted::{self, Bug};
use crate::queue::Order;
use crate::quota;
use crate::settings::ProviderSettings;
use crate::state::State;
use crate::units::{Capacity, Millis, jobs_wait};
use crate::window;

/// Of whoever may have no more, so many are named.
const CUTS_TOLD_MAX: usize = 3;
/// Of a mixed cluster's waiting jobs so many are looked at for who causes a node.
const CAUSES_LOOKED_AT_MAX: usize = 10_000;

/// Of one cluster's parts that look at each other's wishes, in one pass: in truth one or two.
const ROUNDS_MAX: usize = 3;

pub fn scale(draft: &mut Draft, id: ClusterId, now: Millis) {
    for _ in 0..ROUNDS_MAX {
        let wants_room = |draft: &Draft| draft.state.clusters.get(&id).is_some_and(|c| c.wants_room());
        let before = wants_room(draft);
        scale_once(draft, id, now);
        let is_mixed = draft.state.clusters.get(&id).is_some_and(|cluster| cluster.mix.is_some());
        // Its low priority lets its own floor go first.
        if !is_mixed || wants_room(draft) == before {
            return;
        }
    }
}

/// Lets nodes go that are only there to go. Returns what a lock keeps the scale from, if one does.
pub fn release_finished(draft: &mut Draft, id: ClusterId, now: Millis) -> Option<Cut> {
    let cluster = draft.state.clusters.get(&id)?;
    let locked = lock::scaling_cut(&draft.state, cluster).filter(|_| !planted::is(Bug::LockIgnored));
    let done: Vec<_> = done_with(&draft.state, cluster, locked.is_some());
    for (id, reason) in done {
        let deadline = now.plus(draft.state.settings.leave_deadline_ms);
        draft.emit(now, NodeLeaving { id, deadline, reason });
    }
    locked
}

fn scale_once(draft: &mut Draft, id: ClusterId, now: Millis) {
    let locked = release_finished(draft, id, now);
    let Some(cluster) = draft.state.clusters.get(&id) else { return };
    let mut demands = demand(&draft.state, cluster, now);
    if let Some(cut) = locked {
        keep(draft, id, wanted(&demands), vec![cut], now);
        return;
    }
    // A node that was let go may have made room for another, and one that comes may let another go. What there is money
    // for changes with each, and so does which part of a mixed cluster has room.
    let cuts = loop {
        let events_before = draft.events.len();
        let mut cuts = Vec::new();
        for (at, demand) in demands.iter().enumerate() {
            step(draft, id, at, demand, now, &mut cuts);
        }
        if draft.events.len() == events_before {
            break cuts;
        }
        let again = |cluster: &&Arc<Cluster>| !draft.state.budgets.is_empty() || cluster.mix.is_some();
        if let Some(cluster) = draft.state.clusters.get(&id).filter(again) {
            demands = demand(&draft.state, cluster, now);
        }
    };
    keep(draft, id, wanted(&demands), cuts, now);
}

fn wanted(demands: &[Demand]) -> u32 {
    demands.iter().fold(0, |sum: u32, demand| sum.saturating_add(demand.nodes))
}

/// Lets nodes with nothing on them go while there are more than the maximum, of a mixed cluster more than that of their tier.
pub fn beyond_maximum(draft: &mut Draft, id: ClusterId, now: Millis) {
    let may_have = |cluster: &&Arc<Cluster>| cluster.mix.is_some() || cluster.live > cluster.scale.max;
    let Some(cluster) = draft.state.clusters.get(&id).filter(may_have) else { return };
    let (cluster, locked) = (cluster.clone(), lock::scaling_cut(&draft.state, cluster).is_some());
    if !locked || planted::is(Bug::LockIgnored) {
        for part in mix::parts(&cluster) {
            shrink(draft, &part, part.scale.max, now);
        }
    }
}

/// Nodes with nothing on them that are only there to go. A lock keeps those that somebody drains; what is taken back is
/// taken, lock or no lock.
fn done_with(state: &State, cluster: &Cluster, locked: bool) -> Vec<(NodeId, Arc<str>)> {
    let done = cluster.done.iter().filter_map(|id| state.nodes.get(id));
    let goes = |node: &&Arc<Node>| !locked || matches!(node.state, NodeState::Preempted { .. });
    let reason = |node: &Arc<Node>| match &node.cordon {
        Some(cordon) if cordon.leave => cordon.reason.clone(),
        _ => node.reason.clone(),
    };
    done.filter(goes).map(|node| (node.id, reason(node))).collect()
}

/// What there is becomes the target, and what kept it from being more is recorded.
fn keep(draft: &mut Draft, id: ClusterId, demand: u32, cuts: Vec<Cut>, now: Millis) {
    let Some(cluster) = draft.state.clusters.get(&id) else { return };
    let target = cluster.live.min(cluster.scale.max);
    if cluster.target != target || cluster.cuts != cuts {
        draft.emit(now, ClusterTarget { id, target, demand, cuts });
    }
}

/// Asks for what one part of a cluster is missing and lets go of what is too much; says what kept it from asking for more.
fn step(draft: &mut Draft, id: ClusterId, at: usize, demand: &Demand, now: Millis, cuts: &mut Vec<Cut>) {
    let Some(cluster) = draft.state.clusters.get(&id).cloned() else { return };
    let Some(part) = mix::parts(&cluster).into_iter().nth(at) else { return };
    let (min, max) = (part.scale.min, part.scale.max);
    let desired = demand.nodes.clamp(min, max);
    if demand.nodes > max {
        cuts.push(window::cut(&cluster, &part, demand.nodes).unwrap_or(match cluster.mix {
            None => Cut::Maximum { wanted: demand.nodes, max },
            Some(_) => Cut::TierMaximum { tier: part.shape.tier, wanted: demand.nodes, max },
        }));
    }
    for cut in &demand.held_back {
        if !cuts.contains(cut) {
            cuts.push(cut.clone());
        }
    }

    // A node that nobody hears of serves nobody, but it still counts against the maximum.
    let serving = part.live - part.unheard;
    let asked_for = demand.granted.clamp(min, max);
    if serving < asked_for {
        let gap = if planted::is(Bug::MaxIgnored) {
            asked_for - serving
        } else {
            (asked_for - serving).min(max.saturating_sub(part.live))
        };
        grow(draft, &cluster, &part, gap, demand.firm, now, cuts);
    }
    if asked_for < desired
        && let Some(cut) = node_cut(&draft.state, &part).filter(|cut| !cuts.contains(cut))
    {
        cuts.push(cut);
    }
    let Some(cluster) = draft.state.clusters.get(&id).cloned() else { return };
    if let Some(part) = mix::parts(&cluster).into_iter().nth(at) {
        shrink(draft, &part, desired, now);
    }
}

/// Nodes needed by running and waiting work, in one part of a cluster.
#[derive(Debug)]
struct Demand {
    /// Counted no further than one above the maximum.
    nodes: u32,
    /// So many may be asked for: beyond, the room of both parts is for somebody who comes before, in the other.
    granted: u32,
    /// How many of them wait for nodes of this part alone.
    firm: u32,
    /// Why some jobs ask for none.
    held_back: Vec<Cut>,
}

/// One part of a cluster, while the jobs are counted.
struct Counting<'a> {
    part: Cow<'a, Cluster>,
    packing: Packing,
    firm: u32,
    granted: u32,
    serving: u32,
    /// It may have so many that serve: what is asked for beyond, either part might have.
    room: u32,
    /// The same, as far as only its own limits are in the way.
    own_room: u32,
    /// What is behind is not counted.
    closed: bool,
}

impl<'a> Counting<'a> {
    fn of(state: &State, part: Cow<'a, Cluster>, mixed: bool, now: Millis) -> Self {
        let serving = part.live - part.unheard;
        let upto = |free: u32| part.scale.max.min(serving.saturating_add(free));
        let (room, own_room) = match mixed {
            false => (u32::MAX, u32::MAX),
            // Where a limit keeps this part small, what may have either tier goes to the other.
            true if budget::nodes_cut(state, &part, 1, now).is_some() => (serving, serving),
            true => (upto(nodes_free(state, &part)), upto(quota::nodes_free(state, &part))),
        };
        let packing = Packing::on(part.busy);
        Self { granted: packing.nodes, packing, serving, part, firm: 0, room, own_room, closed: false }
    }

    /// What it takes of the room that both parts have, with so many nodes.
    fn takes(&self, nodes: u32) -> u32 {
        nodes.min(self.own_room).saturating_sub(self.serving)
    }

    fn is_enough(&self) -> bool {
        self.closed || self.packing.nodes > self.part.scale.max
    }

    fn with(&self, job: &Job) -> u32 {
        let mut with = self.packing;
        with.add(job, self.part.shape.nominal);
        with.nodes
    }

    fn has_room(&self, state: &State, job: &Job, now: Millis) -> bool {
        !self.closed && self.with(job) <= self.room && budget::bars(state, &self.part, job, now).is_none()
    }
}

/// Of a mixed cluster, in the order of the queue: the dedicated floor first, then low priority.
fn demand(state: &State, cluster: &Cluster, now: Millis) -> Vec<Demand> {
    let mixed = cluster.mix.is_some();
    let mut sides: Vec<_> =
        mix::parts(cluster).into_iter().map(|part| Counting::of(state, part, mixed, now)).collect();
    let mut held_back = Vec::new();
    let mut order = Order::new(state, cluster);
    let mut gate = Gate::new(state);
    // In the order of the queue, until one does not have all it needs: that one has what there is.
    let shared = if mixed { nodes_shared(state, cluster) } else { u32::MAX };
    let mut used_up = false;
    while !sides.iter().all(Counting::is_enough)
        && let Some(job) = order.next()
    {
        if let Some(cut) = gate.holds(cluster, job) {
            if held_back.len() < CUTS_TOLD_MAX {
                held_back.push(cut);
            }
            order.pass_over();
            continue;
        }
        // With room in none of those that it may be in, it is counted where a limit is in the way, else in the last.
        let may: Vec<usize> =
            (0..sides.len()).filter(|at| mix::takes(cluster, &sides[*at].part, job)).collect();
        let chosen = may.iter().copied().find(|at| may.len() > 1 && sides[*at].has_room(state, job, now));
        let limited = || {
            let fits = |at: &usize| sides[*at].with(job) <= sides[*at].part.scale.max;
            may.iter().copied().find(|at| may.len() > 1 && fits(at))
        };
        let Some(at) = chosen.or_else(limited).or(may.last().copied()) else { continue };
        let part = &sides[at].part;
        if let Some(cut) = budget::bars(state, part, job, now) {
            if held_back.len() < CUTS_TOLD_MAX && !held_back.contains(&cut) {
                held_back.push(cut);
            }
            continue;
        }
        gate.lets(cluster, job);
        let ahead = sides[at].packing.nodes;
        match job.need {
            // It cannot have them all, so it needs none.
            Need::Whole if job.nodes > 1 && job.nodes > part.scale.max => {}
            Need::Whole if job.nodes > 1 && job.nodes > nodes_ever(state, part) => {
                held_back.push(quota::gang_cut(state, part, job.nodes).unwrap_or_else(|| {
                    Cut::ProviderAtOnce { wanted: job.nodes, max: nodes_ever(state, part) }
                }));
            }
            // It lets another one go first, and so does what is behind it.
            Need::Whole if job.nodes > 1 && is_held_back(state, part, job, ahead, now) => {
                let max = nodes_ever(state, part);
                held_back.push(Cut::ProviderAtOnce { wanted: job.nodes, max });
                sides[at].closed = true;
            }
            // Nodes that wait for each other cost money: it asks for none before there is enough for all.
            Need::Whole if short_of_money(state, part, job, ahead, now).is_some() => {
                held_back.extend(short_of_money(state, part, job, ahead, now));
            }
            Need::Whole | Need::Share(_) => {
                let nominal = part.shape.nominal;
                sides[at].packing.add(job, nominal);
                if may.len() == 1 {
                    sides[at].firm += sides[at].packing.nodes - ahead;
                }
                if !used_up {
                    let taken = sides.iter().map(|side| side.takes(side.packing.nodes)).sum::<u32>();
                    let beyond = taken.saturating_sub(shared);
                    used_up = beyond > 0;
                    // What may have either takes nothing from those before it; what is firm may have it freed.
                    let left_out = if may.len() > 1 { beyond } else { 0 };
                    sides[at].granted = sides[at].packing.nodes.saturating_sub(left_out).max(ahead);
                }
            }
        }
        if mixed {
            close(&sides, &mut order);
        }
    }
    let of = |side: Counting<'_>| Demand {
        nodes: side.packing.nodes,
        granted: side.granted,
        firm: side.firm,
        held_back: held_back.clone(),
    };
    sides.into_iter().map(of).collect()
}

/// Whoever can only be counted where enough is counted is not looked at.
fn close(sides: &[Counting<'_>], order: &mut Order<'_>) {
    for side in sides.iter().filter(|side| side.is_enough()) {
        order.close(Some(side.part.shape.tier));
    }
    let full = |side: &Counting<'_>| side.closed || side.packing.nodes >= side.room;
    if sides.iter().all(full) && sides.last().is_some_and(Counting::is_enough) {
        order.close(None);
    }
}

/// How many nodes jobs need, one after the other, beside those that have work already.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    pub nodes: u32,
    /// On the last of them.
    room: Capacity,
}

impl Packing {
    pub fn on(busy: u32) -> Self {
        Self { nodes: busy, room: Capacity::default() }
    }

    pub fn add(&mut self, job: &Job, nominal: Capacity) {
        match job.need {
            Need::Whole => self.nodes = self.nodes.saturating_add(job.nodes),
            Need::Share(share) if self.room.fits(share) => self.room = self.room.minus(share),
            Need::Share(share) => {
                self.nodes = self.nodes.saturating_add(1);
                self.room = nominal.minus(share);
            }
        }
    }
}

/// Why the nodes that a job on several of them still lacks cannot be paid for all at once.
pub(super) fn short_of_money(
    state: &State,
    cluster: &Cluster,
    job: &Job,
    ahead: u32,
    now: Millis,
) -> Option<Cut> {
    if job.nodes <= 1 || state.budgets.is_empty() {
        return None;
    }
    let missing = ahead.saturating_add(job.nodes).saturating_sub(cluster.live - cluster.unheard);
    budget::nodes_cut(state, cluster, missing, now)
}

/// A job on several nodes keeps those it has until it has them all. Where the provider has no room for that, two of them
/// in two clusters could wait for each other for ever; so the later one holds nothing as long as the earlier one waits.
fn is_held_back(state: &State, cluster: &Cluster, job: &Job, ahead: u32, now: Millis) -> bool {
    let missing = ahead
        .saturating_add(job.nodes)
        .saturating_sub(cluster.live - cluster.unheard)
        .min(cluster.scale.max.saturating_sub(cluster.live));
    // Where nodes fail to start, that is what it waits for.
    let asks = cluster.boot.retry_at.is_none_or(|at| at <= now);
    asks && missing > nodes_free(state, cluster)
        && first_for_room(state).is_some_and(|first| first.cluster != cluster.id && first.id < job.id)
}

/// Of the jobs on several nodes that are next in their cluster and wait for room, the earliest that can have it: once
/// nobody else has more than its minimum.
pub(super) fn first_for_room(state: &State) -> Option<&Job> {
    let next = |id: &ClusterId| {
        let cluster = state.clusters.get(id).filter(|cluster| !cluster.is_deleting())?;
        let job = state.jobs.get(&cluster.queue.get_min()?.job)?;
        let mut parts = mix::parts_for(cluster, job).into_iter().map(|(_, part)| part);
        let cluster = parts.find(|part| job.nodes > 1 && job.nodes <= part.scale.max)?;
        // Who waits for money stands in nobody's way.
        let has_money = || {
            short_of_money(state, &cluster, job, 0, state.now).is_none()
                && budget::bars(state, &cluster, job, state.now).is_none()
        };
        has_money().then_some((cluster, job))
    };
    let mut waiting: Vec<_> = state.waiting_for_room.iter().filter_map(next).collect();
    waiting.sort_by_key(|(_, job)| job.id);
    let can_have = |(cluster, job): &(Cow<'_, Cluster>, &Arc<Job>)| {
        let kept = |there: bool| -> u32 {
            let counted = state.clusters.values().filter(|c| !there || c.location == cluster.location);
            counted.map(|c| c.scale.min).sum::<u32>().saturating_sub(cluster.scale.min)
        };
        let provider = provider_nodes_ever(state, cluster.shape.nominal).saturating_sub(kept(false));
        let location = location::nodes_ever(state, &cluster.location, cluster.shape.nominal);
        let location = location.saturating_sub(kept(true));
        job.nodes <= provider.min(location).min(quota::nodes_beside_minimums(state, cluster))
    };
    waiting.into_iter().find(can_have).map(|(_, job)| &**job)
}

/// How many nodes a cluster could ever have at once, whatever its maximum.
pub fn nodes_ever(state: &State, cluster: &Cluster) -> u32 {
    let location = location::nodes_ever(state, &cluster.location, cluster.shape.nominal);
    provider_nodes_ever(state, cluster.shape.nominal).min(location).min(quota::nodes_ever(state, cluster))
}

/// How many nodes of this size the provider could ever have at once.
pub fn provider_nodes_ever(state: &State, nominal: Capacity) -> u32 {
    let provider = &state.settings.provider;
    let Some(machine) = provider.machine else { return provider.nodes_max };
    provider.nodes_max.min(times(machine, counted(provider, nominal.min(machine))))
}

/// Whether a job can be placed at all, with the nodes that its cluster may have.
pub(super) fn is_startable(state: &State, cluster: &Cluster, job: &Job) -> bool {
    job.nodes <= cluster.scale.max && (job.nodes == 1 || job.nodes <= nodes_ever(state, cluster))
}

/// How many more it could have now.
pub(super) fn nodes_free(state: &State, cluster: &Cluster) -> u32 {
    if reclaim::yields(state, cluster).is_some() {
        return 0;
    }
    let location = location::nodes_free(state, &cluster.location, cluster.shape.nominal);
    provider_nodes_free(state, cluster.shape.nominal).min(location).min(quota::nodes_free(state, cluster))
}

/// How many more nodes of whichever tier there is room for.
fn nodes_shared(state: &State, cluster: &Cluster) -> u32 {
    let nominal = cluster.shape.nominal;
    provider_nodes_free(state, nominal).min(location::nodes_free(state, &cluster.location, nominal))
}

fn provider_nodes_free(state: &State, nominal: Capacity) -> u32 {
    let provider = &state.settings.provider;
    let in_use = u32::try_from(state.nodes.len()).unwrap_or(u32::MAX);
    let free = provider.nodes_max.saturating_sub(in_use);
    let Some(machine) = provider.machine else { return free };
    free.min(times(machine.minus(state.provided), counted(provider, nominal.min(machine))))
}

/// What of a node's capacity must be free on the machine: cores and memory where it is asked to be strict, GPUs always,
/// since one is never in two nodes.
pub(crate) fn counted(provider: &ProviderSettings, each: Capacity) -> Capacity {
    if provider.strict { each } else { Capacity { gpus: each.gpus, ..Capacity::default() } }
}

fn times(room: Capacity, each: Capacity) -> u32 {
    let times = |room: u64, each: u64| room.checked_div(each).unwrap_or(u64::MAX);
    let least = times(room.cpus_milli.into(), each.cpus_milli.into())
        .min(times(room.memory_mb, each.memory_mb))
        .min(times(room.gpus.into(), each.gpus.into()));
    u32::try_from(least).unwrap_or(u32::MAX)
}

fn grow(
    draft: &mut Draft,
    cluster: &Cluster,
    part: &Cluster,
    gap: u32,
    firm: u32,
    now: Millis,
    cuts: &mut Vec<Cut>,
) {
    if let Some(retry_at) = cluster.boot.retry_at.filter(|at| *at > now) {
        let cut = Cut::BootBackoff { failures: cluster.boot.failures, retry_at };
        if !cuts.contains(&cut) {
            cuts.push(cut);
        }
        return;
    }
    let reason: Arc<str> = if cluster.queue.is_empty() {
        format!("min_instances is {}", cluster.scale.min).into()
    } else {
        jobs_wait(cluster.queue.len() as u64).into()
    };
    let waiting = causes(&draft.state, cluster, part, gap, now);
    for at in 0..gap {
        if let Some(cut) = node_cut(&draft.state, part) {
            let by_provider = matches!(
                cut,
                Cut::ProviderNodes { .. } | Cut::ProviderCapacity { .. } | Cut::Location { .. }
            );
            if !cuts.contains(&cut) {
                cuts.push(cut);
            }
            let cause = waiting.get(at as usize).or(waiting.last()).copied();
            if by_provider && budget::grant(&draft.state, part, cause, gap - at, now).is_ok() {
                cuts.extend(reclaim::take_back(draft, part, firm.min(gap - at), now));
            }
            return;
        }
        let cause = waiting.get(at as usize).or(waiting.last()).copied();
        let lease = match budget::grant(&draft.state, part, cause, gap - at, now) {
            Ok(lease) => lease,
            Err(cut) => {
                if !cuts.contains(&cut) {
                    cuts.push(cut);
                }
                // Another's job may have the money, if the cluster has.
                if budget::nodes_cut(&draft.state, part, 1, now).is_some() {
                    return;
                }
                continue;
            }
        };
        let deadline = now.plus(draft.state.settings.create_deadline_ms);
        let id = draft.state.next.node;
        draft.emit(
            now,
            NodeRequested {
                id,
                cluster: cluster.id,
                nominal: part.shape.nominal,
                shape: Some(part.shape.clone()).filter(|shape| *shape != cluster.shape),
                cause,
                deadline,
                reason: reason.clone(),
                lease,
            },
        );
    }
}

/// Who waits for so many further nodes: each as often as it lacks one. Who has one on its way, or free, lacks it no more.
fn causes(state: &State, cluster: &Cluster, part: &Cluster, nodes: u32, now: Millis) -> Vec<JobId> {
    let mut has: BTreeMap<JobId, usize> = BTreeMap::new();
    if !cluster.queue.is_empty() {
        let nodes = part.nodes.iter().filter_map(|id| state.nodes.get(id));
        let free = nodes.filter(|node| node.is_live() && node.attempts.is_empty());
        for payer in free.filter_map(|node| node.caused_by.as_ref()) {
            *has.entry(payer.job).or_default() += 1;
        }
    }
    let may_cause =
        |job: &&Arc<Job>| mix::takes(cluster, part, job) && budget::bars(state, part, job, now).is_none();
    let looked_at = if cluster.mix.is_some() { CAUSES_LOOKED_AT_MAX } else { usize::MAX };
    let first = cluster.queue.iter().take(looked_at).filter_map(|key| state.jobs.get(&key.job));
    let mut first = first.filter(may_cause).peekable();
    let otherwise = first.peek().map(|job| job.id);
    let lacks = |job: &Arc<Job>| (job.nodes as usize).saturating_sub(has.get(&job.id).copied().unwrap_or(0));
    let each = first.flat_map(|job| std::iter::repeat_n(job.id, lacks(job)));
    let waiting: Vec<JobId> = each.take(nodes as usize).collect();
    if waiting.is_empty() { otherwise.into_iter().collect() } else { waiting }
}

/// Why a cluster, or a part of one, can have no further node, if so: quota, then its location, then the provider, then
/// whoever goes first.
pub fn node_cut(state: &State, cluster: &Cluster) -> Option<Cut> {
    let quota = quota::node_cut(state, cluster).filter(|_| !planted::is(Bug::QuotaPassed));
    let location = || location::cut(state, cluster).filter(|_| !planted::is(Bug::LocationPassed));
    let goes_first = || reclaim::yields(state, cluster).filter(|_| !planted::is(Bug::RoomNotKept));
    quota.or_else(location).or_else(|| provider_cut(state, cluster.shape.nominal)).or_else(goes_first)
}

/// Why the provider can make no further node, if so.
fn provider_cut(state: &State, nominal: Capacity) -> Option<Cut> {
    let provider = &state.settings.provider;
    let in_use = u32::try_from(state.nodes.len()).unwrap_or(u32::MAX);
    if in_use >= provider.nodes_max {
        return Some(Cut::ProviderNodes { in_use, max: provider.nodes_max });
    }
    if let Some(machine) = provider.machine {
        let free = machine.minus(state.provided);
        // A size larger than the machine gives what the machine has; it still needs all of it.
        let needed = counted(provider, nominal.min(machine));
        if !free.fits(needed) {
            return Some(Cut::ProviderCapacity { free, needed });
        }
    }
    None
}

/// Lets idle nodes go: at once when there are more than `max`, after their idle time otherwise. Unheard ones first,
/// and never so many that fewer than `desired` can serve.
fn shrink(draft: &mut Draft, cluster: &Cluster, desired: u32, now: Millis) {
    if cluster.live <= desired {
        return;
    }
    let mut live = cluster.live;
    let mut serving = cluster.live - cluster.unheard;
    // Below `max` only idle nodes may go; those that are heard have an index, so that busy ones cost nothing.
    let candidates =
        if live > cluster.scale.max || cluster.unheard > 0 { &cluster.nodes } else { &cluster.idle };
    let mut spare: Vec<_> = candidates
        .iter()
        .filter_map(|id| draft.state.nodes.get(id))
        .filter(|node| node.cordon.is_none() || live > cluster.scale.max)
        .filter(|node| node.is_live() && (node.attempts.is_empty() || planted::is(Bug::BusyNodeRemoved)))
        .cloned()
        .collect();
    let serves = |node: &Node| !node.silent && node.cordon.is_none();
    spare.sort_by_key(|node| (serves(node), node.id));
    for node in spare {
        if live <= desired {
            return;
        }
        let reason: Arc<str> = if live > cluster.scale.max {
            match &cluster.scheduled.max_by {
                Some(name) => {
                    format!("max_instances is held at {} by the schedule '{name}'", cluster.scale.max)
                }
                None => format!("max_instances was lowered to {}", cluster.scale.max),
            }
            .into()
        } else if serves(&node) && serving <= desired {
            continue;
        } else if node.is_idle() && now >= node.since.plus(cluster.scale.idle_ms) {
            format!("idle for {} s", now.since(node.since) / 1000).into()
        } else {
            continue;
        };
        let deadline = now.plus(draft.state.settings.leave_deadline_ms);
        draft.emit(now, NodeLeaving { id: node.id, deadline, reason });
        live -= 1;
        serving -= u32::from(serves(&node));
    }
}
