//! Single blobs by their signed URLs: put, mark, look, get.

use crate::client::Client;
use crate::failure::{Failure, Outcome};
use crate::names::hex;
use bytes::Bytes;
use futures_util::StreamExt;
use indicatif::ProgressBar;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, StatusCode};
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Up to here a file is one request; beyond it goes in blocks.
const SINGLE_PUT_MAX: u64 = 32 << 20;
const BLOCK_BYTES: u64 = 8 << 20;

const KEEP_IN_PATHS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A container and the signature that opens it.
#[derive(Debug, Clone)]
pub struct Container {
    url: String,
    query: String,
}

impl Container {
    pub fn new(url: &str, query: &str) -> Self {
        Self { url: url.trim_end_matches('/').to_owned(), query: query.trim_start_matches('?').to_owned() }
    }

    /// A URL of a whole container, signature and all.
    pub fn from_signed(url: &str) -> Self {
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        Self::new(url, query)
    }

    /// The plain URL of a blob, without the signature.
    pub fn plain_url(&self, name: &str) -> String {
        format!("{}/{}", self.url, utf8_percent_encode(name, KEEP_IN_PATHS))
    }

    pub fn blob_url(&self, name: &str, more: &str) -> String {
        let parts: Vec<&str> = [more, &self.query].into_iter().filter(|part| !part.is_empty()).collect();
        with_query(self.plain_url(name), &parts.join("&"))
    }

    pub fn list_url(&self, prefix: &str, marker: Option<&str>) -> String {
        let mut query =
            format!("restype=container&comp=list&prefix={}", utf8_percent_encode(prefix, KEEP_IN_PATHS));
        if let Some(marker) = marker {
            query.push_str(&format!("&marker={}", utf8_percent_encode(marker, NON_ALPHANUMERIC)));
        }
        if !self.query.is_empty() {
            query.push_str(&format!("&{}", self.query));
        }
        with_query(self.url.clone(), &query)
    }
}

fn with_query(url: String, query: &str) -> String {
    if query.is_empty() { url } else { format!("{url}?{query}") }
}

pub async fn put(
    client: &Client,
    container: &Container,
    name: &str,
    file: &Path,
    bytes: u64,
    bar: &ProgressBar,
) -> Outcome<()> {
    let failed = |error: std::io::Error| Failure::file("read", file, &error);
    let mut source = tokio::fs::File::open(file).await.map_err(failed)?;
    if bytes <= SINGLE_PUT_MAX {
        let mut body = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        source.read_to_end(&mut body).await.map_err(failed)?;
        bar.inc(body.len() as u64);
        let request = client
            .bare(Method::PUT, &container.blob_url(name, ""))
            .header("x-ms-blob-type", "BlockBlob")
            .header("Content-Type", "application/octet-stream")
            .body(body);
        client.send_bare(request).await?;
        return Ok(());
    }
    let mut list = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
    for number in 0_u64.. {
        let mut block = Vec::with_capacity(BLOCK_BYTES as usize);
        (&mut source).take(BLOCK_BYTES).read_to_end(&mut block).await.map_err(failed)?;
        if block.is_empty() {
            break;
        }
        bar.inc(block.len() as u64);
        // Ids are base64 of equal length; these letters and digits are valid base64 as they stand.
        let id = hex(&number.to_be_bytes());
        let url = container.blob_url(name, &format!("comp=block&blockid={id}"));
        client.send_bare(client.bare(Method::PUT, &url).body(block)).await?;
        list.push_str(&format!("<Latest>{id}</Latest>"));
    }
    list.push_str("</BlockList>");
    let url = container.blob_url(name, "comp=blocklist");
    client
        .send_bare(client.bare(Method::PUT, &url).header("Content-Type", "application/xml").body(list))
        .await?;
    Ok(())
}

/// Marks a blob as the last of a complete upload; a later upload of the same content sees it and sends nothing.
pub async fn mark_complete(client: &Client, container: &Container, name: &str) -> Outcome<()> {
    let request = client
        .bare(Method::PUT, &container.blob_url(name, "comp=metadata"))
        .header("x-ms-meta-upload_status", "completed");
    client.send_bare(request).await?;
    Ok(())
}

pub async fn is_complete(client: &Client, container: &Container, name: &str) -> Outcome<bool> {
    let request = client.bare(Method::HEAD, &container.blob_url(name, ""));
    match request.send().await {
        Ok(response) if response.status() == StatusCode::OK => {
            let mark = response.headers().get("x-ms-meta-upload_status");
            Ok(mark.is_some_and(|mark| mark.as_bytes() == b"completed"))
        }
        Ok(_) => Ok(false),
        Err(error) => Err(Failure::failed(format!("cannot look at {name}: {error}"))),
    }
}

/// Downloads a blob to a file: beside it first, so that a broken download leaves nothing half-written in its place.
pub async fn get(
    client: &Client,
    container: &Container,
    name: &str,
    target: &Path,
    bar: &ProgressBar,
) -> Outcome<()> {
    let failed = |error: std::io::Error| Failure::file("write", target, &error);
    if let Some(folder) = target.parent() {
        tokio::fs::create_dir_all(folder).await.map_err(failed)?;
    }
    let mut partial = target.as_os_str().to_owned();
    partial.push(".part");
    let response = client.send_bare(client.bare(Method::GET, &container.blob_url(name, ""))).await?;
    let mut stream = response.bytes_stream();
    let mut file = tokio::fs::File::create(&partial).await.map_err(failed)?;
    while let Some(chunk) = stream.next().await {
        let chunk: Bytes =
            chunk.map_err(|error| Failure::failed(format!("the download of {name} broke off: {error}")))?;
        file.write_all(&chunk).await.map_err(failed)?;
        bar.inc(chunk.len() as u64);
    }
    file.flush().await.map_err(failed)?;
    tokio::fs::rename(&partial, target).await.map_err(failed)
}
