//! The command line: what every command takes, and the tree of commands. Each group defines its own flags in its file.

use crate::commands::{
    asset, batch, budget, completion, compute, configure, cost, datastore, diff, down, env, explain, job,
    lock, node, plan, queue, quota, schedule, secret, status, waste, workspace,
};
use crate::local::{agent, attend, bench, container, doctor, launch, sim, up, verify};
use crate::output::Format;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;

/// What a lock or a budget is on, where it is not a single cluster.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum On {
    Workspace,
    Group,
}

#[derive(Debug, Parser)]
#[command(
    name = "neap",
    version,
    max_term_width = 100,
    about = "Compute clusters for machine learning, on your own machines, in Azure ML's language",
    long_about = "Neap runs compute clusters: elastic pools of nodes that rise when jobs are submitted and fall back \
                  to their minimum, usually zero, when they are done. The commands take the flags and the YAML files \
                  that `az ml` takes; `neap ml compute ...` means the same as `neap compute ...`.",
    after_help = "Examples:\n  neap up --detach                         start the server\n  \
                  neap compute create -f cluster.yml       declare a cluster\n  \
                  neap job create -f job.yml --stream      submit a job and watch its log\n  \
                  eval \"$(neap env)\"                       point the Azure ML SDK at this server\n\n\
                  Exit codes: 0 done, 1 refused or failed, 2 wrong usage or file, 3 not found, 4 no server answers."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Data folder of the server [default: the user's XDG data folder, neap]
    #[arg(long, global = true, env = "NEAP_HOME", hide_env_values = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Resource group
    #[arg(
        long,
        short = 'g',
        global = true,
        env = "NEAP_RESOURCE_GROUP",
        hide_env_values = true,
        value_name = "NAME"
    )]
    pub resource_group: Option<String>,
    /// Workspace
    #[arg(
        long,
        short = 'w',
        global = true,
        env = "NEAP_WORKSPACE",
        hide_env_values = true,
        value_name = "NAME"
    )]
    pub workspace_name: Option<String>,
    /// Subscription id
    #[arg(long, global = true, env = "NEAP_SUBSCRIPTION_ID", hide_env_values = true, value_name = "ID")]
    pub subscription: Option<String>,
    /// How the answer is written: json, jsonc, yaml, yamlc, table, tsv, csv or none [default: json]
    #[arg(long, short = 'o', global = true, value_enum, hide_possible_values = true, value_name = "FORMAT")]
    pub output: Option<Format>,
    /// JMESPath expression applied to the answer
    #[arg(long, global = true, value_name = "JMESPATH")]
    pub query: Option<String>,
    /// Say more about what is done
    #[arg(long, global = true)]
    pub verbose: bool,
    /// Show every request
    #[arg(long, global = true)]
    pub debug: bool,
    /// Show errors only, no warnings or progress
    #[arg(long, global = true)]
    pub only_show_errors: bool,
    // Flags that `az` takes on every writing command and that mean nothing here.
    #[arg(long, global = true, hide = true)]
    pub acquire_policy_token: bool,
    /// Why a change is made (a ticket, a sentence), kept with the change
    #[arg(long, global = true, value_name = "TEXT")]
    pub change_reference: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the server
    Up(up::UpArgs),
    /// Stop the server and its nodes
    Down(down::DownArgs),
    /// Show whether the server runs, and how it is
    Status(status::StatusArgs),
    /// Print the variables that point the Azure ML SDK at this server
    Env(env::EnvArgs),
    /// Look at this machine and say what works on it
    Doctor(doctor::DoctorArgs),
    /// Check the ledger of a data folder
    Verify(verify::VerifyArgs),
    /// Run the real code in a simulated world that breaks everything
    Sim(sim::SimArgs),
    #[command(flatten)]
    Resources(MlCommand),
    /// What nodes cost, by whom and for what
    Cost(cost::CostArgs),
    /// Say which setting would have saved money
    Waste(waste::WasteArgs),
    /// Why a job waits or a cluster is as it is, and the least that would change it
    #[command(subcommand)]
    Explain(explain::ExplainCommand),
    /// Who waits on a cluster, in which order, and what each has used
    Queue(queue::QueueArgs),
    /// When a job would start, what it would cost and whom it would delay; what a change of a cluster would mean
    Plan(plan::PlanArgs),
    /// Keep new work off a node, let it on again, or have it go
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// What is different about a cluster between two times
    Diff(diff::DiffArgs),
    /// Limits on cores: list, set, ask for more
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// How much money may be spent: set, list, show, delete
    #[command(subcommand)]
    Budget(budget::BudgetCommand),
    /// Values that jobs and datastores use by name, and that no log shows
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Keep clusters, workspaces and groups from being deleted or changed
    #[command(subcommand)]
    Lock(lock::LockCommand),
    /// Store defaults for this user
    Configure(configure::ConfigureArgs),
    /// Measure this installation
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a completion script for a shell
    Completion(completion::CompletionArgs),
    /// Print the version
    Version,
    /// The same commands, as `az ml` spells them
    #[command(subcommand, hide = true)]
    Ml(MlCommand),
    /// Serve as a node
    #[command(hide = true)]
    Agent(agent::AgentArgs),
    /// Start the services of a job on its node
    #[command(hide = true)]
    Attend(attend::AttendArgs),
    /// Start the processes of a job on its node
    #[command(hide = true)]
    Launch(launch::LaunchArgs),
    /// Drive the container engine for one attempt
    #[command(hide = true)]
    Container(container::ContainerArgs),
}

#[derive(Debug, Subcommand)]
pub enum MlCommand {
    /// Manage compute clusters
    #[command(subcommand)]
    Compute(compute::ComputeCommand),
    /// Manage jobs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Manage components, the building blocks of pipelines
    #[command(subcommand)]
    Component(asset::component::ComponentCommand),
    /// Manage environments
    #[command(subcommand)]
    Environment(asset::environment::EnvironmentCommand),
    /// Manage data assets
    #[command(subcommand)]
    Data(asset::data::DataCommand),
    /// Manage models
    #[command(subcommand)]
    Model(asset::model::ModelCommand),
    /// Manage datastores
    #[command(subcommand)]
    Datastore(datastore::DatastoreCommand),
    /// Manage schedules of jobs
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Manage batch endpoints, and run them over data
    #[command(subcommand)]
    BatchEndpoint(batch::endpoint::EndpointCommand),
    /// Manage the deployments of batch endpoints
    #[command(subcommand)]
    BatchDeployment(batch::deployment::DeploymentCommand),
    /// Manage workspaces
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
}

/// The name of something: one segment of a path, and neither this folder nor the one above.
pub fn named(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a name is needed".to_owned()),
        "." | ".." => Err(format!("'{text}' is no name")),
        name => Ok(name.to_owned()),
    }
}

/// A whole number. One below 0 is read where it can be: what refuses it then says what it may be.
pub fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "the number is too large".to_owned(),
        _ => "a whole number from 0 on is needed".to_owned(),
    })
}

/// A number that there is: not `nan`, not `inf`.
pub fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "a number is needed".to_owned())
}

/// A flag that `az` lets stand alone or with true/false.
pub fn flag_value(text: &str) -> Result<bool, String> {
    match text.to_lowercase().as_str() {
        "true" | "1" | "yes" | "y" | "on" => Ok(true),
        "false" | "0" | "no" | "n" | "off" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_another_path_is_no_name() {
        for wrong in ["", ".", ".."] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
        assert_eq!(named("...").as_deref(), Ok("..."));
        assert_eq!(named("a b").as_deref(), Ok("a b"));
    }

    #[test]
    fn numbers_are_asked_for_in_words() {
        assert_eq!((whole::<u32>("7"), whole::<i64>("-7")), (Ok(7), Ok(-7)));
        for wrong in ["", "abc", "12.5", "none", "-1"] {
            assert_eq!(whole::<u32>(wrong), Err("a whole number from 0 on is needed".to_owned()), "{wrong}");
        }
        assert_eq!(whole::<u32>("4294967296"), Err("the number is too large".to_owned()));
        assert_eq!((number("0.5"), number("-1")), (Ok(0.5), Ok(-1.0)));
        for wrong in ["", "soon", "nan", "inf"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }
}
