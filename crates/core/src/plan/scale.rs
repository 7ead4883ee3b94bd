//! How many nodes there should be. The only place that decides to add a node, or to let one go for lack of work.
//!
//! demand = nodes with work + nodes that the waiting jobs need · target = clamp(demand, min, max), cut by what the
//! provider can give, each cut recorded · up at once, the whole gap · down when a node has been idle for the
//! cluster's idle time and the count is above what is needed · when `max` is lowered idle nodes go at once.

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
use crate::node::{Node, NodeState};
use crate::planted::{self, Bug};
use crate::queue::Order;
use crate::quota;
use crate::settings::ProviderSettings;
use crate::state::State;
use crate::units::{Capacity, Millis};
use crate::window;

/// Of whoever may have no more, so many are named.
const CUTS_TOLD_MAX: usize = 3;

pub fn scale(draft: &mut Draft, id: ClusterId, now: Millis) {
    let Some(cluster) = draft.state.clusters.get(&id) else { return };
    let locked = lock::scaling_cut(&draft.state, cluster).filter(|_| !planted::is(Bug::LockIgnored));
    let done: Vec<_> = done_with(&draft.state, cluster, locked.is_some());
    for (id, reason) in done {
        let deadline = now.plus(draft.state.settings.leave_deadline_ms);
        draft.emit(now, NodeLeaving { id, deadline, reason });
    }
    let Some(cluster) = draft.state.clusters.get(&id) else { return };
    let demand = demand(&draft.state, cluster, now);
    if let Some(cut) = locked {
        keep(draft, id, demand.nodes, vec![cut], now);
        return;
    }
    // A node that was let go may have made room for another, and one that comes may let another go. What there is money
    // for changes with each.
    let mut demand = demand;
    let cuts = loop {
        let events_before = draft.events.len();
        let cuts = step(draft, id, &demand, now);
        if draft.events.len() == events_before {
            break cuts;
        }
        if let Some(cluster) = draft.state.clusters.get(&id).filter(|_| !draft.state.budgets.is_empty()) {
            demand = self::demand(&draft.state, cluster, now);
        }
    };
    keep(draft, id, demand.nodes, cuts, now);
}

/// Lets nodes with nothing on them go while there are more than the maximum.
pub fn beyond_maximum(draft: &mut Draft, id: ClusterId, now: Millis) {
    let Some(cluster) = draft.state.clusters.get(&id).filter(|c| c.live > c.scale.max) else { return };
    let max = cluster.scale.max;
    let locked = lock::scaling_cut(&draft.state, cluster).is_some();
    if !locked || planted::is(Bug::LockIgnored) {
        shrink(draft, id, max, now);
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

/// Asks for what is missing and lets go of what is too much; says what kept it from asking for more.
fn step(draft: &mut Draft, id: ClusterId, demand: &Demand, now: Millis) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let Some(cluster) = draft.state.clusters.get(&id).cloned() else { return cuts };
    let desired = demand.nodes.clamp(cluster.scale.min, cluster.scale.max);
    if demand.nodes > cluster.scale.max {
        let max = cluster.scale.max;
        let by_window = window::cut(&cluster, demand.nodes);
        cuts.push(by_window.unwrap_or(Cut::Maximum { wanted: demand.nodes, max }));
    }
    cuts.extend(demand.held_back.clone());

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

/// Nodes needed by running and waiting work.
#[derive(Debug)]
struct Demand {
    /// Counted no further than one above the maximum.
    nodes: u32,
    /// Why some jobs ask for none.
    held_back: Vec<Cut>,
}

fn demand(state: &State, cluster: &Cluster, now: Millis) -> Demand {
    let enough = cluster.scale.max.saturating_add(1);
    let mut held_back = Vec::new();
    let mut packing = Packing::on(cluster.busy);
    let mut order = Order::new(state, cluster);
    let mut gate = Gate::new(state);
    while packing.nodes < enough
        && let Some(job) = order.next()
    {
        if let Some(cut) = gate.holds(cluster, job) {
            if held_back.len() < CUTS_TOLD_MAX {
                held_back.push(cut);
            }
            order.pass_over();
            continue;
        }
        if let Some(cut) = budget::bars(state, cluster, job, now) {
            if held_back.len() < CUTS_TOLD_MAX && !held_back.contains(&cut) {
                held_back.push(cut);
            }
            continue;
        }
        gate.lets(cluster, job);
        match job.need {
            // It cannot have them all, so it needs none.
            Need::Whole if job.nodes > 1 && job.nodes > cluster.scale.max => {}
            Need::Whole if job.nodes > 1 && job.nodes > nodes_ever(state, cluster) => {
                let max = nodes_ever(state, cluster);
                held_back.push(Cut::ProviderAtOnce { wanted: job.nodes, max });
            }
            // It lets another one go first, and so does what is behind it.
            Need::Whole if job.nodes > 1 && is_held_back(state, cluster, job, packing.nodes, now) => {
                let max = nodes_ever(state, cluster);
                held_back.push(Cut::ProviderAtOnce { wanted: job.nodes, max });
                break;
            }
            // Nodes that wait for each other cost money: it asks for none before there is enough for all.
            Need::Whole if short_of_money(state, cluster, job, packing.nodes, now).is_some() => {
                held_back.extend(short_of_money(state, cluster, job, packing.nodes, now));
            }
            Need::Whole | Need::Share(_) => packing.add(job, cluster.shape.nominal),
        }
    }
    Demand { nodes: packing.nodes, held_back }
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
        let waits_for_room = job.nodes > 1 && job.nodes <= cluster.scale.max;
        // Who waits for money stands in nobody's way.
        let has_money = || {
            short_of_money(state, cluster, job, 0, state.now).is_none()
                && budget::bars(state, cluster, job, state.now).is_none()
        };
        (waits_for_room && has_money()).then_some((cluster, job))
    };
    let mut waiting: Vec<_> = state.waiting_for_room.iter().filter_map(next).collect();
    waiting.sort_by_key(|(_, job)| job.id);
    let can_have = |(cluster, job): &(&Arc<Cluster>, &Arc<Job>)| {
        let kept: u32 = state.clusters.values().filter(|c| c.id != cluster.id).map(|c| c.scale.min).sum();
        let provider = provider_nodes_ever(state, cluster.shape.nominal).saturating_sub(kept);
        let there: u32 = state
            .clusters
            .values()
            .filter(|c| c.id != cluster.id && c.location == cluster.location)
            .map(|c| c.scale.min)
            .sum();
        let location =
            location::nodes_ever(state, &cluster.location, cluster.shape.nominal).saturating_sub(there);
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
    let location = location::nodes_free(state, &cluster.location, cluster.shape.nominal);
    provider_nodes_free(state, cluster.shape.nominal).min(location).min(quota::nodes_free(state, cluster))
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
    let may_cause = |id: &JobId| {
        let job = draft.state.jobs.get(id);
        job.is_some_and(|job| budget::bars(&draft.state, cluster, job, now).is_none())
    };
    let waiting: Vec<JobId> =
        cluster.queue.iter().map(|key| key.job).filter(may_cause).take(gap as usize).collect();
    for at in 0..gap as usize {
        if let Some(cut) = node_cut(&draft.state, cluster) {
            cuts.push(cut);
            return;
        }
        let cause = waiting.get(at).or(waiting.last()).copied();
        let lease = match budget::grant(&draft.state, cluster, cause, now) {
            Ok(lease) => lease,
            Err(cut) => {
                if !cuts.contains(&cut) {
                    cuts.push(cut);
                }
                // Another's job may have the money, if the cluster has.
                if budget::nodes_cut(&draft.state, cluster, 1, now).is_some() {
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
                nominal: cluster.shape.nominal,
                shape: None,
                cause,
                deadline,
                reason: reason.clone(),
                lease,
            },
        );
    }
}

/// Why a cluster can have no further node, if so: quota, then its location, then the provider.
pub fn node_cut(state: &State, cluster: &Cluster) -> Option<Cut> {
    let quota = quota::node_cut(state, cluster).filter(|_| !planted::is(Bug::QuotaPassed));
    let location = || location::cut(state, cluster).filter(|_| !planted::is(Bug::LocationPassed));
    quota.or_else(location).or_else(|| provider_cut(state, cluster.shape.nominal))
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
