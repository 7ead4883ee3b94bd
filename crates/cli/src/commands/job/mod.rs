//! `neap job`: submit, watch, fetch.

mod children;
mod create;
mod download;
mod edit;
mod family;
mod metrics;
mod services;
mod ssh;
mod stream;
mod validate;

pub use create::{builder, check};

use crate::args::{Global, named, whole};
use crate::client::segment;
use crate::commands::block_on;
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::moment::AtArgs;
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Submit a job
    ///
    /// The code folder and local inputs are uploaded first; a snapshot that the server has already is not sent again.
    /// Files named by .amlignore (else .gitignore) in the folder, and .git and __pycache__, stay here. Relative paths
    /// count from the YAML file.
    Create(create::CreateArgs),
    /// Show a job
    Show(ShowArgs),
    /// Show what a job logged: the last value of each metric, or one metric's history
    Metrics(metrics::MetricsArgs),
    /// List jobs, newest first
    List(ListArgs),
    /// Print the log of a job as it is written, until the job ends
    ///
    /// Of a pipeline or a sweep, its children are said as they start and end, and each line of theirs has the child's
    /// name before it.
    Stream(NameArgs),
    /// Cancel a job
    Cancel(NameArgs),
    /// Download the logs and outputs of a job
    ///
    /// Logs and default artifacts go to DIR/artifacts, named outputs to DIR/named-outputs/NAME. Of a sweep, the best
    /// trial is downloaded, and the sweep's own artifacts to DIR/hd-artifacts.
    Download(download::DownloadArgs),
    /// Change the tags, description or display name of a job
    Update(edit::UpdateArgs),
    /// Hide a job from lists
    Archive(NameArgs),
    /// Show an archived job in lists again
    Restore(NameArgs),
    /// Log in to a job with ssh
    ///
    /// The job needs a service of type ssh with your public key. `ssh` itself is run, and reaches the job through the server;
    /// what follows `--` is given to it.
    ConnectSsh(ssh::ConnectArgs),
    /// Show the services of a job, and where they are reached
    ShowServices(services::ServicesArgs),
    /// Print a link by which a browser reaches a service of a job
    ///
    /// The link works once, within a minute, and leaves a cookie for this one service.
    OpenService(services::OpenArgs),
    /// Pipe stdin and stdout to a service of a job
    ///
    /// For the ProxyCommand of ssh and its kind.
    Tunnel(ssh::TunnelArgs),
    /// Check a job's file without submitting it
    ///
    /// Every problem is said at once, with its line. No server is asked.
    Validate(validate::ValidateArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job stream -n brisk_tide_4k2m9x7qpz\n  neap job cancel -n brisk_tide_4k2m9x7qpz"
)]
pub struct NameArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    pub name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap job show -n brisk_tide_4k2m9x7qpz\n  \
                        neap job show -n brisk_tide_4k2m9x7qpz --query \"{status: status, why: queue_reason}\"\n  \
                        neap job show -n brisk_tide_4k2m9x7qpz --provenance")]
pub struct ShowArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// What it was made of and ran on: code, environment, inputs, nodes, versions, times
    #[arg(long, conflicts_with = "at")]
    provenance: bool,
    #[arg(long, short = 'e', hide = true)]
    web: bool,
    #[command(flatten)]
    at: AtArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job list -o table\n  neap job list --parent-job-name my-pipeline -o table\n  neap job list --all-results --query \"[?status=='Failed'].name\" -o tsv"
)]
pub struct ListArgs {
    /// Most results to return
    #[arg(long, short = 'r', value_name = "N", default_value_t = 50, allow_negative_numbers = true, value_parser = whole::<usize>)]
    max_results: usize,
    /// Return all
    #[arg(long)]
    all_results: bool,
    /// Only archived jobs
    #[arg(long)]
    archived_only: bool,
    /// Archived jobs too
    #[arg(long, conflicts_with = "archived_only")]
    include_archived: bool,
    /// The children of this job: the steps of a pipeline, the trials of a sweep
    #[arg(long, short = 'p', value_name = "NAME", value_parser = named)]
    #[arg(conflicts_with = "at")]
    parent_job_name: Option<String>,
    #[command(flatten)]
    at: AtArgs,
}

const COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Status", "status"),
    ("Experiment", "experiment_name"),
    ("Compute", "compute"),
    ("Created", "creation_context.created_at"),
    ("Place", "queue_position"),
    ("EstimatedStart", "estimated_start"),
    ("Display", "display_name"),
];

pub fn run(command: JobCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let command = match command {
        JobCommand::Create(args) => return create::run(&args, global, terminal),
        JobCommand::ConnectSsh(args) => return ssh::connect(&args, global, terminal),
        JobCommand::Tunnel(args) => return ssh::tunnel(&args, global, terminal),
        JobCommand::Validate(args) => return validate::run(&args, global),
        other => other,
    };
    let session = Session::open(global, terminal)?;
    block_on(run_connected(&command, &session))
}

async fn run_connected(command: &JobCommand, session: &Session) -> Outcome<ExitCode> {
    match command {
        JobCommand::Show(args) => {
            refuse_web(args.web)?;
            if args.provenance {
                session.print(&provenance(session, &args.name).await?, COLUMNS)?;
                return Ok(ExitCode::SUCCESS);
            }
            if args.at.is_given() {
                let path = args.at.on(&path(session, &args.name))?;
                let job = session.client.get(&path).await?;
                if job.get("properties").is_none_or(Value::is_null) {
                    return Err(Failure::failed(format!("{} is part of another job", args.name))
                        .hint("--at shows jobs by themselves; ask for the job that it is part of"));
                }
                session.print(&entity::job(&job), COLUMNS)?;
                return Ok(ExitCode::SUCCESS);
            }
            let job = get(session, &args.name).await?;
            metrics::show(session, &job, COLUMNS).await?;
            if let Some(hint) = job["properties"]["properties"]["neap.gpu.hint"].as_str() {
                session.terminal.note(&format!("hint: {hint}"));
            }
        }
        JobCommand::Metrics(args) => metrics::run(args, session).await?,
        JobCommand::ShowServices(args) => services::run(args, session).await?,
        JobCommand::OpenService(args) => services::open(args, session).await?,
        JobCommand::List(args) => list(args, session).await?,
        JobCommand::Stream(args) => return stream::follow(&args.name, session).await,
        JobCommand::Cancel(args) => cancel(args, session).await?,
        JobCommand::Download(args) => download::run(args, session).await?,
        JobCommand::Update(args) => edit::update(args, session).await?,
        JobCommand::Archive(args) => edit::set_archived(&args.name, true, session).await?,
        JobCommand::Restore(args) => edit::set_archived(&args.name, false, session).await?,
        JobCommand::Create(_)
        | JobCommand::ConnectSsh(_)
        | JobCommand::Tunnel(_)
        | JobCommand::Validate(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// There are no pages to open yet.
fn refuse_web(asked: bool) -> Outcome<()> {
    if asked {
        return Err(Failure::usage("--web is not offered: there are no pages to open yet")
            .hint("`neap job show` and `neap job stream` say how a job is"));
    }
    Ok(())
}

/// Follows a job that another command made.
pub async fn stream_job(name: &str, session: &Session) -> Outcome<ExitCode> {
    stream::follow(name, session).await
}

/// The ARM resource of a job. A step of a pipeline has none of its own: what the history says of it is laid in.
async fn get(session: &Session, name: &str) -> Outcome<Value> {
    let mut resource = session.client.get(&path(session, name)).await?;
    if resource.get("properties").is_some_and(Value::is_null) {
        let run = session.client.get(&session.history_path(&format!("runs/{}", segment(name)))).await?;
        resource["properties"] = entity::properties_of_run(&run);
    }
    Ok(resource)
}

/// What a job was made of and ran on, as it was then.
async fn provenance(session: &Session, name: &str) -> Outcome<Value> {
    session.client.get(&session.own_path(&format!("jobs/{}/provenance", segment(name)))).await
}

fn path(session: &Session, name: &str) -> String {
    session.path(&format!("jobs/{}", segment(name)))
}

fn print(session: &Session, resource: &Value) -> Outcome<()> {
    session.warn_of(resource);
    session.print(&entity::job(resource), COLUMNS)
}

async fn list(args: &ListArgs, session: &Session) -> Outcome<()> {
    let limit = (!args.all_results).then_some(args.max_results);
    if let Some(parent) = &args.parent_job_name {
        // A parent that does not exist is said; the history of no job is empty.
        get(session, parent).await?;
        let rows = children::list(session, parent, limit).await?;
        return session.print(&Value::Array(rows.iter().map(entity::run).collect()), COLUMNS);
    }
    let view = match (args.archived_only, args.include_archived) {
        (true, _) => "ArchivedOnly",
        (false, true) => "All",
        (false, false) => "ActiveOnly",
    };
    let jobs =
        session.client.list(&args.at.on(&session.path(&format!("jobs?listViewType={view}")))?, limit).await?;
    session.print(&Value::Array(jobs.iter().map(entity::job).collect()), COLUMNS)
}

async fn cancel(args: &NameArgs, session: &Session) -> Outcome<()> {
    let path = format!("{}/cancel", path(session, &args.name));
    let answer = session.client.call(Method::POST, &path, None).await?;
    let spinner = session.terminal.spinner(&format!("canceling {}", args.name));
    let waited = session.client.wait(&answer).await;
    spinner.finish_and_clear();
    waited
}
