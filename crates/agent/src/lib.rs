//! The agent: what lives on a node. It dials the control plane, runs attempts, ships their logs and outputs, and
//! ends itself and them when its lease does.
//!
//! `session` decides and does nothing; `driver` does and decides nothing; `attempt` is one attempt from its
//! folder to its last upload. The agent keeps no state that outlives it: its death is the node's death.

mod attempt;
mod blobs;
mod boot_log;
mod checkpoint;
mod checkpoint_record;
mod command;
mod config;
mod connection;
mod container;
mod data;
mod disk;
mod distributed;
mod driver;
mod environment;
mod finalize;
mod folder;
mod gpus;
pub mod launcher;
mod light_environment;
mod limits;
mod mltable;
mod network;
mod node;
mod prepare;
mod python;
#[allow(dead_code)] // Until attempts have a network of their own.
mod relay;
mod run_variables;
pub mod services;
pub mod session;
pub mod simulated;
mod tree;
mod trust;
mod url_pass;
mod warning;

use std::path::Path;

pub use config::{NODE_FILE, NodeConfig};
pub use environment::{
    CONTAINERS_FILE, EngineKind, EngineSettings, drive, remove_containers_of, remove_orphaned_containers,
};

/// What can end an agent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{doing} {path}: {source}", path = path.display())]
    File { doing: &'static str, path: std::path::PathBuf, source: std::io::Error },
    #[error("{path} is not a node's configuration: {source}; the provider that made this node must write it", path = path.display())]
    Config { path: std::path::PathBuf, source: serde_json::Error },
    #[error(transparent)]
    Sandbox(#[from] neap_sandbox::Error),
    #[error("making the node's key: {0}")]
    Key(#[from] neap_identity::Error),
    #[error("TLS: {0}; check that ca_pem_path names the server's CA")]
    Tls(String),
    #[error("starting the runtime: {0}")]
    Runtime(std::io::Error),
    #[error("the spawner died; the node cannot run attempts any more")]
    SpawnerLost,
}

/// Runs the agent of the node whose folder this is, until it is told to leave or its lease ends.
///
/// Why it ended is in the boot log (stderr). Call it before the process has any other thread: it forks the spawner first of all.
pub fn main(dir: &Path) -> Result<(), Error> {
    // Attempts read what the agent writes for them; what is private says so itself.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    neap_sandbox::forbid_core_dumps();
    let config = NodeConfig::read(dir)?;
    let network = network::set_up(&config);
    let spawner = neap_sandbox::Spawner::start(&neap_sandbox::SpawnerConfig {
        node_dir: dir.to_owned(),
        installation: config.installation.clone(),
        node: config.node,
        visible: config.visible_paths.clone(),
        shared: config.shared_paths.clone(),
        hide: config.hide_paths.clone(),
        network: network.place.clone(),
        listen: network.relay.listeners(),
    })?;
    if !config.isolation_off {
        spawner.prepare()?;
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, driver::run(dir, config, spawner, network)).map(|_| ())
}
