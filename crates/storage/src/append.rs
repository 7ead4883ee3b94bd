//! Growing a blob at its end, for logs. Appends are not forced to disk one by one: whoever appends
//! keeps the bytes until it is sure, and sends them again.
//!
//! A blob that begins with an append is packed with others while it is small, and gets a file of its own
//! when it outgrows that. One that has a file keeps growing there.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::MutexGuard;

use crate::properties::OPEN_FLAGS;
use crate::store::is_folder;
use crate::{BlobAddress, Error, Result, Store};

/// A blob in the hands of one who adds to it: nobody else writes to it meanwhile.
pub(crate) struct Growing<'a> {
    store: &'a Store,
    address: &'a BlobAddress,
    path: PathBuf,
    bytes: Bytes,
    length: u64,
    _turn: MutexGuard<'a, ()>,
}

/// Where the bytes so far are.
enum Bytes {
    /// There are none yet.
    Nowhere,
    Packed,
    File(File),
}

impl Store {
    /// Makes the bytes from `offset` on be `bytes`, as far as they are not there yet, and says how
    /// long the blob is then. The blob is made if it is not there.
    ///
    /// # Guarantees
    /// Sending the same bytes again changes nothing; what is there is never changed.
    /// # Errors
    /// [`Error::Gap`] with the present length where bytes before `offset` are missing.
    pub fn append_at(&self, address: &BlobAddress, offset: u64, bytes: &[u8]) -> Result<u64> {
        self.grow(address)?.append_at(offset, bytes)
    }

    /// Takes this writer's turn at the blob, which need not be there yet.
    pub(crate) fn grow<'a>(&'a self, address: &'a BlobAddress) -> Result<Growing<'a>> {
        let path = self.blob_path(address)?;
        let turn = self.turn(address);
        let packed_length = self.packed().length(address)?;
        let file = self.open_file(address, &path, OpenOptions::new().read(true).write(true))?;
        let (bytes, length) = match (file, packed_length) {
            (Some(file), row) => {
                if row.is_some() {
                    self.forget_row(address);
                }
                let length = file.metadata().map_err(Error::io("read", &path))?.len();
                (Bytes::File(file), length)
            }
            (None, Some(length)) => (Bytes::Packed, length),
            (None, None) => (Bytes::Nowhere, 0),
        };
        Ok(Growing { store: self, address, path, bytes, length, _turn: turn })
    }
}

impl Growing<'_> {
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn last_byte(&self) -> Result<Option<u8>> {
        match (&self.bytes, self.length.checked_sub(1)) {
            (Bytes::Nowhere, _) | (_, None) => Ok(None),
            (Bytes::Packed, Some(_)) => self.store.packed().last_byte(self.address),
            (Bytes::File(file), Some(at)) => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).map_err(Error::io("read", &self.path))?;
                Ok(Some(byte[0]))
            }
        }
    }

    /// As [`Store::append_at`].
    pub fn append_at(&mut self, offset: u64, bytes: &[u8]) -> Result<u64> {
        let Some(known) = self.length.checked_sub(offset) else {
            let name = self.address.to_string();
            return Err(Error::Gap { name, have_bytes: self.length, offered_at: offset });
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let Some(new) = bytes.get(known..).filter(|new| !new.is_empty()) else {
            return Ok(self.length);
        };
        self.add(new)?;
        self.length += new.len() as u64;
        self.store.usage().add(self.address.account(), self.address.container(), new.len() as u64);
        self.store.followed().announce(self.address, self.length);
        Ok(self.length)
    }

    fn add(&mut self, new: &[u8]) -> Result<()> {
        let small = self.length + new.len() as u64 <= self.store.packed_bytes_max();
        match &self.bytes {
            Bytes::File(file) => self.write(file, new),
            Bytes::Packed if small => self.pack(|store| store.packed().grow(self.address, new)),
            Bytes::Nowhere if small => {
                let container =
                    self.store.container_path(self.address.account(), self.address.container())?;
                self.pack(|store| store.packed().insert(self.address, new, || is_folder(&container)))?;
                self.bytes = Bytes::Packed;
                Ok(())
            }
            Bytes::Packed => {
                self.store.move_out(self.address, &self.path, new)?;
                self.bytes = Bytes::File(self.file()?);
                Ok(())
            }
            Bytes::Nowhere => {
                let file = self.file()?;
                self.write(&file, new)?;
                self.bytes = Bytes::File(file);
                Ok(())
            }
        }
    }

    /// Writes to the packed blobs. That it does not come about means that the container is gone.
    fn pack(&self, write: impl FnOnce(&Store) -> Result<bool>) -> Result<()> {
        if write(self.store)? { Ok(()) } else { Err(Error::no_container(self.address)) }
    }

    fn write(&self, file: &File, new: &[u8]) -> Result<()> {
        file.write_all_at(new, self.length).map_err(|e| {
            // Half of it may be there: away with it, so that the error says the truth.
            let _ = file.set_len(self.length);
            Error::io("append to", &self.path)(e)
        })
    }

    /// The blob's own file, made if it is not there.
    fn file(&self) -> Result<File> {
        self.store.in_folder_of(self.address, &self.path, || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OPEN_FLAGS)
                .open(&self.path)
                .map_err(Error::io("write", &self.path))
        })
    }
}
