//! The faces as clients meet them, on a real control plane and ledger.

mod batch;
mod computes;
mod jobs;
mod world;
