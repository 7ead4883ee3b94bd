//! Questions about what is committed. Each call takes a connection of its own from a small pool and blocks shortly;
//! none ever waits for the writer, and none can write. No list is longer than [`limits::LIST_ROWS_MAX`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use neap_core::{ClusterId, DocHash, Event, JobId, Millis, NodeId, State, WorkspaceId};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::chain::{Envelope, from_sql, hash, read_events, to_sql};
use crate::charges::{self, ChargeRow};
use crate::costs::{self, CostQuery, CostRow};
use crate::database;
use crate::error::Error;
use crate::limits;
use crate::past::{self, Moment, Reach, Temporary};
use crate::recent::Recent;
use crate::rows::{AssetRow, ClusterRow, JobRow, NodeRow};
use crate::seal::{self, Seal, Sealing};
use crate::upcast;

/// Set once, when damage is found in the older chain: why nothing is written any more.
pub(crate) type Damage = Arc<OnceLock<String>>;

#[derive(Clone, Debug)]
pub struct Reader {
    pool: Arc<Pool>,
    /// Where records and documents are, if elsewhere than the tables: a reader of the past.
    records: Option<Arc<Self>>,
}

#[derive(Debug)]
struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    damage: Damage,
    recent: Recent,
    seal: Sealing,
    /// The file is nobody's but its readers'.
    _temporary: Option<Temporary>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Archived {
    #[default]
    ActiveOnly,
    ArchivedOnly,
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub archived: Archived,
    pub cluster: Option<ClusterId>,
    pub members: Members,
}

/// Jobs within jobs: left out of a listing, in it like any other, or all that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Members {
    #[default]
    Without,
    With,
    Of(JobId),
}

/// One accepted definition of a cluster.
#[derive(Clone, Debug)]
pub struct Revision {
    pub revision: u32,
    pub at: Millis,
    pub actor: String,
    pub event: Event,
}

impl Reader {
    pub(crate) fn new(path: &Path, damage: Damage, recent: Recent) -> Self {
        let pool =
            Pool { path: path.into(), idle: Mutex::default(), damage, recent, seal: None, _temporary: None };
        Self { pool: Arc::new(pool), records: None }
    }

    /// The same log, with documents opened by this seal.
    pub(crate) fn sealed(&self, seal: Arc<dyn Seal>) -> Self {
        let pool = Pool {
            path: self.pool.path.clone(),
            idle: Mutex::default(),
            damage: self.pool.damage.clone(),
            recent: self.pool.recent.clone(),
            seal: Some(seal),
            _temporary: None,
        };
        Self { pool: Arc::new(pool), records: None }
    }

    /// Whether the newest sealed document opens, if there is one.
    pub(crate) fn check_seal(&self) -> Result<(), Error> {
        let newest = self.one(
            "SELECT hash FROM (SELECT hash, salt, body FROM documents ORDER BY rowid DESC LIMIT ?1) \
             WHERE length(salt) = 0 AND body IS NOT NULL LIMIT 1",
            params![limits::SEAL_CHECK_ROWS],
            |row| hash(row, 0).map(DocHash),
        )?;
        newest.map_or(Ok(()), |newest| self.document(&newest).map(drop))
    }

    fn records(&self) -> &Self {
        self.records.as_deref().unwrap_or(self)
    }

    /// The times of the first and of the last record; none in an empty log.
    pub fn reach(&self) -> Result<Option<Reach>, Error> {
        self.records().with(past::reach)
    }

    /// The last record at or before a time; none before the first.
    pub fn record_at(&self, at: Millis) -> Result<Option<u64>, Error> {
        self.records().with(|connection, path| past::record_at(connection, path, at))
    }

    /// Everything as it was after a record, by replay from the first: takes long where the log is.
    pub fn past(&self, seq: u64) -> Result<Moment, Error> {
        let records = self.records();
        let (state, path, temporary) =
            records.with(|connection, path| past::rebuild(connection, path, seq))?;
        let pool = Pool {
            path,
            idle: Mutex::default(),
            damage: records.pool.damage.clone(),
            recent: records.pool.recent.clone(),
            seal: records.pool.seal.clone(),
            _temporary: Some(temporary),
        };
        let reader = Self { pool: Arc::new(pool), records: Some(Arc::new(records.clone())) };
        Ok(Moment { seq, state, reader })
    }

    /// Tells every event up to a record, with the state before it; gives the state after it. Takes long where the log is.
    pub fn replay(&self, seq: u64, see: impl FnMut(&State, Millis, &Event)) -> Result<State, Error> {
        self.records().with(|connection, path| past::replay(connection, path, seq, see))
    }

    /// Why the log takes no writes, if it does not.
    pub fn read_only(&self) -> Option<&str> {
        self.pool.damage.get().map(String::as_str)
    }

    /// `None` if there never was one or if it was erased.
    pub fn document(&self, hash: &DocHash) -> Result<Option<Arc<[u8]>>, Error> {
        if let Some(recent) = self.pool.recent.get(hash) {
            return Ok(Some(recent));
        }
        let found: Option<(Vec<u8>, Option<Vec<u8>>)> = self.records().one(
            "SELECT salt, body FROM documents WHERE hash = ?1",
            params![hash.0],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let Some((salt, Some(body))) = found else { return Ok(None) };
        let (_, body) = seal::from_row(&self.records().pool.seal, hash, salt, body)?;
        Ok(Some(Arc::from(body)))
    }

    /// By name, without regard to case.
    pub fn job(&self, workspace: WorkspaceId, name: &str) -> Result<Option<JobRow>, Error> {
        self.one(
            &format!("SELECT {} FROM jobs WHERE workspace = ?1 AND name_key = ?2", JobRow::COLUMNS),
            params![to_sql(workspace.0), name.to_lowercase()],
            JobRow::read,
        )
    }

    pub fn job_by_id(&self, id: JobId) -> Result<Option<JobRow>, Error> {
        let sql = format!("SELECT {} FROM jobs WHERE id = ?1", JobRow::COLUMNS);
        self.one(&sql, params![to_sql(id.0)], JobRow::read)
    }

    /// Newest first. The id of the last row is the cursor of the next page: jobs that come in meanwhile are before
    /// the first page, and never move another.
    pub fn jobs(
        &self,
        workspace: WorkspaceId,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<JobRow>, Error> {
        let archived = match filter.archived {
            Archived::ActiveOnly => "AND archived = 0",
            Archived::ArchivedOnly => "AND archived = 1",
            Archived::All => "",
        };
        // The planner has no figures to choose by: each filter names the index that makes it quick.
        let (index, cluster) = match (filter.members, filter.cluster, filter.archived) {
            (Members::Of(_), Some(_), _) => ("jobs_by_family", "AND family = ?5 AND cluster = ?4"),
            (Members::Of(_), None, _) => ("jobs_by_family", "AND family = ?5 AND ?4 IS NULL"),
            // A cluster's jobs are those that ran there, within others or not.
            (Members::Without | Members::With, Some(_), _) => {
                ("jobs_by_cluster", "AND cluster = ?4 AND ?5 IS NULL")
            }
            (Members::Without, None, Archived::ArchivedOnly) => {
                ("jobs_archived", "AND family IS NULL AND ?4 IS NULL AND ?5 IS NULL")
            }
            (Members::Without, None, Archived::ActiveOnly | Archived::All) => {
                ("jobs_by_workspace", "AND family IS NULL AND ?4 IS NULL AND ?5 IS NULL")
            }
            (Members::With, None, Archived::ArchivedOnly) => {
                ("jobs_archived", "AND ?4 IS NULL AND ?5 IS NULL")
            }
            (Members::With, None, Archived::ActiveOnly | Archived::All) => {
                ("jobs_by_workspace", "AND ?4 IS NULL AND ?5 IS NULL")
            }
        };
        let sql = format!(
            "SELECT {} FROM jobs INDEXED BY {index} WHERE workspace = ?1 AND id < ?2 {archived} {cluster} \
             ORDER BY id DESC LIMIT ?3",
            JobRow::COLUMNS
        );
        let before = before.map_or(i64::MAX, |id| to_sql(id.0));
        let cluster = filter.cluster.map(|id| to_sql(id.0));
        let family = match filter.members {
            Members::Without | Members::With => None,
            Members::Of(id) => Some(to_sql(id.0)),
        };
        self.all(&sql, params![to_sql(workspace.0), before, bounded(limit), cluster, family], JobRow::read)
    }

    /// The newest completed job that did this work.
    pub fn job_by_work(&self, workspace: WorkspaceId, work: &str) -> Result<Option<JobRow>, Error> {
        let sql = format!(
            "SELECT {} FROM jobs INDEXED BY jobs_by_work WHERE workspace = ?1 AND work = ?2 AND status = 'Completed' \
             ORDER BY id DESC LIMIT 1",
            JobRow::COLUMNS
        );
        self.one(&sql, params![to_sql(workspace.0), work], JobRow::read)
    }

    /// Also one that is gone.
    pub fn node(&self, id: NodeId) -> Result<Option<NodeRow>, Error> {
        let sql = format!("SELECT {} FROM nodes WHERE id = ?1", NodeRow::COLUMNS);
        self.one(&sql, params![to_sql(id.0)], NodeRow::read)
    }

    /// Newest first.
    pub fn nodes(&self, cluster: ClusterId, include_gone: bool, limit: u32) -> Result<Vec<NodeRow>, Error> {
        let present = if include_gone { "" } else { "AND gone IS NULL" };
        let sql = format!(
            "SELECT {} FROM nodes WHERE cluster = ?1 {present} ORDER BY id DESC LIMIT ?2",
            NodeRow::COLUMNS
        );
        self.all(&sql, params![to_sql(cluster.0), bounded(limit)], NodeRow::read)
    }

    /// Every cluster that has or had this name, without regard to case, newest first.
    pub fn cluster_rows(&self, workspace: WorkspaceId, name: &str) -> Result<Vec<ClusterRow>, Error> {
        let sql = format!(
            "SELECT {} FROM clusters WHERE workspace = ?1 AND name_key = ?2 ORDER BY id DESC LIMIT ?3",
            ClusterRow::COLUMNS
        );
        let params = params![to_sql(workspace.0), name.to_lowercase(), limits::LIST_ROWS_MAX];
        self.all(&sql, params, ClusterRow::read)
    }

    pub fn cluster_by_id(&self, id: ClusterId) -> Result<Option<ClusterRow>, Error> {
        let sql = format!("SELECT {} FROM clusters WHERE id = ?1", ClusterRow::COLUMNS);
        self.one(&sql, params![to_sql(id.0)], ClusterRow::read)
    }

    /// Every accepted definition of a cluster, newest first: the records that say so.
    pub fn revisions(&self, cluster: ClusterId, limit: u32) -> Result<Vec<Revision>, Error> {
        let found = self.with(|connection, path| {
            let storage = || Error::storage("reading the revisions of a cluster", path);
            let mut statement = connection
                .prepare_cached(
                    "SELECT id, revision FROM revisions WHERE cluster = ?1 ORDER BY id DESC LIMIT ?2",
                )
                .map_err(storage())?;
            statement
                .query_map(params![to_sql(cluster.0), bounded(limit)], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get(1)?))
                })
                .and_then(Iterator::collect::<rusqlite::Result<Vec<(i64, u32)>>>)
                .map_err(storage())
        })?;
        self.records().with(|connection, path| {
            let mut out = Vec::with_capacity(found.len());
            for (seq, revision) in found {
                let seq = from_sql(seq);
                read_events(connection, path, seq - 1, seq, |record| {
                    let event = upcast::decode(&record.kind, record.version, &record.body)
                        .map_err(|e| Error::damaged(record.seq, e.to_string()))?;
                    out.push(Revision { revision, at: record.at, actor: record.actor.to_string(), event });
                    Ok(())
                })?;
            }
            Ok(out)
        })
    }

    pub fn asset(
        &self,
        workspace: WorkspaceId,
        kind: &str,
        name: &str,
        version: &str,
    ) -> Result<Option<AssetRow>, Error> {
        let sql = format!(
            "SELECT {} FROM assets WHERE workspace = ?1 AND kind = ?2 AND name = ?3 AND version = ?4",
            AssetRow::COLUMNS
        );
        self.one(&sql, params![to_sql(workspace.0), kind, name, version], AssetRow::read)
    }

    /// Newest first, by when each version was first put.
    pub fn asset_versions(
        &self,
        workspace: WorkspaceId,
        kind: &str,
        name: &str,
        limit: u32,
    ) -> Result<Vec<AssetRow>, Error> {
        let sql = format!(
            "SELECT {} FROM assets WHERE workspace = ?1 AND kind = ?2 AND name = ?3 ORDER BY id DESC LIMIT ?4",
            AssetRow::COLUMNS
        );
        self.all(&sql, params![to_sql(workspace.0), kind, name, bounded(limit)], AssetRow::read)
    }

    /// The latest version of each name, by name; the first [`limits::LIST_ROWS_MAX`] names.
    pub fn asset_names(&self, workspace: WorkspaceId, kind: &str) -> Result<Vec<AssetRow>, Error> {
        let sql = format!(
            "SELECT {} FROM assets WHERE id IN \
               (SELECT max(id) FROM assets WHERE workspace = ?1 AND kind = ?2 GROUP BY name ORDER BY name LIMIT ?3) \
             ORDER BY name",
            AssetRow::COLUMNS
        );
        self.all(&sql, params![to_sql(workspace.0), kind, limits::LIST_ROWS_MAX], AssetRow::read)
    }

    /// The newest version with this content hash.
    pub fn asset_by_content(
        &self,
        workspace: WorkspaceId,
        kind: &str,
        content: &str,
    ) -> Result<Option<AssetRow>, Error> {
        let sql = format!(
            "SELECT {} FROM assets WHERE workspace = ?1 AND kind = ?2 AND content = ?3 ORDER BY id DESC LIMIT 1",
            AssetRow::COLUMNS
        );
        self.one(&sql, params![to_sql(workspace.0), kind, content], AssetRow::read)
    }

    /// Sums over the books, the largest first.
    pub fn costs(&self, query: &CostQuery) -> Result<Vec<CostRow>, Error> {
        self.with(|connection, path| {
            costs::sums(connection, query).map_err(Error::storage("reading the costs", path))
        })
    }

    /// The same of what is paid for beside nodes.
    pub fn charges(&self, query: &CostQuery) -> Result<Vec<ChargeRow>, Error> {
        self.with(|connection, path| {
            charges::sums(connection, query).map_err(Error::storage("reading the charges", path))
        })
    }

    /// The records after `after_seq`, oldest first, as they lie there.
    pub fn events(&self, after_seq: u64, limit: u32) -> Result<Vec<Envelope>, Error> {
        let upto = after_seq.saturating_add(u64::from(bounded(limit)));
        self.with(|connection, path| {
            let mut found = Vec::new();
            read_events(connection, path, after_seq, upto, |record| {
                found.push(record);
                Ok(())
            })?;
            Ok(found)
        })
    }

    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        self.with(|connection, path| {
            let mut statement =
                connection.prepare_cached(sql).map_err(Error::storage("asking the log", path))?;
            statement.query_row(params, read).optional().map_err(Error::storage("asking the log", path))
        })
    }

    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        self.with(|connection, path| {
            let storage = || Error::storage("listing from the log", path);
            let mut statement = connection.prepare_cached(sql).map_err(storage())?;
            let rows = statement.query_map(params, read).map_err(storage())?;
            rows.collect::<Result<_, _>>().map_err(storage())
        })
    }

    fn with<T>(&self, ask: impl FnOnce(&Connection, &Path) -> Result<T, Error>) -> Result<T, Error> {
        let idle = || self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => database::open_reader(&self.pool.path)?,
        };
        let answer = ask(&connection, &self.pool.path);
        let mut idle = idle();
        if idle.len() < limits::READERS_KEPT {
            idle.push(connection);
        }
        answer
    }
}

fn bounded(limit: u32) -> u32 {
    limit.min(limits::LIST_ROWS_MAX)
}
