//! The store: accounts, containers and blobs below one folder. One process owns that folder; within
//! it, writers of the same blob take turns, and a reader sees the old content or the new, whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use crate::follow::Followed;
use crate::names::{check_account, check_container, path_of, properties_path};
use crate::packed::Packed;
use crate::place::Found;
use crate::properties::{Sidecar, check_metadata, gather};
use crate::usage::{Charge, StoreLimits, Usage, tree_bytes};
use crate::{
    BLOB_BYTES_MAX, BlobAddress, BlobProperties, Error, Follower, Headers, PACKED_BYTES_MAX, Result, Upload,
};

/// Writers of different blobs seldom wait for each other with this many locks.
const LOCKS: usize = 64;

/// What must hold of the blob that is there for a request to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The ETag that it must have; `*` means that it must be there.
    pub if_match: Option<String>,
    /// The ETag that it must not have; `*` means that it must not be there.
    pub if_none_match: Option<String>,
}

impl Condition {
    /// Only if there is no such blob yet.
    #[must_use]
    pub fn absent() -> Self {
        Self { if_match: None, if_none_match: Some("*".to_owned()) }
    }

    /// Holds the condition against what is there.
    pub fn check(&self, address: &BlobAddress, current: Option<&BlobProperties>) -> Result<()> {
        let same = |wanted: &str| {
            let wanted = wanted.trim().trim_start_matches("W/").trim_matches('"');
            current.is_some_and(|now| wanted == "*" || wanted == now.etag)
        };
        if self.if_match.as_deref().is_some_and(|wanted| !same(wanted)) {
            return Err(Error::ConditionNotMet(address.to_string()));
        }
        match self.if_none_match.as_deref() {
            Some(unwanted) if same(unwanted) && unwanted.trim() == "*" => {
                Err(Error::BlobExists(address.to_string()))
            }
            Some(unwanted) if same(unwanted) => Err(Error::ConditionNotMet(address.to_string())),
            _ => Ok(()),
        }
    }
}

/// An open blob: its bytes stay readable as they are, whatever happens to the name.
#[derive(Debug)]
pub struct OpenBlob {
    /// The bytes.
    pub file: File,
    /// What is known of them.
    pub properties: BlobProperties,
}

/// All blobs of this installation.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    temporary: PathBuf,
    next_temporary: AtomicU64,
    locks: [Mutex<()>; LOCKS],
    followed: Followed,
    packed: Packed,
    packed_bytes_max: u64,
    limits: StoreLimits,
    usage: Arc<Usage>,
}

impl Store {
    /// Opens the store in this folder, or makes it. What earlier uploads left half done is removed.
    ///
    /// # Assumptions
    /// No other process writes below this folder.
    pub fn open(root: &Path) -> Result<Self> {
        Self::open_limited(root, StoreLimits::default())
    }

    /// The same with limits on what it holds. With one on accounts, everything is counted first, which looks at every
    /// file.
    pub fn open_limited(root: &Path, limits: StoreLimits) -> Result<Self> {
        let mut store = Self::open_packing(root, PACKED_BYTES_MAX)?;
        let usage = Usage::new(root, limits);
        if usage.counts() {
            usage.count_files()?;
            for (account, container, bytes) in store.packed.container_bytes()? {
                usage.add(&account, &container, bytes);
            }
        }
        store.limits = limits;
        store.usage = Arc::new(usage);
        Ok(store)
    }

    pub fn limits(&self) -> StoreLimits {
        self.limits
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The same with another limit for packed blobs.
    pub(crate) fn open_packing(root: &Path, packed_bytes_max: u64) -> Result<Self> {
        // Account names have no `@`, so this is nobody's account.
        let temporary = root.join("@tmp");
        match fs::remove_dir_all(&temporary) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Error::io("empty the folder", &temporary)(e));
            }
            _ => {}
        }
        make_folders(&temporary)?;
        let store = Self {
            root: root.to_owned(),
            temporary,
            next_temporary: AtomicU64::new(0),
            locks: std::array::from_fn(|_| Mutex::new(())),
            followed: Followed::default(),
            packed: Packed::open(root)?,
            packed_bytes_max,
            limits: StoreLimits::default(),
            usage: Arc::new(Usage::new(root, StoreLimits::default())),
        };
        store.forget_lost_containers()?;
        Ok(store)
    }

    /// Finishes what a crash in the middle of [`Store::delete_container`] left: packed blobs of
    /// containers that are gone.
    fn forget_lost_containers(&self) -> Result<()> {
        let mut last = (String::new(), String::new());
        while let Some((account, container)) = self.packed.container_after(&last.0, &last.1)? {
            if !is_folder(&self.root.join(&account).join(&container)) {
                self.packed.remove_container(&account, &container)?;
            }
            last = (account, container);
        }
        Ok(())
    }

    /// Makes a container (and its account). True if it was not there before.
    pub fn create_container(&self, account: &str, container: &str) -> Result<bool> {
        let path = self.container_path(account, container)?;
        make_folders(&self.root.join(account))?;
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(Error::io("make the folder", &path)(e)),
        }
    }

    /// Whether there is such a container.
    pub fn container_exists(&self, account: &str, container: &str) -> Result<bool> {
        Ok(is_folder(&self.container_path(account, container)?))
    }

    /// Removes a container and all its blobs. Removing what is not there is no error.
    pub fn delete_container(&self, account: &str, container: &str) -> Result<()> {
        let path = self.container_path(account, container)?;
        self.remove_tree(&path, || self.packed.remove_container(account, container))?;
        self.usage.forget(account, Some(container));
        Ok(())
    }

    /// How much an account's blobs take, all together: looks at every file, so it takes long where there are many.
    pub fn account_bytes(&self, account: &str) -> Result<u64> {
        check_account(account)?;
        Ok(self.packed.account_bytes(account)? + tree_bytes(&self.root.join(account))?)
    }

    /// Removes an account, its containers and their blobs. Removing what is not there is no error.
    pub fn delete_account(&self, account: &str) -> Result<()> {
        check_account(account)?;
        self.remove_tree(&self.root.join(account), || self.packed.remove_account(account))?;
        self.usage.forget(account, None);
        Ok(())
    }

    fn remove_tree(&self, path: &Path, remove_packed: impl FnOnce() -> Result<()>) -> Result<()> {
        // Renamed first: no blob can be made there any more, packed or not.
        let aside = self.temporary_path();
        match fs::rename(path, &aside) {
            Err(e) if e.kind() == ErrorKind::NotFound => return remove_packed(),
            Err(e) => return Err(Error::io("remove", path)(e)),
            Ok(()) => {}
        }
        remove_packed()?;
        fs::remove_dir_all(&aside).map_err(Error::io("remove", &aside))
    }

    /// Begins an upload for [`Store::put`] of this blob.
    ///
    /// # Errors
    /// [`Error::DiskFull`] and [`Error::AccountFull`] as soon as there is no room, here or while it is written.
    pub fn begin_upload(&self, address: &BlobAddress) -> Result<Upload> {
        Upload::create(self.temporary_path(), BLOB_BYTES_MAX, Some(self.charge(address)?))
    }

    pub(crate) fn charge(&self, address: &BlobAddress) -> Result<Charge> {
        Charge::begin(self.usage.clone(), address.account())
    }

    /// Puts an upload in the place of the blob, if the condition holds. Atomic and durable: after
    /// an error, or a crash, the blob is as it was.
    // By value: an upload that became a blob can be nothing else any more.
    #[allow(clippy::needless_pass_by_value)]
    pub fn put(
        &self,
        address: &BlobAddress,
        upload: Upload,
        headers: Headers,
        condition: &Condition,
    ) -> Result<BlobProperties> {
        check_metadata(&headers.metadata, address.name())?;
        let path = self.blob_path(address)?;
        upload.file().sync_data().map_err(Error::io("write", upload.path()))?;
        let meta = upload.file().metadata().map_err(Error::io("read", upload.path()))?;
        let sidecar = Sidecar::of(headers, &meta)?;
        let _turn = self.turn(address);
        let current = self.find(address, &path)?;
        condition.check(address, current.as_ref().map(Found::properties))?;
        self.in_folder_of(address, &path, || {
            sidecar.write(&properties_path(&path), &self.temporary_path())?;
            fs::rename(upload.path(), &path).map_err(Error::io("write", &path))
        })?;
        sync_folder(&path)?;
        self.forget_row(address);
        self.count_replaced(
            address,
            current.as_ref().map_or(0, |found| found.properties().length),
            meta.len(),
        );
        let properties = gather(&meta, &properties_path(&path));
        self.followed.announce(address, properties.length);
        Ok(properties)
    }

    /// Puts bytes that are already in memory.
    pub fn put_bytes(
        &self,
        address: &BlobAddress,
        bytes: &[u8],
        headers: Headers,
        condition: &Condition,
    ) -> Result<BlobProperties> {
        let mut upload = self.begin_upload(address)?;
        upload.write(bytes)?;
        self.put(address, upload, headers, condition)
    }

    /// Opens a blob for reading.
    pub fn open_blob(&self, address: &BlobAddress) -> Result<OpenBlob> {
        match self.find_whole(address, &self.blob_path(address)?)? {
            Some(Found::File(open)) => Ok(open),
            Some(Found::Packed(packed)) => packed.open(),
            None => Err(Error::BlobNotFound(address.to_string())),
        }
    }

    /// What is known of a blob.
    pub fn properties(&self, address: &BlobAddress) -> Result<BlobProperties> {
        match self.find(address, &self.blob_path(address)?)? {
            Some(Found::File(open)) => Ok(open.properties),
            Some(Found::Packed(properties)) => Ok(properties),
            None => Err(Error::BlobNotFound(address.to_string())),
        }
    }

    /// At most `length_max` bytes from `offset`; fewer at the end of the blob, none beyond it.
    pub fn read(&self, address: &BlobAddress, offset: u64, length_max: usize) -> Result<Vec<u8>> {
        let blob = self.open_blob(address)?;
        let left = blob.properties.length.saturating_sub(offset);
        let mut bytes = vec![0; length_max.min(usize::try_from(left).unwrap_or(usize::MAX))];
        blob.file.read_exact_at(&mut bytes, offset).map_err(Error::io("read", Path::new(address.name())))?;
        Ok(bytes)
    }

    /// Replaces the blob's metadata.
    pub fn set_metadata(
        &self,
        address: &BlobAddress,
        metadata: BTreeMap<String, String>,
        condition: &Condition,
    ) -> Result<BlobProperties> {
        check_metadata(&metadata, address.name())?;
        let path = self.blob_path(address)?;
        let _turn = self.turn(address);
        let found = self.find(address, &path)?.ok_or_else(|| Error::BlobNotFound(address.to_string()))?;
        condition.check(address, Some(found.properties()))?;
        if let Found::Packed(_) = found {
            // Only beside a file there is room for it.
            self.move_out(address, &path, &[])?;
        }
        let meta = fs::symlink_metadata(&path).map_err(Error::io("read", &path))?;
        let headers = Headers { metadata, ..found.properties().headers.clone() };
        let beside = properties_path(&path);
        Sidecar::of(headers, &meta)?.write(&beside, &self.temporary_path())?;
        Ok(gather(&meta, &beside))
    }

    /// Removes a blob. Folders that become empty go with it.
    pub fn delete(&self, address: &BlobAddress, condition: &Condition) -> Result<()> {
        let path = self.blob_path(address)?;
        let _turn = self.turn(address);
        let found = self.find(address, &path)?.ok_or_else(|| Error::BlobNotFound(address.to_string()))?;
        condition.check(address, Some(found.properties()))?;
        // First, also where there is a file: without it the row would count again.
        self.packed.remove(address)?;
        if let Found::File(_) = found {
            self.remove_file(address, &path)?;
        }
        self.count_replaced(address, found.properties().length, 0);
        self.followed.announce(address, 0);
        Ok(())
    }

    fn count_replaced(&self, address: &BlobAddress, before: u64, after: u64) {
        self.usage.subtract(address.account(), address.container(), before);
        self.usage.add(address.account(), address.container(), after);
    }

    fn remove_file(&self, address: &BlobAddress, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(Error::io("remove", path))?;
        // A sidecar alone is no blob, so this one may fail without harm.
        let _ = fs::remove_file(properties_path(path));
        let container = self.container_path(address.account(), address.container())?;
        let mut folder = path.parent();
        while let Some(empty) = folder.filter(|f| *f != container && fs::remove_dir(f).is_ok()) {
            folder = empty.parent();
        }
        Ok(())
    }

    /// Follows a blob's length, from what it is now. The blob need not exist yet.
    pub fn watch(&self, address: &BlobAddress) -> Result<Follower> {
        let path = self.blob_path(address)?;
        let follower = self.followed.subscribe(address);
        let _turn = self.turn(address);
        let length = self.find(address, &path)?.map_or(0, |found| found.properties().length);
        if follower.length() != length {
            self.followed.announce(address, length);
        }
        Ok(follower)
    }

    /// Runs `write` with the folders above `path` in place. A blob that is deleted at the same time
    /// may take a folder away that was just made; then it is made again.
    pub(crate) fn in_folder_of<T>(
        &self,
        address: &BlobAddress,
        path: &Path,
        mut write: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let container = self.container_path(address.account(), address.container())?;
        let mut tries_left = 8;
        loop {
            let made = make_parents(&container, path).and_then(|()| write());
            match made {
                Err(Error::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound && tries_left > 0 && is_folder(&container) =>
                {
                    tries_left -= 1;
                }
                Err(Error::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound && !is_folder(&container) =>
                {
                    return Err(Error::no_container(address));
                }
                other => return other,
            }
        }
    }

    pub(crate) fn container_path(&self, account: &str, container: &str) -> Result<PathBuf> {
        check_account(account)?;
        check_container(container)?;
        Ok(self.root.join(account).join(container))
    }

    pub(crate) fn blob_path(&self, address: &BlobAddress) -> Result<PathBuf> {
        let container = self.container_path(address.account(), address.container())?;
        Ok(container.join(path_of(address.name())))
    }

    pub(crate) fn temporary_path(&self) -> PathBuf {
        let n = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        self.temporary.join(n.to_string())
    }

    /// This writer's turn at the blob.
    pub(crate) fn turn(&self, address: &BlobAddress) -> MutexGuard<'_, ()> {
        let hash = Sha256::digest(address.to_string().as_bytes());
        self.locks[usize::from(hash[0]) % LOCKS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn followed(&self) -> &Followed {
        &self.followed
    }

    pub(crate) fn packed(&self) -> &Packed {
        &self.packed
    }

    /// Largest blob that is packed.
    pub(crate) fn packed_bytes_max(&self) -> u64 {
        self.packed_bytes_max
    }
}

pub(crate) fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

pub(crate) fn make_folders(path: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Error::io("make the folder", path))
}

/// The folders from just below the container down to the one that holds `path`.
fn folders_between(container: &Path, path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1);
    let mut folders: Vec<PathBuf> =
        above.take_while(|folder| *folder != container).map(Path::to_owned).collect();
    folders.reverse();
    folders
}

pub(crate) fn refuse_links(container: &Path, path: &Path) -> Result<()> {
    for folder in folders_between(container, path) {
        match fs::symlink_metadata(&folder) {
            Ok(meta) if meta.is_symlink() => return Err(Error::Link { path: folder }),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

fn make_parents(container: &Path, path: &Path) -> Result<()> {
    for folder in folders_between(container, path) {
        match fs::symlink_metadata(&folder) {
            Ok(meta) if meta.is_symlink() => return Err(Error::Link { path: folder }),
            Ok(_) => continue,
            Err(_) => {}
        }
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::io("make the folder", &folder)(e));
            }
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Deleted again by someone else: then there is nothing to make durable.
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("write", folder)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
