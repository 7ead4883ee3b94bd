//! Files to and from the server's blobs: snapshots of folders, uploads, downloads. Nothing here decides what to move.

mod blob;
mod code;
mod datastore;
mod ignore;
mod listing;
mod snapshot;

pub use code::{find_code, upload_code};
pub use datastore::{ARTIFACT_STORE, BLOB_STORE, Datastore};
pub use snapshot::Snapshot;
