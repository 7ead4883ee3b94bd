//! Growing a blob at its end, for logs. Appends are not forced to disk one by one: whoever appends
//! keeps the bytes until it is sure, and sends them again.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use crate::properties::OPEN_FLAGS;
use crate::{BlobAddress, Error, Result, Store};

impl Store {
    /// Makes the bytes from `offset` on be `bytes`, as far as they are not there yet, and says how
    /// long the blob is then. The blob is made if it is not there.
    ///
    /// # Guarantees
    /// Sending the same bytes again changes nothing; what is there is never changed.
    /// # Errors
    /// [`Error::Gap`] with the present length where bytes before `offset` are missing.
    pub fn append_at(&self, address: &BlobAddress, offset: u64, bytes: &[u8]) -> Result<u64> {
        let path = self.blob_path(address)?;
        let _turn = self.turn(address);
        // Also refuses links and missing containers.
        let found = self.find(address, &path)?;
        let length = found.map_or(0, |blob| blob.properties.length);
        if offset > length {
            return Err(Error::Gap { name: address.to_string(), have_bytes: length, offered_at: offset });
        }
        let known = usize::try_from(length - offset).unwrap_or(usize::MAX);
        let Some(new) = bytes.get(known..).filter(|new| !new.is_empty()) else {
            return Ok(length);
        };
        let file = self.in_folder_of(address, &path, || {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(OPEN_FLAGS)
                .open(&path)
                .map_err(Error::io("write", &path))
        })?;
        if let Err(e) = file.write_all_at(new, length) {
            // Half of it may be there: away with it, so that the error says the truth.
            let _ = file.set_len(length);
            return Err(Error::io("append to", &path)(e));
        }
        let length = length + new.len() as u64;
        self.followed().announce(address, length);
        Ok(length)
    }
}
