//! `neap bench`: measures an installation from outside, over HTTPS, as a user would; and the planner alone.
//!
//! One file per benchmark. Most start a server of their own in a temporary folder, measure, and take it down again;
//! nothing here reaches into a running server. `wire` and `crowd` are the clients, `workspace` what they ask for,
//! `samples`, `table` and `report` what is made of it. `planner`, `kueue` and `trace` need no server: they run the real
//! machine on simulated nodes (`neap_sim::replay`) and hold the watch.

mod bare;
mod clock;
mod cold;
mod crowd;
mod footprint;
mod history;
mod installation;
mod interrupt;
mod kueue;
mod latency;
mod logs;
mod machine;
mod noop;
mod planner;
mod recovery;
mod report;
mod samples;
mod stamp;
mod submit;
mod table;
mod trace;
mod wire;
mod workspace;

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use installation::{Bench, Subject};
use interrupt::Interrupt;
use neap_sim::replay;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Each benchmark starts a server of its own in a temporary folder and removes it afterwards; --here \
                  measures the server of --data instead. planner, kueue and trace run the planner alone, on simulated \
                  nodes in virtual time. Without -o a table is written; with -o json one object.\n\n\
                  Examples:\n  neap bench noop --jobs 1000 --nodes 2 --cpus 2 -o json\n  \
                  neap bench noop --isolation off\n  neap bench latency --jobs 200\n  \
                  neap bench submit --clients 1,16 --scratch /srv/disk\n  \
                  neap bench planner --nodes 1000 --jobs 100000\n  neap bench trace --trace jobs.csv --nodes 64"
)]
pub enum BenchCommand {
    /// No-op jobs per second, from submit to completed, beside bare process spawns
    Noop(noop::NoopArgs),
    /// Submit to running on a warm node
    Latency(SampleArgs),
    /// Zero nodes: submit to the first log line
    Cold(SampleArgs),
    /// A printed line to `neap job stream`; and what a very long log costs
    Logs(logs::LogsArgs),
    /// Durable submits per second
    Submit(submit::SubmitArgs),
    /// kill -9 to serving again
    Recovery(recovery::RecoveryArgs),
    /// Memory, threads and processor time of an idle server, alone and with thousands of connected agents
    Footprint(footprint::FootprintArgs),
    /// The planner alone: a full plan, and one change, by nodes and queued jobs
    Planner(planner::PlannerArgs),
    /// Kueue's published load shapes on the planner, with simulated nodes
    Kueue(kueue::KueueArgs),
    /// A GPU cluster's trace at several policies: waiting time, node-hours, idle share
    Trace(trace::TraceArgs),
}

#[derive(Debug, Args)]
pub struct SampleArgs {
    /// How many jobs, one after the other
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    #[command(flatten)]
    pub subject: Subject,
}

/// For benchmarks without a server.
#[derive(Debug, Args)]
pub struct Keep {
    /// Also write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

/// Why a simulated world did not come to its end.
fn not_replayed(error: &replay::Error) -> Failure {
    Failure::failed(error.to_string())
}

pub fn run(command: BenchCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let bench = Bench { global, terminal, interrupt: Interrupt::listen()? };
    let (report, save) = match command {
        BenchCommand::Noop(args) => (noop::run(&args, &bench)?, args.subject.save),
        BenchCommand::Latency(args) => (latency::run(&args, &bench)?, args.subject.save),
        BenchCommand::Cold(args) => (cold::run(&args, &bench)?, args.subject.save),
        BenchCommand::Logs(args) => (logs::run(&args, &bench)?, args.subject.save),
        BenchCommand::Submit(args) => (submit::run(&args, &bench)?, args.subject.save),
        BenchCommand::Recovery(args) => (recovery::run(&args, &bench)?, args.subject.save),
        BenchCommand::Footprint(args) => (footprint::run(&args, &bench)?, args.subject.save),
        BenchCommand::Planner(args) => (planner::run(&args, &bench)?, args.keep.save),
        BenchCommand::Kueue(args) => (kueue::run(&args, &bench)?, args.keep.save),
        BenchCommand::Trace(args) => (trace::run(&args, &bench)?, args.keep.save),
    };
    if let Some(path) = save {
        report.save(&path)?;
    }
    report.print(global)?;
    Ok(ExitCode::SUCCESS)
}
