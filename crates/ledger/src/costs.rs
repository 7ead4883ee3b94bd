//! The books: what the postings of an event mean for the table of costs, and sums over it.

use neap_core::meter::{Cause, Posting, Segment, part_of};
use neap_core::{ClusterId, DocHash, JobId, MicroUsd, Millis, NodeId, WorkspaceId};
use rusqlite::{Connection, Result, Row, params};

use crate::chain::{from_sql, to_sql};
use crate::charges;

/// Ids are the event's number and the place among its postings: more of them than nodes a job can have.
const PARTS_MAX: u64 = 1 << 17;

/// Goes before the event itself is projected, so that tags are those that the time was spent under.
pub(crate) fn post(tables: &Connection, seq: u64, postings: &[Posting]) -> Result<()> {
    for (part, posting) in (0..PARTS_MAX).zip(postings) {
        match posting {
            Posting::Segment(segment) => insert(tables, seq * PARTS_MAX + part, segment)?,
            Posting::Recast { attempt, cause } => {
                tables
                    .prepare_cached(
                        "UPDATE costs SET cause = ?3 WHERE job = ?1 AND attempt = ?2 AND cause IN ('run', 'staging', 'image-pull', 'environment-build')",
                    )?
                    .execute(params![to_sql(attempt.job.0), attempt.number, cause.word()])?;
            }
            Posting::Charge(charge) => charges::insert(tables, seq * PARTS_MAX + part, charge)?,
        }
    }
    Ok(())
}

fn insert(tables: &Connection, id: u64, segment: &Segment) -> Result<()> {
    let payer = segment.payer.as_ref();
    tables
        .prepare_cached(
            "INSERT INTO costs (id, node, cluster, workspace, from_ms, to_ms, micro_usd, cause, job, attempt, owner, meta) \
             VALUES (?1, ?2, ?3, coalesce((SELECT workspace FROM clusters WHERE id = ?3), 0), ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
             (SELECT meta FROM jobs WHERE id = ?8))",
        )?
        .execute(params![
            to_sql(id),
            to_sql(segment.node.0),
            to_sql(segment.cluster.0),
            to_sql(segment.from.0),
            to_sql(segment.to.0),
            to_sql(segment.cost.0),
            segment.cause.word(),
            payer.map(|payer| to_sql(payer.job.0)),
            segment.attempt,
            payer.map(|payer| &*payer.owner),
        ])?;
    Ok(())
}

/// What is asked of the books: a time, and of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostQuery {
    /// One workspace, or all.
    pub workspace: Option<WorkspaceId>,
    pub from: Millis,
    pub to: Millis,
    pub by: CostBy,
    /// What records after this one have closed is open still.
    pub upto_seq: u64,
}

impl CostQuery {
    pub(crate) fn ids_below(&self) -> i64 {
        let next = self.upto_seq.saturating_add(1).saturating_mul(PARTS_MAX);
        to_sql(next.min(i64::MAX.cast_unsigned()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostBy {
    Cluster,
    Job,
    User,
    Cause,
    Node,
    /// One row for each set of tags; whoever asks reads them.
    Meta,
}

impl CostBy {
    pub(crate) const fn column(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Job => "job",
            Self::User => "owner",
            Self::Cause => "cause",
            Self::Node => "node",
            Self::Meta => "meta",
        }
    }
}

/// A sum over the rows that have one thing in common. What it is said by is set, the rest of the first four may not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostRow {
    pub cluster: Option<ClusterId>,
    pub job: Option<JobId>,
    pub user: Option<String>,
    pub cause: Option<Cause>,
    pub node: Option<NodeId>,
    pub meta: Option<DocHash>,
    pub micro_usd: u64,
    pub node_ms: u64,
}

pub(crate) fn sums(tables: &Connection, query: &CostQuery) -> Result<Vec<CostRow>> {
    let column = query.by.column();
    let workspace = query.workspace.map(|id| to_sql(id.0));
    let span = params![workspace, to_sql(query.from.0), to_sql(query.to.0), query.ids_below()];
    let inside = "(?1 IS NULL OR workspace = ?1) AND from_ms >= ?2 AND to_ms <= ?3 AND id < ?4";
    let sql = format!(
        "SELECT {column}, sum(micro_usd), sum(to_ms - from_ms) FROM costs WHERE {inside} GROUP BY {column} ORDER BY 2 DESC"
    );
    let mut statement = tables.prepare_cached(&sql)?;
    let mut rows: Vec<CostRow> =
        statement.query_map(span, |row| of_row(query.by, row))?.collect::<Result<_>>()?;
    // Those that stick out of the time asked for are cut, so that adjoining times sum to the whole.
    let crossing = format!(
        "SELECT {column}, micro_usd, to_ms - from_ms, from_ms, to_ms FROM costs \
         WHERE (?1 IS NULL OR workspace = ?1) AND to_ms > ?2 AND from_ms < ?3 AND (from_ms < ?2 OR to_ms > ?3) \
         AND id < ?4"
    );
    let mut statement = tables.prepare_cached(&crossing)?;
    let cut = statement.query_map(span, |row| {
        let mut cut = of_row(query.by, row)?;
        let (from, to) = (Millis(from_sql(row.get(3)?)), Millis(from_sql(row.get(4)?)));
        let (a, b) = (from.max(query.from), to.min(query.to));
        cut.micro_usd = part_of(MicroUsd(cut.micro_usd), (from, to), (a, b)).0;
        cut.node_ms = b.since(a);
        Ok(cut)
    })?;
    for row in cut {
        add(&mut rows, row?);
    }
    Ok(rows)
}

/// Adds to the row that it has in common, or is a row of its own.
pub fn add(rows: &mut Vec<CostRow>, more: CostRow) {
    let same = |row: &&mut CostRow| {
        CostRow { micro_usd: 0, node_ms: 0, ..(**row).clone() }
            == CostRow { micro_usd: 0, node_ms: 0, ..more.clone() }
    };
    match rows.iter_mut().find(same) {
        Some(row) => {
            row.micro_usd += more.micro_usd;
            row.node_ms += more.node_ms;
        }
        None => rows.push(more),
    }
}

fn of_row(by: CostBy, row: &Row<'_>) -> Result<CostRow> {
    let mut out =
        CostRow { micro_usd: from_sql(row.get(1)?), node_ms: from_sql(row.get(2)?), ..CostRow::default() };
    match by {
        CostBy::Cluster => out.cluster = row.get::<_, Option<i64>>(0)?.map(|id| ClusterId(from_sql(id))),
        CostBy::Job => out.job = row.get::<_, Option<i64>>(0)?.map(|id| JobId(from_sql(id))),
        CostBy::User => out.user = row.get(0)?,
        CostBy::Cause => out.cause = row.get::<_, Option<String>>(0)?.as_deref().and_then(Cause::parse),
        CostBy::Node => out.node = row.get::<_, Option<i64>>(0)?.map(|id| NodeId(from_sql(id))),
        CostBy::Meta => out.meta = row.get::<_, Option<[u8; 32]>>(0)?.map(DocHash),
    }
    Ok(out)
}
