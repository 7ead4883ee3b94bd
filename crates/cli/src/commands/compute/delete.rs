//! `compute delete`: says what would be lost, asks, deletes, waits.

use super::describe::dependents;
use crate::args::named;
use crate::client::segment;
use crate::failure::Outcome;
use crate::session::Session;
use clap::Args;
use neap_core::units::many;
use reqwest::Method;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  neap compute delete -n cpu-cluster\n  neap compute delete -n cpu-cluster --yes --no-wait"
)]
pub struct DeleteArgs {
    /// Name of the cluster
    #[arg(long, short = 'n', value_parser = named)]
    name: String,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Return when the request is accepted
    #[arg(long)]
    no_wait: bool,
}

pub async fn run(args: &DeleteArgs, session: &Session) -> Outcome<()> {
    let path = session.path(&format!("computes/{}", segment(&args.name)));
    // A cluster that does not exist is said before anything is asked.
    session.client.get(&path).await?;
    let found = session
        .client
        .get(&session.own_path(&format!("computes/{}/dependents", segment(&args.name))))
        .await?;
    for line in dependents(&found) {
        session.terminal.note(&line);
    }
    if !args.yes {
        let lost = format!(
            "It has {}; {} and {} would be canceled.",
            many(found["nodes"].as_u64().unwrap_or(0), "node"),
            many(found["jobs"]["running"].as_u64().unwrap_or(0), "running job"),
            many(found["jobs"]["waiting"].as_u64().unwrap_or(0), "queued job"),
        );
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
