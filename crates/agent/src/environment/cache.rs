//! Environments that are built once, however many attempts of however many nodes ask for them.
//!
//! ```text
//! <cache>/<key>.lock      held by whoever builds; the kernel lets go of it when the builder dies
//! <cache>/<key>.log       the output of the last build, followed by those who wait, and kept
//! <cache>/<key>.failed    which build failed, and why
//! <cache>/<key>.json      it is there: in which folder, and how it was made
//! <cache>/<key>-<n>/      what a build makes; a folder is written by one build only
//! ```
//!
//! An environment is there when its record is, which appears by a rename. What a builder that died has left is
//! removed by the next one. It knows nothing of how an environment is built.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::limits::{LOG_PIECE_BYTES, WAIT_ROUND_MS};

/// The place of all environments of a host.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

/// What came of asking for the right to build.
#[derive(Debug)]
pub(crate) enum Turn {
    Ours(Build),
    /// It was waited for another's build, and that failed.
    Failed(String),
}

/// The right to build, given back when dropped.
#[derive(Debug)]
pub(crate) struct Build {
    /// Held, not read.
    _lock: File,
    dir: PathBuf,
    key: String,
    log: File,
    id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Failure {
    build: String,
    message: String,
}

impl Cache {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// What an environment is known by: a digest of all that it is made of.
    pub(crate) fn key(parts: &[&str]) -> String {
        Self::digest(parts.iter().map(|part| part.as_bytes()))
    }

    pub(crate) fn digest<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let digest: [u8; 32] = hasher.finalize().into();
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn place(&self, folder: &str) -> PathBuf {
        self.dir.join(folder)
    }

    pub(crate) fn has(&self, folder: &str) -> bool {
        self.dir.join(folder).is_dir()
    }

    /// How an environment was made, if it is there.
    pub(crate) fn record<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.dir.join(format!("{key}.json"))).ok()?).ok()
    }

    /// Waits for the right to build. Meanwhile `hear` gets the output of whoever builds. What was waited for may be
    /// there afterwards: look before building.
    pub(crate) async fn turn(&self, key: &str, mut hear: impl FnMut(&[u8])) -> io::Result<Turn> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.dir)?;
        let path = |what: &str| self.dir.join(format!("{key}.{what}"));
        let failed_before = failure(&path("failed")).map(|failure| failure.build);
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path("lock"))?;
        let mut heard: u64 = 0;
        let mut waited = false;
        while let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK && error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
            waited = true;
            follow(&path("log"), &mut heard, &mut hear);
            tokio::time::sleep(Duration::from_millis(WAIT_ROUND_MS)).await;
        }
        if waited {
            follow(&path("log"), &mut heard, &mut hear);
            let failed = failure(&path("failed")).filter(|now| Some(&now.build) != failed_before.as_ref());
            if let Some(failed) = failed {
                return Ok(Turn::Failed(failed.message));
            }
        }
        // A new file: who still reads the old one goes on doing so.
        let _ = fs::remove_file(path("log"));
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(path("log"))?;
        let id = format!("{}-{}", std::process::id(), neap_sandbox::boot_ms());
        Ok(Turn::Ours(Build { _lock: lock, dir: self.dir.clone(), key: key.to_owned(), log, id }))
    }
}

fn failure(path: &Path) -> Option<Failure> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn follow(path: &Path, heard: &mut u64, hear: &mut impl FnMut(&[u8])) {
    let Ok(file) = File::open(path) else { return };
    if file.metadata().is_ok_and(|found| found.len() < *heard) {
        // Another build than before.
        *heard = 0;
    }
    let mut piece = vec![0; LOG_PIECE_BYTES];
    while let Ok(n) = file.read_at(&mut piece, *heard) {
        if n == 0 {
            break;
        }
        hear(&piece[..n]);
        *heard += n as u64;
    }
}

impl Build {
    /// Adds to the log that others follow.
    pub(crate) fn log(&mut self, bytes: &[u8]) {
        // Those who wait see less of it; the build's own job has its output by another way.
        let _ = self.log.write_all(bytes);
    }

    /// An empty folder for this build alone, and its name. What earlier builds of the key have left goes.
    pub(crate) fn folder(&self) -> io::Result<(PathBuf, String)> {
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let old = entry.file_name();
            if old.to_str().is_some_and(|name| name.starts_with(&format!("{}-", self.key))) {
                let _ = neap_sandbox::remove_path(&entry.path());
            }
        }
        let name = format!("{}-{}", self.key, self.id);
        let path = self.dir.join(&name);
        fs::DirBuilder::new().mode(0o755).create(&path)?;
        Ok((path, name))
    }

    /// From now on it is there.
    pub(crate) fn ready(&self, record: &impl Serialize) -> io::Result<()> {
        self.put("json", &serde_json::to_vec(record)?)
    }

    /// Those who waited need not try the same again; whoever comes later does.
    pub(crate) fn failed(&self, message: &str) -> io::Result<()> {
        let failure = Failure { build: self.id.clone(), message: message.to_owned() };
        self.put("failed", &serde_json::to_vec(&failure)?)
    }

    fn put(&self, what: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.dir.join(format!("{}.{what}", self.key));
        let new = self.dir.join(format!("{}.{what}.new", self.key));
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(turn: Turn) -> Build {
        match turn {
            Turn::Ours(build) => build,
            Turn::Failed(message) => panic!("{message}"),
        }
    }

    #[tokio::test]
    async fn one_builds_and_the_others_hear_it() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().join("cache"));
        assert_eq!(cache.record::<String>("k"), None);
        let mut first = ours(cache.turn("k", |_| {}).await.unwrap());
        let waiting = async {
            let mut heard = Vec::new();
            let turn = cache.turn("k", |bytes| heard.extend_from_slice(bytes)).await.unwrap();
            ours(turn);
            (String::from_utf8(heard).unwrap(), cache.record::<String>("k"))
        };
        let building = async {
            first.log(b"one\n");
            tokio::time::sleep(Duration::from_millis(WAIT_ROUND_MS * 2)).await;
            first.log(b"two\n");
            first.ready(&"made").unwrap();
            drop(first);
        };
        let (waited, ()) = tokio::join!(waiting, building);
        assert_eq!(waited, ("one\ntwo\n".to_owned(), Some("made".to_owned())));
    }

    #[tokio::test]
    async fn a_failure_is_shared_by_those_who_waited_and_by_nobody_later() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().to_owned());
        let first = ours(cache.turn("k", |_| {}).await.unwrap());
        let waiting = cache.turn("k", |_| {});
        let failing = async {
            tokio::time::sleep(Duration::from_millis(WAIT_ROUND_MS * 2)).await;
            first.failed("no such package").unwrap();
            drop(first);
        };
        let (waited, ()) = tokio::join!(waiting, failing);
        assert!(matches!(waited.unwrap(), Turn::Failed(message) if message == "no such package"));
        ours(cache.turn("k", |_| {}).await.unwrap());
    }

    #[tokio::test]
    async fn what_a_builder_left_goes_with_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().to_owned());
        fs::create_dir_all(dir.path().join("k-1-1/env")).unwrap();
        fs::create_dir_all(dir.path().join("k2-1-1")).unwrap();
        let build = ours(cache.turn("k", |_| {}).await.unwrap());
        let (folder, name) = build.folder().unwrap();
        assert!(folder.is_dir() && folder.ends_with(&name));
        assert!(!dir.path().join("k-1-1").exists() && dir.path().join("k2-1-1").exists());
    }

    #[test]
    fn keys_tell_parts_apart() {
        assert_eq!(Cache::key(&["a", "b"]), Cache::key(&["a", "b"]));
        assert_ne!(Cache::key(&["a", "b"]), Cache::key(&["ab", ""]));
        assert_eq!(Cache::key(&[]).len(), 32);
    }
}
