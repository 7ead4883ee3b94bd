//! `neap component`: commands, parallel work and pipelines with typed ends, to be used as steps.

use super::{RegisterArgs, RegisteredCommand};
use crate::args::Global;
use crate::failure::Outcome;
use crate::terminal::Terminal;
use clap::Subcommand;
use neap_spec::{Collection, component_request};
use std::process::ExitCode;

const KIND: Collection = Collection::Components;

#[derive(Debug, Subcommand)]
#[command(mut_subcommands(|command| super::with_examples(command, "component")))]
pub enum ComponentCommand {
    /// Register a component, or a new version of it
    ///
    /// What is local in it is uploaded first. A version never changes: another definition needs another version.
    #[command(
        after_help = "Examples:\n  neap component create -f component.yml\n  neap component create -f component.yml --version 2"
    )]
    Create(Box<RegisterArgs>),
    #[command(flatten)]
    Registered(RegisteredCommand),
}

pub fn run(command: &ComponentCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    match command {
        ComponentCommand::Create(args) => {
            super::create(KIND, component_request, args, &[], global, terminal)?;
        }
        ComponentCommand::Registered(command) => super::run(KIND, command, global, terminal)?,
    }
    Ok(ExitCode::SUCCESS)
}
