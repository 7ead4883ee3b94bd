//! Taking a node back, for practice or on somebody's word; and what is kept of a job between its attempts.
//!
//! A simulation is decided by the same code on the same state, and dropped.

use axum::http::StatusCode;
use axum::response::Response;
use neap_control::CheckpointRecord;
use neap_core::cluster::Tier;
use neap_core::decide::decide;
use neap_core::event::{AttemptStopRequested, NodePreempted};
use neap_core::job::{Phase, StopReason};
use neap_core::lock::{self, Act, LockScope};
use neap_core::state::Workspace;
use neap_core::{Code, Command, Event, Millis, NodeId, Refusal, State};
use neap_ledger::JobRow;
use serde_json::{Value, json};

use super::nodes::node_id;
use crate::app::{App, unreadable};
use crate::arm::{errors, find_job};
use crate::ask::Ask;
use crate::fields::Fields;
use crate::{checkpoints, limits, reply};

const KEYS: &[&str] = &["node", "grace_seconds", "simulate", "reason"];

#[derive(Debug)]
struct Asked {
    /// By default the one with the most to lose.
    node: Option<NodeId>,
    grace_seconds: f64,
    simulate: bool,
    reason: Option<String>,
}

pub(crate) async fn post(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let state = app.state();
    let Some(cluster) = state.cluster(workspace.id, name) else {
        return Err(errors::not_found("Compute", name));
    };
    let asked = read(&ask.json()?)?;
    if !asked.simulate {
        lock::check(&state, &LockScope::Cluster(cluster.id), Act::Change)?;
    }
    let command = Command::Evict {
        cluster: cluster.id,
        node: asked.node,
        grace_ms: (asked.grace_seconds * 1000.0) as u64,
        reason: asked.reason.unwrap_or_else(|| format!("{} took it back", ask.caller.actor)).into(),
    };
    let now = app.now();
    let events = if asked.simulate {
        decide(&state, command, now)?
    } else {
        app.submit(&ask.caller, command, Vec::new()).await?
    };
    let taken = events.iter().find_map(|event| match event {
        Event::NodePreempted(e) => Some(e),
        _ => None,
    });
    let Some(taken) = taken else {
        return Err(Refusal::because(
            Code::ResourceBeingDeleted,
            "The node is on its way out already; nothing was done.",
        ));
    };
    let mut jobs = Vec::new();
    for event in &events {
        if let Event::AttemptStopRequested(stop) = event
            && stop.why == StopReason::Preempt
        {
            jobs.extend(interrupted(app, &state, stop, now).await?);
        }
    }
    let answer = json!({
        "cluster": name,
        "node": format!("n-{}", taken.id),
        "tier": state.nodes.get(&taken.id).map(|node| node.shape.tier.canonical()),
        "simulated": asked.simulate,
        "at": now.rfc3339(),
        "at_unix_ms": now.0,
        "deadline": taken.deadline.rfc3339(),
        "grace_seconds": asked.grace_seconds,
        "jobs": jobs,
        "notes": notes(&state, taken, jobs.is_empty()),
    });
    Ok(if asked.simulate { reply::ok(&answer) } else { reply::json(StatusCode::ACCEPTED, &answer) })
}

fn read(body: &Value) -> Result<Asked, Refusal> {
    let mut problems = Vec::new();
    let fields = Fields::of(Some(body), "", &mut problems);
    fields.only(KEYS, &[], "a drill", &mut problems);
    let node = fields.text("node", &mut problems).and_then(|text| {
        let node = node_id(text);
        if node.is_none() {
            problems.push(errors::bad(format!("'{text}' does not name a node, as n-3 does."), "node"));
        }
        node
    });
    let grace_seconds = fields.number("grace_seconds", &mut problems).unwrap_or(limits::EVICTION_GRACE_S);
    let most = limits::EVICTION_GRACE_S_MAX;
    if !(0.0..=most).contains(&grace_seconds) {
        let message = format!("grace_seconds must be between 0 and {most}.");
        problems.push(errors::bad(message, "grace_seconds"));
    }
    let simulate = fields.flag("simulate", &mut problems).unwrap_or(false);
    let reason = fields.text("reason", &mut problems).map(str::to_owned);
    Refusal::unless_empty(problems)?;
    Ok(Asked { node, grace_seconds, simulate, reason })
}

fn notes(state: &State, taken: &NodePreempted, nothing_on_it: bool) -> Vec<&'static str> {
    let mut out = Vec::new();
    let tier = state.nodes.get(&taken.id).map(|node| node.shape.tier);
    if tier == Some(Tier::Dedicated) {
        out.push("The node is dedicated: nobody takes it back but on somebody's word, as now.");
    }
    if nothing_on_it {
        out.push("Nothing runs on the node.");
    }
    out
}

/// What is on the node and would be, or is, interrupted.
async fn interrupted(
    app: &App,
    state: &State,
    stop: &AttemptStopRequested,
    now: Millis,
) -> Result<Option<Value>, Refusal> {
    let Some(row) = app.control.reader().job_by_id(stop.id).map_err(unreadable)? else { return Ok(None) };
    let attempt = state.jobs.get(&stop.id).and_then(|job| job.attempt().cloned());
    let runs = attempt.as_ref().is_some_and(|attempt| attempt.phase != Phase::Assigned);
    let started = row.started.filter(|_| runs);
    let kept = checkpoints::records(app, &row).await?;
    let nodes: Vec<String> =
        attempt.iter().flat_map(|attempt| attempt.nodes()).map(|node| format!("n-{node}")).collect();
    Ok(Some(json!({
        "job": row.name,
        "attempt": stop.attempt,
        "status": row.status.word(),
        "nodes": nodes,
        "started": started.map(Millis::rfc3339),
        "checkpoint": kept.iter().map(|(rank, record)| told(*rank, record)).collect::<Vec<_>>(),
        "unsaved_seconds": started.map(|started| unsaved_seconds(started, &kept, now)),
    })))
}

/// Work that is in no saved checkpoint: since the oldest of the ranks' last changes, or since it began.
fn unsaved_seconds(started: Millis, kept: &[(u32, CheckpointRecord)], now: Millis) -> f64 {
    let changed = kept.iter().map(|(_, record)| record.changed_unix_ms.unwrap_or(0)).min().unwrap_or(0);
    now.since(started.max(Millis(changed))) as f64 / 1000.0
}

fn told(rank: u32, record: &CheckpointRecord) -> Value {
    let at = |ms: u64| Millis(ms).rfc3339();
    json!({
        "rank": rank,
        "attempt": record.attempt,
        "saved": at(record.saved_unix_ms),
        "changed": record.changed_unix_ms.map(at),
        "ended": record.ended_unix_ms.map(at),
        "files": record.files.len(),
        "bytes": record.bytes(),
        "lost_seconds": record.lost_ms().map(|ms| ms as f64 / 1000.0),
    })
}

/// `GET jobs/{job}/checkpoint`
pub(crate) async fn checkpoint(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let row: JobRow = find_job(app, workspace, name)?;
    let kept = if row.status.is_final() { Vec::new() } else { checkpoints::records(app, &row).await? };
    let node = |id: &NodeId| format!("n-{id}");
    let nodes: Vec<String> = if row.ranks.is_empty() {
        row.node.iter().map(node).collect()
    } else {
        row.ranks.iter().map(node).collect()
    };
    Ok(reply::ok(&json!({
        "job": row.name,
        "status": row.status.word(),
        "attempt": row.attempt,
        "nodes": nodes,
        "started": row.started.map(Millis::rfc3339),
        "started_unix_ms": row.started.map(|at| at.0),
        "reason": row.reason,
        "restored": row.facts.get("neap.checkpoint.restored"),
        "lost_seconds": row.facts.get("neap.checkpoint.lostSeconds").and_then(|text| text.parse::<f64>().ok()),
        "lost_by_attempt": row.facts.get("neap.checkpoint.lostByAttempt").and_then(|text| text.parse::<u32>().ok()),
        "checkpoint": kept.iter().map(|(rank, record)| told(*rank, record)).collect::<Vec<_>>(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_saved_counts_from_the_last_change_or_the_start() {
        let kept = |changed| CheckpointRecord { changed_unix_ms: changed, ..CheckpointRecord::default() };
        let (started, now) = (Millis(10_000), Millis(20_000));
        for (records, seconds) in [
            (vec![], 10.0),
            (vec![kept(Some(18_500))], 1.5),
            (vec![kept(Some(18_500)), kept(Some(17_000))], 3.0),
            (vec![kept(Some(5_000))], 10.0),
            (vec![kept(Some(18_500)), kept(None)], 10.0),
        ] {
            let records: Vec<_> = (0..).zip(records).collect();
            assert_eq!(unsaved_seconds(started, &records, now), seconds, "{records:?}");
        }
    }
}
