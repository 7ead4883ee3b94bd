//! `neap container`: drives the container engine for one attempt. Started by an agent, not by people.

use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct ContainerArgs {
    /// The file that says what is to be done
    pub order: PathBuf,
}

pub fn run(args: &ContainerArgs) -> Outcome<ExitCode> {
    let code = neap_agent::drive(&args.order).map_err(Failure::failed)?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}
