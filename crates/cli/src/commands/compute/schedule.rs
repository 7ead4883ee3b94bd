//! `compute schedule`: windows on a cluster's minimum and maximum, by cron expressions in a time zone.

use crate::args::{named, whole};
use crate::client::segment;
use crate::failure::{Failure, Outcome};
use crate::output::Column;
use crate::session::Session;
use clap::{Args, Subcommand, ValueEnum};
use neap_spec::Document;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Hold a cluster's minimum or maximum at another number at certain times
    ///
    /// From each start to the next end (or for a duration) the window is open and its numbers are in force; outside of windows the
    /// declared ones are. Where windows overlap, the lowest maximum and the highest minimum hold. The declared maximum stays held in
    /// the quota.
    Create(Box<CreateArgs>),
    /// List the schedules of a cluster, with what each does next
    #[command(after_help = "Examples:\n  neap compute schedule list cpu-cluster -o table")]
    List(ClusterArgs),
    /// Show one schedule of a cluster
    #[command(after_help = "Examples:\n  neap compute schedule show cpu-cluster -n nights")]
    Show(NameArgs),
    /// Switch a schedule on; if its window is open, it holds at once
    #[command(after_help = "Examples:\n  neap compute schedule enable cpu-cluster -n nights")]
    Enable(NameArgs),
    /// Switch a schedule off; what is declared is in force at once
    #[command(after_help = "Examples:\n  neap compute schedule disable cpu-cluster -n nights")]
    Disable(NameArgs),
    /// Delete a schedule; what is declared is in force at once
    #[command(after_help = "Examples:\n  neap compute schedule delete cpu-cluster -n nights")]
    Delete(NameArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Running {
    /// It is left to end; its node goes then
    Finish,
    /// It is stopped as by an eviction, and waits in the queue
    Stop,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    neap compute schedule create cpu-cluster -n nights --start \"0 20 * * *\" --end \"0 7 * * *\" --time-zone Europe/Berlin --max 0\n  \
    neap compute schedule create cpu-cluster -n office --start \"0 8 * * MON-FRI\" --duration 10h --min 2 --not-on 2026-12-25\n  \
    neap compute schedule create cpu-cluster -f nights.yml")]
pub struct CreateArgs {
    /// Name of the cluster
    #[arg(value_parser = named)]
    cluster: String,
    /// YAML file with the schedule; flags win over it
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name of the schedule
    #[arg(long, short = 'n', value_parser = named)]
    name: Option<String>,
    /// When the window opens: a cron expression of five fields
    #[arg(long, value_name = "CRON")]
    start: Option<String>,
    /// When it closes: the first such time after the start
    #[arg(long, value_name = "CRON", conflicts_with = "duration")]
    end: Option<String>,
    /// How long it is open: 90m, 11h, 2d
    #[arg(long)]
    duration: Option<String>,
    /// IANA or Windows name [default: UTC]
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// Fewest nodes while it is open
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
    min: Option<i64>,
    /// Most nodes while it is open; at most what is declared
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
    max: Option<i64>,
    /// What becomes of jobs on nodes beyond the maximum [default: finish]
    #[arg(long, value_enum)]
    running: Option<Running>,
    /// A date on which it does not open; may be given several times
    #[arg(long, value_name = "DATE")]
    not_on: Vec<String>,
    /// A date on which it is open the whole day; may be given several times
    #[arg(long, value_name = "DATE")]
    also_on: Vec<String>,
    /// Put it in place switched off
    #[arg(long)]
    disabled: bool,
}

#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Name of the cluster
    #[arg(value_parser = named)]
    cluster: String,
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// Name of the cluster
    #[arg(value_parser = named)]
    cluster: String,
    /// Name of the schedule
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
}

const COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Enabled", "enabled"),
    ("Open", "open"),
    ("Min", "min"),
    ("Max", "max"),
    ("Start", "start"),
    ("End", "end"),
    ("Duration", "duration"),
    ("Does", "next_change.does"),
    ("At", "next_change.clock"),
];

pub async fn run(command: &ScheduleCommand, session: &Session) -> Outcome<()> {
    match command {
        ScheduleCommand::Create(args) => create(args, session).await,
        ScheduleCommand::List(args) => {
            let answer = session.client.get(&path(session, &args.cluster, None)).await?;
            session.print(&answer["value"], COLUMNS)
        }
        ScheduleCommand::Show(args) => {
            let answer = session.client.get(&path(session, &args.cluster, Some(&args.name))).await?;
            session.print(&answer, COLUMNS)
        }
        ScheduleCommand::Enable(args) => switch(args, "enable", session).await,
        ScheduleCommand::Disable(args) => switch(args, "disable", session).await,
        ScheduleCommand::Delete(args) => {
            let path = path(session, &args.cluster, Some(&args.name));
            session.client.call(Method::DELETE, &path, None).await?;
            session.terminal.note(&format!("The schedule '{}' of {} is gone.", args.name, args.cluster));
            Ok(())
        }
    }
}

fn path(session: &Session, cluster: &str, name: Option<&str>) -> String {
    let below = name.map_or_else(String::new, |name| format!("/{}", segment(name)));
    session.own_path(&format!("computes/{}/schedules{below}", segment(cluster)))
}

async fn switch(args: &NameArgs, verb: &str, session: &Session) -> Outcome<()> {
    let path = format!("{}/{verb}", path(session, &args.cluster, Some(&args.name)));
    let answer = session.client.call(Method::POST, &path, None).await?.body;
    session.print(&answer, COLUMNS)
}

async fn create(args: &CreateArgs, session: &Session) -> Outcome<()> {
    let (name, body) = body(args)?;
    let path = path(session, &args.cluster, Some(&name));
    let answer = session.client.call(Method::PUT, &path, Some(&body)).await?.body;
    session.print(&answer, COLUMNS)
}

/// The file with the flags over it. What is wrong with it is the server's to say.
fn body(args: &CreateArgs) -> Outcome<(String, Value)> {
    let mut body = match &args.file {
        None => json!({}),
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
            Document::parse(&text).map_err(|error| Failure::from(error).of_file(Some(file)))?.value
        }
    };
    for (key, value) in [
        ("name", &args.name),
        ("start", &args.start),
        ("end", &args.end),
        ("duration", &args.duration),
        ("time_zone", &args.time_zone),
    ] {
        if let Some(value) = value {
            body[key] = value.as_str().into();
        }
    }
    for (key, value) in [("min", args.min), ("max", args.max)] {
        if let Some(value) = value {
            body[key] = value.into();
        }
    }
    for (key, dates) in [("not_on", &args.not_on), ("also_on", &args.also_on)] {
        if !dates.is_empty() {
            body[key] = json!(dates);
        }
    }
    if let Some(running) = args.running {
        body["running"] = match running {
            Running::Finish => "finish",
            Running::Stop => "stop",
        }
        .into();
    }
    if args.disabled {
        body["enabled"] = false.into();
    }
    let name = body["name"].as_str().map(str::to_owned);
    let name = name.ok_or_else(|| Failure::usage("the schedule has no name").hint("give it with --name"))?;
    // The file's may be any text.
    let name = named(&name).map_err(|why| Failure::usage(why).of_file(args.file.as_deref()))?;
    Ok((name, body))
}
