//! What would become of a waiting job if something were not in its way: the planner itself, on a copy of the state, in a
//! world where nodes come, nothing ends and no time passes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::apply::enqueue;
use crate::decide::decide;
use crate::draft::Draft;
use crate::event::NodeGone;
use crate::ids::{ClusterId, JobId, NodeId};
use crate::node::NodeState;
use crate::plan::{Dirty, plan_into};
use crate::state::State;
use crate::unblock::Kind;
use crate::units::{Capacity, Millis};
use crate::{Command, command::Report};

/// Nodes come in so many waves at most.
const ROUNDS_MAX: usize = 16;
/// More than a job and those before it need, where it is tried out.
const PLENTY: u32 = 128;

/// Whether the job is placed with these lifted.
pub fn starts(state: &State, id: JobId, lifted: &BTreeSet<Kind>, now: Millis) -> bool {
    let Some(job) = state.jobs.get(&id) else { return false };
    let cluster = job.cluster;
    let mut draft = Draft::new(state.clone());
    lift(&mut draft.state, id, cluster, lifted);
    if lifted.contains(&Kind::Rolling) {
        let_go(&mut draft, cluster, now);
    }
    for _ in 0..ROUNDS_MAX {
        let before = draft.events.len();
        let mut dirty = Dirty { clusters: BTreeSet::from([cluster]), timers_seen: now, ..Dirty::default() };
        plan_into(&mut draft, &mut dirty, now);
        if draft.state.jobs.get(&id).is_some_and(|job| job.attempt().is_some()) {
            return true;
        }
        for node in coming(&draft.state, cluster) {
            let report = Report::NodeReady { node, actual: Capacity::default(), isolation: "".into() };
            for event in decide(&draft.state, Command::Report(report), now).unwrap_or_default() {
                draft.emit(now, event);
            }
        }
        if draft.events.len() == before {
            return false;
        }
    }
    false
}

fn lift(state: &mut State, id: JobId, cluster: ClusterId, lifted: &BTreeSet<Kind>) {
    for kind in lifted {
        match kind {
            Kind::Draining => state.draining = None,
            Kind::Lock => state.locks.clear(),
            Kind::Allowance => state.allowances.clear(),
            // Nobody else waits there.
            Kind::QueueOrder => {
                if let Some(cluster) = state.clusters.get_mut(&cluster).map(Arc::make_mut) {
                    cluster.queue.clear();
                    cluster.lanes.clear();
                }
                enqueue(state, id);
            }
            Kind::Quota => state.quotas.clear(),
            Kind::Budget => state.budgets.clear(),
            Kind::Provider => {
                state.settings.provider.nodes_max = u32::MAX;
                state.settings.provider.strict = false;
                if let Some(machine) = &mut state.settings.provider.machine {
                    machine.gpus = u32::MAX;
                }
            }
            Kind::Location => state.settings.places = Arc::default(),
            Kind::Maximum | Kind::BootBackoff | Kind::Window | Kind::Rolling => {}
        }
    }
    // The other clusters stay as they are.
    for other in state.clusters.keys().copied().collect::<Vec<_>>() {
        let Some(other) = state.clusters.get_mut(&other).map(Arc::make_mut) else { continue };
        if other.id != cluster {
            (other.scale.min, other.scale.max, other.boot) = (0, other.live, Default::default());
            (other.declared, other.windows, other.scheduled) =
                (other.scale, Default::default(), Default::default());
            other.old = Default::default();
            // They wait for nothing, and so nobody lets them go first.
            other.cuts.clear();
            other.queue.clear();
            other.lanes.clear();
        } else {
            if lifted.contains(&Kind::Window) {
                other.windows = Default::default();
                (other.scale, other.scheduled) = (other.declared, Default::default());
            }
            if lifted.contains(&Kind::Maximum) {
                other.declared.max = other.declared.max.saturating_add(2 * PLENTY);
                if other.scheduled.max_by.is_none() {
                    other.scale.max = other.declared.max;
                }
                if let Some(mix) = &mut other.mix {
                    mix.floor.nodes = mix.floor.nodes.saturating_add(PLENTY);
                }
            }
            if lifted.contains(&Kind::BootBackoff) {
                other.boot = Default::default();
            }
        }
        // Nobody goes for lack of work.
        other.scale.idle_ms = u64::MAX / 4;
        other.declared.idle_ms = other.scale.idle_ms;
    }
}

/// Nodes of an older definition with nothing on them are gone.
fn let_go(draft: &mut Draft, cluster: ClusterId, now: Millis) {
    let Some(cluster) = draft.state.clusters.get(&cluster).cloned() else { return };
    for id in &cluster.old {
        if draft.state.nodes.get(id).is_some_and(|node| node.attempts.is_empty()) {
            draft.emit(now, NodeGone { id: *id, reason: "it is replaced".into() });
        }
    }
}

fn coming(state: &State, cluster: ClusterId) -> Vec<NodeId> {
    let Some(cluster) = state.clusters.get(&cluster) else { return Vec::new() };
    let comes = |state: NodeState| {
        matches!(
            state,
            NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. }
        )
    };
    state.nodes_of(cluster).filter(|node| comes(node.state)).map(|node| node.id).collect()
}
