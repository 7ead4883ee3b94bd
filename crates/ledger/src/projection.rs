//! What an event means for the query tables: one function for each kind that they show. It reads nothing but the
//! tables themselves, so that the same events always make the same rows, and `verify --replay` can compare.

use neap_core::event::{
    AssetDeleted, AssetPut, AttemptFinalizing, AttemptMeasured, AttemptStarted, ClusterCreated,
    ClusterDeleted, DocumentErased, FamilyOpened, JobCancelRequested, JobDeleted, JobEnded, JobPlaced,
    JobReleased, JobRequeued, JobSubmitted, JobUpdated, NodeCreating, NodeGone, NodeLeaving, NodePreparing,
    NodeReady, NodeRequested, NodeUnusable, RankEnded,
};
use neap_core::job::{AttemptFacts, Status};
use neap_core::{ClusterId, Event, JobId, Millis, NodeId};
use rusqlite::{Connection, Params, Result, params};
use serde::Serialize;

use crate::chain::to_sql;

pub(crate) fn project(tables: &Connection, seq: u64, at: Millis, event: &Event) -> Result<()> {
    match event {
        Event::AssetPut(e) => asset_put(tables, seq, at, e),
        Event::AssetDeleted(e) => asset_deleted(tables, e),

        Event::ClusterCreated(e) => {
            revision(tables, seq, e.id, 1)?;
            cluster_created(tables, at, e)
        }
        Event::ClusterUpdated(e) => revision(tables, seq, e.id, e.revision),
        Event::ClusterDeleted(e) => cluster_deleted(tables, at, e),

        Event::NodeRequested(e) => node_requested(tables, at, e),
        Event::NodeCreating(e) => node_creating(tables, at, e),
        Event::NodePreparing(e) => node_preparing(tables, at, e),
        Event::NodeReady(e) => node_ready(tables, at, e),
        Event::NodeLeaving(e) => node_leaving(tables, at, e),
        Event::NodeUnusable(e) => node_unusable(tables, at, e),
        Event::NodePreempted(e) => node_state(tables, at, e.id, "preempted", &e.reason),
        Event::NodeGone(e) => node_gone(tables, at, e),

        Event::JobSubmitted(e) => job_submitted(tables, at, e),
        Event::FamilyOpened(e) => family_opened(tables, at, e),
        Event::JobReleased(e) => job_released(tables, at, e),
        Event::JobUpdated(e) => job_updated(tables, e),
        Event::JobPlaced(e) => job_placed(tables, e),
        Event::AttemptStarted(e) => attempt_started(tables, at, e),
        Event::AttemptMeasured(e) => attempt_measured(tables, e),
        Event::AttemptFinalizing(e) => attempt_finalizing(tables, e),
        Event::RankEnded(e) => rank_ended(tables, at, e),
        Event::JobRequeued(e) => job_requeued(tables, at, e),
        Event::JobCancelRequested(e) => job_cancel_requested(tables, e),
        Event::JobEnded(e) => job_ended(tables, at, e),
        Event::JobDeleted(e) => job_deleted(tables, e),

        // The state has them all, whole: no table shows them.
        Event::ServerStarted(_)
        | Event::ServerDraining(_)
        | Event::GroupPut(_)
        | Event::GroupDeleted(_)
        | Event::WorkspaceCreated(_)
        | Event::WorkspaceUpdated(_)
        | Event::WorkspaceDeleteRequested(_)
        | Event::StorageMeasured(_)
        | Event::ClusterDeleteRequested(_)
        | Event::ClusterTarget(_)
        | Event::NodeSilent(_)
        | Event::NodeHeard(_)
        | Event::NodeCordoned(_)
        | Event::NodeUncordoned(_)
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
        | Event::RankReported(_)
        | Event::AttemptStopRequested(_) => Ok(()),
        // Its rows stay as history under an id that is never used again.
        Event::WorkspaceDeleted(_) => Ok(()),
        // The documents are no query table: see `erase`.
        Event::DocumentErased(_) => Ok(()),
    }
}

/// Not part of the projection, for documents cannot be made again from the log.
pub(crate) fn erase(documents: &Connection, e: &DocumentErased) -> Result<()> {
    run(documents, "UPDATE documents SET body = NULL WHERE hash = ?1", params![e.document.0])
}

fn run(tables: &Connection, sql: &str, params: impl Params) -> Result<()> {
    tables.prepare_cached(sql)?.execute(params)?;
    Ok(())
}

// ---- assets

fn asset_put(tables: &Connection, seq: u64, at: Millis, e: &AssetPut) -> Result<()> {
    run(
        tables,
        "INSERT INTO assets (id, workspace, kind, name, version, document, content, created) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (workspace, kind, name, version) \
         DO UPDATE SET document = excluded.document, content = excluded.content",
        params![
            to_sql(seq),
            to_sql(e.workspace.0),
            e.kind,
            e.name,
            e.version,
            e.document.0,
            e.content,
            to_sql(at.0)
        ],
    )
}

fn asset_deleted(tables: &Connection, e: &AssetDeleted) -> Result<()> {
    run(
        tables,
        "DELETE FROM assets WHERE workspace = ?1 AND kind = ?2 AND name = ?3 AND version = ?4",
        params![to_sql(e.workspace.0), e.kind, e.name, e.version],
    )
}

// ---- clusters

fn cluster_created(tables: &Connection, at: Millis, e: &ClusterCreated) -> Result<()> {
    run(
        tables,
        "INSERT INTO clusters (id, workspace, name, name_key, location, created) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            to_sql(e.id.0),
            to_sql(e.workspace.0),
            e.name,
            e.name.to_lowercase(),
            e.location,
            to_sql(at.0)
        ],
    )
}

fn revision(tables: &Connection, seq: u64, cluster: ClusterId, revision: u32) -> Result<()> {
    run(
        tables,
        "INSERT INTO revisions (id, cluster, revision) VALUES (?1, ?2, ?3)",
        params![to_sql(seq), to_sql(cluster.0), revision],
    )
}

fn cluster_deleted(tables: &Connection, at: Millis, e: &ClusterDeleted) -> Result<()> {
    run(tables, "UPDATE clusters SET deleted = ?2 WHERE id = ?1", params![to_sql(e.id.0), to_sql(at.0)])
}

// ---- nodes

fn node_requested(tables: &Connection, at: Millis, e: &NodeRequested) -> Result<()> {
    run(
        tables,
        "INSERT INTO nodes (id, cluster, state, since, reason, nominal_cpus, nominal_memory, nominal_gpus, created) \
         VALUES (?1, ?2, 'requested', ?3, ?4, ?5, ?6, ?7, ?3)",
        params![
            to_sql(e.id.0),
            to_sql(e.cluster.0),
            to_sql(at.0),
            e.reason,
            e.nominal.cpus_milli,
            to_sql(e.nominal.memory_mb),
            e.nominal.gpus
        ],
    )
}

fn node_creating(tables: &Connection, at: Millis, e: &NodeCreating) -> Result<()> {
    node_state(tables, at, e.id, "creating", "the provider has begun")
}

fn node_preparing(tables: &Connection, at: Millis, e: &NodePreparing) -> Result<()> {
    node_state(tables, at, e.id, "preparing", "waiting for its agent")
}

fn node_ready(tables: &Connection, at: Millis, e: &NodeReady) -> Result<()> {
    run(
        tables,
        "UPDATE nodes SET state = 'ready', since = ?2, reason = 'ready', actual_cpus = ?3, actual_memory = ?4, \
         actual_gpus = ?5, isolation = ?6 WHERE id = ?1",
        params![
            to_sql(e.id.0),
            to_sql(at.0),
            e.actual.cpus_milli,
            to_sql(e.actual.memory_mb),
            e.actual.gpus,
            e.isolation
        ],
    )
}

fn node_leaving(tables: &Connection, at: Millis, e: &NodeLeaving) -> Result<()> {
    node_state(tables, at, e.id, "leaving", &e.reason)
}

fn node_unusable(tables: &Connection, at: Millis, e: &NodeUnusable) -> Result<()> {
    node_state(tables, at, e.id, "unusable", &e.reason)
}

fn node_gone(tables: &Connection, at: Millis, e: &NodeGone) -> Result<()> {
    run(
        tables,
        "UPDATE nodes SET state = 'gone', busy = 0, since = ?2, gone = ?2, reason = ?3 WHERE id = ?1",
        params![to_sql(e.id.0), to_sql(at.0), e.reason],
    )
}

fn node_state(tables: &Connection, at: Millis, id: NodeId, state: &str, reason: &str) -> Result<()> {
    run(
        tables,
        "UPDATE nodes SET state = ?3, since = ?2, reason = ?4 WHERE id = ?1",
        params![to_sql(id.0), to_sql(at.0), state, reason],
    )
}

/// Takes the attempt of a job on one node off it; an idle node's time starts anew.
fn release_node(tables: &Connection, at: Millis, job: JobId) -> Result<()> {
    run(
        tables,
        "UPDATE nodes SET busy = busy - 1, \
           since = CASE WHEN busy = 1 AND state = 'ready' THEN ?2 ELSE since END, \
           reason = CASE WHEN busy = 1 AND state = 'ready' THEN 'idle' ELSE reason END \
         WHERE busy > 0 AND id = (SELECT node FROM jobs WHERE id = ?1 AND ranks IS NULL)",
        params![to_sql(job.0), to_sql(at.0)],
    )
}

/// Takes one rank of a job on several nodes off its node.
fn rank_ended(tables: &Connection, at: Millis, e: &RankEnded) -> Result<()> {
    run(
        tables,
        "UPDATE nodes SET busy = busy - 1, \
           since = CASE WHEN busy = 1 AND state = 'ready' THEN ?2 ELSE since END, \
           reason = CASE WHEN busy = 1 AND state = 'ready' THEN 'idle' ELSE reason END \
         WHERE busy > 0 AND id = ?1",
        params![to_sql(e.node.0), to_sql(at.0)],
    )
}

// ---- jobs

fn job_submitted(tables: &Connection, at: Millis, e: &JobSubmitted) -> Result<()> {
    run(
        tables,
        "INSERT INTO jobs (id, workspace, cluster, cluster_name, name, name_key, owner, status, created, document, meta, family, work) \
         VALUES (?1, ?2, ?3, coalesce((SELECT name FROM clusters WHERE id = ?3), ''), ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            to_sql(e.id.0),
            to_sql(e.workspace.0),
            to_sql(e.cluster.0),
            e.name,
            e.name.to_lowercase(),
            e.owner,
            if e.after.is_empty() { Status::Queued } else { Status::NotStarted }.word(),
            to_sql(at.0),
            e.document.0,
            e.meta.0,
            e.family.map(|family| to_sql(family.0)),
            e.work
        ],
    )
}

fn family_opened(tables: &Connection, at: Millis, e: &FamilyOpened) -> Result<()> {
    let waits = !e.after.is_empty();
    run(
        tables,
        "INSERT INTO jobs (id, workspace, cluster, cluster_name, name, name_key, owner, status, created, started, \
           document, meta, family, is_family) \
         VALUES (?1, ?2, 0, '', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 1)",
        params![
            to_sql(e.id.0),
            to_sql(e.workspace.0),
            e.name,
            e.name.to_lowercase(),
            e.owner,
            if waits { Status::NotStarted } else { Status::Running }.word(),
            to_sql(at.0),
            (!waits).then_some(to_sql(at.0)),
            e.document.0,
            e.meta.0,
            e.family.map(|family| to_sql(family.0))
        ],
    )
}

/// A family runs from here on; a job is queued.
fn job_released(tables: &Connection, at: Millis, e: &JobReleased) -> Result<()> {
    run(
        tables,
        "UPDATE jobs SET status = iif(status = 'CancelRequested', status, iif(is_family, ?2, ?3)), \
         started = iif(is_family, ?4, started) WHERE id = ?1",
        params![to_sql(e.id.0), Status::Running.word(), Status::Queued.word(), to_sql(at.0)],
    )
}

fn job_updated(tables: &Connection, e: &JobUpdated) -> Result<()> {
    run(
        tables,
        "UPDATE jobs SET meta = ?2, archived = ?3 WHERE id = ?1",
        params![to_sql(e.id.0), e.meta.0, e.archived],
    )
}

fn job_placed(tables: &Connection, e: &JobPlaced) -> Result<()> {
    run(
        tables,
        "UPDATE jobs SET status = iif(status = 'CancelRequested', status, ?4), attempt = ?2, node = ?3, \
         started = NULL, facts = NULL, reason = NULL, ranks = ?5 WHERE id = ?1",
        params![to_sql(e.id.0), e.attempt, to_sql(e.node.0), Status::Preparing.word(), ranks(e)?],
    )?;
    for node in std::iter::once(e.node).chain(e.others.iter().copied()) {
        run(
            tables,
            "UPDATE nodes SET busy = busy + 1, reason = 'running' WHERE id = ?1",
            params![to_sql(node.0)],
        )?;
    }
    Ok(())
}

fn ranks(e: &JobPlaced) -> Result<Option<String>> {
    let nodes: Vec<NodeId> = std::iter::once(e.node).chain(e.others.iter().copied()).collect();
    if e.others.is_empty() { Ok(None) } else { json(&nodes).map(Some) }
}

fn attempt_started(tables: &Connection, at: Millis, e: &AttemptStarted) -> Result<()> {
    let facts = if e.facts.is_empty() { None } else { Some(json(&e.facts)?) };
    run(
        tables,
        "UPDATE jobs SET status = iif(status = 'CancelRequested', status, ?4), started = ?3, facts = ?5 \
         WHERE id = ?1 AND attempt = ?2",
        params![to_sql(e.id.0), e.attempt, to_sql(at.0), Status::Running.word(), facts],
    )
}

/// What it used stands beside what it was started with; that of a further rank under a name of its own.
fn attempt_measured(tables: &Connection, e: &AttemptMeasured) -> Result<()> {
    let facts: AttemptFacts = match e.rank.filter(|rank| *rank > 0) {
        None => e.facts.clone(),
        Some(rank) => {
            e.facts.iter().map(|(key, value)| (format!("{key}.rank-{rank}"), value.clone())).collect()
        }
    };
    run(
        tables,
        "UPDATE jobs SET facts = json_patch(coalesce(facts, '{}'), ?3) WHERE id = ?1 AND attempt = ?2",
        params![to_sql(e.id.0), e.attempt, json(&facts)?],
    )
}

fn attempt_finalizing(tables: &Connection, e: &AttemptFinalizing) -> Result<()> {
    run(
        tables,
        "UPDATE jobs SET status = iif(status = 'CancelRequested', status, ?3) WHERE id = ?1 AND attempt = ?2",
        params![to_sql(e.id.0), e.attempt, Status::Finalizing.word()],
    )
}

fn job_requeued(tables: &Connection, at: Millis, e: &JobRequeued) -> Result<()> {
    release_node(tables, at, e.id)?;
    run(
        tables,
        "UPDATE jobs SET status = iif(status = 'CancelRequested', status, ?3), node = NULL, started = NULL, \
         facts = NULL, reason = ?2 WHERE id = ?1",
        params![to_sql(e.id.0), e.reason, Status::Queued.word()],
    )
}

fn job_cancel_requested(tables: &Connection, e: &JobCancelRequested) -> Result<()> {
    run(
        tables,
        "UPDATE jobs SET status = ?3, reason = ?2 WHERE id = ?1",
        params![to_sql(e.id.0), e.reason, Status::CancelRequested.word()],
    )
}

fn job_ended(tables: &Connection, at: Millis, e: &JobEnded) -> Result<()> {
    release_node(tables, at, e.id)?;
    let failure = e.outcome.failure.as_ref();
    run(
        tables,
        "UPDATE jobs SET status = ?2, ended = ?3, failure = ?4, exit = ?5, reason = ?6 WHERE id = ?1",
        params![
            to_sql(e.id.0),
            e.outcome.status.word(),
            to_sql(at.0),
            failure.map(json).transpose()?,
            e.exit.as_ref().map(json).transpose()?,
            failure.map(|f| &*f.message)
        ],
    )
}

fn job_deleted(tables: &Connection, e: &JobDeleted) -> Result<()> {
    run(tables, "DELETE FROM jobs WHERE id = ?1", params![to_sql(e.id.0)])
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))
}
