//! What somebody who waits is told: the true reason, with the true numbers, and what would help.

use neap_core::allowance::{Allowance, AllowanceKey, Who, Within};
use neap_core::cluster::Cut;
use neap_core::command::{PutCluster, PutWindow, SubmitJob};
use neap_core::explain::queue_reasons;
use neap_core::job::Exit;
use neap_core::mix::TierChoice;
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::unblock::unblock;
use neap_core::window::Span;
use neap_core::{Command, JobId, Millis, NodeId};

use crate::world::{CPU, DOCUMENT, World, cluster, gang, job};

/// A cluster with one idle node, which is as many as it may have.
fn one_idle() -> World {
    let mut world = World::with_cluster(0, 1);
    let first = world.submit("first");
    world.ready(1);
    world.start(first);
    world.end(first, Exit::Success);
    world
}

fn told(world: &World, id: JobId) -> String {
    let mut all = queue_reasons(&world.state, id);
    let verdict = unblock(&world.state, id, world.now).expect("it waits");
    all.extend(verdict.constraints.into_iter().map(|constraint| constraint.sentence));
    all.join("\n")
}

#[test]
fn a_cordoned_node_is_neither_busy_nor_unheard_of() {
    let mut world = one_idle();
    world.tell(Command::Cordon { node: NodeId(1), leave: false, reason: "disk looks full".into() });
    let waits = world.submit("waits");
    let told = told(&world, waits);
    assert!(told.contains(
        "Its node n-1 is cordoned (disk looks full): nothing new comes onto it; 'neap node uncordon n-1 --cluster cpu' lets work on it again."
    ), "{told}");
    assert!(told.contains("1 node is wanted, 1 of its nodes takes nobody (cordoned, or not heard of), and max_instances is 1"), "{told}");
    assert!(!told.contains("busy") && !told.contains("have not been heard of"), "{told}");
}

#[test]
fn a_limit_that_a_job_can_never_keep_to_is_named_as_such() {
    let mut world = one_idle();
    let key = AllowanceKey { within: Within::Cluster(CPU), who: Who::EachUser };
    let allowance = Some(Allowance { jobs: None, cores: Some(1) });
    world.tell(Command::SetAllowance { key, allowance, by: "me".into() });
    let waits = world.submit("waits");
    let told = told(&world, waits);
    assert!(told.contains("may have 1 at a time, so that it never starts; raise the limit"), "{told}");
    assert!(!told.contains("busy") && !told.contains("waits for one to end"), "{told}");
}

#[test]
fn a_quota_that_was_lowered_below_a_gang_is_what_holds_it() {
    let mut world = World::with_cluster(0, 2);
    let key = QuotaKey {
        holder: Holder::Subscription("s".into()),
        location: "westus".into(),
        pool: Pool::Dedicated,
    };
    let busy = world.submit("busy");
    let pair = world.submit_job(gang("pair", 2));
    world.tell(Command::SetQuota { key: key.clone(), limit: Some(4), by: "me".into() });
    world.ready(1);
    world.start(busy);
    let cuts = &world.cpu().cuts;
    assert!(
        cuts.iter().any(|cut| matches!(cut, Cut::Quota { key: of, limit: 4, needed: 8, .. } if *of == key)),
        "{cuts:?}"
    );
    let told = told(&world, pair);
    assert!(!told.contains("provider"), "{told}");
}

#[test]
fn a_window_on_a_mixed_cluster_tells_the_clusters_numbers_and_what_is_left_to_the_tier() {
    let mut world = World::new();
    world.tell(Command::PutCluster(PutCluster {
        tier: Some("low_priority".into()),
        dedicated: Some(1),
        max: Some(3),
        ..cluster("cpu")
    }));
    let now = world.now.0;
    world.tell(Command::PutWindow(PutWindow {
        cluster: CPU,
        name: "day".into(),
        enabled: true,
        min: None,
        max: Some(1),
        stops: false,
        zone: "UTC".into(),
        spans: [Span { from: Millis(now), until: Millis(now + 60_000), offsets: (0, 0) }].into(),
        refill_at: None,
        document: DOCUMENT,
        by: "me".into(),
        problems: vec![],
    }));
    let low = TierChoice { only: Some(neap_core::cluster::Tier::LowPriority), dedicated_after: None };
    let waits = world.submit_job(SubmitJob { tier: low, ..job("waits") });
    let told = told(&world, waits);
    assert!(told.contains("The schedule 'day' holds max_instances at 1 until"), "{told}");
    assert!(
        told.contains(
            "which leaves 0 to low-priority nodes; 1 low-priority node is wanted, and it is 3 otherwise."
        ),
        "{told}"
    );
}

#[test]
fn of_two_tiers_the_limit_is_told_whose_lifting_helps() {
    let mut world = World::new();
    world.tell(Command::PutCluster(PutCluster {
        tier: Some("low_priority".into()),
        dedicated: Some(1),
        max: Some(3),
        ..cluster("cpu")
    }));
    let pair = world.submit_job(gang("pair", 2));
    for pool in [Pool::Dedicated, Pool::LowPriority] {
        let key = QuotaKey { holder: Holder::Subscription("s".into()), location: "westus".into(), pool };
        world.tell(Command::SetQuota { key, limit: Some(0), by: "me".into() });
    }
    for node in world.state.nodes.keys().map(|id| id.0).collect::<Vec<_>>() {
        world.gone(node);
    }
    let verdict = unblock(&world.state, pair, world.now).expect("it waits");
    let told: Vec<String> =
        verdict.constraints.iter().map(|constraint| constraint.sentence.clone()).collect();
    assert!(told.iter().any(|sentence| sentence.contains("LowPriority")), "{told:?}");
    assert!(!told.iter().any(|sentence| sentence.contains("Dedicated")), "the floor has one node: {told:?}");
}
