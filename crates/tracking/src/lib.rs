//! What runs tell of themselves: experiments, runs, parameters, tags, metrics with their history, and logged models.
//! One SQLite file beside the log; nothing in it decides anything, except where a sweep asks for a metric.
//!
//! This crate knows no HTTP and reads no clock. **Its calls block**: an asynchronous caller makes them through
//! `spawn_blocking`. The one thing to await is [`Tracking::changes`]. When a write has returned, it survives the death
//! of the process; a power cut may take the last moments.

mod database;
mod entities;
mod error;
mod experiments;
pub mod limits;
mod log;
mod metrics;
mod models;
mod runs;
mod schema;
mod search;

pub use database::Tracking;
pub use entities::{
    Batch, DatasetInput, Experiment, Latest, Lifecycle, LoggedModel, Metric, ModelMetric, ModelStatus,
    NewModel, NewRun, Page, Point, Run, RunChange, RunStatus, Seen, View,
};
pub use error::Error;
pub use experiments::{DEFAULT_EXPERIMENT, experiment_id};
pub use search::{Search, parse_filter, parse_order};

/// What a call of this crate gives back.
pub type Result<T> = std::result::Result<T, Error>;
