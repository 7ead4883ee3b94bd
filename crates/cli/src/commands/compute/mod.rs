//! `neap compute`: clusters, their nodes, and the sizes to choose from.

mod change;
mod definition;
mod delete;
mod describe;
mod evict;
mod health;
mod revisions;
mod schedule;
mod show;

pub use change::changed;
pub use definition::ScaleArgs;

use crate::args::{Global, named};
use crate::commands::block_on;
use crate::failure::{Failure, Outcome};
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum ComputeCommand {
    /// Declare a cluster, or change one that exists
    ///
    /// The specification comes from a YAML file, from flags, or from both: flags win over the file, --set wins over
    /// flags. A cluster that exists under the name is changed where it may change (min, max, idle time, tags,
    /// description, identity), and the rest is refused.
    Create(Box<definition::CreateArgs>),
    /// Show a cluster
    Show(show::ShowArgs),
    /// List clusters
    List(show::ListArgs),
    /// Change a cluster
    ///
    /// Minimum, maximum, idle time, tags, description and identity change at once; a lower maximum takes idle nodes at once and
    /// busy ones when their job ends. Another size, tier, network or SSH setting replaces the nodes one by one, each once its jobs
    /// have ended: that is shown first, with nodes, quota, price and jobs, and asked for unless --yes is given. The location stays.
    Update(Box<definition::UpdateArgs>),
    /// Delete a cluster, its nodes and its unfinished jobs
    ///
    /// Unfinished jobs are canceled with the reason, nodes are removed, name and quota are released. It asks first,
    /// naming what hangs on it (jobs, schedules, batch deployments, budgets, locks), unless --yes is given.
    Delete(delete::DeleteArgs),
    /// List the definitions that a cluster has had, with who changed it and why
    History(revisions::HistoryArgs),
    /// Go back to an earlier definition of a cluster
    ///
    /// It shows what would change and asks first. The earlier definition becomes a new revision.
    Rollback(revisions::RollbackArgs),
    /// Take a node back, as an eviction would, and report what came of its jobs
    ///
    /// A drill: the node's jobs are warned, saved, queued again and restored elsewhere. The report says of each whether it
    /// runs again, with what, and how many seconds of work it lost. --simulate does nothing and says what would be lost.
    Evict(evict::EvictArgs),
    /// Say how a cluster is: one verdict, with the signals behind it
    ///
    /// healthy, degraded or failing. Every signal has its number and a sentence; the worst makes the verdict. The same
    /// numbers are in /metrics.
    Health(health::HealthArgs),
    /// Windows on a cluster's minimum and maximum: nights, weekends, holidays
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// List the nodes of a cluster, with state, reason and job
    ListNodes(show::NodesArgs),
    /// List the sizes a node can have
    ListSizes(show::SizesArgs),
    /// List what is used of each quota
    ListUsage(show::UsageArgs),
    /// Print the boot log of a node, also of one that is gone
    NodeLog(show::NodeLogArgs),
    #[command(hide = true)]
    Attach(Refused),
    #[command(hide = true)]
    Detach(Refused),
    #[command(hide = true)]
    Start(Refused),
    #[command(hide = true)]
    Stop(Refused),
    #[command(hide = true)]
    Restart(Refused),
    #[command(hide = true)]
    ConnectSsh(Refused),
    #[command(hide = true)]
    EnableSso(Refused),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap compute show -n cpu-cluster\n  \
                        neap compute show -n cpu-cluster --query \"{nodes: current_nodes, wanted: target_nodes}\"")]
pub struct NameArgs {
    /// Name of the cluster
    #[arg(long, short = 'n', value_parser = named)]
    pub name: String,
}

/// A command of `az ml compute` that Neap does not have; whatever follows is read and not used.
#[derive(Debug, Args)]
pub struct Refused {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<String>,
}

const CLUSTER_COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Size", "size"),
    ("Tier", "tier"),
    ("Min", "min_instances"),
    ("Max", "max_instances"),
    ("Idle", "idle_time_before_scale_down"),
    ("Nodes", "current_nodes"),
    ("Target", "target_nodes"),
    ("Allocation", "allocation_state"),
    ("State", "provisioning_state"),
    ("Location", "location"),
];

pub fn run(command: ComputeCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    match command {
        ComputeCommand::Create(args) => change::create(&args, global, terminal)?,
        ComputeCommand::Update(args) => change::update(&args, global, terminal)?,
        ComputeCommand::Show(args) => {
            with(global, terminal, async |session| show::show(&args, session).await)?;
        }
        ComputeCommand::List(args) => {
            with(global, terminal, async |session| show::list(&args, session).await)?;
        }
        ComputeCommand::Delete(args) => {
            with(global, terminal, async |session| delete::run(&args, session).await)?;
        }
        ComputeCommand::History(args) => {
            with(global, terminal, async |session| revisions::history(&args, session).await)?;
        }
        ComputeCommand::Rollback(args) => {
            with(global, terminal, async |session| revisions::rollback(&args, session).await)?;
        }
        ComputeCommand::Evict(args) => {
            let session = Session::open(global, terminal)?;
            return block_on(evict::run(&args, global, &session));
        }
        ComputeCommand::Health(args) => {
            with(global, terminal, async |session| health::run(&args, global, session).await)?;
        }
        ComputeCommand::Schedule(command) => {
            with(global, terminal, async |session| schedule::run(&command, session).await)?;
        }
        ComputeCommand::ListNodes(args) => {
            with(global, terminal, async |session| show::nodes(&args, session).await)?;
        }
        ComputeCommand::ListSizes(args) => {
            with(global, terminal, async |session| show::sizes(&args, session).await)?;
        }
        ComputeCommand::ListUsage(args) => {
            with(global, terminal, async |session| show::usage(&args, session).await)?;
        }
        ComputeCommand::NodeLog(args) => {
            with(global, terminal, async |session| show::node_log(&args, session).await)?;
        }
        ComputeCommand::Attach(refused) => return refuse("attach", &refused),
        ComputeCommand::Detach(refused) => return refuse("detach", &refused),
        ComputeCommand::Start(refused) => return refuse("start", &refused),
        ComputeCommand::Stop(refused) => return refuse("stop", &refused),
        ComputeCommand::Restart(refused) => return refuse("restart", &refused),
        ComputeCommand::ConnectSsh(refused) => return refuse("connect-ssh", &refused),
        ComputeCommand::EnableSso(refused) => return refuse("enable-sso", &refused),
    }
    Ok(ExitCode::SUCCESS)
}

fn with(
    global: &Global,
    terminal: &Terminal,
    command: impl AsyncFnOnce(&Session) -> Outcome<()>,
) -> Outcome<()> {
    let session = Session::open(global, terminal)?;
    block_on(command(&session))
}

fn refuse(command: &str, refused: &Refused) -> Outcome<ExitCode> {
    let _ = &refused.rest;
    let instead = match command {
        "attach" | "detach" => {
            "Neap makes the nodes of its clusters itself; declare one with `neap compute create`"
        }
        "connect-ssh" => {
            "nodes take no logins; look at `neap compute list-nodes`, `neap compute node-log` and `neap job stream`"
        }
        "enable-sso" => {
            "it is for compute instances, which Neap does not offer; use a cluster with `neap compute create`"
        }
        _ => {
            "it is for compute instances, which Neap does not offer; a cluster starts and stops its nodes by itself, \
             within the bounds of `neap compute update --min-instances --max-instances`"
        }
    };
    Err(Failure::usage(format!("`compute {command}` is not offered: {instead}")))
}
