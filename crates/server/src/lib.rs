//! The server as a whole: the data folder, configuration, TLS, and the wiring of the rooms. Nothing is decided here.

mod config;
mod data;
mod housekeeping;
mod limits;
mod listen;
pub mod log;
mod otlp;
mod outgoing;
mod paced;
mod rate;
mod run;
mod seal;
mod tls;
mod visitors;
mod watch;
mod webhook;
mod wire;

pub use config::{
    AlertRules, CapacityRule, Config, ConfigError, ContainerRule, DiskRules, DiskSpace, IsolationRule,
    MetricsRule,
};
pub use data::{ClientFile, DataFolder, Installation, ServerFile};
pub use run::{DEFAULT_GROUP, DEFAULT_WORKSPACE, ServerError, ServerOptions, run};
pub use seal::ledger_seal;
