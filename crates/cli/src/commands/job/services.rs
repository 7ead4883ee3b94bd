//! `job show-services` and `job open-service`: what runs beside a job, and how one gets there.

use crate::args::{named, whole};
use crate::client::segment;
use crate::failure::{Failure, Outcome};
use crate::output::Column;
use crate::session::Session;
use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job show-services -n run-7\n  neap job show-services -n run-7 --node-index 1"
)]
pub struct ServicesArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Index of the node
    #[arg(long, short = 'i', value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<u32>)]
    node_index: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap job open-service -n run-7 --service my_jupyterlab -o tsv")]
pub struct OpenArgs {
    /// Name of the job
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Name of the service
    #[arg(long, short = 's', value_parser = named)]
    service: String,
    /// Index of the node
    #[arg(long, short = 'i', value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = whole::<u32>)]
    node_index: u32,
}

const COLUMNS: &[Column] = &[];

pub async fn run(args: &ServicesArgs, session: &Session) -> Outcome<()> {
    let mut shown = Map::new();
    for (name, service) in instances(session, &args.name, args.node_index).await? {
        let mut service = crate::entity::service(&service);
        // The sentence is what counts.
        if let Some(message) = service.pointer("/error/error/message").cloned() {
            service["error"] = message;
        }
        shown.insert(name, service);
    }
    session.print(&Value::Object(shown), COLUMNS)
}

/// A link for a browser: it works once, within a minute, and needs no token.
pub async fn open(args: &OpenArgs, session: &Session) -> Outcome<()> {
    let below = format!(
        "jobs/{}/services/{}/link?node={}",
        segment(&args.name),
        segment(&args.service),
        args.node_index
    );
    let answer = session.client.call(Method::POST, &session.own_path(&below), None).await?;
    let url = answer.body.get("url").cloned().ok_or_else(|| Failure::failed("the server gave no link"))?;
    session.print(&url, COLUMNS)
}

/// The services of a job on one of its nodes, as the run history has them.
pub async fn instances(session: &Session, job: &str, node: u32) -> Outcome<Map<String, Value>> {
    // A job that does not exist is said; the history of no job has no services.
    super::get(session, job).await?;
    let below = format!("runs/{}/serviceinstances/{node}", segment(job));
    let mut answer = session.client.get(&session.history_path(&below)).await?;
    match answer.get_mut("instances").map(Value::take) {
        Some(Value::Object(all)) => Ok(all),
        _ => Ok(Map::new()),
    }
}
