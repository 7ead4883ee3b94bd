//! A schedule comes due when its time has come, once for each time, and stays due until its job is on record.

use neap_core::command::{PutSchedule, RecordFiring};
use neap_core::limits::SCHEDULES_PER_WORKSPACE_MAX;
use neap_core::schedule::Schedule;
use neap_core::{Code, Command, Event, Millis, Problem, ScheduleId, WorkspaceId};

use crate::world::{DOCUMENT, OTHER_DOCUMENT, WORKSPACE, World, kinds, put_workspace};

const NIGHTLY: ScheduleId = ScheduleId(1);

fn put(next: Option<Millis>) -> PutSchedule {
    PutSchedule {
        workspace: WORKSPACE,
        name: "nightly".into(),
        owner: "owner".into(),
        enabled: true,
        next,
        document: DOCUMENT,
        problems: Vec::new(),
    }
}

fn firing(at: Millis, next: Option<Millis>) -> RecordFiring {
    RecordFiring {
        schedule: NIGHTLY,
        at,
        forced: false,
        document: DOCUMENT,
        job: Some("nightly-1".into()),
        problem: None,
        next,
    }
}

fn nightly(world: &World) -> &Schedule {
    &world.state.schedules[&NIGHTLY]
}

#[test]
fn it_comes_due_at_its_time_and_once() {
    let mut world = World::new();
    let next = world.now.plus(5_000);
    assert_eq!(kinds(&world.tell(Command::PutSchedule(put(Some(next))))), ["schedule.put"]);
    assert_eq!(world.wake_at, Some(next));
    assert_eq!(kinds(&world.wait(4_999)), Vec::<&str>::new());
    assert_eq!(kinds(&world.wait(1)), ["schedule.due"]);
    assert_eq!(nightly(&world).due, Some(next));
    assert_eq!(kinds(&world.wait(100_000)), Vec::<&str>::new(), "it is due already");

    let later = world.now.plus(60_000);
    let events = world.tell(Command::RecordFiring(firing(next, Some(later))));
    assert_eq!(kinds(&events), ["schedule.triggered"]);
    assert_eq!((nightly(&world).due, nightly(&world).next), (None, Some(later)));
    assert_eq!(nightly(&world).firings[0].job.as_deref(), Some("nightly-1"));
    // The same word again, as after a crash, changes nothing.
    assert_eq!(world.tell(Command::RecordFiring(firing(next, Some(later)))), Vec::<Event>::new());
    assert_eq!(kinds(&world.wait(60_000)), ["schedule.due"]);
}

#[test]
fn a_time_that_has_passed_comes_due_at_once() {
    let mut world = World::new();
    let past = Millis(world.now.0 - 1);
    assert_eq!(kinds(&world.tell(Command::PutSchedule(put(Some(past))))), ["schedule.put", "schedule.due"]);
    let events = world.tell(Command::RecordFiring(firing(past, Some(world.now))));
    assert_eq!(kinds(&events), ["schedule.triggered", "schedule.due"]);
}

#[test]
fn a_missed_stretch_fires_once() {
    let mut world = World::new();
    let next = world.now.plus(1_000);
    world.tell(Command::PutSchedule(put(Some(next))));
    // As after a long absence: everything is looked at again.
    world.dirty = neap_core::plan::Dirty::all(&world.state);
    assert_eq!(kinds(&world.wait(1_000_000)), ["schedule.due"]);
    assert_eq!(nightly(&world).due, Some(next));
}

#[test]
fn what_is_switched_off_does_not_fire() {
    let mut world = World::new();
    let next = world.now.plus(1_000);
    world.tell(Command::PutSchedule(put(Some(next))));
    world.tell(Command::PutSchedule(PutSchedule { enabled: false, ..put(Some(next)) }));
    assert_eq!((nightly(&world).enabled, nightly(&world).next, world.wake_at), (false, None, None));
    assert_eq!(kinds(&world.wait(5_000)), Vec::<&str>::new());
    // Also what was due already.
    world.tell(Command::PutSchedule(put(Some(next))));
    assert!(nightly(&world).due.is_some());
    world.tell(Command::PutSchedule(PutSchedule { enabled: false, ..put(None) }));
    assert_eq!(nightly(&world).due, None);
    assert_eq!(world.tell(Command::RecordFiring(firing(next, None))), Vec::<Event>::new());
}

#[test]
fn a_time_of_another_definition_counts_no_more() {
    let mut world = World::new();
    let (first, second, stale) = (world.now.plus(1_000), world.now.plus(9_000), world.now.plus(2_000));
    world.tell(Command::PutSchedule(put(Some(first))));
    world.wait(1_000);
    world.tell(Command::PutSchedule(PutSchedule { document: OTHER_DOCUMENT, ..put(Some(second)) }));
    assert_eq!(nightly(&world).due, Some(first), "what is due stays due");
    world.tell(Command::RecordFiring(firing(first, Some(stale))));
    assert_eq!(nightly(&world).next, Some(second));
}

#[test]
fn a_wish_leaves_the_times_as_they_are() {
    let mut world = World::new();
    let next = world.now.plus(1_000);
    world.tell(Command::PutSchedule(put(Some(next))));
    let wish = RecordFiring { forced: true, ..firing(world.now, None) };
    world.tell(Command::RecordFiring(wish.clone()));
    assert_eq!((nightly(&world).next, nightly(&world).firings.len()), (Some(next), 1));
    world.wait(1_000);
    world.tell(Command::RecordFiring(wish.clone()));
    assert_eq!(nightly(&world).due, Some(next));
    for _ in 0..20 {
        world.tell(Command::RecordFiring(wish.clone()));
    }
    assert_eq!(nightly(&world).firings.len(), neap_core::limits::SCHEDULE_FIRINGS_KEPT);
}

#[test]
fn it_goes_when_it_is_deleted_or_its_workspace_is() {
    let mut world = World::new();
    world.tell(Command::PutSchedule(put(Some(world.now.plus(1_000)))));
    world.tell(Command::DeleteSchedule { schedule: NIGHTLY });
    assert!(world.state.schedules.is_empty() && world.wake_at.is_none());
    assert_eq!(world.refused(Command::DeleteSchedule { schedule: NIGHTLY }), [Code::ResourceNotFound]);
    assert_eq!(world.refused(Command::RecordFiring(firing(world.now, None))), [Code::ResourceNotFound]);

    world.tell(Command::PutSchedule(put(Some(world.now))));
    let events = world.tell(Command::DeleteWorkspace { workspace: WORKSPACE });
    assert_eq!(kinds(&events), ["workspace.delete_requested", "schedule.deleted", "workspace.deleted"]);
    assert_eq!(world.refused(Command::PutSchedule(put(None))), [Code::ParentResourceNotFound]);
}

#[test]
fn a_name_has_rules_and_case_does_not_count() {
    let mut world = World::new();
    let bad = PutSchedule { name: "a b".into(), ..put(None) };
    assert_eq!(world.refused(Command::PutSchedule(bad)), [Code::InvalidResourceName]);
    let long = PutSchedule { name: "x".repeat(201).into(), ..put(None) };
    assert_eq!(world.refused(Command::PutSchedule(long)), [Code::InvalidResourceName]);
    world.tell(Command::PutSchedule(put(None)));
    world.tell(Command::PutSchedule(PutSchedule {
        name: "NIGHTLY".into(),
        owner: "other".into(),
        ..put(None)
    }));
    assert_eq!(world.state.schedules.len(), 1);
    assert_eq!((&*nightly(&world).name, &*nightly(&world).owner), ("nightly", "owner"));
}

#[test]
fn a_workspace_has_so_many_schedules_and_no_more() {
    let mut world = World::new();
    let named = |number: usize| PutSchedule { name: format!("s{number}").into(), ..put(None) };
    let most = SCHEDULES_PER_WORKSPACE_MAX;
    world.batch((1..most).map(|number| Command::PutSchedule(named(number))));
    world.tell(Command::PutSchedule(named(most)));
    let one_more = || Command::PutSchedule(named(most + 1));
    assert_eq!(world.refused(one_more()), [Code::LimitReached]);
    let why = world.ask(one_more()).unwrap_err().to_string();
    assert!(why.contains(&format!("has {most} schedules")), "{why}");

    let events = world.tell(Command::PutSchedule(named(1)));
    assert_eq!(kinds(&events), ["schedule.put"], "what is there may be changed all the same");
    world.tell(put_workspace("other"));
    world.tell(Command::PutSchedule(PutSchedule { workspace: WorkspaceId(2), ..named(1) }));
    assert_eq!(world.refused(one_more()), [Code::LimitReached], "each workspace counts its own");
    world.tell(Command::DeleteSchedule { schedule: NIGHTLY });
    world.tell(one_more());
}

#[test]
fn what_is_due_does_not_come_due_again_when_it_is_put_again() {
    let mut world = World::new();
    let past = Millis(world.now.0 - 1);
    world.tell(Command::PutSchedule(put(Some(past))));
    assert_eq!(kinds(&world.tell(Command::PutSchedule(put(Some(world.now))))), ["schedule.put"]);
    assert_eq!((nightly(&world).due, nightly(&world).next), (Some(past), Some(world.now)));
    // A wish does not make a time that has passed come due either.
    let wish = RecordFiring { forced: true, ..firing(world.now, Some(past)) };
    assert_eq!(kinds(&world.tell(Command::RecordFiring(wish))), ["schedule.triggered"]);
    assert_eq!((nightly(&world).due, nightly(&world).next), (Some(past), Some(world.now)));
}

#[test]
fn another_time_than_the_one_that_is_due_is_not_recorded() {
    let mut world = World::new();
    let (first, second) = (world.now.plus(1_000), world.now.plus(9_000));
    world.tell(Command::PutSchedule(put(Some(first))));
    world.wait(1_000);
    world.tell(Command::RecordFiring(firing(Millis(1), Some(second))));
    assert_eq!((nightly(&world).due, nightly(&world).next), (Some(first), None));
    world.tell(Command::RecordFiring(firing(first, None)));
    assert_eq!((nightly(&world).due, nightly(&world).next, world.wake_at), (None, None, None));
}

#[test]
fn problems_are_told_and_a_server_that_stops_takes_no_schedule() {
    let mut world = World::new();
    let problems = vec![Problem::new(Code::NotSupported, "not that")];
    let wrong = PutSchedule { name: "a b".into(), problems, ..put(None) };
    assert_eq!(world.refused(Command::PutSchedule(wrong)), [Code::NotSupported, Code::InvalidResourceName]);
    world.tell(Command::Drain { deadline: world.now.plus(1_000) });
    assert_eq!(world.refused(Command::PutSchedule(put(None))), [Code::ServerIsStopping]);
}

#[test]
fn a_schedule_says_since_when_it_is_and_when_it_was_changed() {
    let mut world = World::new();
    let created = world.now;
    world.tell(Command::PutSchedule(put(None)));
    world.wait(7);
    world.tell(Command::PutSchedule(PutSchedule { document: OTHER_DOCUMENT, ..put(None) }));
    let schedule = nightly(&world);
    assert_eq!((schedule.created, schedule.modified), (created, created.plus(7)));
    assert_eq!(schedule.document, OTHER_DOCUMENT);
}
