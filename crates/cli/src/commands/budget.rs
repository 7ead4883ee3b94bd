//! `neap budget`: how much money may be spent, on what, and how it stands.

use crate::args::{Global, On, named, whole};
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
pub enum BudgetCommand {
    /// Set a budget, or change its amount
    ///
    /// The amount is hard: what nodes may cost is reserved before they are asked for, and nodes whose reservation cannot be renewed are
    /// gone before it ends. Jobs wait for money, and say so. Naming a budget that is there changes what is given; what it is on and its
    /// period stay.
    Create(CreateArgs),
    /// List budgets, with what is spent, reserved and left
    #[command(after_help = "Examples:\n  neap budget list -o table")]
    List,
    /// Show one budget, with earlier periods
    #[command(after_help = "Examples:\n  neap budget show -n team-red")]
    Show(NameArgs),
    /// Take a budget away; what waited for it goes on at once
    #[command(after_help = "Examples:\n  neap budget delete -n team-red")]
    Delete(NameArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Period {
    Day,
    Week,
    Month,
    Total,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AtCap {
    /// Nothing new is started; what runs is stopped in time and waits in the queue
    StopNew,
    /// The same, and what runs has time to save a checkpoint
    CheckpointAndDrain,
}

/// What it is on.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct ScopeArgs {
    /// The workspace (-w), or its resource group (-g)
    #[arg(long, value_enum)]
    on: Option<On>,
    /// A cluster of the workspace
    #[arg(long, value_name = "NAME", value_parser = named)]
    compute: Option<String>,
    /// Jobs of one user, and what nodes cost because of them
    #[arg(long, value_name = "NAME", value_parser = named)]
    user: Option<String>,
    /// Jobs that are submitted with this tag
    #[arg(long, value_name = "NAME=VALUE")]
    tag: Option<String>,
    /// One job by name, with all it is made of; it need not be there yet
    #[arg(long, value_name = "NAME", value_parser = named)]
    job: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap budget create -n vision --amount 500 --period month --on workspace -w vision\n  \
                        neap budget create -n alice --amount 20 --period day --user alice --threshold 80 --threshold 100\n  \
                        neap budget create -n paper --amount 150 --period total --tag project=paper --at-cap checkpoint-and-drain\n  \
                        neap budget create -n vision --amount 750"
)]
pub struct CreateArgs {
    /// Name of the budget
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// US dollars per period
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    amount: Option<String>,
    /// How soon there is new money; days, weeks and months are those of UTC [default: month]
    #[arg(long, value_enum)]
    period: Option<Period>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// What becomes of running attempts when there is nothing left [default: stop-new]
    #[arg(long, value_enum)]
    at_cap: Option<AtCap>,
    /// A percentage of the amount at which an alert is sent; may be given several times [default: 50, 80 and 100]
    #[arg(long = "threshold", value_name = "PERCENT", allow_negative_numbers = true, value_parser = whole::<u32>)]
    thresholds: Vec<u32>,
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// Name of the budget
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
}

const COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("On", "on"),
    ("Amount", "amount_usd"),
    ("Period", "period"),
    ("Spent", "spent_usd"),
    ("Reserved", "reserved_usd"),
    ("Left", "left_usd"),
    ("PeriodEnd", "period_end"),
    ("AtCap", "at_cap"),
];

const BUDGETS: &str = "/neap/v1/budgets";

pub fn run(command: &BudgetCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let session = Session::open(global, terminal)?;
    block_on(async {
        match command {
            BudgetCommand::Create(args) => create(args, &session).await?,
            BudgetCommand::List => {
                let answer = session.client.get(BUDGETS).await?;
                session.print(&answer["value"], COLUMNS)?;
            }
            BudgetCommand::Show(args) => {
                let budget = session.client.get(&path(&args.name)).await?;
                session.print(&budget, COLUMNS)?;
            }
            BudgetCommand::Delete(args) => {
                session.client.call(Method::DELETE, &path(&args.name), None).await?;
                session.terminal.note(&format!("The budget '{}' is gone.", args.name));
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn path(name: &str) -> String {
    format!("{BUDGETS}/{}", segment(name))
}

async fn create(args: &CreateArgs, session: &Session) -> Outcome<()> {
    let mut body = json!({});
    if let Some(amount) = &args.amount {
        body["amount_usd"] = amount.as_str().into();
    }
    if let Some(period) = args.period {
        body["period"] = match period {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
            Period::Total => "total",
        }
        .into();
    }
    if let Some(at_cap) = args.at_cap {
        body["at_cap"] = match at_cap {
            AtCap::StopNew => "stop_new",
            AtCap::CheckpointAndDrain => "checkpoint_and_drain",
        }
        .into();
    }
    if !args.thresholds.is_empty() {
        body["thresholds"] = json!(args.thresholds);
    }
    if let Some(scope) = scope(&args.scope, session)? {
        body["scope"] = scope;
    }
    let answer = session.client.call(Method::PUT, &path(&args.name), Some(&body)).await?.body;
    session.print(&answer, COLUMNS)
}

fn scope(args: &ScopeArgs, session: &Session) -> Outcome<Option<Value>> {
    let mut place = json!({
        "subscription": session.scope.subscription_id,
        "resource_group": session.scope.resource_group,
        "workspace": session.scope.workspace,
    });
    let mut of = |kind: &str, key: &str, value: &str| {
        place["kind"] = kind.into();
        if !key.is_empty() {
            place[key] = value.into();
        }
        Some(place.clone())
    };
    Ok(if let Some(compute) = &args.compute {
        of("cluster", "compute", compute)
    } else if let Some(job) = &args.job {
        of("job", "job", job)
    } else if let Some(user) = &args.user {
        Some(json!({"kind": "user", "user": user}))
    } else if let Some(tag) = &args.tag {
        let Some((name, value)) = tag.split_once('=') else {
            return Err(Failure::usage(format!("--tag {tag}: not a tag")).hint("write --tag NAME=VALUE"));
        };
        Some(json!({"kind": "tag", "tag": name, "value": value}))
    } else {
        match args.on {
            Some(On::Workspace) => of("workspace", "", ""),
            Some(On::Group) => of("resource_group", "", ""),
            None => None,
        }
    })
}
