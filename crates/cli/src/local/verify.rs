//! `neap verify`: checks the ledger of a data folder.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::terminal::Terminal;
use clap::Args;
use std::process::ExitCode;
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap verify\n  neap verify --replay --data /srv/neap")]
pub struct VerifyArgs {
    /// Rebuild the state from the first event and compare
    #[arg(long)]
    pub replay: bool,
}

pub fn run(_args: VerifyArgs, _global: &Global, _terminal: &Terminal) -> Outcome<ExitCode> {
    Err(Failure::failed("not built into this binary"))
}
