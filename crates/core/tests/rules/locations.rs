//! Locations with room and prices of their own.

use std::sync::Arc;

use neap_core::cluster::Cut;
use neap_core::command::PutCluster;
use neap_core::explain;
use neap_core::location::{Place, Scarce};
use neap_core::node::NodeState;
use neap_core::own::OwnPrice;
use neap_core::settings::Settings;
use neap_core::unblock::{self, Kind};
use neap_core::{Code, Command, MicroUsd};

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
