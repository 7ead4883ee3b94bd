//! A workspace's own storage: the names of its account and containers, URLs and signatures for them, and its jobs' logs.
//!
//! The store blocks, so every call of it is made on a thread for that.

use std::sync::Arc;

use neap_core::documents::BlobPath;
use neap_core::{Code, Refusal, WorkspaceId};
use neap_ledger::JobRow;
use neap_storage::joblog::Shelf;
use neap_storage::sas::{Grant, Permission, Scope};
use neap_storage::{BlobAddress, Condition, Headers, ListQuery, Store};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::app::{App, internal};
use crate::ask::Query;
use crate::limits;

/// The default datastore: inputs and outputs.
pub(crate) const BLOB_STORE: &str = "workspaceblobstore";
/// The datastore of logs.
pub(crate) const ARTIFACT_STORE: &str = "workspaceartifactstore";
pub(crate) const BLOB_CONTAINER: &str = "azureml-blobstore";
pub(crate) const ARTIFACT_CONTAINER: &str = "azureml";
/// What the folders of runs begin with, in the container for artifacts; the run's id follows.
pub(crate) const RUN_FOLDERS: &str = "ExperimentRun/dcid.";
/// The folder of a job's log, in the folder of its run. It is the server's to write.
pub(crate) const LOG_FOLDER: &str = "user_logs";
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) fn account(workspace: WorkspaceId) -> String {
    format!("neapst{workspace}")
}

/// The container behind a built-in datastore.
pub(crate) fn container_of(datastore: &str) -> Option<&'static str> {
    if datastore.eq_ignore_ascii_case(BLOB_STORE) {
        Some(BLOB_CONTAINER)
    } else if datastore.eq_ignore_ascii_case(ARTIFACT_STORE) {
        Some(ARTIFACT_CONTAINER)
    } else {
        None
    }
}

/// The built-in datastore before a container.
pub(crate) fn datastore_of(container: &str) -> Option<&'static str> {
    match container {
        BLOB_CONTAINER => Some(BLOB_STORE),
        ARTIFACT_CONTAINER => Some(ARTIFACT_STORE),
        _ => None,
    }
}

/// Where a job's output goes unless it says otherwise.
pub(crate) fn default_output(workspace: WorkspaceId, path: String) -> BlobPath {
    BlobPath { account: account(workspace), container: BLOB_CONTAINER.into(), path }
}

/// Makes the containers that a workspace begins with. Doing it again changes nothing. It blocks.
pub fn prepare(store: &Store, workspace: WorkspaceId) -> neap_storage::Result<()> {
    let account = account(workspace);
    store.create_container(&account, BLOB_CONTAINER)?;
    store.create_container(&account, ARTIFACT_CONTAINER).map(drop)
}

pub(crate) async fn open_workspace(app: &App, workspace: WorkspaceId) -> Result<(), Refusal> {
    in_store(app, move |store| prepare(store, workspace)).await
}

/// A container of its own for one code snapshot.
pub(crate) async fn new_snapshot(app: &App, workspace: WorkspaceId) -> Result<String, Refusal> {
    let container =
        format!("snapshot-{}", neap_identity::random_guid().map_err(|e| internal(e.to_string()))?);
    let (account, name) = (account(workspace), container.clone());
    in_store(app, move |store| store.create_container(&account, &name).map(drop)).await?;
    Ok(container)
}

pub(crate) async fn container_exists(app: &App, account: String, container: String) -> Result<bool, Refusal> {
    in_store(app, move |store| store.container_exists(&account, &container)).await
}

/// The query that opens a container for the usual while.
pub(crate) fn container_signature(app: &App, account: &str, container: &str) -> String {
    let now_s = app.now_s();
    let grant = Grant {
        account: account.into(),
        container: container.into(),
        scope: Scope::Container,
        permissions: Permission::ALL.to_vec(),
        starts_s: None,
        expires_s: now_s + limits::SIGNED_URL_TTL_S,
        bound: None,
        web_query: None,
    };
    app.sas.sign(&grant, now_s)
}

/// The URL of a job's log, or of one rank's, for one caller: needs no token, holds for an hour, opens nothing else.
pub(crate) fn log_url(app: &App, base: &str, job: &JobRow, rank: Option<u32>, caller: &str) -> String {
    let now_s = app.now_s();
    let account = account(job.workspace);
    let grant = Grant {
        account: account.clone(),
        container: ARTIFACT_CONTAINER.into(),
        scope: Scope::Blob(log_permit(job.id.0, rank, caller)),
        permissions: vec![Permission::Read],
        starts_s: None,
        expires_s: now_s + limits::SIGNED_URL_TTL_S,
        bound: None,
        web_query: None,
    };
    let signature = app.sas.sign(&grant, now_s);
    let rank = rank.map(|rank| format!("rank={rank}&")).unwrap_or_default();
    let caller = utf8_percent_encode(caller, NAME);
    format!("{base}/neap/logs/{account}/{}?{rank}for={caller}&{signature}", job.id)
}

/// Whether a log URL is one of ours; gives the rank and the caller it was made for.
pub(crate) fn check_log_url(
    app: &App,
    query: &Query,
    account: &str,
    job: u64,
) -> Result<(Option<u32>, String), Refusal> {
    let caller = query.get("for").unwrap_or("");
    let rank = query.get("rank").and_then(|rank| rank.parse().ok());
    app.sas
        .check(
            query.pairs(),
            account,
            ARTIFACT_CONTAINER,
            &log_permit(job, rank, caller),
            &[Permission::Read],
            app.now_s(),
        )
        .map_err(|e| Refusal::because(Code::AuthorizationFailed, format!("The log cannot be read: {e}.")))?;
    Ok((rank, caller.into()))
}

/// What a log URL is signed over: no blob has such a name, so it opens no blob.
fn log_permit(job: u64, rank: Option<u32>, caller: &str) -> String {
    match rank {
        None => format!("@neap-log/{job}/{caller}"),
        Some(rank) => format!("@neap-log/{job}/rank-{rank}/{caller}"),
    }
}

pub(crate) fn log_address(job: &JobRow) -> Result<BlobAddress, Refusal> {
    neap_storage::joblog::address(&account(job.workspace), ARTIFACT_CONTAINER, &job.name).map_err(storage)
}

/// Where a job's log lies, or that of one rank, and how much of it is shown: while the job runs only its whole lines,
/// since clients count lines.
pub(crate) async fn log_extent(
    app: &App,
    job: &JobRow,
    rank: Option<u32>,
) -> Result<(BlobAddress, u64), Refusal> {
    let address = match rank {
        None => log_address(job)?,
        Some(rank) => {
            let account = account(job.workspace);
            let shelf = Shelf { account: &account, container: ARTIFACT_CONTAINER, job_name: &job.name };
            neap_storage::joblog::rank_address(shelf, rank).map_err(storage)?
        }
    };
    let running = !job.status.is_final();
    in_store(app, move |store| {
        let length = match store.open_blob(&address) {
            Ok(blob) if running => neap_storage::joblog::whole_lines_len(&blob.file, blob.properties.length)?,
            Ok(blob) => blob.properties.length,
            Err(neap_storage::Error::BlobNotFound(_) | neap_storage::Error::ContainerNotFound { .. }) => 0,
            Err(error) => return Err(error),
        };
        Ok((address, length))
    })
    .await
}

/// A piece of a blob; nothing where it does not exist.
pub(crate) async fn read_piece(app: &App, address: BlobAddress, offset: u64) -> Result<Vec<u8>, Refusal> {
    in_store(app, move |store| match store.read(&address, offset, limits::LOG_CHUNK_BYTES as usize) {
        Err(neap_storage::Error::BlobNotFound(_) | neap_storage::Error::ContainerNotFound { .. }) => {
            Ok(Vec::new())
        }
        other => other,
    })
    .await
}

/// Removes what a deleted job left: its log, artifacts, and outputs in their default place. Outputs that the job
/// put elsewhere are its owner's, and stay.
pub(crate) async fn remove_job(app: &App, job: &JobRow) -> Result<(), Refusal> {
    let (account, name) = (account(job.workspace), job.name.clone());
    in_store(app, move |store| {
        remove_prefix(store, &account, ARTIFACT_CONTAINER, &format!("ExperimentRun/dcid.{name}/"))?;
        remove_prefix(store, &account, ARTIFACT_CONTAINER, &neap_control::checkpoints_of(&name))?;
        remove_prefix(store, &account, BLOB_CONTAINER, &format!("azureml/{name}/"))
    })
    .await
}

/// Removes a file of a run, or a folder with all that is in it but for what lies below `keep`. It blocks.
pub(crate) fn remove_artifacts(
    store: &Store,
    workspace: WorkspaceId,
    path: &str,
    keep: Option<&str>,
) -> neap_storage::Result<()> {
    let account = account(workspace);
    let remove = |name: &str| match store
        .delete(&BlobAddress::new(account.as_str(), ARTIFACT_CONTAINER, name)?, &Condition::default())
    {
        Ok(()) | Err(neap_storage::Error::BlobNotFound(_)) => Ok(()),
        Err(error) => Err(error),
    };
    remove(path)?;
    let mut query = ListQuery { prefix: format!("{path}/"), ..ListQuery::default() };
    loop {
        let page = store.list(&account, ARTIFACT_CONTAINER, &query)?;
        for entry in &page.entries {
            if keep.is_none_or(|keep| !entry.name().starts_with(keep)) {
                remove(entry.name())?;
            }
        }
        query.marker = page.next_marker;
        if query.marker.is_none() {
            return Ok(());
        }
    }
}

/// Puts a blob that is made piece by piece, whole or not at all.
pub(crate) async fn put_pieces(
    app: &App,
    at: BlobPath,
    make: impl FnOnce(&mut dyn FnMut(&[u8]) -> neap_storage::Result<()>) -> Result<(), Refusal> + Send + 'static,
) -> Result<(), Refusal> {
    let store = Arc::clone(&app.store);
    let work = move || {
        let address = BlobAddress::new(&at.account, &at.container, &at.path).map_err(storage)?;
        let mut upload = store.begin_upload(&address).map_err(storage)?;
        make(&mut |piece| upload.write(piece))?;
        store.put(&address, upload, Headers::default(), &Condition::default()).map(drop).map_err(storage)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(internal(format!("A storage call did not come to an end: {e}."))),
    }
}

/// Puts a blob that never changes, unless it is there.
pub(crate) async fn put_if_absent(app: &App, at: BlobPath, bytes: &'static [u8]) -> Result<(), Refusal> {
    in_store(app, move |store| {
        let address = BlobAddress::new(&at.account, &at.container, &at.path)?;
        match store.properties(&address) {
            Ok(_) => Ok(()),
            Err(neap_storage::Error::BlobNotFound(_)) => {
                store.put_bytes(&address, bytes, Headers::default(), &Condition::default()).map(drop)
            }
            Err(error) => Err(error),
        }
    })
    .await
}

/// Copies a blob, or every blob of a folder, to another place of the store. Doing it again changes nothing.
pub(crate) async fn copy(app: &App, from: BlobPath, to: BlobPath) -> Result<(), Refusal> {
    in_store(app, move |store| {
        if !from.path.ends_with('/') && !from.path.is_empty() {
            let source = BlobAddress::new(&from.account, &from.container, &from.path)?;
            return copy_blob(store, &source, &BlobAddress::new(&to.account, &to.container, &to.path)?);
        }
        let mut query = ListQuery { prefix: from.path.clone(), ..ListQuery::default() };
        loop {
            let page = store.list(&from.account, &from.container, &query)?;
            for entry in &page.entries {
                let rest = entry.name().strip_prefix(&from.path).unwrap_or(entry.name());
                let source = BlobAddress::new(&from.account, &from.container, entry.name())?;
                let target = BlobAddress::new(&to.account, &to.container, format!("{}{rest}", to.path))?;
                copy_blob(store, &source, &target)?;
            }
            match page.next_marker {
                Some(marker) => query.marker = Some(marker),
                None => return Ok(()),
            }
        }
    })
    .await
}

fn copy_blob(store: &Store, from: &BlobAddress, to: &BlobAddress) -> neap_storage::Result<()> {
    let length = store.properties(from)?.length;
    let mut upload = store.begin_upload(to)?;
    let mut offset = 0;
    while offset < length {
        let piece = store.read(from, offset, limits::LOG_CHUNK_BYTES as usize)?;
        if piece.is_empty() {
            break;
        }
        offset += piece.len() as u64;
        upload.write(&piece)?;
    }
    store.put(to, upload, Headers::default(), &Condition::default()).map(drop)
}

pub(crate) fn remove_prefix(
    store: &Store,
    account: &str,
    container: &str,
    prefix: &str,
) -> neap_storage::Result<()> {
    let query = ListQuery { prefix: prefix.to_owned(), ..ListQuery::default() };
    loop {
        let page = store.list(account, container, &query)?;
        for entry in &page.entries {
            let address = BlobAddress::new(account, container, entry.name())?;
            match store.delete(&address, &Condition::default()) {
                Ok(()) | Err(neap_storage::Error::BlobNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        // What was listed is gone, so the next page is the first again.
        if page.next_marker.is_none() {
            return Ok(());
        }
    }
}

pub(crate) async fn in_store<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&Store) -> neap_storage::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let store = Arc::clone(&app.store);
    match tokio::task::spawn_blocking(move || work(&store)).await {
        Ok(done) => done.map_err(storage),
        Err(e) => Err(internal(format!("A storage call did not come to an end: {e}."))),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
pub(crate) fn storage(error: neap_storage::Error) -> Refusal {
    let code = match error {
        neap_storage::Error::DiskFull { .. } => Code::StorageFull,
        neap_storage::Error::AccountFull { .. } => Code::LimitReached,
        neap_storage::Error::BadName { .. } | neap_storage::Error::BadInput { .. } => Code::BadArgument,
        _ => Code::InternalError,
    };
    Refusal::because(code, format!("{error}."))
}

/// A `https://HOST/{account}[.blob.core.windows.net]/{container}/{path}` URL of ours as a place in the store.
pub(crate) fn blob_of_url(url: &str, workspace: WorkspaceId) -> Option<BlobPath> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let (_, path) = rest.split_once('/')?;
    let path = path.split(['?', '#']).next()?;
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
    let own = account(workspace);
    let mut parts = decoded.splitn(3, '/');
    let first = parts.next()?;
    if first.strip_suffix(".blob.core.windows.net").unwrap_or(first) != own {
        return None;
    }
    let container = parts.next().filter(|c| !c.is_empty())?;
    let path = parts.next().unwrap_or("");
    is_safe(path).then(|| BlobPath { account: own, container: container.into(), path: path.into() })
}

/// The same without the account, which clients drop from the places of build contexts: `https://HOST/{container}/{path}`.
pub(crate) fn blob_of_short_url(url: &str, workspace: WorkspaceId) -> Option<BlobPath> {
    let (scheme, rest) = url.split_once("://")?;
    let (host, path) = rest.split_once('/')?;
    let container = path.split('/').next()?;
    let ours = datastore_of(container).is_some() || container.starts_with("snapshot-");
    let whole = format!("{scheme}://{host}/{}/{path}", account(workspace));
    ours.then(|| blob_of_url(&whole, workspace)).flatten()
}

/// A path that stays where it is.
pub(crate) fn is_safe(path: &str) -> bool {
    !path.split('/').any(|part| part == ".." || part == ".") && !path.contains('\\') && !path.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_urls() {
        let check = |url: &str, expect: Option<(&str, &str)>| {
            let read = blob_of_url(url, WorkspaceId(1)).map(|b| (b.container, b.path));
            assert_eq!(read, expect.map(|(c, p)| (c.to_owned(), p.to_owned())), "{url}");
        };
        check("https://h:1/neapst1/snapshot-x/src", Some(("snapshot-x", "src")));
        check("https://h:1/neapst1.blob.core.windows.net/c/a%20b/c?sig=1", Some(("c", "a b/c")));
        check("https://h:1/neapst2/snapshot-x/src", None);
        check("https://h:1/neapst1/c/../d", None);
        check("s3://bucket/x", None);
        check("https://h", None);
        let short = |url: &str| blob_of_short_url(url, WorkspaceId(1)).map(|b| (b.container, b.path));
        let expect = Some(("azureml-blobstore".to_owned(), "LocalUpload/x/".to_owned()));
        assert_eq!(short("https://h:1/azureml-blobstore/LocalUpload/x/"), expect);
        assert_eq!(short("https://h:1/neapst2/c/x"), None);
    }
}
