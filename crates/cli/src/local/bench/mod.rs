//! `neap bench`: measures an installation from outside, over HTTPS, as a user would.
//!
//! One file per benchmark. Each starts a server of its own in a temporary folder, measures, and takes it down again;
//! nothing here reaches into a running server. `wire` and `crowd` are the clients, `workspace` what they ask for,
//! `samples` and `report` what is made of it.

mod bare;
mod clock;
mod cold;
mod crowd;
mod history;
mod installation;
mod interrupt;
mod latency;
mod machine;
mod noop;
mod recovery;
mod report;
mod samples;
mod stamp;
mod submit;
mod wire;
mod workspace;

use crate::args::Global;
use crate::failure::Outcome;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use installation::{Bench, Subject};
use interrupt::Interrupt;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Each benchmark starts a server of its own in a temporary folder and removes it afterwards; --here \
                  measures the server of --data instead. Without -o a table is written; with -o json one object.\n\n\
                  Examples:\n  neap bench noop --jobs 1000 --nodes 2 --cpus 2 -o json\n  \
                  neap bench noop --isolation off\n  neap bench latency --jobs 200\n  \
                  neap bench submit --clients 1,16 --scratch /srv/disk"
)]
pub enum BenchCommand {
    /// No-op jobs per second, from submit to completed, beside bare process spawns
    Noop(noop::NoopArgs),
    /// Submit to running on a warm node
    Latency(SampleArgs),
    /// Zero nodes: submit to the first log line
    Cold(SampleArgs),
    /// Durable submits per second
    Submit(submit::SubmitArgs),
    /// kill -9 to serving again
    Recovery(recovery::RecoveryArgs),
}

#[derive(Debug, Args)]
pub struct SampleArgs {
    /// How many jobs, one after the other
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    #[command(flatten)]
    pub subject: Subject,
}

pub fn run(command: BenchCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let bench = Bench { global, terminal, interrupt: Interrupt::listen()? };
    let (report, subject) = match command {
        BenchCommand::Noop(args) => (noop::run(&args, &bench)?, args.subject),
        BenchCommand::Latency(args) => (latency::run(&args, &bench)?, args.subject),
        BenchCommand::Cold(args) => (cold::run(&args, &bench)?, args.subject),
        BenchCommand::Submit(args) => (submit::run(&args, &bench)?, args.subject),
        BenchCommand::Recovery(args) => (recovery::run(&args, &bench)?, args.subject),
    };
    if let Some(path) = subject.save {
        report.save(&path)?;
    }
    report.print(global)?;
    Ok(ExitCode::SUCCESS)
}
