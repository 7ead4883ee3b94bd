//! Hyperparameter sweeps, as data: what a sweep asks for, which trials to start and to stop, and how it ends.
//!
//! No I/O, no clock, nothing asynchronous, nothing of other rooms. The caller keeps the trials and their metrics,
//! asks [`next`] whenever something changed, and does what it says. Equal inputs get equal answers.

pub mod limits;

mod algorithm;
mod bayes;
mod duration;
mod gaussian;
mod model;
mod policy;
mod problem;
mod random;
mod read;
mod render;
mod sampler;
mod sobol;
mod space;
mod space_read;
mod step;
mod sweep;

pub use algorithm::{Algorithm, Rule};
pub use policy::{Policy, PolicyKind};
pub use problem::Problem;
pub use render::{environment, print, render, rendered_bytes_max, unknown_places};
pub use space::{Alternative, Distribution, Member, Params, Quantum, Real, Shape, Space};
pub use step::{Outcome, Step, Stop, Trial, TrialState, Verdict, best, next};
pub use sweep::{Goal, Limits, Objective, Sweep};
