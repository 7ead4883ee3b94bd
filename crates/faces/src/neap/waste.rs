//! `waste`: which setting would have saved money in a time, by replay of the log.
//!
//! The log is read once, and the work of each cluster asked about is run again under other settings; nothing is changed.
//! That takes a while, so one question is answered at a time, and a log beyond a bound is refused.

use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::waste::{self, Course, Finding, Record, Recorder};
use neap_core::{ClusterId, Code, Millis, Problem, Refusal};
use serde_json::{Value, json};

use super::cost::{time, usd};
use crate::app::{App, internal, unreadable};
use crate::arm::errors;
use crate::ask::Ask;
use crate::{limits, reply};

pub(crate) async fn get(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let (state, now) = (app.state(), app.now());
    let mut problems = Vec::new();
    let from = time(ask, "from", workspace.created, &mut problems);
    let to = time(ask, "to", now, &mut problems).min(now);
    if from >= to {
        let message = format!("From {} to {} is no time at all.", from.rfc3339(), to.rfc3339());
        problems.push(Problem::new(Code::BadArgument, message).at("from"));
    }
    Refusal::unless_empty(problems)?;
    let clusters: Vec<(ClusterId, String)> = match ask.query.get("cluster") {
        Some(name) => {
            let found =
                state.cluster(workspace.id, name).ok_or_else(|| errors::not_found("Compute", name))?;
            vec![(found.id, found.name.to_string())]
        }
        None => state.clusters_of(workspace.id).map(|c| (c.id, c.name.to_string())).collect(),
    };
    if clusters.len() > limits::WASTE_CLUSTERS_MAX {
        let message = format!(
            "There are {} clusters and at most {} are looked at at once; name one.",
            clusters.len(),
            limits::WASTE_CLUSTERS_MAX
        );
        return Err(Refusal::because(Code::LimitReached, message));
    }
    let _one_at_a_time = app.memory.running_again.lock().await;
    let looking = app.clone();
    let found = tokio::task::spawn_blocking(move || look(&looking, &clusters, from, to))
        .await
        .map_err(|e| internal(format!("The replay ended early: {e}.")))??;
    Ok(reply::ok(&json!({
        "from": from.rfc3339(), "to": to.rfc3339(), "currency": "USD", "clusters": found,
    })))
}

fn look(
    app: &App,
    clusters: &[(ClusterId, String)],
    from: Millis,
    to: Millis,
) -> Result<Vec<Value>, Refusal> {
    let reader = app.control.reader();
    let Some(seq) = reader.record_at(to).map_err(unreadable)? else { return Ok(Vec::new()) };
    app.control.refuse_too_far(to, seq)?;
    let mut recorders: Vec<Recorder> = clusters.iter().map(|(id, _)| Recorder::new(*id, from, to)).collect();
    let after = reader
        .replay(seq, |before, at, event| {
            for recorder in &mut recorders {
                recorder.see(before, at, event);
            }
        })
        .map_err(unreadable)?;
    let mut out = Vec::new();
    for ((_, name), recorder) in clusters.iter().zip(recorders) {
        let Some(record) = recorder.finish(&after) else { continue };
        if record.work.len() > limits::WASTE_JOBS_MAX {
            let message = format!(
                "'{name}' had {} jobs in this time, and at most {} are run again; ask about a shorter time.",
                record.work.len(),
                limits::WASTE_JOBS_MAX
            );
            return Err(Refusal::because(Code::LimitReached, message));
        }
        out.push(answer(name, &record));
    }
    Ok(out)
}

fn answer(name: &str, record: &Record) -> Value {
    let report = waste::report(record);
    json!({
        "cluster": name,
        "from": record.from.rfc3339(),
        "to": record.to.rfc3339(),
        "spent_micro_usd": report.spent,
        "spent_usd": usd(report.spent),
        "replayed": course(&report.as_it_was),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn course(course: &Course) -> Value {
    json!({
        "micro_usd": course.cost(),
        "usd": usd(course.cost()),
        "jobs": course.jobs,
        "mean_wait_seconds": course.mean_wait_ms() as f64 / 1000.0,
        "max_wait_seconds": course.waited_max_ms as f64 / 1000.0,
        "boots": course.boots,
        "cut_short": course.cut_short,
    })
}

fn finding(finding: &Finding) -> Value {
    let tried = |(value, tried): &(String, Course)| {
        let mut shown = course(tried);
        shown["value"] = value.as_str().into();
        shown
    };
    json!({
        "waste": finding.kind.word(),
        "setting": finding.setting,
        "now": finding.now,
        "instead": finding.instead,
        "saved_micro_usd": finding.saved,
        "saved_usd": usd(finding.saved),
        "waits_more_seconds": finding.waits_more_ms.map(|ms| ms as f64 / 1000.0),
        "how": finding.how.word(),
        "says": finding.says,
        "tried": finding.tried.iter().map(tried).collect::<Vec<_>>(),
    })
}
