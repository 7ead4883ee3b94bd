//! Families whose members come from outside, one by one: sweeps, parallel steps.

use super::*;

#[test]
fn a_driven_family_stays_open_until_it_is_closed() {
    let mut world = roomy();
    let sweep = driven(&mut world);
    assert_eq!(kinds(&world.wait(100_000)), [""; 0], "without members too");
    let one = world.submit_job(trial(sweep, "one"));
    assert_eq!(ends(&world.end(one, Exit::Code { code: 1 })), [failed(one.0, "UserError")]);
    assert!(!world.family(sweep).is_ending(), "a trial that fails is the driver's matter");
    let two = world.submit_job(trial(sweep, "two"));
    world.end(two, Exit::Success);
    let events = world.tell(close(sweep, Outcome::completed()));
    assert_eq!(kinds(&events), ["family.closing", "job.ended"]);
    assert_eq!(ends(&events), [completed(sweep.0)]);
    assert_eq!(world.refused(close(sweep, Outcome::completed())), [Code::JobAlreadyFinal]);
    assert_eq!(world.refused(Command::SubmitJob(trial(sweep, "three"))), [Code::JobAlreadyFinal]);
}

#[test]
fn closing_ends_the_members_that_are_open_and_then_the_family() {
    let mut world = World::with_cluster(1, 1);
    world.ready(1);
    let sweep = driven(&mut world);
    let runs = world.submit_job(trial(sweep, "runs"));
    let queued = world.submit_job(trial(sweep, "queued"));
    let outcome = Outcome::failed(Class::UserCode, "TooManyFailures", "No trial was good.", "Look at them.");
    let events = world.tell(close(sweep, outcome));
    assert_eq!(ends(&events), [canceled(queued.0, "JobCanceled")]);
    assert_eq!(message(&events, queued), "The job 'sweep' needs it no more.");
    assert_eq!(world.refused(Command::SubmitJob(trial(sweep, "more"))), [Code::JobAlreadyFinal]);
    assert_eq!(world.tell(close(sweep, Outcome::completed())), [], "the first word counts");
    let events = world.end(runs, Exit::Stopped);
    assert_eq!(ends(&events), [canceled(runs.0, "JobCanceled"), failed(sweep.0, "TooManyFailures")]);
}

#[test]
fn a_driven_family_that_is_canceled_ends_so_whatever_its_driver_says() {
    let mut world = roomy();
    let sweep = driven(&mut world);
    let one = world.submit_job(trial(sweep, "one"));
    world.tell(cancel(sweep));
    assert_eq!(world.refused(Command::SubmitJob(trial(sweep, "two"))), [Code::JobAlreadyFinal]);
    world.tell(close(sweep, Outcome::completed()));
    let events = world.end(one, Exit::Stopped);
    assert_eq!(ends(&events), [canceled(one.0, "JobCanceled"), canceled(sweep.0, "JobCanceled")]);
}

#[test]
fn a_driven_step_of_a_pipeline_takes_members_in_its_turn() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[])]);
    pipeline.members.push(member("sweep", 0, &[1], of_kind(FamilyKind::Driven, Some(9_000))));
    pipeline.members.push(member("after", 0, &[2], step()));
    world.submit_family(pipeline);
    let sweep = JobId(3);
    assert_eq!(world.refused(Command::SubmitJob(trial(sweep, "early"))), [Code::JobAlreadyFinal]);
    world.end(JobId(2), Exit::Success);
    assert_eq!(world.family(sweep).deadline, Some(world.now.plus(9_000)));
    let one = world.submit_job(trial(sweep, "one"));
    assert_eq!(world.job(JobId(4)).state, JobState::Waiting);
    world.end(one, Exit::Success);
    world.tell(close(sweep, Outcome::completed()));
    assert!(world.job(JobId(4)).attempt().is_some());
}

#[test]
fn a_driven_step_may_be_closed_before_its_turn() {
    let mut world = roomy();
    let mut pipeline = pipeline("p", true, &[("a", &[])]);
    pipeline.members.push(member("sweep", 0, &[1], of_kind(FamilyKind::Driven, None)));
    world.submit_family(pipeline);
    let outcome = Outcome::failed(Class::UserCode, "NoSpace", "There is nothing to try.", "Widen it.");
    assert_eq!(ends(&world.tell(close(JobId(3), outcome))), [failed(3, "NoSpace")]);
}

#[test]
fn only_a_driven_family_is_closed_and_only_with_an_end() {
    let mut world = roomy();
    let root = world.submit_family(pipeline("p", true, &[("a", &[])]));
    assert_eq!(world.refused(close(root, Outcome::completed())), [Code::BadArgument]);
    let sweep = driven(&mut world);
    let no_end = Outcome { status: Status::Running, failure: None };
    assert_eq!(world.refused(close(sweep, no_end)), [Code::BadArgument]);
    assert_eq!(world.refused(Command::SubmitJob(trial(root, "x"))), [Code::JobAlreadyFinal]);
}

#[test]
fn a_job_joins_no_family_of_another_workspace() {
    let mut world = roomy();
    let sweep = driven(&mut world);
    world.tell(put_workspace("other"));
    let elsewhere = SubmitJob { workspace: WorkspaceId(2), ..trial(sweep, "one") };
    assert_eq!(world.refused(Command::SubmitJob(elsewhere)), [Code::JobAlreadyFinal]);
}
