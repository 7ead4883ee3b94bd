//! What is known of a blob besides its bytes. It stands in a small file beside them, written before
//! they are put in place; a blob that only ever grew by appends has none.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use aws_lc_rs::rand;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Error, METADATA_BYTES_MAX, Result};

/// `O_NOFOLLOW | O_CLOEXEC`: a link in place of a blob is an error, not another file.
pub(crate) const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// What the client states about a blob when it writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers {
    /// Media type; `application/octet-stream` where none was stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Content encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// MD5 of the whole content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_md5: Option<[u8; 16]>,
    /// Free names and values. Names are lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// What is known of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobProperties {
    /// Bytes.
    pub length: u64,
    /// Changes with the content and with the metadata; without quotes.
    pub etag: String,
    /// Last change of content or metadata, unix milliseconds.
    pub last_modified_ms: i64,
    /// What the client stated.
    pub headers: Headers,
}

/// The file beside the bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sidecar {
    #[serde(flatten)]
    pub headers: Headers,
    /// New with each write, so that the ETag changes even within one tick of the file clock.
    revision: u64,
    /// The bytes for which `content_md5` holds.
    length: u64,
    mtime_ns: i64,
}

pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>, blob: &str) -> Result<()> {
    let bytes: usize = metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
    if bytes > METADATA_BYTES_MAX {
        return Err(Error::TooLarge {
            what: "the metadata",
            name: blob.to_owned(),
            max: METADATA_BYTES_MAX as u64,
        });
    }
    let fits = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    match metadata.keys().find(|name| !fits(name)) {
        None => Ok(()),
        Some(name) => Err(Error::BadName {
            what: "metadata name",
            name: name.clone(),
            why: "it must be letters, digits and underscores, and begin with no digit",
        }),
    }
}

fn mtime_ns(meta: &Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

impl Sidecar {
    /// For these bytes, which are as `meta` says.
    pub(crate) fn of(headers: Headers, meta: &Metadata) -> Result<Self> {
        let mut revision = [0_u8; 8];
        // Without random numbers nothing of this program can run; it is still no reason to panic.
        rand::fill(&mut revision).map_err(|_| Error::Io {
            action: "draw a random revision for",
            path: "a blob".into(),
            source: std::io::Error::from(ErrorKind::Other),
        })?;
        Ok(Self {
            headers,
            revision: u64::from_le_bytes(revision),
            length: meta.len(),
            mtime_ns: mtime_ns(meta),
        })
    }

    /// Reads the sidecar. A missing or unreadable one says nothing: the bytes are what matters.
    pub(crate) fn read(path: &Path) -> Option<(Self, Metadata)> {
        let mut file = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(path).ok()?;
        let mut json = Vec::new();
        file.read_to_end(&mut json).ok()?;
        Some((serde_json::from_slice(&json).ok()?, file.metadata().ok()?))
    }

    /// Writes the sidecar by way of `temporary`, which is on the same file system.
    pub(crate) fn write(&self, path: &Path, temporary: &Path) -> Result<()> {
        let json = serde_json::to_vec(self).map_err(|e| Error::Io {
            action: "write",
            path: path.to_owned(),
            source: e.into(),
        })?;
        let written = File::create_new(temporary)
            .and_then(|mut file| file.write_all(&json))
            .and_then(|()| fs::rename(temporary, path));
        written.map_err(|e| {
            // Best effort: the failure itself is what is reported.
            let _ = fs::remove_file(temporary);
            Error::io("write", path)(e)
        })
    }
}

/// Puts together what is known, from the open file and the sidecar's path.
pub(crate) fn gather(bytes: &Metadata, sidecar: &Path) -> BlobProperties {
    let (found, changed_ns) = match Sidecar::read(sidecar) {
        Some((sidecar, meta)) => (sidecar, mtime_ns(&meta)),
        None => (Sidecar::default(), i64::MIN),
    };
    let mut headers = found.headers;
    // Appended to since, or a crash came between sidecar and bytes: the checksum is of other bytes.
    if found.length != bytes.len() || found.mtime_ns != mtime_ns(bytes) {
        headers.content_md5 = None;
    }
    let mut hash = Sha256::new();
    for number in [found.revision, bytes.len(), bytes.ino()] {
        hash.update(number.to_le_bytes());
    }
    hash.update(mtime_ns(bytes).to_le_bytes());
    let digest = hash.finalize();
    let etag = digest[..8].iter().fold(String::from("0x"), |mut text, b| {
        text.push_str(&format!("{b:02X}"));
        text
    });
    BlobProperties {
        length: bytes.len(),
        etag,
        last_modified_ms: mtime_ns(bytes).max(changed_ns).div_euclid(1_000_000),
        headers,
    }
}
