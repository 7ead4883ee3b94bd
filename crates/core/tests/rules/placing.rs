//! Waiting jobs onto free nodes.

use neap_core::command::{PutCluster, Report, SubmitJob};
use neap_core::event::JobPlaced;
use neap_core::job::Exit;
use neap_core::{Capacity, ClusterId, Command, Event, JobId, NodeId};
use proptest::prelude::*;

use crate::world::{QUARTER, World, cluster, job, share};

/// Which job came to which node.
fn placed(events: &[Event]) -> Vec<(u64, u64)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::JobPlaced(JobPlaced { id, node, .. }) => Some((id.0, node.0)),
            _ => None,
        })
        .collect()
}

fn half() -> Capacity {
    QUARTER.plus(QUARTER)
}

#[test]
fn jobs_are_placed_by_priority_and_then_in_the_order_they_came() {
    let mut world = World::with_cluster(0, 1);
    for (name, priority) in [("a", 1), ("b", 2), ("c", 2), ("d", 0)] {
        world.submit_job(SubmitJob { priority, ..job(name) });
    }
    let mut order = placed(&world.ready(1));
    for _ in 0..3 {
        let (running, _) = *order.last().unwrap();
        order.extend(placed(&world.end(JobId(running), Exit::Success)));
    }
    assert_eq!(order, [(2, 1), (3, 1), (1, 1), (4, 1)]);
}

#[test]
fn a_whole_node_goes_to_one_job_and_the_oldest_idle_one_first() {
    let mut world = World::with_cluster(2, 2);
    world.ready(2);
    world.ready(1);
    let job = world.submit("a");
    assert_eq!(world.attempt(job).node, NodeId(1));
    assert_eq!(world.attempt(job).number, 1);
    let next = world.submit("b");
    assert_eq!(world.attempt(next).node, NodeId(2));
    let last = world.submit("c");
    assert!(world.job(last).attempt().is_none(), "none is free");
}

#[test]
fn a_job_that_does_not_fit_yet_is_not_overtaken() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    let small = world.submit_job(share("small", QUARTER));
    let whole = world.submit("whole");
    let later = world.submit_job(share("later", QUARTER));
    assert!(world.job(whole).attempt().is_none());
    assert!(world.job(later).attempt().is_none(), "there would be room for it");
    assert_eq!(placed(&world.end(small, Exit::Success)), [(whole.0, 1)]);
}

#[test]
fn shares_fill_a_shared_node_before_another_is_broken_into() {
    let mut world = World::with_cluster(3, 3);
    for node in 1..=3 {
        world.ready(node);
    }
    let node = |world: &mut World, name: &str, capacity| {
        let id = world.submit_job(share(name, capacity));
        world.job(id).attempt().map(|attempt| attempt.node.0)
    };
    assert_eq!(node(&mut world, "a", half()), Some(1));
    assert_eq!(node(&mut world, "b", half().plus(QUARTER)), Some(2), "no room on the first");
    assert_eq!(node(&mut world, "c", QUARTER), Some(1), "the first with room");
    assert_eq!(node(&mut world, "d", QUARTER), Some(1));
    assert_eq!(node(&mut world, "e", QUARTER), Some(2), "the first is full");
    assert_eq!(node(&mut world, "f", half()), Some(3));
    assert_eq!(node(&mut world, "g", half()), Some(3));
    assert_eq!(node(&mut world, "h", QUARTER), None, "all are full");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Zero quarters stand for a whole node.
    #[test]
    fn in_one_pass_jobs_go_where_they_would_go_one_by_one(quarters in prop::collection::vec(0..5u32, 1..14)) {
        let jobs: Vec<SubmitJob> = quarters
            .iter()
            .enumerate()
            .map(|(i, quarters)| match quarters {
                0 => job(&format!("j{i}")),
                n => share(&format!("j{i}"), (1..*n).fold(QUARTER, |sum, _| sum.plus(QUARTER))),
            })
            .collect();
        let mut one_by_one = World::with_cluster(4, 4);
        for node in 1..=4 {
            one_by_one.ready(node);
        }
        let mut at_once = one_by_one.clone();
        at_once.batch(jobs.iter().cloned().map(Command::SubmitJob));
        for job in jobs {
            one_by_one.submit_job(job);
        }
        for (id, job) in &one_by_one.state.jobs {
            prop_assert_eq!(job.attempt().map(|a| a.node), at_once.job(*id).attempt().map(|a| a.node));
        }
    }
}

#[test]
fn nothing_is_placed_on_a_node_that_is_not_heard_of() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    world.report(Report::NodeSilent { node: NodeId(1) });
    let whole = world.submit("whole");
    assert!(world.job(whole).attempt().is_none());
    assert_eq!(placed(&world.report(Report::NodeHeard { node: NodeId(1) })), [(whole.0, 1)]);
    world.end(whole, Exit::Success);
    let one = world.submit_job(share("one", QUARTER));
    assert_eq!(world.attempt(one).node, NodeId(1));
    world.report(Report::NodeSilent { node: NodeId(1) });
    let two = world.submit_job(share("two", QUARTER));
    assert!(world.job(two).attempt().is_none(), "nor beside what runs there");
}

#[test]
fn jobs_wait_for_their_own_cluster() {
    let mut world = World::with_cluster(1, 1);
    world.tell(Command::PutCluster(PutCluster { max: Some(0), ..cluster("gpu") }));
    world.ready(1);
    let id = world.submit_job(SubmitJob { cluster: "gpu".into(), ..job("a") });
    assert!(world.job(id).attempt().is_none());
    assert_eq!(world.job(id).cluster, ClusterId(2));
}
