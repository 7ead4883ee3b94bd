//! Azure Blob Storage's REST interface, as far as Azure ML's clients use it, under
//! `/{account}.blob.core.windows.net/{container}/{blob}` and `/{account}/{container}/{blob}`.
//!
//! A request is let in by its signed query or by a bearer token. A signed query that names an attempt of a job is good
//! only while that attempt lives: this is asked before the store is touched, and again before a write appears. Content streams in both directions and is
//! never held whole. This face never logs a query and never says where on disk anything is.
//!
//! [`router`] answers as a fallback, because blob names contain slashes, doubled and trailing ones too, which
//! a table of routes would change. What is no blob path gets a plain 404.

mod answer;
mod container;
mod foreign;
mod incoming;
mod live;
mod mounted;
mod read;
mod request;
mod write;
mod xml;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use neap_storage::{Bound, SasKey, Store};
use tokio::sync::Semaphore;

pub(crate) use live::is_live;

use answer::{Failure, Stamp};
use request::{Operation, Target};

/// Uploads that write at once; more wait. Each holds a thread while its client sends.
const UPLOADS_AT_ONCE: usize = 128;
/// Content up to this size is read in one piece; larger content streams.
const ONE_PIECE_BYTES: u64 = 256 * 1024;
/// Longest list of blocks: 50,000 ids of 64 bytes with their tags.
const BLOCK_LIST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Whether the headers of a request carry a bearer token that opens the blobs.
pub type BearerCheck = Arc<dyn Fn(&HeaderMap, &Uri) -> bool + Send + Sync>;
/// The time, in unix seconds.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Whether the attempt that a signed query is bound to lives: it is its job's current one and has not ended.
pub type LiveCheck = Arc<dyn Fn(Bound) -> bool + Send + Sync>;

/// Opens what lies elsewhere: account, container, name, the query of a web address, and whether to write.
type Opener = Arc<
    dyn Fn(&str, &str, &str, Option<&str>, bool) -> Result<crate::elsewhere::Opened, neap_core::Refusal>
        + Send
        + Sync,
>;

/// What this face needs.
#[derive(Clone)]
pub struct BlobFace {
    pub store: Arc<Store>,
    /// Checks signed queries.
    pub sas: Arc<SasKey>,
    pub bearer: BearerCheck,
    pub now_s: Clock,
    pub is_live: LiveCheck,
    elsewhere: Option<Opener>,
    uploads: Arc<Semaphore>,
}

impl std::fmt::Debug for BlobFace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobFace").field("store", &self.store).finish_non_exhaustive()
    }
}

impl BlobFace {
    pub fn new(
        store: Arc<Store>,
        sas: Arc<SasKey>,
        bearer: BearerCheck,
        now_s: Clock,
        is_live: LiveCheck,
    ) -> Self {
        Self {
            store,
            sas,
            bearer,
            now_s,
            is_live,
            elsewhere: None,
            uploads: Arc::new(Semaphore::new(UPLOADS_AT_ONCE)),
        }
    }
}

/// The blob face as a router that answers everything given to it.
pub fn router(face: impl Into<BlobFace>) -> Router {
    Router::new().fallback(handle).with_state(face.into())
}

/// Whether a request shows a signature that opens what it asks for. Nothing of the store is touched.
pub(crate) fn is_signed(sas: &SasKey, now_s: i64, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let Ok(target) = Target::of(uri) else { return false };
    Operation::of(method, &target, headers).is_ok_and(|operation| target.is_signed(sas, operation, now_s))
}

/// Whether the body of such a request is held in memory: only lists of blocks are.
pub(crate) fn buffers_body(uri: &Uri) -> bool {
    Target::of(uri).is_ok_and(|target| target.get("comp") == Some("blocklist"))
}

async fn handle(State(face): State<BlobFace>, request: Request) -> Response {
    let stamp = Stamp::of(&face, request.headers());
    let answered = match Target::of(request.uri()) {
        Ok(target) => serve(&face, target, request).await,
        Err(failure) => Err(failure),
    };
    stamp.finish(answered)
}

async fn serve(face: &BlobFace, target: Target, request: Request) -> Result<Response, Failure> {
    let operation = Operation::of(request.method(), &target, request.headers())?;
    let access = target.authorize(face, operation, request.headers(), request.uri())?;
    let (parts, body) = request.into_parts();
    if neap_storage::foreign::is_foreign(&target.container) {
        return foreign::serve(face, operation, access, &target, &parts.headers, body).await;
    }
    match operation {
        Operation::Properties => read::properties(face, &target, &parts.headers).await,
        Operation::Get => read::content(face, &target, &parts.headers).await,
        Operation::Put => write::put(face, &target, access, &parts.headers, body).await,
        Operation::PutBlock => write::put_block(face, &target, &parts.headers, body).await,
        Operation::PutBlockList => write::put_block_list(face, &target, access, &parts.headers, body).await,
        Operation::SetMetadata => write::set_metadata(face, &target, &parts.headers).await,
        Operation::Delete => write::delete(face, &target, &parts.headers).await,
        Operation::List => container::list(face, &target).await,
        Operation::ContainerProperties => container::properties(face, &target).await,
        Operation::CreateContainer => container::create(face, &target).await,
    }
}

/// Runs a blocking call of the store.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => {
            tracing::error!("a blob request ended abnormally: {e}");
            Err(Failure::internal())
        }
    }
}

#[cfg(test)]
mod tests;
