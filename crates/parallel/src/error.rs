//! What can go wrong with the table of mini-batches.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Database { action: &'static str, path: PathBuf, source: rusqlite::Error },
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error(
        "{path} has schema version {found}, and this release knows {known}; start the newer Neap that wrote it",
        path = path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
}

impl Error {
    pub(crate) fn database(action: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Database { action, path, source }
    }
}
