//! `neap agent`: one node. Started by the provider, not by people.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::terminal::Terminal;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The folder of this node
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

pub fn run(args: &AgentArgs, _global: &Global, _terminal: &Terminal) -> Outcome<ExitCode> {
    neap_agent::main(&args.dir)
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| Failure::failed(error.to_string()))
}
