//! Blobs that arrive in blocks: any order, many at once, then one list that puts them together. A
//! block that was put into a blob is not a block any more; a later list cannot name it again.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use crate::store::{is_folder, make_folders};
use crate::usage::tree_bytes;
use crate::{
    BLOCK_AGE_MS_MAX, BLOCK_BYTES_MAX, BLOCK_ID_BYTES_MAX, BLOCKS_MAX, BlobAddress, BlobProperties,
    Condition, Error, Headers, Result, Store, Upload,
};

/// In a folder of blocks: the name of the blob that they are for. No block is called so.
const NAME_FILE: &str = "name";

/// Where a list of blocks wants a block to be taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// From the uploaded ones, or else from the blob.
    Latest,
    /// From the uploaded ones.
    Uncommitted,
    /// From the blob.
    Committed,
}

/// One entry of a list of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// Where from.
    pub kind: BlockKind,
    /// The block's id, base64, as the client wrote it.
    pub id: String,
}

impl Store {
    /// Begins an upload for [`Store::stage_block`] of this blob.
    ///
    /// # Errors
    /// As [`Store::begin_upload`].
    pub fn begin_block(&self, address: &BlobAddress) -> Result<Upload> {
        Upload::create(self.temporary_path(), BLOCK_BYTES_MAX, Some(self.charge(address)?))
    }

    /// Keeps a block for a later list. The same id again replaces the block.
    // By value: an upload that became a block can be nothing else any more.
    #[allow(clippy::needless_pass_by_value)]
    pub fn stage_block(&self, address: &BlobAddress, id: &str, upload: Upload) -> Result<()> {
        let file = block_file(id)?;
        if !self.container_exists(address.account(), address.container())? {
            return Err(Error::no_container(address));
        }
        let folder = self.blocks_folder(address)?;
        if !is_folder(&folder) {
            make_folders(&folder)?;
            fs::write(folder.join(NAME_FILE), address.name())
                .map_err(Error::io("keep the block", &folder))?;
        }
        let path = folder.join(file);
        let before = fs::symlink_metadata(&path).map_or(0, |meta| meta.len());
        fs::rename(upload.path(), &path).map_err(Error::io("keep the block", &path))?;
        self.usage().subtract(address.account(), address.container(), before);
        self.usage().add(address.account(), address.container(), upload.length());
        Ok(())
    }

    /// Puts the blocks together as the blob, in the order of the list.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`] where a block is not among the uploaded ones.
    pub fn commit_blocks(
        &self,
        address: &BlobAddress,
        blocks: &[BlockRef],
        headers: Headers,
        condition: &Condition,
    ) -> Result<BlobProperties> {
        if blocks.len() > BLOCKS_MAX {
            return Err(Error::TooLarge {
                what: "the number of blocks",
                name: address.to_string(),
                max: BLOCKS_MAX as u64,
            });
        }
        let folder = self.blocks_folder(address)?;
        let mut upload = Upload::create(self.temporary_path(), u64::MAX, Some(self.charge(address)?))?;
        let mut taken = BTreeSet::new();
        for block in blocks {
            let unknown = || Error::UnknownBlock { name: address.to_string(), block: block.id.clone() };
            let path = folder.join(block_file(&block.id)?);
            match block.kind {
                BlockKind::Committed => return Err(unknown()),
                BlockKind::Latest | BlockKind::Uncommitted => {}
            }
            // The first time it moves from among the blocks into the blob.
            let is_counted = taken.insert(&block.id);
            upload.copy_from(&path, is_counted).map_err(|error| match error {
                Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => unknown(),
                other => other,
            })?;
        }
        let properties = self.put(address, upload, headers, condition)?;
        self.forget_folder(address.account(), address.container(), &folder)?;
        Ok(properties)
    }

    /// Forgets the blocks of this container that are in no blob yet, for blobs whose names `is_over` picks. Says for how
    /// many blobs.
    pub fn forget_blocks(
        &self,
        account: &str,
        container: &str,
        is_over: impl Fn(&str) -> bool,
    ) -> Result<usize> {
        let mut forgotten = 0;
        for folder in self.block_folders(account, container)? {
            // Those of earlier releases have no name, and go with their age.
            let Ok(name) = fs::read_to_string(folder.join(NAME_FILE)) else { continue };
            if is_over(&name) {
                self.forget_folder(account, container, &folder)?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }

    /// Names of this container's blobs that have blocks which are in no blob yet.
    pub fn unfinished(&self, account: &str, container: &str) -> Result<Vec<String>> {
        let folders = self.block_folders(account, container)?;
        Ok(folders.iter().filter_map(|folder| fs::read_to_string(folder.join(NAME_FILE)).ok()).collect())
    }

    fn block_folders(&self, account: &str, container: &str) -> Result<Vec<PathBuf>> {
        let all = self.container_path(account, container)?.join("@blocks");
        match fs::read_dir(&all) {
            Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).collect()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(Error::io("list", &all)(e)),
        }
    }

    fn forget_folder(&self, account: &str, container: &str, folder: &Path) -> Result<()> {
        let name = fs::symlink_metadata(folder.join(NAME_FILE)).map_or(0, |meta| meta.len());
        let bytes = if self.usage().counts() { tree_bytes(folder)?.saturating_sub(name) } else { 0 };
        match fs::remove_dir_all(folder) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("remove", folder)(e)),
            _ => {}
        }
        self.usage().subtract(account, container, bytes);
        Ok(())
    }

    /// Forgets blocks of this container that were uploaded a week ago and never put together. Says
    /// for how many blobs.
    pub fn sweep_blocks(&self, account: &str, container: &str, now_ms: i64) -> Result<usize> {
        let mut swept = 0;
        for folder in self.block_folders(account, container)? {
            let touched_s = fs::symlink_metadata(&folder).map_or(i64::MAX, |meta| meta.mtime());
            if now_ms.saturating_sub(touched_s.saturating_mul(1_000)) > BLOCK_AGE_MS_MAX {
                self.forget_folder(account, container, &folder)?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    fn blocks_folder(&self, address: &BlobAddress) -> Result<PathBuf> {
        let hash = Sha256::digest(address.name().as_bytes());
        let container = self.container_path(address.account(), address.container())?;
        Ok(container.join("@blocks").join(hex(&hash[..20])))
    }
}

fn block_file(id: &str) -> Result<String> {
    let bytes = STANDARD.decode(id).ok().filter(|bytes| (1..=BLOCK_ID_BYTES_MAX).contains(&bytes.len()));
    bytes.map(|bytes| hex(&bytes)).ok_or_else(|| Error::BadInput {
        what: "the block id",
        text: id.chars().take(80).collect(),
        why: "it must be base64 of 1 to 64 bytes",
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
}
