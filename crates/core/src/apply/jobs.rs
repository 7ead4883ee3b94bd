//! Jobs and their attempts: kept with their timers, their place in the queue, and what they take of their nodes.

use std::sync::Arc;

use super::clusters::with_cluster;
use super::families;
use super::nodes::with_node;
use crate::cluster::QueueKey;
use crate::event;
use crate::ids::{AttemptId, JobId, NameFingerprint, NodeId};
use crate::job::{Attempt, Blame, Cause, Job, JobState, Need, Phase, Rank};
use crate::meter::Payer;
use crate::node::NodeState;
use crate::planted::{self, Bug};
use crate::queue::{Lane, cores_milli};
use crate::state::{State, Timer};
use crate::units::Millis;

pub(super) fn submitted(state: &mut State, at: Millis, e: &event::JobSubmitted) {
    let waits = families::has_to_wait(state, e.family, &e.after);
    let job = Job {
        id: e.id,
        workspace: e.workspace,
        cluster: e.cluster,
        name: e.name.clone(),
        document: e.document,
        owner: e.owner.clone(),
        submitted: at,
        priority: e.priority,
        need: e.need,
        nodes: e.nodes,
        family: e.family,
        like: e.like,
        tags: families::tags(state, e.family, &e.tags),
        timeout_ms: e.timeout_ms,
        retry: e.retry.clone(),
        tier: e.tier,
        attempts_made: 0,
        attempts_lost: 0,
        attempts_preempted: 0,
        attempts_unprepared: 0,
        attempts_failed: 0,
        state: if waits { JobState::Waiting } else { JobState::Queued { since: at, reason: None } },
        cancel: None,
    };
    state.job_names.insert((e.workspace, NameFingerprint::of(&e.name)), e.id);
    state.jobs.insert(e.id, Arc::new(job));
    state.next.job = state.next.job.max(e.id.next());
    if waits {
        with_cluster(state, e.cluster, |cluster| {
            cluster.waiting.insert(e.id);
        });
    } else {
        enqueue(state, e.id);
    }
    families::joined(state, e.id, e.family, &e.after);
}

pub(super) fn placed(state: &mut State, at: Millis, e: &event::JobPlaced) {
    dequeue(state, e.id);
    let Some(job) = state.jobs.get_mut(&e.id).map(Arc::make_mut) else { return };
    let (cluster, need) = (job.cluster, job.need);
    job.attempts_made = e.attempt;
    job.state = JobState::Active(Attempt {
        number: e.attempt,
        node: e.node,
        phase: Phase::Assigned,
        since: at,
        placed: at,
        until: e.until,
        last_report: 0,
        stop: None,
        run_deadline: None,
        ranks: ranks(e),
        blame: None,
    });
    let (owner, job) = (job.owner.clone(), state.jobs.get(&e.id).cloned());
    with_cluster(state, cluster, |cluster| {
        cluster.active.insert(e.id);
        let cores = job.map_or(0, |job| cores_milli(&job, cluster.shape.nominal));
        cluster.shares.entry(owner).or_default().begins(cores, at);
        cluster.shares_at = at;
    });
    time_job(state, e.id);
    for node in std::iter::once(e.node).chain(e.others.iter().copied()) {
        with_node(state, node, |node| {
            node.attempts.push(AttemptId { job: e.id, number: e.attempt });
            match need {
                Need::Whole => node.exclusive = true,
                Need::Share(share) => node.used = node.used.plus(share),
            }
            node.reason = "running".into();
        });
    }
}

fn ranks(e: &event::JobPlaced) -> Vec<Rank> {
    if e.others.is_empty() {
        return Vec::new();
    }
    std::iter::once(e.node)
        .chain(e.others.iter().copied())
        .map(|node| Rank { node, phase: Phase::Assigned, last_report: 0, over: false })
        .collect()
}

pub(super) fn rank_ended(state: &mut State, at: Millis, e: &event::RankEnded) {
    with_attempt(state, e.id, e.attempt, |attempt| {
        attempt.blame = Blame::after(attempt.blame.take(), e);
    });
    with_rank(state, e.id, e.attempt, e.rank, |rank| {
        rank.over = true;
        rank.last_report = e.report;
    });
    if let Some(job) = state.jobs.get(&e.id).cloned() {
        leave_node(state, at, &job, e.node);
    }
}

pub(super) fn with_rank(
    state: &mut State,
    id: JobId,
    attempt: u32,
    rank: u32,
    change: impl FnOnce(&mut Rank),
) {
    with_attempt(state, id, attempt, |attempt| {
        if let Some(rank) = attempt.ranks.get_mut(rank as usize) {
            change(rank);
        }
    });
}

pub(super) fn requeued(state: &mut State, at: Millis, e: &event::JobRequeued) {
    release(state, at, e.id);
    let Some(job) = state.jobs.get_mut(&e.id).map(Arc::make_mut) else { return };
    match e.cause {
        Cause::NodeLost => job.attempts_lost += 1,
        Cause::Preempted => job.attempts_preempted += 1,
        Cause::Unprepared => job.attempts_unprepared += 1,
        Cause::ExitCode => job.attempts_failed += 1,
        Cause::ServerStopped | Cause::Budget => {}
    }
    if planted::is(Bug::RequeueLosesPlace) {
        job.priority = 0;
    }
    job.state = JobState::Queued { since: at, reason: Some(e.reason.clone()) };
    if planted::is(Bug::DrainLosesJobs) && state.draining.is_some() {
        return;
    }
    enqueue(state, e.id);
}

pub(super) fn ended(state: &mut State, at: Millis, id: JobId) {
    release(state, at, id);
    dequeue(state, id);
    let Some(job) = state.jobs.remove(&id) else { return };
    if planted::is(Bug::NameForgotten) {
        state.job_names.remove(&(job.workspace, NameFingerprint::of(&job.name)));
    }
    with_cluster(state, job.cluster, |cluster| {
        cluster.waiting.remove(&id);
    });
}

/// Takes a job's attempt off its nodes.
fn release(state: &mut State, at: Millis, id: JobId) {
    untime_job(state, id);
    let Some(job) = state.jobs.get(&id).cloned() else { return };
    let Some(attempt) = job.attempt() else { return };
    with_cluster(state, job.cluster, |cluster| {
        cluster.active.remove(&id);
        let cores = cores_milli(&job, cluster.shape.nominal);
        let Some(share) = cluster.shares.get_mut(&job.owner) else { return };
        share.ends(cores, attempt.placed, at);
        cluster.shares_at = at;
        if share.is_blank() {
            cluster.shares.remove(&job.owner);
        }
    });
    for node in attempt.nodes_held() {
        leave_node(state, at, &job, node);
    }
}

/// The node's idle time starts anew.
fn leave_node(state: &mut State, at: Millis, job: &Job, node: NodeId) {
    let payer = Payer::of(state, job);
    with_node(state, node, |node| {
        node.attempts.retain(|a| a.job != job.id);
        node.last = Some(payer);
        match job.need {
            Need::Whole => node.exclusive = false,
            Need::Share(share) => node.used = node.used.minus(share),
        }
        if node.attempts.is_empty() && matches!(node.state, NodeState::Ready) {
            if !planted::is(Bug::IdleTimerNotReset) {
                node.since = at;
            }
            node.reason = "idle".into();
        }
    });
}

pub(super) fn with_attempt(state: &mut State, id: JobId, number: u32, change: impl FnOnce(&mut Attempt)) {
    with_job(state, id, |job| {
        if let JobState::Active(attempt) = &mut job.state
            && attempt.number == number
        {
            change(attempt);
        }
    });
}

pub(super) fn with_job(state: &mut State, id: JobId, change: impl FnOnce(&mut Job)) {
    untime_job(state, id);
    if let Some(job) = state.jobs.get_mut(&id) {
        change(Arc::make_mut(job));
    }
    time_job(state, id);
}

fn time_job(state: &mut State, id: JobId) {
    if let Some(at) = state.jobs.get(&id).and_then(|job| job_timer(job))
        && !planted::is(Bug::TimerMissing)
    {
        state.timers.insert((at, Timer::Job(id)));
    }
}

/// When a job next needs a look: the end of patience with a stop, else of its time to run.
pub fn job_timer(job: &Job) -> Option<Millis> {
    let attempt = job.attempt()?;
    match &attempt.stop {
        Some(stop) => Some(stop.deadline),
        None => [attempt.run_deadline, attempt.until].into_iter().flatten().min(),
    }
}

fn untime_job(state: &mut State, id: JobId) {
    if let Some(at) = state.jobs.get(&id).and_then(|job| job_timer(job)) {
        state.timers.remove(&(at, Timer::Job(id)));
    }
}

/// To its place among those who wait.
pub(crate) fn enqueue(state: &mut State, id: JobId) {
    let Some(job) = state.jobs.get(&id).cloned() else { return };
    with_cluster(state, job.cluster, |cluster| {
        cluster.queue.insert(queue_key(&job));
        cluster.lanes.entry(Lane::of(&job)).or_default().insert(id);
    });
}

/// Out of the queue.
fn dequeue(state: &mut State, id: JobId) {
    let Some(job) = state.jobs.get(&id).cloned() else { return };
    with_cluster(state, job.cluster, |cluster| {
        cluster.queue.remove(&queue_key(&job));
        let lane = Lane::of(&job);
        if let Some(jobs) = cluster.lanes.get_mut(&lane) {
            jobs.remove(&id);
            if jobs.is_empty() {
                cluster.lanes.remove(&lane);
            }
        }
    });
}

pub fn queue_key(job: &Job) -> QueueKey {
    QueueKey { behind: u8::MAX - job.priority, job: job.id }
}
