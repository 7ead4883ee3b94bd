//! `neap data`: named and versioned data.

use super::{ArchiveArgs, ListArgs, ShowArgs, UpdateArgs};
use crate::args::Global;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::{Collection, data_request};
use serde_json::Value;
use std::process::ExitCode;

const KIND: Collection = Collection::Data;

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Register a data asset, or a new version of it
    ///
    /// What is local in it is uploaded first. A version never changes: another definition needs another version.
    #[command(
        after_help = "Examples:\n  neap data create -f data.yml\n  neap data create -f data.yml --version 2\n  neap data create -n irises --path ./iris.csv --type uri_file"
    )]
    Create(Box<CreateArgs>),
    /// List data assets, or the versions of one
    #[command(after_help = "Examples:\n  neap data list -o table\n  neap data list -n my-data -o table")]
    List(ListArgs),
    /// Show a data asset
    #[command(after_help = "Examples:\n  neap data show -n my-data\n  neap data show -n my-data --version 2")]
    Show(ShowArgs),
    /// Change the description or tags of a data asset
    #[command(after_help = "Examples:\n  neap data update -n my-data --version 2 --set tags.stage=good")]
    Update(UpdateArgs),
    /// Hide a data asset from lists
    #[command(
        after_help = "Examples:\n  neap data archive -n my-data --version 1\n  neap data archive -n my-data"
    )]
    Archive(ArchiveArgs),
    /// Show an archived data asset in lists again
    #[command(after_help = "Examples:\n  neap data restore -n my-data --version 1")]
    Restore(ArchiveArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    common: super::RegisterArgs,
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
    if let DataCommand::Create(args) = command {
        let flags =
            [("path", args.path.clone().map(Value::from)), ("type", args.kind.clone().map(Value::from))];
        super::create(KIND, data_request, &args.common, &flags, global, terminal)?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            DataCommand::Create(_) => {}
            DataCommand::List(args) => super::list(KIND, args, &session).await?,
            DataCommand::Show(args) => super::show(KIND, args, &session).await?,
            DataCommand::Update(args) => super::update(KIND, args, &session).await?,
            DataCommand::Archive(args) => super::set_archived(KIND, args, true, &session).await?,
            DataCommand::Restore(args) => super::set_archived(KIND, args, false, &session).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
