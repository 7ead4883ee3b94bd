//! Plain web addresses: a file can be read, and nothing else.

use futures_util::StreamExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, Response, StatusCode, header};

use crate::BLOB_BYTES_MAX;

use super::{Content, Entry, Error, HttpClient, Refused, Result};

/// What stays as it is in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b'+')
    .remove(b'=');

#[derive(Debug)]
pub struct Web {
    http: HttpClient,
    /// `https://host:port`
    origin: String,
    /// It may hold a signature.
    query: Hidden,
}

struct Hidden(Option<String>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "hidden" } else { "none" })
    }
}

impl Web {
    #[must_use]
    pub fn new(http: HttpClient, origin: String, query: Option<String>) -> Self {
        Self { http, origin, query: Hidden(query) }
    }

    async fn ask(&self, method: Method, name: &str, range: Option<(u64, Option<u64>)>) -> Result<Response> {
        let mut url = format!("{}/{}", self.origin, utf8_percent_encode(name, PATH));
        if let Some(query) = &self.query.0 {
            url = format!("{url}?{query}");
        }
        let mut request = self.http.request(method, &url)?;
        if let Some((start, length)) = range {
            let end =
                length.map_or_else(String::new, |length| start.saturating_add(length.max(1) - 1).to_string());
            request = request.header(header::RANGE, format!("bytes={start}-{end}"));
        }
        let answer = request.send().await.map_err(failed)?;
        match answer.status() {
            status if status.is_success() => Ok(answer),
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(Error::NotFound(self.shown(name))),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Error::Denied(self.shown(name))),
            StatusCode::RANGE_NOT_SATISFIABLE => Err(Error::Range(self.shown(name))),
            status => Err(Error::Failed(format!("'{}' answered {status}", self.shown(name)))),
        }
    }

    fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.origin)
    }

    pub(super) async fn head(&self, name: &str) -> Result<Entry> {
        Ok(entry_of(name, &self.ask(Method::HEAD, name, None).await?))
    }

    pub(super) async fn get(&self, name: &str, range: Option<(u64, Option<u64>)>) -> Result<Content> {
        let answer = self.ask(Method::GET, name, range).await?;
        // A server may answer a part with the whole, and says so by its status.
        let start = if answer.status() == StatusCode::PARTIAL_CONTENT {
            range.map_or(0, |(start, _)| start)
        } else {
            0
        };
        let entry = entry_of(name, &answer);
        let length = answer.content_length();
        let shown = self.shown(name);
        if length.unwrap_or(0) > BLOB_BYTES_MAX {
            return Err(too_long(&shown));
        }
        let mut left = BLOB_BYTES_MAX;
        let pieces = answer.bytes_stream().map(move |piece| {
            let piece = piece.map_err(failed)?;
            left = left.checked_sub(piece.len() as u64).ok_or_else(|| too_long(&shown))?;
            Ok(piece)
        });
        Ok(Content { entry, start, length, pieces: pieces.boxed() })
    }
}

fn entry_of(name: &str, answer: &Response) -> Entry {
    let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let total = text(header::CONTENT_RANGE)
        .and_then(|range| range.rsplit_once('/')?.1.parse().ok())
        .or_else(|| text(header::CONTENT_LENGTH)?.parse().ok());
    let etag = text(header::ETAG).unwrap_or_default().trim_start_matches("W/").trim_matches('"').to_owned();
    Entry { name: name.to_owned(), bytes: total.unwrap_or(0), modified_ms: 0, etag }
}

fn too_long(shown: &str) -> Error {
    Error::Failed(format!("'{shown}' has more than {BLOB_BYTES_MAX} bytes"))
}

/// The address may hold a signature, so it is left out.
fn failed(e: reqwest::Error) -> Error {
    if let Some(refused) = Refused::in_chain(&e) {
        return Error::Refused(refused);
    }
    let e = e.without_url();
    let mut text = e.to_string();
    let mut cause = std::error::Error::source(&e);
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    Error::Failed(text)
}
