//! What is no family, or may not be one now.

use super::*;

fn refused(world: &World, family: SubmitFamily) -> Vec<Code> {
    world.refused(Command::SubmitFamily(family))
}

#[test]
fn all_problems_of_a_family_are_told_at_once_and_nothing_is_kept() {
    let mut world = roomy();
    world.submit("taken");
    let mut pipeline = pipeline("p", true, &[("good", &[]), ("TAKEN", &[]), ("good", &[]), ("-bad", &[])]);
    for (name, at) in [("away", 0), ("gone", 1)] {
        let NewMemberKind::Job { priority, need, nodes, timeout_ms, retry, work, reused, .. } = step() else {
            return;
        };
        let what = NewMemberKind::Job {
            cluster: "nowhere".into(),
            priority,
            need,
            nodes: nodes + at * 9,
            timeout_ms,
            retry,
            like: None,
            tier: Default::default(),
            work,
            reused,
        };
        pipeline.members.push(member(name, 0, &[], what));
    }
    pipeline.members.push(member("late", 0, &[9], step()));
    assert_eq!(
        refused(&world, pipeline),
        [
            Code::BadArgument,
            Code::JobNameTaken,
            Code::JobNameTaken,
            Code::InvalidResourceName,
            Code::ComputeNotFound,
            Code::ComputeNotFound
        ]
    );
    assert_eq!(world.state.job_named(WORKSPACE, "good"), None);
}

#[test]
fn a_name_that_was_used_is_all_that_is_said() {
    let mut world = roomy();
    world.submit("p");
    assert_eq!(refused(&world, pipeline("P", true, &[("x", &[7])])), [Code::JobNameTaken]);
}

#[test]
fn nobody_may_wait_in_a_circle() {
    let world = roomy();
    assert_eq!(refused(&world, pipeline("p", true, &[("a", &[1])])), [Code::BadArgument], "for itself");
    assert_eq!(refused(&world, pipeline("p", true, &[("a", &[2]), ("b", &[])])), [Code::BadArgument]);
    assert_eq!(refused(&world, pipeline("p", true, &[("a", &[0])])), [Code::BadArgument], "for its family");
    // `within` waits for `x`, which may start when `one` is complete, which needs `within`.
    let mut around = family("p", STEPS);
    around.members.extend([
        member("one", 0, &[], of_kind(STEPS, None)),
        member("two", 0, &[1], of_kind(STEPS, None)),
        member("x", 2, &[], step()),
        member("within", 1, &[3], step()),
    ]);
    let problems = world.ask(Command::SubmitFamily(around)).unwrap_err().problems;
    assert!(!problems.is_empty() && problems.iter().all(|problem| problem.code == Code::BadArgument));
    assert!(problems.iter().any(|problem| problem.message.contains("'within'")), "{problems:?}");
}

#[test]
fn a_member_belongs_to_a_pipeline_that_comes_before_it() {
    let world = roomy();
    let mut in_job = pipeline("p", true, &[("a", &[])]);
    in_job.members.push(member("b", 1, &[], step()));
    assert_eq!(refused(&world, in_job), [Code::BadArgument], "a job has no members");
    let mut in_driven = family("p", FamilyKind::Driven);
    in_driven.members.push(member("b", 0, &[], step()));
    assert_eq!(refused(&world, in_driven), [Code::BadArgument], "its driver brings them");
    let mut in_itself = pipeline("p", true, &[]);
    in_itself.members.push(member("b", 1, &[], of_kind(STEPS, None)));
    assert_eq!(refused(&world, in_itself), [Code::BadArgument]);
    let mut no_family = pipeline("p", true, &[]);
    no_family.members[0].what = step();
    assert_eq!(refused(&world, no_family), [Code::BadArgument]);
    let mut nobody = pipeline("p", true, &[]);
    nobody.members.clear();
    assert_eq!(refused(&world, nobody), [Code::BadArgument]);
}

#[test]
fn a_family_has_its_limits() {
    let world = World::with_cluster(0, 0);
    let names: Vec<String> = (0..=FAMILY_MEMBERS_MAX).map(|i| format!("s{i}")).collect();
    let mut steps: Vec<(&str, &[usize])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    assert_eq!(refused(&world, pipeline("p", true, &steps)), [Code::LimitReached]);
    steps.pop();
    assert!(world.ask(Command::SubmitFamily(pipeline("p", true, &steps))).is_ok(), "as many as are allowed");

    let deep = |depth: usize| {
        let mut around = family("p", STEPS);
        around.members.extend((0..depth).map(|at| member(&format!("n{at}"), at, &[], of_kind(STEPS, None))));
        around
    };
    assert!(world.ask(Command::SubmitFamily(deep(FAMILY_DEPTH_MAX))).is_ok());
    assert_eq!(refused(&world, deep(FAMILY_DEPTH_MAX + 1)), [Code::LimitReached]);
}

#[test]
fn a_driven_family_has_so_many_members_at_a_time_and_no_more() {
    let mut world = World::with_cluster(0, 0);
    let sweep = driven(&mut world);
    world.batch((0..FAMILY_MEMBERS_MAX).map(|i| Command::SubmitJob(trial(sweep, &format!("t{i}")))));
    assert_eq!(world.refused(Command::SubmitJob(trial(sweep, "more"))), [Code::JobAlreadyFinal]);
    world.tell(cancel(JobId(2)));
    assert!(world.ask(Command::SubmitJob(trial(sweep, "more"))).is_ok());
}

#[test]
fn no_family_is_taken_while_the_server_is_being_stopped_and_one_may_be_closed() {
    let mut world = roomy();
    let sweep = driven(&mut world);
    world.tell(Command::Drain { deadline: world.now.plus(1_000) });
    assert_eq!(refused(&world, pipeline("p", true, &[("a", &[])])), [Code::ServerIsStopping]);
    assert_eq!(ends(&world.tell(close(sweep, Outcome::completed()))), [completed(sweep.0)]);
}

#[test]
fn steps_that_are_released_during_a_stop_wait_for_the_next_start() {
    let mut world = roomy();
    world.submit_family(pipeline("p", true, &[("a", &[]), ("b", &[1])]));
    world.tell(Command::Drain { deadline: world.now.plus(60_000) });
    assert!(kinds(&world.end(JobId(2), Exit::Success)).contains(&"job.released"));
    assert_eq!(world.queued(), [3]);
}

#[test]
fn a_family_that_has_not_ended_is_not_deleted() {
    let mut world = roomy();
    let root = world.submit_family(pipeline("p", true, &[("a", &[])]));
    assert_eq!(world.refused(Command::DeleteJob { job: root }), [Code::JobNotFinal]);
    world.end(JobId(2), Exit::Success);
    assert_eq!(kinds(&world.tell(Command::DeleteJob { job: root })), ["job.deleted"]);
}
