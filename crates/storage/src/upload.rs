//! Content on its way in: a temporary file that becomes a blob or a block, or disappears. However
//! large it is, it is never held in memory.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use crate::usage::Charge;
use crate::{Error, Result};

/// An upload in progress. Dropping it forgets what was written.
pub struct Upload {
    file: File,
    path: PathBuf,
    md5: Md5,
    length: u64,
    length_max: u64,
    /// Absent: bytes that the account has already, in another form.
    charge: Option<Charge>,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload")
            .field("path", &self.path)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Upload {
    pub(crate) fn create(path: PathBuf, length_max: u64, charge: Option<Charge>) -> Result<Self> {
        let file = File::create_new(&path).map_err(Error::io("make the temporary file", &path))?;
        Ok(Self { file, path, md5: Md5::new(), length: 0, length_max, charge })
    }

    /// Adds bytes. After an error the upload can only be dropped.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.length = self.length.saturating_add(bytes.len() as u64);
        if self.length > self.length_max {
            return Err(Error::TooLarge {
                what: "the content",
                name: "this upload".to_owned(),
                max: self.length_max,
            });
        }
        if let Some(charge) = &mut self.charge {
            charge.take(bytes.len() as u64)?;
        }
        self.md5.update(bytes);
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))
    }

    /// Adds a whole file, by the kernel's own copying where it can.
    /// `is_counted`: the account has room for these bytes already.
    pub(crate) fn copy_from(&mut self, path: &Path, is_counted: bool) -> Result<()> {
        let mut source = File::open(path).map_err(Error::io("read", path))?;
        let length = source.metadata().map_err(Error::io("read", path))?.len();
        if let Some(charge) = &mut self.charge {
            if is_counted { charge.write(length)? } else { charge.take(length)? }
        }
        let copied = std::io::copy(&mut source, &mut self.file).map_err(Error::io("write", &self.path))?;
        self.length = self.length.saturating_add(copied);
        Ok(())
    }

    /// Bytes so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// MD5 of what was written so far.
    #[must_use]
    pub fn md5(&self) -> [u8; 16] {
        self.md5.clone().finalize().into()
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // It was renamed into place, or it is rubbish; what stays after a crash goes at the next start.
        let _ = fs::remove_file(&self.path);
    }
}
