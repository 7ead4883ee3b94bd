//! The node: runs attempts, ships logs and outputs.

mod config;

pub use config::NodeConfig;
