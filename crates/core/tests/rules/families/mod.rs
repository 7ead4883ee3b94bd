//! Jobs made of jobs: who starts when, who never does, and how all of it ends.

mod driven;
mod refused;

use neap_core::command::{NewMemberKind, PutCluster, SubmitFamily, SubmitJob};
use neap_core::family::FamilyKind;
use neap_core::job::{Class, Exit, JobState, Outcome, Status};
use neap_core::limits::{FAMILY_DEPTH_MAX, FAMILY_MEMBERS_MAX, PLAN_EVENTS_MAX};
use neap_core::{ClusterId, Code, Command, Event, JobId, WorkspaceId, explain};

use crate::world::{
    CPU, WORKSPACE, World, cancel, cluster, ends, family, job, kinds, member, message, pipeline,
    put_workspace, settings, step,
};

const STEPS: FamilyKind = FamilyKind::Steps { go_on: true };

fn of_kind(kind: FamilyKind, timeout_ms: Option<u64>) -> NewMemberKind {
    NewMemberKind::Family { kind, timeout_ms }
}

fn completed(id: u64) -> (u64, Status, String) {
    (id, Status::Completed, String::new())
}

fn canceled(id: u64, code: &str) -> (u64, Status, String) {
    (id, Status::Canceled, code.into())
}

fn failed(id: u64, code: &str) -> (u64, Status, String) {
    (id, Status::Failed, code.into())
}

/// Three nodes that are idle.
fn roomy() -> World {
    let mut world = World::with_cluster(3, 3);
    for node in 1..=3 {
        world.ready(node);
    }
    world
}

/// So many steps, none of which waits for another.
fn unconnected(name: &str, steps: usize) -> SubmitFamily {
    let names: Vec<String> = (0..steps).map(|i| format!("{name}{i}")).collect();
    let steps: Vec<(&str, &[usize])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    pipeline(name, true, &steps)
}

fn driven(world: &mut World) -> JobId {
    world.submit_family(family("sweep", FamilyKind::Driven))
}

fn trial(family: JobId, name: &str) -> SubmitJob {
    SubmitJob { family: Some(family), ..job(name) }
}

fn close(family: JobId, outcome: Outcome) -> Command {
    Command::CloseFamily { family, outcome }
}

// ---- in order

#[test]
fn steps_are_released_when_all_they_wait_for_has_completed() {
    let mut world = roomy();
    let root = world.submit_family(pipeline(
        "p",
        true,
        &[("a", &[]), ("b", &[]), ("join", &[1, 2]), ("last", &[3])],
    ));
    let [a, b, join, last] = [2, 3, 4, 5].map(JobId);
    assert!(world.job(a).attempt().is_some() && world.job(b).attempt().is_some());
    assert_eq!(world.job(join).state, JobState::Waiting);
    assert_eq!(world.job(join).status(), Status::NotStarted);
    assert_eq!(world.family(root).status(false), Status::Running);
    assert_eq!(explain::queue_reasons(&world.state, join), ["It waits for steps 'a', 'b' to complete."]);
    assert_eq!(kinds(&world.end(a, Exit::Success)), ["job.ended"], "one of two is not enough");
    assert_eq!(explain::queue_reasons(&world.state, join), ["It waits for step 'b' to complete."]);
    assert_eq!(
        kinds(&world.end(b, Exit::Success)),
        ["job.ended", "job.released", "job.placed"],
        "the end of the one, the release and the place of the next are one commit"
    );
    assert_eq!(world.job(last).state, JobState::Waiting);
    world.end(join, Exit::Success);
    let events = world.end(last, Exit::Success);
    assert_eq!(ends(&events), [completed(5), completed(root.0)]);
    assert!(world.state.families.is_empty() && world.state.waits.is_empty());
    assert!(world.state.awaited.is_empty());
}

#[test]
fn waiting_steps_ask_for_no_nodes() {
    let mut world = World::with_cluster(0, 3);
    world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1]), ("c", &[1])]));
    assert_eq!(world.state.nodes.len(), 1);
    assert_eq!(world.queued(), [2]);
    world.ready(1);
    world.end(JobId(2), Exit::Success);
    assert_eq!(world.state.nodes.len(), 2, "both may start now");
}

#[test]
fn a_family_is_counted_whole_against_what_may_wait() {
    let mut world = World::with_cluster(0, 0);
    let settings = settings(|s| s.waiting_jobs_max = 3);
    world.tell(Command::Start { release: "test".into(), settings });
    world.submit("alone");
    let three = pipeline("p", true, &[("a", &[]), ("b", &[1]), ("c", &[1])]);
    let refusal = world.ask(Command::SubmitFamily(three)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "(LimitReached) 1 job waits on compute 'cpu', and 3 more are to come; 3 is the limit (limits.waiting_jobs in config.yaml)."
    );
    world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1])]));
}

#[test]
fn a_step_that_was_released_late_keeps_the_place_of_its_submission() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1])]));
    let other = world.submit("other");
    world.end(JobId(2), Exit::Success);
    assert!(world.job(JobId(3)).attempt().is_some(), "the pipeline came first");
    assert_eq!(world.queued(), [other.0]);
}

#[test]
fn members_of_a_family_that_waits_wait_with_it() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[])]);
    pipeline.members.extend([
        member("nested", 0, &[1], of_kind(STEPS, Some(60_000))),
        member("first", 2, &[], step()),
        member("deeper", 2, &[], of_kind(STEPS, Some(30_000))),
        member("within", 4, &[], step()),
        member("second", 2, &[3], step()),
    ]);
    let root = world.submit_family(pipeline);
    let [a, nested, first, deeper, within, second] = [2, 3, 4, 5, 6, 7].map(JobId);
    assert_eq!(world.family(nested).deadline, None, "its time has not begun");
    assert_eq!(world.family(deeper).deadline, None, "nor that of one within it");
    for waits in [first, within, second] {
        assert_eq!(world.job(waits).state, JobState::Waiting, "job {waits}");
    }
    assert_eq!(
        explain::queue_reasons(&world.state, first),
        ["It is part of 'nested', which waits for other steps to complete."]
    );
    assert_eq!(world.queued(), [0; 0]);
    world.end(a, Exit::Success);
    assert_eq!(world.family(nested).deadline, Some(world.now.plus(60_000)));
    assert_eq!(world.family(deeper).deadline, Some(world.now.plus(30_000)));
    assert!(world.job(first).attempt().is_some() && world.job(within).attempt().is_some());
    assert_eq!(ends(&world.end(within, Exit::Success)), [completed(within.0), completed(deeper.0)]);
    world.end(first, Exit::Success);
    let all = ends(&world.end(second, Exit::Success));
    assert_eq!(all, [completed(second.0), completed(nested.0), completed(root.0)]);
}

#[test]
fn a_step_may_wait_for_a_step_of_another_family() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[])]);
    pipeline.members.extend([
        member("nested", 0, &[], of_kind(STEPS, None)),
        member("within", 2, &[1], step()),
        member("after", 0, &[3], step()),
    ]);
    world.submit_family(pipeline);
    world.end(JobId(2), Exit::Success);
    assert!(world.job(JobId(4)).attempt().is_some());
    let events = world.end(JobId(4), Exit::Success);
    assert_eq!(ends(&events), [completed(4), completed(3)]);
    assert!(world.job(JobId(5)).attempt().is_some());
}

#[test]
fn a_family_without_members_is_complete_in_its_turn() {
    let mut world = roomy();
    let mut empty = pipeline("p", true, &[("a", &[])]);
    empty.members.push(member("empty", 0, &[1], of_kind(STEPS, None)));
    empty.members.push(member("after", 0, &[2], step()));
    world.submit_family(empty);
    assert_eq!(world.job(JobId(4)).state, JobState::Waiting, "what it waits for has not begun");
    assert_eq!(ends(&world.end(JobId(2), Exit::Success)), [completed(2), completed(3)]);
    assert!(world.job(JobId(4)).attempt().is_some());
}

// ---- in vain

#[test]
fn what_waits_for_a_failed_step_never_starts_and_the_rest_goes_on() {
    let mut world = roomy();
    let steps: &[(&str, &[usize])] = &[("a", &[]), ("b", &[1]), ("c", &[2]), ("d", &[])];
    let root = world.submit_family(pipeline("p", true, steps));
    let events = world.end(JobId(2), Exit::Code { code: 3 });
    assert_eq!(
        ends(&events),
        [failed(2, "UserError"), canceled(3, "StepNotReached"), canceled(4, "StepNotReached")]
    );
    assert_eq!(message(&events, JobId(3)), "The step 'a', whose output it needs, did not complete.");
    assert!(world.job(JobId(5)).attempt().is_some(), "it needs none of them");
    let events = world.end(JobId(5), Exit::Success);
    assert_eq!(ends(&events), [completed(5), failed(root.0, "StepFailed")]);
    assert_eq!(message(&events, root), "The step 'a' failed: The command ended with exit code 3.");
}

#[test]
fn without_going_on_the_first_failure_ends_the_rest() {
    let mut world = roomy();
    let steps: &[(&str, &[usize])] = &[("a", &[]), ("b", &[1]), ("c", &[]), ("d", &[3])];
    let root = world.submit_family(pipeline("p", false, steps));
    let events = world.end(JobId(2), Exit::Code { code: 3 });
    assert_eq!(
        ends(&events),
        [failed(2, "UserError"), canceled(3, "JobCanceled"), canceled(5, "JobCanceled")]
    );
    assert_eq!(message(&events, JobId(3)), "The step 'a' did not complete.");
    assert_eq!(world.job(JobId(4)).status(), Status::CancelRequested, "what runs is told to end");
    let events = world.end(JobId(4), Exit::Stopped);
    assert_eq!(ends(&events), [canceled(4, "JobCanceled"), failed(root.0, "StepFailed")]);
    assert_eq!(message(&events, root), "The step 'a' failed: The command ended with exit code 3.");
}

#[test]
fn a_step_that_was_canceled_by_hand_counts_as_not_completed() {
    let mut world = roomy();
    let root = world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1])]));
    world.tell(cancel(JobId(2)));
    let events = world.end(JobId(2), Exit::Stopped);
    assert_eq!(
        ends(&events),
        [canceled(2, "JobCanceled"), canceled(3, "StepNotReached"), failed(root.0, "StepFailed")]
    );
    assert_eq!(message(&events, root), "The step 'a' was canceled: not wanted");
}

#[test]
fn a_family_that_waits_in_vain_ends_after_its_members_and_nobody_of_it_starts() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[])]);
    pipeline.members.extend([
        member("nested", 0, &[1], of_kind(STEPS, None)),
        member("first", 2, &[], step()),
        member("deeper", 2, &[], of_kind(STEPS, None)),
        member("within", 4, &[], step()),
        member("after", 0, &[2], step()),
    ]);
    let root = world.submit_family(pipeline);
    let events = world.end(JobId(2), Exit::Code { code: 1 });
    assert!(!kinds(&events).contains(&"job.released") && !kinds(&events).contains(&"job.placed"));
    let ended: Vec<(u64, Status)> = ends(&events).into_iter().map(|(id, status, _)| (id, status)).collect();
    let at = |id: u64| ended.iter().position(|(other, _)| *other == id).unwrap();
    assert_eq!(ended.len(), 7, "{ended:?}");
    assert!(at(6) < at(5) && at(4) < at(3) && at(5) < at(3), "members first: {ended:?}");
    assert!(ended.contains(&(7, Status::Canceled)), "nor what waits for it: {ended:?}");
    assert_eq!(ends(&events)[at(3)], canceled(3, "StepNotReached"));
    assert_eq!(ended.last(), Some(&(root.0, Status::Failed)));
    assert!(world.state.jobs.is_empty() && world.state.waits.is_empty() && world.state.awaited.is_empty());
}

// ---- cancelling

#[test]
fn cancelling_a_family_reaches_everybody_in_it() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("runs", &[]), ("waits", &[1])]);
    pipeline.members.extend([
        member("nested", 0, &[], of_kind(STEPS, None)),
        member("within", 3, &[], step()),
        member("later", 3, &[4], step()),
    ]);
    let root = world.submit_family(pipeline);
    let events = world.tell(cancel(root));
    assert_eq!(ends(&events), [canceled(3, "JobCanceled"), canceled(6, "JobCanceled")]);
    assert_eq!(world.family(root).status(false), Status::CancelRequested);
    for runs in [JobId(2), JobId(5)] {
        assert_eq!(world.job(runs).status(), Status::CancelRequested);
    }
    assert_eq!(world.tell(cancel(root)), [], "once is enough");
    assert_eq!(
        ends(&world.end(JobId(5), Exit::Stopped)),
        [canceled(5, "JobCanceled"), canceled(4, "JobCanceled")]
    );
    let events = world.end(JobId(2), Exit::Success);
    assert_eq!(ends(&events), [canceled(2, "JobCanceled"), canceled(root.0, "JobCanceled")]);
    assert_eq!(message(&events, root), "not wanted");
    assert_eq!(world.refused(cancel(root)), [Code::JobAlreadyFinal]);
}

#[test]
fn cancelling_a_nested_family_is_a_failed_step_of_the_one_around_it() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[])]);
    pipeline.members.extend([
        member("nested", 0, &[1], of_kind(STEPS, None)),
        member("within", 2, &[], step()),
        member("after", 0, &[2], step()),
    ]);
    let root = world.submit_family(pipeline);
    let events = world.tell(cancel(JobId(3)));
    assert_eq!(
        ends(&events),
        [canceled(4, "JobCanceled"), canceled(3, "JobCanceled"), canceled(5, "StepNotReached")],
        "also while it waits"
    );
    assert_eq!(ends(&world.end(JobId(2), Exit::Success)), [completed(2), failed(root.0, "StepFailed")]);
}

#[test]
fn a_large_family_ends_in_bounded_steps() {
    let mut world = World::with_cluster(0, 0);
    let root = world.submit_family(unconnected("p", PLAN_EVENTS_MAX + 10));
    let planned = world.tell(cancel(root)).len() - 1;
    assert_eq!(planned, PLAN_EVENTS_MAX, "exactly as many as may be");
    for _ in 0..2 {
        assert_eq!(world.wake_at, Some(world.now));
        world.wait(1);
    }
    assert!(world.state.families.is_empty() && world.state.jobs.is_empty());
}

#[test]
fn two_large_families_end_within_the_bound_of_one_plan() {
    let mut world = World::with_cluster(0, 0);
    let each = PLAN_EVENTS_MAX - 100;
    let roots = ["p", "q"].map(|name| world.submit_family(unconnected(name, each)));
    let planned = world.batch(roots.map(cancel)).len() - 2;
    assert_eq!(planned, PLAN_EVENTS_MAX, "what the first leaves is the second's");
    for _ in 0..3 {
        assert_eq!(world.wake_at, Some(world.now));
        world.wait(1);
    }
    assert!(world.state.families.is_empty() && world.state.jobs.is_empty());
}

#[test]
fn nobody_is_remembered_as_waiting_who_has_ended() {
    let mut world = roomy();
    world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1])]));
    assert_eq!(world.state.awaited.len(), 1);
    world.tell(cancel(JobId(3)));
    assert!(world.state.awaited.is_empty(), "{:?}", world.state.awaited);
}

// ---- time

#[test]
fn a_family_whose_time_is_up_is_ended_and_says_so() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[]), ("b", &[1])]);
    pipeline.members[0].what = of_kind(STEPS, Some(5_000));
    let root = world.submit_family(pipeline);
    assert_eq!(world.family(root).deadline, Some(world.now.plus(5_000)));
    assert_eq!(kinds(&world.wait(4_999)), [""; 0]);
    assert_eq!(ends(&world.wait(1)), [canceled(3, "JobCanceled")]);
    let events = world.end(JobId(2), Exit::Stopped);
    assert_eq!(ends(&events), [canceled(2, "JobCanceled"), canceled(root.0, "JobTimedOut")]);
    let said = "The job took longer than its limits.timeout of 5 seconds and was ended.";
    assert_eq!(message(&events, root), said);
}

#[test]
fn a_family_that_was_canceled_in_time_did_not_time_out() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[])]);
    pipeline.members[0].what = of_kind(STEPS, Some(5_000));
    let root = world.submit_family(pipeline);
    world.tell(cancel(root));
    world.wait(5_000);
    assert_eq!(ends(&world.end(JobId(2), Exit::Stopped))[1], canceled(root.0, "JobCanceled"));
}

// ---- steps whose work was done before

#[test]
fn a_reused_step_is_complete_at_once_and_whoever_waits_for_it_starts() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[]), ("b", &[1]), ("c", &[2])]);
    for at in [1, 2] {
        if let NewMemberKind::Job { reused, work, .. } = &mut pipeline.members[at].what {
            (*reused, *work) = (true, Some("w".into()));
        }
    }
    let root = world.state.next.job;
    let events = world.tell(Command::SubmitFamily(pipeline));
    assert_eq!(
        kinds(&events),
        [
            "family.opened",
            "job.submitted",
            "job.submitted",
            "job.submitted",
            "job.ended",
            "job.ended",
            "job.released",
            "job.placed"
        ]
    );
    let works: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::JobSubmitted(e) => Some((e.work.clone(), e.after.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(works[1], (None, vec![]), "its work is the earlier job's, and it waits for nobody");
    assert_eq!(ends(&world.end(JobId(4), Exit::Success)), [completed(4), completed(root.0)]);
}

#[test]
fn a_step_is_remembered_by_its_work_unless_an_earlier_one_did_it() {
    let mut world = roomy();
    let named = |is_reused: bool| {
        let mut named = step();
        if let NewMemberKind::Job { work, reused, .. } = &mut named {
            (*work, *reused) = (Some("the same work".into()), is_reused);
        }
        named
    };
    let mut pipeline = pipeline("p", true, &[]);
    pipeline.members.push(member("done_anew", 0, &[], named(false)));
    pipeline.members.push(member("taken_again", 0, &[], named(true)));
    let events = world.tell(Command::SubmitFamily(pipeline));
    let works: Vec<Option<&str>> = events
        .iter()
        .filter_map(|event| match event {
            Event::JobSubmitted(e) => Some(e.work.as_deref()),
            _ => None,
        })
        .collect();
    assert_eq!(works, [Some("the same work"), None]);
}

#[test]
fn a_family_of_reused_steps_is_complete_in_its_turn() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[])]);
    pipeline.members.push(member("nested", 0, &[1], of_kind(STEPS, None)));
    pipeline.members.push(member("again", 2, &[], step()));
    if let NewMemberKind::Job { reused, .. } = &mut pipeline.members[3].what {
        *reused = true;
    }
    let root = world.submit_family(pipeline);
    assert!(world.state.families.contains_key(&JobId(3)), "it waits");
    let all = ends(&world.end(JobId(2), Exit::Success));
    assert_eq!(all, [completed(2), completed(3), completed(root.0)]);
}

// ---- the end of clusters and workspaces

#[test]
fn a_cluster_that_goes_takes_its_waiting_steps_with_it() {
    let mut world = roomy();
    world.tell(Command::PutCluster(PutCluster { min: Some(1), max: Some(1), ..cluster("gpu") }));
    world.ready(4);
    let mut pipeline = pipeline("p", true, &[("a", &[]), ("b", &[1])]);
    if let NewMemberKind::Job { cluster, .. } = &mut pipeline.members[1].what {
        *cluster = "gpu".into();
    }
    let root = world.submit_family(pipeline);
    let events = world.tell(Command::DeleteCluster { cluster: CPU, reason: "asked".into() });
    assert_eq!(ends(&events), [canceled(3, "JobCanceled")]);
    assert_eq!(message(&events, JobId(3)), "The compute 'cpu' was deleted.");
    assert_eq!(ends(&world.end(JobId(2), Exit::Success)), [completed(2), failed(root.0, "StepFailed")]);
    for node in 1..=3 {
        world.gone(node);
    }
    assert_eq!(world.state.clusters.keys().copied().collect::<Vec<_>>(), [ClusterId(2)]);
}

#[test]
fn a_workspace_goes_after_its_families() {
    let mut world = World::with_cluster(0, 0);
    let sweep = driven(&mut world);
    world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1])]));
    world.tell(Command::DeleteWorkspace { workspace: WORKSPACE });
    for _ in 0..3 {
        world.wait(1);
    }
    assert!(world.state.families.is_empty() && world.state.jobs.is_empty());
    assert!(world.state.workspaces.is_empty(), "{:?}", world.state.clusters);
    assert_eq!(world.refused(cancel(sweep)), [Code::JobAlreadyFinal]);
}

#[test]
fn a_workspace_waits_for_a_family_whose_step_still_runs() {
    let mut world = roomy();
    let root = world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1])]));
    world.tell(Command::DeleteWorkspace { workspace: WORKSPACE });
    world.wait(1);
    world.wait(1);
    assert_eq!(world.family(root).members.len(), 1, "the one that waited is gone");
    assert_eq!(
        ends(&world.end(JobId(2), Exit::Stopped)),
        [canceled(2, "JobCanceled"), canceled(1, "JobCanceled")]
    );
    for node in 1..=3 {
        world.gone(node);
    }
    assert!(world.state.workspaces.is_empty());
}
