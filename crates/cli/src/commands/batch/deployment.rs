//! `neap batch-deployment`: a model or pipeline behind an endpoint.

use super::{DEPLOYMENT, ENDPOINT, deployment_path, endpoint_path, list_jobs};
use crate::args::{Global, named};
use crate::commands::block_on;
use crate::commands::resource::{ChangeArgs, DeleteArgs};
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::preparation;
use crate::session::Session;
use crate::specification::Specification;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::batch_deployment_request;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum DeploymentCommand {
    /// Create a deployment, or change one
    Create(CreateArgs),
    /// Show a deployment
    #[command(after_help = "Examples:\n  neap batch-deployment show -n v1 --endpoint-name scores")]
    Show(WhichArgs),
    /// List the deployments of an endpoint
    #[command(after_help = "Examples:\n  neap batch-deployment list --endpoint-name scores -o table")]
    List(EndpointArgs),
    /// Change a deployment
    #[command(
        after_help = "Examples:\n  neap batch-deployment update -n v1 --endpoint-name scores --set mini_batch_size=20"
    )]
    Update(UpdateArgs),
    /// Delete a deployment
    #[command(after_help = "Examples:\n  neap batch-deployment delete -n v1 --endpoint-name scores --yes")]
    Delete(RemoveArgs),
    /// List the jobs that calls of a deployment made
    #[command(after_help = "Examples:\n  neap batch-deployment list-jobs -n v1 --endpoint-name scores")]
    ListJobs(WhichArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap batch-deployment create -f deployment.yml --set-default\n  \
                        neap batch-deployment create -f deployment.yml -n v2 --endpoint-name scores")]
pub struct CreateArgs {
    /// YAML file with the deployment
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
    /// Name [default: the file's]
    #[arg(long, short = 'n', value_parser = named)]
    name: Option<String>,
    /// Endpoint [default: the file's]
    #[arg(long, short = 'e', value_parser = named)]
    endpoint_name: Option<String>,
    /// Make it the endpoint's default
    #[arg(long)]
    set_default: bool,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    #[arg(long, hide = true)]
    skip_script_validation: bool,
    /// Return when the request is accepted
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Args)]
pub struct WhichArgs {
    /// Name of the deployment
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Name of the endpoint
    #[arg(long, short = 'e', value_parser = named)]
    endpoint_name: String,
}

#[derive(Debug, Args)]
pub struct EndpointArgs {
    /// Name of the endpoint
    #[arg(long, short = 'e', value_parser = named)]
    endpoint_name: String,
}

#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Name of the endpoint
    #[arg(long, short = 'e', value_parser = named)]
    endpoint_name: String,
    #[command(flatten)]
    delete: DeleteArgs,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

pub fn run(command: &DeploymentCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    if let DeploymentCommand::Create(args) = command {
        create(args, global, terminal)?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            DeploymentCommand::Create(_) => {}
            DeploymentCommand::Show(args) => DEPLOYMENT.show(&session, &at(args, &session)).await?,
            DeploymentCommand::List(args) => {
                let path = format!("{}/deployments", endpoint_path(&session, &args.endpoint_name));
                DEPLOYMENT.list(&session, &path, None).await?;
            }
            DeploymentCommand::Update(args) => update(args, &session).await?,
            DeploymentCommand::Delete(args) => {
                let path = deployment_path(&session, &args.endpoint_name, &args.delete.name);
                DEPLOYMENT.delete(&session, &path, &args.delete, "").await?;
            }
            DeploymentCommand::ListJobs(args) => list_jobs(&session, &at(args, &session)).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn at(args: &WhichArgs, session: &Session) -> String {
    deployment_path(session, &args.endpoint_name, &args.name)
}

fn create(args: &CreateArgs, global: &Global, terminal: &Terminal) -> Outcome<()> {
    let flags = [
        ("name", args.name.clone().map(Value::from)),
        ("endpoint_name", args.endpoint_name.clone().map(Value::from)),
    ];
    let specification = Specification::load(Some(&args.file), &flags, &args.set)?;
    specification.check(batch_deployment_request)?;
    let endpoint = specification
        .text("endpoint_name")
        .ok_or_else(|| Failure::usage("the file names no endpoint").hint("give one with --endpoint-name"))?
        .to_owned();
    let session = Session::open(global, terminal)?;
    block_on(async {
        // Nothing is uploaded for an endpoint that is not there.
        let mut owner = session.client.get(&endpoint_path(&session, &endpoint)).await?;
        let name = put(&specification, &endpoint, !args.no_wait, &session).await?;
        if args.set_default {
            owner["properties"]["defaults"] = serde_json::json!({ "deploymentName": name });
            let path = endpoint_path(&session, &endpoint);
            let answer = session.client.call(reqwest::Method::PUT, &path, Some(&owner)).await?;
            session.client.wait(&answer).await?;
            session.terminal.note(&format!("{name} is the default of the {} {endpoint}", ENDPOINT.word));
        }
        Ok(())
    })
}

/// Puts the deployment and prints it; answers its name.
async fn put(
    specification: &Specification,
    endpoint: &str,
    wait: bool,
    session: &Session,
) -> Outcome<String> {
    let mut request = specification.plan(&session.scope, batch_deployment_request)?;
    preparation::perform(&mut request, session).await?;
    request.body["location"] = session.location(None).await?.into();
    let path = deployment_path(session, endpoint, &request.name);
    DEPLOYMENT.put(session, &path, &request.body, wait).await?;
    Ok(request.name)
}

async fn update(args: &UpdateArgs, session: &Session) -> Outcome<()> {
    let path = at(&args.which, session);
    let mut tree = entity::batch_deployment(&session.client.get(&path).await?);
    args.change.apply(&mut tree)?;
    let specification = Specification::of_value(tree, &[], &[])?;
    put(&specification, &args.which.endpoint_name, !args.change.no_wait, session).await.map(|_| ())
}
