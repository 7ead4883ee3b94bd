//! Clusters with a dedicated floor and low priority above it, jobs that choose their tier, and dedicated work that takes
//! low-priority nodes back.

use neap_core::cluster::{Cut, Tier};
use neap_core::command::{PutCluster, RemakeCluster, SubmitJob};
use neap_core::explain::queue_reasons;
use neap_core::job::Exit;
use neap_core::mix::TierChoice;
use neap_core::node::NodeState;
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::{ClusterId, Code, Command, Event, JobId, NodeId};

use crate::world::{CPU, NOMINAL, WORKSPACE, World, cluster, gang, job, kinds, settings, share};

const DEDICATED: TierChoice = TierChoice { only: Some(Tier::Dedicated), dedicated_after: None };
const LOW: TierChoice = TierChoice { only: Some(Tier::LowPriority), dedicated_after: None };

fn mixed(dedicated: i64, max: i64) -> PutCluster {
    PutCluster {
        tier: Some("low_priority".into()),
        dedicated: Some(dedicated),
        max: Some(max),
        idle_ms: Some(10_000),
        ..cluster("cpu")
    }
}

fn world(dedicated: i64, max: i64) -> World {
    let mut world = World::new();
    world.tell(Command::PutCluster(mixed(dedicated, max)));
    world
}

fn of(tier: TierChoice, name: &str) -> SubmitJob {
    SubmitJob { tier, ..job(name) }
}

fn tiers(world: &World) -> Vec<Tier> {
    world.state.nodes.values().filter(|node| node.is_live()).map(|node| node.shape.tier).collect()
}

fn tier_of(world: &World, job: JobId) -> Tier {
    world.node(world.attempt(job).node.0).shape.tier
}

fn evict(cluster: ClusterId, node: u64) -> Command {
    Command::Evict { cluster, node: Some(NodeId(node)), grace_ms: 1_000, reason: "taken back".into() }
}

fn held(world: &World, pool: Pool) -> (u64, u64) {
    let key = QuotaKey { holder: Holder::Workspace(WORKSPACE), location: "westus".into(), pool };
    world.state.quota_usage.get(&key).map_or((0, 0), |usage| (usage.held, usage.in_use))
}

#[test]
fn the_floor_comes_first_and_goes_last() {
    let mut world = world(1, 3);
    let jobs: Vec<_> = ["a", "b", "c", "d"].map(|name| world.submit(name)).into();
    assert_eq!(tiers(&world), [Tier::Dedicated, Tier::LowPriority, Tier::LowPriority]);
    assert_eq!(world.cpu().cuts, [Cut::TierMaximum { tier: Tier::LowPriority, wanted: 3, max: 2 }]);
    for node in 1..=3 {
        world.ready(node);
    }
    assert_eq!(tier_of(&world, jobs[0]), Tier::Dedicated);
    for id in &jobs[1..3] {
        world.end(*id, Exit::Success);
    }
    assert!(world.job(jobs[3]).attempt().is_some(), "on one that is free by now");
    // What is left would fit the floor, and what is on it stays: one of the others goes.
    world.end(jobs[0], Exit::Success);
    let next = world.submit("e");
    assert_eq!(tier_of(&world, next), Tier::Dedicated, "the floor is filled first");
    world.wait(10_001);
    assert_eq!(tiers(&world), [Tier::Dedicated, Tier::LowPriority]);
}

#[test]
fn the_minimum_is_kept_on_the_floor() {
    let mut world = World::new();
    world.tell(Command::PutCluster(PutCluster { min: Some(2), ..mixed(1, 3) }));
    assert_eq!(tiers(&world), [Tier::Dedicated, Tier::LowPriority]);
}

#[test]
fn each_node_has_the_price_of_its_tier_and_counts_in_its_quota() {
    let mut world = world(1, 3);
    assert_eq!((held(&world, Pool::Dedicated), held(&world, Pool::LowPriority)), ((4, 0), (8, 0)));
    for name in ["a", "b", "c"] {
        world.submit(name);
    }
    assert_eq!((held(&world, Pool::Dedicated), held(&world, Pool::LowPriority)), ((4, 4), (8, 8)));
    let price = |node: u64| world.node(node).shape.price.0;
    assert!(price(1) > price(2) && price(2) == price(3), "{} {} {}", price(1), price(2), price(3));
    for node in 1..=3 {
        world.ready(node);
    }
    world.tell(Command::PutCluster(mixed(0, 3)));
    assert_eq!((held(&world, Pool::Dedicated), held(&world, Pool::LowPriority)), ((0, 4), (12, 8)));
    assert_eq!(tiers(&world).len(), 3, "it stays until its work is done");
}

#[test]
fn limits_are_asked_for_each_tier() {
    let mut world = World::new();
    for (pool, limit) in [(Pool::Dedicated, 4), (Pool::LowPriority, 8)] {
        let key = QuotaKey { holder: Holder::Workspace(WORKSPACE), location: "westus".into(), pool };
        world.tell(Command::SetQuota { key, limit: Some(limit), by: "me".into() });
    }
    assert_eq!(world.refused(Command::PutCluster(mixed(2, 4))), [Code::ClusterCoreQuotaReached]);
    assert_eq!(world.refused(Command::PutCluster(mixed(1, 4))), [Code::ClusterCoreQuotaReached]);
    world.tell(Command::PutCluster(mixed(1, 3)));
    // Lowered later, it stops growth; what may have either tier goes to the other.
    let key =
        QuotaKey { holder: Holder::Workspace(WORKSPACE), location: "westus".into(), pool: Pool::Dedicated };
    world.tell(Command::SetQuota { key, limit: Some(0), by: "me".into() });
    world.submit("either");
    assert_eq!(tiers(&world), [Tier::LowPriority]);
    let id = world.submit_job(of(DEDICATED, "firm"));
    assert_eq!(tiers(&world), [Tier::LowPriority]);
    let reasons = queue_reasons(&world.state, id).join(" ");
    assert!(reasons.contains("dedicated nodes only") && reasons.contains("of 0 are in use"), "{reasons}");
}

#[test]
fn what_a_floor_may_be() {
    let world = World::new();
    for (put, says) in [
        (mixed(4, 3), "dedicated_instances is 4 and max_instances is 3"),
        (mixed(-1, 3), "between 0 and 65000"),
        (mixed(65_001, 65_000), "dedicated_instances is 65001; it must be between"),
        (PutCluster { tier: None, ..mixed(1, 3) }, "the tier is Dedicated"),
    ] {
        let refusal = world.ask(Command::PutCluster(put)).expect_err("it is refused");
        assert_eq!(refusal.code(), Code::InvalidScaleSettings);
        assert!(refusal.problems[0].message.contains(says), "{refusal:?}");
    }
    for (put, floor) in [
        (mixed(3, 3), Some(3)),
        (mixed(0, 3), None),
        (PutCluster { tier: None, ..mixed(3, 3) }, None),
        (PutCluster { tier: None, ..mixed(0, 3) }, None),
    ] {
        let mut world = World::new();
        world.tell(Command::PutCluster(put));
        assert_eq!(world.cpu().mix.as_ref().map(|mix| mix.floor.nodes), floor);
    }
    let mut world = self::world(0, 3);
    assert!(world.cpu().mix.is_none(), "all of it is low priority");
    world.tell(Command::PutCluster(mixed(2, 3)));
    // Who does not know of it leaves it alone.
    world.tell(Command::PutCluster(PutCluster { dedicated: None, ..mixed(0, 4) }));
    assert_eq!(world.cpu().mix.as_ref().unwrap().floor.nodes, 2);
}

#[test]
fn a_job_takes_nodes_of_the_tier_that_it_chose() {
    let mut world = world(1, 3);
    let low = world.submit_job(of(LOW, "low"));
    assert_eq!(tiers(&world), [Tier::LowPriority]);
    let firm = world.submit_job(of(DEDICATED, "firm"));
    let behind = world.submit_job(of(DEDICATED, "behind"));
    assert_eq!(tiers(&world), [Tier::LowPriority, Tier::Dedicated]);
    world.ready(1);
    world.ready(2);
    assert_eq!((tier_of(&world, low), tier_of(&world, firm)), (Tier::LowPriority, Tier::Dedicated));
    // Nothing that waits for the floor holds up the rest.
    let either = world.submit("either");
    world.ready(3);
    assert_eq!(tier_of(&world, either), Tier::LowPriority);
    assert!(world.job(behind).attempt().is_none());
    let verdict = neap_core::unblock::unblock(&world.state, behind, world.now).unwrap();
    assert!(verdict.constraints.iter().any(|c| c.sentence.contains("dedicated_instances")), "{verdict:?}");
}

#[test]
fn what_a_cluster_has_not_is_refused() {
    let after = TierChoice { only: None, dedicated_after: Some(2) };
    let mut world = World::new();
    world.tell(Command::PutCluster(cluster("cpu")));
    assert_eq!(world.refused(Command::SubmitJob(of(LOW, "a"))), [Code::JobTierNotAvailable]);
    world.tell(Command::PutCluster(PutCluster { tier: Some("LowPriority".into()), ..cluster("low") }));
    let on_low = |tier: TierChoice| {
        let submit = SubmitJob { cluster: "low".into(), ..of(tier, "b") };
        Command::SubmitJob(submit)
    };
    assert_eq!(world.refused(on_low(DEDICATED)), [Code::JobTierNotAvailable]);
    assert_eq!(world.refused(on_low(after)), [Code::JobTierNotAvailable]);
    let hint = world.ask(on_low(after)).expect_err("refused").problems[0].message.to_string();
    assert!(hint.contains("--dedicated-instances"), "{hint}");
    world.tell(on_low(LOW));
    let mixed = self::world(1, 3);
    let nodes = |nodes: u32, tier: TierChoice| Command::SubmitJob(SubmitJob { tier, ..gang("g", nodes) });
    assert_eq!(mixed.refused(nodes(3, TierChoice::default())), [Code::ResourceTooLarge]);
    assert_eq!(mixed.refused(nodes(2, DEDICATED)), [Code::ResourceTooLarge]);
    assert_eq!(mixed.refused(nodes(2, after)), [Code::ResourceTooLarge]);
    assert!(mixed.ask(nodes(2, TierChoice::default())).is_ok());
}

#[test]
fn a_gang_is_refused_where_no_tier_has_the_quota_or_the_machines_for_it() {
    let nodes = |nodes: u32, tier: TierChoice| Command::SubmitJob(SubmitJob { tier, ..gang("g", nodes) });
    let says = |world: &World, command: Command| {
        let refusal = world.ask(command).expect_err("it is refused");
        (refusal.code(), refusal.problems[0].message.to_string())
    };
    let mut world = self::world(3, 6);
    for (pool, limit) in [(Pool::Dedicated, 8), (Pool::LowPriority, 4)] {
        let key = QuotaKey { holder: Holder::Workspace(WORKSPACE), location: "westus".into(), pool };
        world.tell(Command::SetQuota { key, limit: Some(limit), by: "me".into() });
    }
    assert!(world.ask(nodes(2, DEDICATED)).is_ok() && world.ask(nodes(2, TierChoice::default())).is_ok());
    let (code, message) = says(&world, nodes(3, DEDICATED));
    assert_eq!(code, Code::JobNodeCountExceedsCoreQuota);
    assert!(message.contains("asks for 3 dedicated nodes") && message.contains("allows 2;"), "{message}");
    let (code, message) = says(&world, nodes(2, LOW));
    assert_eq!(code, Code::JobNodeCountExceedsCoreQuota);
    assert!(message.contains("asks for 2 low-priority nodes") && message.contains("allows 1;"), "{message}");

    let mut world = self::world(3, 6);
    world.tell(Command::Start { release: "next".into(), settings: settings(|s| s.provider.nodes_max = 2) });
    assert!(world.ask(nodes(2, TierChoice::default())).is_ok());
    let (code, message) = says(&world, nodes(3, TierChoice::default()));
    assert_eq!(code, Code::ResourceTooLarge);
    assert!(message.contains("asks for 3 nodes"), "{message}");
}

#[test]
fn size_and_tier_of_a_cluster_with_both_stay() {
    let mut world = world(1, 3);
    let remake = |size: &str, tier: &str| {
        let put = PutCluster { size: Some(size.into()), tier: Some(tier.into()), ..mixed(1, 3) };
        Command::RemakeCluster(RemakeCluster { put, make: None })
    };
    let size = world.cpu().shape.size.clone();
    for command in [remake("STANDARD_DS4_V2", "low_priority"), remake(&size, "dedicated")] {
        let refusal = world.ask(command).expect_err("it is refused");
        let found = refusal.problems.iter().find(|problem| problem.code == Code::PropertyChangeNotAllowed);
        assert!(found.is_some_and(|problem| problem.message.contains("nodes of both tiers")), "{refusal:?}");
    }
    world.tell(Command::PutCluster(mixed(0, 3)));
    assert!(world.ask(remake("STANDARD_DS4_V2", "low_priority")).is_err(), "it had both");
}

#[test]
fn a_gang_has_all_its_nodes_of_one_tier() {
    let mut world = world(2, 4);
    let first = world.submit_job(gang("first", 2));
    let second = world.submit_job(gang("second", 2));
    assert_eq!(tiers(&world).len(), 4);
    for node in 1..=4 {
        world.ready(node);
    }
    for id in [first, second] {
        let of: Vec<_> = world.attempt(id).nodes().map(|node| world.node(node.0).shape.tier).collect();
        assert_eq!(of[0], of[1]);
    }
}

#[test]
fn shares_fill_the_floor_first() {
    let mut world = world(1, 2);
    let half = neap_core::Capacity { cpus_milli: 2_000, memory_mb: 1_000, gpus: 0 };
    let jobs: Vec<_> = ["a", "b", "c"].map(|name| world.submit_job(share(name, half))).into();
    world.ready(1);
    world.ready(2);
    let of: Vec<_> = jobs.iter().map(|id| tier_of(&world, *id)).collect();
    assert_eq!(of, [Tier::Dedicated, Tier::Dedicated, Tier::LowPriority]);
}

#[test]
fn a_job_falls_back_to_dedicated_nodes() {
    let mut world = world(1, 3);
    let choice = TierChoice { only: Some(Tier::LowPriority), dedicated_after: Some(2) };
    let id = world.submit_job(of(choice, "train"));
    for round in 1..=2 {
        assert_eq!(world.node(round).shape.tier, Tier::LowPriority);
        world.ready(round);
        world.start(id);
        assert_eq!(world.job(id).attempts_preempted, u32::try_from(round).unwrap() - 1);
        world.tell(evict(CPU, round));
        world.end(id, Exit::Stopped);
    }
    assert!(world.job(id).fell_back());
    let reasons = queue_reasons(&world.state, id).join(" ");
    assert!(reasons.contains("taken back 2 times, so it goes on on dedicated nodes only"), "{reasons}");
    let node = world.state.nodes.values().find(|node| node.shape.tier == Tier::Dedicated).unwrap().id;
    world.ready(node.0);
    assert_eq!(tier_of(&world, id), Tier::Dedicated);
    let events = world.start(id);
    let Some(Event::AttemptStarted(started)) = events.first() else { panic!("{events:?}") };
    assert_eq!(started.facts["tier"], "Dedicated");
    assert!(started.facts["tierReason"].contains("taken back 2 times"), "{:?}", started.facts);
}

/// `low` has every node that the provider makes, `cpu` is dedicated and wants one.
fn crowded(nodes_max: u32) -> (World, Vec<JobId>) {
    let mut world = World::with(settings(|s| s.provider.nodes_max = nodes_max));
    let low = PutCluster { tier: Some("LowPriority".into()), max: Some(9), ..cluster("low") };
    world.tell(Command::PutCluster(low));
    world.tell(Command::PutCluster(PutCluster { max: Some(2), ..cluster("cpu") }));
    let jobs: Vec<JobId> = (0..nodes_max)
        .map(|i| world.submit_job(SubmitJob { cluster: "low".into(), ..job(&format!("low-{i}")) }))
        .collect();
    for node in 1..=u64::from(nodes_max) {
        world.ready(node);
        world.now = world.now.plus(1_000);
        let id = world.node(node).attempts[0].job;
        world.start(id);
    }
    (world, jobs)
}

#[test]
fn dedicated_work_takes_a_low_priority_node_back_and_has_its_place() {
    let (mut world, jobs) = crowded(2);
    let id = world.state.next.job;
    let events = world.tell(Command::SubmitJob(job("urgent")));
    let Some(Event::NodePreempted(taken)) =
        events.iter().find(|event| matches!(event, Event::NodePreempted(_)))
    else {
        panic!("{events:?}")
    };
    assert_eq!(taken.id, NodeId(2), "the one whose work began last");
    assert_eq!(&*taken.reason, "dedicated work on compute 'cpu' needs the room");
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "node.preempted").count(), 1);
    let reasons = queue_reasons(&world.state, id).join(" ");
    assert!(reasons.contains("taken back for it"), "{reasons}");
    // The one that lost its node is back in its queue, and lets the other go first.
    world.end(jobs[1], Exit::Stopped);
    let reasons = queue_reasons(&world.state, jobs[1]).join(" ");
    assert!(world.state.nodes.values().all(|node| node.id.0 <= 2), "{reasons}");
    world.gone(2);
    let live: Vec<_> = world.state.nodes.values().map(|node| node.shape.tier).collect();
    assert_eq!(live, [Tier::LowPriority, Tier::Dedicated], "the place is for whom it was freed");
    world.ready(3);
    assert_eq!(tier_of(&world, id), Tier::Dedicated);
    // Once that is over, low priority has it again.
    world.end(id, Exit::Success);
    world.wait(120_001);
    world.gone(3);
    assert_eq!(tiers(&world), [Tier::LowPriority, Tier::LowPriority]);
}

#[test]
fn no_more_is_taken_than_is_wanted_and_only_low_priority() {
    let (mut world, _) = crowded(3);
    world.submit("one");
    world.submit("two");
    world.submit("three");
    let taken = |world: &World| {
        world.state.nodes.values().filter(|n| matches!(n.state, NodeState::Preempted { .. })).count()
    };
    assert_eq!(taken(&world), 2, "cpu has two nodes at most");
    world.wait(1_000);
    assert_eq!(taken(&world), 2);
    // Whoever only keeps a minimum takes nothing.
    let (mut world, _) = crowded(2);
    world.tell(Command::PutCluster(PutCluster { min: Some(1), max: Some(2), ..cluster("cpu") }));
    assert_eq!(taken(&world), 0);
    // And dedicated nodes are never taken.
    let mut world = World::with(settings(|s| s.provider.nodes_max = 1));
    world.tell(Command::PutCluster(PutCluster { max: Some(1), ..cluster("cpu") }));
    let low = PutCluster { tier: Some("LowPriority".into()), ..cluster("low") };
    world.tell(Command::PutCluster(low));
    world.tell(Command::PutCluster(PutCluster { max: Some(1), ..cluster("other") }));
    world.submit("runs");
    world.submit_job(SubmitJob { cluster: "other".into(), ..job("waits") });
    assert_eq!(taken(&world), 0);
}

#[test]
fn nothing_is_taken_that_does_not_help() {
    // A GPU is what is missing, and no low-priority node has one.
    let mut world = World::with(settings(|s| {
        s.provider.machine = Some(neap_core::Capacity { gpus: 1, ..NOMINAL });
    }));
    let low = PutCluster { tier: Some("LowPriority".into()), ..cluster("low") };
    world.tell(Command::PutCluster(low));
    let gpu = |name: &str| PutCluster { size: Some("Standard_NC4as_T4_v3".into()), ..cluster(name) };
    world.tell(Command::PutCluster(gpu("first")));
    world.tell(Command::PutCluster(gpu("second")));
    for name in ["low", "first", "second"] {
        world.submit_job(SubmitJob { cluster: name.into(), ..job(name) });
    }
    assert!(world.state.nodes.values().all(|node| node.is_live()));
    // And low priority, which takes none of it, is held up by nobody.
    world.submit_job(SubmitJob { cluster: "low".into(), ..job("another") });
    assert_eq!(world.state.nodes.len(), 3);
}

#[test]
fn the_floor_of_a_mixed_cluster_takes_its_own_burst_back() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 2));
    world.tell(Command::PutCluster(mixed(1, 3)));
    for name in ["a", "b"] {
        let id = world.submit_job(of(LOW, name));
        let node = world.state.next.node.0 - 1;
        world.ready(node);
        world.start(id);
    }
    let id = world.submit_job(of(DEDICATED, "firm"));
    let taken: Vec<_> =
        world.state.nodes.values().filter(|n| matches!(n.state, NodeState::Preempted { .. })).collect();
    assert_eq!(taken.len(), 1);
    let (node, lost) = (taken[0].id.0, taken[0].attempts[0].job);
    world.end(lost, Exit::Stopped);
    world.gone(node);
    world.ready(3);
    assert_eq!(tier_of(&world, id), Tier::Dedicated);
    // What may have either waits without taking anything.
    world.submit("either");
    assert_eq!(world.state.nodes.len(), 2);
    assert!(world.state.nodes.values().all(|node| node.is_live()));
}

/// Low-priority nodes of these sizes, each with work, on a machine of its own; then one dedicated node of that size is
/// wanted. Which of them are taken back.
fn taken_for(machine: neap_core::Capacity, strict: bool, low: &[&str], wanted: &str) -> Vec<u64> {
    let mut world = World::with(settings(|s| {
        (s.provider.machine, s.provider.strict) = (Some(machine), strict);
    }));
    for (at, size) in low.iter().enumerate() {
        let (name, tier) = (format!("low{at}"), Some("LowPriority".into()));
        world.tell(Command::PutCluster(PutCluster { tier, size: Some((*size).into()), ..cluster(&name) }));
        let id = world.submit_job(SubmitJob { cluster: name.as_str().into(), ..job(&name) });
        world.ready(at as u64 + 1);
        world.wait(1_000);
        world.start(id);
    }
    world.tell(Command::PutCluster(PutCluster { size: Some(wanted.into()), ..cluster("cpu") }));
    world.submit("firm");
    let taken = world.state.nodes.values().filter(|n| matches!(n.state, NodeState::Preempted { .. }));
    taken.map(|node| node.id.0).collect()
}

#[test]
fn what_the_machine_lacks_is_taken_back_and_nothing_else() {
    const SMALL: &str = "Standard_DS3_v2";
    const LARGE: &str = "Standard_DS4_v2";
    const GPU: &str = "Standard_NC6s_v3";
    let machine =
        |cpus: u32, memory_mb, gpus| neap_core::Capacity { cpus_milli: cpus * 1_000, memory_mb, gpus };
    for (machine, strict, low, wanted, taken) in [
        // Cores and memory, then cores alone, then memory alone; room enough; and not counted at all.
        (machine(8, 28_672, 0), true, [SMALL, SMALL].as_slice(), SMALL, [2].as_slice()),
        (machine(8, 1_000_000, 0), true, &[SMALL, SMALL], SMALL, &[2]),
        (machine(100, 28_672, 0), true, &[SMALL, SMALL], SMALL, &[2]),
        (machine(11, 1_000_000, 0), true, &[SMALL, SMALL], SMALL, &[2]),
        (machine(12, 43_008, 0), true, &[SMALL, SMALL], SMALL, &[]),
        (machine(8, 28_672, 0), false, &[SMALL, SMALL], SMALL, &[]),
        // Two small ones for a large one, one large one for a small one.
        (machine(12, 1_000_000, 0), true, &[SMALL, SMALL, SMALL], LARGE, &[2, 3]),
        (machine(100, 43_008, 0), true, &[SMALL, SMALL, SMALL], LARGE, &[2, 3]),
        (machine(8, 28_672, 0), true, &[LARGE], SMALL, &[1]),
        // Whoever has the GPU, however long it has worked, and whether cores are counted or not.
        (machine(100, 1_000_000, 1), true, &[SMALL, GPU, SMALL], GPU, &[2]),
        (machine(100, 1_000_000, 1), false, &[SMALL, GPU, SMALL], GPU, &[2]),
        (machine(100, 1_000_000, 2), true, &[SMALL, GPU], GPU, &[]),
    ] {
        assert_eq!(taken_for(machine, strict, low, wanted), taken, "{machine:?} {strict} {low:?} {wanted}");
    }
}

#[test]
fn low_priority_looks_again_when_dedicated_work_wants_what_it_cannot_have() {
    let machine = neap_core::Capacity { cpus_milli: 8_000, memory_mb: 1_000_000, gpus: 0 };
    let crowded = || {
        let mut world = World::with(settings(|s| {
            (s.provider.machine, s.provider.strict) = (Some(machine), true);
        }));
        let small = Some("Standard_DS2_v2".into());
        let low =
            PutCluster { size: small, tier: Some("LowPriority".into()), max: Some(2), ..cluster("low") };
        for put in [low, cluster("other"), cluster("cpu")] {
            world.tell(Command::PutCluster(PutCluster { max: put.max.or(Some(1)), ..put }));
        }
        for (at, name) in ["low", "other"].into_iter().enumerate() {
            let id = world.submit_job(SubmitJob { cluster: name.into(), ..job(name) });
            world.ready(at as u64 + 1);
            world.start(id);
        }
        world.submit("urgent");
        world.submit_job(SubmitJob { cluster: "low".into(), ..job("another") });
        assert_eq!(world.state.nodes.len(), 2, "what is free is kept for the dedicated work");
        world
    };
    let in_all = |world: &World| world.state.nodes.len();

    // A size for which there is no room, whatever is taken back.
    let mut world = crowded();
    let id = world.state.cluster(WORKSPACE, "cpu").expect("it is there").id;
    let put = PutCluster { size: Some("Standard_DS4_v2".into()), max: Some(1), ..cluster("cpu") };
    world.tell(Command::RemakeCluster(RemakeCluster { put, make: None }));
    assert_eq!(in_all(&world), 3, "low priority has it at once");
    // And a cluster that goes.
    let mut world = crowded();
    world.tell(Command::DeleteCluster { cluster: id, reason: "asked".into() });
    assert_eq!(in_all(&world), 3);
}

#[test]
fn a_later_job_on_the_floor_leaves_the_room_to_an_earlier_gang() {
    for max in [2, 3, 4] {
        let mut world = World::with(settings(|s| s.provider.nodes_max = max));
        world.tell(Command::PutCluster(mixed(2, 6)));
        let pair = SubmitJob { tier: LOW, ..gang("pair", 2) };
        world.batch([pair, job("later"), job("last")].map(Command::SubmitJob));
        let (low, floor) = (Tier::LowPriority, Tier::Dedicated);
        let mut there = tiers(&world);
        there.sort();
        let expected =
            [floor, floor].into_iter().take(max as usize - 2).chain([low, low]).collect::<Vec<_>>();
        assert_eq!(there, expected, "of {max}");
        let waits = world.cpu().cuts.iter().any(|cut| matches!(cut, Cut::ProviderNodes { .. }));
        assert_eq!(waits, max < 4, "of {max}");
        // Whoever has none has it when there is some.
        world.tell(Command::CancelJob { job: JobId(1), reason: "asked".into() });
        for node in 1..=u64::from(max) {
            world.ready(node);
        }
        assert_eq!(world.cpu().queue.len(), 0, "of {max}");
    }
}

#[test]
fn what_two_of_them_wait_for_is_said_once() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 1));
    world.tell(Command::PutCluster(mixed(3, 6)));
    world.batch([of(DEDICATED, "first"), of(DEDICATED, "firm"), job("either")].map(Command::SubmitJob));
    assert_eq!(tiers(&world), [Tier::Dedicated]);
    let full = Cut::ProviderNodes { in_use: 1, max: 1 };
    assert_eq!(world.cpu().cuts, [full, Cut::RoomWanted { nodes: 1 }]);
}
