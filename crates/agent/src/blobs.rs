//! Folders of blobs over Azure's Blob REST: list, fetch, store. Retries what may succeed the next time.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use futures_util::StreamExt;
use md5::{Digest, Md5};
use neap_protocol::BlobFolder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::AsyncWriteExt;

/// Tries of what the server answers with an error of its own.
const TRIES_MAX: u32 = 5;
const FIRST_PAUSE_MS: u64 = 100;
const PAUSE_MS_MAX: u64 = 2_000;
/// A server that is away or busy is waited for this long, between tries. The node's lease ends sooner, as a rule: an
/// attempt outlives a restart of the server, and so must what it stores.
const AWAY_MS_MAX: u64 = 600_000;
const REQUEST_S_MAX: u64 = 300;
/// A blob up to this size is stored in one request, a larger one in blocks of this size.
const BLOCK_BYTES: usize = 8 * 1024 * 1024;
const BLOB_VERSION: &str = "2021-12-02";
const PATH_KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const VALUE_KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[derive(Clone, Debug)]
pub(crate) struct Blobs {
    http: reqwest::Client,
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
    pub(crate) fn new(ca_pem: &[u8]) -> Result<Self> {
        let certificates =
            reqwest::Certificate::from_pem_bundle(ca_pem).map_err(|e| format!("reading the CA: {e}"))?;
        let http = reqwest::Client::builder()
            .tls_certs_only(certificates)
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_secs(REQUEST_S_MAX))
            .build()
            .map_err(|e| format!("making an HTTP client: {e}"))?;
        Ok(Self { http })
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
                let answer = self.http.get(&url).send().await.map_err(transport)?;
                checked(answer).await?.text().await.map_err(transport)
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

    /// Fetches `{prefix}{name}` into a file.
    pub(crate) async fn fetch(&self, folder: &BlobFolder, name: &str, into: &Path) -> Result<()> {
        let url = url_of(folder, name);
        self.retry("fetching", &format!("{}{name}", folder.prefix), || async {
            let answer = checked(self.http.get(&url).send().await.map_err(transport)?).await?;
            let disk = |e: std::io::Error| Failure::Final(format!("writing {}: {e}", into.display()));
            let mut file = tokio::fs::File::create(into).await.map_err(disk)?;
            let mut body = answer.bytes_stream();
            while let Some(piece) = body.next().await {
                file.write_all(&piece.map_err(transport)?).await.map_err(disk)?;
            }
            file.flush().await.map_err(disk)
        })
        .await
    }

    /// Stores an open file as `{prefix}{name}`.
    pub(crate) async fn store(&self, folder: &BlobFolder, name: &str, mut file: std::fs::File) -> Result<()> {
        let url = url_of(folder, name);
        let what = format!("{}{name}", folder.prefix);
        let mut blocks: Vec<String> = Vec::new();
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
            if blocks.is_empty() && piece.len() < BLOCK_BYTES {
                return self.put(&what, &url, piece, true).await;
            }
            if piece.is_empty() {
                break;
            }
            let id = base64::engine::general_purpose::STANDARD.encode(format!("{:08}", blocks.len()));
            let at = format!("{url}&comp=block&blockid={}", utf8_percent_encode(&id, VALUE_KEPT));
            self.put(&what, &at, piece, false).await?;
            blocks.push(id);
        }
        let list: String = blocks.iter().map(|id| format!("<Latest>{id}</Latest>")).collect();
        let body = format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{list}</BlockList>");
        self.put(&what, &format!("{url}&comp=blocklist"), body.into_bytes(), false).await
    }

    async fn put(&self, what: &str, url: &str, bytes: Vec<u8>, whole: bool) -> Result<()> {
        let sum = base64::engine::general_purpose::STANDARD.encode(Md5::digest(&bytes));
        let bytes = bytes::Bytes::from(bytes);
        self.retry("storing", what, || async {
            let mut request = self
                .http
                .put(url)
                .header("x-ms-version", BLOB_VERSION)
                .header("content-md5", &sum)
                .header("content-length", bytes.len());
            if whole {
                request = request.header("x-ms-blob-type", "BlockBlob").header("x-ms-blob-content-md5", &sum);
            }
            checked(request.body(bytes.clone()).send().await.map_err(transport)?).await.map(|_| ())
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

/// Where a blob name may go below a folder: never outside of it.
pub(crate) fn place_below(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut path = folder.to_owned();
    for part in name.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." || part.contains('\0') {
            return Err(format!("the blob name {name:?} leads out of its folder"));
        }
        path.push(part);
    }
    Ok(path)
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
    let body = answer.text().await.unwrap_or_default();
    let text = format!("the server answered {status} {}", body.chars().take(300).collect::<String>());
    match status.as_u16() {
        429 | 503 => Err(Failure::Away(text)),
        408 | 500..=599 => Err(Failure::Again(text)),
        _ => Err(Failure::Final(text)),
    }
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
    fn names_stay_in_their_folder() {
        let folder = Path::new("/w");
        assert_eq!(place_below(folder, "a//b/./c"), Ok("/w/a/b/c".into()));
        assert!(place_below(folder, "a/../../etc").is_err());
    }
}
