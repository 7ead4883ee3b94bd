//! How much each container keeps, and how much its account may. It is counted once at the start and then as it
//! changes; an upload never walks a folder.
//!
//! What is on its way in counts while it arrives, so that no upload writes more than there is room for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Error, FREE_CHECK_BYTES, HOLDERS_TOLD_MAX, Result};

/// What a store may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreLimits {
    /// Bytes of one account (a workspace): blobs, and blocks that are in no blob yet. 0: no limit.
    pub account_bytes_max: u64,
    /// Free bytes of the disk that uploads leave.
    pub free_bytes_min: u64,
}

#[derive(Debug)]
pub(crate) struct Usage {
    root: PathBuf,
    limits: StoreLimits,
    accounts: Mutex<BTreeMap<String, Account>>,
}

#[derive(Debug, Default)]
struct Account {
    containers: BTreeMap<String, u64>,
    arriving: u64,
}

impl Account {
    fn bytes(&self) -> u64 {
        self.containers.values().sum::<u64>() + self.arriving
    }
}

impl Usage {
    pub(crate) fn new(root: &Path, limits: StoreLimits) -> Self {
        Self { root: root.to_owned(), limits, accounts: Mutex::default() }
    }

    /// Without a limit nothing is counted.
    pub(crate) fn counts(&self) -> bool {
        self.limits.account_bytes_max > 0
    }

    pub(crate) fn add(&self, account: &str, container: &str, bytes: u64) {
        self.change(account, container, |now| now.saturating_add(bytes));
    }

    pub(crate) fn subtract(&self, account: &str, container: &str, bytes: u64) {
        self.change(account, container, |now| now.saturating_sub(bytes));
    }

    fn change(&self, account: &str, container: &str, change: impl FnOnce(u64) -> u64) {
        if !self.counts() {
            return;
        }
        let mut accounts = self.lock();
        let containers = &mut accounts.entry(account.to_owned()).or_default().containers;
        match containers.get_mut(container) {
            Some(bytes) => *bytes = change(*bytes),
            None => {
                containers.insert(container.to_owned(), change(0));
            }
        }
    }

    pub(crate) fn forget(&self, account: &str, container: Option<&str>) {
        let mut accounts = self.lock();
        match container {
            None => drop(accounts.remove(account)),
            Some(container) => {
                if let Some(account) = accounts.get_mut(account) {
                    account.containers.remove(container);
                }
            }
        }
    }

    #[cfg(test)]
    /// What an account keeps, with what is on its way in; 0 where nothing is counted.
    pub(crate) fn bytes(&self, account: &str) -> u64 {
        self.lock().get(account).map_or(0, Account::bytes)
    }

    /// Counts what the disk holds. Packed blobs are added by the caller.
    pub(crate) fn count_files(&self) -> Result<()> {
        for account in folders_in(&self.root)? {
            for container in folders_in(&self.root.join(&account))? {
                let bytes = tree_bytes(&self.root.join(&account).join(&container))?;
                self.add(&account, &container, bytes);
            }
        }
        Ok(())
    }

    fn arrive(&self, account: &str, bytes: u64) -> Result<()> {
        if !self.counts() {
            return Ok(());
        }
        let mut accounts = self.lock();
        let there = accounts.entry(account.to_owned()).or_default();
        let max_bytes = self.limits.account_bytes_max;
        if there.bytes().saturating_add(bytes) > max_bytes {
            return Err(Error::AccountFull {
                account: account.to_owned(),
                kept_bytes: there.bytes(),
                max_bytes,
                holders: holders(&there.containers),
            });
        }
        there.arriving += bytes;
        Ok(())
    }

    fn arrived(&self, account: &str, bytes: u64) {
        if let Some(account) = self.lock().get_mut(account) {
            account.arriving = account.arriving.saturating_sub(bytes);
        }
    }

    /// Whether the disk has the room that uploads must leave.
    fn check_free(&self) -> Result<()> {
        if self.limits.free_bytes_min == 0 {
            return Ok(());
        }
        let Ok(fs) = rustix::fs::statvfs(&self.root) else { return Ok(()) };
        if fs.f_bavail.saturating_mul(fs.f_frsize) < self.limits.free_bytes_min {
            return Err(Error::DiskFull { action: "keep an upload in", path: self.root.clone() });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one upload has taken of its account's room. Dropping it gives that back: what became a blob is counted there.
pub(crate) struct Charge {
    usage: Arc<Usage>,
    account: String,
    bytes: u64,
    /// Bytes since the disk was last looked at.
    unchecked: u64,
}

impl Charge {
    pub(crate) fn begin(usage: Arc<Usage>, account: &str) -> Result<Self> {
        usage.check_free()?;
        Ok(Self { usage, account: account.to_owned(), bytes: 0, unchecked: 0 })
    }

    /// Takes room for further bytes, before they are written.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<()> {
        self.write(bytes)?;
        self.usage.arrive(&self.account, bytes)?;
        if self.usage.counts() {
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Of bytes that the account has room for already: only the disk must have some.
    pub(crate) fn write(&mut self, bytes: u64) -> Result<()> {
        self.unchecked = self.unchecked.saturating_add(bytes);
        if self.unchecked >= FREE_CHECK_BYTES {
            self.usage.check_free()?;
            self.unchecked = 0;
        }
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.usage.arrived(&self.account, self.bytes);
        }
    }
}

fn holders(containers: &BTreeMap<String, u64>) -> String {
    let mut largest: Vec<_> = containers.iter().filter(|(_, bytes)| **bytes > 0).collect();
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let told = largest.iter().take(HOLDERS_TOLD_MAX);
    told.map(|(name, bytes)| format!("{name} {}", mb(**bytes))).collect::<Vec<_>>().join(", ")
}

/// As `12.5 MB`, where 1 MB is 1,048,576 bytes, as everywhere in the configuration.
pub(crate) fn mb(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

/// See `names.rs`.
const PROPERTIES_ENDING: &[u8] = b"@m";

fn folders_in(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        // Names that begin with `@` are the store's own.
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !name.starts_with('@') {
            names.push(name);
        }
    }
    Ok(names)
}

/// The bytes of all files below a folder, those that hold a blob's properties aside. Links are not followed.
pub(crate) fn tree_bytes(folder: &Path) -> Result<u64> {
    let mut bytes: u64 = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::io("list", &folder)(e)),
        };
        for entry in entries {
            let entry = entry.map_err(Error::io("list", &folder))?;
            // A file that was deleted meanwhile takes no space.
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                folders.push(entry.path());
            } else if !entry.file_name().as_encoded_bytes().ends_with(PROPERTIES_ENDING) {
                bytes = bytes.saturating_add(found.len());
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlobAddress, BlockKind, BlockRef, Condition, Headers, Store};

    const MAX: u64 = 1000;

    fn store(folder: &Path) -> Store {
        let limits = StoreLimits { account_bytes_max: MAX, free_bytes_min: 0 };
        let store = Store::open_limited(folder, limits).unwrap();
        store.create_container("neapst1", "cont").unwrap();
        store
    }

    fn blob(name: &str) -> BlobAddress {
        BlobAddress::new("neapst1", "cont", name).unwrap()
    }

    fn put(store: &Store, name: &str, bytes: usize) -> Result<()> {
        store.put_bytes(&blob(name), &vec![b'x'; bytes], Headers::default(), &Condition::default()).map(drop)
    }

    fn stage(store: &Store, name: &str, id: &str, bytes: usize) -> Result<()> {
        let mut upload = store.begin_block(&blob(name))?;
        upload.write(&vec![b'x'; bytes])?;
        store.stage_block(&blob(name), id, upload)
    }

    #[test]
    fn every_change_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let kept = || store.usage().bytes("neapst1");
        put(&store, "a", 300).unwrap();
        put(&store, "a", 200).unwrap();
        assert_eq!(kept(), 200, "a blob that is replaced is not counted twice");
        store.append_at(&blob("log"), 0, &[b'l'; 50]).unwrap();
        assert_eq!(kept(), 250);
        stage(&store, "b", "AAAA", 100).unwrap();
        stage(&store, "b", "AAAA", 120).unwrap();
        assert_eq!(kept(), 370, "blocks count before they are a blob");
        let list = [BlockRef { kind: BlockKind::Latest, id: "AAAA".into() }];
        store.commit_blocks(&blob("b"), &list, Headers::default(), &Condition::default()).unwrap();
        assert_eq!(kept(), 370);
        store.delete(&blob("b"), &Condition::default()).unwrap();
        store.delete(&blob("log"), &Condition::default()).unwrap();
        assert_eq!(kept(), 200);
        let limits = store.limits();
        drop(store);
        let store = Store::open_limited(folder.path(), limits).unwrap();
        assert_eq!(store.usage().bytes("neapst1"), 200, "and at the next start");
        store.delete_container("neapst1", "cont").unwrap();
        assert_eq!(store.usage().bytes("neapst1"), 0);
    }

    #[test]
    fn what_has_no_room_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        put(&store, "a", 900).unwrap();
        let refused = put(&store, "b", 101).unwrap_err().to_string();
        assert!(refused.contains("cont 0.0 MB") && refused.contains("storage.workspace_mb_max"), "{refused}");
        assert!(matches!(stage(&store, "b", "AAAA", 101), Err(Error::AccountFull { .. })));
        assert_eq!(store.usage().bytes("neapst1"), 900);
        put(&store, "b", 100).unwrap();
        assert!(put(&store, "c", 1).is_err());
        store.delete(&blob("a"), &Condition::default()).unwrap();
        put(&store, "c", 1).unwrap();
    }

    #[test]
    fn a_list_that_names_a_block_many_times_has_no_more_room() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        stage(&store, "b", "AAAA", 100).unwrap();
        let list = vec![BlockRef { kind: BlockKind::Latest, id: "AAAA".into() }; 10_000];
        let refused = store.commit_blocks(&blob("b"), &list, Headers::default(), &Condition::default());
        assert!(matches!(refused, Err(Error::AccountFull { .. })), "{refused:?}");
        assert_eq!(store.usage().bytes("neapst1"), 100);
    }

    #[test]
    fn blocks_of_a_job_that_ended_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        for name in ["azureml/one/o/x", "azureml/two/o/x"] {
            stage(&store, name, "AAAA", 100).unwrap();
        }
        let gone = store.forget_blocks("neapst1", "cont", |name| name.starts_with("azureml/one/")).unwrap();
        assert_eq!((gone, store.usage().bytes("neapst1")), (1, 100));
    }

    #[test]
    fn uploads_leave_room_on_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let limits = StoreLimits { account_bytes_max: 0, free_bytes_min: u64::MAX };
        let store = Store::open_limited(folder.path(), limits).unwrap();
        store.create_container("neapst1", "cont").unwrap();
        assert!(matches!(put(&store, "a", 1), Err(Error::DiskFull { .. })));
        store.append_at(&blob("log"), 0, b"logs are taken").unwrap();
    }
}
