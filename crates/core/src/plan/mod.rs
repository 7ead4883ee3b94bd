//! What should happen next: the visible list of steps, run on every cluster that something touched.
//!
//! 1. [`deadlines`]: what has come due.
//! 2. Families of jobs whose members ended, or that are to end: [`families`].
//! 3. For each dirty cluster: [`money`] leases are renewed or not, [`windows`] hold its minimum and maximum; then [`retire`] if it is going, else [`place`]
//!    waiting jobs on free nodes, then [`scale`] the number of nodes to the work, then [`roll`] on nodes of an older definition. Then families again, if that
//!    ended jobs.
//! 4. Workspaces whose last cluster went.
//!
//! Where the provider has no room for dedicated work, [`reclaim`] takes low-priority nodes back. Deciding to add a node happens in `scale.rs`, and nowhere else.

mod deadlines;
mod families;
mod money;
mod place;
mod reclaim;
mod reserve;
mod retire;
mod roll;
mod scale;
mod windows;

pub(crate) use place::has_room;
pub(crate) use reclaim::{took_claimed_room, yields};
pub(crate) use roll::BY_ROLL;
pub(crate) use scale::counted;
pub use scale::{Packing, node_cut, nodes_ever, provider_nodes_ever};

use std::collections::BTreeSet;

use crate::draft::Draft;
use crate::event::{Event, WorkspaceDeleted};
use crate::ids::{ClusterId, JobId, WorkspaceId};
use crate::limits::PLAN_EVENTS_MAX;
use crate::state::{State, Timer};
use crate::units::Millis;

/// Where to look. Held by the writer between batches; everything is dirty after a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    pub clusters: BTreeSet<ClusterId>,
    pub workspaces: BTreeSet<WorkspaceId>,
    pub families: BTreeSet<JobId>,
    /// The job on several nodes that goes first where the provider has no room for all, as the last plan saw it: when
    /// that is another one, those who let it go first look again.
    pub first_for_room: Option<JobId>,
    /// Timers up to here have been looked at.
    pub timers_seen: Millis,
}

impl Dirty {
    pub fn all(state: &State) -> Self {
        Self {
            clusters: state.clusters.keys().copied().collect(),
            workspaces: state.workspaces.keys().copied().collect(),
            families: state.families.keys().copied().collect(),
            first_for_room: None,
            timers_seen: Millis(0),
        }
    }

    pub fn is_clean(&self) -> bool {
        self.clusters.is_empty() && self.workspaces.is_empty() && self.families.is_empty()
    }
}

/// The outcome of a planning pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub events: Vec<Event>,
    /// The only timer: when to plan again if nothing happens. `None`: never.
    pub wake_at: Option<Millis>,
}

/// The plan for a published state, leaving it as it is.
pub fn plan(state: &State, dirty: &Dirty, now: Millis) -> Plan {
    let mut draft = Draft::new(state.clone());
    let mut dirty = dirty.clone();
    let wake_at = plan_into(&mut draft, &mut dirty, now);
    Plan { events: draft.events, wake_at }
}

/// What the planner makes of a cluster, in as many passes as it takes.
pub fn settled(state: &State, id: ClusterId) -> State {
    let mut dirty = Dirty { clusters: BTreeSet::from([id]), timers_seen: state.now, ..Dirty::default() };
    let mut draft = Draft::new(state.clone());
    loop {
        let events_before = draft.events.len();
        plan_into(&mut draft, &mut dirty, state.now);
        if dirty.is_clean() || draft.events.len() == events_before {
            return draft.state;
        }
    }
}

/// Plans on a draft: what it touched becomes dirty first, what was settled is clean afterwards. Work is bounded:
/// if something stays dirty the wake-up is now.
pub fn plan_into(draft: &mut Draft, dirty: &mut Dirty, now: Millis) -> Option<Millis> {
    let events_before = draft.events.len();
    collect(draft, dirty);
    deadlines::expire(draft, dirty, now);
    collect(draft, dirty);
    while draft.events.len() - events_before < PLAN_EVENTS_MAX {
        // Families first: what they release or end is then placed, or makes room, in the same pass. The innermost of
        // those within each other comes first, because it has the highest id.
        if let Some(id) = dirty.families.pop_last() {
            let budget = PLAN_EVENTS_MAX - (draft.events.len() - events_before);
            let more = families::advance(draft, id, now, budget);
            collect(draft, dirty);
            if more {
                dirty.families.insert(id);
                break;
            }
            continue;
        }
        let Some(id) = dirty.clusters.pop_first() else {
            if !look_again(draft, dirty) {
                break;
            }
            continue;
        };
        let more = plan_cluster(draft, id, now, PLAN_EVENTS_MAX - (draft.events.len() - events_before));
        draft.touched.clusters.remove(&id);
        collect(draft, dirty);
        if more {
            dirty.clusters.insert(id);
            break;
        }
        look_again(draft, dirty);
    }
    while let Some(id) = dirty.workspaces.pop_first() {
        retire::workspace(draft, id, now);
        let ended = matches!(draft.events.last(), Some(Event::WorkspaceDeleted(WorkspaceDeleted { id: last })) if *last == id);
        draft.touched.workspaces.remove(&id);
        if !ended {
            collect_inner(draft, dirty);
        }
    }
    if dirty.is_clean() { next_timer(&draft.state, dirty.timers_seen) } else { Some(now) }
}

/// Where another job on several nodes goes first now, those who let the last one go first look again.
fn look_again(draft: &Draft, dirty: &mut Dirty) -> bool {
    let first = scale::first_for_room(&draft.state).map(|job| job.id);
    let changed = std::mem::replace(&mut dirty.first_for_room, first) != first;
    if changed {
        dirty.clusters.extend(draft.state.waiting_for_room.iter());
    }
    changed
}

fn collect(draft: &mut Draft, dirty: &mut Dirty) {
    collect_inner(draft, dirty);
    dirty.workspaces.extend(std::mem::take(&mut draft.touched.workspaces));
}

/// What lies within workspaces.
fn collect_inner(draft: &mut Draft, dirty: &mut Dirty) {
    dirty.clusters.extend(std::mem::take(&mut draft.touched.clusters));
    dirty.families.extend(std::mem::take(&mut draft.touched.families));
}

/// The first timer past `after`. (Earlier ones were looked at: an idle node kept by `min` stays in the past.)
fn next_timer(state: &State, after: Millis) -> Option<Millis> {
    state.timers.range((after.plus(1), Timer::FIRST)..).next().map(|(at, _)| *at)
}

/// Of placing and scaling one cluster, in one pass: in truth one or two.
const ROUNDS_MAX: usize = 4;

/// True if there was more to do than `budget` events.
fn plan_cluster(draft: &mut Draft, id: ClusterId, now: Millis, budget: usize) -> bool {
    money::hold(draft, id, now);
    windows::hold(draft, id, now);
    let Some(cluster) = draft.state.clusters.get(&id) else { return false };
    if cluster.is_deleting() {
        return retire::cluster(draft, id, now, budget);
    }
    if draft.state.draining.is_some() {
        retire::drain(draft, id, now);
        return false;
    }
    // What is beyond the maximum goes before anything new could come onto it.
    windows::stop(draft, id, now);
    scale::beyond_maximum(draft, id, now);
    if draft.disk_is_full {
        scale::release_finished(draft, id, now);
        return false;
    }
    let seen = |draft: &Draft| {
        let cluster = draft.state.clusters.get(&id)?;
        Some((cluster.live, cluster.unheard, cluster.mix.as_ref().map(|mix| mix.dedicated.live)))
    };
    for _ in 0..ROUNDS_MAX {
        if place::place(draft, id, now, budget) {
            return true;
        }
        // Which nodes come, and whether there is room for more, says who may go before whom.
        let before = seen(draft);
        scale::scale(draft, id, now);
        let rolls = roll::roll(draft, id, now);
        if seen(draft) == before && !rolls {
            break;
        }
    }
    false
}
