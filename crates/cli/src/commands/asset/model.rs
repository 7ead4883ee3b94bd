//! `neap model`: named and versioned models.

use super::{RegisterArgs, RegisteredCommand};
use crate::args::Global;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::{Collection, model_request};
use serde_json::Value;
use std::process::ExitCode;

const KIND: Collection = Collection::Models;

#[derive(Debug, Subcommand)]
#[command(mut_subcommands(|command| super::with_examples(command, "model")))]
pub enum ModelCommand {
    /// Register a model, or a new version of it
    ///
    /// What is local in it is uploaded first. A version never changes: another definition needs another version.
    #[command(
        after_help = "Examples:\n  neap model create -f model.yml\n  neap model create -f model.yml --version 2\n  neap model create -n classifier --path ./model --type mlflow_model"
    )]
    Create(Box<CreateArgs>),
    #[command(flatten)]
    Registered(RegisteredCommand),
    /// Download the files of a model
    #[command(after_help = "Examples:\n  neap model download -n classifier --version 2 -p models")]
    Download(super::download::DownloadArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    common: RegisterArgs,
    /// Where it lies: a local path, which is uploaded, or a URI
    #[arg(long, short = 'p')]
    path: Option<String>,
    /// custom_model, mlflow_model or triton_model [default: custom_model]
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    kind: Option<String>,
    #[arg(long, hide = true)]
    datastore: Option<String>,
}

pub fn run(command: &ModelCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    match command {
        ModelCommand::Create(args) => {
            let flags =
                [("path", args.path.clone().map(Value::from)), ("type", args.kind.clone().map(Value::from))];
            super::create(KIND, model_request, &args.common, &flags, global, terminal)?;
        }
        ModelCommand::Registered(command) => super::run(KIND, command, global, terminal)?,
        ModelCommand::Download(args) => {
            let session = Session::open(global, terminal)?;
            block_on(super::download::run(args, &session))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
