//! Locations with room and prices of their own.

use std::sync::Arc;

use neap_core::cluster::Cut;
use neap_core::command::{PutCluster, SubmitJob};
use neap_core::explain;
use neap_core::location::{Place, Scarce};
use neap_core::node::NodeState;
use neap_core::own::OwnPrice;
use neap_core::settings::Settings;
use neap_core::unblock::{self, Kind};
use neap_core::{Capacity, Code, Command, MicroUsd};

use crate::scaling::requested;
use crate::world::{World, cluster, gang, job, settings};

fn places(places: &[(&str, Place)]) -> Settings {
    settings(|settings| {
        settings.places =
            Arc::new(places.iter().map(|(name, place)| ((*name).into(), place.clone())).collect());
    })
}

fn at_most(nodes: u32) -> Place {
    Place { nodes_max: Some(nodes), ..Place::default() }
}

fn put(name: &str, location: &str) -> Command {
    Command::PutCluster(PutCluster {
        location: Some(location.into()),
        max: Some(8),
        idle_ms: Some(10_000),
        ..cluster(name)
    })
}

#[test]
fn a_location_gives_what_it_has_over_all_clusters() {
    let mut world = World::with(places(&[("westus", at_most(2)), ("eastus", at_most(3))]));
    world.tell(put("cpu", "westus"));
    world.tell(put("other", "westus"));
    for name in ["a", "b"] {
        world.submit(name);
    }
    let mut third = job("c");
    third.cluster = "other".into();
    let third = world.submit_job(third);
    assert_eq!(world.state.nodes.len(), 2);
    let cut = Cut::Location { location: "westus".into(), of: Scarce::Nodes, in_use: 2, max: 2, needed: 1 };
    let other = world.state.clusters.values().find(|c| &*c.name == "other").unwrap();
    assert_eq!(other.cuts, [cut]);

    let verdict = unblock::unblock(&world.state, third, world.now).unwrap();
    assert_eq!(verdict.binding, [Kind::Location].into());
    let sentence = &verdict.constraints[0].sentence;
    assert!(
        sentence.contains("westus has 2 (locations in config.yaml), of which 2 are in use"),
        "{sentence}"
    );
    assert!(sentence.ends_with("eastus has room for 3 such nodes."), "{sentence}");
    let reasons = explain::queue_reasons(&world.state, third);
    assert!(reasons.iter().any(|reason| reason == "eastus has room for 3 such nodes."), "{reasons:?}");

    // Elsewhere nothing is in the way.
    world.tell(put("far", "eastus"));
    let mut fourth = job("d");
    fourth.cluster = "far".into();
    world.submit_job(fourth);
    assert_eq!(world.state.nodes.len(), 3);
    assert_eq!(world.state.given["westus"].nodes, 2);
    assert_eq!(world.state.given["eastus"].cpus_milli, 4_000);

    // Room that comes free is for whoever waits.
    world.ready(1);
    world.tell(crate::world::cancel(neap_core::JobId(1)));
    world.tell(crate::world::cancel(neap_core::JobId(2)));
    world.ready(2);
    world.wait(10_000);
    let events = world.gone(1);
    assert_eq!(requested(&events), 1, "{events:?}");
}

#[test]
fn cores_of_a_location_count_by_the_declared_size() {
    let mut world = World::with(places(&[("westus", Place { cores_max: Some(10), ..Place::default() })]));
    world.tell(put("cpu", "westus"));
    for name in ["a", "b", "c"] {
        world.submit(name);
    }
    assert_eq!(world.state.nodes.len(), 2, "ten cores are two nodes of four");
    let cut = Cut::Location { location: "westus".into(), of: Scarce::Cores, in_use: 8, max: 10, needed: 4 };
    assert_eq!(world.cpu().cuts, [cut]);
}

#[test]
fn more_nodes_at_once_than_a_location_has_are_refused_with_where_they_are() {
    let mut world = World::with(places(&[("westus", at_most(2)), ("eastus", at_most(5))]));
    world.tell(put("cpu", "westus"));
    assert_eq!(world.refused(Command::SubmitJob(gang("g", 3))), [Code::ResourceTooLarge]);
    let why = world.ask(Command::SubmitJob(gang("g", 3))).unwrap_err().to_string();
    assert!(why.contains("3 nodes at once and westus has at most 2 of size STANDARD_DS3_V2"), "{why}");
    assert!(why.contains("eastus has room for 5 such nodes."), "{why}");
    world.submit_job(gang("g", 2));
    assert_eq!(world.state.nodes.len(), 2);
}

#[test]
fn a_size_costs_what_its_location_asks() {
    let dear = Place { price_ppm: 1_500_000, ..Place::default() };
    let own = OwnPrice { size: "STANDARD_DS3_V2".into(), dedicated: Some(MicroUsd(42)), low_priority: None };
    let own = Place { prices: vec![own], ..Place::default() };
    let mut world = World::with(places(&[("westus", dear), ("eastus", own)]));
    for (name, location) in [("cpu", "westus"), ("far", "eastus"), ("plain", "uksouth")] {
        world.tell(put(name, location));
    }
    let price = |name: &str| {
        let named = world.state.clusters.values().find(|c| &*c.name == name).unwrap();
        named.shape.price.0
    };
    assert_eq!((price("cpu"), price("far")), (price("plain") * 3 / 2, 42));
}

/// Low-priority nodes in both locations, each with work; then dedicated work in westus. How many are taken in each.
fn taken_back(westus: Place, eastus: Place, here: u32, there: u32, wanted: u32) -> (usize, usize) {
    let mut world = World::with(places(&[("westus", westus), ("eastus", eastus)]));
    let low = |name: &str, location: &str| {
        let tier = Some("LowPriority".into());
        let location = Some(location.into());
        Command::PutCluster(PutCluster { tier, location, max: Some(8), ..cluster(name) })
    };
    world.tell(low("here", "westus"));
    world.tell(low("there", "eastus"));
    world.tell(put("cpu", "westus"));
    let mut nodes = 0;
    for (of, count) in [("here", here), ("there", there)] {
        for number in 0..count {
            let mut job = job(&format!("{of}-{number}"));
            job.cluster = of.into();
            let id = world.submit_job(job);
            nodes += 1;
            world.ready(nodes);
            world.start(id);
        }
    }
    for number in 0..wanted {
        world.submit(&format!("firm-{number}"));
    }
    let in_cluster = |name: &str| {
        let id = world.state.clusters.values().find(|c| &*c.name == name).map(|c| c.id);
        let of = world.state.nodes.values().filter(|node| Some(node.cluster) == id);
        of.filter(|node| matches!(node.state, NodeState::Preempted { .. })).count()
    };
    (in_cluster("here"), in_cluster("there"))
}

#[test]
fn dedicated_work_takes_back_what_its_own_location_lacks() {
    let cores = |cores: u64| Place { cores_max: Some(cores), ..Place::default() };
    let any = Place::default;
    for (westus, eastus, here, there, wanted, taken) in [
        (at_most(2), any(), 2, 2, 1, (1, 0)),
        (at_most(2), any(), 2, 2, 2, (2, 0)),
        (at_most(3), any(), 2, 2, 1, (0, 0)),
        (at_most(3), any(), 2, 2, 2, (1, 0)),
        (at_most(2), any(), 0, 2, 1, (0, 0)),
        (any(), at_most(2), 2, 2, 1, (0, 0)),
        (cores(8), any(), 2, 2, 1, (1, 0)),
        (cores(11), any(), 2, 2, 1, (1, 0)),
        (cores(12), any(), 2, 2, 1, (0, 0)),
        (cores(8), any(), 2, 0, 3, (2, 0)),
        // All that it has would not be enough.
        (cores(3), any(), 0, 2, 1, (0, 0)),
    ] {
        let found = taken_back(westus.clone(), eastus, here, there, wanted);
        assert_eq!(found, taken, "{westus:?} with {here} and {there}, {wanted} wanted");
    }
}

/// A low-priority node with the machine's only GPU and work, which dedicated work wants; and a small low-priority cluster
/// that has so many nodes with work.
fn one_gpu(westus: Place, small: u64) -> World {
    let mut world = World::with(settings(|s| {
        s.places = Arc::new([("westus".into(), westus)].into());
        s.provider.machine = Some(Capacity { cpus_milli: 64_000, memory_mb: 1_000_000, gpus: 1 });
    }));
    let low = Some("LowPriority".into());
    let gpu = |name: &str| PutCluster { size: Some("Standard_NC6s_v3".into()), ..cluster(name) };
    world.tell(Command::PutCluster(PutCluster { tier: low.clone(), max: Some(1), ..gpu("low-gpu") }));
    world.tell(Command::PutCluster(PutCluster { tier: low, max: Some(4), ..cluster("small") }));
    world.tell(Command::PutCluster(PutCluster { max: Some(1), ..gpu("cpu") }));
    let on = |name: &str, at: u64| SubmitJob { cluster: name.into(), ..job(&format!("{name}-{at}")) };
    for (at, name) in std::iter::once("low-gpu").chain((0..small).map(|_| "small")).enumerate() {
        let id = world.submit_job(on(name, at as u64));
        world.ready(at as u64 + 1);
        world.wait(1_000);
        world.start(id);
    }
    world.submit("firm");
    world
}

#[test]
fn a_location_that_has_just_enough_lacks_nothing() {
    let cores = |cores: u64| Place { cores_max: Some(cores), ..Place::default() };
    // Six cores are free besides six of the GPU's node and four of the other: just what is wanted.
    for westus in [cores(16), cores(17), Place::default()] {
        let world = one_gpu(westus.clone(), 1);
        let taken = world.state.nodes.values().filter(|n| matches!(n.state, NodeState::Preempted { .. }));
        assert_eq!(taken.map(|node| node.id.0).collect::<Vec<_>>(), [1], "{westus:?}: whoever has the GPU");
    }
    // And who takes none of what is missing, and leaves as many cores as are wanted, lets nobody go first.
    for (westus, nodes) in [(Place::default(), 2), (cores(17), 2), (cores(16), 2), (cores(15), 1)] {
        let mut world = one_gpu(westus.clone(), 0);
        world.submit_job(SubmitJob { cluster: "small".into(), ..job("next") });
        assert_eq!(world.state.nodes.len(), nodes, "{westus:?}");
    }
}

#[test]
fn what_is_kept_elsewhere_keeps_no_gang_from_its_place() {
    let mut world = World::with(places(&[("westus", at_most(2))]));
    for (name, location, min) in
        [("cpu", "westus", 0), ("gpu", "westus", 0), ("other", "westus", 0), ("far", "eastus", 1)]
    {
        let location = Some(location.into());
        let put = PutCluster { location, min: Some(min), max: Some(4), ..cluster(name) };
        world.tell(Command::PutCluster(put));
    }
    world.ready(1);
    let busy = world.submit_job(SubmitJob { cluster: "other".into(), ..job("busy") });
    world.ready(2);
    world.start(busy);
    world.submit_job(gang("earlier", 2));
    world.submit_job(SubmitJob { cluster: "gpu".into(), ..gang("later", 2) });
    let gpu = world.state.clusters.values().find(|c| &*c.name == "gpu").unwrap();
    assert_eq!(gpu.cuts, [Cut::ProviderAtOnce { wanted: 2, max: 2 }], "the earlier one goes first");
}
