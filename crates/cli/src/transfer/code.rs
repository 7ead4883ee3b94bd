//! A code snapshot to the server: looked up by its hash first, else uploaded to a place of its own.

use super::blob::{self, Container};
use super::datastore::put_all;
use super::snapshot::Snapshot;
use crate::failure::{Failure, Outcome};
use crate::names::uuid;
use crate::session::Session;
use reqwest::Method;
use serde_json::{Value, json};

const HASH_VERSION: u32 = 202_208;

/// The id of the code version that holds the snapshot, if there is one.
pub async fn find_code(snapshot: &Snapshot, session: &Session) -> Outcome<Option<String>> {
    let (name, hash) = (uuid()?, &snapshot.hash);
    let versions = session.path(&format!("codes/{name}/versions"));
    let known =
        session.client.list(&format!("{versions}?hash={hash}&hashVersion={HASH_VERSION}"), Some(1)).await?;
    let id = known.first().and_then(|version| version.get("id")).and_then(Value::as_str);
    Ok(id.map(str::to_owned))
}

/// The same; it is uploaded where there is none.
pub async fn upload_code(snapshot: &Snapshot, session: &Session) -> Outcome<String> {
    let hash = &snapshot.hash;
    if let Some(id) = find_code(snapshot, session).await? {
        session.terminal.verbose(&format!("the code is on the server already ({hash})"));
        return Ok(id);
    }
    let name = uuid()?;
    let versions = session.path(&format!("codes/{name}/versions"));
    let pending = session
        .client
        .call(
            Method::POST,
            &format!("{versions}/1/startPendingUpload"),
            Some(&json!({"pendingUploadType": "TemporaryBlobReference"})),
        )
        .await?
        .body;
    let text = |pointer: &str| {
        pending
            .pointer(pointer)
            .and_then(Value::as_str)
            .ok_or_else(|| Failure::failed(format!("the server's pending upload lacks {pointer}")))
    };
    let container = Container::from_signed(text("/blobReferenceForConsumption/credential/sasUri")?);
    let blob_uri = text("/blobReferenceForConsumption/blobUri")?.trim_end_matches('/').to_owned();
    let folder = if snapshot.is_file { "code" } else { &snapshot.name };
    let blobs: Vec<_> = snapshot.files.iter().map(|file| (format!("{folder}/{}", file.name), file)).collect();
    put_all(&container, &blobs, snapshot.bytes(), "uploading code", session).await?;
    if let Some((first, _)) = blobs.first() {
        blob::mark_complete(&session.client, &container, first).await?;
    }
    let body = json!({"properties": {
        "codeUri": format!("{blob_uri}/{folder}"),
        "isAnonymous": true,
        "properties": {"hash_sha256": hash, "hash_version": HASH_VERSION},
    }});
    let version = session.client.call(Method::PUT, &format!("{versions}/1"), Some(&body)).await?.body;
    let id = version.get("id").and_then(Value::as_str);
    Ok(id.map_or_else(|| format!("{}/codes/{name}/versions/1", session.scope.workspace_id()), str::to_owned))
}
