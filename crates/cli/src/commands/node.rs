//! `neap node`: keep new work off a node, let it on again, have it go.

use crate::args::{Global, named, number};
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Place nothing new on a node; it stays, for somebody to look at
    #[command(
        after_help = "Examples:\n  neap node cordon n-3 --cluster cpu-cluster --reason 'disk looks full'"
    )]
    Cordon(NodeArgs),
    /// Use a cordoned node again
    Uncordon(NodeArgs),
    /// Place nothing new on a node; it goes when its jobs have ended
    #[command(after_help = "Examples:\n  neap node drain n-3 --cluster cpu-cluster")]
    Drain(NodeArgs),
    /// Take a node away now: its jobs are told, save what they can, and go on elsewhere
    #[command(after_help = "Examples:\n  neap node remove n-3 --cluster cpu-cluster --grace 20")]
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The node, as `neap compute list-nodes` names it
    #[arg(value_parser = named)]
    node: String,
    /// Its cluster
    #[arg(long, short = 'c', value_name = "CLUSTER", value_parser = named)]
    cluster: String,
    /// Why
    #[arg(long, default_value = "")]
    reason: String,
}

#[derive(Debug, Args)]
pub struct RemoveArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Seconds that the processes of its jobs have to save what they have
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, allow_negative_numbers = true, value_parser = number)]
    grace: f64,
}

const COLUMNS: &[Column] = &[
    ("Node", "node_id"),
    ("State", "state"),
    ("Cordoned", "cordoned"),
    ("Leaves", "leaves"),
    ("Jobs", "jobs"),
];
const REMOVED: &[Column] = &[("Node", "node"), ("Tier", "tier"), ("GoneBy", "deadline")];

pub fn run(command: &NodeCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            NodeCommand::Cordon(args) => change(args, "cordon", &session).await?,
            NodeCommand::Uncordon(args) => change(args, "uncordon", &session).await?,
            NodeCommand::Drain(args) => change(args, "drain", &session).await?,
            NodeCommand::Remove(args) => remove(args, &session).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn change(args: &NodeArgs, verb: &str, session: &Session) -> Outcome<()> {
    let path = format!("computes/{}/nodes/{}/{verb}", segment(&args.cluster), segment(&args.node));
    let body = json!({"reason": args.reason});
    let answer = session.client.call(Method::POST, &session.own_path(&path), Some(&body)).await?.body;
    session.print(&answer, COLUMNS)
}

async fn remove(args: &RemoveArgs, session: &Session) -> Outcome<()> {
    let RemoveArgs { node, grace } = args;
    let path = format!("computes/{}/evict", segment(&node.cluster));
    let reason = if node.reason.is_empty() { "removed by hand" } else { &node.reason };
    let body = json!({"node": node.node, "grace_seconds": grace, "simulate": false, "reason": reason});
    let answer = session.client.call(Method::POST, &session.own_path(&path), Some(&body)).await?.body;
    session.print(&answer, REMOVED)
}
