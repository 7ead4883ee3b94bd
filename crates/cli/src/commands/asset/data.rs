//! `neap data`: named and versioned data.

use super::{RegisterArgs, RegisteredCommand};
use crate::args::Global;
use crate::failure::Outcome;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::{Collection, data_request};
use serde_json::Value;
use std::process::ExitCode;

const KIND: Collection = Collection::Data;

#[derive(Debug, Subcommand)]
#[command(mut_subcommands(|command| super::with_examples(command, "data")))]
pub enum DataCommand {
    /// Register a data asset, or a new version of it
    ///
    /// What is local in it is uploaded first. A version never changes: another definition needs another version.
    #[command(
        after_help = "Examples:\n  neap data create -f data.yml\n  neap data create -f data.yml --version 2\n  neap data create -n irises --path ./iris.csv --type uri_file"
    )]
    Create(Box<CreateArgs>),
    #[command(flatten)]
    Registered(RegisteredCommand),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    common: RegisterArgs,
    /// Where it lies: a local path, which is uploaded, or a URI
    #[arg(long, short = 'p')]
    path: Option<String>,
    /// uri_file, uri_folder or mltable [default: uri_folder]
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    kind: Option<String>,
    #[arg(long, hide = true)]
    datastore: Option<String>,
}

pub fn run(command: &DataCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    match command {
        DataCommand::Create(args) => {
            let flags =
                [("path", args.path.clone().map(Value::from)), ("type", args.kind.clone().map(Value::from))];
            super::create(KIND, data_request, &args.common, &flags, global, terminal)?;
        }
        DataCommand::Registered(command) => super::run(KIND, command, global, terminal)?,
    }
    Ok(ExitCode::SUCCESS)
}
