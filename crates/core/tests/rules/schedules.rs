//! A schedule comes due when its time has come, once for each time, and stays due until its job is on record.

use neap_core::command::{PutSchedule, RecordFiring};
use neap_core::schedule::Schedule;
use neap_core::{Code, Command, Event, Millis, ScheduleId};

use crate::world::{DOCUMENT, OTHER_DOCUMENT, WORKSPACE, World, kinds};

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
