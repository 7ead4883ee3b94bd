//! What committed events say about time and reasons: how long jobs waited and ran, how long nodes took to come, and
//! why they were wanted and went.
//!
//! It remembers when the nodes and attempts that are there began, and nothing else. After a restart it knows the
//! attempts from the state; nodes that were already on their way are not measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use neap_core::health::{cut_word, is_systems_fault};
use neap_core::job::{Cause, JobState, Phase, Status};
use neap_core::node::NodeState;
use neap_core::{AttemptId, ClusterId, Event, JobId, Millis, NodeId, State};
use neap_ledger::Entry;

use crate::metrics::{ClusterMetrics, Metrics};
use crate::trace::Tracer;

#[derive(Debug, Default)]
pub(crate) struct Observer {
    nodes: BTreeMap<NodeId, NodeTimes>,
    running: BTreeMap<JobId, Running>,
    seeded: bool,
}

#[derive(Clone, Copy, Debug)]
struct NodeTimes {
    requested: Millis,
    ready: Option<Millis>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    attempt: u32,
    node: NodeId,
    placed: Millis,
    /// When its process began, once it has.
    started: Option<Millis>,
}

/// A batch being looked at. Jobs that were submitted within it are not in the state before it.
struct Batch<'a> {
    metrics: &'a Metrics,
    before: &'a State,
    submitted: BTreeMap<JobId, (ClusterId, Millis)>,
    tracer: &'a Tracer,
}

impl Batch<'_> {
    fn cluster_of_job(&self, job: JobId) -> Option<Arc<ClusterMetrics>> {
        let id =
            self.before.jobs.get(&job).map(|j| j.cluster).or(self.submitted.get(&job).map(|(c, _)| *c))?;
        self.metrics.cluster(id)
    }

    fn cluster_of_node(&self, node: NodeId) -> Option<Arc<ClusterMetrics>> {
        self.metrics.cluster(self.before.nodes.get(&node)?.cluster)
    }

    /// Since when the job has waited, and when it was submitted.
    fn waited(&self, job: JobId, at: Millis) -> (Millis, Millis) {
        match self.before.jobs.get(&job) {
            Some(found) => match found.state {
                JobState::Queued { since, .. } => (since, found.submitted),
                // It was released and placed within this batch.
                JobState::Waiting => (at, found.submitted),
                // It came back and was placed again within this batch.
                JobState::Active(_) => (at, found.submitted),
            },
            None => (at, self.submitted.get(&job).map_or(at, |(_, when)| *when)),
        }
    }
}

impl Observer {
    pub fn batch(&mut self, metrics: &Metrics, before: &State, entries: &[Entry], tracer: &Tracer) {
        if !self.seeded {
            self.seeded = true;
            self.seed(before);
        }
        let mut batch = Batch { metrics, before, submitted: BTreeMap::new(), tracer };
        for entry in entries {
            self.event(&mut batch, entry.at, &entry.event);
        }
    }

    fn seed(&mut self, state: &State) {
        for job in state.jobs.values() {
            if let Some(attempt) = job.attempt().filter(|a| a.phase == Phase::Running) {
                let running = Running {
                    attempt: attempt.number,
                    node: attempt.node,
                    placed: attempt.since,
                    started: Some(attempt.since),
                };
                self.running.insert(job.id, running);
            }
        }
    }

    fn event(&mut self, batch: &mut Batch<'_>, at: Millis, event: &Event) {
        match event {
            Event::JobSubmitted(e) => {
                batch.submitted.insert(e.id, (e.cluster, at));
                if let Some(cluster) = batch.metrics.cluster(e.cluster) {
                    cluster.jobs_submitted.inc();
                }
            }
            Event::JobPlaced(e) => {
                let running = Running { attempt: e.attempt, node: e.node, placed: at, started: None };
                self.running.insert(e.id, running);
                self.placed(batch, at, e.id, e.attempt, e.node);
            }
            Event::AttemptStarted(e) => {
                if let Some(running) = self.running.get_mut(&e.id) {
                    running.started = Some(at);
                    if let Some(cluster) = batch.cluster_of_job(e.id) {
                        cluster.attempt_staging.observe_ms(at.since(running.placed));
                    }
                }
            }
            Event::JobRequeued(e) => {
                let cluster = batch.cluster_of_job(e.id);
                if let Some(cluster) = &cluster {
                    cluster.jobs_requeued.inc();
                    cluster.jobs_preempted.add(u64::from(e.cause == Cause::Preempted));
                }
                self.attempt_over(batch, at, e.id, cluster.as_deref(), Some(&e.reason));
            }
            Event::JobEnded(e) => {
                let cluster = batch.cluster_of_job(e.id);
                if let Some(cluster) = &cluster {
                    cluster.jobs_ended.inc(&e.outcome.status.word());
                    match (&e.outcome.failure, e.outcome.status) {
                        (_, Status::Completed) => cluster.system_failures.set(0),
                        (Some(failure), Status::Failed) if is_systems_fault(failure.class) => {
                            cluster.system_failures.inc();
                        }
                        _ => {}
                    }
                }
                let failed = e.outcome.failure.as_ref().map(|failure| &*failure.code);
                self.attempt_over(batch, at, e.id, cluster.as_deref(), failed);
            }
            Event::NodeRequested(e) => {
                self.nodes.insert(e.id, NodeTimes { requested: at, ready: None });
                if let Some(cluster) = batch.metrics.cluster(e.cluster) {
                    cluster.nodes_requested.inc(&request_word(&e.reason));
                }
            }
            Event::NodeReady(e) => {
                if let Some(times) = self.nodes.get_mut(&e.id) {
                    times.ready = Some(at);
                    if let Some(cluster) = batch.cluster_of_node(e.id) {
                        cluster.node_boot.observe_ms(at.since(times.requested));
                    }
                }
            }
            Event::NodeUnusable(e) => {
                if let Some(cluster) = batch.cluster_of_node(e.id) {
                    cluster.boot_failures.inc();
                }
            }
            Event::NodePreempted(e) => {
                if let Some(cluster) = batch.cluster_of_node(e.id) {
                    cluster.nodes_preempted.inc();
                }
            }
            Event::NodeSilent(e) => {
                if let Some(cluster) = batch.cluster_of_node(e.id) {
                    cluster.nodes_silenced.inc();
                }
            }
            Event::NodeLeaving(e) => {
                // Past its deadline a node is told again; it leaves once.
                let word = match batch.before.nodes.get(&e.id).map(|node| node.state) {
                    Some(NodeState::Leaving { .. }) => return,
                    Some(NodeState::Unusable { .. }) => "unusable",
                    Some(NodeState::Preempted { .. }) => "preempted",
                    _ => leave_word(&e.reason),
                };
                left(batch, e.id, word);
            }
            Event::NodeGone(e) => {
                self.nodes.remove(&e.id);
                let ready = batch.before.nodes.get(&e.id).is_some_and(|n| n.state == NodeState::Ready);
                if ready {
                    left(batch, e.id, leave_word(&e.reason));
                }
            }
            Event::ClusterTarget(e) => {
                if let Some(cluster) = batch.metrics.cluster(e.id) {
                    for cut in &e.cuts {
                        cluster.target_cuts.inc(&cut_word(cut));
                    }
                }
            }
            Event::ClusterDeleted(e) => batch.metrics.clusters.remove(&e.id),
            Event::ServerStarted(_)
            | Event::ServerDraining(_)
            | Event::GroupPut(_)
            | Event::GroupDeleted(_)
            | Event::WorkspaceCreated(_)
            | Event::WorkspaceUpdated(_)
            | Event::WorkspaceDeleteRequested(_)
            | Event::WorkspaceDeleted(_)
            | Event::StorageMeasured(_)
            | Event::AssetPut(_)
            | Event::AssetDeleted(_)
            | Event::ClusterCreated(_)
            | Event::ClusterUpdated(_)
            | Event::ClusterDeleteRequested(_)
            | Event::NodeCreating(_)
            | Event::NodePreparing(_)
            | Event::NodeHeard(_)
            | Event::NodeCordoned(_)
            | Event::NodeUncordoned(_)
            | Event::JobUpdated(_)
            | Event::AttemptFinalizing(_)
            | Event::FamilyOpened(_)
            | Event::FamilyClosing(_)
            | Event::ClusterScheduled(_)
            | Event::WindowFilled(_)
            | Event::WindowDeleted(_)
            | Event::WindowPut(_)
            | Event::SchedulePut(_)
            | Event::ScheduleDue(_)
            | Event::ScheduleTriggered(_)
            | Event::ScheduleDeleted(_)
            | Event::QuotaSet(_)
            | Event::QuotaRequested(_)
            | Event::QuotaAnswered(_)
            | Event::AllowanceSet(_)
            | Event::LockPut(_)
            | Event::LockDeleted(_)
            | Event::BudgetPut(_)
            | Event::BudgetRenewed(_)
            | Event::BudgetDeleted(_)
            | Event::MoneyLeased(_)
            | Event::NodeMetered(_)
            | Event::JobReleased(_)
            | Event::RankReported(_)
            | Event::RankEnded(_)
            | Event::AttemptStopRequested(_)
            | Event::JobCancelRequested(_)
            | Event::JobDeleted(_)
            | Event::AttemptMeasured(_)
            | Event::DocumentErased(_) => {}
        }
    }

    fn placed(&self, batch: &Batch<'_>, at: Millis, job: JobId, attempt: u32, node: NodeId) {
        let Some(cluster) = batch.cluster_of_job(job) else { return };
        let (since, submitted) = batch.waited(job, at);
        cluster.queue_wait.observe_ms(at.since(since));
        // Only a node that came after the job tells how long a job waits for nodes.
        let ready = self.nodes.get(&node).and_then(|times| times.ready);
        if let Some(ready) = ready.filter(|ready| attempt == 1 && *ready > submitted) {
            cluster.autoscale_delay.observe_ms(ready.since(submitted));
        }
    }

    fn attempt_over(
        &mut self,
        batch: &Batch<'_>,
        at: Millis,
        job: JobId,
        cluster: Option<&ClusterMetrics>,
        failed: Option<&str>,
    ) {
        let Some(running) = self.running.remove(&job) else { return };
        if let (Some(cluster), Some(started)) = (cluster, running.started) {
            cluster.attempt_run.observe_ms(at.since(started));
        }
        let id = AttemptId { job, number: running.attempt };
        batch.tracer.attempt(id, running.node, (running.placed, at), failed);
    }
}

fn left(batch: &Batch<'_>, node: NodeId, word: &'static str) {
    if let Some(cluster) = batch.cluster_of_node(node) {
        cluster.nodes_left.inc(&word);
    }
}

/// Reasons are sentences with figures in them; labels are a closed set of words.
fn request_word(reason: &str) -> &'static str {
    if reason.starts_with("min_instances") {
        "minimum"
    } else if reason.ends_with("wait") || reason.ends_with("waits") {
        "jobs_wait"
    } else {
        "other"
    }
}

fn leave_word(reason: &str) -> &'static str {
    let has = |part: &str| reason.contains(part);
    if reason.starts_with("idle") {
        "idle"
    } else if has("max_instances was lowered") {
        "maximum_lowered"
    } else if has("deleted") {
        "deleted"
    } else if has("stopped") {
        "draining"
    } else if has("did not end when it was told") {
        "stop_overdue"
    } else if has("length of its lease") {
        "lease_ended"
    } else if has("ended") || has("gone") {
        "lost"
    } else {
        "other"
    }
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
