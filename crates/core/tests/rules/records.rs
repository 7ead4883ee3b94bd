//! What events leave behind in the state, where no rule of the planner shows it.

use neap_core::apply::apply;
use neap_core::cluster::{ClusterPhase, Cut, Scale};
use neap_core::command::{AttemptNews, PutLock, Report};
use neap_core::event::{ClusterDeleted, ClusterTarget, ClusterUpdated, GroupDeleted, ServerDraining};
use neap_core::job::{Exit, JobState, Phase, Status};
use neap_core::lock::{LockLevel, LockScope};
use neap_core::node::NodeState;
use neap_core::state::Timer;
use neap_core::{Capacity, ClusterId, Command, Event, JobId, Millis, NodeId};

use crate::world::{
    CPU, DOCUMENT, NOMINAL, OTHER_DOCUMENT, QUARTER, World, cancel, cluster, gone, ready, settings, share,
};

fn draining_timers(world: &World) -> Vec<Millis> {
    world.state.timers.iter().filter(|(_, timer)| *timer == Timer::Draining).map(|(at, _)| *at).collect()
}

#[test]
fn a_start_brings_its_settings_and_ends_a_drain() {
    let mut world = World::new();
    let (first, second) = (world.now.plus(1_000), world.now.plus(2_000));
    world.tell(Command::Drain { deadline: first });
    assert_eq!((world.state.draining, draining_timers(&world)), (Some(first), vec![first]));
    world.tell(Command::Drain { deadline: second });
    assert_eq!(
        (world.state.draining, draining_timers(&world)),
        (Some(second), vec![second]),
        "the last word counts"
    );
    let settings = settings(|s| s.create_deadline_ms = 77);
    world.tell(Command::Start { release: "next".into(), settings: settings.clone() });
    assert_eq!((world.state.draining, draining_timers(&world)), (None, vec![]));
    assert_eq!(world.state.settings, settings);
}

#[test]
fn time_does_not_go_back() {
    let mut world = World::new();
    let now = world.now;
    let event: Event = ServerDraining { deadline: now }.into();
    apply(&mut world.state, Millis(5), &event);
    assert_eq!(world.state.now, now);
    apply(&mut world.state, now.plus(5), &event);
    assert_eq!(world.state.now, now.plus(5));
}

#[test]
fn a_group_is_kept_as_it_was_put() {
    let world = World::new();
    let group = world.state.groups.values().next().unwrap();
    assert_eq!((&*group.subscription, &*group.name, &*group.location), ("s", "g", "westus"));
    assert_eq!(group.document, DOCUMENT);
}

#[test]
fn a_new_cluster_is_live_and_empty() {
    let world = World::with_cluster(0, 2);
    let cpu = world.cpu();
    assert_eq!((cpu.revision, cpu.phase, cpu.target), (1, ClusterPhase::Live, 0));
    assert_eq!((cpu.created, cpu.modified, cpu.target_since), (world.now, world.now, world.now));
    assert_eq!((cpu.live, cpu.busy, cpu.unheard), (0, 0, 0));
    assert_eq!(cpu.cuts, vec![]);
}

#[test]
fn a_cluster_says_since_when_it_goes() {
    let mut world = World::with_cluster(1, 1);
    world.wait(7);
    world.tell(Command::DeleteCluster { cluster: CPU, reason: "asked".into() });
    assert_eq!(world.cpu().phase, ClusterPhase::Deleting { since: world.now });
}

#[test]
fn the_target_says_since_when_it_is_what_it_is() {
    let mut world = World::with_cluster(0, 2);
    let start = world.now;
    let target = |world: &mut World, target, cuts| {
        world.now = world.now.plus(10);
        let event = ClusterTarget { id: CPU, target, demand: target, cuts };
        apply(&mut world.state, world.now, &event.into());
        let cpu = world.cpu();
        (cpu.target, cpu.target_since, cpu.cuts.len())
    };
    assert_eq!(target(&mut world, 1, vec![]), (1, start.plus(10), 0));
    let cut = || vec![Cut::Maximum { wanted: 2, max: 1 }];
    assert_eq!(target(&mut world, 1, cut()), (1, start.plus(10), 1), "another cut, the same target");
    assert_eq!(target(&mut world, 2, vec![]), (2, start.plus(30), 0));
}

#[test]
fn a_cluster_waits_for_room_while_the_provider_has_none() {
    let mut world = World::with_cluster(0, 2);
    let room = Capacity::default();
    for (cuts, waits) in [
        (vec![Cut::ProviderNodes { in_use: 1, max: 1 }], true),
        (vec![], false),
        (
            vec![Cut::Maximum { wanted: 9, max: 2 }, Cut::ProviderCapacity { free: room, needed: NOMINAL }],
            true,
        ),
        (vec![Cut::Maximum { wanted: 9, max: 2 }], false),
    ] {
        let event = ClusterTarget { id: CPU, target: 0, demand: 1, cuts: cuts.clone() };
        apply(&mut world.state, world.now, &event.into());
        assert_eq!(world.state.waiting_for_room.contains(&CPU), waits, "{cuts:?}");
    }
}

#[test]
fn a_node_says_in_which_state_it_is_since_when_and_why() {
    let mut world = World::with_cluster(1, 1);
    let start = world.now;
    let node = |world: &World| (world.node(1).word(), world.node(1).since, world.node(1).reason.to_string());
    assert_eq!(node(&world), ("requested", start, "min_instances is 1".into()));
    assert_eq!(world.node(1).actual, None);
    world.wait(1);
    world.report(Report::NodeCreating { node: NodeId(1) });
    assert_eq!(node(&world), ("creating", start.plus(1), "the provider has begun".into()));
    world.wait(1);
    world.report(Report::NodePreparing { node: NodeId(1) });
    assert_eq!(node(&world), ("preparing", start.plus(2), "waiting for its agent".into()));
    world.wait(1);
    world.ready(1);
    assert_eq!(node(&world), ("idle", start.plus(3), "ready".into()));
    assert_eq!(world.node(1).actual, Some(NOMINAL));
    world.wait(1);
    let job = world.submit("train");
    assert_eq!(node(&world), ("running", start.plus(3), "running".into()));
    world.wait(1);
    world.end(job, Exit::Success);
    assert_eq!(node(&world), ("idle", start.plus(5), "idle".into()), "its idle time starts anew");
    world.wait(1);
    world.scale(0, 0);
    assert_eq!(node(&world), ("leaving", start.plus(6), "max_instances was lowered to 0".into()));
}

#[test]
fn a_node_that_leaves_keeps_its_reason_when_its_last_job_ends() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    world.ready(1);
    world.start(job);
    world.tell(cancel(job));
    world.wait(60_000);
    let (since, why) = (world.node(1).since, world.node(1).reason.clone());
    assert!(matches!(world.node(1).state, NodeState::Leaving { .. }), "it did not end its job");
    world.wait(1);
    world.end(job, Exit::Stopped);
    assert!(world.state.jobs.is_empty());
    assert_eq!((world.node(1).since, &world.node(1).reason), (since, &why));
}

#[test]
fn a_node_that_was_silent_while_it_prepared_is_heard_when_it_is_ready() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    world.report(Report::NodeSilent { node: NodeId(1) });
    assert!(world.node(1).silent);
    assert_eq!((world.cpu().unheard, world.cpu().idle.len()), (1, 0));
    world.report(Report::NodeHeard { node: NodeId(1) });
    assert!(!world.node(1).silent);
    assert_eq!((world.cpu().unheard, world.cpu().idle.len()), (0, 1));
}

#[test]
fn an_idle_nodes_time_follows_its_clusters_idle_time() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    let since = world.now;
    let timers = |world: &World| -> Vec<(Millis, Timer)> { world.state.timers.iter().copied().collect() };
    assert_eq!(timers(&world), [(since.plus(10_000), Timer::Node(NodeId(1)))]);
    let scale = Scale { min: 1, max: 1, idle_ms: 500 };
    let event = ClusterUpdated {
        id: CPU,
        revision: 7,
        scale,
        floor: None,
        document: OTHER_DOCUMENT,
        reference: None,
        remade: None,
    };
    apply(&mut world.state, world.now, &event.into());
    assert_eq!(timers(&world), [(since.plus(500), Timer::Node(NodeId(1)))]);
    assert_eq!((world.cpu().scale, world.cpu().revision), (scale, 7));
}

#[test]
fn what_a_node_has_is_counted_until_it_is_gone() {
    let mut world = World::with_cluster(2, 2);
    assert_eq!(world.state.provided, NOMINAL.plus(NOMINAL));
    world.ready(1);
    world.scale(0, 0);
    assert_eq!(world.state.provided, NOMINAL.plus(NOMINAL), "leaving is not gone");
    world.report(gone(NodeId(1)));
    assert_eq!(world.state.provided, NOMINAL);
}

#[test]
fn an_attempt_goes_through_its_phases_and_remembers_what_was_told() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    world.wait(1);
    world.ready(1);
    let phase = |world: &World| {
        let attempt = world.attempt(job);
        (attempt.number, attempt.phase, attempt.since, attempt.last_report)
    };
    let start = world.now;
    assert_eq!(phase(&world), (1, Phase::Assigned, start, 0));
    assert_eq!(world.job(job).status(), Status::Preparing);
    world.wait(1);
    world.start(job);
    assert_eq!(phase(&world), (1, Phase::Running, start.plus(1), 1));
    world.wait(1);
    world.news(job, AttemptNews::Finalizing);
    assert_eq!(phase(&world), (1, Phase::Finalizing, start.plus(2), 2));
}

#[test]
fn a_job_that_comes_back_keeps_its_place_and_says_why_it_waits() {
    let mut world = World::with_cluster(0, 1);
    let (first, second) = (world.submit("first"), world.submit("second"));
    let submitted = world.now;
    world.ready(1);
    world.start(first);
    world.wait(5);
    world.end(first, Exit::PrepareFailed { class: neap_core::job::Class::System, message: "no disk".into() });
    assert_eq!(world.attempt(first).number, 2, "it is placed again, before the second");
    assert!(world.job(second).attempt().is_none());
    let job = world.job(first);
    assert_eq!((job.attempts_made, job.attempts_lost, job.attempts_unprepared), (2, 0, 1));
    assert_eq!(job.submitted, submitted);
    world.wait(5);
    world.gone(1);
    let job = world.job(first);
    assert_eq!((job.attempts_made, job.attempts_lost, job.attempts_unprepared), (2, 1, 1));
    assert_eq!(job.state, JobState::Queued { since: world.now, reason: Some("it went".into()) });
}

#[test]
fn a_share_is_given_back_when_its_job_ends() {
    let mut world = World::with_cluster(0, 1);
    let one = world.submit_job(share("one", QUARTER));
    let two = world.submit_job(share("two", QUARTER.plus(QUARTER)));
    world.ready(1);
    assert_eq!(world.node(1).used, QUARTER.plus(QUARTER).plus(QUARTER));
    assert!(!world.node(1).exclusive);
    world.end(two, Exit::Success);
    assert_eq!(world.node(1).used, QUARTER);
    assert_eq!(world.node(1).attempts.iter().map(|a| a.job).collect::<Vec<JobId>>(), [one]);
    assert!(world.cpu().open.contains(&NodeId(1)), "there is room again");
    world.end(one, Exit::Success);
    assert_eq!(world.node(1).used, Capacity::default());
    let whole = world.submit("whole");
    assert!(world.node(1).exclusive, "held by one alone");
    assert_eq!(world.node(1).used, Capacity::default());
    world.end(whole, Exit::Success);
    assert!(!world.node(1).exclusive);
}

#[test]
fn a_node_without_a_core_left_is_not_looked_at_for_shares() {
    let mut world = World::with_cluster(0, 1);
    let small = Capacity { cpus_milli: 2_000, memory_mb: 1, gpus: 0 };
    world.submit_job(share("one", small));
    world.ready(1);
    assert!(world.cpu().open.contains(&NodeId(1)));
    world.submit_job(share("two", small));
    assert!(!world.cpu().open.contains(&NodeId(1)), "its cores are all given away");
}

#[test]
fn a_job_leaves_no_timer_behind() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    world.ready(1);
    world.tell(cancel(job));
    let deadline = world.attempt(job).stop.as_ref().unwrap().deadline;
    assert!(world.state.timers.contains(&(deadline, Timer::Job(job))));
    world.end(job, Exit::Stopped);
    assert!(!world.state.timers.iter().any(|(_, timer)| *timer == Timer::Job(job)));
}

#[test]
fn a_stop_of_an_older_attempt_is_not_taken_for_the_current_one() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    world.ready(1);
    let event = neap_core::event::AttemptStopRequested {
        reason: None,
        id: job,
        attempt: 7,
        why: neap_core::job::StopReason::Cancel,
        deadline: world.now,
    };
    apply(&mut world.state, world.now, &event.into());
    assert_eq!(world.attempt(job).stop, None);
}

#[test]
fn ids_are_handed_out_in_order_and_never_twice() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    world.tell(cancel(job));
    world.wait(20_000);
    assert_eq!(world.submit("again"), JobId(2));
    world.tell(Command::PutCluster(cluster("gpu")));
    assert_eq!(world.state.next.cluster.0, 3);
    world.report(ready(NodeId(world.state.next.node.0 - 1)));
    assert_eq!(world.state.next.node.0, world.state.nodes.keys().max().unwrap().0 + 1);
}

#[test]
fn what_an_attempt_measured_is_taken_once() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    world.ready(1);
    world.start(job);
    let number = world.attempt(job).last_report + 1;
    let measured = || Report::Attempt {
        node: NodeId(1),
        attempt: neap_core::AttemptId { job, number: 1 },
        number,
        news: AttemptNews::Measured { facts: Default::default() },
    };
    assert_eq!(world.report(measured()).len(), 1);
    assert_eq!(world.attempt(job).last_report, number);
    assert_eq!(world.report(measured()), []);
}

#[test]
fn nothing_is_kept_of_an_owner_who_waits_for_nothing_and_used_nothing() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    let job = world.submit("short");
    assert!(world.cpu().lanes.is_empty(), "nobody waits");
    assert_eq!(world.cpu().shares.len(), 1);
    world.end(job, Exit::Success);
    assert!(world.cpu().shares.is_empty(), "it took no time");
    let job = world.submit("longer");
    world.wait(1_000);
    world.end(job, Exit::Success);
    assert_eq!(world.cpu().shares.len(), 1, "what was used is remembered");
}

#[test]
fn what_is_gone_has_no_locks_and_others_keep_theirs() {
    let mut world = World::with_cluster(0, 1);
    world.tell(Command::PutCluster(cluster("gpu")));
    let key = neap_core::state::GroupKey::new("s", "g");
    for scope in [LockScope::Cluster(CPU), LockScope::Cluster(ClusterId(2)), LockScope::Group(key)] {
        let (name, level) = ("keep".into(), LockLevel::CanNotDelete);
        world.tell(Command::PutLock(PutLock { scope, name, level, notes: "".into(), by: "me".into() }));
    }
    let left = |world: &World| -> Vec<LockScope> {
        world.state.locks.keys().map(|(scope, _)| scope.clone()).collect()
    };
    assert_eq!(left(&world).len(), 3);
    apply(&mut world.state, world.now, &ClusterDeleted { id: CPU }.into());
    assert!(left(&world).len() == 2 && !left(&world).contains(&LockScope::Cluster(CPU)));
    let deleted = GroupDeleted { subscription: "s".into(), name: "G".into() };
    apply(&mut world.state, world.now, &deleted.into());
    assert_eq!(left(&world), [LockScope::Cluster(ClusterId(2))]);
}
