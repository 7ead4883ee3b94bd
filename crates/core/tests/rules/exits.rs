//! What the end of an attempt means for its job.

use neap_core::decide::{again, outcome_of_exit};
use neap_core::job::{
    Attempt, Cancel, Cause, Class, Exit, Job, JobState, Need, Outcome, Phase, Retry, Status, Stop, StopReason,
};
use neap_core::limits::{ATTEMPTS_LOST_MAX, ATTEMPTS_UNPREPARED_MAX};
use neap_core::{JobId, Millis, NodeId};

use crate::world::{CPU, DOCUMENT, WORKSPACE};

/// A job whose first attempt runs.
fn running() -> Job {
    Job {
        id: JobId(1),
        workspace: WORKSPACE,
        cluster: CPU,
        name: "train".into(),
        document: DOCUMENT,
        owner: "me".into(),
        submitted: Millis(0),
        priority: 1,
        need: Need::Whole,
        nodes: 1,
        family: None,
        tags: vec![],
        timeout_ms: Some(7_000),
        like: None,
        retry: None,
        tier: Default::default(),
        attempts_made: 1,
        attempts_lost: 0,
        attempts_preempted: 0,
        attempts_unprepared: 0,
        attempts_failed: 0,
        state: JobState::Active(Attempt {
            number: 1,
            node: NodeId(1),
            phase: Phase::Running,
            since: Millis(0),
            placed: Millis(0),
            until: None,
            last_report: 1,
            stop: None,
            run_deadline: None,
            ranks: Vec::new(),
            blame: None,
        }),
        cancel: None,
    }
}

fn stopped(why: StopReason) -> Job {
    let mut job = running();
    if let JobState::Active(attempt) = &mut job.state {
        attempt.stop = Some(Stop { why, deadline: Millis(9), reason: None });
    }
    job
}

/// Status, class and code; the cause if it goes back to the queue.
type Verdict = Result<(Status, Option<(Class, String)>), Cause>;

fn verdict(job: &Job, exit: &Exit) -> Verdict {
    outcome_of_exit(job, exit)
        .map(|Outcome { status, failure }| (status, failure.map(|f| (f.class, f.code.to_string()))))
        .map_err(|requeue| requeue.cause)
}

fn failure(job: &Job, exit: &Exit) -> neap_core::job::Failure {
    outcome_of_exit(job, exit).unwrap().failure.unwrap()
}

fn prepare_failed(class: Class) -> Exit {
    Exit::PrepareFailed { class, message: "no".into() }
}

#[test]
fn each_exit_has_its_meaning() {
    let failed = |class, code: &str| Ok((Status::Failed, Some((class, code.to_owned()))));
    let finalize_failed = Exit::FinalizeFailed { message: "no".into() };
    for (exit, expect) in [
        (Exit::Success, Ok((Status::Completed, None))),
        (Exit::Code { code: 1 }, failed(Class::UserCode, "UserError")),
        (Exit::Signal { signal: 11 }, failed(Class::UserCode, "UserError")),
        (Exit::OutOfMemory { limit_mb: 64 }, failed(Class::UserCode, "OutOfMemory")),
        (Exit::Timeout, Ok((Status::Canceled, Some((Class::UserCode, "JobTimedOut".to_owned()))))),
        (Exit::Stopped, Err(Cause::NodeLost)),
        (Exit::LeaseLost, Err(Cause::NodeLost)),
        (prepare_failed(Class::System), Err(Cause::Unprepared)),
        (prepare_failed(Class::InputData), failed(Class::InputData, "PrepareFailed")),
        (prepare_failed(Class::Environment), failed(Class::Environment, "PrepareFailed")),
        (prepare_failed(Class::Identity), failed(Class::Identity, "PrepareFailed")),
        (prepare_failed(Class::QuotaCapacity), Err(Cause::Unprepared)),
        (Exit::DiskQuota { message: "no".into() }, failed(Class::UserCode, "DiskQuotaExceeded")),
        (Exit::DiskShort { message: "no".into() }, failed(Class::QuotaCapacity, "DiskSpaceShort")),
        (finalize_failed, failed(Class::System, "OutputsNotStored")),
    ] {
        assert_eq!(verdict(&running(), &exit), expect, "{exit:?}");
    }
}

#[test]
fn why_an_attempt_was_stopped_says_more_than_how_it_ended() {
    let timed_out = Ok((Status::Canceled, Some((Class::UserCode, "JobTimedOut".to_owned()))));
    for exit in [Exit::Stopped, Exit::Code { code: 143 }, Exit::Signal { signal: 15 }, Exit::LeaseLost] {
        assert_eq!(verdict(&stopped(StopReason::Timeout), &exit), timed_out, "{exit:?}");
        let back = outcome_of_exit(&stopped(StopReason::Draining), &exit).unwrap_err();
        assert_eq!(back.cause, Cause::ServerStopped, "{exit:?}: a stopped server costs no try");
        assert!(back.reason.contains("the server was stopped"), "{}", back.reason);
    }
    for why in [StopReason::Timeout, StopReason::Draining] {
        let done = verdict(&stopped(why), &Exit::Success);
        assert_eq!(done, Ok((Status::Completed, None)), "it was done before it could be stopped");
    }
    let mut unwanted = running();
    unwanted.cancel = Some(Cancel { at: Millis(1), reason: "not wanted".into() });
    for exit in [Exit::Success, Exit::Code { code: 1 }, Exit::LeaseLost] {
        let outcome = outcome_of_exit(&unwanted, &exit).unwrap();
        assert_eq!(outcome.status, Status::Canceled, "{exit:?}");
        assert_eq!(&*outcome.failure.unwrap().message, "not wanted");
    }
}

#[test]
fn tries_that_the_job_did_not_spoil_are_many_but_not_endless() {
    let mut job = running();
    for exit in [Exit::Stopped, Exit::LeaseLost] {
        job.attempts_lost = ATTEMPTS_LOST_MAX - 2;
        assert_eq!(verdict(&job, &exit), Err(Cause::NodeLost));
        job.attempts_lost = ATTEMPTS_LOST_MAX - 1;
        let failure = failure(&job, &exit);
        assert_eq!((failure.class, &*failure.code), (Class::System, "NodesLost"));
        assert!(failure.message.starts_with(&format!("{ATTEMPTS_LOST_MAX} attempts")), "{}", failure.message);
    }
    let exit = prepare_failed(Class::System);
    job.attempts_unprepared = ATTEMPTS_UNPREPARED_MAX - 2;
    assert_eq!(verdict(&job, &exit), Err(Cause::Unprepared));
    job.attempts_unprepared = ATTEMPTS_UNPREPARED_MAX - 1;
    assert_eq!(&*failure(&job, &exit).code, "PrepareFailed");
    let full = failure(&job, &prepare_failed(Class::QuotaCapacity));
    assert_eq!(full.class, Class::QuotaCapacity);
    assert!(full.next_step.contains("Make room"), "{}", full.next_step);
}

#[test]
fn a_failure_says_what_happened_and_what_to_do() {
    for (exit, message, next) in [
        (Exit::Code { code: 3 }, "exit code 3", "std_log.txt"),
        (Exit::Code { code: 126 }, "exit code 126", "cannot be executed"),
        (Exit::Code { code: 127 }, "exit code 127", "was not found"),
        (Exit::Signal { signal: 9 }, "signal 9 (SIGKILL)", "std_log.txt"),
        (Exit::Signal { signal: 11 }, "signal 11 (SIGSEGV)", "std_log.txt"),
        (Exit::Signal { signal: 31 }, "signal 31 (see signal(7))", "std_log.txt"),
        (Exit::OutOfMemory { limit_mb: 64 }, "64 MB", "memory_gb"),
        (Exit::Timeout, "limits.timeout of 7 seconds", "limits.timeout"),
        (prepare_failed(Class::InputData), "no", "input"),
        (prepare_failed(Class::Environment), "no", "environment"),
        (prepare_failed(Class::Identity), "no", "credentials"),
    ] {
        let failure = failure(&running(), &exit);
        assert!(failure.message.contains(message), "{exit:?}: {}", failure.message);
        assert!(failure.next_step.contains(next), "{exit:?}: {}", failure.next_step);
    }
}

fn asking(retry: Retry) -> Job {
    Job { retry: Some(retry.into()), ..running() }
}

#[test]
fn an_exit_code_that_is_listed_is_tried_again_as_often_as_was_asked() {
    let retry = Retry { exit_codes: vec![75, 137], max: 2, ..Retry::default() };
    let mut job = asking(retry);
    let rank = |exit| Exit::Process { rank: 3, exit: Box::new(exit) };
    for exit in [
        Exit::Code { code: 75 },
        Exit::Code { code: 137 },
        Exit::Signal { signal: 9 },
        Exit::OutOfMemory { limit_mb: 5 },
        rank(Exit::Code { code: 75 }),
    ] {
        for failed in 0..2 {
            job.attempts_failed = failed;
            let back = outcome_of_exit(&job, &exit).unwrap_err();
            assert_eq!(back.cause, Cause::ExitCode, "{exit:?}");
            assert!(back.reason.contains(&format!("tried again: {} of 2", failed + 1)), "{}", back.reason);
        }
        job.attempts_failed = 2;
        let failure = failure(&job, &exit);
        assert_eq!(failure.class, Class::UserCode, "{exit:?}");
        assert!(failure.message.contains("It was tried 3 times."), "{}", failure.message);
    }
    job.attempts_failed = 0;
    for exit in [Exit::Code { code: 1 }, Exit::Signal { signal: 11 }, rank(Exit::Code { code: 2 })] {
        assert!(outcome_of_exit(&job, &exit).is_ok(), "{exit:?} is not listed");
    }
    let told = outcome_of_exit(&job, &rank(Exit::Code { code: 75 })).unwrap_err();
    assert!(told.reason.starts_with("rank 3: The command ended with exit code 75."), "{}", told.reason);
}

#[test]
fn a_job_that_is_not_wanted_or_out_of_time_is_not_tried_again() {
    let retry = Retry { exit_codes: vec![143], max: 9, ..Retry::default() };
    let exit = Exit::Code { code: 143 };
    let mut job = Job { retry: Some(retry.into()), ..stopped(StopReason::Timeout) };
    assert_eq!(outcome_of_exit(&job, &exit).unwrap().status, Status::Canceled);
    job = Job { state: stopped(StopReason::Draining).state, ..job };
    assert_eq!(verdict(&job, &exit), Err(Cause::ServerStopped), "and that costs no try");
    job.cancel = Some(Cancel { at: Millis(1), reason: "not wanted".into() });
    assert_eq!(outcome_of_exit(&job, &exit).unwrap().status, Status::Canceled);
}

#[test]
fn lost_and_preempted_attempts_count_apart() {
    let mut job = asking(Retry { node_lost: Some(0), preempted: Some(2), ..Retry::default() });
    let lost = again(&job, Cause::NodeLost, "it went".into()).unwrap().failure.unwrap();
    assert_eq!((lost.class, &*lost.code), (Class::System, "NodesLost"));
    assert!(lost.message.starts_with("1 attempt was lost"), "{}", lost.message);
    assert_eq!(again(&job, Cause::Preempted, "taken".into()).unwrap_err().cause, Cause::Preempted);
    job.attempts_preempted = 2;
    let taken = again(&job, Cause::Preempted, "taken".into()).unwrap().failure.unwrap();
    assert_eq!((taken.class, &*taken.code), (Class::Preempted, "Preempted"));
    assert!(taken.message.starts_with("3 attempts were preempted; the last: taken"), "{}", taken.message);
    let mut job = running();
    job.attempts_preempted = 100_000;
    assert!(again(&job, Cause::Preempted, "taken".into()).is_err(), "no fault of its own");
}

#[test]
fn how_often_it_was_tried_is_said_where_it_was_tried_again() {
    let exit = Exit::Code { code: 75 };
    for (max, said) in [(0, None), (1, Some("It was tried 2 times.")), (2, Some("It was tried 3 times."))] {
        let retry = Retry { exit_codes: vec![75], max, ..Retry::default() };
        let job = Job { attempts_failed: max, ..asking(retry) };
        let message = failure(&job, &exit).message;
        assert_eq!(message.contains("It was tried"), said.is_some(), "{message}");
        assert!(said.is_none_or(|said| message.ends_with(said)), "{message}");
    }
}
