//! Stores that are not ours, behind one face: Azure Blob Storage, Data Lake and S3 (through `object_store`), folders of
//! this machine, and plain web addresses.
//!
//! The blob face shows them as containers whose names begin with `~`, which no container of ours can have:
//!
//! | container | a name in it |
//! |---|---|
//! | `~store.{datastore}` | a path in that datastore |
//! | `~file` | a path of this machine, without its first slash |
//! | `~http`, `~https` | `{host}/{path}` |
//! | `~azure` | `{account}/{container}/{path}`, read without credentials |
//! | `~s3` | `{bucket}/{key}`, read without credentials |
//!
//! Unlike the rest of this crate its calls are asynchronous and speak HTTP. What is written appears under its name when
//! all of it has come and its MD5 was right, and not before.

mod folder;
mod objects;
mod outgoing;
mod web;

use std::path::PathBuf;

use bytes::Bytes;
use futures_util::stream::BoxStream;

pub use folder::Folder;
pub use objects::{AzureCredential, AzureStore, S3Credential, S3Store};
pub use outgoing::{Allowed, HttpClient, OutgoingRules, Refused, is_public};
pub use web::Web;

/// Before the name of a datastore.
pub const STORE: &str = "~store.";
pub const FILE: &str = "~file";
pub const HTTP: &str = "~http";
pub const HTTPS: &str = "~https";
pub const AZURE: &str = "~azure";
pub const S3: &str = "~s3";
/// The word in a signed query that carries the query of a web address.
pub const WEB_QUERY: &str = "neap-web-query";

/// Whether a container of this name is elsewhere.
#[must_use]
pub fn is_foreign(container: &str) -> bool {
    container.starts_with('~')
}

/// Whether a container stands for whatever host a name in it says. Only URLs that the server signed for a job open it: for a
/// bearer of any token it would be a proxy to everywhere.
#[must_use]
pub fn is_any_host(container: &str) -> bool {
    matches!(container, HTTP | HTTPS | AZURE | S3)
}

/// The container that stands for a datastore.
#[must_use]
pub fn container_of_datastore(name: &str) -> String {
    format!("{STORE}{name}")
}

/// The datastore that a container stands for.
#[must_use]
pub fn datastore_of_container(container: &str) -> Option<&str> {
    container.strip_prefix(STORE)
}

/// Why something elsewhere could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is nothing at '{0}'")]
    NotFound(String),
    #[error("'{0}' may not be read or written with the datastore's credentials")]
    Denied(String),
    /// The server does not connect there.
    #[error("{0}")]
    Refused(Refused),
    #[error("{0}")]
    Unsupported(&'static str),
    #[error("'{0}' cannot be a name there")]
    BadName(String),
    #[error("the range is outside of '{0}'")]
    Range(String),
    #[error("what came for '{0}' is not what was announced (its MD5 differs); nothing was stored")]
    Md5(String),
    #[error("the content for '{0}' ended early; nothing was stored")]
    CutOff(String),
    /// The store's own words. They hold no secrets: addresses are taken out.
    #[error("{0}")]
    Failed(String),
}

pub type Result<T> = std::result::Result<T, Error>;

/// One thing in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A folder with nothing in it ends with a slash.
    pub name: String,
    pub bytes: u64,
    pub modified_ms: i64,
    pub etag: String,
}

/// A part of a listing, in the order of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// Go on after this name.
    pub next: Option<String>,
}

/// Content as it comes.
pub type Pieces = BoxStream<'static, Result<Bytes>>;

/// The part of a blob that was asked for.
pub struct Content {
    pub entry: Entry,
    /// Where the part begins, and how long it is; the length of a web page may not be known before its end.
    pub start: u64,
    pub length: Option<u64>,
    pub pieces: Pieces,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").field("entry", &self.entry).finish_non_exhaustive()
    }
}

/// What a datastore says about where it is. Credentials do not show in its `Debug`.
#[derive(Clone, Debug)]
pub enum Definition {
    Azure(AzureStore),
    S3(S3Store),
    Folder(PathBuf),
}

/// A store that is ready to be asked.
#[derive(Debug)]
pub enum Foreign {
    Objects(objects::Objects),
    Folder(Folder),
    Web(Web),
}

impl Foreign {
    /// Makes it ready. Nothing is asked yet.
    pub fn open(definition: &Definition, http: &HttpClient) -> Result<Self> {
        Ok(match definition {
            Definition::Azure(store) => Self::Objects(store.open(http)?),
            Definition::S3(store) => Self::Objects(store.open(http)?),
            Definition::Folder(path) => Self::Folder(Folder::new(path.clone())),
        })
    }

    /// Names that begin with `prefix`, after `after` if it is given.
    pub async fn list(&self, prefix: &str, after: Option<&str>, entries_max: usize) -> Result<Listing> {
        match self {
            Self::Objects(store) => store.list(prefix, after, entries_max).await,
            Self::Folder(folder) => folder.list(prefix, after, entries_max).await,
            Self::Web(_) => Err(Error::Unsupported(
                "A web address has no listing; give a file (uri_file), or use a datastore.",
            )),
        }
    }

    pub async fn head(&self, name: &str) -> Result<Entry> {
        match self {
            Self::Objects(store) => store.head(name).await,
            Self::Folder(folder) => folder.head(name).await,
            Self::Web(web) => web.head(name).await,
        }
    }

    /// Reads from `start`, `length` bytes or to the end.
    pub async fn get(&self, name: &str, range: Option<(u64, Option<u64>)>) -> Result<Content> {
        match self {
            Self::Objects(store) => store.get(name, range).await,
            Self::Folder(folder) => folder.get(name, range).await,
            Self::Web(web) => web.get(name, range).await,
        }
    }

    /// Stores all of `pieces`, or nothing.
    pub async fn put(&self, name: &str, pieces: Pieces, md5: Option<[u8; 16]>) -> Result<Entry> {
        match self {
            Self::Objects(store) => store.put(name, pieces, md5).await,
            Self::Folder(folder) => folder.put(name, pieces, md5).await,
            Self::Web(_) => Err(Error::Unsupported("Nothing can be stored at a web address.")),
        }
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        match self {
            Self::Objects(store) => store.delete(name).await,
            Self::Folder(folder) => folder.delete(name).await,
            Self::Web(_) => Err(Error::Unsupported("Nothing can be deleted at a web address.")),
        }
    }
}
