//! Blobs on local folders, with the names, properties and listing order of Azure Blob Storage; the
//! signed URLs that give access to them; and the one log of a job.
//!
//! This crate reads no clock, and but for [`foreign`] it knows no HTTP and **its calls block**: they are plain calls of
//! the file system and of SQLite, so an asynchronous caller makes them through `spawn_blocking`. To await are
//! [`Follower`], which wakes when a blob grows, and what lies elsewhere, in [`foreign`].

mod append;
mod blocks;
mod error;
mod follow;
pub mod foreign;
pub mod joblog;
mod limits;
mod list;
mod names;
mod packed;
mod place;
mod properties;
mod range;
pub mod sas;
mod store;
mod upload;
mod usage;

pub use blocks::{BlockKind, BlockRef};
pub use error::Error;
pub use follow::Follower;
pub use limits::*;
pub use list::{ListEntry, ListPage, ListQuery};
pub use names::BlobAddress;
pub use properties::{BlobProperties, Headers};
pub use range::ByteRange;
pub use sas::{Bound, Grant, Permission, SasKey, Scope};
pub use store::{Condition, OpenBlob, Store};
pub use upload::Upload;
pub use usage::StoreLimits;

/// What a call of this crate gives back.
pub type Result<T> = std::result::Result<T, Error>;
