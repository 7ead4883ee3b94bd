//! Files of the identity folder: read whole, written whole. A file is either the old one or the new
//! one, never half of either, and a private one is never readable by others, not even for a moment.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::{Error, KEY_BYTES, Result, random_bytes};

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}

/// Makes the folder with mode 0700 if it is not there.
pub(crate) fn make_private_folder(path: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make the folder", path))
}

/// Writes a file that only its owner may read (0600), atomically and durably.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, 0o600)
}

/// Writes a file that everyone may read (0644), atomically and durably.
pub fn write_public(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, bytes, 0o644)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let tag = u64::from_le_bytes(random_bytes::<8>()?);
    let temporary = folder.join(format!(".{name}.{tag:016x}.new"));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The rename itself must survive a power cut.
        File::open(folder)?.sync_all()
    })();
    written.map_err(|source| {
        // Best effort: the write already failed and that is what is reported.
        let _ = fs::remove_file(&temporary);
        failed("write", path)(source)
    })
}

/// The whole file, or `None` where there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|mut f| f.read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("read", path)(e)),
    }
}

/// The whole file as text, or `None` where there is none.
pub(crate) fn read_text(path: &Path, expected: &'static str) -> Result<Option<String>> {
    match read(path)? {
        None => Ok(None),
        Some(bytes) => {
            String::from_utf8(bytes).map(Some).map_err(|_| damaged(path, expected, "it is not text"))
        }
    }
}

// It is handed errors at the end of their way.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn damaged(path: &Path, expected: &'static str, detail: impl ToString) -> Error {
    Error::Damaged { path: path.to_owned(), expected, detail: detail.to_string() }
}

/// A key of 32 random bytes kept in a file (0600): read if it is there, made if it is not.
pub fn open_or_create_key(path: &Path) -> Result<[u8; KEY_BYTES]> {
    if let Some(bytes) = read(path)? {
        return bytes
            .as_slice()
            .try_into()
            .map_err(|_| damaged(path, "a key of 32 bytes", format!("it has {} bytes", bytes.len())));
    }
    if let Some(folder) = path.parent() {
        make_private_folder(folder)?;
    }
    let key = random_bytes::<KEY_BYTES>()?;
    write_private(path, &key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_private_and_a_cut_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/some.key");
        let first = open_or_create_key(&path).unwrap();
        assert_eq!(open_or_create_key(&path).unwrap(), first);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary file stays behind");
        fs::write(&path, b"short").unwrap();
        assert!(matches!(open_or_create_key(&path), Err(Error::Damaged { .. })));
    }
}
