//! `neap datastore`: where data lies outside the workspace.

use super::resource::{DeleteArgs, NameArgs, Resource, path};
use crate::args::{Global, named, whole};
use crate::commands::block_on;
use crate::entity;
use crate::failure::Outcome;
use crate::output::Column;
use crate::session::Session;
use crate::specification::Specification;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::datastore_request;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum DatastoreCommand {
    /// Register a datastore
    Create(CreateArgs),
    /// Show a datastore; never its secrets
    #[command(after_help = "Examples:\n  neap datastore show -n workspaceblobstore")]
    Show(NameArgs),
    /// List datastores
    List(ListArgs),
    /// Forget a datastore; what lies in it stays
    #[command(after_help = "Examples:\n  neap datastore delete -n archive --yes")]
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap datastore create -f datastore.yml\n  \
                        neap datastore create -f datastore.yml --set credentials.sas_token=\"$TOKEN\"")]
pub struct CreateArgs {
    /// YAML file with the datastore
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
    /// Name [default: the file's]
    #[arg(long, short = 'n', value_parser = named)]
    name: Option<String>,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap datastore list -o table")]
pub struct ListArgs {
    /// Most results to return
    #[arg(long, short = 'r', value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    max_results: Option<usize>,
}

const COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Type", "type"),
    ("Account", "account_name"),
    ("Container", "container_name"),
    ("Default", "is_default"),
];

const DATASTORE: Resource = Resource { word: "datastore", entity: entity::datastore, columns: COLUMNS };

pub fn run(command: &DatastoreCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    if let DatastoreCommand::Create(args) = command {
        let flags = [("name", args.name.clone().map(Value::from))];
        let specification = Specification::load(Some(&args.file), &flags, &args.set)?;
        specification.check(datastore_request)?;
        let session = Session::open(global, terminal)?;
        let request = specification.plan(&session.scope, datastore_request)?;
        let path = path(&session, "datastores", &request.name);
        block_on(DATASTORE.put(&session, &path, &request.body, true))?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        let at = |name: &str| path(&session, "datastores", name);
        match command {
            DatastoreCommand::Create(_) => {}
            DatastoreCommand::Show(args) => DATASTORE.show(&session, &at(&args.name)).await?,
            DatastoreCommand::List(args) => {
                DATASTORE.list(&session, &session.path("datastores"), args.max_results).await?;
            }
            DatastoreCommand::Delete(args) => {
                let lost = " What lies in it stays where it is.";
                DATASTORE.delete(&session, &at(&args.name), args, lost).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
