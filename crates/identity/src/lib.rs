//! Who may speak to Neap, and how they prove it: the local certificate authority, the token issuer,
//! the identity secret, node join tokens, encrypted documents and password hashes.
//!
//! This crate never opens a socket, never reads a clock (times come in as unix seconds) and never
//! logs. Everything secret that it writes is mode 0600 and replaced atomically.

mod authority;
mod bundle;
mod error;
mod files;
mod join;
mod jwt;
mod limits;
mod node_key;
mod password;
mod random;
mod run_token;
mod secret;
mod vault;

pub use authority::{Authority, NodeCertificate, ServerIdentity, node_of};
pub use bundle::system_roots;
pub use error::Error;
pub use files::{open_or_create_key, write_private, write_public};
pub use join::{JoinClaim, JoinTokens, UsedNonces};
pub use jwt::{Claims, Issuer};
pub use limits::*;
pub use node_key::NodeKey;
pub use password::PasswordHash;
pub use random::{derived_guid, random_bytes, random_guid};
pub use run_token::{RunClaim, RunTokens};
pub use secret::IdentitySecret;
pub use vault::Vault;

/// What a call of this crate gives back.
pub type Result<T> = std::result::Result<T, Error>;
