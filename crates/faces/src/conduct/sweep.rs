//! One look at a sweep: its trials as they are, what `neap_sweep` says of them, and the commands that follow.

use std::collections::BTreeMap;
use std::sync::Arc;

use neap_core::documents::{JobDocument, JobMeta, OutputDocument};
use neap_core::family::Family;
use neap_core::job::{Class, Outcome, Status};
use neap_core::state::Workspace;
use neap_core::{Code, Command, Refusal};
use neap_ledger::JobRow;
use neap_sweep::{Params, Step, Sweep, Trial, TrialState, Verdict};
use serde_json::Value;

use super::conductor;
use crate::app::{self, App, internal, unreadable};
use crate::arm::{find_job, submit_trial};
use crate::{story, workspace_files};

/// What is known of a sweep's trials that will not change any more.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    ended: BTreeMap<u32, Trial>,
}

pub(super) async fn drive(
    app: &App,
    family: &Family,
    document: &JobDocument,
    memory: &mut Memory,
) -> Result<(), Refusal> {
    let Some(workspace) = app.state().workspaces.get(&family.workspace).cloned() else { return Ok(()) };
    let row = find_job(app, &workspace, &family.name)?;
    let sweep = match Sweep::read(&document.asked) {
        Ok(sweep) => sweep,
        Err(problems) => {
            let said: Vec<String> = problems.iter().map(|p| format!("{}: {}", p.at, p.says)).collect();
            return close(app, family, failed(Class::UserCode, &said.join("; "))).await;
        }
    };
    let rows = story::members(app, &row)?;
    let trials = trials(app, &rows, &sweep, memory)?;
    let elapsed_s = row.started.map_or(0, |started| app.now().since(started) / 1_000);
    let (sweep, seed) = (Arc::new(sweep), row.id.0);
    let Step { start, stop, done } = {
        let (sweep, trials) = (Arc::clone(&sweep), trials.clone());
        tokio::task::spawn_blocking(move || neap_sweep::next(&sweep, seed, &trials, elapsed_s))
            .await
            .map_err(|e| internal(format!("The sweep's next trials could not be chosen: {e}.")))?
    };
    for stop in stop {
        let Some(trial) = rows.get(stop.number as usize).filter(|row| !row.status.is_final()) else {
            continue;
        };
        if trial.status != Status::CancelRequested {
            let reason = format!("Stopped by the sweep: {}.", stop.why.trim_end_matches('.'));
            let cancel = Command::CancelJob { job: trial.id, reason: reason.into() };
            match app.submit(&conductor(), cancel, Vec::new()).await {
                Err(refusal) if refusal.code() != Code::JobAlreadyFinal => return Err(refusal),
                _ => {}
            }
        }
    }
    for (number, params) in start {
        if let Err(refusal) = submit_trial(app, &workspace, family, &document.asked, number, &params).await {
            // The server is stopping, or its disk is full: the next look tries again.
            if matches!(
                refusal.code(),
                Code::ServerIsStopping | Code::StorageFull | Code::LedgerReadOnly | Code::InternalError
            ) {
                return Err(refusal);
            }
            return close(
                app,
                family,
                failed(Class::UserCode, &format!("Trial {number} was refused: {refusal}")),
            )
            .await;
        }
    }
    match done {
        Some(verdict) => end(app, &workspace, family, document, &rows, verdict).await,
        None => Ok(()),
    }
}

/// Trials in the order of their numbers: the order in which they were submitted.
fn trials(app: &App, rows: &[JobRow], sweep: &Sweep, memory: &mut Memory) -> Result<Vec<Trial>, Refusal> {
    let mut out = Vec::with_capacity(rows.len());
    for (number, row) in (0_u32..).zip(rows) {
        if let Some(ended) = memory.ended.get(&number) {
            out.push(ended.clone());
            continue;
        }
        let document: JobDocument = app.document(&row.document)?;
        let history = app
            .tracking
            .history(row.workspace, &row.name, &sweep.objective.primary_metric)
            .map_err(|e| internal(format!("The metrics of '{}' could not be read: {e}.", row.name)))?;
        let trial = Trial {
            number,
            params: params_of(&document),
            state: match row.status {
                Status::Completed => TrialState::Completed,
                Status::Failed => TrialState::Failed,
                Status::Canceled => TrialState::Canceled,
                Status::Running | Status::Finalizing | Status::CancelRequested => TrialState::Running,
                Status::NotStarted | Status::Queued | Status::Provisioning | Status::Preparing => {
                    TrialState::Queued
                }
            },
            history: history.iter().map(|point| point.value).collect(),
        };
        if !trial.state.is_active() {
            memory.ended.insert(number, trial.clone());
        }
        out.push(trial);
    }
    Ok(out)
}

fn params_of(document: &JobDocument) -> Params {
    match &document.hyperparameters {
        Some(Value::Object(map)) => map.clone(),
        _ => Params::default(),
    }
}

async fn end(
    app: &App,
    workspace: &Workspace,
    family: &Family,
    document: &JobDocument,
    rows: &[JobRow],
    verdict: Verdict,
) -> Result<(), Refusal> {
    let best = verdict.best.and_then(|number| rows.get(number as usize));
    if let Some(best) = best {
        let trial: JobDocument = app.document(&best.document)?;
        for (name, place) in &document.outputs {
            if let Some(made) = trial.outputs.get(name) {
                copy(app, made, place).await?;
            }
        }
        name_best(app, workspace, family, best, &document.asked).await?;
    }
    let outcome = match verdict.outcome {
        neap_sweep::Outcome::Completed => Outcome::completed(),
        neap_sweep::Outcome::Failed => failed(class_of(rows), &verdict.why),
        neap_sweep::Outcome::Canceled => Outcome::canceled(
            Class::UserCode,
            "SweepCanceled",
            sentence(&verdict.why),
            "Raise limits.timeout, or try fewer trials.",
        ),
    };
    close(app, family, outcome).await
}

/// The best trial among the sweep's properties, as Azure names it.
async fn name_best(
    app: &App,
    workspace: &Workspace,
    family: &Family,
    best: &JobRow,
    asked: &Value,
) -> Result<(), Refusal> {
    let row = find_job(app, workspace, &family.name)?;
    let before: JobMeta = app.document(&row.meta)?;
    let mut meta = before.clone();
    meta.properties.insert("best_child_run_id".into(), best.name.clone());
    let metric = asked["objective"]["primaryMetric"].as_str().unwrap_or("");
    let latest = app.tracking.latest(best.workspace, &best.name, metric).map_err(unreadable)?;
    if let Some(point) = latest {
        meta.properties.insert("score".into(), point.value.to_string());
    }
    if meta == before {
        return Ok(());
    }
    let kept = app::document(&meta)?;
    let update = Command::UpdateJob { job: row.id, meta: kept.hash, archived: row.archived };
    app.submit(&conductor(), update, vec![kept]).await.map(drop)
}

async fn copy(app: &App, from: &OutputDocument, to: &OutputDocument) -> Result<(), Refusal> {
    match (from, to) {
        (OutputDocument::File { at: from, .. }, OutputDocument::File { at: to, .. })
        | (OutputDocument::Folder { at: from, .. }, OutputDocument::Folder { at: to, .. }) => {
            workspace_files::copy(app, from.clone(), to.clone()).await
        }
        _ => Ok(()),
    }
}

async fn close(app: &App, family: &Family, outcome: Outcome) -> Result<(), Refusal> {
    match app.submit(&conductor(), Command::CloseFamily { family: family.id, outcome }, Vec::new()).await {
        Err(refusal) if refusal.code() != Code::JobAlreadyFinal => Err(refusal),
        _ => Ok(()),
    }
}

/// Whose matter it is that no trial completed: that of the first that failed.
fn class_of(rows: &[JobRow]) -> Class {
    let failed = rows.iter().filter(|row| row.status == Status::Failed);
    failed
        .filter_map(|row| row.failure.as_ref())
        .map(|failure| failure.class)
        .next()
        .unwrap_or(Class::UserCode)
}

fn failed(class: Class, why: &str) -> Outcome {
    Outcome::failed(
        class,
        "SweepFailed",
        sentence(why),
        "Look at the trials: 'neap job list --parent-job-name' and 'neap job stream' with a trial's name.",
    )
}

fn sentence(why: &str) -> String {
    let mut chars = why.trim_end_matches('.').chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>() + ".").unwrap_or_default()
}
