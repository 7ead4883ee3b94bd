//! `neap launch`: what stands before the processes of a job that has several. Started by the agent, not by people.

use crate::failure::Outcome;
use clap::Args;
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct LaunchArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

pub fn run(args: &LaunchArgs) -> Outcome<ExitCode> {
    Ok(neap_agent::launcher::main(&args.words))
}
