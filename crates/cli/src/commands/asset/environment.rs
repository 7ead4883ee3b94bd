//! `neap environment`: images and packages that jobs run in.

use super::{RegisterArgs, RegisteredCommand};
use crate::args::Global;
use crate::failure::Outcome;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::{Collection, environment_request};
use serde_json::Value;
use std::process::ExitCode;

const KIND: Collection = Collection::Environments;

#[derive(Debug, Subcommand)]
#[command(mut_subcommands(|command| super::with_examples(command, "environment")))]
pub enum EnvironmentCommand {
    /// Register an environment, or a new version of it
    ///
    /// What is local in it is uploaded first. A version never changes: another definition needs another version.
    #[command(
        after_help = "Examples:\n  neap environment create -f environment.yml\n  neap environment create -f environment.yml --version 2\n  neap environment create -n torch --image python:3.12 --conda-file conda.yml"
    )]
    Create(Box<CreateArgs>),
    #[command(flatten)]
    Registered(RegisteredCommand),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    common: RegisterArgs,
    /// Image to run in
    #[arg(long, short = 'i')]
    image: Option<String>,
    /// Conda file with the packages
    #[arg(long, short = 'c', value_name = "FILE")]
    conda_file: Option<String>,
    /// Folder to build the image from
    #[arg(long, short = 'b', value_name = "DIR")]
    build_context: Option<String>,
    /// Dockerfile, relative to the build context
    #[arg(long, value_name = "FILE", requires = "build_context")]
    dockerfile_path: Option<String>,
    /// Operating system
    #[arg(long, value_name = "OS")]
    os_type: Option<String>,
    #[arg(long, hide = true)]
    datastore: Option<String>,
}

pub fn run(command: &EnvironmentCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    match command {
        EnvironmentCommand::Create(args) => {
            let flags = [
                ("image", args.image.clone().map(Value::from)),
                ("conda_file", args.conda_file.clone().map(Value::from)),
                ("build.path", args.build_context.clone().map(Value::from)),
                ("build.dockerfile_path", args.dockerfile_path.clone().map(Value::from)),
                ("os_type", args.os_type.clone().map(Value::from)),
            ];
            super::create(KIND, environment_request, &args.common, &flags, global, terminal)?;
        }
        EnvironmentCommand::Registered(command) => super::run(KIND, command, global, terminal)?,
    }
    Ok(ExitCode::SUCCESS)
}
