//! Who goes first where the provider has no room for all.

use neap_core::budget::BudgetScope;
use neap_core::cluster::Cut;
use neap_core::command::{PutCluster, SubmitJob};
use neap_core::plan::settled;
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::{ClusterId, Command, Draft, Event, JobId, NodeId, decide::decide};

use crate::world::{CPU, World, cluster, gang, job, ready, settings};

const GPU: ClusterId = ClusterId(2);

/// A provider of so many nodes, and the clusters `cpu`, `gpu` and `other`; of the last so many nodes are busy.
fn crowded(nodes_max: u32, busy: u32) -> World {
    let mut world = World::with(settings(|s| s.provider.nodes_max = nodes_max));
    world.batch(["cpu", "gpu", "other"].map(|name| put(name, 0, 4)));
    for i in 0..busy {
        let id = world.submit_job(SubmitJob { cluster: "other".into(), ..job(&format!("busy{i}")) });
        world.ready(world.state.next.node.0 - 1);
        world.start(id);
    }
    world
}

fn put(name: &str, min: i64, max: i64) -> Command {
    Command::PutCluster(PutCluster { min: Some(min), max: Some(max), idle_ms: Some(10_000), ..cluster(name) })
}

fn on_gpu(job: SubmitJob) -> SubmitJob {
    SubmitJob { cluster: "gpu".into(), ..job }
}

/// It lets another one go first.
fn lets(wanted: u32, max: u32) -> Vec<Cut> {
    vec![Cut::ProviderAtOnce { wanted, max }]
}

fn no_room(nodes: u32) -> Vec<Cut> {
    vec![Cut::ProviderNodes { in_use: nodes, max: nodes }]
}

#[test]
fn the_later_of_two_gangs_asks_for_nothing_whoever_is_behind_the_earlier() {
    let mut world = crowded(4, 2);
    world.submit_job(gang("earlier", 3));
    world.submit("behind");
    world.submit_job(on_gpu(gang("later", 3)));
    assert_eq!(world.cpu().live, 2, "all the room there is");
    assert_eq!(world.state.clusters[&GPU].cuts, lets(3, 4));
    assert_eq!(world.state.clusters[&GPU].live, 0);
}

#[test]
fn a_job_on_one_node_holds_no_gang_back() {
    let mut world = crowded(2, 2);
    world.submit("single");
    world.submit_job(on_gpu(gang("gang", 2)));
    assert_eq!(world.state.clusters[&GPU].cuts, no_room(2));
}

#[test]
fn a_gang_that_is_larger_than_its_cluster_became_holds_nobody_back() {
    let mut world = crowded(4, 2);
    world.submit_job(gang("earlier", 3));
    world.submit_job(on_gpu(gang("later", 2)));
    assert_eq!(world.state.clusters[&GPU].cuts, lets(2, 4));
    world.scale(0, 2);
    assert_ne!(
        world.state.clusters[&GPU].cuts,
        lets(2, 4),
        "who cannot have it does not keep it from others"
    );
}

#[test]
fn what_a_cluster_keeps_for_itself_does_not_stand_in_its_own_way() {
    let mut world = crowded(4, 1);
    world.scale(2, 4);
    world.submit_job(gang("earlier", 4));
    world.submit_job(on_gpu(gang("later", 2)));
    assert_eq!(world.cpu().live, 3);
    assert_eq!(world.state.clusters[&GPU].cuts, lets(2, 4));
}

#[test]
fn a_gang_that_the_minimum_of_another_keeps_out_holds_nobody_back() {
    let mut world = crowded(4, 0);
    world.tell(put("other", 2, 4));
    world.submit_job(gang("never", 3));
    world.submit_job(on_gpu(gang("later", 2)));
    assert_eq!(world.state.clusters[&GPU].cuts, no_room(4));
}

#[test]
fn every_node_of_a_gang_is_there_for_its_sake() {
    let mut world = World::with_cluster(0, 4);
    let causes: Vec<Option<JobId>> = world
        .tell(Command::SubmitJob(gang("gang", 3)))
        .iter()
        .filter_map(|event| match event {
            Event::NodeRequested(e) => Some(e.cause),
            _ => None,
        })
        .collect();
    assert_eq!(causes, [Some(JobId(1)); 3]);
}

/// What `plan` leaves for a next time is part of what it comes to.
#[test]
fn what_a_cluster_comes_to_takes_as_many_plans_as_it_takes() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 10_000));
    world.scale(0, 9_000);
    let jobs = neap_core::limits::PLAN_EVENTS_MAX + 100;
    world.batch((0..jobs).map(|i| Command::SubmitJob(job(&format!("job{i}")))));
    let mut draft = Draft::new(world.state.clone());
    for node in 1..=jobs as u64 {
        for event in decide(&draft.state, Command::Report(ready(NodeId(node))), world.now).expect("it comes")
        {
            draft.emit(world.now, event);
        }
    }
    assert!(draft.events.iter().all(|event| matches!(event, Event::NodeReady(_))));
    let settled = settled(&draft.state, CPU);
    assert_eq!(settled.clusters[&CPU].queue.len(), 0);
    assert_eq!(settled.clusters[&CPU].busy as usize, jobs);
}

// ---- who lets whom go first, to the node

#[test]
fn a_pair_that_can_no_longer_have_two_nodes_asks_for_none() {
    let mut world = World::with_cluster(0, 2);
    world.batch([Command::SubmitJob(gang("pair", 2)), put("cpu", 0, 1)]);
    assert!(world.state.nodes.is_empty() && world.cpu().cuts.is_empty());

    let mut world = World::with_cluster(0, 2);
    let start = Command::Start { release: "next".into(), settings: settings(|s| s.provider.nodes_max = 1) };
    world.batch([Command::SubmitJob(gang("pair", 2)), start]);
    assert!(world.state.nodes.is_empty());
    assert_eq!(world.cpu().cuts, lets(2, 1));
}

#[test]
fn a_job_on_one_node_lets_no_gang_go_first() {
    let mut world = crowded(4, 2);
    world.submit_job(gang("earlier", 3));
    world.submit_job(on_gpu(job("single")));
    assert_eq!(world.state.clusters[&GPU].cuts, no_room(4));
}

/// `gpu` waits for a quota of four nodes, of which `other` has two, with a gang of three. `cpu` has another size, so many
/// nodes at least, and so many busy; the provider has room for so many more.
fn beside_a_quota(min: i64, busy: u64, free: u32) -> World {
    let in_use = 4 + u32::try_from(min).unwrap() + u32::try_from(busy).unwrap();
    let mut world = World::with(settings(|s| s.provider.nodes_max = in_use + free));
    let size = Some("Standard_D4s_v3".into());
    let (min, max) = (Some(min), Some(4));
    world.tell(Command::PutCluster(PutCluster { size, min, max, idle_ms: Some(10_000), ..cluster("cpu") }));
    world.batch(["gpu", "other"].map(|name| put(name, 0, 4)));
    let holder = Holder::Subscription("s".into());
    let pool = Pool::Family("standardDSv2Family".into());
    let key = QuotaKey { holder, location: "westus".into(), pool };
    world.tell(Command::SetQuota { key, limit: Some(16), by: "owner".into() });
    for name in ["one", "two"] {
        world.submit_job(SubmitJob { cluster: "other".into(), ..job(name) });
    }
    for i in 0..busy {
        world.submit(&format!("busy{i}"));
    }
    let coming: Vec<NodeId> = world.state.nodes.keys().copied().collect();
    for node in coming {
        world.report(ready(node));
    }
    world.submit_job(on_gpu(gang("earlier", 3)));
    assert!(matches!(world.state.clusters[&GPU_BEHIND].cuts[..], [Cut::Quota { .. }]));
    assert_eq!(world.state.nodes.len(), in_use as usize);
    world
}

/// Where `cpu` was declared first.
const GPU_BEHIND: ClusterId = ClusterId(2);

#[test]
fn a_gang_for_which_there_is_just_room_lets_nobody_go_first() {
    for (what, min, busy, free, nodes, live) in [
        ("as many as are free", 0, 0, 2, 2, 2),
        ("no more than its maximum lets it ask for", 0, 2, 2, 3, 4),
        ("those it has are none that it lacks", 1, 0, 1, 2, 2),
    ] {
        let mut world = beside_a_quota(min, busy, free);
        world.submit_job(gang("later", nodes));
        assert_eq!(world.cpu().live, live, "{what}: {:?}", world.cpu().cuts);
    }
    let mut world = beside_a_quota(0, 0, 1);
    world.submit_job(gang("later", 2));
    assert_eq!((world.cpu().live, &world.cpu().cuts), (0, &lets(2, 5)), "one is not enough for two");
}

#[test]
fn a_gang_whose_nodes_do_not_start_lets_others_go_first_when_it_may_ask_again() {
    let mut world = crowded(5, 2);
    let fails = world.submit_job(on_gpu(job("fails")));
    world.report_failed(3);
    world.tell(crate::world::cancel(fails));
    world.submit_job(gang("earlier", 3));
    assert_eq!(world.cpu().live, 2);
    world.submit_job(on_gpu(gang("later", 3)));
    let retry_at = world.now.plus(1_000);
    let backoff = vec![Cut::BootBackoff { failures: 1, retry_at }];
    let cuts = |world: &World| world.state.clusters[&GPU].cuts.clone();
    assert_eq!(cuts(&world), backoff, "that is what it waits for");
    world.wait(999);
    assert_eq!(cuts(&world), backoff);
    world.wait(1);
    assert_eq!(cuts(&world), lets(3, 5));
    world.wait(1);
    world.tell(put("gpu", 0, 3));
    assert_eq!(cuts(&world), lets(3, 5), "and later too");
}

#[test]
fn a_gang_that_waits_for_money_holds_nobody_back_and_one_that_has_it_does() {
    let on_cpu = |amount| {
        crate::budgets::put("cap", BudgetScope::Cluster(CPU), amount, neap_core::budget::Every::Total)
    };
    for (amount, cpu, gpu) in [(3 * crate::budgets::least() - 1, 0, 2), (3 * crate::budgets::least(), 2, 0)] {
        let mut world = crowded(4, 2);
        world.tell(on_cpu(amount));
        world.submit_job(gang("earlier", 3));
        world.submit_job(on_gpu(gang("later", 3)));
        assert_eq!((world.cpu().live, world.state.clusters[&GPU].live), (cpu, gpu), "{amount}");
        assert_eq!(world.state.clusters[&GPU].cuts == lets(3, 4), gpu == 0, "{amount}");
    }
    // Nor one whose owner has none.
    let mut world = crowded(4, 2);
    let poor = BudgetScope::User("poor".into());
    world.tell(crate::budgets::put("poor", poor, 1, neap_core::budget::Every::Total));
    world.submit_job(SubmitJob { owner: "poor".into(), ..gang("earlier", 3) });
    world.submit_job(on_gpu(gang("later", 3)));
    assert_eq!((world.cpu().live, world.state.clusters[&GPU].live), (0, 2));
}

#[test]
fn a_pair_goes_first_like_any_gang() {
    let mut world = crowded(3, 2);
    world.submit_job(gang("earlier", 2));
    world.submit_job(on_gpu(gang("later", 2)));
    assert_eq!((world.cpu().live, world.state.clusters[&GPU].cuts.clone()), (1, lets(2, 3)));
}

#[test]
fn of_two_gangs_in_one_cluster_the_later_is_not_held_back() {
    let mut world = crowded(4, 2);
    world.submit_job(gang("earlier", 3));
    world.submit_job(gang("behind", 2));
    assert_eq!(world.cpu().cuts, [vec![Cut::Maximum { wanted: 5, max: 4 }], no_room(4)].concat());
}

#[test]
fn what_is_behind_a_gang_that_lets_another_go_first_does_so_too() {
    let mut world = beside_a_quota(0, 0, 1);
    world.batch([gang("later", 2), job("single")].map(Command::SubmitJob));
    assert_eq!(world.cpu().live, 0);
}

#[test]
fn a_node_that_nobody_hears_of_is_one_that_a_gang_lacks() {
    let mut world = beside_a_quota(1, 0, 1);
    world.report(neap_core::command::Report::NodeSilent { node: NodeId(1) });
    assert_eq!((world.cpu().live, world.cpu().unheard), (2, 1), "another takes its place");
    world.submit_job(gang("later", 2));
    assert_eq!(world.cpu().cuts, lets(2, 6));
}

#[test]
fn a_job_on_one_node_where_there_can_be_none_waits_for_the_provider() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 0));
    world.scale(0, 1);
    world.submit("waits");
    assert_eq!(world.cpu().cuts, no_room(0));
}
