//! The reading commands of `neap compute`.

use super::CLUSTER_COLUMNS;
use crate::args::{named, whole};
use crate::client::segment;
use crate::entity;
use crate::failure::Outcome;
use crate::moment::AtArgs;
use crate::output::{Column, Screen};
use crate::session::Session;
use clap::Args;
use futures_util::StreamExt;
use reqwest::Method;
use serde_json::Value;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap compute list -o table\n  neap compute list --query '[?current_nodes>`0`].name' -o tsv"
)]
pub struct ListArgs {
    /// Most results to return
    #[arg(long, short = 'r', value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    max_results: Option<usize>,
    /// Only computes of this type
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    kind: Option<String>,
    #[command(flatten)]
    at: AtArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap compute show -n cpu-cluster\n  neap compute show -n cpu-cluster --at -2h"
)]
pub struct ShowArgs {
    /// Name of the cluster
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    #[command(flatten)]
    at: AtArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap compute list-nodes -n cpu-cluster -o table\n  neap compute list-nodes -n cpu-cluster --gone"
)]
pub struct NodesArgs {
    /// Name of the cluster
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Also nodes that are gone
    #[arg(long)]
    gone: bool,
    #[command(flatten)]
    at: AtArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap compute list-sizes -o table\n  neap compute list-sizes --query '[?gpus>`0`].name' -o tsv"
)]
pub struct SizesArgs {
    /// Region [default: the workspace's]
    #[arg(long, short = 'l')]
    location: Option<String>,
    /// Only sizes for this type of compute
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    kind: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute list-usage -o table\n  neap compute list-usage -l westus")]
pub struct UsageArgs {
    /// Region [default: the workspace's]
    #[arg(long, short = 'l')]
    location: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute node-log -n cpu-cluster --node n-3")]
pub struct NodeLogArgs {
    /// Name of the cluster
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Id of the node, as list-nodes shows it
    #[arg(long, value_name = "NODE", visible_alias = "node-id", value_parser = named)]
    node: String,
}

const NODE_COLUMNS: &[Column] = &[
    ("Node", "node_id"),
    ("State", "node_state"),
    ("Tier", "tier"),
    ("Since", "since"),
    ("Job", "job_names"),
    ("Cpus", "actual.cpus"),
    ("MemoryMB", "actual.memory_mb"),
    ("Gpus", "actual.gpus"),
    ("Cordoned", "cordoned"),
    ("CordonReason", "cordon_reason"),
    ("Reason", "reason"),
];

const SIZE_COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Family", "family"),
    ("Cores", "v_cp_us"),
    ("MemoryGB", "memory_gb"),
    ("Gpus", "gpus"),
    ("LowPriority", "low_priority_capable"),
    ("USDPerHour", "usd_per_hour"),
    ("LowPriorityUSD", "low_priority_usd_per_hour"),
    ("Retired", "retired.since"),
    ("Instead", "retired.instead"),
];

const USAGE_COLUMNS: &[Column] =
    &[("Name", "name.localized_value"), ("Used", "current_value"), ("Limit", "limit"), ("Unit", "unit")];

pub async fn show(args: &ShowArgs, session: &Session) -> Outcome<()> {
    let path = args.at.on(&session.path(&format!("computes/{}", segment(&args.name))))?;
    let resource = session.client.get(&path).await?;
    session.warn_of(&resource);
    session.print(&entity::compute(&resource), CLUSTER_COLUMNS)
}

pub async fn list(args: &ListArgs, session: &Session) -> Outcome<()> {
    let resources = session.client.list(&args.at.on(&session.path("computes"))?, None).await?;
    let mut rows: Vec<Value> = resources.iter().map(entity::compute).collect();
    if let Some(kind) = &args.kind {
        rows.retain(|row| row["type"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(kind)));
    }
    rows.truncate(args.max_results.unwrap_or(usize::MAX));
    session.print(&Value::Array(rows), CLUSTER_COLUMNS)
}

pub async fn nodes(args: &NodesArgs, session: &Session) -> Outcome<()> {
    let cluster = segment(&args.name);
    let gone = if args.gone { "?gone=true" } else { "" };
    let path = args.at.on(&session.own_path(&format!("computes/{cluster}/nodes{gone}")))?;
    let own = session.client.get(&path).await?;
    let arm = if args.at.is_given() {
        // Where a node was reached is not in the log.
        Value::Null
    } else {
        let path = session.path(&format!("computes/{cluster}/listNodes"));
        session.client.call(Method::POST, &path, None).await?.body
    };
    let addresses = arm.get("nodes").and_then(Value::as_array);
    let rows = own.get("value").and_then(Value::as_array).into_iter().flatten().map(|node| {
        let address =
            addresses.into_iter().flatten().find(|other| other.get("nodeId") == node.get("node_id"));
        entity::node(node, address)
    });
    session.print(&Value::Array(rows.collect()), NODE_COLUMNS)
}

pub async fn sizes(args: &SizesArgs, session: &Session) -> Outcome<()> {
    let location = session.location(args.location.as_deref()).await?;
    let sizes = session.client.list(&regional(session, &location, "vmSizes"), None).await?;
    let mut rows: Vec<Value> = sizes.iter().map(entity::vm_size).collect();
    if let Some(kind) = &args.kind {
        rows.retain(|row| {
            let types = row["supported_compute_types"].as_array();
            types
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .any(|found| found.eq_ignore_ascii_case(kind))
        });
    }
    session.print(&Value::Array(rows), SIZE_COLUMNS)
}

pub async fn usage(args: &UsageArgs, session: &Session) -> Outcome<()> {
    let location = session.location(args.location.as_deref()).await?;
    let usages = session.client.list(&regional(session, &location, "usages"), None).await?;
    session.print(&Value::Array(usages.iter().map(entity::usage).collect()), USAGE_COLUMNS)
}

fn regional(session: &Session, location: &str, what: &str) -> String {
    format!(
        "/subscriptions/{}/providers/Microsoft.MachineLearningServices/locations/{}/{what}",
        segment(&session.scope.subscription_id),
        segment(location)
    )
}

pub async fn node_log(args: &NodeLogArgs, session: &Session) -> Outcome<()> {
    let path =
        session.own_path(&format!("computes/{}/nodes/{}/log", segment(&args.name), segment(&args.node)));
    let response = session.client.open(Method::GET, &path, None).await?;
    let mut bytes = response.bytes_stream();
    let mut screen = Screen::new();
    while let Some(chunk) = bytes.next().await {
        let chunk =
            chunk.map_err(|error| crate::failure::Failure::failed(format!("the log broke off: {error}")))?;
        if !screen.show(&chunk)? {
            return Ok(());
        }
    }
    screen.end().map(|_| ())
}
