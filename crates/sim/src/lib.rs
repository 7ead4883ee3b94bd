//! The simulated world: the real machine, conversations, errands, agent session and log format, on one thread, with a
//! seeded clock, network, disk, provider, agents and users that fail in every way there is a name for.
//!
//! ```text
//! seed ─▶ world: step, step, step … every promise checked ─▶ faults stop ─▶ everything comes to rest ─▶ the same again
//! ```
//!
//! The same seed is the same world, to the last millisecond. Nothing here reads a real clock, file or socket. What
//! is simulated and what is checked: `docs/reliability.md`.

mod checks;
mod disk;
mod families;
pub mod faults;
mod governance;
mod network;
mod nodes;
mod provider;
pub mod replay;
mod rng;
mod run;
mod server;
mod users;
mod world;

pub use faults::{Fault, Faults};
pub use neap_core::invariants::Violation;
pub use run::{Outcome, run, shrink};
pub use world::Options;
