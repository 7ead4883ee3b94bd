//! `neap component`: commands, parallel work and pipelines with typed ends, to be used as steps.

use super::{ArchiveArgs, ListArgs, ShowArgs, UpdateArgs};
use crate::args::Global;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::{Collection, component_request};
use std::process::ExitCode;

const KIND: Collection = Collection::Components;

#[derive(Debug, Subcommand)]
pub enum ComponentCommand {
    /// Register a component, or a new version of it
    ///
    /// What is local in it is uploaded first. A version never changes: another definition needs another version.
    #[command(
        after_help = "Examples:\n  neap component create -f component.yml\n  neap component create -f component.yml --version 2"
    )]
    Create(Box<CreateArgs>),
    /// List components, or the versions of one
    #[command(
        after_help = "Examples:\n  neap component list -o table\n  neap component list -n my-component -o table"
    )]
    List(ListArgs),
    /// Show a component
    #[command(
        after_help = "Examples:\n  neap component show -n my-component\n  neap component show -n my-component --version 2"
    )]
    Show(ShowArgs),
    /// Change the description or tags of a component
    #[command(
        after_help = "Examples:\n  neap component update -n my-component --version 2 --set tags.stage=good"
    )]
    Update(UpdateArgs),
    /// Hide a component from lists
    #[command(
        after_help = "Examples:\n  neap component archive -n my-component --version 1\n  neap component archive -n my-component"
    )]
    Archive(ArchiveArgs),
    /// Show an archived component in lists again
    #[command(after_help = "Examples:\n  neap component restore -n my-component --version 1")]
    Restore(ArchiveArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    common: super::RegisterArgs,
}

pub fn run(command: &ComponentCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    if let ComponentCommand::Create(args) = command {
        let flags = [];
        super::create(KIND, component_request, &args.common, &flags, global, terminal)?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            ComponentCommand::Create(_) => {}
            ComponentCommand::List(args) => super::list(KIND, args, &session).await?,
            ComponentCommand::Show(args) => super::show(KIND, args, &session).await?,
            ComponentCommand::Update(args) => super::update(KIND, args, &session).await?,
            ComponentCommand::Archive(args) => super::set_archived(KIND, args, true, &session).await?,
            ComponentCommand::Restore(args) => super::set_archived(KIND, args, false, &session).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
