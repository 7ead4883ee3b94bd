//! `neap batch-endpoint`: names that batches of data are sent to.

use super::{ENDPOINT, endpoint_path, invoke, list_jobs};
use crate::args::{Global, named, whole};
use crate::commands::block_on;
use crate::commands::resource::{ChangeArgs, DeleteArgs, NameArgs};
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::session::Session;
use crate::specification::Specification;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::batch_endpoint_request;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum EndpointCommand {
    /// Create an endpoint, or change one
    Create(CreateArgs),
    /// Show an endpoint
    #[command(after_help = "Examples:\n  neap batch-endpoint show -n scores")]
    Show(NameArgs),
    /// List endpoints
    List(ListArgs),
    /// Change the description, tags or default deployment of an endpoint
    #[command(
        after_help = "Examples:\n  neap batch-endpoint update -n scores --set defaults.deployment_name=v2"
    )]
    Update(UpdateArgs),
    /// Delete an endpoint and its deployments
    #[command(after_help = "Examples:\n  neap batch-endpoint delete -n scores --yes")]
    Delete(DeleteArgs),
    /// Run an endpoint's deployment over data; each call is a job
    Invoke(Box<invoke::InvokeArgs>),
    /// List the jobs that calls of an endpoint made
    #[command(after_help = "Examples:\n  neap batch-endpoint list-jobs -n scores -o table")]
    ListJobs(NameArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap batch-endpoint create -f endpoint.yml\n  neap batch-endpoint create -n scores"
)]
pub struct CreateArgs {
    /// YAML file with the endpoint
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name [default: the file's]
    #[arg(long, short = 'n', required_unless_present = "file", value_parser = named)]
    name: Option<String>,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Return when the request is accepted
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap batch-endpoint list -o table")]
pub struct ListArgs {
    /// Most results to return
    #[arg(long, short = 'r', value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    max_results: Option<usize>,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Name
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Deployment that answers calls which name none
    #[arg(long, value_name = "deployment_name=NAME")]
    defaults: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

pub fn run(command: &EndpointCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    if let EndpointCommand::Create(args) = command {
        create(args, global, terminal)?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        let at = |name: &str| endpoint_path(&session, name);
        match command {
            EndpointCommand::Create(_) => {}
            EndpointCommand::Show(args) => ENDPOINT.show(&session, &at(&args.name)).await?,
            EndpointCommand::List(args) => {
                ENDPOINT.list(&session, &session.path("batchEndpoints"), args.max_results).await?;
            }
            EndpointCommand::Update(args) => update(args, &session).await?,
            EndpointCommand::Delete(args) => {
                ENDPOINT.delete(&session, &at(&args.name), args, " Its deployments go with it.").await?;
            }
            EndpointCommand::Invoke(args) => return invoke::run(args, &session).await,
            EndpointCommand::ListJobs(args) => list_jobs(&session, &at(&args.name)).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn create(args: &CreateArgs, global: &Global, terminal: &Terminal) -> Outcome<()> {
    let flags = [("name", args.name.clone().map(Value::from))];
    let specification = Specification::load(args.file.as_deref(), &flags, &args.set)?;
    specification.check(batch_endpoint_request)?;
    let session = Session::open(global, terminal)?;
    block_on(put(&specification, !args.no_wait, &session))
}

async fn put(specification: &Specification, wait: bool, session: &Session) -> Outcome<()> {
    let mut request = specification.plan(&session.scope, batch_endpoint_request)?;
    if request.body.get("location").is_none() {
        request.body["location"] = session.location(None).await?.into();
    }
    ENDPOINT.put(session, &endpoint_path(session, &request.name), &request.body, wait).await
}

async fn update(args: &UpdateArgs, session: &Session) -> Outcome<()> {
    let mut tree = entity::batch_endpoint(&session.client.get(&endpoint_path(session, &args.name)).await?);
    args.change.apply(&mut tree)?;
    if let Some(defaults) = &args.defaults {
        let name = defaults.strip_prefix("deployment_name=").ok_or_else(|| {
            Failure::usage(format!("--defaults {defaults}: write it as deployment_name=NAME"))
        })?;
        tree["defaults"] = serde_json::json!({ "deployment_name": name });
    }
    put(&Specification::of_value(tree, &[], &[])?, !args.change.no_wait, session).await
}
