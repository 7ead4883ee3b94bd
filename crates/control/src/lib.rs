//! The one writer and what stands around it.
//!
//! Four parts are sans-IO, and are what the simulator runs: [`machine`] turns a batch of inputs into events, replies
//! and effects; [`conversation`] is the server's side of the talk with one agent; [`roster`] is who is connected and
//! [`leases`] who was heard of when; [`errands`] and [`repair`] are what the provider is asked. Their drivers are
//! [`writer`] (one thread: decide, plan, commit, publish, answer), [`sessions`] and [`dispatch`]. [`handle`] is what
//! faces hold.
//!
//! Nothing here decides anything: what may and what should happen is said by `neap_core`.

mod addresses;
pub mod alerts;
pub mod clock;
pub mod conversation;
mod dispatch;
pub mod errands;
mod handle;
pub mod instruments;
pub mod leases;
pub mod limits;
mod machine;
mod measured;
pub mod metrics;
mod news;
pub mod node_gpus;
mod observe;
mod orders;
mod past;
mod registrations;
pub mod repair;
mod roster;
mod sealing;
mod secrets;
pub mod services;
mod session;
mod sessions;
mod start;
pub mod trace;
mod writer;

pub use handle::{Accepted, Handle, Shutdown};
pub use machine::{Input, Machine, Step};
pub use metrics::Metrics;
pub use neap_protocol::{
    CHECKPOINT_RECORD, CHECKPOINTS, CheckpointRecord, ServiceState, ServiceStatus, checkpoint_of,
    checkpoints_of,
};
pub use orders::{AttemptOrders, OrderSettings, TrackingOrders, service_path};
pub use roster::Roster;
pub use sealing::LedgerVault;
pub use secrets::{SecretError, Secrets};
pub use sessions::{Gate, Sessions};
pub use start::{Control, ControlParts, StartError, open_ledger, start};
