//! Whose turn it is: shares, who may go before somebody else, and how much one may have.

use neap_core::allowance::{Allowance, AllowanceKey, Who, Within};
use neap_core::cluster::Cut;
use neap_core::command::SubmitJob;
use neap_core::job::{Cause, Exit, StopReason};
use neap_core::queue::Order;
use neap_core::{Command, Event, JobId};

use crate::world::{CPU, QUARTER, WORKSPACE, World, gang, job, settings, share};

fn of(owner: &str, name: &str) -> SubmitJob {
    SubmitJob { owner: owner.into(), ..job(name) }
}

fn timed(name: &str, timeout_s: u64) -> SubmitJob {
    SubmitJob { timeout_ms: Some(timeout_s * 1000), ..job(name) }
}

fn runs(world: &World, id: JobId) -> bool {
    world.state.jobs.get(&id).is_some_and(|job| job.attempt().is_some())
}

fn order(world: &World) -> Vec<u64> {
    Order::new(&world.state, world.cpu()).map(|job| job.id.0).collect()
}

/// Nodes that are there from the start.
fn with_nodes(count: u32) -> World {
    let mut world = World::with_cluster(count, count);
    for node in 1..=count {
        world.ready(node.into());
    }
    world
}

#[test]
fn two_who_come_at_the_same_time_alternate() {
    let mut world = World::with_cluster(0, 1);
    for (owner, name) in [("ann", "a1"), ("ann", "a2"), ("ann", "a3"), ("bob", "b1"), ("bob", "b2")] {
        world.submit_job(of(owner, name));
    }
    assert_eq!(order(&world), [1, 4, 2, 5, 3]);
}

#[test]
fn who_used_less_comes_first_and_old_use_fades() {
    let mut world = with_nodes(1);
    let long = world.submit_job(of("ann", "long"));
    world.start(long);
    world.wait(3_600_000);
    world.end(long, Exit::Success);
    let filler = world.submit_job(of("cem", "filler"));
    let (ann, bob) = (world.submit_job(of("ann", "a")), world.submit_job(of("bob", "b")));
    assert_eq!(order(&world), [bob.0, ann.0], "although it came later");
    world.start(filler);
    world.wait(60 * 24 * 3_600_000);
    world.end(filler, Exit::Success);
    assert!(runs(&world, ann) && !runs(&world, bob), "after two months nothing is left of it");
}

#[test]
fn priority_comes_before_shares() {
    let mut world = World::with_cluster(0, 1);
    world.submit_job(of("ann", "low"));
    world.submit_job(SubmitJob { priority: 9, ..of("ann", "high") });
    world.submit_job(of("bob", "other"));
    assert_eq!(order(&world), [2, 3, 1], "and is charged like everything else");
}

#[test]
fn one_that_is_over_in_time_goes_before_a_gang_that_waits() {
    let mut world = with_nodes(2);
    let running = world.submit_job(timed("running", 600));
    world.start(running);
    let pair = world.submit_job(gang("pair", 2));
    let endless = world.submit_job(job("endless"));
    let long = world.submit_job(timed("long", 3_600));
    let short = world.submit_job(timed("short", 60));
    assert!(!runs(&world, pair) && !runs(&world, endless) && !runs(&world, long));
    assert!(runs(&world, short), "it is over before the first can be");
    let until = world.attempt(short).until.unwrap();
    let promised = world.attempt(running).run_deadline.unwrap();
    assert!(until < promised && until > world.now.plus(60_000));
    world.start(short);
    world.end(running, Exit::Success);
    world.end(short, Exit::Success);
    assert!(runs(&world, pair));
}

#[test]
fn one_that_does_not_keep_its_word_is_stopped_before_the_promise_is_due() {
    let mut world = with_nodes(2);
    let running = world.submit_job(timed("running", 600));
    world.start(running);
    let pair = world.submit_job(gang("pair", 2));
    let short = world.submit_job(timed("short", 60));
    let until = world.attempt(short).until.unwrap();
    // Its environment took so long that its time to run has not even begun.
    world.wait(until.since(world.now));
    assert_eq!(world.attempt(short).stop.as_ref().unwrap().why, StopReason::Preempt);
    let events = world.end(short, Exit::Stopped);
    assert!(events.iter().any(|e| matches!(e, Event::JobRequeued(e) if e.cause == Cause::Preempted)));
    world.end(running, Exit::Timeout);
    assert!(runs(&world, pair) && !runs(&world, short));
}

#[test]
fn nodes_that_the_first_does_not_need_are_free_for_others() {
    let mut world = World::with_cluster(0, 4);
    let trio = world.submit_job(gang("trio", 3));
    let one = world.submit("one");
    world.ready(1);
    assert!(!runs(&world, trio) && runs(&world, one), "three more come for the first");
    let two = world.submit("two");
    world.ready(2);
    assert!(!runs(&world, two), "the first needs what is there");
    world.ready(3);
    world.ready(4);
    assert!(runs(&world, trio) && !runs(&world, two));
}

#[test]
fn a_job_that_can_never_start_keeps_nobody_waiting() {
    let mut world = World::with_cluster(0, 2);
    let large = world.submit_job(gang("large", 2));
    world.scale(0, 1);
    world.ready(2);
    let small = world.submit("small");
    assert!(!runs(&world, large) && runs(&world, small));
}

#[test]
fn shares_go_beside_where_the_first_does_not_fit_anyway() {
    let mut world = with_nodes(2);
    let half = QUARTER.plus(QUARTER);
    let three = half.plus(QUARTER);
    let ends = world.submit_job(SubmitJob { timeout_ms: Some(600_000), ..share("ends", three) });
    world.start(ends);
    let stays = world.submit_job(share("stays", three));
    world.start(stays);
    let first = world.submit_job(share("first", half));
    let beside = world.submit_job(share("beside", QUARTER));
    assert!(!runs(&world, first));
    assert_eq!(world.attempt(beside).node, world.attempt(stays).node, "not where the first will be");
    let more = world.submit_job(share("more", QUARTER));
    assert!(!runs(&world, more), "only the first one's node has room");
}

#[test]
fn somebody_who_has_as_much_as_is_allowed_waits_and_holds_nobody_up() {
    let mut world = World::with_cluster(0, 4);
    let set = |who, allowance| Command::SetAllowance {
        key: AllowanceKey { within: Within::Workspace(WORKSPACE), who },
        allowance,
        by: "me".into(),
    };
    world.tell(set(Who::EachUser, Some(Allowance { jobs: Some(1), cores: None })));
    let (a1, a2) = (world.submit_job(of("ann", "a1")), world.submit_job(of("ann", "a2")));
    let b1 = world.submit_job(of("bob", "b1"));
    assert_eq!(world.cpu().live, 2, "nothing is asked for what may not run");
    assert!(
        matches!(&world.cpu().cuts[..], [Cut::Allowance { in_use: 1, limit: 1, .. }]),
        "{:?}",
        world.cpu().cuts
    );
    world.ready(1);
    world.ready(2);
    assert!(runs(&world, a1) && runs(&world, b1) && !runs(&world, a2));
    world.end(a1, Exit::Success);
    assert!(runs(&world, a2));
    world.tell(set(Who::EachUser, None));
    assert!(world.cpu().cuts.is_empty());
}

#[test]
fn a_team_is_counted_together_and_by_cores() {
    let mut world = World::with(settings(|settings| {
        settings.teams = [("vision".into(), ["ann".into(), "bob".into()].into())].into();
    }));
    world.scale(0, 4);
    let key = AllowanceKey { within: Within::Cluster(CPU), who: Who::Team("vision".into()) };
    let allowance = Some(Allowance { jobs: None, cores: Some(7) });
    world.tell(Command::SetAllowance { key, allowance, by: "me".into() });
    let ids = [of("ann", "a"), of("bob", "b"), of("cem", "c")].map(|job| world.submit_job(job));
    world.ready(1);
    world.ready(2);
    assert_eq!(ids.map(|id| runs(&world, id)), [true, false, true], "a node has four cores");
    let unknown = AllowanceKey { within: Within::Cluster(CPU), who: Who::Team("sound".into()) };
    let refused = world.ask(Command::SetAllowance { key: unknown, allowance, by: "me".into() }).unwrap_err();
    assert!(refused.problems[0].message.contains("vision"), "{:?}", refused.problems);
}

#[test]
fn what_everybody_has_used_is_as_of_the_last_that_was_placed() {
    let mut world = World::with_cluster(0, 1);
    world.submit("first");
    world.wait(7);
    world.ready(1);
    assert_eq!(world.cpu().shares_at, world.now);
}

#[test]
fn of_those_who_may_have_no_more_some_are_named_and_each_limit_once() {
    let mut world = World::with_cluster(0, 4);
    let mut limit = |who: Who, jobs: Option<u32>| {
        let key = AllowanceKey { within: Within::Workspace(WORKSPACE), who };
        let allowance = jobs.map(|jobs| Allowance { jobs: Some(jobs), cores: None });
        world.tell(Command::SetAllowance { key, allowance, by: "me".into() });
    };
    let owners = ["ann", "bob", "cem", "dora", "eli"];
    for owner in owners {
        limit(Who::User(owner.into()), Some(0));
    }
    for owner in owners {
        world.submit_job(of(owner, owner));
    }
    assert_eq!(world.cpu().cuts.len(), 3, "{:?}", world.cpu().cuts);

    let mut world = World::with_cluster(0, 4);
    let key = AllowanceKey { within: Within::Workspace(WORKSPACE), who: Who::EachUser };
    let allowance = Some(Allowance { jobs: Some(0), cores: None });
    world.tell(Command::SetAllowance { key, allowance, by: "me".into() });
    for owner in owners {
        world.submit_job(of(owner, owner));
    }
    assert_eq!(world.cpu().cuts.len(), 1, "{:?}", world.cpu().cuts);
}

#[test]
fn as_many_go_before_the_first_as_it_does_not_need() {
    let mut world = World::with_cluster(0, 4);
    let trio = world.submit_job(gang("trio", 3));
    let (one, two) = (world.submit("one"), world.submit("two"));
    world.batch([1, 2].map(|node| Command::Report(crate::world::ready(neap_core::NodeId(node)))));
    assert!(runs(&world, one) && !runs(&world, two) && !runs(&world, trio), "of four, the first needs three");
}
