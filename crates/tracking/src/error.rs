//! What can go wrong, told apart as clients tell it apart.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be read or is not allowed. All problems at once.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Exists(String),
    /// A limit of `limits.rs`.
    #[error("{0}")]
    Limit(String),
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Database { action: &'static str, path: PathBuf, source: rusqlite::Error },
    /// As it comes from a statement; [`Error::at`] says where.
    #[error("the tracking database: {0}")]
    Sql(#[from] rusqlite::Error),
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

    /// Says what was tried, and on which file.
    pub(crate) fn at(self, action: &'static str, path: &Path) -> Self {
        match self {
            Self::Sql(source) => Self::Database { action, path: path.to_owned(), source },
            other => other,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// Whether the disk has no room left.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(
            self,
            Self::Database { source: rusqlite::Error::SqliteFailure(failure, _), .. }
                if failure.code == rusqlite::ErrorCode::DiskFull
        )
    }
}
