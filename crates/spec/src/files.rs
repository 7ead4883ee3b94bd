//! Where the files come from that a specification names: the caller's disk, or a test's table.

use std::path::Path;

/// What a request builder may see of the disk.
pub trait Files {
    /// The text of a file.
    fn read(&self, path: &Path) -> std::io::Result<String>;

    /// Whether something is there to upload.
    fn exists(&self, path: &Path) -> bool;
}
