//! `neap schedule`: jobs that are created by the clock.

use super::resource::{ChangeArgs, DeleteArgs, NameArgs, Resource, path};
use crate::args::{Global, named, whole};
use crate::commands::block_on;
use crate::entity;
use crate::failure::{Failure, Outcome};
use crate::output::Column;
use crate::preparation;
use crate::session::Session;
use crate::specification::Specification;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_spec::schedule_request;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Create a schedule, or replace one
    ///
    /// The job's code and local inputs are uploaded now; each trigger submits the job as it is now.
    Create(CreateArgs),
    /// Show a schedule
    #[command(after_help = "Examples:\n  neap schedule show -n nightly")]
    Show(NameArgs),
    /// List schedules
    List(ListArgs),
    /// Change the display name, description, tags or trigger of a schedule
    #[command(
        after_help = "Examples:\n  neap schedule update -n nightly --set trigger.expression=\"30 2 * * *\"\n  \
                            neap schedule update -n nightly --set tags.team=vision"
    )]
    Update(UpdateArgs),
    /// Let a schedule create jobs again
    #[command(after_help = "Examples:\n  neap schedule enable -n nightly")]
    Enable(NameArgs),
    /// Keep a schedule from creating jobs
    #[command(after_help = "Examples:\n  neap schedule disable -n nightly")]
    Disable(NameArgs),
    /// Create the schedule's job once, now
    #[command(
        after_help = "Examples:\n  neap job stream -n $(neap schedule trigger -n nightly --query job_name -o tsv)"
    )]
    Trigger(NameArgs),
    /// Delete a schedule; jobs that it created stay
    #[command(after_help = "Examples:\n  neap schedule delete -n nightly --yes")]
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap schedule create -f schedule.yml\n  \
                        neap schedule create -f schedule.yml -n nightly --set trigger.time_zone=UTC")]
pub struct CreateArgs {
    /// YAML file with the schedule
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
    /// Name [default: the file's]
    #[arg(long, short = 'n', value_parser = named)]
    name: Option<String>,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Return when the request is accepted
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap schedule list -o table\n  neap schedule list --include-disabled")]
pub struct ListArgs {
    /// Most results to return
    #[arg(long, short = 'r', value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    max_results: Option<usize>,
    /// Only disabled ones
    #[arg(long)]
    disabled_only: bool,
    /// Disabled ones too
    #[arg(long, conflicts_with = "disabled_only")]
    include_disabled: bool,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Name
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    #[command(flatten)]
    change: ChangeArgs,
}

const COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Enabled", "is_enabled"),
    ("Trigger", "trigger.type"),
    ("Expression", "trigger.expression"),
    ("Frequency", "trigger.frequency"),
    ("State", "provisioning_state"),
];

const SCHEDULE: Resource = Resource { word: "schedule", entity: entity::schedule, columns: COLUMNS };

pub fn run(command: &ScheduleCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    if let ScheduleCommand::Create(args) = command {
        create(args, global, terminal)?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        let at = |name: &str| path(&session, "schedules", name);
        match command {
            ScheduleCommand::Create(_) => {}
            ScheduleCommand::Show(args) => SCHEDULE.show(&session, &at(&args.name)).await?,
            ScheduleCommand::List(args) => {
                let view = match (args.disabled_only, args.include_disabled) {
                    (true, _) => "DisabledOnly",
                    (false, true) => "All",
                    (false, false) => "EnabledOnly",
                };
                let path = session.path(&format!("schedules?listViewType={view}"));
                SCHEDULE.list(&session, &path, args.max_results).await?;
            }
            ScheduleCommand::Update(args) => update(args, &session).await?,
            ScheduleCommand::Enable(args) => set_enabled(&args.name, true, &session).await?,
            ScheduleCommand::Disable(args) => set_enabled(&args.name, false, &session).await?,
            ScheduleCommand::Trigger(args) => trigger(&args.name, &session).await?,
            ScheduleCommand::Delete(args) => SCHEDULE.delete(&session, &at(&args.name), args, "").await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn create(args: &CreateArgs, global: &Global, terminal: &Terminal) -> Outcome<()> {
    let flags = [("name", args.name.clone().map(Value::from))];
    let specification = Specification::load(Some(&args.file), &flags, &args.set)?;
    specification.check(schedule_request)?;
    let session = Session::open(global, terminal)?;
    block_on(async {
        let mut request = specification.plan(&session.scope, schedule_request)?;
        preparation::perform(&mut request, &session).await?;
        let path = path(&session, "schedules", &request.name);
        SCHEDULE.put(&session, &path, &request.body, !args.no_wait).await
    })
}

/// The keys of a file that may change, and where the wire has them.
async fn update(args: &UpdateArgs, session: &Session) -> Outcome<()> {
    let path = path(session, "schedules", &args.name);
    let mut resource = session.client.get(&path).await?;
    let mut tree = entity::schedule(&resource);
    args.change.apply(&mut tree)?;
    // The trigger is read as a file's is, with a job that is there already in the job's place.
    let checked = Specification::of_value(
        json!({"name": args.name, "trigger": tree["trigger"], "create_job": "azureml:unchanged",
            "display_name": tree["display_name"], "description": tree["description"], "tags": tree["tags"]}),
        &[],
        &[],
    )?;
    let request = checked.plan(&session.scope, schedule_request)?;
    for assignment in &args.change.set {
        let top = assignment.split(['.', '=', '[']).next().unwrap_or_default();
        if !["trigger", "display_name", "description", "tags"].contains(&top) {
            return Err(Failure::usage(format!("{top} of a schedule is not changed by --set"))
                .hint("create it again from its file; what can: trigger, display_name, description, tags"));
        }
    }
    for key in ["trigger", "displayName", "description", "tags"] {
        resource["properties"][key] = request.body["properties"][key].clone();
    }
    let body = json!({"properties": resource["properties"]});
    SCHEDULE.put(session, &path, &body, !args.change.no_wait).await
}

async fn set_enabled(name: &str, enabled: bool, session: &Session) -> Outcome<()> {
    let path = path(session, "schedules", name);
    let mut resource = session.client.get(&path).await?;
    resource["properties"]["isEnabled"] = enabled.into();
    SCHEDULE.put(session, &path, &json!({"properties": resource["properties"]}), true).await
}

#[allow(clippy::disallowed_methods, reason = "the client says when it asks, as Azure's do")]
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    neap_core::Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)).rfc3339()
}

async fn trigger(name: &str, session: &Session) -> Outcome<()> {
    let path = format!("{}/trigger", path(session, "schedules", name));
    // The time names the firing: the same request again is the same job.
    let answer = session.client.call(Method::POST, &path, Some(&json!({"scheduleTime": now()}))).await?.body;
    let shown = json!({
        "job_name": answer.get("jobName").or_else(|| answer.get("submissionId")).cloned(),
        "schedule_action_type": answer.get("scheduleActionType").cloned(),
    });
    session.print(&shown, &[("Job", "job_name")])
}
