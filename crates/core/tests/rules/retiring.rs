//! The end of a cluster, of a workspace, and of the day.

use neap_core::cluster::Cut;
use neap_core::command::{PutCluster, SubmitJob};
use neap_core::event::{ClusterDeleteRequested, ClusterTarget, NodeLeaving, WorkspaceDeleted};
use neap_core::job::Exit;
use neap_core::limits::PLAN_EVENTS_MAX;
use neap_core::node::NodeState;
use neap_core::plan::Dirty;
use neap_core::{ClusterId, Command, Event, Millis, WorkspaceId};

use crate::world::{CPU, WORKSPACE, World, cluster, job, kinds, put_workspace, settings};

fn delete_cluster() -> Command {
    Command::DeleteCluster { cluster: CPU, reason: "asked".into() }
}

#[test]
fn a_cluster_goes_after_its_jobs_and_its_nodes() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let running = world.submit("running");
    world.start(running);
    let events = world.tell(delete_cluster());
    assert_eq!(
        kinds(&events),
        ["cluster.delete_requested", "job.cancel_requested", "attempt.stop_requested", "node.leaving"]
    );
    let deadline = world.now.plus(world.state.settings.leave_deadline_ms);
    let reason = "The compute 'cpu' was deleted.".into();
    assert_eq!(
        events[3],
        NodeLeaving { id: neap_core::NodeId(2), deadline, reason }.into(),
        "the one without work"
    );
    assert_eq!(&*world.job(running).cancel.as_ref().unwrap().reason, "The compute 'cpu' was deleted.");
    assert_eq!(kinds(&world.wait(1)), [""; 0], "nothing is said twice");

    let events = world.end(running, Exit::Stopped);
    assert_eq!(kinds(&events), ["job.ended", "node.leaving"]);
    assert_eq!(kinds(&world.gone(1)), ["node.gone"]);
    assert_eq!(kinds(&world.gone(2)), ["node.gone", "cluster.deleted"]);
    assert!(world.state.clusters.is_empty() && world.state.cluster_names.is_empty());
    assert!(world.state.cluster_index.is_empty());
}

#[test]
fn waiting_jobs_of_a_cluster_that_goes_are_cancelled() {
    let mut world = World::with_cluster(0, 0);
    world.submit("one");
    world.submit("two");
    let events = world.tell(delete_cluster());
    assert_eq!(
        kinds(&events),
        [
            "cluster.delete_requested",
            "job.cancel_requested",
            "job.ended",
            "job.cancel_requested",
            "job.ended",
            "cluster.deleted"
        ]
    );
    assert!(world.state.jobs.is_empty());
}

#[test]
fn a_deletion_leaves_no_timer_and_no_wish_for_room() {
    let mut world = World::with_cluster(1, 1);
    world.report_failed(1);
    assert!(world.cpu().boot.retry_at.is_some());
    world.tell(delete_cluster());
    assert_eq!(kinds(&world.gone(1)), ["node.gone", "cluster.deleted"]);
    assert!(world.state.timers.is_empty(), "{:?}", world.state.timers);
    assert_eq!(world.wake_at, None);

    let mut world = World::with(settings(|s| s.provider.nodes_max = 0));
    world.scale(1, 1);
    assert!(world.state.waiting_for_room.contains(&CPU));
    world.tell(delete_cluster());
    assert!(world.state.clusters.is_empty() && world.state.waiting_for_room.is_empty());
}

#[test]
fn a_large_cluster_goes_in_bounded_steps() {
    let mut world = World::with_cluster(0, 0);
    let jobs = PLAN_EVENTS_MAX / 2 + 10;
    world.batch((0..jobs).map(|i| Command::SubmitJob(job(&format!("j{i}")))));
    let planned = world.tell(delete_cluster()).len() - 1;
    assert!(planned <= PLAN_EVENTS_MAX && planned > PLAN_EVENTS_MAX - 2, "{planned}");
    assert_eq!(world.state.jobs.len(), jobs - planned / 2);
    assert_eq!(world.wake_at, Some(world.now));
    world.wait(1);
    assert!(world.state.clusters.is_empty());
}

#[test]
fn a_step_ends_where_the_next_job_would_pass_its_bound() {
    let mut world = World::with_cluster(0, 0);
    world.tell(Command::PutCluster(PutCluster { max: Some(0), ..cluster("gpu") }));
    let submit =
        |name: &str, cluster: &str| Command::SubmitJob(SubmitJob { cluster: cluster.into(), ..job(name) });
    world.batch((0..PLAN_EVENTS_MAX / 2).map(|i| submit(&format!("j{i}"), "gpu")));
    let delete = Command::DeleteCluster { cluster: ClusterId(2), reason: "asked".into() };
    let events = world.batch([submit("other", "cpu"), delete]);
    assert_eq!(kinds(&events)[..3], ["job.submitted", "cluster.delete_requested", "cluster.target"]);
    assert_eq!(events.len() - 2, PLAN_EVENTS_MAX - 1, "a job's two events are not torn apart");
    assert_eq!(world.wake_at, Some(world.now));
    assert_eq!(kinds(&world.wait(1)), ["job.cancel_requested", "job.ended", "cluster.deleted"]);
}

#[test]
fn a_workspace_goes_after_its_clusters_and_each_is_asked_once() {
    let mut world = World::with_cluster(1, 1);
    world.tell(put_workspace("other"));
    world.tell(Command::PutCluster(PutCluster { min: Some(1), ..cluster("gpu") }));
    world.tell(Command::PutCluster(PutCluster { workspace: WorkspaceId(2), ..cluster("theirs") }));
    world.tell(delete_cluster());
    let events = world.tell(Command::DeleteWorkspace { workspace: WORKSPACE });
    let asked: Vec<_> = events.iter().filter(|e| matches!(e, Event::ClusterDeleteRequested(_))).collect();
    let reason = "The workspace 'ws' was deleted.".into();
    assert_eq!(asked, [&ClusterDeleteRequested { id: ClusterId(2), reason }.into()]);
    assert!(!kinds(&events).contains(&"workspace.deleted"));
    world.gone(1);
    assert!(world.state.workspaces.contains_key(&WORKSPACE), "one cluster is left");
    let mut events = world.wait(1);
    events.extend(world.gone(2));
    assert_eq!(events.last(), Some(&WorkspaceDeleted { id: WORKSPACE }.into()));
    assert!(world.state.workspaces.contains_key(&WorkspaceId(2)), "the other stays");
    assert!(world.state.cluster(WorkspaceId(2), "theirs").is_some());
}

#[test]
fn while_the_server_is_being_stopped_what_has_no_work_goes() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let running = world.submit("running");
    let deadline = world.now.plus(60_000);
    let events = world.tell(Command::Drain { deadline });
    assert_eq!(kinds(&events), ["server.draining", "node.leaving", "cluster.target"]);
    assert!(matches!(world.node(2).state, NodeState::Leaving { .. }));
    assert_eq!(&*world.node(2).reason, "the server is being stopped");
    let target = ClusterTarget { id: CPU, target: 1, demand: 0, cuts: vec![Cut::Draining] };
    assert_eq!(events[2], target.into());
    assert_eq!(kinds(&world.gone(2)), ["node.gone"], "and nothing takes its place");
    let events = world.end(running, Exit::Success);
    assert_eq!(kinds(&events), ["job.ended", "node.leaving", "cluster.target"]);
    assert_eq!(kinds(&world.gone(1)), ["node.gone"]);
    assert_eq!(world.wake_at, Some(deadline));

    let settings = world.state.settings.clone();
    world.tell(Command::Start { release: "next".into(), settings });
    assert_eq!((world.cpu().live, &world.cpu().cuts), (2, &vec![]), "the next life brings the minimum back");
    assert_ne!(world.wake_at, Some(Millis(0)));
}

#[test]
fn workspaces_that_go_together_go_in_their_order_and_take_nobody_elses_families() {
    let mut world = World::new();
    world.batch(["other", "third"].map(put_workspace));
    let mut theirs = crate::world::family("theirs", neap_core::family::FamilyKind::Driven);
    theirs.workspace = WorkspaceId(3);
    let family = world.submit_family(theirs);
    let events =
        world.batch([WORKSPACE, WorkspaceId(2)].map(|workspace| Command::DeleteWorkspace { workspace }));
    let gone: Vec<&Event> = events.iter().filter(|e| matches!(e, Event::WorkspaceDeleted(_))).collect();
    let expect = [WORKSPACE, WorkspaceId(2)].map(|id| Event::from(WorkspaceDeleted { id }));
    assert_eq!(gone, expect.iter().collect::<Vec<_>>());
    assert!(world.family(family).cancel.is_none());
}

#[test]
fn what_is_not_there_any_more_is_not_looked_at_again() {
    let world = World::with_cluster(0, 1);
    let dirty = Dirty {
        clusters: [ClusterId(9)].into(),
        workspaces: [WorkspaceId(9)].into(),
        families: [neap_core::JobId(9)].into(),
        timers_seen: world.now,
        ..Dirty::default()
    };
    let plan = neap_core::plan::plan(&world.state, &dirty, world.now);
    assert_eq!((plan.events, plan.wake_at), (vec![], None));
}
