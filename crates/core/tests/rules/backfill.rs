//! Who may go before the first that waits: what that one is promised, when, on which node, and to the millisecond.

use neap_core::allowance::{Allowance, AllowanceKey, Who, Within};
use neap_core::command::{PutLock, SubmitJob};
use neap_core::job::{Exit, StopReason};
use neap_core::limits::BACKFILL_LOOKED_AT_MAX;
use neap_core::lock::{LockLevel, LockScope};
use neap_core::{Capacity, Command, JobId, NodeId};

use crate::world::{CPU, QUARTER, WORKSPACE, World, gang, job, settings, share};

fn of(owner: &str, job: SubmitJob) -> SubmitJob {
    SubmitJob { owner: owner.into(), ..job }
}

fn timed(timeout_ms: u64, job: SubmitJob) -> SubmitJob {
    SubmitJob { timeout_ms: Some(timeout_ms), ..job }
}

fn runs(world: &World, id: JobId) -> bool {
    world.state.jobs.get(&id).is_some_and(|job| job.attempt().is_some())
}

/// Nodes that are there from the start.
fn with_nodes(count: u32) -> World {
    let mut world = World::with_cluster(count, count);
    for node in 1..=count {
        world.ready(node.into());
    }
    world
}

/// A job that runs, on the first free node.
fn running(world: &mut World, job: SubmitJob) -> JobId {
    let id = world.submit_job(job);
    assert!(runs(world, id));
    world.start(id);
    id
}

fn half() -> Capacity {
    QUARTER.plus(QUARTER)
}

fn three_quarters() -> Capacity {
    half().plus(QUARTER)
}

fn allow(jobs: Option<u32>, cores: Option<u32>) -> Command {
    let key = AllowanceKey { within: Within::Workspace(WORKSPACE), who: Who::EachUser };
    Command::SetAllowance { key, allowance: Some(Allowance { jobs, cores }), by: "me".into() }
}

fn cordon(node: u64) -> Command {
    Command::Cordon { node: NodeId(node), leave: false, reason: "later".into() }
}

fn uncordon(node: u64) -> Command {
    Command::Uncordon { node: NodeId(node) }
}

// ---- whose turn it is

#[test]
fn whose_turn_it_is_is_said_anew_with_the_first_that_is_placed() {
    let mut world = with_nodes(3);
    world.batch([cordon(2), cordon(3)]);
    let past = running(&mut world, of("bob", job("past")));
    world.wait(200_000);
    world.end(past, Exit::Success);
    // As of now ann has used less; an hour later she has used far more, and nothing was placed meanwhile.
    running(&mut world, of("ann", job("long")));
    let [a1, a2, b1, b2] = [("ann", "a1"), ("ann", "a2"), ("bob", "b1"), ("bob", "b2")]
        .map(|(owner, name)| world.submit_job(of(owner, job(name))));
    world.wait(3_600_000);
    world.batch([uncordon(2), uncordon(3)]);
    assert_eq!([a1, a2, b1, b2].map(|id| runs(&world, id)), [true, false, true, false]);
}

#[test]
fn of_several_in_one_pass_no_more_run_than_one_may_have() {
    let mut world = with_nodes(3);
    world.tell(allow(Some(2), None));
    world.batch(["a", "b", "c"].map(|name| Command::SubmitJob(job(name))));
    assert_eq!([1, 2, 3].map(|id| runs(&world, JobId(id))), [true, true, false]);
}

#[test]
fn a_smaller_job_does_not_go_before_one_that_its_owner_may_not_have_yet() {
    let mut world = with_nodes(3);
    world.tell(allow(None, Some(4)));
    running(&mut world, of("ann", share("small", QUARTER)));
    let whole = world.submit_job(of("ann", job("whole")));
    let fits = world.submit_job(of("ann", share("fits", QUARTER)));
    let other = world.submit_job(of("bob", job("other")));
    assert_eq!([whole, fits, other].map(|id| runs(&world, id)), [false, false, true]);
}

#[test]
fn so_many_are_looked_at_and_no_more() {
    for (between, goes) in [(BACKFILL_LOOKED_AT_MAX - 2, true), (BACKFILL_LOOKED_AT_MAX - 1, false)] {
        let mut world = with_nodes(2);
        running(&mut world, timed(600_000, job("running")));
        world.submit_job(gang("pair", 2));
        world.batch((0..between).map(|i| Command::SubmitJob(job(&format!("endless{i}")))));
        let short = world.submit_job(timed(60_000, job("short")));
        assert_eq!(runs(&world, short), goes, "behind {between} others and the first");
    }
}

#[test]
fn a_job_on_several_nodes_takes_as_many_as_it_asked_for() {
    let mut world = with_nodes(4);
    let pair = world.submit_job(gang("pair", 2));
    assert_eq!(world.attempt(pair).nodes().collect::<Vec<_>>(), [1, 2].map(NodeId));
    assert_eq!(world.cpu().idle.len(), 2);
}

// ---- whole nodes

#[test]
fn one_goes_before_if_it_is_over_and_stopped_by_then_to_the_millisecond() {
    let grace = 5_000;
    // The first is promised the end of what runs: its time, the grace, and five seconds. Whoever goes before needs the
    // same for itself, and time to be told to end.
    let most = 600_000 + grace + 5_000 - (2 * grace + 5_000) - (grace + 5_000);
    for (timeout_ms, goes) in [(most, true), (most + 1, false)] {
        let mut world = with_nodes(2);
        assert_eq!(world.state.settings.stop_grace_ms, grace);
        let first = running(&mut world, timed(600_000, job("running")));
        world.submit_job(gang("pair", 2));
        let short = world.submit_job(timed(timeout_ms, job("short")));
        assert_eq!(runs(&world, short), goes, "{timeout_ms} ms");
        if goes {
            let promised = world.attempt(first).run_deadline.expect("it has a time");
            assert_eq!(world.attempt(short).until.map(|at| at.plus(15_000)), Some(promised));
        }
    }
}

#[test]
fn the_promise_is_the_earliest_moment_and_spares_only_what_is_free_by_then() {
    // The node that is free first is not the first node.
    let mut world = with_nodes(3);
    running(&mut world, timed(900_000, job("longer")));
    running(&mut world, timed(600_000, job("shorter")));
    world.submit_job(gang("pair", 2));
    let endless = world.submit("endless");
    let between = world.submit_job(timed(700_000, job("between")));
    let short = world.submit_job(timed(60_000, job("short")));
    assert_eq!([endless, between, short].map(|id| runs(&world, id)), [false, false, true]);
}

#[test]
fn one_that_began_late_is_stopped_for_the_promise_and_not_for_its_time() {
    let mut world = with_nodes(2);
    running(&mut world, timed(600_000, job("running")));
    world.submit_job(gang("pair", 2));
    let short = world.submit_job(timed(500_000, job("short")));
    let until = world.attempt(short).until.expect("it goes before");
    // Its environment took that long.
    world.wait(200_000);
    world.start(short);
    assert!(world.attempt(short).run_deadline.is_some_and(|at| at > until));
    world.wait(until.since(world.now) - 1);
    assert!(world.attempt(short).stop.is_none());
    world.wait(1);
    assert_eq!(world.attempt(short).stop.as_ref().map(|stop| stop.why), Some(StopReason::Preempt));
}

#[test]
fn nodes_that_may_be_asked_for_later_count_as_on_their_way() {
    let mut world = World::with_cluster(1, 4);
    world.ready(1);
    world.submit_job(gang("trio", 3));
    world.report_failed(2);
    world.report_failed(3);
    assert_eq!(world.cpu().live, 1, "the next try waits");
    let one = world.submit("one");
    assert!(runs(&world, one), "the first will have three others");
}

#[test]
fn where_a_lock_stops_scaling_nothing_is_on_its_way() {
    let mut world = World::with_cluster(2, 4);
    world.ready(1);
    world.ready(2);
    running(&mut world, timed(600_000, job("running")));
    world.tell(Command::PutLock(PutLock {
        scope: LockScope::Cluster(CPU),
        name: "keep".into(),
        level: LockLevel::ReadOnly,
        notes: "".into(),
        by: "owner".into(),
    }));
    let pair = world.submit_job(gang("pair", 2));
    let endless = world.submit("endless");
    let short = world.submit_job(timed(60_000, job("short")));
    assert_eq!([pair, endless, short].map(|id| runs(&world, id)), [false, false, true]);
}

#[test]
fn where_the_provider_has_no_room_nothing_is_on_its_way() {
    let machine = |cpus_milli, memory_mb| Some(Capacity { cpus_milli, memory_mb, gpus: 0 });
    for (what, nodes_max, machine) in [
        ("by number", 2, None),
        ("by cores", 64, machine(8_000, 1_000_000)),
        ("by memory", 64, machine(1_000_000, 2 * 14_336)),
    ] {
        let mut world = World::with(settings(|s| {
            s.provider.nodes_max = nodes_max;
            s.provider.machine = machine;
            s.provider.strict = true;
        }));
        world.scale(2, 4);
        world.ready(1);
        world.ready(2);
        running(&mut world, timed(600_000, job("running")));
        let pair = world.submit_job(gang("pair", 2));
        let endless = world.submit("endless");
        let short = world.submit_job(timed(60_000, job("short")));
        assert_eq!([pair, endless, short].map(|id| runs(&world, id)), [false, false, true], "{what}");
    }
}

#[test]
fn one_on_all_the_nodes_there_can_be_is_waited_for_and_one_on_more_is_not() {
    let settings = |nodes_max| settings(|s| s.provider.nodes_max = nodes_max);
    let mut world = World::with(settings(2));
    world.scale(2, 4);
    world.ready(1);
    world.ready(2);
    running(&mut world, job("endless"));
    world.submit_job(gang("pair", 2));
    let behind = world.submit("behind");
    assert!(!runs(&world, behind), "two is what the provider can make");
    world.tell(Command::Start { release: "next".into(), settings: settings(1) });
    assert!(runs(&world, behind), "two is more than it can make now");
}

// ---- shares

#[test]
fn a_share_goes_on_the_node_that_is_free_for_it_first() {
    // What runs on node 1 takes longer than what runs on node 2: the first is promised node 2.
    let mut world = with_nodes(2);
    for (name, timeout_ms) in [("longer", 900_000), ("shorter", 600_000)] {
        running(&mut world, timed(timeout_ms, share(name, three_quarters())));
    }
    let first = world.submit_job(share("first", half()));
    let beside = world.submit_job(share("beside", QUARTER));
    assert!(!runs(&world, first));
    assert_eq!(world.attempt(beside).node, NodeId(1));
    assert_eq!(world.attempt(beside).until, None, "it is in nobody's way");
    // On node 2 only what is over by then.
    let long = world.submit_job(timed(700_000, share("long", QUARTER)));
    let short = world.submit_job(timed(60_000, share("short", QUARTER)));
    assert!(!runs(&world, long) && runs(&world, short));
    assert!(world.attempt(short).until.is_some());
}

#[test]
fn a_share_goes_where_a_whole_job_ends() {
    let mut world = with_nodes(2);
    running(&mut world, timed(600_000, job("whole")));
    running(&mut world, share("stays", three_quarters()));
    let first = world.submit_job(share("first", half()));
    let beside = world.submit_job(share("beside", QUARTER));
    assert!(!runs(&world, first));
    assert_eq!(world.attempt(beside).node, NodeId(2), "the first waits for the other node");
}

#[test]
fn a_share_waits_for_as_much_as_it_needs_and_not_for_all_that_is_on_the_node() {
    // With what ends first there is room for half a node; the one that began before it runs for longer.
    let mut world = with_nodes(1);
    running(&mut world, timed(900_000, share("longer", half())));
    running(&mut world, timed(300_000, share("shorter", QUARTER)));
    world.submit_job(share("first", half()));
    let between = world.submit_job(timed(500_000, share("between", QUARTER)));
    let short = world.submit_job(timed(60_000, share("short", QUARTER)));
    assert!(!runs(&world, between) && runs(&world, short));
}

#[test]
fn while_a_node_comes_for_it_others_have_what_is_there() {
    let mut world = World::with_cluster(0, 2);
    world.submit_job(share("stays", three_quarters()));
    world.ready(1);
    let first = world.submit_job(share("first", half()));
    assert_eq!(world.cpu().live, 2, "one is on its way, and no more may be asked for");
    let beside = world.submit_job(share("beside", QUARTER));
    assert!(!runs(&world, first));
    assert_eq!((world.attempt(beside).node, world.attempt(beside).until), (NodeId(1), None));
}

#[test]
fn what_may_not_go_beside_the_first_goes_where_there_is_room() {
    let mut world = with_nodes(3);
    let eighth = Capacity { cpus_milli: 500, memory_mb: 1_792, gpus: 0 };
    running(&mut world, timed(600_000, share("ends", three_quarters())));
    running(&mut world, share("full", three_quarters().plus(eighth)));
    running(&mut world, share("stays", three_quarters()));
    world.submit_job(share("first", half()));
    let beside = world.submit_job(share("beside", QUARTER));
    assert_eq!(world.attempt(beside).node, NodeId(3), "the second has no room for it");
}

// ---- in one pass, and what is not on its way

#[test]
fn those_who_come_at_the_same_moment_alternate_also_within_one_pass() {
    let mut world = with_nodes(3);
    running(&mut world, of("cem", job("first")));
    let jobs = [("ann", "a1"), ("ann", "a2"), ("bob", "b1"), ("bob", "b2")];
    world.batch(jobs.map(|(owner, name)| Command::SubmitJob(of(owner, job(name)))));
    assert_eq!([2, 3, 4, 5].map(|id| runs(&world, JobId(id))), [true, false, true, false]);
}

#[test]
fn nothing_is_asked_for_behind_a_job_that_its_owner_may_not_have_yet() {
    let mut world = World::with_cluster(0, 4);
    world.tell(allow(None, Some(4)));
    world.submit_job(share("small", QUARTER));
    world.ready(1);
    world.submit("whole");
    world.submit_job(share("fits", three_quarters()));
    assert_eq!(world.cpu().live, 1);
}

#[test]
fn one_with_a_time_does_not_take_what_the_first_has_as_soon_as_the_rest_comes() {
    let mut world = World::with_cluster(0, 3);
    world.submit_job(gang("trio", 3));
    world.ready(1);
    let short = world.submit_job(timed(60_000, job("short")));
    assert!(!runs(&world, short));
}

#[test]
fn one_with_a_time_goes_before_a_first_that_nobody_can_say_the_start_of() {
    let mut world = with_nodes(2);
    running(&mut world, job("endless"));
    world.submit_job(gang("pair", 2));
    let short = world.submit_job(timed(60_000, job("short")));
    assert!(runs(&world, short));
    assert_eq!(world.attempt(short).until, None);
}

#[test]
fn a_node_that_comes_and_is_kept_free_is_not_on_its_way() {
    let mut world = World::with_cluster(3, 3);
    world.ready(1);
    world.tell(cordon(3));
    world.submit_job(gang("pair", 2));
    let behind = world.submit("behind");
    assert!(!runs(&world, behind), "the first needs this node and the second");
}

#[test]
fn what_was_told_to_end_is_over_by_then_and_not_at_the_end_of_its_time() {
    let mut world = with_nodes(2);
    let unwanted = running(&mut world, timed(600_000, job("unwanted")));
    world.submit_job(gang("pair", 2));
    world.tell(crate::world::cancel(unwanted));
    let short = world.submit_job(timed(60_000, job("short")));
    assert!(!runs(&world, short));
}
