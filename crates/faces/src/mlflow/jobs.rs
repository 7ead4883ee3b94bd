//! Jobs as runs. A job is written down as a run when somebody asks for it, or when runs are searched; its status and
//! times are always the job's, and its own tags are shown among the run's.

use std::collections::BTreeSet;

use neap_core::documents::{JobDocument, JobMeta};
use neap_core::job::Status;
use neap_core::state::Workspace;
use neap_core::{JobId, Refusal};
use neap_ledger::{Archived, JobFilter, JobRow, Members};
use neap_tracking::{DEFAULT_EXPERIMENT, NewRun, Run, RunStatus, experiment_id};
use serde_json::{Map, Value, json};

use super::faults::Fault;
use super::{Asked, wire};
use crate::app::{App, internal, unreadable};
use crate::limits;

/// Sees to it that the run is known if it is a job, and that it says what the job says.
pub(super) fn known(asked: &Asked, run: &str) -> Result<(), Fault> {
    let (app, workspace) = (&asked.app, &asked.workspace);
    match app.tracking.seen(workspace.id, run)? {
        Some(seen) if seen.settled => Ok(()),
        Some(seen) => match seen.job.map(|job| app.control.reader().job_by_id(job)) {
            Some(row) => match row.map_err(unreadable)? {
                Some(row) => Ok(app.tracking.settle_jobs(workspace.id, &[run_of(app, workspace, &row)?])?),
                None => Ok(()),
            },
            None => Ok(()),
        },
        None => match app.control.reader().job(workspace.id, run).map_err(unreadable)? {
            Some(row) => adopt(app, workspace, &[row], None),
            None => Ok(()),
        },
    }
}

/// Writes down the jobs that came since the last look, and copies what became of those that had not ended. Of very many
/// new ones only the newest are taken; the others are runs as soon as they are asked for by name.
pub(super) fn catch_up(asked: &Asked) -> Result<(), Fault> {
    let (app, workspace) = (&asked.app, &asked.workspace);
    let seen = app.tracking.jobs_seen(workspace.id)?.unwrap_or(JobId(0));
    let filter = JobFilter { archived: Archived::All, members: Members::With, ..JobFilter::default() };
    let (mut before, mut newest, mut taken) = (None, None, 0);
    while taken < limits::JOBS_CAUGHT_UP_MAX {
        let page = limits::JOBS_CAUGHT_UP_AT_ONCE;
        let rows = app.control.reader().jobs(workspace.id, &filter, before, page).map_err(unreadable)?;
        let all = rows.len();
        let rows: Vec<JobRow> = rows.into_iter().take_while(|row| row.id > seen).collect();
        let Some(last) = rows.last() else { break };
        before = Some(last.id);
        newest = newest.max(rows.first().map(|row| row.id));
        taken += rows.len();
        adopt(app, workspace, &rows, None)?;
        if rows.len() < all || all < page as usize {
            break;
        }
    }
    if newest.is_some() {
        app.tracking.adopt_jobs(workspace.id, &[], newest)?;
    }
    let mut changed = Vec::new();
    for job in app.tracking.unsettled_jobs(workspace.id)? {
        if let Some(row) = app.control.reader().job_by_id(job).map_err(unreadable)? {
            changed.push(run_of(app, workspace, &row)?);
        }
    }
    Ok(app.tracking.settle_jobs(workspace.id, &changed)?)
}

fn adopt(app: &App, workspace: &Workspace, rows: &[JobRow], seen: Option<JobId>) -> Result<(), Fault> {
    let mut experiments = BTreeSet::new();
    let mut runs = Vec::with_capacity(rows.len());
    for row in rows {
        let document: JobDocument = app.document(&row.document)?;
        let name = named(&document.experiment);
        if !experiments.contains(name) {
            let id = experiment_id(&app.installation.id, workspace.id, name);
            app.tracking.ensure_experiment(workspace.id, &id, name, row.created)?;
            experiments.insert(name.to_owned());
        }
        runs.push(run_of(app, workspace, row)?);
    }
    Ok(app.tracking.adopt_jobs(workspace.id, &runs, seen)?)
}

/// The id of the experiment that a job is in.
pub(super) fn experiment_of(app: &App, workspace: &Workspace, document: &JobDocument) -> String {
    experiment_named(app, workspace, &document.experiment)
}

/// The id of the experiment that jobs of this experiment name are in.
pub(super) fn experiment_named(app: &App, workspace: &Workspace, name: &str) -> String {
    experiment_id(&app.installation.id, workspace.id, named(name))
}

fn named(experiment: &str) -> &str {
    if experiment.is_empty() { DEFAULT_EXPERIMENT } else { experiment }
}

fn run_of(app: &App, workspace: &Workspace, row: &JobRow) -> Result<NewRun, Fault> {
    let document: JobDocument = app.document(&row.document)?;
    let meta: JobMeta = app.document(&row.meta)?;
    Ok(NewRun {
        id: row.name.clone(),
        experiment: experiment_of(app, workspace, &document),
        name: meta.display_name.unwrap_or_else(|| row.name.clone()),
        user: row.owner.clone(),
        status: status_of(row.status),
        started: row.started.unwrap_or(row.created),
        ended: row.ended,
        job: Some(row.id),
        made_by: None,
        tags: parent_of(app, row)?
            .map(|parent| ("mlflow.parentRunId".to_owned(), parent.name))
            .into_iter()
            .collect(),
    })
}

/// The pipeline, sweep or other job that it is part of.
pub(super) fn parent_of(app: &App, row: &JobRow) -> Result<Option<JobRow>, Fault> {
    match row.family {
        Some(family) => Ok(app.control.reader().job_by_id(family).map_err(unreadable)?),
        None => Ok(None),
    }
}

fn root_of(app: &App, row: &JobRow) -> Result<String, Fault> {
    let mut root = row.name.clone();
    let mut parent = parent_of(app, row)?;
    while let Some(found) = parent {
        parent = parent_of(app, &found)?;
        root = found.name;
    }
    Ok(root)
}

const fn status_of(status: Status) -> RunStatus {
    match status {
        Status::NotStarted | Status::Queued | Status::Provisioning | Status::Preparing => {
            RunStatus::Scheduled
        }
        Status::Running | Status::Finalizing | Status::CancelRequested => RunStatus::Running,
        Status::Completed => RunStatus::Finished,
        Status::Failed => RunStatus::Failed,
        Status::Canceled => RunStatus::Killed,
    }
}

/// The run with what the job says of itself now; what the run's own tags say goes before.
pub(super) fn with_job(app: &App, mut run: Run) -> Result<Run, Fault> {
    let Some(job) = run.job else {
        run.tags.entry("mlflow.runName".into()).or_insert_with(|| run.name.clone());
        run.tags.entry("mlflow.user".into()).or_insert_with(|| run.user.clone());
        return Ok(run);
    };
    let Some(row) = app.control.reader().job_by_id(job).map_err(unreadable)? else { return Ok(run) };
    let meta: JobMeta = app.document(&row.meta)?;
    run.status = status_of(row.status);
    run.started = row.started.unwrap_or(row.created);
    run.ended = row.ended;
    if !run.tags.contains_key("mlflow.runName") {
        run.name = meta.display_name.unwrap_or_else(|| row.name.clone());
    }
    let own = [
        ("mlflow.runName", run.name.clone()),
        ("mlflow.user", row.owner.clone()),
        ("mlflow.source.type", "JOB".to_owned()),
        ("mlflow.source.name", row.name.clone()),
        ("mlflow.rootRunId", root_of(app, &row)?),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
    for (key, value) in meta.tags.into_iter().chain(own) {
        run.tags.entry(key).or_insert(value);
    }
    Ok(run)
}

/// The last values of a job's metrics, and its parameters: for history.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub metrics: Map<String, Value>,
    pub params: Map<String, Value>,
}

/// Empty where it logged none.
pub(crate) fn summary(app: &App, workspace: &Workspace, job: &str) -> Result<Summary, Refusal> {
    let failed = |e: neap_tracking::Error| internal(format!("What the run logged cannot be read: {e}."));
    if app.tracking.seen(workspace.id, job).map_err(failed)?.is_none() {
        return Ok(Summary::default());
    }
    let run = app.tracking.run(workspace.id, job).map_err(failed)?;
    Ok(Summary {
        metrics: run.metrics.iter().map(|m| (m.key.clone(), wire::number(m.last.value))).collect(),
        params: run.params.into_iter().map(|(key, value)| (key, json!(value))).collect(),
    })
}
