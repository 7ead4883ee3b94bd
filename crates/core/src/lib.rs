//! The pure machine: everything that decides, as values and functions.
//!
//! ```text
//! Command ──decide──▶ Vec<Event> ──apply──▶ State ──plan──▶ Vec<Event> (again applied) ──effects──▶ what to do
//! ```
//!
//! Nothing in this crate calls a clock, a random source, a log or I/O; there are no hash-ordered maps and no
//! floats. Time comes in as [`Millis`] with each command. See `README.md` beside this crate for the flow.

pub mod allowance;
pub mod apply;
pub mod budget;
pub mod catalogue;
pub mod charge;
pub mod cluster;
pub mod command;
pub mod decide;
pub mod documents;
pub mod draft;
pub mod effects;
pub mod event;
pub mod explain;
pub mod family;
pub mod forecast;
mod full_disk;
pub mod gpus;
pub mod health;
pub mod history;
pub mod ids;
pub mod invariants;
pub mod job;
pub mod limits;
pub mod location;
pub mod lock;
pub mod meter;
pub mod mix;
pub mod names;
pub mod node;
pub mod own;
pub mod plan;
pub mod planted;
pub mod problem;
pub mod queue;
pub mod quota;
pub mod retired;
pub mod schedule;
pub mod secrets;
pub mod settings;
pub mod state;
pub mod unblock;
pub mod units;
pub mod usage;
pub mod visible;
pub mod waste;
mod whatif;
pub mod window;

pub use command::Command;
pub use draft::Draft;
pub use event::Event;
pub use ids::{AttemptId, BudgetId, ClusterId, DocHash, JobId, NodeId, ScheduleId, WorkspaceId};
pub use problem::{Code, Problem, Refusal};
pub use state::State;
pub use units::{Capacity, MicroUsd, Millis};
