//! `cost`: what the nodes of a workspace cost, by whom and for what, to the micro-dollar.
//!
//! The books hold what is closed; what runs now is counted up to now, so that the sum is the bill at any moment.

use std::collections::BTreeMap;

use axum::response::Response;
use jiff::Timestamp;
use neap_core::charge::{self, ChargeKind};
use neap_core::documents::JobMeta;
use neap_core::meter::{self, Segment};
use neap_core::state::Workspace;
use neap_core::{ClusterId, Code, DocHash, JobId, Millis, Problem, Refusal, State};
use neap_ledger::{ChargeKey, ChargeRow, CostBy, CostQuery, CostRow, add_cost, with_open_charges};
use serde_json::{Value, json};

use crate::app::{App, unreadable};
use crate::ask::Ask;
use crate::reply;

/// What one who asks wants to see sums by.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Plain(CostBy),
    Tag(String),
}

pub(crate) fn get(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let ((state, upto_seq), now) = (app.control.state_and_seq(), app.now());
    let mut problems = Vec::new();
    let by = by(ask.query.get("by").unwrap_or("cluster"), &mut problems);
    let from = time(ask, "from", workspace.created, &mut problems);
    let to = time(ask, "to", now, &mut problems).min(now);
    if from > to && ask.query.get("from").is_some() {
        let message = format!("From {} to {} is no time at all.", from.rfc3339(), to.rfc3339());
        problems.push(Problem::new(Code::BadArgument, message).at("from"));
    }
    Refusal::unless_empty(problems)?;
    let Some(by) = by else { return Err(Refusal::because(Code::BadArgument, "'by' is not known.")) };
    let columns = match &by {
        By::Plain(by) => *by,
        By::Tag(_) => CostBy::Meta,
    };
    let query = CostQuery { workspace: Some(workspace.id), from, to, by: columns, upto_seq };
    let mut rows = app.control.reader().costs(&query).map_err(unreadable)?;
    for segment in meter::open_between(&state, from, to) {
        if let Some(row) = open_row(app, &state, workspace, &query, &segment)? {
            add_cost(&mut rows, row);
        }
    }
    let total: u64 = rows.iter().map(|row| row.micro_usd).sum();
    let mut named: BTreeMap<Option<String>, (u64, u64)> = BTreeMap::new();
    for row in &rows {
        let sum = named.entry(name(app, &by, row)?).or_default();
        *sum = (sum.0 + row.micro_usd, sum.1 + row.node_ms);
    }
    let mut rows: Vec<_> = named.into_iter().collect();
    rows.sort_by_key(|(_, (micro_usd, _))| std::cmp::Reverse(*micro_usd));
    let shown: Vec<Value> = rows
        .into_iter()
        .map(|(name, (micro_usd, node_ms))| {
            json!({"name": name, "micro_usd": micro_usd, "usd": usd(micro_usd), "node_ms": node_ms})
        })
        .collect();
    Ok(reply::ok(&json!({
        "from": from.rfc3339(), "to": to.rfc3339(), "currency": "USD",
        "total_micro_usd": total, "total_usd": usd(total), "rows": shown,
        "beside": beside(app, &state, &by, &query, now)?,
    })))
}

/// What storage and transfer cost in the time: never among what nodes cost.
fn beside(app: &App, state: &State, by: &By, query: &CostQuery, now: Millis) -> Result<Value, Refusal> {
    let rows = app.control.reader().charges(query).map_err(unreadable)?;
    let rows = with_open_charges(rows, query, &charge::open(state, now));
    let priced = |kind: ChargeKind| match kind {
        ChargeKind::Storage => state.settings.charges.storage_gb_month.0 > 0,
        ChargeKind::Transfer => state.settings.charges.transfer_gb.0 > 0,
    };
    let mut named: BTreeMap<(ChargeKind, Option<String>), (u64, f64)> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.micro_usd > 0 || priced(row.kind)) {
        let gigabytes = match row.kind {
            ChargeKind::Storage => row.byte_ms as f64 / charge::MONTH_MS as f64 / charge::GIGABYTE as f64,
            ChargeKind::Transfer => row.bytes as f64 / charge::GIGABYTE as f64,
        };
        let sum = named.entry((row.kind, charged(app, by, row)?)).or_default();
        *sum = (sum.0 + row.micro_usd, sum.1 + gigabytes);
    }
    let total: u64 = named.values().map(|(micro_usd, _)| micro_usd).sum();
    let rows: Vec<Value> = named
        .into_iter()
        .map(|((kind, name), (micro_usd, quantity))| {
            let unit = match kind {
                ChargeKind::Storage => "GB-month",
                ChargeKind::Transfer => "GB",
            };
            json!({"kind": kind.word(), "name": name, "micro_usd": micro_usd, "usd": usd(micro_usd),
                "quantity": quantity, "unit": unit})
        })
        .collect();
    Ok(json!({"total_micro_usd": total, "total_usd": usd(total), "rows": rows}))
}

/// What such a row is called: storage is the workspace's, and nobody's in it.
fn charged(app: &App, by: &By, row: &ChargeRow) -> Result<Option<String>, Refusal> {
    let mut as_cost = CostRow::default();
    match (by, &row.key) {
        (By::Plain(CostBy::Cause | CostBy::Node), _) => return Ok(Some(row.kind.word().into())),
        (_, ChargeKey::Nobody) => return Ok(None),
        (_, ChargeKey::Id(id)) => {
            (as_cost.cluster, as_cost.job) = (Some(ClusterId(*id)), Some(JobId(*id)));
        }
        (_, ChargeKey::Text(text)) => as_cost.user = Some(text.clone()),
        (_, ChargeKey::Hash(hash)) => as_cost.meta = Some(DocHash(*hash)),
    }
    name(app, by, &as_cost)
}

/// What a cluster has cost from its beginning to a time.
pub(super) fn spent(
    app: &App,
    workspace: &Workspace,
    cluster: ClusterId,
    to: Millis,
) -> Result<String, Refusal> {
    let (state, upto_seq) = app.control.state_and_seq();
    let by = CostBy::Cluster;
    let query = CostQuery { workspace: Some(workspace.id), from: Millis(0), to, by, upto_seq };
    let mut rows = app.control.reader().costs(&query).map_err(unreadable)?;
    for segment in meter::open(&state, to) {
        if let Some(row) = open_row(app, &state, workspace, &query, &segment)? {
            add_cost(&mut rows, row);
        }
    }
    Ok(usd(rows.iter().filter(|row| row.cluster == Some(cluster)).map(|row| row.micro_usd).sum()))
}

/// Exact: six places after the point, as text.
pub(super) fn usd(micro_usd: u64) -> String {
    format!("{}.{:06}", micro_usd / 1_000_000, micro_usd % 1_000_000)
}

fn by(word: &str, problems: &mut Vec<Problem>) -> Option<By> {
    let plain = match word {
        "cluster" => CostBy::Cluster,
        "job" => CostBy::Job,
        "user" => CostBy::User,
        "cause" => CostBy::Cause,
        "node" => CostBy::Node,
        _ => match word.strip_prefix("tag:").filter(|tag| !tag.is_empty()) {
            Some(tag) => return Some(By::Tag(tag.into())),
            None => {
                let message = format!(
                    "Cost is summed by cluster, job, user, cause, node or tag:NAME, not by '{word}'."
                );
                problems.push(Problem::new(Code::BadArgument, message).at("by"));
                return None;
            }
        },
    };
    Some(By::Plain(plain))
}

pub(super) fn time(ask: &Ask, key: &str, default: Millis, problems: &mut Vec<Problem>) -> Millis {
    let Some(text) = ask.query.get(key) else { return default };
    let parsed = text.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
    if parsed.is_none() {
        let message = format!("'{text}' is not a time such as 2026-11-01T00:00:00Z.");
        problems.push(Problem::new(Code::BadArgument, message).at(key));
    }
    parsed.map_or(default, Millis)
}

/// A slice that is still open.
fn open_row(
    app: &App,
    state: &State,
    workspace: &Workspace,
    query: &CostQuery,
    segment: &Segment,
) -> Result<Option<CostRow>, Refusal> {
    let here = state.clusters.get(&segment.cluster).is_some_and(|cluster| cluster.workspace == workspace.id);
    if !here {
        return Ok(None);
    }
    let job = segment.payer.as_ref().map(|payer| payer.job);
    let mut row =
        CostRow { micro_usd: segment.cost.0, node_ms: segment.to.since(segment.from), ..CostRow::default() };
    match query.by {
        CostBy::Cluster => row.cluster = Some(segment.cluster),
        CostBy::Job => row.job = job,
        CostBy::User => row.user = segment.payer.as_ref().map(|payer| payer.owner.to_string()),
        CostBy::Cause => row.cause = Some(segment.cause),
        CostBy::Node => row.node = Some(segment.node),
        CostBy::Meta => {
            if let Some(job) = job {
                row.meta = app.control.reader().job_by_id(job).map_err(unreadable)?.map(|row| row.meta);
            }
        }
    }
    Ok(Some(row))
}

/// What a row is called; nothing where nobody but the cluster pays.
fn name(app: &App, by: &By, row: &CostRow) -> Result<Option<String>, Refusal> {
    let reader = app.control.reader();
    Ok(match by {
        By::Plain(CostBy::Cluster) => match row.cluster {
            Some(id) => reader.cluster_by_id(id).map_err(unreadable)?.map(|cluster| cluster.name),
            None => None,
        },
        By::Plain(CostBy::Job) => match row.job {
            Some(id) => {
                let job = reader.job_by_id(id).map_err(unreadable)?;
                Some(job.map_or_else(|| format!("job {id}, deleted"), |job| job.name))
            }
            None => None,
        },
        By::Plain(CostBy::User) => row.user.clone(),
        By::Plain(CostBy::Cause) => row.cause.map(|cause| cause.word().into()),
        By::Plain(CostBy::Node) => row.node.map(|id| format!("n-{id}")),
        By::Plain(CostBy::Meta) => None,
        By::Tag(tag) => match &row.meta {
            Some(meta) => app.document::<JobMeta>(meta)?.tags.get(tag).cloned(),
            None => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_written_exactly() {
        assert_eq!(usd(0), "0.000000");
        assert_eq!(usd(12_345_678), "12.345678");
    }

    #[test]
    fn what_sums_are_by_is_read_or_refused() {
        let mut problems = Vec::new();
        assert_eq!(by("tag:team", &mut problems), Some(By::Tag("team".into())));
        assert_eq!(by("user", &mut problems), Some(By::Plain(CostBy::User)));
        assert!(problems.is_empty());
        assert_eq!(by("tag:", &mut problems), None);
        assert!(problems[0].message.contains("tag:NAME"));
    }
}
