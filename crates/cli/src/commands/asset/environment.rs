//! `neap environment`: images and packages that jobs run in.

use super::{ArchiveArgs, ListArgs, ShowArgs, UpdateArgs};
use crate::args::Global;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::{Collection, environment_request};
use serde_json::Value;
use std::process::ExitCode;

const KIND: Collection = Collection::Environments;

#[derive(Debug, Subcommand)]
pub enum EnvironmentCommand {
    /// Register a environment, or a new version of it
    ///
    /// What is local in it is uploaded first. A version never changes: another definition needs another version.
    #[command(
        after_help = "Examples:\n  neap environment create -f environment.yml\n  neap environment create -f environment.yml --version 2\n  neap environment create -n torch --image python:3.12 --conda-file conda.yml"
    )]
    Create(Box<CreateArgs>),
    /// List environments, or the versions of one
    #[command(
        after_help = "Examples:\n  neap environment list -o table\n  neap environment list -n my-environment -o table"
    )]
    List(ListArgs),
    /// Show a environment
    #[command(
        after_help = "Examples:\n  neap environment show -n my-environment\n  neap environment show -n my-environment --version 2"
    )]
    Show(ShowArgs),
    /// Change the description or tags of a environment
    #[command(
        after_help = "Examples:\n  neap environment update -n my-environment --version 2 --set tags.stage=good"
    )]
    Update(UpdateArgs),
    /// Hide a environment from lists
    #[command(
        after_help = "Examples:\n  neap environment archive -n my-environment --version 1\n  neap environment archive -n my-environment"
    )]
    Archive(ArchiveArgs),
    /// Show an archived environment in lists again
    #[command(after_help = "Examples:\n  neap environment restore -n my-environment --version 1")]
    Restore(ArchiveArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    common: super::RegisterArgs,
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
    if let EnvironmentCommand::Create(args) = command {
        let flags = [
            ("image", args.image.clone().map(Value::from)),
            ("conda_file", args.conda_file.clone().map(Value::from)),
            ("build.path", args.build_context.clone().map(Value::from)),
            ("build.dockerfile_path", args.dockerfile_path.clone().map(Value::from)),
            ("os_type", args.os_type.clone().map(Value::from)),
        ];
        super::create(KIND, environment_request, &args.common, &flags, global, terminal)?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            EnvironmentCommand::Create(_) => {}
            EnvironmentCommand::List(args) => super::list(KIND, args, &session).await?,
            EnvironmentCommand::Show(args) => super::show(KIND, args, &session).await?,
            EnvironmentCommand::Update(args) => super::update(KIND, args, &session).await?,
            EnvironmentCommand::Archive(args) => super::set_archived(KIND, args, true, &session).await?,
            EnvironmentCommand::Restore(args) => super::set_archived(KIND, args, false, &session).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
