//! News of nodes and attempts: what each means in each state, and what is stale.

use neap_core::command::{AttemptNews, NewAsset, Report};
use neap_core::event::{
    AttemptFinalizing, AttemptStarted, JobEnded, JobRequeued, NodeCreating, NodeGone, NodeHeard,
    NodePreparing, NodeReady, NodeSilent, NodeUnusable,
};
use neap_core::job::{Cause, Exit, Outcome, Status};
use neap_core::limits::{ATTEMPTS_LOST_MAX, BOOT_BACKOFF_MS_MAX, BOOT_BACKOFF_MS_MIN};
use neap_core::{AttemptId, Code, Command, DocHash, Event, JobId, NodeId, WorkspaceId};

use crate::world::{NOMINAL, World, cancel, gone, job, kinds, ready, reason};

const NODE: NodeId = NodeId(1);

/// A world whose only node is in the given state.
fn with_node(state: &str) -> World {
    let mut world = World::with_cluster(1, 1);
    match state {
        "requested" => {}
        "creating" => drop(world.report(Report::NodeCreating { node: NODE })),
        "preparing" => drop(world.report(Report::NodePreparing { node: NODE })),
        "idle" => drop(world.ready(1)),
        "silent" => {
            world.ready(1);
            world.report(Report::NodeSilent { node: NODE });
        }
        "leaving" => {
            world.ready(1);
            world.scale(0, 0);
        }
        "unusable" => drop(world.report(failed())),
        other => panic!("{other}"),
    }
    world
}

fn failed() -> Report {
    Report::NodeFailed { node: NODE, reason: "no room".into() }
}

/// What a report of a node means in each state: an event, nothing, or a refusal.
#[track_caller]
fn check(report: &Report, expect: [(&str, Result<Option<&str>, Code>); 7]) {
    for (state, expect) in expect {
        let world = with_node(state);
        let answer = world.ask(Command::Report(report.clone()));
        let answer = answer.map(|events| kinds(&events)).map_err(|refusal| refusal.code());
        assert_eq!(answer, expect.map(|kind| kind.into_iter().collect()), "{state}: {report:?}");
    }
}

#[test]
fn each_report_of_a_node_counts_in_the_states_it_can_be_true_in() {
    let unwanted = Err(Code::ResourceBeingDeleted);
    let joined = Err(Code::LimitReached);
    check(
        &Report::NodeCreating { node: NODE },
        [
            ("requested", Ok(Some("node.creating"))),
            ("creating", Ok(None)),
            ("preparing", Ok(None)),
            ("idle", Ok(None)),
            ("silent", Ok(None)),
            ("leaving", Ok(None)),
            ("unusable", Ok(None)),
        ],
    );
    check(
        &Report::NodePreparing { node: NODE },
        [
            ("requested", Ok(Some("node.preparing"))),
            ("creating", Ok(Some("node.preparing"))),
            ("preparing", joined),
            ("idle", joined),
            ("silent", joined),
            ("leaving", unwanted),
            ("unusable", unwanted),
        ],
    );
    check(
        &ready(NODE),
        [
            ("requested", Ok(Some("node.ready"))),
            ("creating", Ok(Some("node.ready"))),
            ("preparing", Ok(Some("node.ready"))),
            ("idle", Ok(None)),
            ("silent", Ok(None)),
            ("leaving", unwanted),
            ("unusable", unwanted),
        ],
    );
    check(
        &failed(),
        [
            ("requested", Ok(Some("node.unusable"))),
            ("creating", Ok(Some("node.unusable"))),
            ("preparing", Ok(Some("node.unusable"))),
            ("idle", Ok(None)),
            ("silent", Ok(None)),
            ("leaving", Ok(None)),
            ("unusable", Ok(None)),
        ],
    );
    check(
        &Report::NodeSilent { node: NODE },
        [
            ("requested", Ok(None)),
            ("creating", Ok(None)),
            ("preparing", Ok(None)),
            ("idle", Ok(Some("node.silent"))),
            ("silent", Ok(None)),
            ("leaving", Ok(None)),
            ("unusable", Ok(None)),
        ],
    );
    check(
        &Report::NodeHeard { node: NODE },
        [
            ("requested", Ok(None)),
            ("creating", Ok(None)),
            ("preparing", Ok(None)),
            ("idle", Ok(None)),
            ("silent", Ok(Some("node.heard"))),
            ("leaving", Ok(None)),
            ("unusable", Ok(None)),
        ],
    );
    check(
        &gone(NODE),
        [
            ("requested", Ok(Some("node.unusable"))),
            ("creating", Ok(Some("node.unusable"))),
            ("preparing", Ok(Some("node.unusable"))),
            ("idle", Ok(Some("node.gone"))),
            ("silent", Ok(Some("node.gone"))),
            ("leaving", Ok(Some("node.gone"))),
            ("unusable", Ok(None)),
        ],
    );
}

#[test]
fn what_a_report_says_is_what_is_recorded() {
    let world = with_node("requested");
    let settings = &world.state.settings;
    let ask = |report: Report| world.ask(Command::Report(report)).unwrap();
    let deadline = world.now.plus(settings.create_deadline_ms);
    assert_eq!(ask(Report::NodeCreating { node: NODE }), [NodeCreating { id: NODE, deadline }.into()]);
    let deadline = world.now.plus(settings.prepare_deadline_ms);
    assert_eq!(ask(Report::NodePreparing { node: NODE }), [NodePreparing { id: NODE, deadline }.into()]);
    let now_ready = NodeReady { id: NODE, actual: NOMINAL, isolation: "pid".into() };
    assert_eq!(ask(ready(NODE)), [now_ready.into()]);
    let unusable = NodeUnusable {
        id: NODE,
        deadline: world.now.plus(settings.unusable_keep_ms),
        reason: "no room".into(),
        retry_at: Some(world.now.plus(BOOT_BACKOFF_MS_MIN)),
    };
    assert_eq!(ask(failed()), [unusable.into()]);
    let world = with_node("idle");
    let ask = |report: Report| world.ask(Command::Report(report)).unwrap();
    assert_eq!(ask(Report::NodeSilent { node: NODE }), [NodeSilent { id: NODE }.into()]);
    assert_eq!(ask(gone(NODE)), [NodeGone { id: NODE, reason: reason() }.into()]);
    let answer = with_node("silent").ask(Command::Report(Report::NodeHeard { node: NODE }));
    assert_eq!(answer, Ok(vec![NodeHeard { id: NODE }.into()]));
}

#[test]
fn a_node_that_is_not_known_is_refused_or_means_nothing() {
    let world = World::with_cluster(0, 1);
    let reports =
        [Report::NodeCreating { node: NODE }, Report::NodePreparing { node: NODE }, ready(NODE), failed()];
    for report in reports {
        assert_eq!(world.refused(Command::Report(report)), [Code::ResourceNotFound]);
    }
    for report in [Report::NodeSilent { node: NODE }, Report::NodeHeard { node: NODE }, gone(NODE)] {
        assert_eq!(world.ask(Command::Report(report)), Ok(vec![]));
    }
}

#[test]
fn after_each_failure_the_next_try_waits_twice_as_long_up_to_a_minute() {
    let mut world = World::with_cluster(1, 1);
    let mut wait_ms = BOOT_BACKOFF_MS_MIN;
    for failures in 1..=15 {
        let node = world.state.next.node.0 - 1;
        world.report(Report::NodeFailed { node: NodeId(node), reason: "no room".into() });
        let boot = &world.cpu().boot;
        assert_eq!(boot.failures, failures);
        assert_eq!(boot.last_reason.as_deref(), Some("no room"));
        assert_eq!(boot.retry_at, Some(world.now.plus(wait_ms)));
        let early = world.wait(wait_ms - 1);
        assert!(!kinds(&early).contains(&"node.requested"), "{early:?}");
        let events = world.wait(1);
        assert!(kinds(&events).contains(&"node.requested"), "{events:?}");
        wait_ms = (wait_ms * 2).min(BOOT_BACKOFF_MS_MAX);
    }
    assert_eq!(wait_ms, BOOT_BACKOFF_MS_MAX);
    let node = world.state.next.node.0 - 1;
    world.ready(node);
    assert_eq!(world.cpu().boot, Default::default(), "one that came up ends it");
}

#[test]
fn a_node_that_goes_takes_a_try_from_its_job_and_the_last_fails_it() {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    for lost in 1..=ATTEMPTS_LOST_MAX {
        let node = world.state.next.node.0 - 1;
        world.ready(node);
        let answer = world.ask(Command::Report(gone(NodeId(node)))).unwrap();
        assert_eq!(answer[1], NodeGone { id: NodeId(node), reason: reason() }.into());
        if lost < ATTEMPTS_LOST_MAX {
            let back = JobRequeued { id: job, attempt: lost, reason: reason(), cause: Cause::NodeLost };
            assert_eq!(answer[0], back.into());
        } else {
            let Event::JobEnded(ended) = &answer[0] else { panic!("{answer:?}") };
            assert_eq!((ended.attempt, ended.outcome.status), (Some(lost), Status::Failed));
            assert_eq!(&*ended.outcome.failure.as_ref().unwrap().code, "NodesLost");
        }
        world.gone(node);
        assert_eq!(
            world.state.jobs.get(&job).map(|job| job.attempts_lost),
            (lost < ATTEMPTS_LOST_MAX).then_some(lost)
        );
    }
}

/// How a job ends, or the try it costs, when its node goes after it was told to stop.
fn after_stop(stop: impl FnOnce(&mut World, JobId)) -> Result<(Status, String), Cause> {
    let mut world = World::with_cluster(0, 1);
    let id = world.state.next.job;
    world.submit_job(neap_core::command::SubmitJob { timeout_ms: Some(7_000), ..job("train") });
    world.ready(1);
    world.start(id);
    stop(&mut world, id);
    match world.ask(Command::Report(gone(NODE))).unwrap().remove(0) {
        Event::JobEnded(JobEnded { outcome, exit: None, attempt: Some(1), .. }) => {
            Ok((outcome.status, outcome.failure.unwrap().code.to_string()))
        }
        Event::JobRequeued(back) => Err(back.cause),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_that_goes_does_not_undo_what_was_wanted_of_its_job() {
    assert_eq!(after_stop(|_, _| {}), Err(Cause::NodeLost));
    let canceled = after_stop(|world, job| drop(world.tell(cancel(job))));
    assert_eq!(canceled, Ok((Status::Canceled, "JobCanceled".into())));
    let timed_out =
        after_stop(|world, _| drop(world.wait(7_000 + world.state.settings.stop_grace_ms + 5_000)));
    assert_eq!(timed_out, Ok((Status::Canceled, "JobTimedOut".into())), "the time was up already");
    let drained = after_stop(|world, _| {
        world.tell(Command::Drain { deadline: world.now.plus(1_000) });
        world.wait(1_000);
    });
    assert_eq!(drained, Err(Cause::ServerStopped), "a server that is stopped costs no try");
}

/// A job with an attempt on node 1.
fn running(started: bool) -> (World, JobId) {
    let mut world = World::with_cluster(0, 1);
    let job = world.submit("train");
    world.ready(1);
    if started {
        world.start(job);
    }
    (world, job)
}

fn news(node: NodeId, job: JobId, attempt: u32, number: u64, news: AttemptNews) -> Command {
    Command::Report(Report::Attempt { node, attempt: AttemptId { job, number: attempt }, number, news })
}

#[test]
fn an_attempt_starts_once_finalizes_and_ends() {
    let (mut world, job) = running(false);
    let started = || AttemptNews::Started { facts: [("python".into(), "3".into())].into() };
    let start = AttemptStarted {
        id: job,
        attempt: 1,
        report: 1,
        run_deadline: None,
        facts: [("provenance.clusterRevision".into(), "1".into()), ("python".into(), "3".into())].into(),
    };
    assert_eq!(world.ask(news(NODE, job, 1, 1, started())), Ok(vec![start.into()]));
    world.start(job);
    assert_eq!(world.ask(news(NODE, job, 1, 2, started())), Ok(vec![]), "it runs already");
    let finalizing = AttemptFinalizing { id: job, attempt: 1, report: 2 };
    assert_eq!(world.ask(news(NODE, job, 1, 2, AttemptNews::Finalizing)), Ok(vec![finalizing.into()]));
    let outcome = Outcome::completed();
    let ended = JobEnded { id: job, attempt: Some(1), exit: Some(Exit::Success), outcome };
    let end = AttemptNews::Ended { exit: Exit::Success };
    assert_eq!(world.ask(news(NODE, job, 1, 2, end)), Ok(vec![ended.into()]));
    let reason = "its node lost contact with the server".into();
    let back = JobRequeued { id: job, attempt: 1, reason, cause: Cause::NodeLost };
    let end = AttemptNews::Ended { exit: Exit::LeaseLost };
    assert_eq!(world.ask(news(NODE, job, 1, 2, end)), Ok(vec![back.into()]));
}

#[test]
fn a_job_with_a_timeout_has_until_then_and_the_time_to_stop() {
    let mut world = World::with_cluster(0, 1);
    let id = world.submit_job(neap_core::command::SubmitJob { timeout_ms: Some(7_000), ..job("train") });
    world.ready(1);
    world.wait(100);
    world.start(id);
    let deadline = world.now.plus(7_000 + world.state.settings.stop_grace_ms + 5_000);
    assert_eq!(world.attempt(id).run_deadline, Some(deadline), "counted from its start, by the second line");
}

#[test]
fn stale_news_of_an_attempt_change_nothing() {
    let (world, job) = running(true);
    let end = || AttemptNews::Ended { exit: Exit::Success };
    let number = world.attempt(job).last_report;
    for (what, command) in [
        ("told before", news(NODE, job, 1, number, end())),
        ("another attempt", news(NODE, job, 2, number + 1, end())),
        ("another node", news(NodeId(2), job, 1, number + 1, end())),
        ("another job", news(NODE, JobId(9), 1, number + 1, end())),
    ] {
        assert_eq!(world.ask(command), Ok(vec![]), "{what}");
    }
    assert_ne!(world.ask(news(NODE, job, 1, number + 1, end())), Ok(vec![]), "but the next report counts");
    assert_ne!(
        world.ask(news(NODE, job, 1, number + 5, end())),
        Ok(vec![]),
        "also if some were lost between"
    );
}

#[test]
fn outputs_are_registered_with_the_completion_and_with_nothing_else() {
    let (mut world, job) = running(true);
    let number = world.attempt(job).last_report + 1;
    let end = |exit: Exit| {
        let attempt = AttemptId { job, number: 1 };
        let report = Report::Attempt { node: NODE, attempt, number, news: AttemptNews::Ended { exit } };
        let asset = NewAsset {
            workspace: WorkspaceId(1),
            kind: "data".into(),
            name: "prices".into(),
            version: "1".into(),
            document: DocHash([7; 32]),
        };
        Command::ReportOutputs { report, assets: vec![asset] }
    };
    let kinds_of = |world: &World, exit| kinds(&world.ask(end(exit)).unwrap());
    assert_eq!(kinds_of(&world, Exit::Success), ["job.ended", "asset.put"]);
    assert_eq!(kinds_of(&world, Exit::Code { code: 1 }), ["job.ended"]);
    assert_eq!(kinds_of(&world, Exit::LeaseLost), ["job.requeued"]);
    world.tell(end(Exit::Success));
    assert_eq!(world.ask(end(Exit::Success)), Ok(vec![]), "told again, it changes nothing");
    let (mut world, job) = running(true);
    world.tell(cancel(job));
    assert_eq!(kinds_of(&world, Exit::Success), ["job.ended"], "a canceled job registers nothing");
}
