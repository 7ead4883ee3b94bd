//! The server as a whole: the data folder, configuration, TLS, and the wiring of the rooms. Nothing is decided here.

mod config;
mod data;
mod housekeeping;
mod listen;
mod rate;
mod run;
mod tls;

pub use config::{CapacityRule, Config, ConfigError, IsolationRule};
pub use data::{ClientFile, DataFolder, Installation, ServerFile};
pub use run::{DEFAULT_GROUP, DEFAULT_WORKSPACE, ServerError, ServerOptions, run};
