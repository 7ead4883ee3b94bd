//! Mutation testing of the pure core: small faults are put into `decide`, `apply` and `plan`, one at a time, and the
//! tests must notice.
//!
//! Building once per fault would take hours. All faults are therefore woven into one copy of the workspace, each
//! behind a question, `if crate::mutant::is(17) { mutated } else { original }`; the copy is built once, and the
//! environment variable `NEAP_MUTANT` says which fault is there while a test program runs. The checkout itself is
//! never changed.
//!
//! [`sites`] finds what can be mutated, [`weave`] writes it into the copy that [`tree`] keeps, [`compile`] builds it
//! and leaves out what rustc refuses, [`sample`] draws, [`suites`] runs the tests, [`report`] tells.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that people run in a terminal")]

mod compile;
mod operators;
mod planted;
mod report;
mod run;
mod sample;
mod sites;
mod suites;
mod tree;
mod weave;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot run {program}: {source}")]
    Program { program: String, source: std::io::Error },
    #[error("{path}: not read as Rust: {source}", path = path.display())]
    Syntax { path: PathBuf, source: syn::Error },
    #[error("not inside a git checkout of Neap: {0}")]
    Checkout(String),
    #[error("cargo did not build the mutated copy, and no mutant is to blame:\n{0}")]
    Build(String),
    #[error("the tests fail without a mutant, so they can say nothing about one ({0})")]
    Baseline(String),
    #[error("the report cannot be written: {0}")]
    Report(#[from] serde_json::Error),
}

impl Error {
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    fn program(program: &str) -> impl FnOnce(std::io::Error) -> Self {
        let program = program.to_owned();
        move |source| Self::Program { program, source }
    }
}

#[derive(Debug, Parser)]
#[command(about = "Mutation testing of decide, apply and plan")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List every mutant, without building anything.
    List,
    /// Build the mutated copy and run the tests against a sample of its mutants.
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// How many mutants are drawn.
    #[arg(long, default_value_t = 300)]
    pub sample: usize,
    /// What the draw starts from: the same seed draws the same mutants.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only these mutants, by number, instead of a sample.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<u32>,
    /// Mutants under test at a time.
    #[arg(long, default_value_t = 1)]
    pub jobs: usize,
    /// Which tests are run, in this order.
    #[arg(long, value_delimiter = ',', default_value = "core,sim")]
    pub tests: Vec<Suite>,
    /// Simulated worlds per mutant.
    #[arg(long, default_value_t = 500)]
    pub worlds: u64,
    /// Fail if a smaller share than this many per cent is caught.
    #[arg(long, default_value_t = 90)]
    pub at_least: usize,
    /// Build the copy, say what was dropped, and stop there.
    #[arg(long)]
    pub build_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Suite {
    /// The unit tests and properties of neap-core.
    Core,
    /// The simulator: its own tests, the seeds that once failed, and some worlds with faults.
    Sim,
}

impl Suite {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Sim => "sim",
        }
    }

    pub const fn package(self) -> &'static str {
        match self {
            Self::Core => "neap-core",
            Self::Sim => "neap-sim",
        }
    }
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::List => run::list().map(|()| true),
        Command::Run(args) => run::run(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
