//! `neap attend`: starts the services of a job before its command. Started by the agent, not by people.

use crate::failure::Outcome;
use clap::Args;
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct AttendArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

pub fn run(args: &AttendArgs) -> Outcome<ExitCode> {
    Ok(neap_agent::services::attend::main(&args.words))
}
