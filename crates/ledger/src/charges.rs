//! The books beside nodes: what storage and transfer cost, and sums over it.

use std::collections::BTreeMap;

use neap_core::charge::{Charge, ChargeKind};
use neap_core::meter::part_of;
use neap_core::{MicroUsd, Millis};
use rusqlite::types::Value;
use rusqlite::{Connection, Result, params};

use crate::chain::{from_sql, to_sql};
use crate::costs::{CostBy, CostQuery};

pub(crate) fn insert(tables: &Connection, id: u64, charge: &Charge) -> Result<()> {
    let (job, owner) = match &charge.payer {
        Some((job, owner)) => (Some(to_sql(job.0)), Some(&**owner)),
        None => (None, None),
    };
    tables
        .prepare_cached(
            "INSERT INTO charges (id, workspace, kind, from_ms, to_ms, micro_usd, bytes, cluster, job, owner, meta) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, (SELECT meta FROM jobs WHERE id = ?9))",
        )?
        .execute(params![
            to_sql(id),
            to_sql(charge.workspace.0),
            charge.kind.word(),
            to_sql(charge.from.0),
            to_sql(charge.to.0),
            to_sql(charge.cost.0),
            to_sql(charge.bytes),
            charge.cluster.map(|cluster| to_sql(cluster.0)),
            job,
            owner,
        ])?;
    Ok(())
}

/// A sum over what has one thing in common.
#[derive(Clone, Debug, PartialEq)]
pub struct ChargeRow {
    pub kind: ChargeKind,
    /// What it is by: the id of a cluster or job, an owner, a set of tags; nothing where nobody but the workspace pays.
    pub key: ChargeKey,
    pub micro_usd: u64,
    pub bytes: u128,
    /// Bytes times the milliseconds that they were kept.
    pub byte_ms: u128,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChargeKey {
    Nobody,
    Id(u64),
    Text(String),
    Hash([u8; 32]),
}

impl ChargeKey {
    fn of(value: Value) -> Self {
        match value {
            Value::Null | Value::Real(_) => Self::Nobody,
            Value::Integer(id) => Self::Id(from_sql(id)),
            Value::Text(text) => Self::Text(text),
            Value::Blob(bytes) => <[u8; 32]>::try_from(bytes).map_or(Self::Nobody, Self::Hash),
        }
    }
}

pub(crate) fn sums(tables: &Connection, query: &CostQuery) -> Result<Vec<ChargeRow>> {
    let key = match query.by {
        CostBy::Cause | CostBy::Node => "NULL",
        by => by.column(),
    };
    let sql = format!(
        "SELECT kind, {key}, from_ms, to_ms, micro_usd, bytes FROM charges \
         WHERE (?1 IS NULL OR workspace = ?1) AND to_ms >= ?2 AND from_ms < ?3 AND id < ?4"
    );
    let workspace = query.workspace.map(|id| to_sql(id.0));
    let mut statement = tables.prepare_cached(&sql)?;
    let mut rows =
        statement.query(params![workspace, to_sql(query.from.0), to_sql(query.to.0), query.ids_below()])?;
    let mut sums: BTreeMap<(ChargeKind, ChargeKey), (u64, u128, u128)> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let Some(kind) = ChargeKind::parse(&row.get::<_, String>(0)?) else { continue };
        let (from, to) = (Millis(from_sql(row.get(2)?)), Millis(from_sql(row.get(3)?)));
        let (cost, bytes) = (from_sql(row.get(4)?), from_sql(row.get(5)?));
        add(&mut sums, (kind, ChargeKey::of(row.get(1)?)), query, (from, to), (cost, bytes));
    }
    Ok(of(sums))
}

type Sums = BTreeMap<(ChargeKind, ChargeKey), (u64, u128, u128)>;

fn add(
    sums: &mut Sums,
    key: (ChargeKind, ChargeKey),
    query: &CostQuery,
    (from, to): (Millis, Millis),
    (cost, bytes): (u64, u64),
) {
    let (a, b) = (from.max(query.from), to.min(query.to));
    // What has no length is there or not; the rest is cut.
    let (cost, ms) =
        if from == to { (cost, 0) } else { (part_of(MicroUsd(cost), (from, to), (a, b)).0, b.since(a)) };
    if from != to && ms == 0 {
        return;
    }
    let sum = sums.entry(key).or_default();
    sum.0 += cost;
    sum.1 += u128::from(bytes);
    sum.2 += u128::from(bytes) * u128::from(ms);
}

fn of(sums: Sums) -> Vec<ChargeRow> {
    sums.into_iter()
        .map(|((kind, key), (micro_usd, bytes, byte_ms))| ChargeRow { kind, key, micro_usd, bytes, byte_ms })
        .collect()
}

/// What is not on the books yet, added to what is.
pub fn with_open(rows: Vec<ChargeRow>, query: &CostQuery, open: &[Charge]) -> Vec<ChargeRow> {
    let mut sums: Sums =
        rows.into_iter().map(|row| ((row.kind, row.key), (row.micro_usd, row.bytes, row.byte_ms))).collect();
    for charge in open {
        if query.workspace.is_some_and(|id| id != charge.workspace) {
            continue;
        }
        let key = (charge.kind, ChargeKey::Nobody);
        add(&mut sums, key, query, (charge.from, charge.to), (charge.cost.0, charge.bytes));
    }
    of(sums)
}
