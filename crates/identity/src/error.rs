//! What can go wrong with identities, said so that a person knows what to do.

use std::path::PathBuf;

/// An identity operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the identity folder could not be read or written.
    #[error(
        "could not {action} {path}: {source}. Check the owner, the permissions and the free space of that folder"
    )]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is there but does not hold what it should.
    #[error(
        "{path} does not hold {expected}: {detail}. Restore it from a backup, or move it away and start Neap again to have a new one made"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What belongs in it.
        expected: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The cryptographic library refused.
    #[error("could not {action}: {detail}")]
    Crypto {
        /// What was tried.
        action: &'static str,
        /// What the library said.
        detail: String,
    },
    /// A certificate request that cannot be signed.
    #[error(
        "the node's certificate request was refused: {detail}. Start the node again so that it makes a new one"
    )]
    Request {
        /// Why.
        detail: String,
    },
    /// A token that is not accepted.
    #[error("the token was refused: {reason}. Ask for a new one")]
    Token {
        /// Why, without repeating the token.
        reason: &'static str,
    },
    /// A document that does not decrypt.
    #[error(
        "the secret document {name:?} does not decrypt with this installation's key: it was changed, moved from another name, or belongs to another installation"
    )]
    Sealed {
        /// The document's name.
        name: String,
    },
    /// Too many join tokens are in use at once.
    #[error("more than {max} join tokens are in use at once; wait until older ones expire")]
    TooManyNonces {
        /// The limit.
        max: usize,
    },
}

impl Error {
    pub(crate) fn crypto(action: &'static str, detail: impl std::fmt::Display) -> Self {
        Self::Crypto { action, detail: detail.to_string() }
    }
}
