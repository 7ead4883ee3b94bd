//! `neap lock`: what may not be deleted, or not be changed at all.

use crate::args::{Global, On, named};
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum LockCommand {
    /// Lock a cluster, a workspace or a resource group
    ///
    /// CanNotDelete stops deletions, ReadOnly changes too. A lock on a resource group also stops the scaling of the clusters in
    /// it: lock the single cluster or workspace to keep them scaling.
    Create(CreateArgs),
    /// List locks, with who made them and why
    #[command(after_help = "Examples:\n  neap lock list -o table")]
    List,
    /// Take a lock away; what waited for that goes on at once
    #[command(
        after_help = "Examples:\n  neap lock delete -n keep --compute cpu-cluster\n  neap lock delete -n freeze --on group"
    )]
    Delete(DeleteArgs),
}

/// What is locked.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct PlaceArgs {
    /// A cluster of the workspace
    #[arg(long, value_name = "NAME", value_parser = named)]
    compute: Option<String>,
    /// The workspace (-w), or its resource group (-g)
    #[arg(long, value_enum)]
    on: Option<On>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap lock create -n keep --lock-type CanNotDelete --compute cpu-cluster\n  \
                        neap lock create -n freeze --lock-type ReadOnly --on workspace --notes \"audit until Friday\""
)]
pub struct CreateArgs {
    /// Name of the lock
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// CanNotDelete or ReadOnly
    #[arg(long, short = 't', value_name = "TYPE")]
    lock_type: String,
    /// Why it is there
    #[arg(long, default_value = "")]
    notes: String,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Name of the lock
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    #[command(flatten)]
    place: PlaceArgs,
}

const COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Level", "level"),
    ("On", "on"),
    ("Notes", "notes"),
    ("By", "by"),
    ("Since", "since"),
];

pub fn run(command: &LockCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            LockCommand::Create(args) => create(args, &session).await?,
            LockCommand::List => {
                let rows: Vec<Value> = all(&session).await?.iter().map(shown).collect();
                session.print(&Value::Array(rows), COLUMNS)?;
            }
            LockCommand::Delete(args) => delete(args, &session).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn create(args: &CreateArgs, session: &Session) -> Outcome<()> {
    let Some(place) = place(session, &args.place) else {
        return Err(Failure::usage("say what to lock")
            .hint("--compute NAME, --on workspace or --on group; a lock on the group stops scaling, too"));
    };
    let path = format!("{}/{}", locks(&place), segment(&args.name));
    let body = json!({"properties": {"level": args.lock_type, "notes": args.notes}});
    let answer = session.client.call(Method::PUT, &path, Some(&body)).await?.body;
    session.print(&shown(&answer), COLUMNS)
}

/// By name alone where there is only one of it.
async fn delete(args: &DeleteArgs, session: &Session) -> Outcome<()> {
    let path = match place(session, &args.place) {
        Some(place) => format!("{}/{}", locks(&place), segment(&args.name)),
        None => {
            let all = all(session).await?;
            let named: Vec<&Value> = all
                .iter()
                .filter(|lock| {
                    lock["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(&args.name))
                })
                .collect();
            match named.as_slice() {
                [one] => one["id"].as_str().unwrap_or_default().to_owned(),
                [] => {
                    return Err(Failure::new(Exit::NotFound, format!("there is no lock '{}'", args.name))
                        .hint("'neap lock list' shows all"));
                }
                several => {
                    return Err(Failure::usage(format!(
                        "{} locks are called '{}'",
                        several.len(),
                        args.name
                    ))
                    .hint("say which with --compute NAME, --on workspace or --on group"));
                }
            }
        }
    };
    // Deleting what is not there is no error on the wire; a person mistyped.
    session.client.get(&path).await?;
    session.client.call(Method::DELETE, &path, None).await?;
    session.terminal.note(&format!("The lock '{}' is gone.", args.name));
    Ok(())
}

async fn all(session: &Session) -> Outcome<Vec<Value>> {
    let scope = format!("/subscriptions/{}", segment(&session.scope.subscription_id));
    let answer = session.client.get(&locks(&scope)).await?;
    Ok(answer["value"].as_array().cloned().unwrap_or_default())
}

fn locks(scope: &str) -> String {
    format!("{scope}/providers/Microsoft.Authorization/locks")
}

/// What the flags name, if they name anything.
fn place(session: &Session, args: &PlaceArgs) -> Option<String> {
    match (&args.compute, args.on) {
        (Some(compute), _) => Some(session.path(&format!("computes/{}", segment(compute)))),
        (None, Some(On::Group)) => Some(format!(
            "/subscriptions/{}/resourceGroups/{}",
            segment(&session.scope.subscription_id),
            segment(&session.scope.resource_group)
        )),
        (None, Some(On::Workspace)) => Some(session.workspace_path()),
        (None, None) => None,
    }
}

fn shown(lock: &Value) -> Value {
    let id = lock["id"].as_str().unwrap_or_default();
    let scope = id.split("/providers/Microsoft.Authorization").next().unwrap_or_default();
    let mut parts = scope.rsplit('/');
    let on = match (parts.next(), parts.next()) {
        (Some(name), Some("computes")) => format!("compute {name}"),
        (Some(name), Some("workspaces")) => format!("workspace {name}"),
        (Some(name), _) => format!("resource group {name}"),
        (None, _) => String::new(),
    };
    json!({
        "name": lock["name"], "level": lock["properties"]["level"], "on": on, "notes": lock["properties"]["notes"],
        "by": lock["systemData"]["createdBy"], "since": lock["systemData"]["createdAt"], "id": id,
    })
}
