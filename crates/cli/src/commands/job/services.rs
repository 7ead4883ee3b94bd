//! `job show-services`: what runs beside a job, and where it is reached.

use crate::client::segment;
use crate::failure::Outcome;
use crate::output::Column;
use crate::session::Session;
use clap::Args;
use serde_json::{Map, Value};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap job show-services -n run-7\n  neap job show-services -n run-7 --node-index 1"
)]
pub struct ServicesArgs {
    /// Name of the job
    #[arg(long, short = 'n')]
    name: String,
    /// Index of the node
    #[arg(long, short = 'i', value_name = "N", default_value_t = 0)]
    node_index: u32,
}

const COLUMNS: &[Column] = &[];

pub async fn run(args: &ServicesArgs, session: &Session) -> Outcome<()> {
    // A job that does not exist is said; the history of no job has no services.
    super::get(session, &args.name).await?;
    let below = format!("runs/{}/serviceinstances/{}", segment(&args.name), args.node_index);
    let answer = session.client.get(&session.history_path(&below)).await?;
    let mut shown = Map::new();
    for (name, service) in answer.get("instances").and_then(Value::as_object).into_iter().flatten() {
        shown.insert(name.clone(), crate::entity::service(service));
    }
    session.print(&Value::Object(shown), COLUMNS)
}
