//! Windows on a cluster's scale: what they hold, when they let go, and that it is said.

use neap_core::cluster::Cut;
use neap_core::command::{FillWindow, PutCluster, PutWindow};
use neap_core::event::Event;
use neap_core::job::{Exit, StopReason};
use neap_core::lock::{LockLevel, LockScope};
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::unblock::{self, Kind};
use neap_core::window::Span;
use neap_core::{Code, Command, Millis, explain};

use crate::world::{CPU, DOCUMENT, OTHER_DOCUMENT, World, cluster, gang, kinds};

fn span(from: u64, until: u64) -> Span {
    Span { from: Millis(from), until: Millis(until), offsets: (60, 60) }
}

fn window(name: &str, max: i64, spans: &[(u64, u64)]) -> PutWindow {
    PutWindow {
        cluster: CPU,
        name: name.into(),
        enabled: true,
        min: None,
        max: Some(max),
        stops: false,
        zone: "Europe/Berlin".into(),
        spans: spans.iter().map(|(from, until)| span(*from, *until)).collect(),
        refill_at: None,
        document: DOCUMENT,
        by: "me".into(),
        problems: vec![],
    }
}

/// The world's clock begins here.
const T: u64 = 1_000_000;

/// Which nodes were asked for.
fn requested(events: &[Event]) -> Vec<u64> {
    let of = |event: &Event| match event {
        Event::NodeRequested(e) => Some(e.id.0),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

fn scheduled(events: &[Event]) -> Vec<(u32, u32)> {
    let of = |event: &Event| match event {
        Event::ClusterScheduled(e) => Some((e.min, e.max)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn a_window_holds_the_maximum_and_gives_it_back_at_the_moment() {
    let mut world = World::with_cluster(0, 4);
    world.tell(Command::PutWindow(window("nights", 0, &[(T + 5_000, T + 9_000)])));
    assert_eq!(world.wake_at, Some(Millis(T + 5_000)), "it looks again when the window opens");
    assert_eq!(scheduled(&world.wait(4_999)), vec![]);
    assert_eq!(scheduled(&world.wait(1)), [(0, 0)]);
    world.submit("one");
    assert_eq!(world.cpu().live, 0);
    assert_eq!(world.wake_at, Some(Millis(T + 9_000)));
    let Some(Cut::Window { name, max, declared, wanted, until, .. }) = world.cpu().cuts.first() else {
        panic!("{:?}", world.cpu().cuts)
    };
    assert_eq!((&**name, *max, *declared, *wanted), ("nights", 0, 4, 1));
    assert_eq!(until.as_deref(), Some("1970-01-01 01:16 Europe/Berlin"));
    let reasons = explain::queue_reasons(&world.state, neap_core::JobId(1));
    assert_eq!(
        reasons,
        [
            "The schedule 'nights' holds max_instances at 0 until 1970-01-01 01:16 Europe/Berlin; 1 node is wanted, and it is 4 otherwise. Wait, or switch it off with 'neap compute schedule disable'."
        ]
    );
    let verdict = unblock::unblock(&world.state, neap_core::JobId(1), world.now).unwrap();
    assert_eq!(verdict.binding, [Kind::Window].into());
    assert_eq!(verdict.unblocking, [[Kind::Window].into()]);
    let events = world.wait(4_000);
    assert_eq!(scheduled(&events), [(0, 4)]);
    assert_eq!(requested(&events), [1], "what waited is served at once");
}

#[test]
fn a_minimum_is_kept_while_its_window_is_open() {
    let mut world = World::with_cluster(0, 4);
    let days = PutWindow { min: Some(2), max: None, ..window("days", 0, &[(T, T + 9_000)]) };
    let events = world.tell(Command::PutWindow(days));
    assert_eq!(requested(&events), [1, 2], "it is open already");
    world.ready(1);
    world.ready(2);
    world.wait(9_000);
    let events = world.wait(10_000);
    assert_eq!(kinds(&events), ["node.leaving", "node.leaving", "cluster.target"]);
}

#[test]
fn what_runs_is_left_to_end_and_nothing_new_comes_onto_its_node() {
    let mut world = World::with_cluster(0, 4);
    let (one, _two) = (world.submit("one"), world.submit("two"));
    world.ready(1);
    world.start(one);
    world.tell(Command::PutWindow(window("nights", 0, &[(T, T + 90_000)])));
    // The second node was on its way and nobody is on it.
    assert_eq!(world.cpu().live, 1);
    let events = world.end(one, Exit::Success);
    assert_eq!(kinds(&events), ["job.ended", "node.leaving"]);
    assert_eq!(world.cpu().live, 0);
}

#[test]
fn a_window_that_stops_takes_nodes_back_and_the_jobs_wait() {
    let mut world = World::with_cluster(0, 4);
    let (one, two) = (world.submit("one"), world.submit("two"));
    world.ready(1);
    world.start(one);
    world.wait(1_000);
    world.ready(2);
    world.start(two);
    let stops = PutWindow { stops: true, ..window("nights", 1, &[(T, T + 90_000)]) };
    let events = world.tell(Command::PutWindow(stops));
    let stopped = |event: &Event| match event {
        Event::AttemptStopRequested(e) => Some((e.id, e.why)),
        _ => None,
    };
    let stopped: Vec<_> = events.iter().filter_map(stopped).collect();
    assert_eq!(stopped, [(two, StopReason::Preempt)], "the one that has worked least");
    assert!(world.node(2).reason.contains("the schedule 'nights' holds max_instances at 1"));
    world.end(two, Exit::Stopped);
    assert_eq!(world.queued(), [two.0]);
    assert_eq!(world.cpu().live, 1);
}

#[test]
fn the_declared_maximum_stays_held_in_the_quota() {
    let mut world = World::with_cluster(0, 4);
    world.tell(Command::PutWindow(window("nights", 0, &[(T, T + 90_000)])));
    let key = QuotaKey {
        holder: Holder::Subscription("s".into()),
        location: "westus".into(),
        pool: Pool::Dedicated,
    };
    assert_eq!(world.state.quota_usage[&key].held, 16);
    world.tell(Command::SetQuota { key, limit: Some(16), by: "owner".into() });
    let other = Command::PutCluster(PutCluster { max: Some(1), ..cluster("other") });
    assert_eq!(world.refused(other), [Code::ClusterMinNodesExceedCoreQuota]);
    // A job that needs more nodes than the window lets it have waits for its end; it is not refused.
    world.submit_job(gang("large", 4));
}

#[test]
fn a_change_of_the_declared_scale_is_in_force_when_the_window_is_over() {
    let mut world = World::with_cluster(0, 4);
    world.tell(Command::PutWindow(window("nights", 2, &[(T, T + 9_000)])));
    world.scale(3, 6);
    assert_eq!((world.cpu().scale.min, world.cpu().scale.max), (2, 2));
    assert_eq!((world.cpu().declared.min, world.cpu().declared.max), (3, 6));
    world.scale(0, 1);
    assert_eq!((world.cpu().scale.max, &world.cpu().scheduled.max_by), (1, &None));
    world.scale(0, 6);
    world.wait(9_000);
    assert_eq!(world.cpu().scale, world.cpu().declared);
}

#[test]
fn switching_off_and_deleting_let_go_at_once() {
    let mut world = World::with_cluster(0, 4);
    world.submit("one");
    world.tell(Command::PutWindow(window("nights", 0, &[(T, T + 9_000)])));
    let off = PutWindow { enabled: false, ..window("NIGHTS", 0, &[(T, T + 9_000)]) };
    let events = world.tell(Command::PutWindow(off));
    assert_eq!((scheduled(&events), requested(&events)), (vec![(0, 4)], vec![2]));
    assert_eq!(world.cpu().windows.len(), 1, "names are the same in any case");
    world.tell(Command::PutWindow(window("nights", 0, &[(T, T + 9_000)])));
    let events = world.tell(Command::DeleteWindow { cluster: CPU, name: "Nights".into() });
    assert_eq!((scheduled(&events), world.cpu().windows.len()), (vec![(0, 4)], 0));
}

#[test]
fn a_server_that_was_away_goes_by_the_time_it_is_now() {
    let mut world = World::with_cluster(0, 4);
    let spans = [(T + 1_000, T + 2_000), (T + 50_000, T + 60_000)];
    world.tell(Command::PutWindow(window("nights", 0, &spans)));
    // Nobody looked while the first opened and closed.
    world.now = Millis(T + 55_000);
    world.dirty = neap_core::plan::Dirty::all(&world.state);
    let events = world.tell(Command::Start { release: "test".into(), settings: Default::default() });
    assert_eq!(scheduled(&events), [(0, 0)]);
    assert_eq!(world.wake_at, Some(Millis(T + 60_000)));
}

#[test]
fn further_spans_are_of_the_same_definition_or_none() {
    let mut world = World::with_cluster(0, 4);
    let put =
        PutWindow { refill_at: Some(Millis(T + 500)), ..window("nights", 0, &[(T + 1_000, T + 2_000)]) };
    world.tell(Command::PutWindow(put));
    assert_eq!(world.wake_at, Some(Millis(T + 500)));
    let fill = |document| {
        Command::FillWindow(FillWindow {
            cluster: CPU,
            name: "nights".into(),
            document,
            spans: vec![span(T + 5_000, T + 6_000)],
            refill_at: None,
        })
    };
    assert_eq!(world.ask(fill(OTHER_DOCUMENT)), Ok(vec![]));
    world.tell(fill(DOCUMENT));
    assert_eq!(world.wake_at, Some(Millis(T + 5_000)));
    assert_eq!(world.ask(fill(DOCUMENT)), Ok(vec![]));
}

#[test]
fn everything_that_is_wrong_is_said() {
    let mut world = World::with_cluster(0, 4);
    let put = |change: fn(&mut PutWindow)| {
        let mut put = window("nights", 0, &[]);
        change(&mut put);
        Command::PutWindow(put)
    };
    let why = |world: &World, command: Command| world.ask(command).expect_err("it is refused").to_string();
    for (command, part) in [
        (put(|put| put.max = None), "The schedule says neither 'min' nor 'max'"),
        (put(|put| put.max = Some(5)), "max is 5 and max_instances of compute 'cpu' is 4"),
        (put(|put| put.min = Some(-1)), "min is -1"),
        (put(|put| (put.min, put.max) = (Some(3), Some(2))), "min is 3 and max is 2"),
        (put(|put| put.name = "a b".into()), "The schedule name 'a b' is not valid"),
        (
            Command::DeleteWindow { cluster: CPU, name: "x".into() },
            "Compute 'cpu' has no schedule 'x'; 'neap compute schedule list cpu' shows those it has.",
        ),
    ] {
        let why = why(&world, command);
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(world.refused(put(|put| (put.min, put.max) = (Some(9), Some(9)))).len(), 2, "all at once");
    for at in 0..32 {
        world.tell(Command::PutWindow(window(&format!("w{at}"), 0, &[])));
    }
    assert!(why(&world, put(|_| {})).contains("Compute 'cpu' has 32 schedules, which is the limit"));
    world.tell(Command::PutLock(neap_core::command::PutLock {
        scope: LockScope::Cluster(CPU),
        name: "keep".into(),
        level: LockLevel::ReadOnly,
        notes: "".into(),
        by: "owner".into(),
    }));
    assert_eq!(world.refused(put(|put| put.name = "w1".into())), [Code::ScopeLocked]);
    assert_eq!(world.refused(Command::DeleteWindow { cluster: CPU, name: "w1".into() }), [Code::ScopeLocked]);
}
