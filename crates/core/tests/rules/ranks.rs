//! Jobs on several nodes: their ranks start, fail and end together.

use neap_core::cluster::Cut;
use neap_core::command::{AttemptNews, PutCluster, Report, SubmitJob};
use neap_core::effects::{self, Effect};
use neap_core::event::JobRequeued;
use neap_core::job::{Cause, Exit, JobState, Phase, Retry, Status, StopReason};
use neap_core::limits::ATTEMPTS_LOST_MAX;
use neap_core::node::NodeState;
use neap_core::{AttemptId, Code, Command, Event, JobId, NodeId, explain};

use crate::world::{
    NOMINAL, QUARTER, World, cancel, cluster, ends, gang, gone, job, kinds, message, ready, settings, share,
};

/// A job on three nodes that were idle.
fn placed() -> (World, JobId) {
    let mut world = World::with_cluster(3, 3);
    for node in 1..=3 {
        world.ready(node);
    }
    let id = world.submit_job(gang("gang", 3));
    (world, id)
}

fn running() -> (World, JobId) {
    let (mut world, id) = placed();
    for rank in 0..3 {
        world.rank_starts(id, rank);
    }
    (world, id)
}

fn requeued(events: &[Event]) -> Vec<&JobRequeued> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::JobRequeued(e) => Some(e),
            _ => None,
        })
        .collect()
}

fn stopped_nodes(world: &World) -> Vec<u64> {
    let stopped = |effect: Effect| match effect {
        Effect::StopAttempt { node, .. } => Some(node.0),
        _ => None,
    };
    effects::all(&world.state).into_iter().filter_map(stopped).collect()
}

// ---- placing

#[test]
fn a_job_on_several_nodes_is_placed_when_it_can_have_them_all() {
    let mut world = World::with_cluster(0, 3);
    let id = world.submit_job(gang("gang", 3));
    assert_eq!(world.state.nodes.len(), 3, "all are asked for at once");
    assert_eq!(kinds(&world.ready(3)), ["node.ready"]);
    world.ready(1);
    assert!(world.job(id).attempt().is_none(), "two of three");
    let waits = explain::queue_reasons(&world.state, id);
    assert_eq!(waits[0], "It needs 3 nodes at once and 2 of compute 'cpu' are free.");
    assert_eq!(kinds(&world.ready(2)), ["node.ready", "job.placed"]);
    let attempt = world.attempt(id);
    assert_eq!(attempt.nodes().collect::<Vec<_>>(), [1, 2, 3].map(NodeId));
    assert_eq!(attempt.node, NodeId(1), "the head is on the first");
    let starts: Vec<Effect> = effects::all(&world.state);
    let start =
        |node: u64| Effect::StartAttempt { node: NodeId(node), attempt: AttemptId { job: id, number: 1 } };
    assert_eq!(starts, [start(1), start(2), start(3)]);
    for node in 1..=3 {
        assert!(world.node(node).exclusive);
    }
}

#[test]
fn it_is_not_overtaken_while_it_waits_for_the_last_of_its_nodes() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let small = world.submit_job(share("small", QUARTER));
    let id = world.submit_job(gang("gang", 2));
    let later = world.submit("later");
    assert!(world.job(later).attempt().is_none(), "there is a node for it, and it is not its turn");
    world.end(small, Exit::Success);
    assert!(world.job(id).attempt().is_some() && world.job(later).attempt().is_none());
}

#[test]
fn nodes_that_wait_for_the_rest_of_a_gang_are_kept() {
    let mut world = World::with_cluster(0, 3);
    world.submit_job(gang("gang", 3));
    world.ready(1);
    world.ready(2);
    world.wait(30_000);
    assert_eq!(world.state.nodes.values().filter(|node| node.is_idle()).count(), 2, "beyond their idle time");
}

#[test]
fn one_that_is_larger_than_the_maximum_waits_and_asks_for_nothing() {
    let mut world = World::with_cluster(0, 3);
    let id = world.submit_job(gang("gang", 3));
    world.scale(0, 2);
    for node in 1..=3 {
        world.gone(node);
    }
    world.wait(400_000);
    for node in 1..=3 {
        world.gone(node);
    }
    assert_eq!(world.cpu().live, 0, "{:?}", world.state.nodes);
    let waits = explain::queue_reasons(&world.state, id);
    assert_eq!(waits[0], "It needs 3 nodes at once and max_instances of compute 'cpu' is 2; raise it.");
    let behind = world.submit("behind");
    assert_eq!(world.cpu().live, 1, "what is behind it is not kept waiting");
    world.scale(0, 4);
    assert_eq!(world.cpu().live, 4, "{behind}");
}

#[test]
fn too_many_nodes_or_a_part_of_each_are_refused_at_once() {
    let world = World::with_cluster(0, 3);
    assert_eq!(world.refused(Command::SubmitJob(gang("gang", 4))), [Code::ResourceTooLarge]);
    assert_eq!(world.refused(Command::SubmitJob(gang("gang", 0))), [Code::BadArgument]);
    let part = SubmitJob { nodes: 2, ..share("gang", QUARTER) };
    assert_eq!(world.refused(Command::SubmitJob(part)), [Code::BadArgument]);
    let many = SubmitJob { nodes: 9, ..share("gang", QUARTER) };
    assert_eq!(world.refused(Command::SubmitJob(many)), [Code::ResourceTooLarge, Code::BadArgument]);
}

#[test]
fn more_nodes_than_the_provider_ever_makes_are_refused_and_never_asked_for() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 3));
    world.scale(0, 9);
    assert_eq!(world.refused(Command::SubmitJob(gang("gang", 4))), [Code::ResourceTooLarge]);
    let id = world.submit_job(gang("gang", 3));
    let smaller = settings(|s| s.provider.nodes_max = 2);
    world.wait(400_000);
    for node in 1..=3 {
        world.gone(node);
    }
    world.tell(Command::Start { release: "test".into(), settings: smaller });
    for node in 1..=9 {
        world.gone(node);
    }
    world.wait(400_000);
    for node in 1..=9 {
        world.gone(node);
    }
    assert_eq!(world.cpu().live, 0, "it would hold what others could use");
    assert_eq!(world.cpu().cuts, [Cut::ProviderAtOnce { wanted: 3, max: 2 }]);
    assert_eq!(world.job(id).status(), Status::Queued);
}

#[test]
fn a_strict_provider_is_counted_in_what_the_machine_has() {
    let machine = NOMINAL.plus(NOMINAL).plus(QUARTER);
    let mut world = World::with(settings(|s| {
        s.provider.machine = Some(machine);
        s.provider.strict = true;
    }));
    world.scale(0, 9);
    assert_eq!(world.refused(Command::SubmitJob(gang("gang", 3))), [Code::ResourceTooLarge]);
    assert!(world.ask(Command::SubmitJob(gang("gang", 2))).is_ok());
}

/// Two clusters, each with a job that needs three of the four nodes there can be.
#[test]
fn two_jobs_on_several_nodes_never_wait_for_each_others_nodes() {
    let mut world = World::with(settings(|s| s.provider.nodes_max = 4));
    let put =
        |name: &str| Command::PutCluster(PutCluster { max: Some(4), idle_ms: Some(10_000), ..cluster(name) });
    world.batch([put("cpu"), put("gpu")]);
    let on_gpu = |job: SubmitJob| SubmitJob { cluster: "gpu".into(), ..job };
    let busy = [world.submit("one"), world.submit("two")];
    let others = [world.submit_job(on_gpu(job("three"))), world.submit_job(on_gpu(job("four")))];
    for node in 1..=4 {
        world.ready(node);
    }
    let first = world.submit_job(on_gpu(gang("first", 3)));
    let second = world.submit_job(gang("second", 3));
    for id in busy.into_iter().chain(others) {
        world.end(id, Exit::Success);
    }
    for _ in 0..40 {
        world.wait(5_000);
        let nodes: Vec<_> = world.state.nodes.values().cloned().collect();
        for node in nodes {
            match node.state {
                NodeState::Leaving { .. } => drop(world.report(gone(node.id))),
                NodeState::Requested { .. } => drop(world.report(ready(node.id))),
                _ => {}
            }
        }
        if world.state.jobs.get(&first).is_some_and(|job| job.attempt().is_some()) {
            for rank in 0..3 {
                world.rank_ends(first, rank, Exit::Success);
            }
        }
    }
    assert!(!world.state.jobs.contains_key(&first), "the earlier one had its turn");
    assert!(world.attempt(second).ranks.len() == 3, "and then the later one");
}

// ---- running

#[test]
fn it_runs_when_its_last_rank_does() {
    let (mut world, id) = placed();
    assert_eq!(kinds(&world.rank_starts(id, 2)), ["rank.reported"]);
    assert_eq!(kinds(&world.rank_starts(id, 0)), ["rank.reported"]);
    assert_eq!(world.job(id).status(), Status::Preparing);
    assert_eq!(kinds(&world.rank_starts(id, 1)), ["rank.reported", "attempt.started"]);
    assert_eq!(world.job(id).status(), Status::Running);
    for rank in [0, 1] {
        assert_eq!(kinds(&world.rank_news(id, rank, AttemptNews::Finalizing)), ["rank.reported"]);
    }
    let last = world.rank_news(id, 2, AttemptNews::Finalizing);
    assert_eq!(kinds(&last), ["rank.reported", "attempt.finalizing"]);
    assert_eq!(world.job(id).status(), Status::Finalizing);
}

#[test]
fn it_completes_when_all_ranks_have_and_each_node_is_free_before() {
    let (mut world, id) = running();
    assert_eq!(kinds(&world.rank_ends(id, 1, Exit::Success)), ["rank.ended"]);
    assert!(world.node(2).is_idle() && !world.node(1).is_idle());
    let other = world.submit("other");
    assert_eq!(world.attempt(other).node, NodeId(2), "it is used again at once");
    world.rank_ends(id, 0, Exit::Success);
    let events = world.rank_ends(id, 2, Exit::Success);
    assert_eq!(ends(&events), [(id.0, Status::Completed, String::new())]);
    assert_eq!(world.cpu().idle.len(), 2);
}

#[test]
fn a_rank_that_ends_well_before_the_others_start_does_not_hold_them_up() {
    let (mut world, id) = placed();
    world.rank_starts(id, 0);
    world.rank_ends(id, 0, Exit::Success);
    world.rank_starts(id, 1);
    assert_eq!(kinds(&world.rank_starts(id, 2)), ["rank.reported", "attempt.started"]);
}

#[test]
fn when_one_rank_fails_the_others_are_stopped_and_the_job_ends_for_that_one() {
    let (mut world, id) = running();
    let events = world.rank_ends(id, 1, Exit::Code { code: 7 });
    assert_eq!(kinds(&events), ["rank.ended", "attempt.stop_requested"]);
    assert_eq!(world.attempt(id).stop.as_ref().unwrap().why, StopReason::Rank);
    assert_eq!(stopped_nodes(&world), [1, 3]);
    assert_eq!(kinds(&world.rank_ends(id, 2, Exit::Stopped)), ["rank.ended"]);
    let events = world.rank_ends(id, 0, Exit::Signal { signal: 9 });
    assert_eq!(ends(&events), [(id.0, Status::Failed, "UserError".into())]);
    assert_eq!(
        message(&events, id),
        "Rank 1 (node n-2): The command ended with exit code 7. Its log is user_logs/std_log_process_1.txt."
    );
    let Some(Event::JobEnded(ended)) = events.last() else { panic!("{events:?}") };
    assert_eq!(ended.exit, Some(Exit::Code { code: 7 }));
}

#[test]
fn the_last_rank_is_named_also_where_nobody_had_to_be_stopped() {
    let (mut world, id) = running();
    world.rank_ends(id, 0, Exit::Success);
    world.rank_ends(id, 1, Exit::Success);
    let events = world.rank_ends(id, 2, Exit::Code { code: 7 });
    assert!(message(&events, id).starts_with("Rank 2 (node n-3): "), "{}", message(&events, id));
}

#[test]
fn when_one_node_is_lost_the_others_are_stopped_and_the_job_goes_back_once() {
    let (mut world, id) = running();
    let events = world.gone(3);
    assert_eq!(kinds(&events)[..3], ["rank.ended", "attempt.stop_requested", "node.gone"]);
    assert!(requeued(&events).is_empty(), "two ranks still run");
    assert_eq!(stopped_nodes(&world), [1, 2]);
    assert!(requeued(&world.rank_ends(id, 0, Exit::Stopped)).is_empty());
    let events = world.rank_ends(id, 1, Exit::Success);
    let back = requeued(&events);
    assert_eq!(back.len(), 1);
    assert_eq!(
        (back[0].attempt, back[0].cause, &*back[0].reason),
        (1, Cause::NodeLost, "rank 2 (node n-3): it went")
    );
    assert_eq!(world.job(id).attempts_lost, 1);
    world.ready(4);
    assert_eq!(world.attempt(id).number, 2);
    assert_eq!(world.attempt(id).nodes().collect::<Vec<_>>(), [1, 2, 4].map(NodeId));
}

#[test]
fn when_all_nodes_are_lost_it_goes_back_once_for_the_first() {
    let (mut world, id) = running();
    let events = world.batch([2, 1, 3].map(|node| Command::Report(gone(NodeId(node)))));
    assert_eq!(requeued(&events).len(), 1);
    assert_eq!(&*requeued(&events)[0].reason, "rank 1 (node n-2): it went");
    assert_eq!(world.job(id).attempts_lost, 1);
}

#[test]
fn after_too_many_lost_attempts_it_fails() {
    let (mut world, id) = running();
    for _ in 1..ATTEMPTS_LOST_MAX {
        let nodes: Vec<NodeId> = world.attempt(id).nodes_held().collect();
        for node in nodes {
            world.report(gone(node));
        }
        let coming: Vec<NodeId> = world.state.nodes.keys().copied().collect();
        for node in coming {
            world.report(ready(node));
        }
    }
    let nodes: Vec<NodeId> = world.attempt(id).nodes_held().collect();
    let events: Vec<Event> = nodes.into_iter().flat_map(|node| world.report(gone(node))).collect();
    assert_eq!(ends(&events), [(id.0, Status::Failed, "NodesLost".into())]);
}

#[test]
fn a_rank_that_could_not_be_prepared_by_fault_of_the_system_sends_all_back() {
    let (mut world, id) = placed();
    let message = "no room".into();
    world.rank_starts(id, 0);
    world.rank_ends(id, 1, Exit::PrepareFailed { class: neap_core::job::Class::System, message });
    world.rank_ends(id, 0, Exit::Stopped);
    let events = world.rank_ends(id, 2, Exit::Stopped);
    assert_eq!(requeued(&events).len(), 1);
    assert_eq!((world.job(id).attempts_unprepared, world.job(id).attempts_lost), (1, 0));
}

#[test]
fn a_rank_whose_exit_code_is_worth_another_try_sends_all_back() {
    let mut world = World::with_cluster(0, 3);
    let retry = Retry { exit_codes: vec![75], max: 1, ..Retry::default() };
    let id = world.submit_job(SubmitJob { retry: Some(retry.into()), ..gang("gang", 2) });
    for node in 1..=2 {
        world.ready(node);
    }
    for _ in 0..2 {
        assert!(requeued(&world.rank_ends(id, 1, Exit::Code { code: 75 })).is_empty(), "rank 0 still runs");
        let events = world.rank_ends(id, 0, Exit::Stopped);
        let causes: Vec<Cause> = requeued(&events).iter().map(|back| back.cause).collect();
        if !causes.is_empty() {
            assert_eq!(causes, [Cause::ExitCode]);
            assert_eq!((world.job(id).attempts_failed, world.attempt(id).number), (1, 2));
            continue;
        }
        assert_eq!(ends(&events), [(id.0, Status::Failed, "UserError".into())]);
        return;
    }
    panic!("it is tried for ever");
}

// ---- ending it

#[test]
fn cancelling_stops_every_rank_and_ends_it_with_the_last() {
    let (mut world, id) = running();
    assert_eq!(kinds(&world.tell(cancel(id))), ["job.cancel_requested", "attempt.stop_requested"]);
    assert_eq!(stopped_nodes(&world), [1, 2, 3]);
    world.rank_ends(id, 0, Exit::Stopped);
    world.gone(2);
    let events = world.rank_ends(id, 2, Exit::Success);
    assert_eq!(ends(&events), [(id.0, Status::Canceled, "JobCanceled".into())]);
    assert_eq!(message(&events, id), "not wanted");
}

#[test]
fn cancelling_while_the_ranks_end_for_another_reason_is_heard() {
    let (mut world, id) = running();
    world.gone(2);
    world.tell(cancel(id));
    assert_eq!(world.attempt(id).stop.as_ref().unwrap().why, StopReason::Cancel);
    world.rank_ends(id, 0, Exit::Stopped);
    let events = world.rank_ends(id, 2, Exit::Stopped);
    assert_eq!(ends(&events), [(id.0, Status::Canceled, "JobCanceled".into())], "it does not go back");
}

#[test]
fn the_time_of_all_ranks_begins_with_the_last() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let id = world.submit_job(SubmitJob { timeout_ms: Some(7_000), ..gang("gang", 2) });
    world.rank_starts(id, 0);
    assert_eq!(world.attempt(id).run_deadline, None);
    world.wait(3_000);
    world.rank_starts(id, 1);
    let grace = world.state.settings.stop_grace_ms + 5_000;
    assert_eq!(world.attempt(id).run_deadline, Some(world.now.plus(7_000 + grace)));
    assert_eq!(kinds(&world.wait(7_000 + grace)), ["attempt.stop_requested"]);
    world.rank_ends(id, 1, Exit::Stopped);
    let events = world.gone(1);
    assert_eq!(ends(&events), [(id.0, Status::Canceled, "JobTimedOut".into())]);
}

#[test]
fn a_rank_that_ran_out_of_time_ends_the_job_so() {
    let mut world = World::with_cluster(2, 2);
    world.ready(1);
    world.ready(2);
    let id = world.submit_job(SubmitJob { timeout_ms: Some(7_000), ..gang("gang", 2) });
    world.rank_starts(id, 0);
    world.rank_starts(id, 1);
    world.rank_ends(id, 1, Exit::Timeout);
    let events = world.rank_ends(id, 0, Exit::Timeout);
    assert_eq!(ends(&events), [(id.0, Status::Canceled, "JobTimedOut".into())]);
}

#[test]
fn ranks_that_do_not_end_when_told_to_have_their_nodes_fenced() {
    let (mut world, id) = running();
    world.rank_ends(id, 1, Exit::Code { code: 1 });
    let deadline = world.attempt(id).stop.as_ref().unwrap().deadline;
    world.rank_ends(id, 2, Exit::Stopped);
    let second = world.submit("second");
    let events = world.wait(deadline.since(world.now));
    assert_eq!(kinds(&events)[..1], ["node.leaving"]);
    assert!(matches!(world.node(1).state, NodeState::Leaving { .. }));
    assert_eq!(world.node(2).state, NodeState::Ready, "it is free of it, and has other work");
    assert!(world.job(second).attempt().is_some());
    assert_eq!(ends(&world.gone(1)), [(id.0, Status::Failed, "UserError".into())]);
}

#[test]
fn every_node_that_still_has_a_part_is_fenced() {
    let (mut world, id) = running();
    world.tell(cancel(id));
    let deadline = world.attempt(id).stop.as_ref().unwrap().deadline;
    let leaving = world.wait(deadline.since(world.now));
    assert_eq!(kinds(&leaving)[..3], ["node.leaving"; 3]);
    for node in 1..=3 {
        assert!(matches!(world.node(node).state, NodeState::Leaving { .. }), "node {node}");
    }
    world.gone(1);
    world.gone(2);
    assert_eq!(ends(&world.gone(3)), [(id.0, Status::Canceled, "JobCanceled".into())]);
}

#[test]
fn a_stop_of_the_server_sends_it_back_without_a_loss() {
    let (mut world, id) = running();
    world.tell(Command::Drain { deadline: world.now.plus(1_000) });
    assert_eq!(kinds(&world.wait(1_000))[0], "attempt.stop_requested");
    world.rank_ends(id, 0, Exit::Stopped);
    world.rank_ends(id, 1, Exit::Code { code: 1 });
    let events = world.gone(3);
    assert_eq!(requeued(&events).len(), 1);
    assert_eq!((world.job(id).attempts_lost, world.job(id).attempts_made), (0, 1));
}

#[test]
fn deleting_its_cluster_ends_it_with_its_last_rank() {
    let (mut world, id) = running();
    world.tell(Command::DeleteCluster { cluster: crate::world::CPU, reason: "asked".into() });
    let events = world.rank_ends(id, 0, Exit::Stopped);
    assert!(matches!(world.node(1).state, NodeState::Leaving { .. }), "{events:?}");
    world.rank_ends(id, 1, Exit::Stopped);
    assert_eq!(ends(&world.rank_ends(id, 2, Exit::Stopped)).len(), 1);
    for node in 1..=3 {
        world.gone(node);
    }
    assert!(world.state.clusters.is_empty());
}

// ---- old news

fn report(node: u64, job: JobId, attempt: u32, number: u64, news: AttemptNews) -> Report {
    Report::Attempt { node: NodeId(node), attempt: AttemptId { job, number: attempt }, number, news }
}

#[test]
fn what_was_heard_of_a_rank_before_changes_nothing() {
    let (mut world, id) = running();
    let started = || AttemptNews::Started { facts: Default::default() };
    let ended = |exit| AttemptNews::Ended { exit };
    assert_eq!(world.report(report(2, id, 1, 1, started())), []);
    world.rank_ends(id, 1, Exit::Success);
    let before = world.state.clone();
    for number in [1, 2, 3, u64::MAX] {
        assert_eq!(world.report(report(2, id, 1, number, ended(Exit::Code { code: 1 }))), [], "{number}");
    }
    assert_eq!(world.report(report(9, id, 1, 5, ended(Exit::Success))), [], "it has no part of it");
    assert_eq!(world.state, before);
}

#[test]
fn what_a_rank_measured_is_taken_once() {
    let (mut world, id) = running();
    let measured = || AttemptNews::Measured { facts: Default::default() };
    let number = world.attempt(id).ranks[1].last_report + 1;
    assert_eq!(kinds(&world.report(report(2, id, 1, number, measured()))), ["attempt.measured"]);
    assert_eq!(world.attempt(id).ranks[1].last_report, number);
    assert_eq!(world.report(report(2, id, 1, number, measured())), []);
}

#[test]
fn an_old_attempts_rank_changes_nothing() {
    let (mut world, id) = running();
    world.gone(3);
    world.rank_ends(id, 0, Exit::Stopped);
    world.rank_ends(id, 1, Exit::Stopped);
    world.ready(4);
    assert_eq!(world.attempt(id).number, 2);
    let before = world.state.clone();
    for node in 1..=4 {
        for exit in [Exit::Success, Exit::Code { code: 1 }, Exit::LeaseLost] {
            assert_eq!(world.report(report(node, id, 1, 9, AttemptNews::Ended { exit })), []);
        }
    }
    assert_eq!(world.state, before);
    let JobState::Active(attempt) = &world.job(id).state else { panic!("it is placed") };
    assert!(attempt.ranks.iter().all(|rank| rank.phase == Phase::Assigned && !rank.over));
}

#[test]
fn the_first_report_of_a_rank_counts() {
    let (mut world, id) = placed();
    let started = AttemptNews::Started { facts: Default::default() };
    assert_eq!(kinds(&world.report(report(2, id, 1, 1, started))), ["rank.reported"]);
}

#[test]
fn a_node_that_is_lost_while_the_ranks_are_stopped_is_a_loss() {
    let (mut world, id) = running();
    world.rank_ends(id, 1, Exit::Code { code: 7 });
    assert!(requeued(&world.gone(3)).is_empty());
    let events = world.rank_ends(id, 0, Exit::Stopped);
    let back: Vec<_> = requeued(&events).iter().map(|back| (back.cause, back.reason.to_string())).collect();
    assert_eq!(back, [(Cause::NodeLost, "rank 2 (node n-3): it went".into())]);
}

#[test]
fn a_rank_is_named_unless_it_did_what_was_asked_or_names_its_own_process() {
    let (mut world, id) = running();
    world.tell(cancel(id));
    for rank in 0..2 {
        world.rank_ends(id, rank, Exit::Stopped);
    }
    assert_eq!(message(&world.rank_ends(id, 2, Exit::Stopped), id), "not wanted");

    let (mut world, id) = running();
    world.rank_ends(id, 0, Exit::Success);
    world.rank_ends(id, 1, Exit::Success);
    let process = Exit::Process { rank: 5, exit: Box::new(Exit::Code { code: 7 }) };
    assert_eq!(
        message(&world.rank_ends(id, 2, process), id),
        "Rank 5: The command ended with exit code 7. Its log is user_logs/std_log_process_5.txt."
    );
}

#[test]
fn the_end_of_all_ranks_says_which_attempt_it_was_and_how_it_ended() {
    let (mut world, id) = running();
    world.rank_ends(id, 0, Exit::Success);
    world.rank_ends(id, 1, Exit::Success);
    let events = world.rank_ends(id, 2, Exit::Success);
    let Some(Event::JobEnded(ended)) = events.iter().find(|event| matches!(event, Event::JobEnded(_))) else {
        panic!("{events:?}")
    };
    assert_eq!((ended.attempt, &ended.exit), (Some(1), &Some(Exit::Success)));
}
