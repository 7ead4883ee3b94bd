//! The durable log: every event in order, hash-chained, with the documents beside it and the tables for listing.
//!
//! ```text
//! Batch ──append──▶ one SQLite transaction: documents, events, query tables ──fsync──▶ Head
//! open: newest good snapshot + the events after it, chain checked ──▶ State
//! ```
//!
//! One thread owns the [`Ledger`] and writes; any number read through [`Reader`]. Nothing here decides: it never
//! makes, drops or reorders an event, and it has no clock.

mod chain;
mod charges;
mod check;
mod costs;
mod database;
mod document;
mod error;
mod ledger;
pub mod limits;
mod lock;
mod past;
mod projection;
mod reader;
mod recent;
mod reserve;
mod rows;
mod schema;
mod seal;
mod snapshot;
mod start;
mod upcast;
mod verify;

pub use chain::{Envelope, GENESIS, Hash, Head};
pub use charges::{ChargeKey, ChargeRow, with_open as with_open_charges};
pub use costs::{CostBy, CostQuery, CostRow, add as add_cost};
pub use document::Document;
pub use error::Error;
pub use ledger::{Batch, Entry, Ledger, Opened, Options};
pub use past::{Moment, Reach};
pub use reader::{Archived, JobFilter, Members, Reader, Revision};
pub use reserve::reserve_is_in_use;
pub use rows::{AssetRow, ClusterRow, JobRow, NodeRow};
pub use seal::Seal;
pub use verify::{Finding, Progress, Report, VerifyOptions, verify, verify_with};
