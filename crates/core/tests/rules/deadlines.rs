//! No transitional state outlives its deadline, and each end has a reason.

use neap_core::command::{Report, SubmitJob};
use neap_core::event::{AttemptStopRequested, NodeLeaving};
use neap_core::job::{Exit, StopReason};
use neap_core::node::NodeState;
use neap_core::plan::Dirty;
use neap_core::{Command, Event, JobId, NodeId};

use crate::world::{World, cancel, job, kinds, settings};

const NODE: NodeId = NodeId(1);

fn world() -> World {
    World::with(settings(|s| {
        s.create_deadline_ms = 20_000;
        s.prepare_deadline_ms = 30_000;
        s.leave_deadline_ms = 40_000;
        s.unusable_keep_ms = 50_000;
    }))
}

fn started(timeout_ms: Option<u64>) -> (World, JobId) {
    let mut world = world();
    world.scale(0, 1);
    let id = world.submit_job(SubmitJob { timeout_ms, ..job("train") });
    world.ready(1);
    world.start(id);
    (world, id)
}

#[test]
fn a_node_that_does_not_come_in_time_has_failed() {
    type Step = fn(&mut World);
    let steps: [(Step, u64, &str); 3] = [
        (|_| {}, 20_000, "the provider did not make it within 20 s"),
        (
            |world| drop(world.report(Report::NodeCreating { node: NODE })),
            20_000,
            "its agent did not join within 20 s",
        ),
        (
            |world| drop(world.report(Report::NodePreparing { node: NODE })),
            30_000,
            "its agent joined and was not heard of for 30 s",
        ),
    ];
    for (step, deadline_ms, why) in steps {
        let mut world = world();
        world.scale(1, 1);
        world.wait(7);
        step(&mut world);
        let late = if deadline_ms == 20_000 && why.starts_with("the provider") { 7 } else { 0 };
        assert_eq!(kinds(&world.wait(deadline_ms - late - 1)), [""; 0], "{why}");
        world.wait(1);
        let deadline = world.now.plus(50_000);
        assert_eq!(world.node(1).state, NodeState::Unusable { deadline }, "{why}");
        assert_eq!(&*world.node(1).reason, why);
        assert_eq!(world.cpu().boot.failures, 1);
    }
}

#[test]
fn a_broken_node_is_shown_for_a_while_and_then_removed() {
    let mut world = world();
    world.scale(1, 1);
    world.report(Report::NodeFailed { node: NODE, reason: "no room".into() });
    world.wait(1_000);
    world.ready(2);
    assert_eq!(kinds(&world.wait(48_999)), [""; 0]);
    let events = world.wait(1);
    let deadline = world.now.plus(40_000);
    assert_eq!(events, [NodeLeaving { id: NODE, deadline, reason: "no room".into() }.into()]);
    assert_eq!(kinds(&world.gone(1)), ["node.gone"]);
}

#[test]
fn a_removal_that_is_not_confirmed_is_asked_for_again() {
    let mut world = world();
    world.scale(1, 1);
    world.ready(1);
    world.scale(0, 0);
    for _ in 0..3 {
        assert_eq!(kinds(&world.wait(39_999)), [""; 0]);
        let events = world.wait(1);
        let reason = "max_instances was lowered to 0".into();
        assert_eq!(events, [NodeLeaving { id: NODE, deadline: world.now.plus(40_000), reason }.into()]);
    }
}

#[test]
fn a_job_that_runs_too_long_is_told_to_stop_and_then_its_node_is_fenced() {
    let (mut world, id) = started(Some(7_000));
    let grace = world.state.settings.stop_grace_ms;
    assert_eq!(kinds(&world.wait(7_000 + grace + 5_000 - 1)), [""; 0]);
    let events = world.wait(1);
    let deadline = world.now.plus(2 * grace + 5_000);
    let stop = AttemptStopRequested { id, attempt: 1, why: StopReason::Timeout, deadline, reason: None };
    assert_eq!(events, [stop.into()]);
    assert_eq!(kinds(&world.wait(2 * grace + 5_000 - 1)), [""; 0]);
    world.wait(1);
    assert_eq!(world.node(1).state, NodeState::Leaving { deadline: world.now.plus(40_000) });
    assert_eq!(&*world.node(1).reason, "job 'train' did not end when it was told to");
    assert_eq!(world.job(id).attempts_made, 1, "and only when it is gone may the job go on");
}

#[test]
fn a_job_without_a_timeout_may_run_for_ever() {
    let (mut world, _) = started(None);
    assert_eq!(kinds(&world.wait(1_000_000_000)), [""; 0]);
    assert_eq!(world.wake_at, None);
}

#[test]
fn a_node_that_leaves_already_is_not_told_so_again_for_its_job() {
    let (mut world, id) = started(None);
    world.tell(cancel(id));
    world.wait(60_000);
    let NodeState::Leaving { deadline } = world.node(1).state else { panic!("{:?}", world.node(1)) };
    world.tell(Command::Start { release: "test".into(), settings: world.state.settings.clone() });
    // A restarted server looks at every timer again.
    world.dirty = Dirty::all(&world.state);
    world.wait(1);
    assert_eq!(world.node(1).state, NodeState::Leaving { deadline });
}

#[test]
fn when_the_patience_of_a_drain_ends_what_runs_is_stopped_and_goes_back() {
    let (mut world, id) = started(None);
    let waiting = world.submit("waiting");
    world.tell(Command::Drain { deadline: world.now.plus(1_000) });
    assert_eq!(kinds(&world.wait(999)), [""; 0], "it may end by itself until then");
    let events = world.wait(1);
    let deadline = world.now.plus(2 * world.state.settings.stop_grace_ms + 5_000);
    let why = StopReason::Draining;
    assert_eq!(events, [AttemptStopRequested { id, attempt: 1, why, deadline, reason: None }.into()]);
    world.end(id, Exit::Stopped);
    assert_eq!(world.job(id).attempts_lost, 0);
    assert!(
        world.job(id).attempt().is_none() && world.job(waiting).attempt().is_none(),
        "nothing new is placed"
    );
}

#[test]
fn a_drain_does_not_stop_twice_what_was_told_to_stop() {
    let (mut world, id) = started(None);
    world.tell(cancel(id));
    world.tell(Command::Drain { deadline: world.now.plus(1_000) });
    assert_eq!(kinds(&world.wait(1_000)), [""; 0]);
    assert_eq!(world.attempt(id).stop.as_ref().unwrap().why, StopReason::Cancel);
}

#[test]
fn a_moment_is_looked_at_once() {
    let (mut world, _) = started(Some(7_000));
    let timer = world.wake_at.unwrap();
    world.now = timer;
    let stops =
        |events: &[Event]| events.iter().filter(|e| matches!(e, Event::AttemptStopRequested(_))).count();
    assert_eq!(stops(&world.wait(0)), 1);
    assert_eq!(world.dirty.timers_seen, timer);
    assert_eq!(kinds(&world.wait(0)), [""; 0]);
    world.now = neap_core::Millis(timer.0 - 5);
    assert_eq!(kinds(&world.wait(0)), [""; 0], "nor again after the clock was set back");
    assert_eq!(world.dirty.timers_seen, timer);
}
