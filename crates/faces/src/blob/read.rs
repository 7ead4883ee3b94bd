//! Requests that read blobs. Small content goes in one piece, larger content streams from the open file, so a
//! blob that is replaced meanwhile is still read as it was.

use std::fs::File;
use std::os::unix::fs::FileExt;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use neap_storage::{BlobProperties, ByteRange};

use super::answer::{Failure, describe, empty, set};
use super::request::Target;
use super::write::condition_of;
use super::{BlobFace, ONE_PIECE_BYTES, blocking};

pub(super) async fn properties(
    face: &BlobFace,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let address = target.address()?;
    let condition = condition_of(headers);
    let store = face.store.clone();
    let properties = blocking(move || {
        let properties = store.properties(&address)?;
        condition.check(&address, Some(&properties)).map_err(|e| for_reader(e, &condition))?;
        Ok(properties)
    })
    .await?;
    let mut response = empty(StatusCode::OK);
    describe(response.headers_mut(), &properties, true);
    if target.get("comp").is_none() {
        set(response.headers_mut(), header::CONTENT_LENGTH, &properties.length.to_string());
    }
    Ok(response)
}

/// `If-None-Match` tells a reader that its copy is good; `If-Match` that it is not.
fn for_reader(error: neap_storage::Error, condition: &neap_storage::Condition) -> Failure {
    let failure = Failure::from(error);
    if condition.if_match.is_none() { failure.for_reader() } else { failure }
}

/// What one blocking call finds out about the content to send.
struct Found {
    properties: BlobProperties,
    part: ByteRange,
    content: Content,
}

enum Content {
    Whole(Bytes),
    Streamed(File),
}

pub(super) async fn content(
    face: &BlobFace,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let address = target.address()?;
    let condition = condition_of(headers);
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let asked = text(HeaderName::from_static("x-ms-range")).or_else(|| text(header::RANGE));
    let ranged = asked.is_some();
    let store = face.store.clone();
    let found = blocking(move || {
        let blob = store.open_blob(&address)?;
        condition.check(&address, Some(&blob.properties)).map_err(|e| for_reader(e, &condition))?;
        let total = blob.properties.length;
        let part = match &asked {
            Some(text) => ByteRange::parse(text, total, address.name())?,
            None => ByteRange { start: 0, length: total },
        };
        let content = if part.length <= ONE_PIECE_BYTES {
            Content::Whole(read_piece(&blob.file, part)?)
        } else {
            Content::Streamed(blob.file)
        };
        Ok(Found { properties: blob.properties, part, content })
    })
    .await?;
    let Found { properties, part, content } = found;
    let mut response = Response::new(match content {
        Content::Whole(bytes) => Body::from(bytes),
        Content::Streamed(file) => streamed(file, part),
    });
    let answer = response.headers_mut();
    describe(answer, &properties, !ranged);
    answer.insert(header::CONTENT_LENGTH, HeaderValue::from(part.length));
    if ranged {
        let last = part.start + part.length - 1;
        set(answer, header::CONTENT_RANGE, &format!("bytes {}-{last}/{}", part.start, properties.length));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn read_piece(file: &File, part: ByteRange) -> Result<Bytes, Failure> {
    let length = usize::try_from(part.length).map_err(|_| Failure::internal())?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, part.start).map_err(|e| {
        tracing::error!("could not read an open blob: {e}");
        Failure::internal()
    })?;
    Ok(Bytes::from(bytes))
}

/// Reads the part piece by piece, each when the client has room for it. An error in the middle ends the
/// connection, which the client notices by the length.
fn streamed(file: File, part: ByteRange) -> Body {
    Body::from_stream(stream::try_unfold((file, part), |(file, left)| async move {
        if left.length == 0 {
            return Ok(None);
        }
        let piece = ByteRange { start: left.start, length: left.length.min(4 * ONE_PIECE_BYTES) };
        let read = blocking(move || read_piece(&file, piece).map(|bytes| (bytes, file)));
        let (bytes, file) = read.await.map_err(|_| std::io::Error::other("the blob could not be read on"))?;
        let rest = ByteRange { start: piece.start + piece.length, length: left.length - piece.length };
        Ok::<_, std::io::Error>(Some((bytes, (file, rest))))
    }))
}
