//! It happened: the one function that changes a [`State`]. Total, with no policy.
//!
//! An event about something that is not there changes nothing; the invariants would tell.

mod families;
mod governance;
mod schedules;

pub use families::family_timer;

use std::sync::Arc;

use crate::cluster::{BootHealth, Cluster, ClusterPhase, Cut, QueueKey};
use crate::event::{self, Event};
use crate::ids::{AttemptId, ClusterId, JobId, NameFingerprint, NodeId};
use crate::job::{Attempt, Blame, Cancel, Cause, Job, JobState, Need, Phase, Rank, Stop};
use crate::lock::LockScope;
use crate::meter::{self, Payer};
use crate::node::{Node, NodeState};
use crate::planted::{self, Bug};
use crate::state::{Group, GroupKey, State, Timer, Workspace, WorkspaceKey};
use crate::units::{Capacity, Millis};

pub fn apply(state: &mut State, at: Millis, event: &Event) {
    state.now = state.now.max(at);
    for id in meter::ends_slice_of(state, event) {
        if let Some(node) = state.nodes.get_mut(&id).map(Arc::make_mut) {
            node.metered = node.metered.max(at);
        }
    }
    match event {
        Event::ServerStarted(e) => {
            set_draining(state, None);
            state.settings = e.settings.clone();
        }
        Event::ServerDraining(e) => set_draining(state, Some(e.deadline)),

        Event::GroupPut(e) => {
            let group = Group {
                subscription: e.subscription.clone(),
                name: e.name.clone(),
                location: e.location.clone(),
                document: e.document,
            };
            state.groups.insert(GroupKey::new(&e.subscription, &e.name), Arc::new(group));
        }
        Event::GroupDeleted(e) => {
            let key = GroupKey::new(&e.subscription, &e.name);
            state.groups.remove(&key);
            governance::scope_gone(state, &LockScope::Group(key));
        }
        Event::WorkspaceCreated(e) => workspace_created(state, at, e),
        Event::WorkspaceUpdated(e) => {
            if let Some(workspace) = state.workspaces.get_mut(&e.id).map(Arc::make_mut) {
                workspace.document = e.document;
                workspace.modified = at;
            }
        }
        Event::WorkspaceDeleteRequested(e) => {
            if let Some(workspace) = state.workspaces.get_mut(&e.id).map(Arc::make_mut) {
                workspace.deleting = true;
            }
        }
        Event::WorkspaceDeleted(e) => {
            if let Some(workspace) = state.workspaces.remove(&e.id) {
                let key = WorkspaceKey::new(&workspace.subscription, &workspace.group, &workspace.name);
                state.workspace_names.remove(&key);
                governance::scope_gone(state, &LockScope::Workspace(e.id));
            }
        }
        // The tables list assets and documents; nothing here decides on them.
        Event::AssetPut(_) | Event::AssetDeleted(_) | Event::DocumentErased(_) => {}

        Event::ClusterCreated(e) => cluster_created(state, at, e),
        Event::ClusterUpdated(e) => cluster_updated(state, at, e),
        Event::ClusterDeleteRequested(e) => {
            with_cluster(state, e.id, |cluster| cluster.phase = ClusterPhase::Deleting { since: at });
        }
        Event::ClusterDeleted(e) => cluster_deleted(state, e.id),
        Event::ClusterTarget(e) => cluster_target(state, at, e),

        Event::NodeRequested(e) => node_requested(state, at, e),
        Event::NodeCreating(e) => node_state(
            state,
            at,
            e.id,
            NodeState::Creating { deadline: e.deadline },
            "the provider has begun",
        ),
        Event::NodePreparing(e) => {
            node_state(
                state,
                at,
                e.id,
                NodeState::Preparing { deadline: e.deadline },
                "waiting for its agent",
            );
        }
        Event::NodeReady(e) => {
            let cluster = with_node(state, e.id, |node| {
                node.state = NodeState::Ready;
                node.since = at;
                node.reason = "ready".into();
                node.actual = Some(e.actual);
                node.silent = false;
                node.cluster
            });
            if let Some(cluster) = cluster {
                set_boot(state, cluster, BootHealth::default());
            }
        }
        Event::NodeSilent(e) => {
            with_node(state, e.id, |node| node.silent = true);
        }
        Event::NodeHeard(e) => {
            with_node(state, e.id, |node| node.silent = false);
        }
        Event::NodeLeaving(e) => {
            node_state(state, at, e.id, NodeState::Leaving { deadline: e.deadline }, &e.reason);
        }
        Event::NodeUnusable(e) => {
            node_state(state, at, e.id, NodeState::Unusable { deadline: e.deadline }, &e.reason);
            if let Some(node) = state.nodes.get(&e.id) {
                let cluster = node.cluster;
                let failures = state.clusters.get(&cluster).map_or(0, |c| c.boot.failures) + 1;
                set_boot(
                    state,
                    cluster,
                    BootHealth { failures, last_reason: Some(e.reason.clone()), retry_at: e.retry_at },
                );
            }
        }
        Event::NodeGone(e) => node_gone(state, e.id),

        Event::JobSubmitted(e) => job_submitted(state, at, e),
        Event::JobPlaced(e) => job_placed(state, at, e),
        Event::AttemptStarted(e) => with_attempt(state, e.id, e.attempt, |attempt| {
            attempt.phase = Phase::Running;
            attempt.since = at;
            attempt.last_report = e.report;
            attempt.run_deadline = e.run_deadline;
        }),
        Event::AttemptFinalizing(e) => with_attempt(state, e.id, e.attempt, |attempt| {
            attempt.phase = Phase::Finalizing;
            attempt.since = at;
            attempt.last_report = e.report;
        }),
        Event::AttemptStopRequested(e) => with_attempt(state, e.id, e.attempt, |attempt| {
            attempt.stop = Some(Stop { why: e.why, deadline: e.deadline });
        }),
        Event::RankReported(e) => with_rank(state, e.id, e.attempt, e.rank, |rank| {
            rank.phase = e.phase;
            rank.last_report = e.report;
        }),
        Event::RankEnded(e) => rank_ended(state, at, e),
        Event::JobRequeued(e) => job_requeued(state, at, e),
        Event::JobCancelRequested(e) => {
            with_job(state, e.id, |job| job.cancel = Some(Cancel { at, reason: e.reason.clone() }));
            families::cancel_requested(state, at, e);
        }
        Event::JobEnded(e) => {
            families::ended(state, e);
            job_ended(state, at, e.id);
        }
        Event::FamilyOpened(e) => families::opened(state, at, e),
        Event::FamilyClosing(e) => families::closing(state, e),
        Event::JobReleased(e) => families::released(state, at, e),
        Event::SchedulePut(e) => schedules::put(state, at, e),
        Event::ScheduleDue(e) => schedules::due(state, e),
        Event::ScheduleTriggered(e) => schedules::triggered(state, e),
        Event::ScheduleDeleted(e) => schedules::deleted(state, e),
        Event::QuotaSet(e) => governance::quota_set(state, e),
        Event::QuotaRequested(e) => governance::quota_requested(state, at, e),
        Event::QuotaAnswered(e) => governance::quota_answered(state, at, e),
        Event::LockPut(e) => governance::lock_put(state, at, e),
        Event::LockDeleted(e) => governance::lock_deleted(state, e),
        // Only ended jobs are deleted; their names stay used.
        Event::JobUpdated(_) | Event::JobDeleted(_) => {}
    }
}

fn set_draining(state: &mut State, deadline: Option<Millis>) {
    if let Some(old) = state.draining {
        state.timers.remove(&(old, Timer::Draining));
    }
    if let Some(new) = deadline {
        state.timers.insert((new, Timer::Draining));
    }
    state.draining = deadline;
}

fn workspace_created(state: &mut State, at: Millis, e: &event::WorkspaceCreated) {
    let workspace = Workspace {
        id: e.id,
        subscription: e.subscription.clone(),
        group: e.group.clone(),
        name: e.name.clone(),
        location: e.location.clone(),
        document: e.document,
        created: at,
        modified: at,
        deleting: false,
    };
    state.workspace_names.insert(WorkspaceKey::new(&e.subscription, &e.group, &e.name), e.id);
    state.workspaces.insert(e.id, Arc::new(workspace));
    state.next.workspace = state.next.workspace.max(e.id.next());
}

// ---- clusters

fn cluster_created(state: &mut State, at: Millis, e: &event::ClusterCreated) {
    let cluster = Cluster {
        id: e.id,
        workspace: e.workspace,
        name: e.name.clone(),
        location: e.location.clone(),
        shape: e.shape.clone(),
        network: e.network.clone(),
        scale: e.scale,
        revision: 1,
        document: e.document,
        created: at,
        modified: at,
        phase: ClusterPhase::Live,
        target: 0,
        target_since: at,
        cuts: Vec::new(),
        boot: BootHealth::default(),
        nodes: Default::default(),
        live: 0,
        busy: 0,
        unheard: 0,
        idle: Default::default(),
        open: Default::default(),
        queue: Default::default(),
        waiting: Default::default(),
        active: Default::default(),
    };
    let lower: Arc<str> = e.name.to_lowercase().into();
    state.cluster_names.insert((e.location.clone(), lower.clone()), e.id);
    state.cluster_index.insert((e.workspace, lower), e.id);
    governance::count_held(state, &cluster, 1);
    state.clusters.insert(e.id, Arc::new(cluster));
    state.next.cluster = state.next.cluster.max(e.id.next());
}

fn cluster_updated(state: &mut State, at: Millis, e: &event::ClusterUpdated) {
    let Some(cluster) = state.clusters.get(&e.id).cloned() else { return };
    governance::count_held(state, &cluster, -1);
    // An idle node's timer hangs on the cluster's idle time: take the old ones away, put the new ones in.
    let idle: Vec<NodeId> = cluster.nodes.iter().copied().collect();
    for id in &idle {
        untime_node(state, *id);
    }
    with_cluster(state, e.id, |cluster| {
        cluster.scale = e.scale;
        cluster.revision = e.revision;
        cluster.document = e.document;
        cluster.modified = at;
    });
    for id in &idle {
        time_node(state, *id);
    }
    if let Some(cluster) = state.clusters.get(&e.id).cloned() {
        governance::count_held(state, &cluster, 1);
    }
}

fn cluster_deleted(state: &mut State, id: ClusterId) {
    set_boot(state, id, BootHealth::default());
    if let Some(cluster) = state.clusters.remove(&id) {
        let lower: Arc<str> = cluster.name.to_lowercase().into();
        state.cluster_names.remove(&(cluster.location.clone(), lower.clone()));
        state.cluster_index.remove(&(cluster.workspace, lower));
        state.waiting_for_room.remove(&id);
        governance::count_held(state, &cluster, -1);
        governance::scope_gone(state, &LockScope::Cluster(id));
    }
}

fn cluster_target(state: &mut State, at: Millis, e: &event::ClusterTarget) {
    if e.cuts.iter().any(Cut::is_for_room) {
        state.waiting_for_room.insert(e.id);
    } else {
        state.waiting_for_room.remove(&e.id);
    }
    with_cluster(state, e.id, |cluster| {
        if cluster.target != e.target {
            cluster.target_since = at;
        }
        cluster.target = e.target;
        cluster.cuts.clone_from(&e.cuts);
    });
}

fn set_boot(state: &mut State, id: ClusterId, health: BootHealth) {
    let Some(cluster) = state.clusters.get(&id) else { return };
    if cluster.boot == health {
        return;
    }
    if let Some(old) = cluster.boot.retry_at {
        state.timers.remove(&(old, Timer::Cluster(id)));
    }
    if let Some(new) = health.retry_at {
        state.timers.insert((new, Timer::Cluster(id)));
    }
    with_cluster(state, id, |cluster| cluster.boot = health);
}

fn with_cluster(state: &mut State, id: ClusterId, change: impl FnOnce(&mut Cluster)) {
    if let Some(cluster) = state.clusters.get_mut(&id) {
        change(Arc::make_mut(cluster));
    }
}

// ---- nodes

fn node_requested(state: &mut State, at: Millis, e: &event::NodeRequested) {
    let cluster = state.clusters.get(&e.cluster).cloned();
    let Some(shape) = e.shape.clone().or_else(|| cluster.as_ref().map(|c| c.shape.clone())) else { return };
    if let Some(cluster) = cluster {
        governance::count_node(state, &cluster, &shape, 1);
    }
    let node = Node {
        id: e.id,
        cluster: e.cluster,
        state: NodeState::Requested { deadline: e.deadline },
        since: at,
        reason: e.reason.clone(),
        shape,
        requested: at,
        metered: at,
        caused_by: e.cause.and_then(|job| state.jobs.get(&job)).map(|job| Payer::of(job)),
        last: None,
        nominal: e.nominal,
        actual: None,
        used: Capacity::default(),
        exclusive: false,
        attempts: Vec::new(),
        silent: false,
    };
    state.nodes.insert(e.id, Arc::new(node));
    state.next.node = state.next.node.max(e.id.next());
    state.provided = state.provided.plus(e.nominal);
    with_cluster(state, e.cluster, |cluster| {
        cluster.nodes.insert(e.id);
        cluster.live += 1;
    });
    time_node(state, e.id);
}

fn node_state(state: &mut State, at: Millis, id: NodeId, next: NodeState, reason: &str) {
    with_node(state, id, |node| {
        node.state = next;
        node.since = at;
        node.reason = reason.into();
    });
}

fn node_gone(state: &mut State, id: NodeId) {
    untime_node(state, id);
    let Some(node) = state.nodes.remove(&id) else { return };
    state.provided = state.provided.minus(node.nominal);
    if let Some(cluster) = state.clusters.get(&node.cluster).cloned() {
        governance::count_node(state, &cluster, &node.shape, -1);
    }
    let standing = Standing::of(&node);
    with_cluster(state, node.cluster, |cluster| {
        standing.leave(cluster, id);
        cluster.nodes.remove(&id);
    });
}

/// Changes a node and keeps everything that is counted or timed by it.
fn with_node<T>(state: &mut State, id: NodeId, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
    untime_node(state, id);
    let node = Arc::make_mut(state.nodes.get_mut(&id)?);
    let before = Standing::of(node);
    let result = change(node);
    let after = Standing::of(node);
    let cluster = node.cluster;
    if before != after {
        with_cluster(state, cluster, |cluster| {
            before.leave(cluster, id);
            after.enter(cluster, id);
        });
    }
    time_node(state, id);
    Some(result)
}

/// Where a node stands in its cluster's indices.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing {
    live: bool,
    busy: bool,
    unheard: bool,
    idle: bool,
    open: bool,
}

impl Standing {
    fn of(node: &Node) -> Self {
        let live = node.is_live();
        let busy = live && !node.attempts.is_empty();
        let placeable = matches!(node.state, NodeState::Ready) && !node.silent;
        Self {
            live,
            busy,
            unheard: live && !busy && node.silent,
            idle: placeable && node.attempts.is_empty(),
            open: placeable && busy && !node.exclusive && node.free().cpus_milli > 0,
        }
    }

    fn leave(self, cluster: &mut Cluster, id: NodeId) {
        cluster.live -= u32::from(self.live);
        cluster.busy -= u32::from(self.busy);
        cluster.unheard -= u32::from(self.unheard);
        if self.idle {
            cluster.idle.remove(&id);
        }
        if self.open {
            cluster.open.remove(&id);
        }
    }

    fn enter(self, cluster: &mut Cluster, id: NodeId) {
        cluster.live += u32::from(self.live);
        cluster.busy += u32::from(self.busy);
        cluster.unheard += u32::from(self.unheard);
        if self.idle {
            cluster.idle.insert(id);
        }
        if self.open {
            cluster.open.insert(id);
        }
    }
}

/// When a node next needs a look: its state's deadline, or the end of its idle time.
pub fn node_timer(state: &State, node: &Node) -> Option<Millis> {
    if node.is_idle() {
        let idle_ms = state.clusters.get(&node.cluster)?.scale.idle_ms;
        Some(node.since.plus(idle_ms))
    } else {
        node.state.deadline()
    }
}

fn time_node(state: &mut State, id: NodeId) {
    if let Some(at) = state.nodes.get(&id).and_then(|node| node_timer(state, node)) {
        state.timers.insert((at, Timer::Node(id)));
    }
}

fn untime_node(state: &mut State, id: NodeId) {
    if let Some(at) = state.nodes.get(&id).and_then(|node| node_timer(state, node)) {
        state.timers.remove(&(at, Timer::Node(id)));
    }
}

// ---- jobs

fn job_submitted(state: &mut State, at: Millis, e: &event::JobSubmitted) {
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
        timeout_ms: e.timeout_ms,
        retry: e.retry.clone(),
        attempts_made: 0,
        attempts_lost: 0,
        attempts_preempted: 0,
        attempts_unprepared: 0,
        attempts_failed: 0,
        state: if waits { JobState::Waiting } else { JobState::Queued { since: at, reason: None } },
        cancel: None,
    };
    let key = queue_key(&job);
    state.job_names.insert((e.workspace, NameFingerprint::of(&e.name)), e.id);
    state.jobs.insert(e.id, Arc::new(job));
    state.next.job = state.next.job.max(e.id.next());
    with_cluster(state, e.cluster, |cluster| {
        if waits {
            cluster.waiting.insert(e.id);
        } else {
            cluster.queue.insert(key);
        }
    });
    families::joined(state, e.id, e.family, &e.after);
}

fn job_placed(state: &mut State, at: Millis, e: &event::JobPlaced) {
    let Some(job) = state.jobs.get_mut(&e.id).map(Arc::make_mut) else { return };
    let (key, cluster, need) = (queue_key(job), job.cluster, job.need);
    job.attempts_made = e.attempt;
    job.state = JobState::Active(Attempt {
        number: e.attempt,
        node: e.node,
        phase: Phase::Assigned,
        since: at,
        last_report: 0,
        stop: None,
        run_deadline: None,
        ranks: ranks(e),
        blame: None,
    });
    with_cluster(state, cluster, |cluster| {
        cluster.queue.remove(&key);
        cluster.active.insert(e.id);
    });
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

fn rank_ended(state: &mut State, at: Millis, e: &event::RankEnded) {
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

fn with_rank(state: &mut State, id: JobId, attempt: u32, rank: u32, change: impl FnOnce(&mut Rank)) {
    with_attempt(state, id, attempt, |attempt| {
        if let Some(rank) = attempt.ranks.get_mut(rank as usize) {
            change(rank);
        }
    });
}

fn job_requeued(state: &mut State, at: Millis, e: &event::JobRequeued) {
    release(state, at, e.id);
    let Some(job) = state.jobs.get_mut(&e.id).map(Arc::make_mut) else { return };
    match e.cause {
        Cause::NodeLost => job.attempts_lost += 1,
        Cause::Preempted => job.attempts_preempted += 1,
        Cause::Unprepared => job.attempts_unprepared += 1,
        Cause::ExitCode => job.attempts_failed += 1,
        Cause::ServerStopped => {}
    }
    if planted::is(Bug::RequeueLosesPlace) {
        job.priority = 0;
    }
    job.state = JobState::Queued { since: at, reason: Some(e.reason.clone()) };
    let (key, cluster) = (queue_key(job), job.cluster);
    if planted::is(Bug::DrainLosesJobs) && state.draining.is_some() {
        return;
    }
    with_cluster(state, cluster, |cluster| {
        cluster.queue.insert(key);
    });
}

fn job_ended(state: &mut State, at: Millis, id: JobId) {
    release(state, at, id);
    let Some(job) = state.jobs.remove(&id) else { return };
    let key = queue_key(&job);
    if planted::is(Bug::NameForgotten) {
        state.job_names.remove(&(job.workspace, NameFingerprint::of(&job.name)));
    }
    with_cluster(state, job.cluster, |cluster| {
        cluster.queue.remove(&key);
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
    });
    for node in attempt.nodes_held() {
        leave_node(state, at, &job, node);
    }
}

/// The node's idle time starts anew.
fn leave_node(state: &mut State, at: Millis, job: &Job, node: NodeId) {
    with_node(state, node, |node| {
        node.attempts.retain(|a| a.job != job.id);
        node.last = Some(Payer::of(job));
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

fn with_attempt(state: &mut State, id: JobId, number: u32, change: impl FnOnce(&mut Attempt)) {
    with_job(state, id, |job| {
        if let JobState::Active(attempt) = &mut job.state
            && attempt.number == number
        {
            change(attempt);
        }
    });
}

fn with_job(state: &mut State, id: JobId, change: impl FnOnce(&mut Job)) {
    untime_job(state, id);
    if let Some(job) = state.jobs.get_mut(&id) {
        change(Arc::make_mut(job));
    }
    if let Some(at) = state.jobs.get(&id).and_then(|job| job_timer(job))
        && !planted::is(Bug::TimerMissing)
    {
        state.timers.insert((at, Timer::Job(id)));
    }
}

/// When a job next needs a look: the end of patience with a stop, else of its time to run.
pub fn job_timer(job: &Job) -> Option<Millis> {
    let attempt = job.attempt()?;
    attempt.stop.as_ref().map(|stop| stop.deadline).or(attempt.run_deadline)
}

fn untime_job(state: &mut State, id: JobId) {
    if let Some(at) = state.jobs.get(&id).and_then(|job| job_timer(job)) {
        state.timers.remove(&(at, Timer::Job(id)));
    }
}

pub fn queue_key(job: &Job) -> QueueKey {
    QueueKey { behind: u8::MAX - job.priority, job: job.id }
}
