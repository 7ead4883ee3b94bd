//! Azure Blob Storage, Data Lake Gen2 (through its blob endpoint) and S3, through `object_store`.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use md5::{Digest, Md5};
use object_store::aws::AmazonS3Builder;
use object_store::azure::{MicrosoftAzureBuilder, split_sas};
use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart,
};

use super::{Content, Entry, Error, Listing, Pieces, Refused, Result};
use crate::ELSEWHERE_LISTING_MAX;

/// Content up to this size goes in one request, more in parts of this size.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Parts on their way at once: this and [`PART_BYTES`] bound the memory of an upload.
const PARTS_AT_ONCE: usize = 2;

/// A container of an Azure storage account.
#[derive(Clone, Debug)]
pub struct AzureStore {
    pub account: String,
    pub container: String,
    /// `https://host/account` where it is not Azure's own.
    pub endpoint: Option<String>,
    pub credential: AzureCredential,
}

#[derive(Clone)]
pub enum AzureCredential {
    Anonymous,
    AccountKey(String),
    Sas(String),
    ServicePrincipal { tenant: String, client: String, secret: String, authority: Option<String> },
}

impl std::fmt::Debug for AzureCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::AccountKey(_) => "AccountKey(hidden)",
            Self::Sas(_) => "Sas(hidden)",
            Self::ServicePrincipal { .. } => "ServicePrincipal(hidden)",
        })
    }
}

/// A bucket.
#[derive(Clone, Debug)]
pub struct S3Store {
    pub bucket: String,
    pub region: String,
    /// Where it is not Amazon's own.
    pub endpoint: Option<String>,
    pub credential: Option<S3Credential>,
}

#[derive(Clone)]
pub struct S3Credential {
    pub key_id: String,
    pub secret: String,
    pub token: Option<String>,
}

impl std::fmt::Debug for S3Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("S3Credential(hidden)")
    }
}

/// Every store uses the one client of the server: its connections, and the roots that it trusts.
#[derive(Debug)]
struct OneClient(super::HttpClient);

impl HttpConnector for OneClient {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.0.for_objects())
    }
}

impl AzureStore {
    pub(super) fn open(&self, http: &super::HttpClient) -> Result<Objects> {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_account(&self.account)
            .with_container_name(&self.container)
            .with_allow_http(true)
            .with_http_connector(OneClient(http.clone()));
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        builder = match &self.credential {
            AzureCredential::Anonymous => builder.with_skip_signature(true),
            AzureCredential::AccountKey(key) => builder.with_access_key(key),
            AzureCredential::Sas(query) => {
                let pairs =
                    split_sas(query).map_err(|_| Error::Failed("the SAS token cannot be read".into()))?;
                builder.with_sas_authorization(pairs)
            }
            AzureCredential::ServicePrincipal { tenant, client, secret, authority } => {
                let builder = builder.with_client_secret_authorization(client, secret, tenant);
                match authority {
                    Some(authority) => builder.with_authority_host(authority),
                    None => builder,
                }
            }
        };
        Ok(Objects(Arc::new(builder.build().map_err(|e| failed("the datastore", e))?)))
    }
}

impl S3Store {
    pub(super) fn open(&self, http: &super::HttpClient) -> Result<Objects> {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(&self.region)
            .with_allow_http(true)
            .with_http_connector(OneClient(http.clone()));
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        builder = match &self.credential {
            None => builder.with_skip_signature(true),
            Some(key) => {
                let builder = builder.with_access_key_id(&key.key_id).with_secret_access_key(&key.secret);
                match &key.token {
                    Some(token) => builder.with_token(token),
                    None => builder,
                }
            }
        };
        Ok(Objects(Arc::new(builder.build().map_err(|e| failed("the datastore", e))?)))
    }
}

#[derive(Debug)]
pub struct Objects(Arc<dyn ObjectStore>);

impl Objects {
    pub(super) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        entries_max: usize,
    ) -> Result<Listing> {
        // A store can answer empty pages for ever.
        let page = tokio::time::timeout(ELSEWHERE_LISTING_MAX, self.page(prefix, after, entries_max)).await;
        page.unwrap_or_else(|_| {
            let seconds = ELSEWHERE_LISTING_MAX.as_secs();
            Err(Error::Failed(format!("the listing of '{prefix}' took more than {seconds} s")))
        })
    }

    async fn page(&self, prefix: &str, after: Option<&str>, entries_max: usize) -> Result<Listing> {
        // `object_store` lists whole segments; what is more than was asked for is left out here.
        let within = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let within = path(within)?;
        let within = (!within.is_root()).then_some(within);
        let all = match after {
            Some(after) => self.0.list_with_offset(within.as_ref(), &path(after)?),
            None => self.0.list(within.as_ref()),
        };
        let mut all = all.try_filter(|meta| std::future::ready(meta.location.as_ref().starts_with(prefix)));
        let mut entries = Vec::new();
        while let Some(meta) = all.next().await {
            entries.push(entry_of(&meta.map_err(|e| failed(prefix, e))?));
            if entries.len() == entries_max {
                let next = entries.last().map(|entry| entry.name.clone());
                return Ok(Listing { entries, next });
            }
        }
        Ok(Listing { entries, next: None })
    }

    pub(super) async fn head(&self, name: &str) -> Result<Entry> {
        Ok(entry_of(&self.0.head(&path(name)?).await.map_err(|e| failed(name, e))?))
    }

    pub(super) async fn get(&self, name: &str, range: Option<(u64, Option<u64>)>) -> Result<Content> {
        let range = range.map(|(start, length)| match length {
            Some(length) => GetRange::Bounded(start..start.saturating_add(length)),
            None => GetRange::Offset(start),
        });
        let options = GetOptions { range, ..GetOptions::default() };
        let found = self.0.get_opts(&path(name)?, options).await.map_err(|e| failed(name, e))?;
        let (entry, range) = (entry_of(&found.meta), found.range.clone());
        let name = name.to_owned();
        let pieces = found.into_stream().map_err(move |e| failed(&name, e)).boxed();
        Ok(Content { entry, start: range.start, length: Some(range.end.saturating_sub(range.start)), pieces })
    }

    pub(super) async fn put(&self, name: &str, mut pieces: Pieces, md5: Option<[u8; 16]>) -> Result<Entry> {
        if name.is_empty() || name.ends_with('/') {
            // There are no folders, so there is no empty one.
            return Ok(Entry { name: name.to_owned(), bytes: 0, modified_ms: 0, etag: String::new() });
        }
        let at = path(name)?;
        let (mut sum, mut bytes) = (Md5::new(), 0_u64);
        let mut first = BytesMut::new();
        while first.len() < PART_BYTES {
            let Some(piece) = pieces.next().await else {
                check_md5(name, sum, md5)?;
                let put = self.0.put(&at, PutPayload::from_bytes(first.freeze())).await;
                return Ok(stored(name, bytes, put.map_err(|e| failed(name, e))?.e_tag));
            };
            let piece = piece?;
            sum.update(&piece);
            bytes += piece.len() as u64;
            first.extend_from_slice(&piece);
        }
        let upload = self.0.put_multipart(&at).await.map_err(|e| failed(name, e))?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        match feed(&mut parts, first.freeze(), pieces, &mut sum, &mut bytes, name).await {
            Ok(()) => {}
            Err(error) => {
                abort(parts, name).await;
                return Err(error);
            }
        }
        if let Err(error) = check_md5(name, sum, md5) {
            abort(parts, name).await;
            return Err(error);
        }
        Ok(stored(name, bytes, parts.finish().await.map_err(|e| failed(name, e))?.e_tag))
    }

    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(&path(name)?).await.map_err(|e| failed(name, e))
    }
}

async fn feed(
    parts: &mut WriteMultipart,
    first: Bytes,
    mut pieces: Pieces,
    sum: &mut Md5,
    bytes: &mut u64,
    name: &str,
) -> Result<()> {
    parts.put(first);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        sum.update(&piece);
        *bytes += piece.len() as u64;
        parts.wait_for_capacity(PARTS_AT_ONCE).await.map_err(|e| failed(name, e))?;
        // Copied: many small pieces that each hold on to a read buffer would take more than the part.
        parts.write(&piece);
    }
    Ok(())
}

async fn abort(parts: WriteMultipart, name: &str) {
    // What is left are parts that no name leads to; the store's own rules clear them.
    if parts.abort().await.is_err() {
        let _ = name;
    }
}

fn check_md5(name: &str, sum: Md5, announced: Option<[u8; 16]>) -> Result<()> {
    let came: [u8; 16] = sum.finalize().into();
    if announced.is_some_and(|announced| announced != came) {
        Err(Error::Md5(name.to_owned()))
    } else {
        Ok(())
    }
}

fn path(name: &str) -> Result<Path> {
    Path::parse(name).map_err(|_| Error::BadName(name.to_owned()))
}

fn entry_of(meta: &ObjectMeta) -> Entry {
    let etag = meta.e_tag.clone().unwrap_or_default().trim_matches('"').to_owned();
    Entry {
        name: meta.location.to_string(),
        bytes: meta.size,
        modified_ms: meta.last_modified.timestamp_millis(),
        etag,
    }
}

fn stored(name: &str, bytes: u64, etag: Option<String>) -> Entry {
    let etag = etag.unwrap_or_default().trim_matches('"').to_owned();
    Entry { name: name.to_owned(), bytes, modified_ms: 0, etag }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn failed(name: &str, e: object_store::Error) -> Error {
    use object_store::Error as E;
    if let Some(refused) = Refused::in_chain(&e) {
        return Error::Refused(refused);
    }
    match e {
        E::NotFound { .. } => Error::NotFound(name.to_owned()),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => Error::Denied(name.to_owned()),
        E::InvalidPath { .. } => Error::BadName(name.to_owned()),
        other => Error::Failed(format!("'{name}': {}", without_queries(&other.to_string()))),
    }
}

/// Whatever a store says, nothing after a question mark of an address is passed on.
fn without_queries(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut skipping = false;
    for c in text.chars() {
        match c {
            '?' => skipping = true,
            _ if c.is_whitespace() || c == '"' || c == ')' => skipping = false,
            _ => {}
        }
        if !skipping {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_show() {
        let store = AzureStore {
            account: "a".into(),
            container: "c".into(),
            endpoint: None,
            credential: AzureCredential::Sas("sv=1&sig=abc".into()),
        };
        assert!(!format!("{store:?}").contains("abc"));
        assert_eq!(without_queries("GET (https://h/c/b?sv=1&sig=x) failed"), "GET (https://h/c/b) failed");
    }
}
