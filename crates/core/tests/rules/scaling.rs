//! How many nodes there are: up at once, down after idle time, cut by what the provider can give.

use neap_core::cluster::Cut;
use neap_core::command::{PutCluster, Report, SubmitJob};
use neap_core::event::{ClusterTarget, NodeLeaving, NodeRequested};
use neap_core::job::Exit;
use neap_core::limits::PLAN_EVENTS_MAX;
use neap_core::node::NodeState;
use neap_core::{Capacity, ClusterId, Code, Command, Event, NodeId, invariants};

use crate::world::{CPU, NOMINAL, QUARTER, World, cancel, cluster, job, kinds, settings, share};

pub fn requested(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::NodeRequested(_))).count()
}

/// Which nodes were told to go, and why.
fn leaving(events: &[Event]) -> Vec<(u64, String)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::NodeLeaving(NodeLeaving { id, reason, .. }) => Some((id.0, reason.to_string())),
            _ => None,
        })
        .collect()
}

fn targets(events: &[Event]) -> Vec<(u32, u32, Vec<Cut>)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::ClusterTarget(ClusterTarget { target, demand, cuts, .. }) => {
                Some((*target, *demand, cuts.clone()))
            }
            _ => None,
        })
        .collect()
}

fn submit_many(world: &mut World, count: usize) -> Vec<Event> {
    let first = world.state.next.job.0;
    world.batch((0..count).map(|i| Command::SubmitJob(job(&format!("job{}", first + i as u64)))))
}

#[test]
fn the_minimum_is_there_from_the_beginning() {
    let mut world = World::new();
    let events = world.scale(2, 3);
    assert_eq!(requested(&events), 2);
    assert_eq!(targets(&events), [(2, 0, vec![])]);
    let asked = NodeRequested {
        lease: None,
        id: NodeId(1),
        cluster: CPU,
        nominal: NOMINAL,
        shape: None,
        cause: None,
        deadline: world.now.plus(world.state.settings.create_deadline_ms),
        reason: "min_instances is 2".into(),
    };
    assert_eq!(events[1], asked.into());
    assert_eq!(requested(&world.scale(3, 3)), 1, "raised");
    assert_eq!(kinds(&world.wait(1)), [""; 0], "and then nothing more is to be done");
}

#[test]
fn work_brings_the_whole_gap_at_once_up_to_the_maximum() {
    let mut world = World::with_cluster(0, 3);
    let events = submit_many(&mut world, 2);
    assert_eq!(requested(&events), 2);
    assert_eq!(targets(&events), [(2, 2, vec![])]);
    assert_eq!(&*world.node(1).reason, "2 jobs wait");
    let events = submit_many(&mut world, 1);
    assert_eq!((requested(&events), targets(&events)), (1, vec![(3, 3, vec![])]), "exactly the maximum");
    let events = submit_many(&mut world, 3);
    assert_eq!(requested(&events), 0);
    let cut = |wanted| vec![Cut::Maximum { wanted, max: 3 }];
    assert_eq!(targets(&events), [(3, 4, cut(4))], "counted no further than one above");
    let events = world.scale(0, 5);
    assert_eq!((requested(&events), world.cpu().target), (2, 5), "raised while work waits");
    assert_eq!(world.cpu().cuts, vec![Cut::Maximum { wanted: 6, max: 5 }]);
    world.scale(0, 6);
    assert_eq!((world.cpu().target, &world.cpu().cuts), (6, &vec![]));
}

#[test]
fn nodes_with_work_count_beside_those_that_the_queue_needs() {
    let mut world = World::with_cluster(0, 4);
    let first = world.submit("first");
    world.ready(1);
    assert_eq!(world.attempt(first).node, NodeId(1));
    assert_eq!(requested(&submit_many(&mut world, 1)), 1);
    world.ready(2);
    world.end(first, Exit::Success);
    assert_eq!(requested(&submit_many(&mut world, 1)), 0, "an idle node is used before one is added");
}

#[test]
fn shares_are_counted_as_they_would_be_packed() {
    let half = QUARTER.plus(QUARTER);
    for (shares, nodes) in [
        (vec![QUARTER; 4], 1),
        (vec![QUARTER; 5], 2),
        (vec![half, half, half], 2),
        (vec![half.plus(QUARTER), half], 2),
        (vec![NOMINAL, QUARTER], 2),
        (vec![Capacity { cpus_milli: 10, ..NOMINAL }, Capacity { cpus_milli: 10, ..QUARTER }], 2),
    ] {
        let mut world = World::with_cluster(0, 9);
        let jobs =
            shares.iter().enumerate().map(|(i, need)| Command::SubmitJob(share(&format!("j{i}"), *need)));
        assert_eq!(requested(&world.batch(jobs)), nodes, "{shares:?}");
    }
    let mut world = World::with_cluster(0, 9);
    let jobs = [share("a", QUARTER), job("b"), share("c", QUARTER)].map(Command::SubmitJob);
    assert_eq!(requested(&world.batch(jobs)), 2, "a whole job does not end a shared node");
}

#[test]
fn an_idle_node_goes_after_its_idle_time_and_not_before() {
    let mut world = World::with_cluster(0, 2);
    let job = world.submit("train");
    world.ready(1);
    world.end(job, Exit::Success);
    assert_eq!(world.wake_at, Some(world.now.plus(10_000)), "the only timer");
    assert_eq!(kinds(&world.wait(9_999)), [""; 0]);
    let events = world.wait(1);
    assert_eq!(leaving(&events), [(1, "idle for 10 s".into())]);
    assert_eq!(targets(&events), [(0, 0, vec![])]);
    let deadline = world.now.plus(world.state.settings.leave_deadline_ms);
    assert_eq!(world.node(1).state, NodeState::Leaving { deadline });
}

#[test]
fn no_more_nodes_go_than_are_too_many() {
    let mut world = World::with_cluster(3, 3);
    for node in 1..=3 {
        world.ready(node);
    }
    world.wait(60_000);
    assert_eq!(world.state.nodes.len(), 3, "the minimum stays however long it is idle");
    let events = world.scale(2, 3);
    assert_eq!(leaving(&events), [(1, "idle for 60 s".into())]);
    let busy = world.submit("train");
    assert_eq!(world.attempt(busy).node, NodeId(2));
    let events = world.scale(0, 3);
    assert_eq!(leaving(&events), [(3, "idle for 60 s".into())], "never one with work");
    world.end(busy, Exit::Success);
    assert_eq!(leaving(&world.wait(9_999)), []);
    assert_eq!(leaving(&world.wait(1)), [(2, "idle for 10 s".into())]);
}

#[test]
fn a_node_on_its_way_is_not_idle_and_stays_below_the_maximum() {
    let mut world = World::with_cluster(0, 2);
    let job = world.submit("train");
    world.tell(cancel(job));
    assert_eq!(leaving(&world.wait(15_000)), [], "it was asked for and will come");
    world.ready(1);
    assert_eq!(leaving(&world.wait(10_000)), [(1, "idle for 10 s".into())]);
}

#[test]
fn when_the_maximum_is_lowered_what_has_no_work_goes_at_once() {
    let mut world = World::with_cluster(4, 4);
    for node in 1..=3 {
        world.ready(node);
    }
    let busy = world.submit("train");
    let events = world.scale(0, 2);
    let why = String::from("max_instances was lowered to 2");
    assert_eq!(leaving(&events), [(2, why.clone()), (3, why)], "the idle first by age; one with work stays");
    assert_eq!(world.cpu().live, 2);
    let events = world.scale(0, 0);
    assert_eq!(leaving(&events), [(4, "max_instances was lowered to 0".into())], "also one on its way");
    assert_eq!(targets(&events), [(0, 1, vec![Cut::Maximum { wanted: 1, max: 0 }])]);
    let events = world.end(busy, Exit::Success);
    assert_eq!(leaving(&events), [(1, "max_instances was lowered to 0".into())], "when its job has ended");
}

#[test]
fn a_node_nobody_hears_of_serves_nobody_but_counts_against_the_maximum() {
    let mut world = World::with_cluster(1, 2);
    world.ready(1);
    let silent = || Report::NodeSilent { node: NodeId(1) };
    assert_eq!(requested(&world.report(silent())), 1, "another takes its place");
    assert_eq!(world.cpu().live, 2);
    let events = submit_many(&mut world, 2);
    assert_eq!(requested(&events), 0, "no more than the maximum");
    world.ready(2);
    let mut alone = World::with_cluster(1, 1);
    alone.ready(1);
    assert_eq!(requested(&alone.report(silent())), 0, "there is no room for another");
}

#[test]
fn of_too_many_the_unheard_go_first_and_those_who_serve_stay() {
    let mut world = World::with_cluster(2, 3);
    world.ready(1);
    world.ready(2);
    world.report(Report::NodeSilent { node: NodeId(2) });
    assert_eq!(world.cpu().live, 3, "one more, for the one that is not heard");
    assert_eq!(leaving(&world.wait(9_999)), []);
    assert_eq!(leaving(&world.wait(1)), [(2, "idle for 10 s".into())], "though the first is older");
    world.gone(2);
    world.ready(3);
    assert_eq!(leaving(&world.wait(60_000)), [], "the two that serve are wanted");
}

#[test]
fn when_the_maximum_is_lowered_the_unheard_go_before_those_who_serve() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    world.report(Report::NodeSilent { node: NodeId(2) });
    assert_eq!(leaving(&world.scale(0, 1)), [(2, "max_instances was lowered to 1".into())]);
}

/// Two nodes are wanted; one was asked for in place of the first that fell silent, and then the second fell silent.
fn two_unheard(nodes_max: u32) -> World {
    let mut world = World::with(settings(|s| s.provider.nodes_max = nodes_max));
    world.scale(2, 3);
    world.ready(1);
    world.ready(2);
    world.report(Report::NodeSilent { node: NodeId(1) });
    world.report(Report::NodeSilent { node: NodeId(2) });
    assert_eq!((world.cpu().live, world.cpu().unheard), (3, 2), "at the maximum");
    world
}

#[test]
fn where_an_unheard_node_goes_another_takes_its_place_at_once() {
    let mut world = two_unheard(9);
    let events = world.wait(10_000);
    let idle = String::from("idle for 10 s");
    assert_eq!(leaving(&events), [(1, idle.clone()), (2, idle)]);
    assert_eq!(requested(&events), 1, "not only when they are gone");
}

#[test]
fn an_unheard_node_stays_while_nothing_can_take_its_place() {
    let mut world = two_unheard(3);
    let events = world.wait(10_000);
    assert_eq!(leaving(&events), [(1, "idle for 10 s".into())], "one is too many, not two");
    assert_eq!(requested(&events), 0);
    assert_eq!(world.cpu().cuts, vec![Cut::ProviderNodes { in_use: 3, max: 3 }]);
    assert_eq!(requested(&world.gone(1)), 1);
}

#[test]
fn those_who_serve_do_not_go_for_the_sake_of_one_that_is_unheard() {
    let mut world = World::with_cluster(4, 4);
    for node in 1..=3 {
        world.ready(node);
    }
    world.wait(60_000 - 1);
    world.ready(4);
    world.report(Report::NodeSilent { node: NodeId(4) });
    let events = world.scale(2, 4);
    assert_eq!(
        leaving(&events),
        [(1, "idle for 59 s".into())],
        "two are wanted, and the fourth serves nobody"
    );
}

#[test]
fn the_provider_makes_only_so_many_nodes_for_all_clusters_together() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 2));
    let events = world.scale(0, 4);
    assert_eq!(requested(&events), 0);
    let events = submit_many(&mut world, 3);
    assert_eq!(requested(&events), 2);
    let cut = vec![Cut::ProviderNodes { in_use: 2, max: 2 }];
    assert_eq!(targets(&events), [(2, 3, cut)]);
    let events = world.tell(Command::PutCluster(PutCluster { min: Some(1), ..cluster("other") }));
    assert_eq!(requested(&events), 0);
    assert_eq!(world.state.clusters[&ClusterId(2)].target, 0);
    world.ready(1);
    let events = world.gone(1);
    assert_eq!(requested(&events), 1, "room came free, and whoever waits for it looks again");
}

#[test]
fn a_strict_machine_gives_what_it_has_and_no_more() {
    let machine = Capacity { cpus_milli: 6_000, memory_mb: 60_000, gpus: 0 };
    let strict = |strict| {
        settings(|s| {
            s.provider.machine = Some(machine);
            s.provider.strict = strict;
        })
    };
    let mut world = World::with(strict(true));
    world.scale(0, 4);
    let events = submit_many(&mut world, 2);
    assert_eq!(requested(&events), 1);
    let free = Capacity { cpus_milli: 2_000, memory_mb: 60_000 - 14_336, gpus: 0 };
    assert_eq!(targets(&events), [(1, 2, vec![Cut::ProviderCapacity { free, needed: NOMINAL }])]);
    let mut world = World::with(strict(false));
    world.scale(0, 4);
    assert_eq!(requested(&submit_many(&mut world, 2)), 2, "nodes may overcommit");

    let mut world = World::with(strict(true));
    let large = PutCluster { size: Some("Standard_DS4_v2".into()), min: Some(1), ..cluster("large") };
    assert_eq!(requested(&world.tell(Command::PutCluster(large))), 1, "a larger size gets the whole machine");
    let other = PutCluster { size: Some("Standard_DS1_v2".into()), min: Some(1), ..cluster("small") };
    assert_eq!(requested(&world.tell(Command::PutCluster(other))), 0, "and nothing is left");
}

#[test]
fn after_a_failed_start_nothing_is_asked_for_until_it_may_be() {
    let mut world = World::with_cluster(0, 2);
    let job = world.submit("train");
    world.report(Report::NodeFailed { node: NodeId(1), reason: "no room".into() });
    let retry_at = world.now.plus(1_000);
    assert_eq!(world.cpu().cuts, vec![Cut::BootBackoff { failures: 1, retry_at }]);
    assert_eq!(requested(&world.wait(999)), 0);
    assert_eq!(world.wake_at, Some(retry_at));
    assert_eq!(requested(&world.wait(1)), 1, "exactly then");
    assert_eq!(world.cpu().cuts, vec![]);
    assert!(world.job(job).attempt().is_none());
}

#[test]
fn a_cluster_that_has_what_it_needs_is_not_cut() {
    let mut world = World::with_cluster(1, 2);
    world.ready(1);
    world.submit("one");
    let two = world.submit("two");
    world.report_failed(2);
    assert!(matches!(world.cpu().cuts[..], [Cut::BootBackoff { .. }]));
    world.tell(cancel(two));
    assert_eq!(world.cpu().cuts, vec![], "nobody waits for the node that did not start");
}

/// As many idle nodes as one plan may have events, and `more`.
fn many_idle(more: usize) -> (World, Vec<Command>) {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 10_000));
    world.scale(0, 9_000);
    let nodes = PLAN_EVENTS_MAX + more;
    submit_many(&mut world, nodes);
    assert_eq!(world.state.nodes.len(), nodes, "a gap is asked for whole");
    let ready = (1..=nodes as u64).map(|node| Command::Report(crate::world::ready(NodeId(node))));
    (world, ready.collect())
}

#[test]
fn a_plan_is_bounded_and_what_is_left_is_done_next() {
    let (mut world, mut commands) = many_idle(100);
    commands.push(Command::SubmitJob(job("late")));
    let given = commands.len();
    let events = world.batch(commands);
    assert_eq!(kinds(&events[given..]), vec!["job.placed"; PLAN_EVENTS_MAX]);
    assert_eq!(world.wake_at, Some(world.now), "at once");
    let mut expect = vec!["job.placed"; 100];
    expect.extend(["node.requested", "cluster.target"]);
    assert_eq!(kinds(&world.wait(1)), expect, "what is there is used before more is asked for");
    assert_ne!(world.wake_at, Some(world.now));
}

#[test]
fn all_clusters_together_keep_within_the_bound_of_a_plan() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 10_000));
    let each = PLAN_EVENTS_MAX / 2 + 50;
    let put = |name: &str| Command::PutCluster(PutCluster { max: Some(9_000), ..cluster(name) });
    world.batch([put("cpu"), put("gpu")]);
    let submit = |i: usize, name: &str| {
        Command::SubmitJob(SubmitJob { cluster: name.into(), ..job(&format!("{name}{i}")) })
    };
    world.batch((0..each).flat_map(|i| [submit(i, "cpu"), submit(i, "gpu")]));
    let ready = (1..=2 * each as u64).map(|node| Command::Report(crate::world::ready(NodeId(node))));
    let events = world.batch(ready);
    assert_eq!(kinds(&events[2 * each..]), vec!["job.placed"; PLAN_EVENTS_MAX]);
    assert_eq!(kinds(&world.wait(1)), vec!["job.placed"; 100]);
}

#[test]
fn a_cluster_waits_for_the_next_plan_when_another_has_filled_this_one() {
    let (mut world, mut commands) = many_idle(0);
    commands.push(Command::PutCluster(PutCluster { min: Some(1), ..cluster("other") }));
    let given = commands.len();
    assert_eq!(world.batch(commands).len() - given, PLAN_EVENTS_MAX);
    assert_eq!(world.wake_at, Some(world.now));
    let other = &world.state.clusters[&ClusterId(2)];
    assert!(other.target < other.scale.min && other.cuts.is_empty(), "it was not looked at yet");
    assert_eq!(invariants::check(&world.state), [], "which breaks no promise");
    assert_eq!(kinds(&world.wait(1)), ["node.requested", "cluster.target"]);
}

#[test]
fn a_job_is_refused_where_no_node_could_ever_hold_it() {
    let world = World::with_cluster(0, 1);
    let too_large = share("large", NOMINAL.plus(QUARTER));
    assert_eq!(world.refused(Command::SubmitJob(too_large)), [Code::ResourceTooLarge]);
}

#[test]
fn gpus_are_counted_also_where_cores_and_memory_are_not() {
    let machine = Capacity { cpus_milli: 1_000, memory_mb: 1_000, gpus: 3 };
    let mut world = World::with(settings(|s| s.provider.machine = Some(machine)));
    let size = neap_core::catalogue::sizes()
        .find(|size| size.gpus == 1 && neap_core::retired::retired(size.name).is_none())
        .unwrap();
    world.tell(Command::PutCluster(PutCluster {
        size: Some(size.name.into()),
        max: Some(8),
        ..cluster("cpu")
    }));
    let events = submit_many(&mut world, 5);
    assert_eq!(requested(&events), 3, "one node for each GPU, however small the machine is otherwise");
    let [cut] = &world.state.clusters.get(&CPU).unwrap().cuts[..] else { panic!("one cut") };
    assert!(matches!(cut, Cut::ProviderCapacity { .. }), "{cut:?}");
    let said = cut.sentence();
    assert!(said.contains("needs 1 GPU ") && said.contains("0 of this machine's are free"), "{said}");
}
