//! `neap doctor`: what works on this machine, and what does not.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::terminal::Terminal;
use clap::Args;
use std::process::ExitCode;
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap doctor\n  neap doctor -o json")]
pub struct DoctorArgs {}

pub fn run(_args: DoctorArgs, _global: &Global, _terminal: &Terminal) -> Outcome<ExitCode> {
    Err(Failure::failed("not built into this binary"))
}
