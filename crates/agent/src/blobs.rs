//! Folders of blobs over Azure's Blob REST: list, fetch, store, delete. Retries what may succeed the next time.
//!
//! Content is checked in both directions: a blob is stored under its MD5, which the server compares before the blob
//! appears under its name, and what is fetched is compared with the MD5 that the server has. A folder that is empty
//! has a blob of no bytes whose name ends with a slash.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use md5::{Digest, Md5};
use neap_protocol::BlobFolder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::AsyncWriteExt;

use crate::url_pass::{self, UrlPass};

/// Tries of what the server answers with an error of its own.
const TRIES_MAX: u32 = 5;
const FIRST_PAUSE_MS: u64 = 100;
const PAUSE_MS_MAX: u64 = 2_000;
/// A server that is away or busy is waited for this long, between tries. The node's lease ends sooner, as a rule: an
/// attempt outlives a restart of the server, and so must what it stores.
const AWAY_MS_MAX: u64 = 600_000;
const REQUEST_S_MAX: u64 = 300;
/// A connection that moves fewer bytes than this in a second is given up.
const BYTES_PER_S_MIN: u64 = 256 * 1024;
/// A blob up to this size is stored in one request, a larger one in blocks of this size.
const BLOCK_BYTES: usize = 8 * 1024 * 1024;
/// Read at once of a file that is stored in one request.
const PIECE_BYTES: usize = 256 * 1024;
const BLOB_VERSION: &str = "2021-12-02";
const PATH_KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const VALUE_KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

tokio::task_local! {
    /// What is moved for the attempt whose task this is.
    static MOVED: Rc<Moved>;
}

/// Bytes that went over the wire, tries and all.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    fetched: Cell<u64>,
    stored: Cell<u64>,
    /// The longest file that the attempt may store; 0: as long as it is.
    pub(crate) file_bytes_max: Cell<u64>,
}

impl Moved {
    /// Counts what is moved meanwhile.
    pub(crate) async fn during<F: Future>(self: Rc<Self>, doing: F) -> F::Output {
        MOVED.scope(self, doing).await
    }

    /// As the log keeps it; nothing where nothing was moved.
    pub(crate) fn facts(&self) -> BTreeMap<String, String> {
        let parts =
            [("neap.transfer.in_bytes", self.fetched.get()), ("neap.transfer.out_bytes", self.stored.get())];
        let moved = parts.into_iter().filter(|(_, bytes)| *bytes > 0);
        moved.map(|(key, bytes)| (key.to_owned(), bytes.to_string())).collect()
    }
}

fn count(which: impl Fn(&Moved) -> &Cell<u64>, bytes: usize) {
    // Outside of an attempt nobody counts.
    let _ = MOVED.try_with(|moved| {
        let cell = which(moved);
        cell.set(cell.get() + bytes as u64);
    });
}

#[derive(Clone, Debug)]
pub(crate) struct Blobs {
    http: reqwest::Client,
    pass: UrlPass,
}

/// Says what was tried on what.
pub(crate) type Result<T> = std::result::Result<T, String>;

enum Failure {
    /// Nobody answered, or there was no time to.
    Away(String),
    Again(String),
    Final(String),
}

impl Blobs {
    /// A client that trusts this CA alone.
    pub(crate) fn new(ca_pem: &[u8], pass: UrlPass) -> Result<Self> {
        let certificates =
            reqwest::Certificate::from_pem_bundle(ca_pem).map_err(|e| format!("reading the CA: {e}"))?;
        let http = reqwest::Client::builder()
            .tls_certs_only(certificates)
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(REQUEST_S_MAX))
            .build()
            .map_err(|e| format!("making an HTTP client: {e}"))?;
        Ok(Self { http, pass })
    }

    /// The names below the folder's prefix (or the one blob it names), without the prefix.
    pub(crate) async fn list(&self, folder: &BlobFolder) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut marker = String::new();
        loop {
            let url = format!(
                "{}?restype=container&comp=list&prefix={}&marker={}&{}",
                folder.container_url,
                utf8_percent_encode(&folder.prefix, VALUE_KEPT),
                utf8_percent_encode(&marker, VALUE_KEPT),
                folder.sas
            );
            let text = self.retry("listing", &folder.prefix, || async {
                let request = self.http.get(self.pass.on(&url)).timeout(Duration::from_secs(REQUEST_S_MAX));
                checked(request.send().await.map_err(transport)?).await?.text().await.map_err(transport)
            });
            let (found, next) = parse_list(&text.await?)?;
            names
                .extend(found.iter().filter_map(|name| name.strip_prefix(&folder.prefix).map(str::to_owned)));
            match next {
                Some(next) => marker = next,
                None => return Ok(names),
            }
        }
    }

    /// Whether the folder's prefix is the name of a blob.
    pub(crate) async fn is_blob(&self, blob: &BlobFolder) -> Result<bool> {
        let url = url_of(blob, "");
        self.retry("looking at", &blob.prefix, || async {
            let request = self.http.head(self.pass.on(&url)).timeout(Duration::from_secs(REQUEST_S_MAX));
            let answer = request.send().await.map_err(transport)?;
            if answer.status().as_u16() == 404 {
                return Ok(false);
            }
            checked(answer).await.map(|_| true)
        })
        .await
    }

    /// Fetches `{prefix}{name}` into a new file, which comes back. What names its content comes first: its MD5 where the
    /// server has it, else its tag.
    pub(crate) async fn fetch(&self, folder: &BlobFolder, name: &str, into: File) -> Result<(String, File)> {
        let url = url_of(folder, name);
        let (into, what) = (&into, format!("{}{name}", folder.prefix));
        let seal = self.retry("fetching", &what, || async {
            let answer = checked(self.http.get(self.pass.on(&url)).send().await.map_err(transport)?).await?;
            let header = |name: &str| Some(answer.headers().get(name)?.to_str().ok()?.to_owned());
            let (stated, tag) = (header("content-md5"), header("etag"));
            let disk = |e: std::io::Error| Failure::Final(format!("writing it to disk: {e}"));
            // From its beginning, whatever an earlier try has written.
            let mut file = into.try_clone().map_err(disk)?;
            file.set_len(0).and_then(|()| file.rewind()).map_err(disk)?;
            let mut file = tokio::fs::File::from_std(file);
            let mut body = answer.bytes_stream();
            let mut sum = Md5::new();
            while let Some(piece) = body.next().await {
                let piece = piece.map_err(transport)?;
                count(|moved| &moved.fetched, piece.len());
                if stated.is_some() {
                    sum.update(&piece);
                }
                file.write_all(&piece).await.map_err(disk)?;
            }
            file.flush().await.map_err(disk)?;
            match stated {
                Some(stated) if stated != STANDARD.encode(sum.finalize()) => {
                    Err(Failure::Again("what came is not what was stored (its MD5 differs)".into()))
                }
                Some(stated) => Ok(format!("md5 {stated}")),
                None => Ok(format!("etag {}", tag.unwrap_or_default())),
            }
        });
        let seal = seal.await?;
        let file = into.try_clone().map_err(|e| format!("writing it to disk: {e}"))?;
        Ok((seal, file))
    }

    /// Fetches `{prefix}{name}`, which has no more bytes than this.
    pub(crate) async fn fetch_bytes(
        &self,
        folder: &BlobFolder,
        name: &str,
        bytes_max: usize,
    ) -> Result<Vec<u8>> {
        let url = url_of(folder, name);
        self.retry("fetching", &format!("{}{name}", folder.prefix), || async {
            let request = self.http.get(self.pass.on(&url)).timeout(Duration::from_secs(REQUEST_S_MAX));
            let answer = checked(request.send().await.map_err(transport)?).await?;
            let mut body = answer.bytes_stream();
            let mut bytes = Vec::new();
            while let Some(piece) = body.next().await {
                let piece = piece.map_err(transport)?;
                count(|moved| &moved.fetched, piece.len());
                if bytes.len() + piece.len() > bytes_max {
                    return Err(Failure::Final(format!(
                        "it has more than {bytes_max} bytes, which is the limit"
                    )));
                }
                bytes.extend_from_slice(&piece);
            }
            Ok(bytes)
        })
        .await
    }

    /// Marks `{prefix}{name}` (which ends with a slash, or is empty) as a folder with nothing in it.
    pub(crate) async fn store_empty_folder(&self, folder: &BlobFolder, name: &str) -> Result<()> {
        let what = format!("{}{name}", folder.prefix);
        self.put(&what, &url_of(folder, name), Vec::new(), Some("hdi_isfolder")).await
    }

    /// Deletes `{prefix}{name}`; one that is not there is no failure.
    pub(crate) async fn delete(&self, folder: &BlobFolder, name: &str) -> Result<()> {
        let url = url_of(folder, name);
        self.retry("deleting", &format!("{}{name}", folder.prefix), || async {
            let request = self.http.delete(self.pass.on(&url)).timeout(Duration::from_secs(REQUEST_S_MAX));
            let answer = request.send().await.map_err(transport)?;
            if answer.status().as_u16() == 404 {
                return Ok(());
            }
            checked(answer).await.map(|_| ())
        })
        .await
    }

    /// Stores these bytes as `{prefix}{name}`, in one request.
    pub(crate) async fn store_bytes(&self, folder: &BlobFolder, name: &str, bytes: Vec<u8>) -> Result<()> {
        self.put(&format!("{}{name}", folder.prefix), &url_of(folder, name), bytes, Some("")).await
    }

    /// Stores an open file as `{prefix}{name}`.
    pub(crate) async fn store(&self, folder: &BlobFolder, name: &str, mut file: File) -> Result<()> {
        let url = url_of(folder, name);
        let what = format!("{}{name}", folder.prefix);
        if folder.whole {
            return self.put_streamed(&what, &url, file).await;
        }
        let mut blocks: Vec<String> = Vec::new();
        let mut left = file_bytes_max();
        loop {
            let (piece, back) = tokio::task::spawn_blocking(move || {
                let mut piece = Vec::new();
                let read = (&mut file).take(BLOCK_BYTES as u64).read_to_end(&mut piece);
                (read.map(|_| piece), file)
            })
            .await
            .map_err(|e| format!("reading for {what}: {e}"))?;
            file = back;
            let piece = piece.map_err(|e| format!("reading for {what}: {e}"))?;
            // It may grow while it is read.
            left = left.checked_sub(piece.len() as u64).ok_or_else(|| too_long(&what))?;
            if blocks.is_empty() && piece.len() < BLOCK_BYTES {
                return self.put(&what, &url, piece, Some("")).await;
            }
            if piece.is_empty() {
                break;
            }
            let id = STANDARD.encode(format!("{:08}", blocks.len()));
            let at = format!("{url}&comp=block&blockid={}", utf8_percent_encode(&id, VALUE_KEPT));
            self.put(&what, &at, piece, None).await?;
            blocks.push(id);
        }
        let list: String = blocks.iter().map(|id| format!("<Latest>{id}</Latest>")).collect();
        let body = format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{list}</BlockList>");
        self.put(&what, &format!("{url}&comp=blocklist"), body.into_bytes(), None).await
    }

    /// `whole` is absent for a part of a blob; with a name it sets that word of metadata to `true`.
    async fn put(&self, what: &str, url: &str, bytes: Vec<u8>, whole: Option<&str>) -> Result<()> {
        let sum = STANDARD.encode(Md5::digest(&bytes));
        let bytes = bytes::Bytes::from(bytes);
        self.retry("storing", what, || async {
            let mut request = self
                .http
                .put(self.pass.on(url))
                .timeout(time_for(bytes.len() as u64))
                .header("x-ms-version", BLOB_VERSION)
                .header("content-md5", &sum)
                .header("content-length", bytes.len());
            if let Some(word) = whole {
                request = request.header("x-ms-blob-type", "BlockBlob").header("x-ms-blob-content-md5", &sum);
                if !word.is_empty() {
                    request = request.header(format!("x-ms-meta-{word}"), "true");
                }
            }
            count(|moved| &moved.stored, bytes.len());
            checked(request.body(bytes.clone()).send().await.map_err(transport)?).await.map(|_| ())
        })
        .await
    }

    /// One request for the whole file, whose MD5 is announced before it is sent.
    async fn put_streamed(&self, what: &str, url: &str, file: File) -> Result<()> {
        let file = Arc::new(file);
        let reading = |e: &dyn std::fmt::Display| format!("reading for {what}: {e}");
        let summed = file.clone();
        let (sum, length) = tokio::task::spawn_blocking(move || sum_of(&summed))
            .await
            .map_err(|e| reading(&e))?
            .map_err(|e| reading(&e))?;
        if length > file_bytes_max() {
            return Err(too_long(what));
        }
        let (sum, file) = (&sum, &file);
        self.retry("storing", what, || async move {
            let pieces = futures_util::stream::try_unfold((file.clone(), 0), |(file, at)| async move {
                let (piece, file) = tokio::task::spawn_blocking(move || (read_piece(&file, at), file))
                    .await
                    .map_err(std::io::Error::other)?;
                let piece = piece?;
                let next = at + piece.len() as u64;
                Ok::<_, std::io::Error>((!piece.is_empty()).then_some((piece, (file, next))))
            });
            let request = self
                .http
                .put(self.pass.on(url))
                .timeout(time_for(length))
                .header("x-ms-version", BLOB_VERSION)
                .header("x-ms-blob-type", "BlockBlob")
                .header("x-ms-blob-content-md5", sum)
                .header("content-md5", sum)
                .header("content-length", length)
                .body(reqwest::Body::wrap_stream(pieces));
            count(|moved| &moved.stored, usize::try_from(length).unwrap_or(usize::MAX));
            checked(request.send().await.map_err(transport)?).await.map(|_| ())
        })
        .await
    }

    async fn retry<T, F>(&self, doing: &str, what: &str, mut attempt: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Failure>>,
    {
        let (mut pause_ms, mut away_ms) = (FIRST_PAUSE_MS, 0);
        let (mut tried, mut refused) = (0, 0);
        loop {
            tried += 1;
            match attempt().await {
                Ok(done) => return Ok(done),
                Err(Failure::Away(_)) if away_ms < AWAY_MS_MAX => away_ms += pause_ms,
                Err(Failure::Again(_)) if refused + 1 < TRIES_MAX => refused += 1,
                Err(Failure::Away(why) | Failure::Again(why)) => {
                    return Err(format!("{doing} {what}: {why} (tried {tried} times)"));
                }
                Err(Failure::Final(why)) => return Err(format!("{doing} {what}: {why}")),
            }
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
        }
    }
}

fn file_bytes_max() -> u64 {
    let most = MOVED.try_with(|moved| moved.file_bytes_max.get()).unwrap_or(0);
    if most == 0 { u64::MAX } else { most }
}

fn too_long(what: &str) -> String {
    let most = crate::disk::mb(file_bytes_max());
    format!("storing {what}: the file is longer than {most}, what the job may store (local.disk_mb_per_job)")
}

fn time_for(bytes: u64) -> Duration {
    Duration::from_secs(REQUEST_S_MAX + bytes / BYTES_PER_S_MIN)
}

fn read_piece(file: &File, at: u64) -> std::io::Result<Vec<u8>> {
    let mut piece = vec![0; PIECE_BYTES];
    let length = file.read_at(&mut piece, at)?;
    piece.truncate(length);
    Ok(piece)
}

fn sum_of(file: &File) -> std::io::Result<(String, u64)> {
    let (mut sum, mut at) = (Md5::new(), 0);
    loop {
        let piece = read_piece(file, at)?;
        if piece.is_empty() {
            return Ok((STANDARD.encode(sum.finalize()), at));
        }
        at += piece.len() as u64;
        sum.update(&piece);
    }
}

fn url_of(folder: &BlobFolder, name: &str) -> String {
    let path = format!("{}{name}", folder.prefix);
    format!("{}/{}?{}", folder.container_url, utf8_percent_encode(&path, PATH_KEPT), folder.sas)
}

fn transport(e: reqwest::Error) -> Failure {
    // The address carries a signature; logs must not.
    let e = e.without_url();
    let mut text = e.to_string();
    let mut cause = std::error::Error::source(&e);
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    Failure::Away(text)
}

async fn checked(answer: reqwest::Response) -> std::result::Result<reqwest::Response, Failure> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let expired = url_pass::is_expired(&answer);
    let body = answer.text().await.unwrap_or_default();
    let text = format!("the server answered {status} {}", said(&body).chars().take(400).collect::<String>());
    match status.as_u16() {
        429 | 503 => Err(Failure::Away(text)),
        // The next lease renewal brings a new pass.
        403 if expired => Err(Failure::Away(text)),
        408 | 500..=599 => Err(Failure::Again(text)),
        _ => Err(Failure::Final(text)),
    }
}

/// The sentence in a refusal of a blob store.
fn said(body: &str) -> &str {
    let message = body.split_once("<Message>").and_then(|(_, rest)| rest.split_once("</Message>"));
    message.map_or(body, |(message, _)| message)
}

/// The names and the next marker of a listing.
fn parse_list(xml: &str) -> Result<(Vec<String>, Option<String>)> {
    use quick_xml::events::Event;
    let unreadable = |e: &dyn std::fmt::Display| format!("the list of blobs cannot be read: {e}");
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut names = Vec::new();
    let mut marker = String::new();
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    loop {
        match reader.read_event().map_err(|e| unreadable(&e))? {
            Event::Start(tag) => {
                path.push(tag.name().as_ref().to_owned());
                text.clear();
            }
            Event::Text(piece) => text.push_str(&piece),
            Event::GeneralRef(name) => {
                if let Some(c) = name.resolve_char_ref().map_err(|e| unreadable(&e))? {
                    text.push(c);
                } else {
                    text.push_str(quick_xml::escape::resolve_predefined_entity(&name).unwrap_or_default());
                }
            }
            Event::CData(piece) => text.push_str(&piece),
            Event::End(_) => {
                let parent = path.len().checked_sub(2).map(|at| path[at].as_str());
                match (parent, path.last().map(String::as_str)) {
                    (Some("Blob"), Some("Name")) => names.push(std::mem::take(&mut text)),
                    (_, Some("NextMarker")) => marker = std::mem::take(&mut text),
                    _ => text.clear(),
                }
                path.pop();
            }
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    Ok((names, (!marker.is_empty()).then_some(marker)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read() {
        let xml = "<?xml version=\"1.0\"?><EnumerationResults><Prefix>p/</Prefix><Blobs>\
                   <Blob><Name>p/a &amp; b.txt</Name><Properties><Content-Length>3</Content-Length></Properties><Metadata><Name>no</Name></Metadata></Blob>\
                   <Blob><Name>p/c&#228;/d</Name></Blob><BlobPrefix><Name>p/e/</Name></BlobPrefix></Blobs><NextMarker>m1</NextMarker></EnumerationResults>";
        assert_eq!(
            parse_list(xml).unwrap(),
            (vec!["p/a & b.txt".into(), "p/cä/d".into()], Some("m1".into()))
        );
        assert_eq!(parse_list("<E><Blobs/><NextMarker/></E>").unwrap(), (vec![], None));
    }

    #[test]
    fn a_refusal_is_its_sentence() {
        let body = "<?xml version=\"1.0\"?><Error><Code>C</Code><Message>no room</Message></Error>";
        assert_eq!((said(body), said("plain")), ("no room", "plain"));
    }
}
