//! What the outputs of a job become when it completes: asset versions, put in the same commit as its end.
//!
//! Everything about them but an open version was fixed when the job was submitted. It is chosen here, under a lock that
//! is held until the choice is durable, so that two jobs that end at once do not choose the same.

use std::sync::Arc;

use neap_core::command::{AttemptNews, NewAsset, Report};
use neap_core::documents::{AssetDocument, JobDocument, Registration};
use neap_core::job::Exit;
use neap_core::{Command, JobId, Refusal, WorkspaceId};
use neap_ledger::{Document, Reader};

use crate::session::take_in_with;
use crate::sessions::Sessions;
use crate::{clock, limits};

/// What a job registers, where, and for whom.
#[derive(Debug)]
pub(crate) struct Found {
    workspace: WorkspaceId,
    owner: String,
    registrations: Vec<Registration>,
}

/// The registrations of a job, if this news may complete it and it has any.
pub(crate) fn of(sessions: &Sessions, report: &Report) -> Option<Found> {
    let Report::Attempt { attempt, news: AttemptNews::Ended { exit: Exit::Success }, .. } = report else {
        return None;
    };
    let state = sessions.handle.inner.published.load();
    let job = state.jobs.get(&attempt.job)?;
    let body = sessions.handle.reader().document(&job.document).ok().flatten()?;
    let registrations = in_document(&body, attempt.job);
    let (workspace, owner) = (job.workspace, job.owner.to_string());
    (!registrations.is_empty()).then_some(Found { workspace, owner, registrations })
}

fn in_document(body: &[u8], job: JobId) -> Vec<Registration> {
    // Most jobs have none, and their documents need not be taken apart again.
    let word = b"\"register\"";
    if !body.windows(word.len()).any(|window| window == word) {
        return Vec::new();
    }
    match serde_json::from_slice::<JobDocument>(body) {
        Ok(document) => {
            document.outputs.into_values().filter_map(|output| output.more().register.clone()).collect()
        }
        Err(error) => {
            tracing::error!(%job, %error, "the job's definition cannot be read; nothing of it is registered");
            Vec::new()
        }
    }
}

/// Offers the news together with the assets until the ledger takes both.
pub(crate) async fn take_in(sessions: Arc<Sessions>, report: Report, found: Found) -> Result<(), Refusal> {
    let Found { workspace, owner, registrations } = found;
    let _one_at_a_time = sessions.registering.lock().await;
    let (mut assets, mut documents) = (Vec::new(), Vec::new());
    for registration in registrations {
        let version = free_version(sessions.handle.reader(), workspace, &registration, &assets);
        let document = AssetDocument {
            properties: registration.properties,
            created_by: owner.clone(),
            created_ms: clock::wall().0,
            sealed_secret: None,
        };
        match Document::json(&document) {
            Ok(document) => {
                assets.push(NewAsset {
                    workspace,
                    kind: registration.kind.into(),
                    name: registration.name.into(),
                    version: version.into(),
                    document: document.hash,
                });
                documents.push(document);
            }
            Err(error) => tracing::error!(name = registration.name, %error, "an output is not registered"),
        }
    }
    take_in_with(sessions.handle.clone(), Command::ReportOutputs { report, assets }, documents).await
}

/// The version that was asked for, if it is free; otherwise the next number.
fn free_version(
    reader: &Reader,
    workspace: WorkspaceId,
    asked: &Registration,
    chosen: &[NewAsset],
) -> String {
    let taken = |version: &str| {
        let among = |asset: &NewAsset| {
            (&*asset.kind, &*asset.name, &*asset.version) == (&asked.kind, &asked.name, version)
        };
        chosen.iter().any(among)
            || matches!(reader.asset(workspace, &asked.kind, &asked.name, version), Ok(Some(_)))
    };
    if let Some(version) = &asked.version {
        if !taken(version) {
            return version.clone();
        }
        tracing::warn!(
            name = asked.name,
            version,
            "an output's version has been taken meanwhile; it gets the next"
        );
    }
    let rows = reader.asset_versions(workspace, &asked.kind, &asked.name, limits::VERSIONS_LOOKED_AT_MAX);
    let highest = rows.unwrap_or_default().iter().filter_map(|row| row.version.parse::<u64>().ok()).max();
    let mut next = highest.unwrap_or(0).saturating_add(1);
    while taken(&next.to_string()) {
        next += 1;
    }
    next.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_core::documents::{BlobPath, OutputDetails, OutputDocument};

    #[test]
    fn registrations_are_found_in_a_document() {
        let at = BlobPath { account: "a".into(), container: "c".into(), path: "p/".into() };
        let registration = Registration {
            kind: "data".into(),
            name: "prices".into(),
            version: None,
            properties: serde_json::json!({"dataType": "uri_folder"}),
        };
        let output = |register| OutputDocument::Folder {
            at: at.clone(),
            more: OutputDetails { register, ..OutputDetails::default() },
        };
        let document = |register| JobDocument {
            outputs: [("o".into(), output(register)), ("plain".into(), output(None))].into(),
            ..JobDocument::default()
        };
        let found = |document: &JobDocument| in_document(&serde_json::to_vec(document).unwrap(), JobId(1));
        assert_eq!(found(&document(None)), []);
        assert_eq!(found(&document(Some(registration.clone()))), [registration]);
        assert_eq!(in_document(b"{\"register\": 3", JobId(1)), []);
    }
}
