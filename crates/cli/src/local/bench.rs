//! `neap bench`: measures this installation.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  neap bench noop --jobs 1000 --nodes 2 --cpus 2 -o json\n  neap bench latency --jobs 200"
)]
pub enum BenchCommand {
    /// No-op jobs per second, from submit to completed
    Noop(NoopArgs),
    /// Submit to running on a warm node
    Latency(SampleArgs),
    /// Zero nodes: submit to the first log line
    Cold(SampleArgs),
    /// Durable submits per second
    Submit(SampleArgs),
    /// Kill to serving again
    Recovery(RecoveryArgs),
}

#[derive(Debug, Args)]
pub struct NoopArgs {
    /// How many jobs
    #[arg(long, default_value_t = 1000)]
    pub jobs: u32,
    /// How many nodes
    #[arg(long, default_value_t = 1)]
    pub nodes: u32,
    /// How many jobs run side by side on a node
    #[arg(long, default_value_t = 1)]
    pub cpus: u32,
}

#[derive(Debug, Args)]
pub struct SampleArgs {
    /// How many jobs
    #[arg(long, default_value_t = 100)]
    pub jobs: u32,
}

#[derive(Debug, Args)]
pub struct RecoveryArgs {
    /// How many events the ledger holds
    #[arg(long, default_value_t = 1_000_000)]
    pub events: u64,
}

pub fn run(_command: BenchCommand, _global: &Global, _terminal: &Terminal) -> Outcome<ExitCode> {
    Err(Failure::failed("not built into this binary"))
}
