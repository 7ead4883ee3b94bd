//! Requests that change blobs.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use neap_storage::{BLOB_BYTES_MAX, BLOCK_BYTES_MAX, Condition, Error, Headers, Upload};

use super::answer::{Failure, empty, written};
use super::incoming::{discard, take_in};
use super::request::{Access, Target};
use super::{BLOCK_LIST_BYTES_MAX, BlobFace, blocking, xml};

pub(super) async fn put(
    face: &BlobFace,
    target: &Target,
    access: Access,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let address = target.address()?;
    let condition = condition_for(headers, access);
    let announced = announced_md5(headers)?;
    let mut stated = stated_headers(headers)?;
    refuse_too_long(headers, BLOB_BYTES_MAX)?;
    let store = face.store.clone();
    // A blob that must be new, and is not, is refused without writing its content anywhere.
    if condition.if_none_match.as_deref() == Some("*") {
        let (store, address, condition) = (store.clone(), address.clone(), condition.clone());
        let early = blocking(move || match store.properties(&address) {
            Ok(found) => Ok(condition.check(&address, Some(&found))?),
            Err(Error::BlobNotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        });
        if let Err(failure) = early.await {
            discard(body.into_data_stream()).await;
            return Err(failure);
        }
    }
    let alive = face.clone();
    let properties = take_in(face, body, move |incoming| {
        let mut upload = store.begin_upload(&address)?;
        incoming.write_to(&mut upload)?;
        check_md5(&upload, announced, address.name())?;
        alive.refuse_the_dead(access.bound)?;
        stated.content_md5 = stated.content_md5.or(Some(upload.md5()));
        Ok(store.put(&address, upload, stated, &condition)?)
    })
    .await?;
    let mut response = written(StatusCode::CREATED, &properties);
    if let Some(md5) = properties.headers.content_md5
        && let Ok(md5) = HeaderValue::from_str(&STANDARD.encode(md5))
    {
        response.headers_mut().insert("content-md5", md5);
    }
    Ok(response)
}

pub(super) async fn put_block(
    face: &BlobFace,
    target: &Target,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let address = target.address()?;
    let id = target.get("blockid").unwrap_or_default().to_owned();
    let announced = announced_md5(headers)?;
    refuse_too_long(headers, BLOCK_BYTES_MAX)?;
    let store = face.store.clone();
    take_in(face, body, move |incoming| {
        let mut upload = store.begin_block(&address)?;
        incoming.write_to(&mut upload)?;
        check_md5(&upload, announced, address.name())?;
        Ok(store.stage_block(&address, &id, upload)?)
    })
    .await?;
    Ok(empty(StatusCode::CREATED))
}

pub(super) async fn put_block_list(
    face: &BlobFace,
    target: &Target,
    access: Access,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let address = target.address()?;
    let condition = condition_for(headers, access);
    let stated = stated_headers(headers)?;
    let invalid = |why: &str| Failure::new(StatusCode::BAD_REQUEST, "InvalidXmlDocument", why);
    let body = axum::body::to_bytes(body, BLOCK_LIST_BYTES_MAX)
        .await
        .map_err(|_| invalid("The block list was cut off, or is longer than 8 MiB."))?;
    let blocks = std::str::from_utf8(&body)
        .ok()
        .and_then(xml::read_block_list)
        .ok_or_else(|| invalid("The body is not a block list."))?;
    face.refuse_the_dead(access.bound)?;
    let store = face.store.clone();
    let properties =
        blocking(move || Ok(store.commit_blocks(&address, &blocks, stated, &condition)?)).await?;
    Ok(written(StatusCode::CREATED, &properties))
}

pub(super) async fn set_metadata(
    face: &BlobFace,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let address = target.address()?;
    let metadata = metadata_of(headers)?;
    let condition = condition_of(headers);
    let store = face.store.clone();
    let properties = blocking(move || Ok(store.set_metadata(&address, metadata, &condition)?)).await?;
    Ok(written(StatusCode::OK, &properties))
}

pub(super) async fn delete(
    face: &BlobFace,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let address = target.address()?;
    let condition = condition_of(headers);
    let store = face.store.clone();
    blocking(move || Ok(store.delete(&address, &condition)?)).await?;
    Ok(empty(StatusCode::ACCEPTED))
}

/// `If-Match` and `If-None-Match`. Conditions on times are not looked at.
pub(super) fn condition_of(headers: &HeaderMap) -> Condition {
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned);
    Condition { if_match: text(header::IF_MATCH), if_none_match: text(header::IF_NONE_MATCH) }
}

pub(super) fn condition_for(headers: &HeaderMap, access: Access) -> Condition {
    if access.new_only { Condition::absent() } else { condition_of(headers) }
}

pub(super) fn refuse_too_long(headers: &HeaderMap, max: u64) -> Result<(), Failure> {
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > max) {
        let what = "the content";
        return Err(Error::TooLarge { what, name: "this upload".to_owned(), max }.into());
    }
    Ok(())
}

fn md5_header(headers: &HeaderMap, name: &'static str) -> Result<Option<[u8; 16]>, Failure> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let bytes = STANDARD.decode(value.as_bytes()).ok();
    match bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) {
        Some(md5) => Ok(Some(md5)),
        None => Err(Failure::new(
            StatusCode::BAD_REQUEST,
            "InvalidMd5",
            format!("The header {name} is no base64 MD5."),
        )),
    }
}

pub(super) fn announced_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, Failure> {
    md5_header(headers, "content-md5")
}

fn check_md5(upload: &Upload, announced: Option<[u8; 16]>, name: &str) -> Result<(), Failure> {
    match announced {
        Some(md5) if md5 != upload.md5() => Err(Error::Md5Mismatch(name.to_owned()).into()),
        _ => Ok(()),
    }
}

fn stated_headers(headers: &HeaderMap) -> Result<Headers, Failure> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok(Headers {
        content_type: text("x-ms-blob-content-type").or_else(|| text("content-type")),
        content_encoding: text("x-ms-blob-content-encoding"),
        content_md5: md5_header(headers, "x-ms-blob-content-md5")?,
        metadata: metadata_of(headers)?,
    })
}

fn metadata_of(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Failure> {
    let named =
        headers.iter().filter_map(|(name, value)| Some((name.as_str().strip_prefix("x-ms-meta-")?, value)));
    named
        .map(|(name, value)| match value.to_str() {
            Ok(value) => Ok((name.to_owned(), value.to_owned())),
            Err(_) => Err(Failure::bad_header(&format!("x-ms-meta-{name}"), "it must be ASCII text")),
        })
        .collect()
}
