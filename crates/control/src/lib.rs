//! The one writer and what stands around it.
//!
//! [`machine`] is the sans-IO heart: a batch of inputs becomes events, replies and effects. [`writer`] drives it on
//! one thread: decide, plan, commit, publish, answer. [`handle`] is what faces hold. [`sessions`] speak with agents,
//! [`leases`] count who was heard of when, [`dispatch`] hands effects to providers and sessions.
//!
//! Nothing here decides anything: what may and what should happen is said by `neap_core`.

pub mod clock;
mod dispatch;
mod handle;
mod leases;
pub mod limits;
mod machine;
mod orders;
mod session;
mod sessions;
mod start;
mod writer;

pub use handle::{Accepted, Handle, Shutdown};
pub use machine::{Input, Machine, Step};
pub use orders::{AttemptOrders, OrderSettings};
pub use sessions::{Gate, Sessions};
pub use start::{Control, ControlParts, StartError, open_ledger, start};
