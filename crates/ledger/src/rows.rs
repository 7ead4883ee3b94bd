//! The rows that listings hand out, and how each is read from its table.

use std::error::Error as StdError;

use neap_core::job::{AttemptFacts, Exit, Failure, Job, Status};
use neap_core::{Capacity, ClusterId, DocHash, JobId, Millis, NodeId, WorkspaceId};
use rusqlite::types::Type;
use rusqlite::{Result, Row};
use serde::de::DeserializeOwned;

use crate::chain::{from_sql, hash};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    pub id: JobId,
    pub workspace: WorkspaceId,
    pub cluster: ClusterId,
    /// As it was called at submission; the cluster itself may be gone.
    pub cluster_name: String,
    pub name: String,
    pub owner: String,
    pub status: Status,
    pub created: Millis,
    /// When the last attempt began to run.
    pub started: Option<Millis>,
    pub ended: Option<Millis>,
    /// The last attempt, counted from 1; 0 before the first.
    pub attempt: u32,
    /// Where the last attempt is or was; absent in the queue.
    pub node: Option<NodeId>,
    pub archived: bool,
    pub document: DocHash,
    pub meta: DocHash,
    pub failure: Option<Failure>,
    pub exit: Option<Exit>,
    pub facts: AttemptFacts,
    /// Why it is in this status, where there is more to say than the status.
    pub reason: Option<String>,
    /// The pipeline, sweep or other family that it is part of.
    pub family: Option<JobId>,
    /// Whether it is one itself: then it has no cluster and no attempts.
    pub is_family: bool,
    /// The nodes of the last attempt by rank, where there are several.
    pub ranks: Vec<NodeId>,
}

impl JobRow {
    pub(crate) const COLUMNS: &str = "id, workspace, cluster, cluster_name, name, owner, status, created, started, \
         ended, attempt, node, archived, document, meta, failure, exit, facts, reason, family, is_family, ranks";

    /// The row of a job that has only been submitted, without asking the table; `None` once there is more to tell.
    pub fn submitted(job: &Job, cluster_name: &str, meta: DocHash) -> Option<Self> {
        let untouched = job.attempts_made == 0 && job.status() == Status::Queued;
        untouched.then(|| Self {
            id: job.id,
            workspace: job.workspace,
            cluster: job.cluster,
            cluster_name: cluster_name.into(),
            name: job.name.to_string(),
            owner: job.owner.to_string(),
            status: Status::Queued,
            created: job.submitted,
            started: None,
            ended: None,
            attempt: 0,
            node: None,
            archived: false,
            document: job.document,
            meta,
            failure: None,
            exit: None,
            facts: AttemptFacts::default(),
            reason: None,
            family: job.family,
            is_family: false,
            ranks: Vec::new(),
        })
    }

    pub(crate) fn read(row: &Row<'_>) -> Result<Self> {
        let word: String = row.get(6)?;
        Ok(Self {
            id: JobId(number(row, 0)?),
            workspace: WorkspaceId(number(row, 1)?),
            cluster: ClusterId(number(row, 2)?),
            cluster_name: row.get(3)?,
            name: row.get(4)?,
            owner: row.get(5)?,
            status: Status::parse(&word)
                .ok_or_else(|| unreadable(6, format!("'{word}' is no status").into()))?,
            created: Millis(number(row, 7)?),
            started: number_or_none(row, 8)?.map(Millis),
            ended: number_or_none(row, 9)?.map(Millis),
            attempt: row.get(10)?,
            node: number_or_none(row, 11)?.map(NodeId),
            archived: row.get(12)?,
            document: DocHash(hash(row, 13)?),
            meta: DocHash(hash(row, 14)?),
            failure: json(row, 15)?,
            exit: json(row, 16)?,
            facts: json(row, 17)?.unwrap_or_default(),
            reason: row.get(18)?,
            family: number_or_none(row, 19)?.map(JobId),
            is_family: row.get(20)?,
            ranks: json(row, 21)?.unwrap_or_default(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub id: NodeId,
    pub cluster: ClusterId,
    /// `requested`, `creating`, `preparing`, `idle`, `running`, `leaving`, `unusable` or `gone`.
    pub state: String,
    pub since: Millis,
    pub reason: String,
    pub nominal: Capacity,
    pub actual: Option<Capacity>,
    pub isolation: Option<String>,
    pub created: Millis,
    pub gone: Option<Millis>,
}

impl NodeRow {
    pub(crate) const COLUMNS: &str = "id, cluster, \
         CASE WHEN state <> 'ready' THEN state WHEN busy > 0 THEN 'running' ELSE 'idle' END, since, reason, \
         nominal_cpus, nominal_memory, nominal_gpus, actual_cpus, actual_memory, actual_gpus, isolation, created, gone";

    pub(crate) fn read(row: &Row<'_>) -> Result<Self> {
        let capacity = |first: usize| -> Result<Option<Capacity>> {
            let Some(cpus_milli) = row.get(first)? else { return Ok(None) };
            Ok(Some(Capacity { cpus_milli, memory_mb: number(row, first + 1)?, gpus: row.get(first + 2)? }))
        };
        Ok(Self {
            id: NodeId(number(row, 0)?),
            cluster: ClusterId(number(row, 1)?),
            state: row.get(2)?,
            since: Millis(number(row, 3)?),
            reason: row.get(4)?,
            nominal: capacity(5)?.unwrap_or_default(),
            actual: capacity(8)?,
            isolation: row.get(11)?,
            created: Millis(number(row, 12)?),
            gone: number_or_none(row, 13)?.map(Millis),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRow {
    pub id: ClusterId,
    pub name: String,
    pub location: String,
    pub created: Millis,
    pub deleted: Option<Millis>,
}

impl ClusterRow {
    pub(crate) const COLUMNS: &str = "id, name, location, created, deleted";

    pub(crate) fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: ClusterId(number(row, 0)?),
            name: row.get(1)?,
            location: row.get(2)?,
            created: Millis(number(row, 3)?),
            deleted: number_or_none(row, 4)?.map(Millis),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetRow {
    pub workspace: WorkspaceId,
    pub kind: String,
    pub name: String,
    pub version: String,
    pub document: DocHash,
    pub content: Option<String>,
    /// When this version was first put.
    pub created: Millis,
}

impl AssetRow {
    pub(crate) const COLUMNS: &str = "workspace, kind, name, version, document, content, created";

    pub(crate) fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            workspace: WorkspaceId(number(row, 0)?),
            kind: row.get(1)?,
            name: row.get(2)?,
            version: row.get(3)?,
            document: DocHash(hash(row, 4)?),
            content: row.get(5)?,
            created: Millis(number(row, 6)?),
        })
    }
}

fn number(row: &Row<'_>, column: usize) -> Result<u64> {
    row.get(column).map(from_sql)
}

fn number_or_none(row: &Row<'_>, column: usize) -> Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(from_sql))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>> {
    let Some(text) = row.get::<_, Option<String>>(column)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|e| unreadable(column, e.into()))
}

fn unreadable(column: usize, why: Box<dyn StdError + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why)
}
