//! Requests about blobs that lie elsewhere, in containers whose names begin with `~`. They are passed on piece by piece,
//! so that nodes and clients speak one protocol and hold no credentials but the signed URLs of this server.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt;
use neap_core::Refusal;
use neap_storage::foreign::{Entry, Error, Foreign, WEB_QUERY};
use neap_storage::{BLOB_BYTES_MAX, BlobProperties, ByteRange, Headers, ListEntry, ListPage, ListQuery};

use super::BlobFace;
use super::answer::{Failure, describe, empty, set, written};
use super::container::{answer_listing, query_of};
use super::request::{Access, Operation, Target};
use super::write::{announced_md5, condition_for, refuse_too_long};
use crate::elsewhere::Opened;

/// Entries of one answer.
const ENTRIES_MAX: usize = 5_000;

pub(super) async fn serve(
    face: &BlobFace,
    operation: Operation,
    access: Access,
    target: &Target,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let open = |name: &str, write: bool| {
        let opener = face.elsewhere.as_ref().ok_or_else(Failure::no_such_path)?;
        opener(&target.account, &target.container, name, target.get(WEB_QUERY), write).map_err(refused)
    };
    match operation {
        Operation::List => {
            let query = query_of(target)?;
            let opened = open(&query.prefix, false)?;
            list(&opened, target, query).await
        }
        Operation::Properties => properties(&open(&target.blob, false)?).await,
        Operation::Get => content(&open(&target.blob, false)?, headers).await,
        Operation::Put => put(face, &open(&target.blob, true)?, access, headers, body).await,
        Operation::Delete => {
            let opened = open(&target.blob, true)?;
            opened.store.delete(&opened.name).await?;
            Ok(empty(StatusCode::ACCEPTED))
        }
        Operation::SetMetadata => {
            // Clients write there that an upload is complete. It is not kept: they upload again, and no harm is done.
            let opened = open(&target.blob, true)?;
            Ok(written(StatusCode::OK, &properties_of(&opened.store.head(&opened.name).await?)))
        }
        Operation::PutBlock
        | Operation::PutBlockList
        | Operation::ContainerProperties
        | Operation::CreateContainer => Err(Failure::unsupported(
            "Of what lies elsewhere, blobs can be read, listed, put whole and deleted through this server.",
        )),
    }
}

async fn list(opened: &Opened, target: &Target, query: ListQuery) -> Result<Response, Failure> {
    let room = query.results_max.unwrap_or(ENTRIES_MAX).clamp(1, ENTRIES_MAX);
    let after = query.marker.as_deref().and_then(|marker| marker.strip_prefix(&opened.base));
    let found = opened.store.list(&opened.name, after, room).await?;
    let mut page = ListPage {
        entries: Vec::new(),
        next_marker: found.next.map(|name| format!("{}{name}", opened.base)),
    };
    for entry in found.entries {
        let name = format!("{}{}", opened.base, entry.name);
        let group = query.delimiter.as_ref().and_then(|delimiter| {
            let at = name.get(query.prefix.len()..)?.find(delimiter.as_str())?;
            Some(name[..query.prefix.len() + at + delimiter.len()].to_owned())
        });
        let line = match group {
            Some(group) => ListEntry::Prefix(group),
            None => ListEntry::Blob { properties: properties_of(&entry), name },
        };
        if page.entries.last() != Some(&line) {
            page.entries.push(line);
        }
    }
    Ok(answer_listing(target, &query, &page))
}

async fn properties(opened: &Opened) -> Result<Response, Failure> {
    let properties = properties_of(&opened.store.head(&opened.name).await?);
    let mut response = empty(StatusCode::OK);
    describe(response.headers_mut(), &properties, true);
    set(response.headers_mut(), header::CONTENT_LENGTH, &properties.length.to_string());
    Ok(response)
}

async fn content(opened: &Opened, headers: &HeaderMap) -> Result<Response, Failure> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let asked = text(HeaderName::from_static("x-ms-range")).or_else(|| text(header::RANGE));
    let part = match asked {
        None => None,
        Some(asked) => {
            let total = opened.store.head(&opened.name).await?.bytes;
            let part = ByteRange::parse(asked, total, &opened.name)?;
            Some((part.start, Some(part.length)))
        }
    };
    let found = opened.store.get(&opened.name, part).await?;
    let properties = properties_of(&found.entry);
    let mut response = Response::new(Body::from_stream(found.pieces));
    let answer = response.headers_mut();
    describe(answer, &properties, part.is_none());
    if let Some(length) = found.length {
        answer.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let (Some(_), Some(length)) = (part, found.length) {
        let last = found.start.saturating_add(length.max(1) - 1);
        set(answer, header::CONTENT_RANGE, &format!("bytes {}-{last}/{}", found.start, properties.length));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

async fn put(
    face: &BlobFace,
    opened: &Opened,
    access: Access,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let (store, name): (&Foreign, _) = (&opened.store, opened.name.as_str());
    refuse_too_long(headers, BLOB_BYTES_MAX)?;
    let announced = announced_md5(headers)?;
    if condition_for(headers, access).if_none_match.as_deref() == Some("*") {
        match store.head(name).await {
            Ok(_) => return Err(neap_storage::Error::BlobExists(name.to_owned()).into()),
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let _permit = face.uploads.acquire().await.map_err(|_| Failure::internal())?;
    let cut_off = name.to_owned();
    let over = name.to_owned();
    let pieces = body.into_data_stream().map(move |piece| piece.map_err(|_| Error::CutOff(cut_off.clone())));
    // After the last piece: an attempt that ended meanwhile stores nothing.
    let alive = face.clone();
    let last = futures_util::stream::once(async move { alive.refuse_the_dead(access.bound) });
    let last = last.filter_map(move |alive| {
        let dead = alive.err().map(|_| Err(Error::CutOff(over.clone())));
        async move { dead }
    });
    let pieces = pieces.chain(last);
    let entry = store.put(name, pieces.boxed(), announced).await?;
    Ok(written(StatusCode::CREATED, &properties_of(&entry)))
}

fn properties_of(entry: &Entry) -> BlobProperties {
    BlobProperties {
        length: entry.bytes,
        etag: entry.etag.clone(),
        last_modified_ms: entry.modified_ms,
        headers: Headers::default(),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn refused(refusal: Refusal) -> Failure {
    let status = StatusCode::from_u16(refusal.code().http_status()).unwrap_or(StatusCode::BAD_REQUEST);
    Failure::new(status, refusal.code().name(), refusal.to_string())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, code) = match &error {
            Error::NotFound(_) => (StatusCode::NOT_FOUND, "BlobNotFound"),
            Error::Denied(_) => (StatusCode::FORBIDDEN, "AuthorizationFailure"),
            Error::Refused(_) => (StatusCode::FORBIDDEN, "AuthorizationFailure"),
            Error::Unsupported(_) => (StatusCode::BAD_REQUEST, "UnsupportedOperation"),
            Error::BadName(_) => (StatusCode::BAD_REQUEST, "InvalidResourceName"),
            Error::Range(_) => (StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange"),
            Error::Md5(_) => (StatusCode::BAD_REQUEST, "Md5Mismatch"),
            Error::CutOff(_) => (StatusCode::BAD_REQUEST, "IncompleteBody"),
            Error::Failed(_) => {
                tracing::warn!("a store elsewhere failed: {error}");
                (StatusCode::BAD_GATEWAY, "StoreUnreachable")
            }
        };
        Self::new(status, code, error.to_string())
    }
}
