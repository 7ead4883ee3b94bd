//! `compute delete`: says what would be lost, asks, deletes, waits.

use crate::client::segment;
use crate::entity::is_final;
use crate::failure::Outcome;
use crate::session::Session;
use clap::Args;
use reqwest::Method;
use serde_json::Value;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap compute delete -n cpu-cluster\n  neap compute delete -n cpu-cluster --yes --no-wait"
)]
pub struct DeleteArgs {
    /// Name of the cluster
    #[arg(long, short = 'n')]
    name: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Return when the request is accepted
    #[arg(long)]
    no_wait: bool,
}

/// Jobs are counted up to here for the question; beyond it "at least" is said.
const JOBS_COUNTED_MAX: usize = 1000;

pub async fn run(args: &DeleteArgs, session: &Session) -> Outcome<()> {
    let path = session.path(&format!("computes/{}", segment(&args.name)));
    if !args.yes {
        // A cluster that does not exist is said before anything is asked.
        let resource = session.client.get(&path).await?;
        let lost = what_would_be_lost(&args.name, &resource, session).await?;
        session.terminal.confirm(&format!("Delete the cluster {}? {lost}", args.name))?;
    }
    let spinner = session.terminal.spinner(&format!("deleting {}", args.name));
    let path = format!("{path}?underlyingResourceAction=Delete");
    let deleted = match session.client.call(Method::DELETE, &path, None).await {
        Ok(_) if args.no_wait => Ok(()),
        Ok(answer) => session.client.wait(&answer).await,
        Err(failure) => Err(failure),
    };
    spinner.finish_and_clear();
    deleted
}

async fn what_would_be_lost(name: &str, resource: &Value, session: &Session) -> Outcome<String> {
    let nodes =
        resource.pointer("/properties/properties/currentNodeCount").and_then(Value::as_u64).unwrap_or(0);
    let jobs = session.client.list(&session.path("jobs?listViewType=All"), Some(JOBS_COUNTED_MAX)).await?;
    let ending = format!("/computes/{}", name.to_lowercase());
    let (mut running, mut waiting) = (0, 0);
    for job in &jobs {
        let property = |key: &str| {
            job.pointer(&format!("/properties/{key}")).and_then(Value::as_str).unwrap_or_default()
        };
        if !property("computeId").to_lowercase().ends_with(&ending) || is_final(property("status")) {
            continue;
        }
        match property("status") {
            "Queued" | "NotStarted" => waiting += 1,
            _ => running += 1,
        }
    }
    let least = if jobs.len() == JOBS_COUNTED_MAX { "at least " } else { "" };
    Ok(format!("It has {nodes} nodes; {least}{running} running and {waiting} queued jobs would be canceled."))
}
