//! What is kept of jobs between their attempts: read for those who ask, and removed when a job has ended.
//!
//! Agents write it and bring it back; here nothing of it is changed. That a job has ended is read from the tables, so
//! nothing has to be remembered and nothing is missed after a crash.

use std::time::Duration;

use neap_control::{CHECKPOINT_RECORD, CHECKPOINTS, CheckpointRecord, checkpoint_of, checkpoints_of};
use neap_core::{Refusal, WorkspaceId};
use neap_ledger::JobRow;
use neap_storage::{BlobAddress, ListQuery};

use crate::app::{App, internal, unreadable};
use crate::workspace_files::{self, ARTIFACT_CONTAINER, in_store, remove_prefix};

/// Ended jobs are looked for this often.
const TIDY_EVERY: Duration = Duration::from_secs(10);
/// Jobs looked at in one page.
const PAGE: usize = 1_000;
/// A record larger than this is not one of ours.
const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The records of a job's ranks, with their ranks.
pub(crate) async fn records(app: &App, job: &JobRow) -> Result<Vec<(u32, CheckpointRecord)>, Refusal> {
    let (account, name) = (workspace_files::account(job.workspace), job.name.clone());
    let ranks = u32::try_from(job.ranks.len().max(1)).unwrap_or(u32::MAX);
    let texts = in_store(app, move |store| {
        let mut texts = Vec::new();
        for rank in 0..ranks {
            let at = format!("{}{CHECKPOINT_RECORD}", checkpoint_of(&name, rank));
            let address = BlobAddress::new(account.as_str(), ARTIFACT_CONTAINER, at)?;
            match store.read(&address, 0, RECORD_BYTES_MAX) {
                Ok(text) => texts.push((rank, text)),
                Err(neap_storage::Error::BlobNotFound(_) | neap_storage::Error::ContainerNotFound { .. }) => {
                }
                Err(error) => return Err(error),
            }
        }
        Ok(texts)
    })
    .await?;
    let read = |(rank, text): (u32, Vec<u8>)| {
        serde_json::from_slice(&text)
            .map(|record| (rank, record))
            .map_err(|e| internal(format!("The record of rank {rank}'s checkpoint cannot be read: {e}.")))
    };
    texts.into_iter().map(read).collect()
}

/// Removes what is kept of jobs that have ended, until the server does.
pub async fn tidy(app: App) {
    loop {
        let workspaces: Vec<WorkspaceId> = app.state().workspaces.keys().copied().collect();
        for workspace in workspaces {
            if let Err(refusal) = tidy_workspace(&app, workspace).await {
                tracing::warn!(%workspace, %refusal, "checkpoints of ended jobs are still there");
            }
        }
        tokio::time::sleep(TIDY_EVERY).await;
    }
}

async fn tidy_workspace(app: &App, workspace: WorkspaceId) -> Result<(), Refusal> {
    let account = workspace_files::account(workspace);
    let mut marker = None;
    loop {
        let (of, after) = (account.clone(), marker.take());
        let page = in_store(app, move |store| {
            let query = ListQuery {
                prefix: CHECKPOINTS.to_owned(),
                delimiter: Some("/".into()),
                marker: after,
                results_max: Some(PAGE),
            };
            match store.list(&of, ARTIFACT_CONTAINER, &query) {
                // It is about to be made, or just went.
                Err(neap_storage::Error::ContainerNotFound { .. }) => Ok(neap_storage::ListPage::default()),
                other => other,
            }
        })
        .await?;
        for entry in &page.entries {
            let Some(job) = job_of(entry.name()) else { continue };
            let row = app.control.reader().job(workspace, job).map_err(unreadable)?;
            if row.is_none_or(|row| row.status.is_final()) {
                let (of, prefix) = (account.clone(), checkpoints_of(job));
                in_store(app, move |store| remove_prefix(store, &of, ARTIFACT_CONTAINER, &prefix)).await?;
            }
        }
        match page.next_marker {
            Some(next) => marker = Some(next),
            None => return Ok(()),
        }
    }
}

/// Whose folder this is.
fn job_of(folder: &str) -> Option<&str> {
    folder.strip_prefix(CHECKPOINTS)?.strip_prefix("dcid.")?.strip_suffix('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_names_its_job() {
        assert_eq!(job_of(&checkpoints_of("a.b")), Some("a.b"));
        assert_eq!(job_of("Checkpoints/else/"), None);
    }
}
