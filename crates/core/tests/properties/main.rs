//! Random commands and reports in random order: every invariant holds after every event, and when the world is
//! kind again everything comes to rest.

mod steps;
mod unblock;
mod world;

use std::sync::Arc;

use neap_core::command::Report;
use neap_core::job::Job;
use neap_core::mix;
use neap_core::node::NodeState;
use neap_core::{ClusterId, Command};
use proptest::prelude::*;

use crate::steps::{Step, attempt_news, node_news, step};
use crate::world::World;

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_invariant_holds_in_any_order(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
    }

    /// L1: when faults stop, every job that can run has run, and every cluster is back at its minimum.
    #[test]
    fn the_world_comes_to_rest(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.be_kind();
        // A gang that a lowered maximum keeps out holds up whoever is behind it; it can be ended.
        let stuck: Vec<_> = world.state.jobs.values().filter(|job| job.attempt().is_none()).map(|job| job.id).collect();
        for job in &stuck {
            let reasons = neap_core::explain::queue_reasons(&world.state, *job);
            prop_assert!(!reasons.is_empty(), "job {} waits for no reason", job);
        }
        let of_no_tier = |job: &Job| {
            let cluster = &world.state.clusters[&job.cluster];
            cluster.scale.max > 0 && mix::parts_for(cluster, job).iter().all(|(_, part)| part.scale.max == 0)
        };
        // The provider makes six nodes: where minimums keep all of them, one of another tier has no place.
        let kept: u32 = world.state.clusters.values().map(|c| c.scale.min).sum();
        let of_full_house = |job: &Job| {
            kept >= 6 && job.tier.only.is_some() && world.state.clusters[&job.cluster].mix.is_some()
        };
        let is_never = |job: &&Arc<Job>| job.nodes > 1 || of_no_tier(job) || of_full_house(job);
        let never = world.state.jobs.values().filter(is_never);
        let never = never.map(|job| job.id).collect::<Vec<_>>();
        for job in never {
            world.command(Command::CancelJob { job, reason: "asked".into() });
        }
        world.be_kind();
        for cluster in world.state.clusters.values() {
            prop_assert!(!cluster.is_deleting(), "cluster {} never went", cluster.id);
            prop_assert_eq!(cluster.active.len(), 0, "jobs still run");
            if cluster.scale.max > 0 {
                prop_assert_eq!(cluster.queue.len(), 0, "jobs still wait on cluster {}", cluster.id);
            }
            let wanted: usize = world.state.clusters.values().map(|c| c.scale.min as usize).sum();
            if wanted <= 6 {
                prop_assert_eq!(cluster.live, cluster.scale.min, "cluster {} is not at rest", cluster.id);
            }
        }
        if world.state.clusters.values().all(|cluster| cluster.scale.max > 0) {
            prop_assert!(world.state.families.is_empty(), "families never end: {:?}", world.state.families);
            prop_assert!(world.state.waits.is_empty() && world.state.awaited.is_empty());
        }
    }
}

#[test]
fn from_zero_and_back() {
    let mut world = World::new();
    world.take(Step::PutCluster { which: 0, min: 0, max: 2, idle_s: 10, dedicated: 0 });
    world.take(Step::Submit { cluster: 0, share: false, timeout: false, priority: 1, tier: 9 });
    assert_eq!(world.state.nodes.len(), 1, "one job asks for one node, at once");
    let node = *world.state.nodes.keys().next().unwrap();
    world.command(Command::Report(node_news(node, 2)));
    let attempt = world.state.nodes[&node].attempts[0];
    world.command(Command::Report(Report::Attempt { node, attempt, number: 1, news: attempt_news(0) }));
    world.command(Command::Report(Report::Attempt { node, attempt, number: 2, news: attempt_news(2) }));
    assert!(world.state.jobs.is_empty());
    world.wait(5_000);
    world.take(Step::Submit { cluster: 0, share: false, timeout: false, priority: 1, tier: 9 });
    assert_eq!(world.state.nodes.len(), 1, "the idle node is used and none is added");
    let attempt = world.state.nodes[&node].attempts[0];
    world.command(Command::Report(Report::Attempt { node, attempt, number: 2, news: attempt_news(2) }));
    world.wait(9_000);
    assert!(matches!(world.state.nodes[&node].state, NodeState::Ready), "its idle time started anew");
    world.wait(2_000);
    assert!(matches!(world.state.nodes[&node].state, NodeState::Leaving { .. }));
    world.command(Command::Report(node_news(node, 5)));
    assert!(world.state.nodes.is_empty());
    assert_eq!(world.state.clusters[&ClusterId(1)].target, 0);
}

/// Found by the property: placing the jobs that a gang let pass left it without money for its nodes, so that it held
/// nobody up any more, and who could then be placed was only in the next plan.
#[test]
fn a_promise_that_ends_with_the_money_holds_nobody_up() {
    let mut world = World::new();
    let put = |which, min, max| Step::PutCluster { which, min, max, idle_s: 0, dedicated: 0 };
    let submit = |share, timeout| Step::Submit { cluster: 0, share, timeout, priority: 0, tier: 0 };
    for step in [
        put(0, 0, 0),
        Step::PutBudget { which: 0, scope: 3, amount: 96_392, day: false },
        put(0, 1, 3),
        Step::Evict { node: 0 },
        Step::SubmitGang { cluster: 0, nodes: 3, timeout: false, tier: 2 },
        Step::NodeNews { node: 13, news: 5 },
        Step::NodeNews { node: 10, news: 7 },
        put(1, 1, 1),
        submit(false, true),
        submit(true, false),
        submit(true, true),
        Step::NodeNews { node: 195, news: 2 },
        Step::Wait { ms: 59_996 },
    ] {
        world.take(step);
    }
    let waiting = world.state.jobs.values().filter(|job| job.attempt().is_none());
    assert_eq!(waiting.map(|job| job.nodes).collect::<Vec<_>>(), [3], "the gang alone waits");
}

/// Found by the property: low priority worked on beyond its own maximum, and the floor's job was placed and stopped for it.
#[test]
fn a_window_that_stops_looks_at_each_tier() {
    let mut world = World::new();
    let submit = || Step::Submit { cluster: 2, share: false, timeout: false, priority: 0, tier: 2 };
    for step in [
        Step::PutCluster { which: 2, min: 0, max: 2, idle_s: 0, dedicated: 1 },
        submit(),
        submit(),
        Step::NodeNews { node: 13, news: 7 },
        Step::PutWindow { which: 2, name: 0, min: None, max: 1, from_s: 0, lasts_s: 41, stops: true },
        Step::Restart,
        Step::NodeNews { node: 138, news: 2 },
    ] {
        world.take(step);
    }
}

/// Found by the property: an idle node beyond its own tier's maximum was given a job before it was let go.
#[test]
fn nobody_is_put_on_a_node_beyond_the_maximum_of_its_tier() {
    let mut world = World::new();
    for step in [
        Step::PutCluster { which: 2, min: 0, max: 4, idle_s: 0, dedicated: 1 },
        Step::SubmitGang { cluster: 2, nodes: 3, timeout: false, tier: 1 },
        Step::NodeNews { node: 0, news: 7 },
        Step::PutWindow { which: 2, name: 0, min: None, max: 1, from_s: 1, lasts_s: 140, stops: true },
        Step::Submit { cluster: 2, share: false, timeout: false, priority: 0, tier: 1 },
        Step::Wait { ms: 59_997 },
    ] {
        world.take(step);
    }
}
