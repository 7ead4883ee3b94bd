//! Where a blob's bytes are: in a file of their own, or packed with others (`packed.rs`). From outside
//! nobody can tell.
//!
//! **A file wins over a row of the same name, always.** That is enough to be right after a crash at any
//! moment, because a file gets its name only when it is whole and on disk: [`Store::put`] and
//! [`Store::move_out`] put it in place first and remove the row after that. Of the two that a crash in
//! between leaves, the file is the newer; the row goes with the next append or with the blob.
//!
//! A reader takes no turn. It asks for the row first and for the file then, so a blob that is on its way
//! from the one to the other is seen in one of them.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::MemfdFlags;

use crate::names::properties_path;
use crate::packed::PackedBlob;
use crate::properties::{OPEN_FLAGS, gather};
use crate::store::{is_folder, refuse_links, sync_folder};
use crate::{BlobAddress, BlobProperties, Error, OpenBlob, Result, Store, Upload};

/// A blob that is there; `P` is as much of a packed one as was asked for.
#[derive(Debug)]
pub(crate) enum Found<P> {
    File(OpenBlob),
    Packed(P),
}

impl Found<BlobProperties> {
    pub fn properties(&self) -> &BlobProperties {
        match self {
            Self::File(open) => &open.properties,
            Self::Packed(properties) => properties,
        }
    }
}

impl Store {
    /// What is known of a blob, if it is there.
    pub(crate) fn find(&self, address: &BlobAddress, path: &Path) -> Result<Option<Found<BlobProperties>>> {
        let row = self.packed().properties(address)?;
        self.prefer_file(address, path, row)
    }

    /// The same with the bytes.
    pub(crate) fn find_whole(&self, address: &BlobAddress, path: &Path) -> Result<Option<Found<PackedBlob>>> {
        let row = self.packed().blob(address)?;
        self.prefer_file(address, path, row)
    }

    fn prefer_file<P>(&self, address: &BlobAddress, path: &Path, row: Option<P>) -> Result<Option<Found<P>>> {
        let file = self.open_file(address, path, OpenOptions::new().read(true))?;
        match (file, row) {
            (Some(file), _) => {
                let meta = file.metadata().map_err(Error::io("read", path))?;
                let properties = gather(&meta, &properties_path(path));
                Ok(Some(Found::File(OpenBlob { file, properties })))
            }
            (None, Some(row)) => Ok(Some(Found::Packed(row))),
            (None, None) if is_folder(&self.container_path(address.account(), address.container())?) => {
                Ok(None)
            }
            (None, None) => Err(Error::no_container(address)),
        }
    }

    /// The blob's own file, if it has one: one call of the system where it has none.
    pub(crate) fn open_file(
        &self,
        address: &BlobAddress,
        path: &Path,
        access: &mut OpenOptions,
    ) -> Result<Option<File>> {
        match access.custom_flags(OPEN_FLAGS).open(path) {
            Ok(file) => {
                refuse_links(&self.container_path(address.account(), address.container())?, path)?;
                Ok(Some(file))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => Err(Error::Link { path: path.to_owned() }),
            Err(e) => Err(Error::io("open", path)(e)),
        }
    }

    /// Gives a packed blob a file of its own, with `more` at its end. The caller has the turn.
    pub(crate) fn move_out(&self, address: &BlobAddress, path: &Path, more: &[u8]) -> Result<()> {
        let packed = self.packed().blob(address)?.ok_or_else(|| Error::no_container(address))?;
        let mut upload = Upload::create(self.temporary_path(), u64::MAX, None)?;
        upload.write(&packed.body)?;
        upload.write(more)?;
        upload.file().sync_data().map_err(Error::io("write", upload.path()))?;
        self.in_folder_of(address, path, || {
            // A crash in the middle of an earlier delete may have left one; it is not this blob's.
            let _ = fs::remove_file(properties_path(path));
            fs::rename(upload.path(), path).map_err(Error::io("write", path))
        })?;
        sync_folder(path)?;
        self.forget_row(address);
        Ok(())
    }

    /// Removes the row of a blob that has a file now.
    pub(crate) fn forget_row(&self, address: &BlobAddress) {
        // Without harm if it fails: nobody sees a row behind a file, and it goes with the blob at the latest.
        let _ = self.packed().remove(address);
    }
}

impl PackedBlob {
    /// The bytes as a file in memory, which reads like any other.
    pub fn open(self) -> Result<OpenBlob> {
        let made = rustix::fs::memfd_create("packed-blob", MemfdFlags::CLOEXEC).map(File::from);
        let file = made
            .map_err(std::io::Error::from)
            .and_then(|file| file.write_all_at(&self.body, 0).map(|()| file))
            .map_err(Error::io("hold in memory", Path::new("a packed blob")))?;
        Ok(OpenBlob { file, properties: self.properties })
    }
}

#[cfg(test)]
mod tests;
