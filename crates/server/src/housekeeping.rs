//! What is done now and then, or when something is gone for good. None of it decides anything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use neap_control::{Handle, clock};
use neap_core::{Command, State, WorkspaceId};
use neap_identity::Authority;
use neap_storage::Store;
use neap_tracking::Tracking;

/// How often the certificate's age is looked at.
const RENEWAL_CHECK: Duration = Duration::from_secs(6 * 3600);

pub async fn renew_certificate(authority: Arc<Authority>) {
    loop {
        tokio::time::sleep(RENEWAL_CHECK).await;
        match authority.renew_if_needed(clock::unix_seconds()) {
            Ok(true) => tracing::info!("the server's certificate was renewed"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the server's certificate could not be renewed"),
        }
    }
}

/// Removes the blobs and metrics of workspaces that are gone, also of those that went in an earlier life.
pub async fn clear_deleted_workspaces(handle: Handle, store: Arc<Store>, tracking: Arc<Tracking>) {
    let mut changes = handle.changes();
    let mut cleared = BTreeSet::new();
    loop {
        let state = handle.state();
        let gone: Vec<WorkspaceId> = deleted(&state).filter(|id| !cleared.contains(id)).collect();
        for id in gone {
            let (store, tracking) = (store.clone(), tracking.clone());
            let done = tokio::task::spawn_blocking(move || {
                if let Err(error) = tracking.forget_workspace(id) {
                    tracing::warn!(workspace = %id, %error, "a deleted workspace's metrics are still there");
                }
                store.delete_account(&format!("neapst{id}"))
            })
            .await;
            match done {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(workspace = %id, %error, "a deleted workspace's blobs are still there");
                }
                Err(error) => {
                    tracing::warn!(workspace = %id, %error, "clearing a workspace's blobs was interrupted");
                }
            }
            cleared.insert(id);
        }
        let workspaces = handle.state().workspaces;
        // Most changes are about jobs and nodes: the map is then the very same one.
        while handle.state().workspaces.ptr_eq(&workspaces) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Looks now and then at how much each workspace keeps, and has it on record where that has changed. Looking takes at most a
/// twentieth of the time, however much there is to look at.
pub async fn measure_storage(handle: Handle, store: Arc<Store>, every: Duration) {
    loop {
        let watch = clock::Stopwatch::start();
        let workspaces: Vec<WorkspaceId> = handle.state().workspaces.keys().copied().collect();
        for workspace in workspaces {
            let looked_at = store.clone();
            let account = format!("neapst{workspace}");
            let measured = tokio::task::spawn_blocking(move || looked_at.account_bytes(&account)).await;
            let bytes = match measured {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(error)) => {
                    tracing::warn!(%workspace, %error, "a workspace's storage could not be measured");
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%workspace, %error, "measuring a workspace's storage was interrupted");
                    continue;
                }
            };
            let command = Command::MeasureStorage { workspace, bytes };
            if let Err(error) = handle.submit("neap", command, Vec::new()).await {
                tracing::warn!(%workspace, %error, "what a workspace keeps is not on record");
            }
        }
        let took = Duration::from_micros(watch.elapsed_us());
        tokio::time::sleep(every.max(took * 19)).await;
    }
}

/// Ids are dense and never reused: what was handed out and is not there has been deleted.
fn deleted(state: &State) -> impl Iterator<Item = WorkspaceId> + '_ {
    (1..state.next.workspace.0).map(WorkspaceId).filter(|id| !state.workspaces.contains_key(id))
}
