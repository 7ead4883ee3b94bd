//! `neap model`: named and versioned models.

use super::{ArchiveArgs, ListArgs, ShowArgs, UpdateArgs};
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
pub enum ModelCommand {
    /// Register a model, or a new version of it
    ///
    /// What is local in it is uploaded first. A version never changes: another definition needs another version.
    #[command(
        after_help = "Examples:\n  neap model create -f model.yml\n  neap model create -f model.yml --version 2\n  neap model create -n classifier --path ./model --type mlflow_model"
    )]
    Create(Box<CreateArgs>),
    /// List models, or the versions of one
    #[command(after_help = "Examples:\n  neap model list -o table\n  neap model list -n my-model -o table")]
    List(ListArgs),
    /// Show a model
    #[command(
        after_help = "Examples:\n  neap model show -n my-model\n  neap model show -n my-model --version 2"
    )]
    Show(ShowArgs),
    /// Change the description or tags of a model
    #[command(after_help = "Examples:\n  neap model update -n my-model --version 2 --set tags.stage=good")]
    Update(UpdateArgs),
    /// Hide a model from lists
    #[command(
        after_help = "Examples:\n  neap model archive -n my-model --version 1\n  neap model archive -n my-model"
    )]
    Archive(ArchiveArgs),
    /// Show an archived model in lists again
    #[command(after_help = "Examples:\n  neap model restore -n my-model --version 1")]
    Restore(ArchiveArgs),
    /// Download the files of a model
    #[command(after_help = "Examples:\n  neap model download -n classifier --version 2 -p models")]
    Download(super::download::DownloadArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    common: super::RegisterArgs,
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
    if let ModelCommand::Create(args) = command {
        let flags =
            [("path", args.path.clone().map(Value::from)), ("type", args.kind.clone().map(Value::from))];
        super::create(KIND, model_request, &args.common, &flags, global, terminal)?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            ModelCommand::Create(_) => {}
            ModelCommand::List(args) => super::list(KIND, args, &session).await?,
            ModelCommand::Show(args) => super::show(KIND, args, &session).await?,
            ModelCommand::Update(args) => super::update(KIND, args, &session).await?,
            ModelCommand::Archive(args) => super::set_archived(KIND, args, true, &session).await?,
            ModelCommand::Restore(args) => super::set_archived(KIND, args, false, &session).await?,
            ModelCommand::Download(args) => super::download::run(args, &session).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
