//! Blocks that an attempt uploaded and never put together: they go when the attempt has ended. What others began to
//! upload goes after a week.
//!
//! Whose blocks they are is told by the blob's name, which lies beside them. Whether the attempt has ended is read from
//! the tables, so nothing is missed after a crash.

use std::collections::BTreeMap;
use std::time::Duration;

use neap_core::job::Status;
use neap_core::{Refusal, WorkspaceId};

use crate::app::{App, unreadable};
use crate::workspace_files::{self, ARTIFACT_CONTAINER, BLOB_CONTAINER, in_store};

/// The shortest time between two looks.
const TIDY_EVERY: Duration = Duration::from_secs(2);
/// What names of a job's blobs begin with, before the name of the job.
const PLACES: [&str; 3] = ["ExperimentRun/dcid.", "Checkpoints/dcid.", "azureml/"];

/// Removes them until the server ends. Looks only after something has happened.
pub async fn tidy(app: App) {
    let mut changes = app.control.changes();
    loop {
        let workspaces: Vec<WorkspaceId> = app.state().workspaces.keys().copied().collect();
        for workspace in workspaces {
            if let Err(refusal) = tidy_workspace(&app, workspace).await {
                tracing::warn!(%workspace, %refusal, "blocks of attempts that ended are still there");
            }
        }
        tokio::time::sleep(TIDY_EVERY).await;
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn tidy_workspace(app: &App, workspace: WorkspaceId) -> Result<(), Refusal> {
    let account = workspace_files::account(workspace);
    let now_ms = i64::try_from(app.control.now().0).unwrap_or(i64::MAX);
    for container in [ARTIFACT_CONTAINER, BLOB_CONTAINER] {
        let of = account.clone();
        let names = in_store(app, move |store| {
            match store.sweep_blocks(&of, container, now_ms) {
                Ok(_) => {}
                Err(neap_storage::Error::ContainerNotFound { .. }) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
            store.unfinished(&of, container)
        })
        .await?;
        let mut ended: BTreeMap<String, bool> = BTreeMap::new();
        for job in names.iter().filter_map(|name| job_of(name)) {
            if !ended.contains_key(job) {
                let row = app.control.reader().job(workspace, job).map_err(unreadable)?;
                let is_over = row.is_some_and(|row| row.status.is_final() || row.status == Status::Queued);
                ended.insert(job.to_owned(), is_over);
            }
        }
        if ended.values().any(|is_over| *is_over) {
            let of = account.clone();
            let is_over =
                move |name: &str| job_of(name).and_then(|job| ended.get(job)).is_some_and(|over| *over);
            in_store(app, move |store| store.forget_blocks(&of, container, is_over)).await?;
        }
    }
    Ok(())
}

/// The job whose blob this could be.
fn job_of(name: &str) -> Option<&str> {
    let rest = PLACES.iter().find_map(|place| name.strip_prefix(place))?;
    rest.split_once('/').map(|(job, _)| job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_jobs() {
        for (name, expect) in [
            ("azureml/one/out/x", Some("one")),
            ("ExperimentRun/dcid.a.b/outputs/x", Some("a.b")),
            ("LocalUpload/abc/x", None),
            ("azureml/one", None),
        ] {
            assert_eq!(job_of(name), expect, "{name}");
        }
    }
}
