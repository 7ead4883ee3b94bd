//! Families within families, and what becomes of those who wait for the same.

use neap_core::budget::tag_label;
use neap_core::command::{NewMemberKind, PutLock};
use neap_core::family::FamilyKind;
use neap_core::job::{Exit, JobState, Need};
use neap_core::limits::PLAN_EVENTS_MAX;
use neap_core::lock::{LockLevel, LockScope};
use neap_core::state::Timer;
use neap_core::{Capacity, Code, Command, JobId, WorkspaceId};

use crate::world::{WORKSPACE, World, cancel, ends, kinds, member, message, pipeline, step};

const STEPS: FamilyKind = FamilyKind::Steps { go_on: true };

fn nested(timeout_ms: Option<u64>) -> NewMemberKind {
    NewMemberKind::Family { kind: STEPS, timeout_ms }
}

/// Three nodes that are idle.
fn roomy() -> World {
    let mut world = World::with_cluster(3, 3);
    for node in 1..=3 {
        world.ready(node);
    }
    world
}

#[test]
fn the_time_of_a_family_within_another_begins_at_once_if_it_waits_for_nobody() {
    let mut world = roomy();
    let mut around = pipeline("p", true, &[]);
    around.members.push(member("nested", 0, &[], nested(Some(5_000))));
    around.members.push(member("within", 1, &[], step()));
    world.submit_family(around);
    assert_eq!(world.family(JobId(2)).deadline, Some(world.now.plus(5_000)));
    world.wait(5_000);
    assert!(world.family(JobId(2)).cancel.is_some() && world.family(JobId(1)).cancel.is_none());
}

#[test]
fn a_family_that_was_canceled_needs_no_look_at_the_end_of_its_time() {
    let mut world = roomy();
    let mut around = pipeline("p", true, &[("a", &[])]);
    around.members[0].what = nested(Some(5_000));
    let root = world.submit_family(around);
    let timers = |world: &World| world.state.timers.iter().filter(|(_, t)| *t == Timer::Job(root)).count();
    assert_eq!(timers(&world), 1);
    world.tell(cancel(root));
    assert!(world.state.families.contains_key(&root), "its step has not ended");
    assert_eq!(timers(&world), 0);
}

#[test]
fn one_that_waits_no_more_does_not_keep_others_from_hearing() {
    let mut world = roomy();
    world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1]), ("c", &[1])]));
    world.tell(cancel(JobId(3)));
    assert_eq!(world.job(JobId(4)).state, JobState::Waiting);
    world.end(JobId(2), Exit::Success);
    assert!(world.job(JobId(4)).attempt().is_some());
}

#[test]
fn who_waits_for_another_than_the_first_that_failed_is_not_told_of_that_one() {
    let mut world = roomy();
    world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[]), ("c", &[2])]));
    world.end(JobId(2), Exit::Code { code: 1 });
    let events = world.end(JobId(3), Exit::Code { code: 1 });
    assert_eq!(message(&events, JobId(4)), "A step whose output it needs did not complete.");
}

#[test]
fn of_families_that_end_together_the_inner_one_comes_first() {
    let mut world = World::with_cluster(0, 0);
    let mut around = pipeline("p", true, &[("a", &[])]);
    around.members.push(member("nested", 0, &[], nested(None)));
    around.members.push(member("within", 2, &[], step()));
    let root = world.submit_family(around);
    let events = world.batch([cancel(root), cancel(JobId(3))]);
    let ended: Vec<u64> = ends(&events).into_iter().map(|(id, _, _)| id).collect();
    assert_eq!(ended, [4, 3, 2, 1]);
}

#[test]
fn a_member_has_its_own_tags_and_its_familys_each_once() {
    let mut world = World::with_cluster(0, 0);
    let (red, blue) = (tag_label("team", "red"), tag_label("team", "blue"));
    let mut around = pipeline("p", true, &[("a", &[]), ("b", &[])]);
    around.members[0].tags = vec![red];
    around.members[1].tags = vec![red, blue];
    world.submit_family(around);
    assert_eq!(world.job(JobId(2)).tags, [red, blue]);
    assert_eq!(world.job(JobId(3)).tags, [red]);
}

#[test]
fn many_steps_are_released_in_bounded_plans() {
    let mut world = World::with_cluster(0, 0);
    let more = 10;
    let mut around = pipeline("p", true, &[]);
    // Complete at once, so that all the others are released in one plan, or in as few as may be.
    around.members.push(member("nested", 0, &[], nested(None)));
    let many = (0..PLAN_EVENTS_MAX + more).map(|i| member(&format!("s{i}"), 0, &[1], step()));
    around.members.extend(many);
    let asked = around.members.len();
    let planned = world.tell(Command::SubmitFamily(around));
    let released = kinds(&planned[asked..]).iter().filter(|kind| **kind == "job.released").count();
    assert_eq!((planned.len() - asked, released), (PLAN_EVENTS_MAX, PLAN_EVENTS_MAX - 1));
    assert_eq!(world.wake_at, Some(world.now), "the rest is for the next");
    let events = world.wait(1);
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "job.released").count(), more + 1);
    assert!(world.state.waits.is_empty());
}

#[test]
fn a_family_with_more_running_steps_than_a_plan_has_room_for_tells_all_of_them() {
    let mut world = World::with_cluster(6, 6);
    for node in 1..=6 {
        world.ready(node);
    }
    let more = 10;
    let steps = PLAN_EVENTS_MAX / 2 + more;
    let tiny = || {
        let mut tiny = step();
        if let NewMemberKind::Job { need, .. } = &mut tiny {
            *need = Need::Share(Capacity { cpus_milli: 10, memory_mb: 0, gpus: 0 });
        }
        tiny
    };
    let mut around = pipeline("p", true, &[]);
    around.members.extend((0..steps).map(|i| member(&format!("s{i}"), 0, &[], tiny())));
    let root = world.submit_family(around);
    assert_eq!(world.cpu().active.len(), steps, "all of them run");
    // Two events for each: that it is not wanted, and that its attempt is to end.
    assert_eq!(world.tell(cancel(root)).len() - 1, PLAN_EVENTS_MAX);
    let told = |world: &World| world.state.jobs.values().filter(|job| job.cancel.is_some()).count();
    assert_eq!((told(&world), world.wake_at), (steps - more, Some(world.now)));
    world.wait(1);
    assert_eq!(told(&world), steps);
}

#[test]
fn a_family_is_taken_where_a_job_would_be() {
    let mut world = roomy();
    let of = |workspace| {
        let mut steps = pipeline("p", true, &[("a", &[])]);
        steps.workspace = workspace;
        Command::SubmitFamily(steps)
    };
    assert_eq!(world.refused(of(WorkspaceId(9))), [Code::ParentResourceNotFound]);
    let (scope, name, level) = (LockScope::Workspace(WORKSPACE), "keep".into(), LockLevel::ReadOnly);
    world.tell(Command::PutLock(PutLock { scope, name, level, notes: "".into(), by: "me".into() }));
    assert_eq!(world.refused(of(WORKSPACE)), [Code::ScopeLocked]);
}

#[test]
fn what_is_wrong_with_the_order_of_steps_is_said_in_words() {
    let world = roomy();
    let itself = pipeline("p", true, &[("a", &[1])]);
    let refusal = world.ask(Command::SubmitFamily(itself)).unwrap_err();
    let said: Vec<&str> = refusal.problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(said, ["The step 'a' waits for itself, or is part of no pipeline."]);
}
