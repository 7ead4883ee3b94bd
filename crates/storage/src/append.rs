//! Growing a blob at its end, for logs. Appends are not forced to disk one by one: whoever appends
//! keeps the bytes until it is sure, and sends them again.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::MutexGuard;

use crate::properties::OPEN_FLAGS;
use crate::store::refuse_links;
use crate::{BlobAddress, Error, Result, Store};

/// A blob in the hands of one who adds to it: nobody else writes to it meanwhile.
pub(crate) struct Growing<'a> {
    store: &'a Store,
    address: &'a BlobAddress,
    path: PathBuf,
    /// There is none before the first byte.
    file: Option<File>,
    length: u64,
    _turn: MutexGuard<'a, ()>,
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
        refuse_links(&self.container_path(address.account(), address.container())?, &path)?;
        let opened = OpenOptions::new().read(true).write(true).custom_flags(OPEN_FLAGS).open(&path);
        let file = match opened {
            Ok(file) => Some(file),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => return Err(Error::Link { path }),
            Err(e) => return Err(Error::io("write", &path)(e)),
        };
        let length = match &file {
            Some(file) => file.metadata().map_err(Error::io("read", &path))?.len(),
            None => 0,
        };
        Ok(Growing { store: self, address, path, file, length, _turn: turn })
    }
}

impl Growing<'_> {
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn last_byte(&self) -> Result<Option<u8>> {
        let (Some(file), Some(at)) = (&self.file, self.length.checked_sub(1)) else { return Ok(None) };
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).map_err(Error::io("read", &self.path))?;
        Ok(Some(byte[0]))
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
        let file = match self.file.take() {
            Some(file) => file,
            None => self.create()?,
        };
        if let Err(e) = file.write_all_at(new, self.length) {
            // Half of it may be there: away with it, so that the error says the truth.
            let _ = file.set_len(self.length);
            return Err(Error::io("append to", &self.path)(e));
        }
        self.file = Some(file);
        self.length += new.len() as u64;
        self.store.followed().announce(self.address, self.length);
        Ok(self.length)
    }

    fn create(&self) -> Result<File> {
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
