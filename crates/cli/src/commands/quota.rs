//! `neap quota`: how many cores may be held, what is held, and asking for more.

use crate::args::{Global, named, whole};
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::{Failure, Outcome};
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// List limits, what clusters hold of them and what their nodes use
    ///
    /// A cluster holds the cores of its maximum, also at zero nodes. Without --all, only what is limited or held is listed.
    List(ListArgs),
    /// Set a limit, or take it away
    ///
    /// A limit below what is held takes nothing away: it stops growth until enough is given back.
    Set(SetArgs),
    /// Ask for a higher limit
    Request(RequestArgs),
    /// List what was asked for, and the answers
    #[command(after_help = "Examples:\n  neap quota requests -o table")]
    Requests,
    /// Grant a request: the limit is what was asked for
    #[command(after_help = "Examples:\n  neap quota approve 3 --reason \"until the paper is out\"")]
    Approve(AnswerArgs),
    /// Turn a request down
    #[command(after_help = "Examples:\n  neap quota deny 3 --reason \"westus is full, use eastus\"")]
    Deny(AnswerArgs),
    /// How much each user, one user or a team may have running: list, or set with --jobs and --cores
    ///
    /// Teams are in the configuration. What waits for such a limit holds nobody else up, and asks for no nodes.
    User(UserArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap quota user -o table\n  neap quota user --jobs 4\n  \
                        neap quota user --user ann --cores 64 --compute gpu-cluster\n  \
                        neap quota user --team vision --jobs 20\n  neap quota user --team vision --remove")]
pub struct UserArgs {
    /// One user; without --user and --team, each user by himself
    #[arg(long, conflicts_with = "team", value_parser = named)]
    user: Option<String>,
    /// All of a team together
    #[arg(long, value_parser = named)]
    team: Option<String>,
    /// On one cluster [default: in the workspace]
    #[arg(long, value_name = "CLUSTER", value_parser = named)]
    compute: Option<String>,
    /// Jobs at a time
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<u32>)]
    jobs: Option<u32>,
    /// Cores at a time
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<u32>)]
    cores: Option<u32>,
    /// Take the limit away
    #[arg(long, conflicts_with_all = ["jobs", "cores"])]
    remove: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap quota list -o table\n  neap quota list --location eastus --all")]
pub struct ListArgs {
    /// Region [default: the workspace's]
    #[arg(long, short = 'l')]
    location: Option<String>,
    /// Every family of sizes, also those that nobody uses
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Subscription,
    Workspace,
}

/// Which limit.
#[derive(Debug, Args)]
pub struct WhichArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Region [default: the workspace's]
    #[arg(long, short = 'l')]
    location: Option<String>,
    /// Whose limit: of everything in the subscription, or of the workspace alone
    #[arg(long, value_enum, default_value = "subscription")]
    level: Level,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct PoolArgs {
    /// Dedicated cores of one family of sizes, e.g. standardDSv2Family
    #[arg(long)]
    family: Option<String>,
    /// Dedicated cores of all families together
    #[arg(long)]
    dedicated: bool,
    /// Low-priority cores of all families together
    #[arg(long)]
    low_priority: bool,
    /// How many clusters there may be
    #[arg(long)]
    clusters: bool,
    /// How many nodes one cluster may have
    #[arg(long)]
    nodes_per_cluster: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap quota set --family standardNCASv3_T4Family --limit 64\n  \
                        neap quota set --dedicated --limit 200 --location eastus\n  \
                        neap quota set --dedicated --limit 40 --level workspace -w vision\n  \
                        neap quota set --low-priority --limit none")]
pub struct SetArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// The limit, or none to take it away
    #[arg(long, value_parser = limit, value_name = "N|none", allow_negative_numbers = true)]
    limit: Limit,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap quota request --family standardDSv2Family --limit 64 --reason \"nightly training\""
)]
pub struct RequestArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// The limit that is asked for
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    limit: u64,
    /// Why
    #[arg(long, default_value = "")]
    reason: String,
}

#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The request's number, as 'neap quota requests' shows it
    #[arg(allow_negative_numbers = true, value_parser = whole::<u64>)]
    request: u64,
    /// Why
    #[arg(long, default_value = "")]
    reason: String,
}

#[derive(Clone, Copy, Debug)]
struct Limit(Option<u64>);

fn limit(text: &str) -> Result<Limit, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Limit(None));
    }
    text.parse().map(|n| Limit(Some(n))).map_err(|_| "give a whole number, or none".to_owned())
}

const COLUMNS: &[Column] = &[
    ("Quota", "name"),
    ("Holder", "holder"),
    ("Held", "held"),
    ("InUse", "in_use"),
    ("Limit", "limit"),
    ("Free", "free"),
];

const REQUESTS: &[Column] = &[
    ("Id", "id"),
    ("Quota", "quota"),
    ("Holder", "holder"),
    ("Location", "location"),
    ("Now", "current_limit"),
    ("Asked", "limit"),
    ("By", "by"),
    ("Reason", "reason"),
    ("Status", "status"),
];

pub fn run(command: &QuotaCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            QuotaCommand::List(args) => list(args, &session).await?,
            QuotaCommand::Set(args) => set(args, &session).await?,
            QuotaCommand::Request(args) => request(args, &session).await?,
            QuotaCommand::Requests => {
                let answer = session.client.get(&requests_path(&session)).await?;
                session.print(&answer["value"], REQUESTS)?;
            }
            QuotaCommand::Approve(args) => answer(args, "approve", &session).await?,
            QuotaCommand::Deny(args) => answer(args, "deny", &session).await?,
            QuotaCommand::User(args) => user(args, &session).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

const ALLOWANCES: &[Column] = &[("Who", "who"), ("Within", "within"), ("Jobs", "jobs"), ("Cores", "cores")];

async fn user(args: &UserArgs, session: &Session) -> Outcome<()> {
    let path = session.own_path("allowances");
    let answer = if args.remove || args.jobs.is_some() || args.cores.is_some() {
        let body = json!({
            "user": args.user, "team": args.team, "compute": args.compute, "jobs": args.jobs, "cores": args.cores,
            "remove": args.remove,
        });
        session.client.call(Method::PUT, &path, Some(&body)).await?.body
    } else if args.user.is_some() || args.team.is_some() || args.compute.is_some() {
        return Err(Failure::usage("say how much").hint("--jobs N, --cores N, or --remove"));
    } else {
        session.client.get(&path).await?
    };
    session.print(&answer["value"], ALLOWANCES)
}

/// What clients are told where there is no limit.
const NO_LIMIT: i64 = i32::MAX as i64;

async fn list(args: &ListArgs, session: &Session) -> Outcome<()> {
    let location = session.location(args.location.as_deref()).await?;
    let answer = session.client.get(&location_path(session, &location, "usages")).await?;
    let rows: Vec<Value> =
        answer["value"].as_array().into_iter().flatten().filter_map(|row| shown(row, args.all)).collect();
    session.print(&Value::Array(rows), COLUMNS)
}

fn shown(row: &Value, all: bool) -> Option<Value> {
    let held = row["currentValue"].as_i64().unwrap_or(0);
    let limit = row["limit"].as_i64().filter(|limit| *limit != NO_LIMIT);
    if !all && held == 0 && limit.is_none() {
        return None;
    }
    Some(json!({
        "name": row["name"]["value"],
        "holder": holder(row["id"].as_str().unwrap_or_default()),
        "location": row["amlWorkspaceLocation"],
        "held": held,
        "in_use": row["inUse"],
        "limit": limit,
        "free": limit.map(|limit| (limit - held).max(0)),
        "id": row["id"],
    }))
}

/// The subscription, a workspace or a cluster, by the last name before `usages`.
fn holder(id: &str) -> String {
    let scope = id.split("/usages").next().unwrap_or_default();
    let mut parts = scope.rsplit('/');
    match (parts.next(), parts.next()) {
        (Some(name), Some("workspaces")) => format!("workspace {name}"),
        (Some(name), Some("computes")) => format!("compute {name}"),
        _ => "subscription".to_owned(),
    }
}

async fn set(args: &SetArgs, session: &Session) -> Outcome<()> {
    let location = session.location(args.which.location.as_deref()).await?;
    let Limit(limit) = args.limit;
    let wire = limit.map_or(json!(-1), Value::from);
    let id = args.which.id(session);
    let body =
        json!({"value": [{"id": id, "type": "", "limit": wire, "unit": "Count"}], "location": location});
    let answer = session
        .client
        .call(Method::POST, &location_path(session, &location, "updateQuotas"), Some(&body))
        .await?
        .body;
    let row = &answer["value"][0];
    let status = row["status"].as_str().unwrap_or_default();
    if status != "Success" {
        let message = row["message"].as_str().map_or_else(|| format!("({status})"), str::to_owned);
        return Err(Failure::failed(message));
    }
    session.print(
        &json!({"quota": args.which.pool.name(), "location": location, "limit": limit, "status": status}),
        &[("Quota", "quota"), ("Location", "location"), ("Limit", "limit"), ("Status", "status")],
    )
}

async fn request(args: &RequestArgs, session: &Session) -> Outcome<()> {
    let location = session.location(args.which.location.as_deref()).await?;
    let body = json!({"id": args.which.id(session), "location": location, "limit": args.limit, "reason": args.reason});
    let answer = session.client.call(Method::POST, &requests_path(session), Some(&body)).await?.body;
    session.print(&answer, REQUESTS)
}

async fn answer(args: &AnswerArgs, word: &str, session: &Session) -> Outcome<()> {
    let path = format!("{}/{}/{word}", requests_path(session), args.request);
    let answer = session.client.call(Method::POST, &path, Some(&json!({"reason": args.reason}))).await?.body;
    session.print(&answer, REQUESTS)
}

fn location_path(session: &Session, location: &str, tail: &str) -> String {
    format!(
        "/subscriptions/{}/providers/Microsoft.MachineLearningServices/locations/{}/{tail}",
        segment(&session.scope.subscription_id),
        segment(location)
    )
}

fn requests_path(session: &Session) -> String {
    format!("/neap/v1/subscriptions/{}/quotaRequests", segment(&session.scope.subscription_id))
}

impl WhichArgs {
    fn id(&self, session: &Session) -> String {
        let scope = match self.level {
            Level::Subscription => format!("/subscriptions/{}", session.scope.subscription_id),
            Level::Workspace => session.workspace_path(),
        };
        format!("{scope}/quotas/{}", self.pool.name().replace(' ', "_"))
    }
}

impl PoolArgs {
    /// As Azure calls it in `usages`.
    fn name(&self) -> String {
        match &self.family {
            Some(family) => {
                let stem = family
                    .strip_prefix("standard")
                    .or_else(|| family.strip_prefix("Standard"))
                    .unwrap_or(family);
                let stem =
                    stem.strip_suffix("Family").or_else(|| stem.strip_suffix(" Family")).unwrap_or(stem);
                format!("Standard {} Family Cluster Dedicated vCPUs", stem.trim())
            }
            None if self.dedicated => "Total Cluster Dedicated Regional vCPUs".to_owned(),
            None if self.low_priority => "Total Cluster LowPriority Regional vCPUs".to_owned(),
            None if self.clusters => "Clusters".to_owned(),
            None => "Nodes per Cluster".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_named_by_the_last_of_their_id() {
        let workspace = "/subscriptions/s/resourceGroups/g/providers/x/workspaces/vision";
        assert_eq!(holder("/subscriptions/s/usages"), "subscription");
        assert_eq!(holder(&format!("{workspace}/usages/A_B")), "workspace vision");
        assert_eq!(holder(&format!("{workspace}/computes/cpu/usages/A_B")), "compute cpu");
    }

    #[test]
    fn what_is_neither_held_nor_limited_is_left_out() {
        let row = |held: i64, limit: i64| json!({"id": "/subscriptions/s/usages", "name": {"value": "Clusters"}, "currentValue": held, "limit": limit});
        assert!(shown(&row(0, NO_LIMIT), false).is_none());
        assert_eq!(shown(&row(9, 4), false).map(|row| row["free"].clone()), Some(json!(0)));
    }
}
