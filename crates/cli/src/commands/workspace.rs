//! `neap workspace`: the places that clusters and jobs live in.

use crate::args::named;
use crate::client::segment;
use crate::entity;
use crate::failure::Outcome;
use crate::output::Column;
use crate::session::Session;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Create a workspace, and its resource group if there is none
    Create(CreateArgs),
    /// Show a workspace
    Show(ShowArgs),
    /// List workspaces, of a resource group with -g, else of all
    List,
    /// Delete a workspace and all that is in it
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap workspace create -n research\n  neap workspace create -n vision -g lab -l westus --tags team=vision"
)]
pub struct CreateArgs {
    /// Name of the workspace
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Region [default: the default workspace's]
    #[arg(long, short = 'l')]
    location: Option<String>,
    /// Name for people
    #[arg(long)]
    display_name: Option<String>,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// Tags as key=value
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Return when the request is accepted
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap workspace show\n  neap workspace show -n research -o yaml")]
pub struct ShowArgs {
    /// Name of the workspace [default: the one in use]
    #[arg(long, short = 'n', value_parser = named)]
    name: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap workspace delete -n research\n  neap workspace delete -n research --yes"
)]
pub struct DeleteArgs {
    /// Name of the workspace
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Return when the request is accepted
    #[arg(long)]
    no_wait: bool,
    // Flags of az about resources that Azure makes beside a workspace, and Neap does not.
    #[arg(long, hide = true)]
    all_resources: bool,
    #[arg(long, short = 'p', hide = true)]
    permanently_delete: bool,
}

const COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("ResourceGroup", "resource_group"),
    ("Location", "location"),
    ("State", "provisioning_state"),
    ("Description", "description"),
];

pub async fn run(command: &WorkspaceCommand, session: &Session) -> Outcome<ExitCode> {
    match command {
        WorkspaceCommand::Create(args) => create(args, session).await?,
        WorkspaceCommand::Show(args) => {
            let name = args.name.as_deref().unwrap_or(&session.scope.workspace);
            let resource = session.client.get(&path(session, name)).await?;
            session.print(&entity::workspace(&resource), COLUMNS)?;
        }
        WorkspaceCommand::List => {
            let scope = if session.group_given { group(session) } else { subscription(session) };
            let path = format!("{scope}/providers/Microsoft.MachineLearningServices/workspaces");
            let rows = session.client.list(&path, None).await?.iter().map(entity::workspace).collect();
            session.print(&Value::Array(rows), COLUMNS)?;
        }
        WorkspaceCommand::Delete(args) => delete(args, session).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: &CreateArgs, session: &Session) -> Outcome<()> {
    let location = session.location(args.location.as_deref()).await?;
    if session.client.find(&group(session)).await?.is_none() {
        session.terminal.note(&format!("creating the resource group {}", session.scope.resource_group));
        session.client.call(Method::PUT, &group(session), Some(&json!({ "location": location }))).await?;
    }
    let mut tags = Map::new();
    for tag in args.tags.iter().filter(|tag| !tag.is_empty()) {
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        tags.insert(key.to_owned(), value.into());
    }
    let body = json!({
        "location": location,
        "tags": tags,
        "properties": {"friendlyName": args.display_name, "description": args.description},
    });
    let path = path(session, &args.name);
    let answer = session.client.call(Method::PUT, &path, Some(&body)).await?;
    let resource = if args.no_wait {
        answer.body
    } else {
        session.client.wait(&answer).await?;
        session.client.get(&path).await?
    };
    session.warn_of(&resource);
    session.print(&entity::workspace(&resource), COLUMNS)
}

async fn delete(args: &DeleteArgs, session: &Session) -> Outcome<()> {
    let path = path(session, &args.name);
    session.client.get(&path).await?;
    if !args.yes {
        let clusters = session.client.list(&format!("{path}/computes"), None).await?;
        let names: Vec<&str> = clusters.iter().filter_map(|cluster| cluster.get("name")?.as_str()).collect();
        let lost = match names.as_slice() {
            [] => "It has no clusters; its jobs, logs and data would be lost.".to_owned(),
            names => format!("Its clusters ({}), jobs, logs and data would be lost.", names.join(", ")),
        };
        session.terminal.confirm(&format!("Delete the workspace {}? {lost}", args.name))?;
    }
    let answer = session.client.call(Method::DELETE, &format!("{path}?forceToPurge=false"), None).await?;
    if args.no_wait { Ok(()) } else { session.client.wait(&answer).await }
}

fn subscription(session: &Session) -> String {
    format!("/subscriptions/{}", segment(&session.scope.subscription_id))
}

fn group(session: &Session) -> String {
    format!("{}/resourceGroups/{}", subscription(session), segment(&session.scope.resource_group))
}

fn path(session: &Session, name: &str) -> String {
    format!("{}/providers/Microsoft.MachineLearningServices/workspaces/{}", group(session), segment(name))
}
