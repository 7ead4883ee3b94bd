//! The server as a whole: the data folder, configuration, TLS, and the wiring of the rooms. Nothing is decided here.

mod config;
mod data;
mod housekeeping;
mod listen;
pub mod log;
mod otlp;
mod outgoing;
mod rate;
mod run;
mod seal;
mod tls;
mod watch;
mod webhook;

pub use config::{AlertRules, CapacityRule, Config, ConfigError, ContainerRule, IsolationRule, MetricsRule};
pub use data::{ClientFile, DataFolder, Installation, ServerFile};
pub use run::{DEFAULT_GROUP, DEFAULT_WORKSPACE, ServerError, ServerOptions, run};
pub use seal::ledger_seal;
