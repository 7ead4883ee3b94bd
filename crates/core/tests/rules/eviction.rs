//! Nodes that are taken back, and nodes that are kept free.

use neap_core::job::{Cause, Exit, JobState, StopReason};
use neap_core::node::NodeState;
use neap_core::{ClusterId, Code, Command, Event, JobId, NodeId};

use crate::world::{CPU, QUARTER, World, cluster, gang, job, kinds, share};

fn evict(node: Option<u64>) -> Command {
    Command::Evict { cluster: CPU, node: node.map(NodeId), grace_ms: 1_000, reason: "taken back".into() }
}

fn cordon(node: u64, leave: bool) -> Command {
    Command::Cordon { node: NodeId(node), leave, reason: "looked at".into() }
}

#[test]
fn a_job_whose_node_is_taken_back_saves_what_it_has_and_keeps_its_place() {
    let mut world = World::with_cluster(0, 1);
    let first = world.submit("first");
    world.ready(1);
    world.start(first);
    let second = world.submit("second");
    let events = world.tell(evict(None));
    // It counts no more: another is asked for at once.
    assert_eq!(kinds(&events)[..3], ["node.preempted", "attempt.stop_requested", "node.requested"]);
    assert_eq!(world.attempt(first).stop.as_ref().unwrap().why, StopReason::Preempt);
    assert_eq!(world.node(1).azure_state(), "preempted");
    let events = world.end(first, Exit::Stopped);
    assert!(events.iter().any(|e| matches!(e, Event::JobRequeued(e) if e.cause == Cause::Preempted)));
    assert!(matches!(world.node(1).state, NodeState::Leaving { .. }), "nothing is on it any more");
    assert_eq!(world.queued(), [first.0, second.0], "back in its place");
    assert_eq!(world.job(first).attempts_preempted, 1);
}

#[test]
fn an_agent_that_dials_again_goes_on_saving() {
    let mut world = World::with_cluster(0, 2);
    let id = world.submit("first");
    world.ready(1);
    world.start(id);
    world.tell(evict(Some(1)));
    assert_eq!(world.attempt(id).stop.as_ref().unwrap().preempt_grace_ms(world.now), 1_000);
    assert_eq!(world.ready(1), [], "it is let in, and still taken back");
    assert_eq!(world.node(1).azure_state(), "preempted");
    // One that had not been in yet has nothing to save.
    world.submit("second");
    world.tell(evict(Some(2)));
    let report = Command::Report(crate::world::ready(NodeId(2)));
    assert_eq!(world.refused(report), [neap_core::Code::ResourceBeingDeleted]);
}

#[test]
fn what_ends_well_meanwhile_is_complete() {
    let mut world = World::with_cluster(0, 1);
    let id = world.submit("quick");
    world.ready(1);
    world.start(id);
    world.tell(evict(Some(1)));
    let events = world.end(id, Exit::Success);
    assert_eq!(crate::world::ends(&events).len(), 1);
}

#[test]
fn at_the_deadline_the_node_goes_whatever_is_on_it() {
    let mut world = World::with_cluster(0, 1);
    let id = world.submit("deaf");
    world.ready(1);
    world.start(id);
    world.tell(evict(Some(1)));
    let events = world.wait(7_001);
    assert!(kinds(&events).contains(&"node.leaving"), "{events:?}");
    let events = world.gone(1);
    assert!(events.iter().any(|e| matches!(e, Event::JobRequeued(e) if e.cause == Cause::Preempted)));
    assert!(matches!(world.job(id).state, JobState::Queued { .. }));
}

#[test]
fn a_gang_stops_and_resumes_whole() {
    let mut world = World::with_cluster(0, 3);
    let id = world.submit_job(gang("pair", 2));
    world.ready(1);
    world.ready(2);
    world.rank_starts(id, 0);
    world.rank_starts(id, 1);
    world.tell(evict(Some(2)));
    world.rank_ends(id, 1, Exit::Stopped);
    assert!(world.job(id).attempt().is_some(), "the other rank has not ended");
    world.rank_ends(id, 0, Exit::Stopped);
    assert_eq!(world.job(id).attempts_preempted, 1);
    world.ready(3);
    assert_eq!(world.attempt(id).nodes().map(|n| n.0).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn a_node_on_its_way_out_is_left_alone_and_one_of_others_is_not_found() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    assert!(!world.tell(evict(Some(1))).is_empty());
    assert!(world.tell(evict(Some(1))).is_empty());
    assert!(world.ask(evict(Some(77))).is_err());
}

#[test]
fn nothing_new_is_placed_on_a_cordoned_node_and_it_stays() {
    let mut world = World::with_cluster(0, 2);
    let first = world.submit("first");
    world.ready(1);
    world.start(first);
    world.tell(cordon(1, false));
    world.end(first, Exit::Success);
    let second = world.submit("second");
    assert!(world.job(second).attempt().is_none(), "not on the cordoned node");
    world.ready(2);
    assert_eq!(world.attempt(second).node, NodeId(2));
    world.wait(60_000);
    assert_eq!(world.node(1).state, NodeState::Ready, "somebody looks at it");
    let third = world.submit("third");
    assert!(world.job(third).attempt().is_none(), "a cordoned node counts against the maximum");
    world.tell(Command::Uncordon { node: NodeId(1) });
    assert_eq!(world.attempt(third).node, NodeId(1));
}

#[test]
fn a_drained_node_goes_when_its_attempts_have_ended() {
    let mut world = World::with_cluster(1, 1);
    let id = world.submit_job(job("long"));
    world.ready(1);
    world.start(id);
    world.tell(cordon(1, true));
    assert_eq!(world.node(1).state, NodeState::Ready);
    let events = world.end(id, Exit::Success);
    assert!(kinds(&events).contains(&"node.leaving"), "{events:?}");
    world.gone(1);
    assert_eq!(world.cpu().live, 1, "the minimum is kept by another");
}

/// Two nodes, with a job of three quarters on each, and one of a quarter beside the first.
fn shared() -> World {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let three = QUARTER.plus(QUARTER).plus(QUARTER);
    let ids =
        [("a", three), ("b", three), ("c", QUARTER)].map(|(name, need)| world.submit_job(share(name, need)));
    assert_eq!(ids.map(|id| world.attempt(id).node.0), [1, 2, 1]);
    for id in ids {
        world.wait(10);
        world.start(id);
    }
    world
}

fn preempted(world: &World) -> Vec<u64> {
    let taken = world.state.nodes.values().filter(|node| matches!(node.state, NodeState::Preempted { .. }));
    taken.map(|node| node.id.0).collect()
}

#[test]
fn the_node_with_the_most_to_lose_is_taken_where_none_is_named() {
    let mut world = shared();
    world.tell(evict(None));
    assert_eq!(preempted(&world), [1], "the job that runs longest is there, whatever began beside it");

    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let [first, second] = ["first", "second"].map(|name| world.submit(name));
    world.start(first);
    world.end(first, Exit::Success);
    world.wait(10);
    world.start(second);
    world.tell(evict(None));
    assert_eq!(preempted(&world), [2], "not one that is idle, though it has been so for longer");
}

#[test]
fn what_was_told_to_end_already_is_not_told_again() {
    let mut world = shared();
    world.tell(crate::world::cancel(JobId(1)));
    let told: Vec<u64> = world
        .ask(evict(Some(1)))
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            Event::AttemptStopRequested(stop) => Some(stop.id.0),
            _ => None,
        })
        .collect();
    assert_eq!(told, [3], "its other job");
}

#[test]
fn only_a_node_that_is_there_or_comes_is_taken_back_where_none_is_named() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.wait(10);
    world.ready(2);
    world.tell(evict(Some(1)));
    assert!(!world.node(1).is_live());
    world.tell(Command::PutCluster(neap_core::command::PutCluster { max: Some(0), ..cluster("gpu") }));
    let of_gpu =
        |node| Command::Evict { cluster: ClusterId(2), node, grace_ms: 0, reason: "taken back".into() };
    assert_eq!(world.refused(of_gpu(None)), [Code::ResourceNotFound], "it has none");
    assert_eq!(world.refused(of_gpu(Some(NodeId(2)))), [Code::ResourceNotFound], "it is another's");
    world.tell(evict(None));
    assert!(!world.node(2).is_live(), "the older one is on its way out already");
    world.scale(0, 0);
    assert_eq!(world.refused(evict(None)), [Code::ResourceNotFound]);
}

#[test]
fn a_cordon_is_put_changed_and_taken_away_once() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let uncordon = |node| Command::Uncordon { node: NodeId(node) };
    assert_eq!(world.ask(uncordon(1)), Ok(vec![]), "there is none");
    // Busy, so that it stays when it is to leave.
    world.submit("long");
    for leave in [false, true, false] {
        assert_eq!(kinds(&world.ask(cordon(1, leave)).unwrap()), ["node.cordoned"], "{leave}");
        world.tell(cordon(1, leave));
        assert_eq!(world.ask(cordon(1, leave)), Ok(vec![]), "the same again is no news");
        let kept = world.node(1).cordon.as_ref().expect("it is there");
        assert_eq!((kept.leave, &*kept.reason), (leave, "looked at"));
    }
    assert_eq!(kinds(&world.tell(uncordon(1)))[..1], ["node.uncordoned"]);
    assert_eq!(world.refused(uncordon(9)), [Code::ResourceNotFound]);
    assert_eq!(world.refused(cordon(9, true)), [Code::ResourceNotFound]);

    let events = world.tell(cordon(2, true));
    assert!(kinds(&events).contains(&"node.leaving"), "it has nothing to end: {events:?}");
    assert_eq!(&*world.node(2).reason, "looked at", "and says who wanted it");
    assert_eq!(world.ask(cordon(2, false)), Ok(vec![]), "it is on its way out");
    assert_eq!(world.refused(uncordon(2)), [Code::ResourceBeingDeleted]);
}

#[test]
fn a_lock_keeps_what_is_drained_and_not_what_is_taken_back() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    world.tell(Command::PutLock(neap_core::command::PutLock {
        scope: neap_core::lock::LockScope::Cluster(CPU),
        name: "keep".into(),
        level: neap_core::lock::LockLevel::ReadOnly,
        notes: "".into(),
        by: "owner".into(),
    }));
    // Kept free before it was taken back: it says why it goes.
    world.batch([cordon(1, true), cordon(2, false), evict(Some(2))]);
    assert_eq!(world.node(1).state, NodeState::Ready);
    assert!(matches!(world.node(2).state, NodeState::Leaving { .. }));
    assert_eq!(&*world.node(2).reason, "taken back");
}
