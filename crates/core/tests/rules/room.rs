//! Who goes first where the provider has no room for all.

use neap_core::cluster::Cut;
use neap_core::command::{PutCluster, SubmitJob};
use neap_core::plan::settled;
use neap_core::{ClusterId, Command, Draft, Event, JobId, NodeId, decide::decide};

use crate::world::{CPU, World, cluster, gang, job, ready, settings};

const GPU: ClusterId = ClusterId(2);

/// A provider of so many nodes, and the clusters `cpu`, `gpu` and `other`; of the last so many nodes are busy.
fn crowded(nodes_max: u32, busy: u32) -> World {
    let mut world = World::with(settings(|s| s.provider.nodes_max = nodes_max));
    world.batch(["cpu", "gpu", "other"].map(|name| put(name, 0, 4)));
    for i in 0..busy {
        let id = world.submit_job(SubmitJob { cluster: "other".into(), ..job(&format!("busy{i}")) });
        world.ready(world.state.next.node.0 - 1);
        world.start(id);
    }
    world
}

fn put(name: &str, min: i64, max: i64) -> Command {
    Command::PutCluster(PutCluster { min: Some(min), max: Some(max), idle_ms: Some(10_000), ..cluster(name) })
}

fn on_gpu(job: SubmitJob) -> SubmitJob {
    SubmitJob { cluster: "gpu".into(), ..job }
}

/// It lets another one go first.
fn lets(wanted: u32, max: u32) -> Vec<Cut> {
    vec![Cut::ProviderAtOnce { wanted, max }]
}

fn no_room(nodes: u32) -> Vec<Cut> {
    vec![Cut::ProviderNodes { in_use: nodes, max: nodes }]
}

#[test]
fn the_later_of_two_gangs_asks_for_nothing_whoever_is_behind_the_earlier() {
    let mut world = crowded(4, 2);
    world.submit_job(gang("earlier", 3));
    world.submit("behind");
    world.submit_job(on_gpu(gang("later", 3)));
    assert_eq!(world.cpu().live, 2, "all the room there is");
    assert_eq!(world.state.clusters[&GPU].cuts, lets(3, 4));
    assert_eq!(world.state.clusters[&GPU].live, 0);
}

#[test]
fn a_job_on_one_node_holds_no_gang_back() {
    let mut world = crowded(2, 2);
    world.submit("single");
    world.submit_job(on_gpu(gang("gang", 2)));
    assert_eq!(world.state.clusters[&GPU].cuts, no_room(2));
}

#[test]
fn a_gang_that_is_larger_than_its_cluster_became_holds_nobody_back() {
    let mut world = crowded(4, 2);
    world.submit_job(gang("earlier", 3));
    world.submit_job(on_gpu(gang("later", 2)));
    assert_eq!(world.state.clusters[&GPU].cuts, lets(2, 4));
    world.scale(0, 2);
    assert_ne!(
        world.state.clusters[&GPU].cuts,
        lets(2, 4),
        "who cannot have it does not keep it from others"
    );
}

#[test]
fn what_a_cluster_keeps_for_itself_does_not_stand_in_its_own_way() {
    let mut world = crowded(4, 1);
    world.scale(2, 4);
    world.submit_job(gang("earlier", 4));
    world.submit_job(on_gpu(gang("later", 2)));
    assert_eq!(world.cpu().live, 3);
    assert_eq!(world.state.clusters[&GPU].cuts, lets(2, 4));
}

#[test]
fn a_gang_that_the_minimum_of_another_keeps_out_holds_nobody_back() {
    let mut world = crowded(4, 0);
    world.tell(put("other", 2, 4));
    world.submit_job(gang("never", 3));
    world.submit_job(on_gpu(gang("later", 2)));
    assert_eq!(world.state.clusters[&GPU].cuts, no_room(4));
}

#[test]
fn every_node_of_a_gang_is_there_for_its_sake() {
    let mut world = World::with_cluster(0, 4);
    let causes: Vec<Option<JobId>> = world
        .tell(Command::SubmitJob(gang("gang", 3)))
        .iter()
        .filter_map(|event| match event {
            Event::NodeRequested(e) => Some(e.cause),
            _ => None,
        })
        .collect();
    assert_eq!(causes, [Some(JobId(1)); 3]);
}

/// What `plan` leaves for a next time is part of what it comes to.
#[test]
fn what_a_cluster_comes_to_takes_as_many_plans_as_it_takes() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 10_000));
    world.scale(0, 9_000);
    let jobs = neap_core::limits::PLAN_EVENTS_MAX + 100;
    world.batch((0..jobs).map(|i| Command::SubmitJob(job(&format!("job{i}")))));
    let mut draft = Draft::new(world.state.clone());
    for node in 1..=jobs as u64 {
        for event in decide(&draft.state, Command::Report(ready(NodeId(node))), world.now).expect("it comes")
        {
            draft.emit(world.now, event);
        }
    }
    assert!(draft.events.iter().all(|event| matches!(event, Event::NodeReady(_))));
    let settled = settled(&draft.state, CPU);
    assert_eq!(settled.clusters[&CPU].queue.len(), 0);
    assert_eq!(settled.clusters[&CPU].busy as usize, jobs);
}
