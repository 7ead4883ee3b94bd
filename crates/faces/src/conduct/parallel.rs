//! One look at a parallel job: are its workers there, is it over, and how does it end?
//!
//! The workers take mini-batches by themselves (`crate::parallel`); what they have done is in the table of `neap_parallel`.

use neap_core::documents::{BlobPath, JobDocument, OutputDocument};
use neap_core::family::Family;
use neap_core::job::{Class, Outcome, Status};
use neap_core::{Code, Command, JobId, Refusal, State};
use neap_ledger::JobRow;
use neap_parallel::{Counts, Parallel, Verdict, verdict};
use neap_storage::foreign;

use super::conductor;
use crate::app::{App, internal};
use crate::arm::{find_job, submit_worker};
use crate::parallel::{fate, files_with_attempt, unkept};
use crate::{elsewhere, story, workspace_files};

/// Where rows go in an output that is a folder: as Azure ML names it.
const ROWS_FILE: &str = "parallel_run_step.txt";
/// Errors of mini-batches that are told with the job's.
const ERRORS_TOLD: u32 = 3;

/// The parallel jobs whose mini-batches are kept.
pub(super) async fn kept(app: &App) -> Vec<u64> {
    let batches = app.batches.clone();
    match tokio::task::spawn_blocking(move || batches.families()).await {
        Ok(Ok(families)) => families,
        Ok(Err(error)) => {
            tracing::warn!(%error, "mini-batches of ended jobs are still there");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

/// Forgets the mini-batches of jobs that have ended.
pub(super) async fn forget_ended(app: &App, state: &State, kept: &mut Vec<u64>) {
    let (stay, gone): (Vec<u64>, Vec<u64>) =
        kept.iter().partition(|id| state.families.contains_key(&JobId(**id)));
    if gone.is_empty() {
        return;
    }
    let batches = app.batches.clone();
    let done =
        tokio::task::spawn_blocking(move || gone.iter().try_for_each(|family| batches.forget(*family))).await;
    match done {
        Ok(Ok(())) => *kept = stay,
        // The next look tries again.
        Ok(Err(error)) => tracing::warn!(%error, "mini-batches of an ended job are still there"),
        Err(error) => tracing::warn!(%error, "mini-batches of an ended job are still there"),
    }
}

pub(super) async fn drive(app: &App, family: &Family, document: &JobDocument) -> Result<(), Refusal> {
    let Some(workspace) = app.state().workspaces.get(&family.workspace).cloned() else { return Ok(()) };
    let settings = match Parallel::read(&document.asked) {
        Ok(settings) => settings,
        Err(problems) => {
            let said: Vec<String> = problems.iter().map(|p| format!("{}: {}", p.at, p.says)).collect();
            return close(app, family, failed(Class::UserCode, &said.join("; "))).await;
        }
    };
    let row = find_job(app, &workspace, &family.name)?;
    let workers = story::members(app, &row)?;
    for number in workers.len()..settings.instances as usize {
        if let Err(refusal) = submit_worker(app, &workspace, family, &document.asked, &settings, number).await
        {
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
                failed(Class::UserCode, &format!("Worker {number} was refused: {refusal}")),
            )
            .await;
        }
    }
    let files_matter = files_with_attempt(document, &settings);
    let look = look(app, family, files_matter).await?;
    if let Some(fault) = look.fault {
        return close(app, family, failed(Class::UserCode, &in_one_line(&fault))).await;
    }
    match verdict(&look.counts, &settings) {
        Verdict::Over(why) => {
            let errors: Vec<String> = look
                .errors
                .iter()
                .map(|(number, error)| format!("mini-batch {number}: {}", last_line(error)))
                .collect();
            let told = if errors.is_empty() {
                String::new()
            } else {
                format!(". First errors: {}", errors.join("; "))
            };
            return close(app, family, failed(Class::UserCode, &format!("{why}{told}"))).await;
        }
        Verdict::Done
            if workers.iter().all(|worker| is_not_awaited(worker, files_matter))
                && workers.iter().any(is_completed) =>
        {
            store_rows(app, family, document, &settings).await?;
            return close(app, family, Outcome::completed()).await;
        }
        Verdict::Done | Verdict::GoOn => {}
    }
    match workers.iter().find(|worker| worker.status.is_final() && !is_completed(worker)) {
        Some(worker) => {
            let why = worker.failure.as_ref().map_or("", |failure| &failure.message);
            let class = worker.failure.as_ref().map_or(Class::System, |failure| failure.class);
            let message = format!("The worker '{}' did not complete: {why}", worker.name);
            close(app, family, failed(class, &message)).await
        }
        None if workers.len() == settings.instances as usize && workers.iter().all(is_completed) => {
            let Counts { total, done, .. } = look.counts;
            let message =
                format!("All workers ended, and {} of {total} mini-batches are not done", total - done);
            close(app, family, failed(Class::UserCode, &message)).await
        }
        None => Ok(()),
    }
}

fn is_completed(worker: &JobRow) -> bool {
    worker.status == Status::Completed
}

/// A worker that waits for a node when all is done is not waited for; unless it may have begun and left its files behind.
fn is_not_awaited(worker: &JobRow, files_matter: bool) -> bool {
    let waits = matches!(worker.status, Status::Queued | Status::NotStarted);
    is_completed(worker) || (waits && !files_matter)
}

struct Look {
    fault: Option<String>,
    counts: Counts,
    errors: Vec<(u32, String)>,
}

async fn look(app: &App, family: &Family, files_with_attempt: bool) -> Result<Look, Refusal> {
    let (batches, state, id) = (app.batches.clone(), app.state(), family.id.0);
    let look = move || {
        batches.release(id, files_with_attempt, &|holder| fate(&state, holder))?;
        Ok(Look {
            fault: batches.fault(id)?,
            counts: batches.counts(id)?,
            errors: batches.errors(id, ERRORS_TOLD)?,
        })
    };
    tokio::task::spawn_blocking(look).await.map_err(interrupted)?.map_err(unkept)
}

/// All rows into the output that collects them, in the order of mini-batches. Atomic; doing it again changes nothing.
async fn store_rows(
    app: &App,
    family: &Family,
    document: &JobDocument,
    settings: &Parallel,
) -> Result<(), Refusal> {
    let Some(output) = settings.append_row_to.as_ref().and_then(|name| document.outputs.get(name)) else {
        return Ok(());
    };
    let at = match output {
        OutputDocument::File { at, .. } => at.clone(),
        OutputDocument::Folder { at, .. } => {
            let named = settings.served.as_ref().and_then(|served| served.rows_file.as_deref());
            BlobPath { path: format!("{}{}", at.path, named.unwrap_or(ROWS_FILE)), ..at.clone() }
        }
    };
    let (batches, id) = (app.batches.clone(), family.id.0);
    if foreign::is_foreign(&at.container) {
        let opened = elsewhere::open(app, &at.account, &at.container, &at.path, None, true)?;
        let next = futures_util::stream::try_unfold((batches, None), move |(batches, after)| async move {
            let again = batches.clone();
            let rows = tokio::task::spawn_blocking(move || again.rows_after(id, after)).await;
            match rows.map_err(|e| foreign::Error::Failed(e.to_string()))? {
                Ok(Some((number, rows))) => Ok(Some((rows.into_bytes().into(), (batches, Some(number))))),
                Ok(None) => Ok(None),
                Err(e) => Err(foreign::Error::Failed(e.to_string())),
            }
        });
        let stored = opened.store.put(&opened.name, Box::pin(next), None).await;
        return stored.map(drop).map_err(|e| internal(format!("The rows could not be stored: {e}.")));
    }
    workspace_files::put_pieces(app, at, move |write| {
        let mut after = None;
        while let Some((number, rows)) = batches.rows_after(id, after).map_err(unkept)? {
            write(rows.as_bytes()).map_err(workspace_files::storage)?;
            after = Some(number);
        }
        Ok(())
    })
    .await
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn interrupted(error: tokio::task::JoinError) -> Refusal {
    internal(format!("A look at mini-batches did not come to an end: {error}."))
}

/// What a worker says of the whole: its first words and, of a traceback, what was raised.
fn in_one_line(fault: &str) -> String {
    let first = fault.trim().lines().next().unwrap_or("").trim();
    match last_line(fault) {
        last if last == first => first.to_owned(),
        last => format!("{first} {last}"),
    }
}

/// Of a traceback: what was raised.
fn last_line(error: &str) -> &str {
    error.trim_end().lines().next_back().unwrap_or("").trim()
}

async fn close(app: &App, family: &Family, outcome: Outcome) -> Result<(), Refusal> {
    match app.submit(&conductor(), Command::CloseFamily { family: family.id, outcome }, Vec::new()).await {
        Err(refusal) if refusal.code() != Code::JobAlreadyFinal => Err(refusal),
        _ => Ok(()),
    }
}

fn failed(class: Class, why: &str) -> Outcome {
    Outcome::failed(
        class,
        "ParallelFailed",
        format!("{}.", why.trim_end().trim_end_matches('.')),
        "Look at the workers: 'neap job list --parent-job-name' and 'neap job stream' with a worker's name.",
    )
}
