//! Requests about a container: its listing, whether it is there, making it.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use neap_storage::{BlobProperties, ListEntry, ListPage, ListQuery};

use super::answer::{Failure, empty, http_date};
use super::request::Target;
use super::{BlobFace, blocking, xml};

pub(super) async fn create(face: &BlobFace, target: &Target) -> Result<Response, Failure> {
    let (store, account, container) = (face.store.clone(), target.account.clone(), target.container.clone());
    if blocking(move || Ok(store.create_container(&account, &container)?)).await? {
        return Ok(empty(StatusCode::CREATED));
    }
    let message = "The container is already there.";
    Err(Failure::new(StatusCode::CONFLICT, "ContainerAlreadyExists", message))
}

pub(super) async fn properties(face: &BlobFace, target: &Target) -> Result<Response, Failure> {
    let (store, account, container) = (face.store.clone(), target.account.clone(), target.container.clone());
    blocking(move || {
        if store.container_exists(&account, &container)? {
            return Ok(empty(StatusCode::OK));
        }
        Err(neap_storage::Error::ContainerNotFound { account, container }.into())
    })
    .await
}

/// What a listing asks for.
pub(super) fn query_of(target: &Target) -> Result<ListQuery, Failure> {
    let results_max = match target.get("maxresults") {
        None => None,
        Some(text) => Some(text.parse().ok().filter(|max| *max > 0).ok_or_else(|| {
            let message = "maxresults must be a number from 1 on.";
            Failure::new(StatusCode::BAD_REQUEST, "OutOfRangeQueryParameterValue", message)
        })?),
    };
    Ok(ListQuery {
        prefix: target.get("prefix").unwrap_or_default().to_owned(),
        delimiter: target.get("delimiter").map(str::to_owned),
        marker: target.get("marker").map(str::to_owned),
        results_max,
    })
}

pub(super) async fn list(face: &BlobFace, target: &Target) -> Result<Response, Failure> {
    let query = query_of(target)?;
    let (store, account, container) = (face.store.clone(), target.account.clone(), target.container.clone());
    let (page, query) = blocking(move || {
        let page = store.list(&account, &container, &query)?;
        Ok((page, query))
    })
    .await?;
    Ok(answer_listing(target, &query, &page))
}

pub(super) fn answer_listing(target: &Target, query: &ListQuery, page: &ListPage) -> Response {
    let with_metadata =
        target.get("include").is_some_and(|list| list.split(',').any(|word| word == "metadata"));
    let text = listing(&target.container, query, page, with_metadata);
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

fn listing(container: &str, query: &ListQuery, page: &ListPage, with_metadata: bool) -> String {
    let mut out =
        String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ContainerName=\"");
    xml::escape(&mut out, container);
    out.push_str("\">");
    xml::element(&mut out, "Prefix", &query.prefix);
    if let Some(marker) = &query.marker {
        xml::element(&mut out, "Marker", marker);
    }
    if let Some(max) = query.results_max {
        xml::element(&mut out, "MaxResults", &max.to_string());
    }
    if let Some(delimiter) = &query.delimiter {
        xml::element(&mut out, "Delimiter", delimiter);
    }
    out.push_str("<Blobs>");
    for entry in &page.entries {
        match entry {
            ListEntry::Blob { name, properties } => {
                out.push_str("<Blob>");
                xml::name_element(&mut out, name);
                blob_properties(&mut out, properties, with_metadata);
                out.push_str("</Blob>");
            }
            ListEntry::Prefix(name) => {
                out.push_str("<BlobPrefix>");
                xml::name_element(&mut out, name);
                out.push_str("</BlobPrefix>");
            }
        }
    }
    out.push_str("</Blobs>");
    xml::element(&mut out, "NextMarker", page.next_marker.as_deref().unwrap_or_default());
    out.push_str("</EnumerationResults>");
    out
}

fn blob_properties(out: &mut String, properties: &BlobProperties, with_metadata: bool) {
    let stated = &properties.headers;
    out.push_str("<Properties>");
    xml::element(out, "Last-Modified", &http_date(properties.last_modified_ms.div_euclid(1_000)));
    xml::element(out, "Etag", &properties.etag);
    xml::element(out, "Content-Length", &properties.length.to_string());
    xml::element(out, "Content-Type", stated.content_type.as_deref().unwrap_or("application/octet-stream"));
    if let Some(encoding) = &stated.content_encoding {
        xml::element(out, "Content-Encoding", encoding);
    }
    if let Some(md5) = stated.content_md5 {
        xml::element(out, "Content-MD5", &STANDARD.encode(md5));
    }
    xml::element(out, "BlobType", "BlockBlob");
    out.push_str("</Properties>");
    if with_metadata {
        out.push_str("<Metadata>");
        for (name, value) in &stated.metadata {
            // Names are letters, digits and underscores: the store lets no others in.
            xml::element(out, name, value);
        }
        out.push_str("</Metadata>");
    }
}
