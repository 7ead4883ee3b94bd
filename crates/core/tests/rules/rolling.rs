//! Another size, tier, login or network: nodes are replaced one by one, and nothing that runs is ended.

use neap_core::command::{PutCluster, RemakeCluster};
use neap_core::event::Event;
use neap_core::job::Exit;
use neap_core::lock::{LockLevel, LockScope};
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::unblock::{self, Kind};
use neap_core::{Capacity, Code, Command, NodeId};

use crate::world::{CPU, OTHER_DOCUMENT, QUARTER, WORKSPACE, World, cluster, share};

fn remake(size: &str) -> RemakeCluster {
    let put = PutCluster {
        size: Some(size.into()),
        min: Some(0),
        max: Some(4),
        idle_ms: Some(10_000),
        document: OTHER_DOCUMENT,
        ..cluster("cpu")
    };
    RemakeCluster { put, make: None }
}

fn to_size(size: &str) -> Command {
    Command::RemakeCluster(remake(size))
}

/// Which nodes were asked for.
fn requested(events: &[Event]) -> Vec<u64> {
    let of = |event: &Event| match event {
        Event::NodeRequested(e) => Some(e.id.0),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

fn drained(events: &[Event]) -> Vec<u64> {
    let of = |event: &Event| match event {
        Event::NodeCordoned(e) if e.leave => Some(e.id.0),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

fn left(events: &[Event]) -> Vec<u64> {
    let of = |event: &Event| match event {
        Event::NodeLeaving(e) => Some(e.id.0),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

/// Three jobs run on three nodes, a fourth waits.
fn busy() -> World {
    let mut world = World::with_cluster(0, 3);
    for name in ["a", "b", "c", "d"] {
        world.submit(name);
    }
    for node in 1..=3 {
        world.ready(node);
        world.start(neap_core::JobId(node));
    }
    world
}

#[test]
fn nodes_are_drained_and_replaced_one_by_one() {
    let mut world = busy();
    let mut change = remake("Standard_DS4_v2");
    change.put.max = Some(3);
    let events = world.tell(Command::RemakeCluster(change));
    assert_eq!((drained(&events), left(&events)), (vec![1], vec![]), "what runs goes on");
    assert_eq!(world.cpu().old.len(), 3);
    assert_eq!(world.cpu().revision, 2);
    // The job that waits does not come onto the node that goes.
    let events = world.end(neap_core::JobId(1), Exit::Success);
    assert_eq!(left(&events), [1]);
    assert_eq!(requested(&events), [4]);
    assert_eq!(&*world.node(4).shape.size, "STANDARD_DS4_V2");
    assert_eq!(drained(&world.gone(1)), Vec::<u64>::new(), "the new one is not there yet");
    let events = world.ready(4);
    assert_eq!(world.attempt(neap_core::JobId(4)).node, NodeId(4));
    assert_eq!(drained(&events), [2]);
    world.end(neap_core::JobId(2), Exit::Success);
    assert_eq!(drained(&world.gone(2)), [3], "nobody needs another, so the next has its turn");
    world.end(neap_core::JobId(3), Exit::Success);
    world.gone(3);
    assert_eq!(world.cpu().old.len(), 0);
    assert_eq!(world.state.nodes.len(), 1);
}

#[test]
fn idle_nodes_go_first_and_the_minimum_comes_back_in_the_new_form() {
    let mut world = World::with_cluster(2, 3);
    world.ready(1);
    world.ready(2);
    let job = world.submit("a");
    world.start(job);
    let mut change = remake("Standard_DS4_v2");
    (change.put.min, change.put.max) = (Some(2), Some(3));
    let events = world.tell(Command::RemakeCluster(change));
    assert_eq!((drained(&events), left(&events), requested(&events)), (vec![2], vec![2], vec![3]));
    world.gone(2);
    assert_eq!(drained(&world.ready(3)), [1]);
}

#[test]
fn a_form_that_does_not_start_takes_one_node_away_and_no_more() {
    let mut world = busy();
    let mut change = remake("Standard_DS4_v2");
    change.put.max = Some(3);
    world.tell(Command::RemakeCluster(change));
    world.end(neap_core::JobId(1), Exit::Success);
    world.gone(1);
    for node in 4..9 {
        assert_eq!(drained(&world.report_failed(node)), Vec::<u64>::new());
        let events = world.wait(120_000);
        assert_eq!((drained(&events), requested(&events)), (vec![], vec![node + 1]));
    }
    assert_eq!(world.cpu().live, 3);
}

#[test]
fn going_back_leaves_the_nodes_that_are_still_of_that_form() {
    let mut world = busy();
    let mut change = remake("Standard_DS4_v2");
    change.put.max = Some(3);
    world.tell(Command::RemakeCluster(change));
    let mut back = remake("Standard_DS3_v2");
    back.put.max = Some(3);
    world.tell(Command::RemakeCluster(back));
    assert_eq!(world.cpu().old.len(), 0);
    assert_eq!(world.cpu().revision, 3);
    // Also the one whose turn it was; what somebody drained by hand stays so.
    assert!(world.state.nodes.values().all(|node| node.cordon.is_none()));
    world.tell(Command::Cordon { node: NodeId(2), leave: true, reason: "its disk".into() });
    world.wait(1_000);
    assert!(world.node(2).cordon.is_some() && world.node(1).cordon.is_none());
}

#[test]
fn a_login_or_network_of_another_kind_replaces_nodes_too() {
    let mut world = World::with_cluster(1, 4);
    world.ready(1);
    let change = RemakeCluster { make: Some("ssh-2".into()), ..remake("Standard_DS3_v2") };
    let events = world.tell(Command::RemakeCluster(change.clone()));
    assert_eq!(left(&events), [1]);
    world.gone(1);
    let again = world.tell(Command::RemakeCluster(change));
    assert_eq!(drained(&again), Vec::<u64>::new());
}

#[test]
fn what_it_takes_is_held_from_now_on() {
    let mut world = busy();
    let key = |pool| QuotaKey { holder: Holder::Workspace(WORKSPACE), location: "westus".into(), pool };
    let limit = |pool, limit| Command::SetQuota { key: key(pool), limit: Some(limit), by: "owner".into() };
    world.tell(limit(Pool::Dedicated, 24));
    // Eight cores a node.
    let why = world.ask(to_size("Standard_DS4_v2")).expect_err("32 are more than 24").to_string();
    assert!(why.contains("the limit of workspace 'ws' is 24 cores, 0 are held by others, 24 are free, and 4 nodes of STANDARD_DS4_V2 at 8 cores are 32 cores"), "{why}");
    let mut change = remake("Standard_DS4_v2");
    change.put.max = Some(3);
    world.tell(Command::RemakeCluster(change));
    let usage = world.state.quota_usage[&key(Pool::Dedicated)];
    assert_eq!((usage.held, usage.in_use), (24, 12));
    world.end(neap_core::JobId(1), Exit::Success);
    assert_eq!(world.state.quota_usage[&key(Pool::Dedicated)].in_use, 20, "of each its own");
}

#[test]
fn a_lock_makes_the_roll_wait_and_stops_the_change() {
    let lock = |level| {
        Command::PutLock(neap_core::command::PutLock {
            scope: LockScope::Cluster(CPU),
            name: "keep".into(),
            level,
            notes: "".into(),
            by: "owner".into(),
        })
    };
    let mut world = World::with_cluster(2, 4);
    world.ready(1);
    world.ready(2);
    let mut change = remake("Standard_DS4_v2");
    change.put.min = Some(2);
    world.tell(Command::RemakeCluster(change));
    world.tell(lock(LockLevel::ReadOnly));
    world.gone(1);
    assert_eq!(drained(&world.ready(3)), Vec::<u64>::new(), "nothing is replaced under a lock");
    assert_eq!(world.refused(to_size("Standard_DS2_v2")), [Code::ScopeLocked]);
    let events = world.tell(Command::DeleteLock { scope: LockScope::Cluster(CPU), name: "keep".into() });
    assert_eq!(drained(&events), [2]);
}

#[test]
fn jobs_that_would_not_fit_any_more_are_named() {
    let mut world = World::with_cluster(0, 4);
    let half = Capacity { cpus_milli: 2_000, memory_mb: 3_584, gpus: 0 };
    world.submit_job(share("large", half));
    world.submit_job(share("small", QUARTER));
    let why = world.ask(to_size("Standard_DS1_v2")).expect_err("it has one core").to_string();
    assert!(why.contains("A node of STANDARD_DS1_V2 has"), "{why}");
    assert!(
        why.contains("'large' ask for more. Let them end, cancel them, or choose a larger size."),
        "{why}"
    );
    assert!(!why.contains("'small'"), "{why}");
}

#[test]
fn a_job_that_needs_the_new_form_waits_for_it_and_says_so() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let mut change = remake("Standard_DS4_v2");
    change.put.max = Some(2);
    world.tell(Command::RemakeCluster(change));
    let large = Capacity { cpus_milli: 6_000, memory_mb: 3_584, gpus: 0 };
    let job = world.submit_job(share("large", large));
    assert!(world.job(job).attempt().is_none(), "it is not put on a node that is too small");
    let verdict = unblock::unblock(&world.state, job, world.now).unwrap();
    assert_eq!(verdict.unblocking, [[Kind::Rolling].into()], "{verdict:?}");
    assert!(verdict.constraints[0].sentence.contains("it needs a node of STANDARD_DS4_V2"), "{verdict:?}");
    let events = world.gone(1);
    assert_eq!((left(&events), requested(&events)), (vec![2], vec![3]));
    world.ready(3);
    assert_eq!(world.attempt(job).node, NodeId(3));
}

#[test]
fn what_is_being_replaced_stays_cordoned() {
    let mut world = busy();
    let mut change = remake("Standard_DS4_v2");
    change.put.max = Some(3);
    world.tell(Command::RemakeCluster(change));
    let why = world.ask(Command::Uncordon { node: NodeId(1) }).expect_err("it goes").to_string();
    assert!(why.contains("is of an older definition of its compute and is being replaced"), "{why}");
}

#[test]
fn the_location_stays_and_a_size_must_be_known() {
    let world = World::with_cluster(0, 4);
    let mut elsewhere = remake("Standard_DS4_v2");
    elsewhere.put.location = Some("eastus".into());
    assert_eq!(world.refused(Command::RemakeCluster(elsewhere)), [Code::PropertyChangeNotAllowed]);
    assert_eq!(world.refused(to_size("Standard_Nothing")), [Code::InvalidVmSize]);
    let mut nowhere = remake("Standard_DS4_v2");
    nowhere.put.name = "nowhere".into();
    assert_eq!(world.refused(Command::RemakeCluster(nowhere)), [Code::ResourceNotFound]);
    // With Azure's own PUT it stays what it is.
    let put = Command::PutCluster(PutCluster { size: Some("Standard_DS4_v2".into()), ..cluster("cpu") });
    assert_eq!(world.refused(put), [Code::PropertyChangeNotAllowed]);
}
