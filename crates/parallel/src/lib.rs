//! Parallel jobs (batch inference), as far as they are not jobs: what the user asks for (`settings`), how files become
//! mini-batches (`batching`), when it is over (`verdict`), which mini-batch is whose and what came of it (`store`), and
//! the small program that runs on the nodes (`driver.py`).
//!
//! This crate knows no HTTP, no clock and no other crate of Neap. **Calls of [`Batches`] block.** When a write has
//! returned, it survives the death of the process; a power cut may take the last moments, which costs doing some
//! mini-batches again.

mod batching;
mod error;
pub mod limits;
mod settings;
mod store;
mod table;
mod verdict;

pub use batching::{FileEntry, batches};
pub use error::Error;
pub use settings::{By, Parallel, Problem, Served, is_file_name};
pub use store::{Batches, Exchange, Fate, Finished, Given, Holder, Report};
pub use table::{APPLIED, not_applied};
pub use verdict::{Counts, Verdict, verdict};

/// What every worker runs.
pub const DRIVER: &str = include_str!("driver.py");

/// What a call of this crate gives back.
pub type Result<T> = std::result::Result<T, Error>;
