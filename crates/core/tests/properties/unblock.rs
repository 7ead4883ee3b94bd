//! What `explain` says would start a job, tried on full plans.

use std::collections::BTreeSet;
use std::sync::Arc;

use neap_core::decide::decide;
use neap_core::draft::Touched;
use neap_core::event::{JobEnded, NodeGone, ServerStarted};
use neap_core::job::Outcome;
use neap_core::node::NodeState;
use neap_core::plan::{Dirty, plan_into};
use neap_core::unblock::{self, Kind};
use neap_core::{Command, Draft, JobId, NodeId};
use proptest::prelude::*;

use crate::steps::{node_news, step_of_jobs};
use crate::world::World;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against full plans: what `unblock` says would start a job does, and nothing less of it.
    #[test]
    fn what_is_said_to_unblock_a_job_does_and_nothing_less(steps in prop::collection::vec(step_of_jobs(), 1..40)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        prop_assume!(world.dirty.is_clean());
        let waiting: Vec<JobId> = world.state.jobs.values().filter(|job| job.attempt().is_none()).map(|job| job.id).collect();
        for id in waiting {
            let verdict = unblock::unblock(&world.state, id, world.now).expect("it waits");
            for set in &verdict.unblocking {
                prop_assert!(starts(&world, id, set), "job {id} does not start without {set:?}: {verdict:?}");
                for left_out in set {
                    let less: BTreeSet<Kind> = set.iter().copied().filter(|kind| kind != left_out).collect();
                    prop_assert!(!starts(&world, id, &less), "job {id} starts with {left_out:?} in force: {verdict:?}");
                }
            }
        }
    }
}

/// Lifts these for one job, and lets a kind world take its course: nodes come, nothing ends, no time passes.
fn starts(world: &World, id: JobId, lifted: &BTreeSet<Kind>) -> bool {
    let mut draft = Draft::new(world.state.clone());
    let cluster = draft.state.jobs[&id].cluster;
    let others: Vec<JobId> = draft
        .state
        .jobs
        .values()
        .filter(|job| job.id != id && job.attempt().is_none())
        .filter(|job| job.cluster != cluster || lifted.contains(&Kind::QueueOrder))
        .map(|job| job.id)
        .collect();
    for id in others {
        let outcome = Outcome::completed();
        draft.emit(world.now, JobEnded { id, attempt: None, exit: None, outcome });
    }
    let mut settings = draft.state.settings.clone();
    if lifted.contains(&Kind::Provider) {
        settings.provider.nodes_max = 1_000_000;
    }
    if lifted.contains(&Kind::Location) {
        settings.places = Arc::default();
    }
    if lifted.contains(&Kind::Draining) {
        draft.emit(world.now, ServerStarted { release: "test".into(), settings });
    } else {
        draft.state.settings = settings;
    }
    if lifted.contains(&Kind::Quota) {
        draft.state.quotas.clear();
    }
    if lifted.contains(&Kind::Allowance) {
        draft.state.allowances.clear();
    }
    if lifted.contains(&Kind::Budget) {
        draft.state.budgets.clear();
    }
    if lifted.contains(&Kind::Lock) {
        draft.state.locks.clear();
    }
    // The other clusters stay as they are.
    for other in draft.state.clusters.keys().copied().collect::<Vec<_>>() {
        let other = Arc::make_mut(draft.state.clusters.get_mut(&other).expect("it is there"));
        if other.id != cluster {
            (other.scale.min, other.scale.max, other.boot) = (0, other.live, Default::default());
            (other.declared, other.windows, other.scheduled) =
                (other.scale, Default::default(), Default::default());
            other.old = Default::default();
        } else {
            if lifted.contains(&Kind::Window) {
                (other.windows, other.scheduled) = (Default::default(), Default::default());
                other.scale = other.declared;
            }
            if lifted.contains(&Kind::Maximum) {
                other.declared.max = 60_000;
                if other.scheduled.max_by.is_none() {
                    other.scale.max = 60_000;
                }
                if let Some(mix) = &mut other.mix {
                    mix.floor.nodes = 30_000;
                }
            }
            if lifted.contains(&Kind::BootBackoff) {
                other.boot = Default::default();
            }
        }
        other.scale.idle_ms = 1_000_000_000;
        other.declared.idle_ms = other.scale.idle_ms;
    }
    if lifted.contains(&Kind::Rolling) {
        let old: Vec<NodeId> = draft.state.clusters[&cluster].old.iter().copied().collect();
        for id in old.into_iter().filter(|id| draft.state.nodes[id].attempts.is_empty()).collect::<Vec<_>>() {
            draft.emit(world.now, NodeGone { id, reason: "it is replaced".into() });
        }
    }
    draft.touched = Touched::default();
    for _ in 0..60 {
        let clusters = BTreeSet::from([cluster]);
        let mut dirty = Dirty { timers_seen: world.now, clusters, ..Dirty::default() };
        let before = draft.events.len();
        plan_into(&mut draft, &mut dirty, world.now);
        let coming: Vec<NodeId> = draft
            .state
            .nodes
            .values()
            .filter(|node| node.is_live() && node.state != NodeState::Ready && node.cluster == cluster)
            .map(|node| node.id)
            .collect();
        for node in coming {
            for event in
                decide(&draft.state, Command::Report(node_news(node, 2)), world.now).unwrap_or_default()
            {
                draft.emit(world.now, event);
            }
        }
        if draft.events.len() == before {
            break;
        }
    }
    draft.state.jobs.get(&id).is_some_and(|job| job.attempt().is_some())
}
