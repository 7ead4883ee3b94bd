//! It happened: the one function that changes a [`State`]. Total, with no policy.
//!
//! An event about something that is not there changes nothing; the invariants would tell.

mod clusters;
mod families;
mod governance;
mod jobs;
mod money;
mod nodes;
mod schedules;
mod windows;

pub use families::family_timer;
pub(crate) use jobs::enqueue;
pub use jobs::{job_timer, queue_key};
pub use money::lease_timer;
pub use nodes::node_timer;

use std::sync::Arc;

use crate::charge;
use crate::cluster::{BootHealth, ClusterPhase};
use crate::event::{self, Event};
use crate::history;
use crate::job::{Cancel, Phase, Stop};
use crate::lock::LockScope;
use crate::meter;
use crate::node::{Cordon, NodeState};
use crate::state::{Group, GroupKey, State, Timer, Workspace, WorkspaceKey};
use crate::units::Millis;

pub fn apply(state: &mut State, at: Millis, event: &Event) {
    let last = state.now;
    state.now = state.now.max(at);
    let settled = money::settle(state, at, event);
    charge::settle(state, at, event);
    for id in meter::ends_slice_of(state, event) {
        if let Some(node) = state.nodes.get_mut(&id).map(Arc::make_mut) {
            node.metered = node.metered.max(at);
        }
    }
    match event {
        Event::ServerStarted(e) => {
            money::server_was_away(state, last, at);
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
        // The tables list assets and documents; nothing here decides on them. What storage costs is settled above.
        Event::StorageMeasured(_)
        | Event::AssetPut(_)
        | Event::AssetDeleted(_)
        | Event::DocumentErased(_) => {}

        Event::ClusterCreated(e) => clusters::created(state, at, e),
        Event::ClusterUpdated(e) => clusters::updated(state, at, e),
        Event::ClusterDeleteRequested(e) => {
            clusters::with_cluster(state, e.id, |cluster| {
                cluster.phase = ClusterPhase::Deleting { since: at }
            });
        }
        Event::ClusterDeleted(e) => clusters::deleted(state, e.id),
        Event::ClusterTarget(e) => clusters::target(state, at, e),

        Event::NodeRequested(e) => nodes::requested(state, at, e),
        Event::NodeCreating(e) => nodes::enter(
            state,
            at,
            e.id,
            NodeState::Creating { deadline: e.deadline },
            "the provider has begun",
        ),
        Event::NodePreparing(e) => {
            nodes::enter(
                state,
                at,
                e.id,
                NodeState::Preparing { deadline: e.deadline },
                "waiting for its agent",
            );
        }
        Event::NodeReady(e) => {
            history::node_ready(state, at, e);
            let cluster = nodes::with_node(state, e.id, |node| {
                node.state = NodeState::Ready;
                node.since = at;
                node.reason = "ready".into();
                node.actual = Some(e.actual);
                node.silent = false;
                node.cluster
            });
            if let Some(cluster) = cluster {
                clusters::set_boot(state, cluster, BootHealth::default());
            }
        }
        Event::NodeSilent(e) => {
            nodes::with_node(state, e.id, |node| node.silent = true);
        }
        Event::NodeHeard(e) => {
            nodes::with_node(state, e.id, |node| node.silent = false);
        }
        Event::NodeLeaving(e) => {
            nodes::enter(state, at, e.id, NodeState::Leaving { deadline: e.deadline }, &e.reason);
        }
        Event::NodeUnusable(e) => {
            nodes::enter(state, at, e.id, NodeState::Unusable { deadline: e.deadline }, &e.reason);
            if let Some(node) = state.nodes.get(&e.id) {
                let cluster = node.cluster;
                let failures = state.clusters.get(&cluster).map_or(0, |c| c.boot.failures) + 1;
                clusters::set_boot(
                    state,
                    cluster,
                    BootHealth { failures, last_reason: Some(e.reason.clone()), retry_at: e.retry_at },
                );
            }
        }
        Event::NodePreempted(e) => {
            nodes::enter(state, at, e.id, NodeState::Preempted { deadline: e.deadline }, &e.reason);
        }
        Event::NodeCordoned(e) => {
            let cordon = Cordon { leave: e.leave, reason: e.reason.clone() };
            nodes::with_node(state, e.id, |node| node.cordon = Some(cordon));
        }
        Event::NodeUncordoned(e) => {
            nodes::with_node(state, e.id, |node| node.cordon = None);
        }
        Event::NodeGone(e) => {
            history::node_gone(state, at, e);
            nodes::gone(state, e.id);
        }

        Event::JobSubmitted(e) => {
            history::job_submitted(state, at, e);
            jobs::submitted(state, at, e);
        }
        Event::JobPlaced(e) => jobs::placed(state, at, e),
        Event::AttemptStarted(e) => jobs::with_attempt(state, e.id, e.attempt, |attempt| {
            attempt.phase = Phase::Running;
            attempt.since = at;
            attempt.last_report = e.report;
            attempt.run_deadline = e.run_deadline;
        }),
        Event::AttemptFinalizing(e) => jobs::with_attempt(state, e.id, e.attempt, |attempt| {
            attempt.phase = Phase::Finalizing;
            attempt.since = at;
            attempt.last_report = e.report;
        }),
        Event::AttemptMeasured(e) => match e.rank {
            None => jobs::with_attempt(state, e.id, e.attempt, |attempt| attempt.last_report = e.report),
            Some(rank) => {
                jobs::with_rank(state, e.id, e.attempt, rank, |rank| rank.last_report = e.report);
            }
        },
        Event::AttemptStopRequested(e) => jobs::with_attempt(state, e.id, e.attempt, |attempt| {
            attempt.stop = Some(Stop { why: e.why, deadline: e.deadline, reason: e.reason.clone() });
        }),
        Event::RankReported(e) => jobs::with_rank(state, e.id, e.attempt, e.rank, |rank| {
            rank.phase = e.phase;
            rank.last_report = e.report;
        }),
        Event::RankEnded(e) => jobs::rank_ended(state, at, e),
        Event::JobRequeued(e) => jobs::requeued(state, at, e),
        Event::JobCancelRequested(e) => {
            jobs::with_job(state, e.id, |job| job.cancel = Some(Cancel { at, reason: e.reason.clone() }));
            families::cancel_requested(state, at, e);
        }
        Event::JobEnded(e) => {
            history::job_ended(state, at, e);
            families::ended(state, e);
            jobs::ended(state, at, e.id);
        }
        Event::FamilyOpened(e) => families::opened(state, at, e),
        Event::FamilyClosing(e) => families::closing(state, e),
        Event::JobReleased(e) => families::released(state, at, e),
        Event::ClusterScheduled(e) => windows::scheduled(state, e),
        Event::WindowPut(e) => windows::put(state, at, e),
        Event::WindowFilled(e) => windows::filled(state, e),
        Event::WindowDeleted(e) => windows::deleted(state, e),
        Event::SchedulePut(e) => schedules::put(state, at, e),
        Event::ScheduleDue(e) => schedules::due(state, e),
        Event::ScheduleTriggered(e) => schedules::triggered(state, e),
        Event::ScheduleDeleted(e) => schedules::deleted(state, e),
        Event::QuotaSet(e) => governance::quota_set(state, e),
        Event::QuotaRequested(e) => governance::quota_requested(state, at, e),
        Event::QuotaAnswered(e) => governance::quota_answered(state, at, e),
        Event::AllowanceSet(e) => governance::allowance_set(state, e),
        Event::LockPut(e) => governance::lock_put(state, at, e),
        Event::LockDeleted(e) => governance::lock_deleted(state, e),
        Event::BudgetPut(e) => money::put(state, at, e),
        Event::BudgetRenewed(e) => money::renewed(state, at, e),
        Event::BudgetDeleted(e) => money::deleted(state, e),
        Event::MoneyLeased(e) => money::leased(state, e),
        // Only ended jobs are deleted; their names stay used.
        Event::JobUpdated(_) | Event::JobDeleted(_) | Event::NodeMetered(_) => {}
    }
    money::reserve(state, &settled);
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
