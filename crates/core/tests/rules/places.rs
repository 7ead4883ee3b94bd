//! Resource groups and workspaces.

use neap_core::command::PutWorkspace;
use neap_core::event::{
    AssetDeleted, AssetPut, GroupDeleted, GroupPut, WorkspaceCreated, WorkspaceDeleteRequested,
    WorkspaceUpdated,
};
use neap_core::{Code, Command, Millis, Problem, WorkspaceId};

use crate::world::{
    DOCUMENT, OTHER_DOCUMENT, WORKSPACE, World, cluster, put_group, put_workspace, workspace,
};

fn delete_group(name: &str) -> Command {
    Command::DeleteGroup { subscription: "s".into(), name: name.into() }
}

fn delete_workspace(workspace: WorkspaceId) -> Command {
    Command::DeleteWorkspace { workspace }
}

fn put_asset(workspace: WorkspaceId) -> Command {
    Command::PutAsset {
        workspace,
        kind: "data".into(),
        name: "d".into(),
        version: "1".into(),
        document: DOCUMENT,
        content: None,
    }
}

fn delete_asset(workspace: WorkspaceId) -> Command {
    Command::DeleteAsset { workspace, kind: "data".into(), name: "d".into(), version: "1".into() }
}

#[test]
fn a_group_has_a_good_name_and_a_known_location_that_stays() {
    let world = World::new();
    let put = GroupPut {
        subscription: "s".into(),
        name: "new".into(),
        location: "westus".into(),
        document: DOCUMENT,
    };
    assert_eq!(
        world.ask(put_group("new", "West US")),
        Ok(vec![put.into()]),
        "spelled as Azure's portal does"
    );
    assert!(world.ask(put_group("g", "westus")).is_ok(), "the same again");
    for (name, location, expect) in [
        ("bad.", "nowhere", vec![Code::InvalidResourceName, Code::LocationNotAvailable]),
        ("new", "nowhere", vec![Code::LocationNotAvailable]),
        ("g", "eastus", vec![Code::PropertyChangeNotAllowed]),
        ("G", "eastus", vec![Code::PropertyChangeNotAllowed]),
        // Where it cannot be is said once.
        ("g", "nowhere", vec![Code::LocationNotAvailable]),
    ] {
        assert_eq!(world.refused(put_group(name, location)), expect, "{name} in {location}");
    }
}

#[test]
fn an_unknown_location_is_answered_with_some_that_are_known() {
    let world = World::new();
    let refusal = world.ask(put_group("new", "nowhere")).unwrap_err();
    let known: Vec<&String> = world.state.settings.locations.iter().take(5).collect();
    for location in known {
        assert!(refusal.problems[0].message.contains(location.as_str()), "{refusal}");
    }
    assert_eq!(refusal.problems[0].target.as_deref(), Some("location"));
}

#[test]
fn deleting_a_group_asks_its_own_workspaces_to_go_and_then_forgets_it() {
    let mut world = World::new();
    assert_eq!(world.refused(delete_group("other")), [Code::ResourceGroupNotFound]);
    world.tell(put_group("other", "westus"));
    world.tell(Command::PutWorkspace(PutWorkspace { group: "other".into(), ..workspace("elsewhere") }));
    world.tell(put_workspace("going"));
    world.tell(Command::PutCluster(neap_core::command::PutCluster {
        workspace: WorkspaceId(3),
        min: Some(1),
        ..cluster("busy")
    }));
    world.tell(delete_workspace(WorkspaceId(3)));
    assert!(world.state.workspaces[&WorkspaceId(3)].deleting, "it waits for its cluster");

    assert_eq!(
        world.ask(delete_group("G")),
        Ok(vec![
            WorkspaceDeleteRequested { id: WORKSPACE }.into(),
            GroupDeleted { subscription: "s".into(), name: "G".into() }.into(),
        ])
    );
    world.tell(delete_group("G"));
    assert_eq!(world.refused(put_workspace("new")), [Code::ResourceGroupNotFound]);
    assert_eq!(world.refused(delete_group("g")), [Code::ResourceGroupNotFound]);
    assert!(world.state.workspace("s", "other", "elsewhere").is_some());
}

#[test]
fn a_workspace_is_created_in_a_group_that_exists_with_every_problem_told_at_once() {
    let world = World::new();
    let created = WorkspaceCreated {
        id: WorkspaceId(2),
        subscription: "s".into(),
        group: "g".into(),
        name: "new".into(),
        location: "westus".into(),
        document: DOCUMENT,
    };
    assert_eq!(world.ask(put_workspace("new")), Ok(vec![created.into()]));
    let put = |change: fn(&mut PutWorkspace)| {
        let mut put = workspace("new");
        change(&mut put);
        Command::PutWorkspace(put)
    };
    for (command, expect) in [
        (put(|p| p.name = "?".into()), vec![Code::InvalidResourceName]),
        (put(|p| p.group = "other".into()), vec![Code::ResourceGroupNotFound]),
        (put(|p| p.subscription = "other".into()), vec![Code::ResourceGroupNotFound]),
        (put(|p| p.location = None), vec![Code::BadArgument]),
        (put(|p| p.location = Some("nowhere".into())), vec![Code::LocationNotAvailable]),
        (
            put(|p| {
                p.problems = vec![Problem::new(Code::NotSupported, "not that")];
                p.name = "?".into();
                p.group = "other".into();
                p.location = None;
            }),
            vec![
                Code::NotSupported,
                Code::InvalidResourceName,
                Code::ResourceGroupNotFound,
                Code::BadArgument,
            ],
        ),
    ] {
        assert_eq!(world.refused(command), expect);
    }
}

#[test]
fn a_workspace_may_change_all_but_its_place() {
    let mut world = World::new();
    let put = |location: Option<&str>| PutWorkspace {
        location: location.map(Into::into),
        document: OTHER_DOCUMENT,
        ..workspace("WS")
    };
    let updated = WorkspaceUpdated { id: WORKSPACE, document: OTHER_DOCUMENT };
    for location in [None, Some("westus"), Some("West US")] {
        let answer = world.ask(Command::PutWorkspace(put(location)));
        assert_eq!(answer, Ok(vec![updated.clone().into()]), "{location:?}");
    }
    let elsewhere = Command::PutWorkspace(put(Some("eastus")));
    assert_eq!(world.refused(elsewhere), [Code::PropertyChangeNotAllowed]);
    let problems = vec![Problem::new(Code::NotSupported, "not that")];
    assert_eq!(
        world.refused(Command::PutWorkspace(PutWorkspace { problems, ..put(None) })),
        [Code::NotSupported]
    );

    let created = world.now;
    world.wait(5);
    world.tell(Command::PutWorkspace(put(None)));
    let workspace = &world.state.workspaces[&WORKSPACE];
    assert_eq!(workspace.document, OTHER_DOCUMENT);
    assert_eq!((workspace.created, workspace.modified), (created, created.plus(5)));
}

#[test]
fn a_workspace_goes_once_and_its_name_is_free_again() {
    let mut world = World::new();
    assert_eq!(world.refused(delete_workspace(WorkspaceId(9))), [Code::ResourceNotFound]);
    world.tell(delete_workspace(WORKSPACE));
    assert!(world.state.workspaces.is_empty(), "nothing holds it");
    assert_eq!(world.state.workspace_names.len(), 0);
    world.tell(put_workspace("ws"));
    let again = world.state.workspace("s", "g", "ws").unwrap();
    assert_eq!(again.id, WorkspaceId(2), "an id is never used again");
    assert_eq!(again.created, Millis(1_000_000));
}

#[test]
fn a_workspace_on_its_way_out_takes_nothing_in() {
    let mut world = World::with_cluster(1, 1);
    assert_eq!(
        world.ask(put_asset(WORKSPACE)),
        Ok(vec![
            AssetPut {
                workspace: WORKSPACE,
                kind: "data".into(),
                name: "d".into(),
                version: "1".into(),
                document: DOCUMENT,
                content: None,
            }
            .into()
        ])
    );
    assert_eq!(
        world.ask(delete_asset(WORKSPACE)),
        Ok(vec![
            AssetDeleted { workspace: WORKSPACE, kind: "data".into(), name: "d".into(), version: "1".into() }
                .into()
        ])
    );
    world.tell(delete_workspace(WORKSPACE));
    assert_eq!(world.ask(delete_workspace(WORKSPACE)), Ok(vec![]), "it is asked to go already");
    for command in [put_asset(WORKSPACE), delete_asset(WORKSPACE), put_workspace("ws")] {
        assert_eq!(world.refused(command), [Code::ResourceBeingDeleted]);
    }
    for command in [put_asset(WorkspaceId(9)), delete_asset(WorkspaceId(9))] {
        assert_eq!(world.refused(command), [Code::ParentResourceNotFound]);
    }
}

#[test]
fn a_server_that_is_being_stopped_takes_no_workspace_in() {
    let mut world = World::new();
    world.tell(Command::Drain { deadline: world.now.plus(1_000) });
    for name in ["ws", "new"] {
        assert_eq!(world.refused(put_workspace(name)), [Code::ServerIsStopping]);
    }
}
