//! Declaring, changing and deleting clusters.

use neap_core::catalogue;
use neap_core::cluster::{Scale, Shape, Tier};
use neap_core::command::{PutCluster, PutWorkspace};
use neap_core::decide::{DEFAULT_IDLE_MS, DEFAULT_MAX, DEFAULT_MIN};
use neap_core::event::{ClusterCreated, ClusterDeleteRequested, ClusterUpdated};
use neap_core::limits::{CLUSTER_NODES_MAX, IDLE_TIME_S_MAX};
use neap_core::own::{Own, OwnSize};
use neap_core::retired::retired;
use neap_core::{ClusterId, Code, Command, MicroUsd, Problem, WorkspaceId};

use crate::world::{
    CPU, DOCUMENT, NOMINAL, OTHER_DOCUMENT, WORKSPACE, World, cluster, put_group, put_workspace, settings,
    workspace,
};

fn put(change: impl FnOnce(&mut PutCluster)) -> Command {
    let mut put = cluster("cpu");
    change(&mut put);
    Command::PutCluster(put)
}

/// Code and field of every problem.
#[track_caller]
fn problems(world: &World, command: Command) -> Vec<(Code, String)> {
    let refusal = world.ask(command).expect_err("it is refused");
    refusal.problems.into_iter().map(|p| (p.code, p.target.unwrap_or_default())).collect()
}

#[test]
fn a_cluster_of_which_nothing_is_said_has_the_defaults() {
    let world = World::new();
    let created = ClusterCreated {
        id: CPU,
        workspace: WORKSPACE,
        name: "cpu".into(),
        location: "westus".into(),
        shape: Shape {
            size: "STANDARD_DS3_V2".into(),
            family: "standardDSv2Family".into(),
            nominal: NOMINAL,
            tier: Tier::Dedicated,
            price: MicroUsd(293_000),
        },
        network: None,
        scale: Scale { min: DEFAULT_MIN, max: DEFAULT_MAX, idle_ms: DEFAULT_IDLE_MS },
        floor: None,
        document: DOCUMENT,
        reference: None,
    };
    assert_eq!(world.ask(put(|_| {})), Ok(vec![created.into()]));
    assert_eq!((DEFAULT_MIN, DEFAULT_MAX, DEFAULT_IDLE_MS), (0, 4, 120_000), "as Azure has them");
}

#[test]
fn the_scale_stays_within_its_limits() {
    let world = World::new();
    let (nodes, idle) = (i64::from(CLUSTER_NODES_MAX), IDLE_TIME_S_MAX as i64 * 1000);
    let scaled = |min, max, idle_ms| {
        put(move |put| {
            (put.min, put.max, put.idle_ms) = (min, max, idle_ms);
        })
    };
    for (min, max, idle_ms) in [
        (Some(0), Some(0), Some(0)),
        (Some(3), Some(3), None),
        (Some(4), None, None),
        (None, Some(nodes), Some(idle)),
        (Some(nodes), Some(nodes), None),
    ] {
        assert!(world.ask(scaled(min, max, idle_ms)).is_ok(), "{min:?} to {max:?}, {idle_ms:?} ms");
    }
    for (min, max, idle_ms, expect) in [
        (Some(-1), None, None, vec!["minNodeCount"]),
        (None, Some(-1), None, vec!["maxNodeCount"]),
        (None, Some(nodes + 1), None, vec!["maxNodeCount"]),
        (Some(nodes + 1), Some(nodes), None, vec!["minNodeCount"]),
        (Some(3), Some(2), None, vec!["minNodeCount"]),
        (Some(5), None, None, vec!["minNodeCount"]),
        (None, None, Some(-1), vec!["nodeIdleTimeBeforeScaleDown"]),
        (None, None, Some(idle + 1), vec!["nodeIdleTimeBeforeScaleDown"]),
        (Some(-1), Some(-1), Some(-1), vec!["minNodeCount", "maxNodeCount", "nodeIdleTimeBeforeScaleDown"]),
    ] {
        let expect: Vec<_> =
            expect.iter().map(|field| (Code::InvalidScaleSettings, (*field).into())).collect();
        let command = scaled(min, max, idle_ms);
        assert_eq!(problems(&world, command), expect, "{min:?} to {max:?}, {idle_ms:?} ms");
    }
    let message = world.ask(scaled(None, None, Some(idle + 7_000))).unwrap_err().to_string();
    assert!(message.contains(&format!("{} seconds", IDLE_TIME_S_MAX + 7)), "{message}");
}

#[test]
fn size_and_tier_are_known_and_go_together() {
    let world = World::new();
    let shape = |size: &str, tier: &str| {
        let command = put(|put| (put.size, put.tier) = (Some(size.into()), Some(tier.into())));
        match &world.ask(command).unwrap()[0] {
            neap_core::Event::ClusterCreated(created) => created.shape.clone(),
            other => panic!("{other:?}"),
        }
    };
    for (tier, price) in [("dedicated", 293_000), ("low_priority", 60_000), ("LowPriority", 60_000)] {
        let shape = shape("standard_ds3_V2", tier);
        assert_eq!((&*shape.size, shape.nominal, shape.price), ("STANDARD_DS3_V2", NOMINAL, MicroUsd(price)));
    }
    let usable = |size: &&catalogue::Size| retired(size.name).is_none();
    let never_low = catalogue::sizes().filter(usable).find(|size| !size.low_priority_capable).unwrap().name;
    assert_eq!(shape(never_low, "Dedicated").tier, Tier::Dedicated);
    for (size, tier, expect) in [
        ("Standard_DS3_v2", "cheap", vec![(Code::BadArgument, "vmPriority")]),
        ("Standard_DS99_v2", "Dedicated", vec![(Code::InvalidVmSize, "vmSize")]),
        (
            "Standard_DS99_v2",
            "cheap",
            vec![(Code::BadArgument, "vmPriority"), (Code::InvalidVmSize, "vmSize")],
        ),
        (never_low, "LowPriority", vec![(Code::InvalidVmSize, "vmPriority")]),
    ] {
        let command = put(|put| (put.size, put.tier) = (Some(size.into()), Some(tier.into())));
        let expect: Vec<_> = expect.into_iter().map(|(code, field)| (code, field.to_owned())).collect();
        assert_eq!(problems(&world, command), expect, "{size}, {tier}");
    }
}

#[test]
fn an_unknown_size_is_answered_with_what_resembles_it_or_where_to_look() {
    let world = World::new();
    for (size, expect) in [("Standard_DS99_v2", "Standard_DS1"), ("?", "list-sizes")] {
        let message = world.ask(put(|put| put.size = Some(size.into()))).unwrap_err().to_string();
        assert!(message.contains(expect), "{message}");
        assert_eq!(message.contains("Did you mean"), size != "?", "{message}");
    }
}

#[test]
fn a_name_is_used_once_in_a_region_and_that_is_said_first() {
    let mut world = World::with_cluster(0, 1);
    world.tell(put_workspace("other"));
    let elsewhere = |change: fn(&mut PutCluster)| {
        put(|put| {
            put.workspace = WorkspaceId(2);
            change(put);
        })
    };
    let taken = vec![(Code::ComputeNameTaken, String::from("name"))];
    assert_eq!(problems(&world, elsewhere(|_| {})), taken);
    assert_eq!(problems(&world, elsewhere(|put| put.name = "CPU".into())), taken);
    assert!(world.ask(elsewhere(|put| put.name = "gpu".into())).is_ok());
    assert!(world.ask(elsewhere(|put| put.location = Some("eastus".into()))).is_ok(), "another region");
    let message = world.ask(elsewhere(|_| {})).unwrap_err().to_string();
    assert!(message.contains("workspace 'ws' in resource group 'g'"), "{message}");
    let also_wrong = problems(&world, elsewhere(|put| put.max = Some(-1)));
    assert_eq!(also_wrong[0].0, Code::ComputeNameTaken);
    assert_eq!(also_wrong[1].0, Code::InvalidScaleSettings);

    world.tell(Command::DeleteCluster { cluster: CPU, reason: "asked".into() });
    assert!(world.state.clusters.is_empty(), "it had no nodes");
    world.tell(elsewhere(|_| {}));
    assert_eq!(
        world.state.cluster(WorkspaceId(2), "cpu").unwrap().id,
        ClusterId(2),
        "the name is free, the id is not"
    );
    assert!(world.state.cluster(WORKSPACE, "cpu").is_none());
}

#[test]
fn a_cluster_has_a_good_name_a_known_place_and_a_workspace() {
    let mut world = World::new();
    let problem = Problem::new(Code::NotSupported, "not that");
    assert_eq!(
        world.refused(put(|put| {
            put.problems = vec![problem];
            put.name = "?".into();
            put.location = Some("nowhere".into());
            put.size = Some("?".into());
        })),
        [Code::NotSupported, Code::InvalidResourceName, Code::LocationNotAvailable, Code::InvalidVmSize]
    );
    assert_eq!(world.refused(put(|put| put.workspace = WorkspaceId(9))), [Code::ParentResourceNotFound]);
    world.tell(put_group("far", "eastus"));
    world.tell(Command::PutWorkspace(PutWorkspace {
        group: "far".into(),
        location: Some("eastus".into()),
        ..workspace("far")
    }));
    world.tell(put(|put| put.workspace = WorkspaceId(2)));
    assert_eq!(&*world.cpu().location, "eastus", "where its workspace is");
    world.tell(Command::Drain { deadline: world.now.plus(1_000) });
    assert_eq!(world.refused(put(|_| {})), [Code::ServerIsStopping]);
}

#[test]
fn a_change_counts_and_what_is_for_ever_is_not_changed() {
    let mut world = World::with_cluster(0, 2);
    let same = |change: fn(&mut PutCluster)| {
        put(|put| {
            put.document = OTHER_DOCUMENT;
            change(put);
        })
    };
    let updated = ClusterUpdated {
        id: CPU,
        revision: 2,
        scale: Scale { min: 0, max: 4, idle_ms: 120_000 },
        floor: None,
        document: OTHER_DOCUMENT,
        reference: None,
        remade: None,
    };
    for command in [
        same(|_| {}),
        same(|put| put.name = "CPU".into()),
        same(|put| put.location = Some("West US".into())),
        same(|put| put.size = Some("standard_ds3_v2".into())),
        same(|put| put.tier = Some("dedicated".into())),
    ] {
        assert_eq!(world.ask(command), Ok(vec![updated.clone().into()]));
    }
    let all = same(|put| {
        put.location = Some("eastus".into());
        put.size = Some("Standard_DS4_v2".into());
        put.tier = Some("LowPriority".into());
        put.min = Some(9);
    });
    let expect = [
        (Code::InvalidScaleSettings, "minNodeCount"),
        (Code::PropertyChangeNotAllowed, "location"),
        (Code::PropertyChangeNotAllowed, "vmSize"),
        (Code::PropertyChangeNotAllowed, "vmPriority"),
    ];
    assert_eq!(problems(&world, all), expect.map(|(code, field)| (code, field.to_owned())));
    assert_eq!(world.refused(same(|put| put.tier = Some("cheap".into()))), [Code::PropertyChangeNotAllowed]);

    let created = world.now;
    world.wait(5);
    world.tell(same(|_| {}));
    let cpu = world.cpu();
    assert_eq!((cpu.revision, cpu.scale.max, cpu.document), (2, 4, OTHER_DOCUMENT));
    assert_eq!((cpu.created, cpu.modified), (created, created.plus(5)));
}

#[test]
fn a_cluster_is_deleted_once_and_not_changed_meanwhile() {
    let mut world = World::with_cluster(1, 1);
    let delete = |cluster| Command::DeleteCluster { cluster, reason: "asked".into() };
    assert_eq!(world.refused(delete(ClusterId(9))), [Code::ResourceNotFound]);
    let asked = ClusterDeleteRequested { id: CPU, reason: "asked".into() };
    assert_eq!(world.ask(delete(CPU)), Ok(vec![asked.into()]));
    world.tell(delete(CPU));
    assert!(world.cpu().is_deleting(), "its node is not gone yet");
    assert_eq!(world.ask(delete(CPU)), Ok(vec![]));
    assert_eq!(world.refused(put(|_| {})), [Code::ResourceBeingDeleted]);
}

#[test]
fn a_size_that_was_retired_is_refused_with_what_to_use_instead() {
    let world = World::new();
    let size = catalogue::sizes().find(|size| retired(size.name).is_some()).expect("the catalogue has some");
    let refusal = world.ask(put(|put| put.size = Some(size.name.into()))).expect_err("it is refused");
    let problem = &refusal.problems[0];
    assert_eq!((problem.code, problem.target.as_deref()), (Code::InvalidVmSize, Some("vmSize")));
    assert_eq!(problem.message, retired(size.name).expect("it is").sentence(size.name));
}

/// A size of the installation's own, in the east alone and without a low-priority tier.
fn own(name: &str, price: u64) -> OwnSize {
    OwnSize {
        name: name.into(),
        family: "own".into(),
        capacity: NOMINAL,
        price: MicroUsd(price),
        low_priority_price: None,
        locations: vec!["eastus".into()],
    }
}

#[test]
fn a_size_of_ones_own_may_have_a_retired_name_and_is_where_it_is_said_to_be() {
    let retired = catalogue::sizes().find(|size| retired(size.name).is_some()).expect("there are some").name;
    let sizes = vec![own(retired, 5), own("Own_1", 0)];
    let own = Own { sizes, ..Own::default() };
    let world = World::with(settings(|s| s.own = own.into()));
    let of = |size: &str, location: &str| {
        put(|put| (put.size, put.location) = (Some(size.into()), Some(location.into())))
    };
    let price = |size: &str| match &world.ask(of(size, "eastus")).expect("it is offered there")[0] {
        neap_core::Event::ClusterCreated(created) => created.shape.price,
        other => panic!("{other:?}"),
    };
    assert_eq!((price(retired), price("own_1")), (MicroUsd(5), MicroUsd(0)));
    let elsewhere = world.ask(of("Own_1", "westus")).unwrap_err();
    assert_eq!(elsewhere.problems.len(), 1);
    assert_eq!(
        elsewhere.problems[0].message,
        "The VM size 'Own_1' is not offered in westus; it is in eastus."
    );
    assert_eq!(elsewhere.problems[0].target.as_deref(), Some("vmSize"));
}

#[test]
fn a_retired_size_is_refused_once_whether_the_catalogue_has_it_or_not() {
    let world = World::new();
    let name = |known: bool| {
        let mut names = ["Standard_NC6", "Standard_NC999", "Standard_NV6", "Standard_NC6_Promo"].into_iter();
        names.find(|name| retired(name).is_some() && catalogue::size(name).is_some() == known)
    };
    for name in [name(true), name(false)].into_iter().flatten() {
        let refusal = world.ask(put(|put| put.size = Some(name.into()))).expect_err("it is refused");
        let said: Vec<_> = refusal.problems.iter().map(|problem| problem.message.clone()).collect();
        assert_eq!(said, [retired(name).expect("it is").sentence(name)]);
    }
    assert!(name(true).is_some() && name(false).is_some());
}
