//! Who makes nodes. A provider is three calls, each idempotent and about whole lists where the engine allows:
//! create, remove, list; and a channel on which it says that a node ended by itself, or is going to be taken back.
//!
//! Providers never decide how many nodes there are, and never speak with agents.

mod eviction;
mod gpus;
mod local;
mod simulated;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use neap_core::{Capacity, NodeId};

pub use eviction::Eviction;
pub use local::{LocalProvider, LocalSettings};
pub use neap_agent::{EngineKind, EngineSettings};
pub use simulated::SimulatedProvider;

/// What a node is made from.
#[derive(Clone, Debug)]
pub struct NodeOrder {
    pub node: NodeId,
    /// What its size says; a provider gives this or what it has, whichever is less.
    pub nominal: Capacity,
    /// Good for one join.
    pub join_token: String,
    /// It may be taken back.
    pub low_priority: bool,
}

/// A node that carries this installation's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub node: NodeId,
    /// Its agent runs, as far as the provider can see.
    pub alive: bool,
}

/// What a provider says unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The node ended by itself, and the provider has made sure that nothing of it runs.
    Ended { node: NodeId, reason: Arc<str> },
    /// The node is going to be taken away after the notice. What is on it may be saved until then.
    TakenBack { node: NodeId, notice_ms: u64, reason: Arc<str> },
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{doing} for node n-{node}: {source}")]
    Files { doing: &'static str, node: NodeId, source: std::io::Error },
    #[error("node n-{node}: {source}")]
    Sandbox { node: NodeId, source: neap_sandbox::Error },
    #[error("listing the nodes in {folder}: {source}")]
    List { folder: String, source: std::io::Error },
    #[error("node n-{node} needs {needed} of this machine's GPUs and {free} are free")]
    Gpus { node: NodeId, needed: u32, free: usize },
    #[error("the provider was interrupted")]
    Interrupted,
}

/// A boxed future, so that providers can stand behind `dyn`.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Makes the node, or finds that it is there. Returns when its agent is on its way.
    fn create(&self, order: NodeOrder) -> Answer<'_, ()>;

    /// Takes the node away. On return it is certain that nothing of it runs. A node that is not there is no error.
    fn remove(&self, node: NodeId, reason: Arc<str>) -> Answer<'_, ()>;

    /// Every node of this installation, and watches those that live.
    fn list(&self) -> Answer<'_, Vec<Found>>;
}
