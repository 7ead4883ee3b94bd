//! A datastore of the workspace: upload a snapshot to it, download what lies under a prefix.

use super::blob::{self, Container};
use super::listing;
use super::snapshot::{Snapshot, SnapshotFile};
use crate::client::segment;
use crate::failure::{Exit, Failure, Outcome};
use crate::session::Session;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Component, Path};

pub const BLOB_STORE: &str = "workspaceblobstore";
pub const ARTIFACT_STORE: &str = "workspaceartifactstore";
const TRANSFERS_AT_ONCE: usize = 8;

#[derive(Debug)]
pub struct Datastore {
    container: Container,
}

impl Datastore {
    /// Asks where the datastore is, and for a signature to use it.
    pub async fn open(name: &str, session: &Session) -> Outcome<Self> {
        let path = session.path(&format!("datastores/{}", segment(name)));
        let datastore = session.client.get(&path).await?;
        let text = |key: &str| {
            let value = datastore.pointer(&format!("/properties/{key}")).and_then(Value::as_str);
            value.ok_or_else(|| Failure::failed(format!("the datastore {name} has no {key}")))
        };
        // The Azure clients build the URL from the account's name alone, so the server puts its place into it.
        let url =
            format!("https://{}.blob.core.windows.net/{}", text("accountName")?, text("containerName")?);
        let secrets = session
            .client
            .call(
                Method::POST,
                &format!("{path}/listSecrets"),
                Some(&json!({"expirableSecret": true, "expireAfterHours": 1})),
            )
            .await?
            .body;
        let sas = secrets.get("sasToken").and_then(Value::as_str).ok_or_else(|| {
            Failure::failed(format!(
                "the datastore {name} gives no SAS token, the only secret this client can use"
            ))
        })?;
        Ok(Self { container: Container::new(&url, sas) })
    }

    /// The URL of a path in the datastore, as build contexts are named.
    pub fn url(&self, path: &str) -> String {
        self.container.plain_url(path)
    }

    /// Uploads a snapshot unless it is there; answers its path: a folder's ends with `/`.
    pub async fn upload(&self, snapshot: &Snapshot, session: &Session) -> Outcome<String> {
        let root = format!("LocalUpload/{}", snapshot.hash);
        let (path, blobs): (String, Vec<(String, &SnapshotFile)>) = if snapshot.is_file {
            let path = format!("{root}/{}", snapshot.name);
            (path.clone(), snapshot.files.iter().map(|file| (path.clone(), file)).collect())
        } else {
            let path = format!("{root}/{}/", snapshot.name);
            let blobs = snapshot.files.iter().map(|file| (format!("{path}{}", file.name), file)).collect();
            (path, blobs)
        };
        let Some((first, _)) = blobs.first() else { return Ok(path) };
        if blob::is_complete(&session.client, &self.container, first).await? {
            session.terminal.verbose(&format!("{} is on the server already", snapshot.name));
            return Ok(path);
        }
        let label = format!("uploading {}", snapshot.name);
        put_all(&self.container, &blobs, snapshot.bytes(), &label, session).await?;
        blob::mark_complete(&session.client, &self.container, first).await?;
        Ok(path)
    }

    /// Downloads every blob under `prefix` into `folder`; answers how many there were.
    pub async fn download(&self, prefix: &str, folder: &Path, session: &Session) -> Outcome<usize> {
        let blobs = self.list(prefix, session).await?;
        let mut targets = Vec::with_capacity(blobs.len());
        for (name, bytes) in &blobs {
            let below = name.strip_prefix(prefix).unwrap_or(name);
            // So ends the name of a folder that has nothing in it.
            if name.ends_with('/') {
                let made = folder.join(safe(below.trim_end_matches('/'))?);
                std::fs::create_dir_all(&made)
                    .map_err(|error| Failure::failed(format!("cannot make {}: {error}", made.display())))?;
                continue;
            }
            // An output that is a single file has the prefix itself as its name.
            let below = if below.is_empty() {
                name.trim_end_matches('/').rsplit('/').next().unwrap_or(name)
            } else {
                below
            };
            targets.push((name, folder.join(safe(below)?), bytes));
        }
        let total = blobs.iter().map(|(_, bytes)| bytes).sum();
        let bar = session.terminal.byte_bar("downloading", total);
        stream::iter(
            targets
                .iter()
                .map(|(name, target, _)| blob::get(&session.client, &self.container, name, target, &bar)),
        )
        .buffer_unordered(TRANSFERS_AT_ONCE)
        .try_collect::<()>()
        .await?;
        bar.finish_and_clear();
        Ok(targets.len())
    }

    async fn list(&self, prefix: &str, session: &Session) -> Outcome<Vec<(String, u64)>> {
        let mut blobs = Vec::new();
        let mut marker: Option<String> = None;
        loop {
            let url = self.container.list_url(prefix, marker.as_deref());
            let response = match session.client.send_bare(session.client.bare(Method::GET, &url)).await {
                Ok(response) => response,
                // A container that nothing was ever written to may not exist.
                Err(failure) if failure.exit == Exit::NotFound => return Ok(blobs),
                Err(failure) => return Err(failure),
            };
            let xml = response
                .text()
                .await
                .map_err(|error| Failure::failed(format!("the list of {prefix} broke off: {error}")))?;
            let page = listing::parse(&xml);
            blobs.extend(page.blobs);
            match page.next {
                Some(next) if marker.as_ref() != Some(&next) => marker = Some(next),
                _ => return Ok(blobs),
            }
        }
    }
}

/// Puts blobs side by side, with one bar over all.
pub async fn put_all(
    container: &Container,
    blobs: &[(String, &SnapshotFile)],
    bytes: u64,
    label: &str,
    session: &Session,
) -> Outcome<()> {
    let bar = session.terminal.byte_bar(label, bytes);
    stream::iter(
        blobs
            .iter()
            .map(|(name, file)| blob::put(&session.client, container, name, &file.path, file.bytes, &bar)),
    )
    .buffer_unordered(TRANSFERS_AT_ONCE)
    .try_collect::<()>()
    .await?;
    bar.finish_and_clear();
    Ok(())
}

/// A blob's name as a path that stays inside the folder it is downloaded to.
fn safe(name: &str) -> Outcome<&Path> {
    let path = Path::new(name);
    if path.components().all(|part| matches!(part, Component::Normal(_))) && !name.contains('\\') {
        return Ok(path);
    }
    Err(Failure::failed(format!(
        "the blob name `{name}` would leave the download folder; nothing was downloaded"
    )))
}

#[cfg(test)]
mod tests {
    use super::safe;

    #[test]
    fn names_stay_inside_the_folder() {
        for (name, good) in
            [("a/b.txt", true), ("../a", false), ("/etc/x", false), ("a/../../b", false), ("a\\b", false)]
        {
            assert_eq!(safe(name).is_ok(), good, "{name}");
        }
    }
}
