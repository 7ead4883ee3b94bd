//! Whether an attempt that did not succeed is followed by another, by the cause. It never looks at how long one took.

use std::sync::Arc;

use crate::job::{Cause, Class, Exit, Job, Outcome};

/// The attempt did not count: the job goes back to its place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requeue {
    pub reason: Arc<str>,
    pub cause: Cause,
}

impl Requeue {
    /// Of an attempt that was told to end because of a budget.
    pub fn budget(job: &Job) -> Self {
        Self { reason: told_why(job, "a budget had nothing left for its node"), cause: Cause::Budget }
    }

    pub fn server_stopped() -> Self {
        Self { reason: "the server was stopped while it ran".into(), cause: Cause::ServerStopped }
    }
}

/// Why its attempt was told to end, in the words that went with the order.
pub(super) fn told_why(job: &Job, otherwise: &str) -> Arc<str> {
    let stop = job.attempt().and_then(|attempt| attempt.stop.as_ref());
    stop.and_then(|stop| stop.reason.clone()).unwrap_or_else(|| otherwise.into())
}

/// Back to the queue for this cause, or the job's outcome when it has been tried often enough.
pub fn again(job: &Job, cause: Cause, reason: Arc<str>) -> Result<Outcome, Requeue> {
    if job.retries(cause).is_none_or(|most| job.retried(cause) < most) {
        return Err(Requeue { reason, cause });
    }
    let tries = job.retried(cause).saturating_add(1);
    let attempts = if tries == 1 { "1 attempt was".to_owned() } else { format!("{tries} attempts were") };
    Ok(match cause {
        Cause::NodeLost => Outcome::failed(
            Class::System,
            "NodesLost",
            format!("{attempts} lost with their nodes; the last: {reason}"),
            "Look at 'neap compute node-log' and 'neap doctor' for what ends the nodes.",
        ),
        Cause::Preempted => Outcome::failed(
            Class::Preempted,
            "Preempted",
            format!("{attempts} preempted; the last: {reason}"),
            "Submit it to a dedicated cluster, or with a higher priority, or raise resources.properties.neap.retry.preempted.",
        ),
        Cause::Unprepared => Outcome::failed(
            Class::System,
            "PrepareFailed",
            reason,
            "Look at 'neap compute node-log' and 'neap doctor'.",
        ),
        // Those have an outcome of their own, and what was stopped is always tried again.
        Cause::ExitCode | Cause::ServerStopped | Cause::Budget => Outcome::failed(
            Class::UserCode,
            "UserError",
            reason,
            "Read the end of user_logs/std_log.txt for what the program said.",
        ),
    })
}

/// Back to the queue, if the job asks to be tried again for such an exit and has tries left.
pub fn after_exit(job: &Job, exit: &Exit, message: &str) -> Option<Requeue> {
    let most = wanted(job, exit)?;
    let number = job.attempts_failed + 1;
    (number <= most).then(|| Requeue {
        reason: format!("{message} It is tried again: {number} of {most}.").into(),
        cause: Cause::ExitCode,
    })
}

/// Says of a failure how often it was tried.
pub fn told(job: &Job, exit: &Exit, mut outcome: Outcome) -> Outcome {
    if let (Some(_), Some(failure)) = (wanted(job, exit), &mut outcome.failure)
        && job.attempts_failed > 0
    {
        failure.message =
            format!("{} It was tried {} times.", failure.message, job.attempts_failed + 1).into();
    }
    outcome
}

/// How often such an exit is tried again.
fn wanted(job: &Job, exit: &Exit) -> Option<u32> {
    let retry = job.retry.as_deref()?;
    retry.exit_codes.contains(&exit.exit_code()?).then_some(retry.max)
}
