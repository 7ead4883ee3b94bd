//! Submitting, editing, cancelling and deleting jobs, and what an exit means for the job.

use std::sync::Arc;

use super::places::{live_workspace, open_workspace};
use super::retries::{self, Requeue};
use super::tiers;
use crate::budget;
use crate::cluster::{Cluster, Tier};
use crate::command::SubmitJob;
use crate::event::{
    AttemptStopRequested, Event, JobCancelRequested, JobDeleted, JobEnded, JobSubmitted, JobUpdated,
    NodeMetered,
};
use crate::gpus;
use crate::ids::{DocHash, JobId, NodeId, WorkspaceId};
use crate::job::{Cause, Class, Exit, Job, Need, Outcome, StopReason};
use crate::limits;
use crate::location;
use crate::mix::TierChoice;
use crate::names;
use crate::node::Node;
use crate::plan::nodes_ever;
use crate::planted::{self, Bug};
use crate::problem::{Code, Problem, Refusal};
use crate::quota;
use crate::state::State;
use crate::units::{Capacity, MicroUsd, Millis, jobs_wait};

pub fn submit(state: &State, submit: SubmitJob) -> Result<Vec<Event>, Refusal> {
    super::refuse_while_draining(state)?;
    // A trial of a sweep that runs is none of anybody's changes.
    match submit.family {
        Some(_) => live_workspace(state, submit.workspace)?,
        None => open_workspace(state, submit.workspace)?,
    };
    if state.job_named(submit.workspace, &submit.name).is_some() {
        return Err(name_taken(&submit.name));
    }
    if let Some(family) = submit.family {
        super::families::check_open(state, submit.workspace, family)?;
    }
    let mut problems = submit.problems;
    problems.extend(names::check_job_name(&submit.name));
    let asked = Asked {
        workspace: submit.workspace,
        cluster: &submit.cluster,
        need: &submit.need,
        nodes: submit.nodes,
        tier: submit.tier,
    };
    let cluster = check_cluster(state, asked, &mut problems);
    problems.extend(cluster.and_then(|cluster| check_queue(state, cluster, 1)));
    problems.extend(cluster.and_then(|cluster| check_budget(state, &submit.name, asked, cluster)));
    Refusal::unless_empty(problems)?;
    let Some(cluster) = cluster else { return Err(no_cluster(&submit.cluster).into()) };
    Ok(vec![
        JobSubmitted {
            id: state.next.job,
            workspace: submit.workspace,
            cluster: cluster.id,
            name: submit.name,
            owner: submit.owner,
            priority: submit.priority,
            need: submit.need,
            timeout_ms: submit.timeout_ms,
            retry: submit.retry,
            tier: submit.tier,
            nodes: submit.nodes,
            family: submit.family,
            like: submit.like,
            tags: submit.tags,
            after: Vec::new(),
            work: None,
            document: submit.document,
            meta: submit.meta,
        }
        .into(),
    ])
}

/// A job's own budget that is too small for it ever to start. Other budgets are waited for.
fn check_budget(state: &State, name: &str, asked: Asked<'_>, cluster: &Cluster) -> Option<Problem> {
    let price = match &cluster.mix {
        Some(mix) if asked.tier.only == Some(Tier::Dedicated) => mix.floor.shape.price,
        _ => cluster.shape.price,
    };
    let needed = budget::least_cost(&state.settings, price, asked.nodes);
    let budget = budget::of_one_job(state, asked.workspace, name, needed)?;
    let message = budget::too_small(state, budget, MicroUsd(needed), cluster);
    Some(Problem::new(Code::BudgetTooSmall, message))
}

pub(super) fn name_taken(name: &str) -> Refusal {
    name_taken_problem(name).into()
}

pub(super) fn name_taken_problem(name: &str) -> Problem {
    Problem::new(
        Code::JobNameTaken,
        format!("A job named '{name}' exists or has existed in this workspace; choose another name."),
    )
}

pub(super) fn no_cluster(name: &str) -> Problem {
    Problem::new(
        Code::ComputeNotFound,
        format!(
            "The compute '{name}' was not found in this workspace; 'neap compute list' shows those there are."
        ),
    )
    .at("computeId")
}

/// What a job asks of a cluster.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub workspace: WorkspaceId,
    pub cluster: &'a str,
    pub need: &'a Need,
    pub nodes: u32,
    pub tier: TierChoice,
}

/// The cluster, if it is there; and everything that keeps it from ever running the job.
pub(super) fn check_cluster<'a>(
    state: &'a State,
    asked: Asked<'_>,
    problems: &mut Vec<Problem>,
) -> Option<&'a Arc<Cluster>> {
    let Some(cluster) = state.cluster(asked.workspace, asked.cluster).filter(|c| !c.is_deleting()) else {
        problems.push(no_cluster(asked.cluster));
        return None;
    };
    check_need(state, asked.need, cluster.shape.nominal, &cluster.shape.size, problems);
    if asked.nodes == 0 {
        problems.push(
            Problem::new(Code::BadArgument, "A job runs on at least one node (resources.instance_count).")
                .at("resources"),
        );
    }
    tiers::check(cluster, asked, problems);
    if asked.nodes > 1 && cluster.mix.is_some() {
        tiers::check_gang(state, cluster, asked, problems);
    } else if asked.nodes > 1 {
        check_nodes(state, cluster, asked, problems);
    }
    if asked.nodes > 1 && *asked.need != Need::Whole {
        problems.push(
            Problem::new(
                Code::BadArgument,
                "A job on several nodes takes each of them whole; leave out resources.properties.neap, or ask for one node.",
            )
            .at("resources"),
        );
    }
    Some(cluster)
}

/// That so many more may wait on a cluster.
pub(super) fn check_queue(state: &State, cluster: &Cluster, more: usize) -> Option<Problem> {
    let (waiting, most) = (cluster.queue.len() + cluster.waiting.len(), state.settings.waiting_jobs_max);
    if waiting + more <= most {
        return None;
    }
    let coming = if more > 1 { format!(", and {more} more are to come") } else { " already".to_owned() };
    let message = format!(
        "{} on compute '{}'{coming}; {most} is the limit (limits.waiting_jobs in config.yaml).",
        jobs_wait(waiting as u64),
        cluster.name
    );
    Some(Problem::new(Code::LimitReached, message))
}

/// That a job on several nodes can have them.
fn check_nodes(state: &State, cluster: &Cluster, asked: Asked<'_>, problems: &mut Vec<Problem>) {
    if asked.nodes > cluster.declared.max {
        problems.push(
            Problem::new(
                Code::ResourceTooLarge,
                format!(
                    "The job asks for {} nodes at once and max_instances of compute '{}' is {}; raise it or ask for fewer.",
                    asked.nodes, cluster.name, cluster.declared.max
                ),
            )
            .at("resources"),
        );
    }
    let ever = nodes_ever(state, cluster);
    let by_quota = quota::nodes_ever(state, cluster);
    let by_location = location::nodes_ever(state, &cluster.location, cluster.shape.nominal);
    if asked.nodes > by_quota {
        problems.push(
            Problem::new(
                Code::JobNodeCountExceedsCoreQuota,
                format!(
                    "The job asks for {} nodes of {} at once and the quota allows {by_quota}; ask for fewer, or for more quota ('neap quota list', 'neap quota request').",
                    asked.nodes, cluster.shape.size
                ),
            )
            .at("resources"),
        );
    } else if asked.nodes > by_location {
        problems.push(
            Problem::new(
                Code::ResourceTooLarge,
                format!(
                    "The job asks for {} nodes at once and {} has at most {by_location} of size {} (locations in config.yaml); ask for fewer, or use a compute elsewhere.{}",
                    asked.nodes,
                    cluster.location,
                    cluster.shape.size,
                    location::elsewhere_words(
                        state,
                        cluster.workspace,
                        &cluster.location,
                        &cluster.shape,
                        asked.nodes
                    ),
                ),
            )
            .at("resources"),
        );
    } else if asked.nodes > ever {
        problems.push(
            Problem::new(
                Code::ResourceTooLarge,
                format!(
                    "The job asks for {} nodes at once and the provider makes at most {ever} of size {} (local.max_nodes, local.capacity); ask for fewer.",
                    asked.nodes, cluster.shape.size
                ),
            )
            .at("resources"),
        );
    }
}

/// A need must fit the size, and a GPU must truly be there: a job is never run on the CPU in silence.
fn check_need(state: &State, need: &Need, nominal: Capacity, size: &str, problems: &mut Vec<Problem>) {
    let needed = match need {
        Need::Whole => nominal.gpus,
        Need::Share(share) => {
            if share.cpus_milli < limits::SHARE_CPUS_MILLI_MIN {
                problems.push(
                    Problem::new(Code::BadArgument, "A job that shares a node asks for at least 0.01 cpus.")
                        .at("resources"),
                );
            }
            if !nominal.fits(*share) {
                problems.push(
                    Problem::new(
                        Code::ResourceTooLarge,
                        format!("The job asks for {share}; a node of size {size} has {nominal}."),
                    )
                    .at("resources"),
                );
            }
            share.gpus
        }
    };
    if let Some(machine) = state.settings.provider.machine
        && let Some(text) = gpus::refusal(needed, size, nominal.gpus, machine.gpus)
    {
        problems.push(Problem::new(Code::GpuNotAvailable, text).at("computeId"));
    }
}

/// The nodes whose time is somebody's, or was last.
fn paid_by(state: &State, id: JobId) -> impl Iterator<Item = NodeId> {
    let is_its = move |node: &&Arc<Node>| {
        let payers = node.last.iter().chain(&node.caused_by);
        node.attempts.iter().any(|attempt| attempt.job == id)
            || payers.into_iter().any(|payer| payer.job == id)
    };
    state.nodes.values().filter(is_its).map(|node| node.id)
}

pub fn update(state: &State, id: JobId, meta: DocHash, archived: bool) -> Result<Vec<Event>, Refusal> {
    known(state, id)?;
    // What was spent so far was spent under the tags that there were.
    let mut events: Vec<Event> = paid_by(state, id).map(|node| NodeMetered { id: node }.into()).collect();
    events.push(JobUpdated { id, meta, archived }.into());
    Ok(events)
}

pub fn cancel(state: &State, id: JobId, reason: Arc<str>, now: Millis) -> Result<Vec<Event>, Refusal> {
    known(state, id)?;
    if let Some(family) = state.families.get(&id) {
        let asked_before = family.cancel.is_some();
        return Ok(if asked_before { Vec::new() } else { vec![JobCancelRequested { id, reason }.into()] });
    }
    let Some(job) = state.jobs.get(&id) else {
        return Err(Refusal::because(Code::JobAlreadyFinal, "The job has already ended."));
    };
    Ok(cancel_events(state, job, reason, now))
}

/// What it means to want a job ended: at once when it waits, through its node when it runs.
pub(crate) fn cancel_events(state: &State, job: &Job, reason: Arc<str>, now: Millis) -> Vec<Event> {
    if job.cancel.is_some() {
        return Vec::new();
    }
    let mut events = vec![JobCancelRequested { id: job.id, reason: reason.clone() }.into()];
    match job.attempt() {
        None => {
            events.push(JobEnded { id: job.id, attempt: None, exit: None, outcome: canceled(reason) }.into());
        }
        Some(_) if planted::is(Bug::CancelLost) => {}
        Some(attempt) => events.push(
            AttemptStopRequested {
                id: job.id,
                attempt: attempt.number,
                why: StopReason::Cancel,
                deadline: stop_deadline(state, now),
                reason: None,
            }
            .into(),
        ),
    }
    events
}

pub(crate) fn stop_deadline(state: &State, now: Millis) -> Millis {
    now.plus(state.settings.stop_span_ms())
}

pub fn delete(state: &State, id: JobId) -> Result<Vec<Event>, Refusal> {
    known(state, id)?;
    if state.is_alive(id) {
        return Err(Refusal::because(
            Code::JobNotFinal,
            "The job has not ended; cancel it first, then delete it.",
        ));
    }
    Ok(vec![JobDeleted { id }.into()])
}

fn known(state: &State, id: JobId) -> Result<(), Refusal> {
    if id < state.next.job && id.0 > 0 {
        Ok(())
    } else {
        Err(Refusal::because(Code::ResourceNotFound, "The job was not found."))
    }
}

pub(crate) fn canceled(reason: Arc<str>) -> Outcome {
    Outcome::canceled(
        Class::UserCode,
        "JobCanceled",
        reason,
        "Submit it again under another name if it is still wanted.",
    )
}

/// What the end of an attempt means: the job's outcome, or `None` when it goes back to the queue (with the reason).
pub fn outcome_of_exit(job: &Job, exit: &Exit) -> Result<Outcome, Requeue> {
    if let Some(cancel) = &job.cancel {
        return Ok(canceled(cancel.reason.clone()));
    }
    let stop = job.attempt().and_then(|attempt| attempt.stop.as_ref()).map(|stop| stop.why);
    let user = |code: &str, message: String, next: &str| match retries::after_exit(job, exit, &message) {
        Some(requeue) => Err(requeue),
        None => Ok(retries::told(job, exit, Outcome::failed(Class::UserCode, code, message, next))),
    };
    match (stop, exit) {
        (_, Exit::Success) => Ok(Outcome::completed()),
        (Some(StopReason::Timeout), _) | (_, Exit::Timeout) => {
            Ok(timed_out(took_longer(job.timeout_ms.unwrap_or_default())))
        }
        (Some(StopReason::Draining), _) => Err(Requeue::server_stopped()),
        (Some(StopReason::Preempt), _) => {
            retries::again(job, Cause::Preempted, retries::told_why(job, "its node was taken back"))
        }
        (Some(StopReason::Budget), _) => Err(Requeue::budget(job)),
        (_, Exit::Code { code }) => user(
            "UserError",
            format!("The command ended with exit code {code}."),
            match code {
                126 => "The command was found but cannot be executed: check its mode and first line.",
                127 => "A program in the command was not found: check the environment and the spelling.",
                _ => "Read the end of user_logs/std_log.txt for what the program said.",
            },
        ),
        (_, Exit::Signal { signal }) => user(
            "UserError",
            format!("The command was ended by signal {signal} ({}).", signal_name(*signal)),
            "Read the end of user_logs/std_log.txt; a crash in native code often ends this way.",
        ),
        (_, Exit::OutOfMemory { limit_mb }) => user(
            "OutOfMemory",
            format!("The command used more than its {limit_mb} MB of memory and was ended."),
            "Use less memory, ask for more (resources.properties.neap.memory_gb), or a larger size.",
        ),
        (_, Exit::DiskQuota { message }) => Ok(Outcome::failed(
            Class::UserCode,
            "DiskQuotaExceeded",
            message.clone(),
            "Write less, delete what is no longer needed while the job runs, or ask for more with \
             resources.properties.neap.disk_mb (local.disk_mb_per_job is the most).",
        )),
        (_, Exit::DiskShort { message }) => Ok(Outcome::failed(
            Class::QuotaCapacity,
            "DiskSpaceShort",
            message.clone(),
            "Make room on the node's disk, or let the job write less; 'neap doctor' shows how much is free.",
        )),
        (_, Exit::Stopped) => {
            retries::again(job, Cause::NodeLost, "its node stopped it while leaving".into())
        }
        (_, Exit::LeaseLost) => {
            retries::again(job, Cause::NodeLost, "its node lost contact with the server".into())
        }
        (_, Exit::PrepareFailed { class: Class::System, message }) => {
            retries::again(job, Cause::Unprepared, message.clone())
        }
        // Another node may have the room.
        (_, Exit::PrepareFailed { class: class @ Class::QuotaCapacity, message }) => {
            retries::again(job, Cause::Unprepared, message.clone()).map(|_| {
                let next = "Make room on the node's disk, use a larger size, or let the job bring less data.";
                Outcome::failed(*class, "PrepareFailed", message.clone(), next)
            })
        }
        (_, Exit::PrepareFailed { class, message }) => {
            let next = match class {
                Class::InputData => "Check that every input exists and that its path is right.",
                Class::Identity => {
                    "Check the credentials of the datastore that the message names, and that they may read what the job asks for."
                }
                Class::UserCode
                | Class::Environment
                | Class::QuotaCapacity
                | Class::Preempted
                | Class::System => {
                    "Read the log's first lines (user_logs/std_log.txt), correct the environment and submit it again."
                }
            };
            Ok(Outcome::failed(*class, "PrepareFailed", message.clone(), next))
        }
        (_, Exit::Process { rank, exit }) => {
            outcome_of_exit(job, exit).map(|outcome| of_rank(outcome, *rank, "")).map_err(|requeue| Requeue {
                reason: format!("rank {rank}: {}", requeue.reason).into(),
                ..requeue
            })
        }
        (_, Exit::FinalizeFailed { message }) => Ok(Outcome::failed(
            Class::System,
            "OutputsNotStored",
            message.clone(),
            "Check the server's disk space and submit it again.",
        )),
    }
}

/// Says which rank it was, and where its log is. `place` follows the rank's number.
pub(super) fn of_rank(mut outcome: Outcome, rank: u32, place: &str) -> Outcome {
    if let Some(failure) = &mut outcome.failure {
        let said = &failure.message;
        failure.message =
            format!("Rank {rank}{place}: {said} Its log is user_logs/std_log_process_{rank}.txt.").into();
    }
    outcome
}

/// Of a job or a family of jobs alike.
pub(crate) fn timed_out(message: Arc<str>) -> Outcome {
    Outcome::canceled(
        Class::UserCode,
        "JobTimedOut",
        message,
        "Raise limits.timeout, or make the job do less.",
    )
}

fn took_longer(timeout_ms: u64) -> Arc<str> {
    let seconds = timeout_ms / 1000;
    format!("The job ran for longer than its limits.timeout of {seconds} seconds and was ended.").into()
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => "see signal(7)",
    }
}
