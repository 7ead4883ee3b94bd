//! `neap bench submit`: durable submits over HTTPS to a cluster that may have no nodes, so that jobs only queue.

use super::clock;
use super::crowd::Crowd;
use super::installation::{Bench, Installation, Subject};
use super::report::{Report, Unit};
use super::samples::Samples;
use super::workspace::{Shape, Workspace};
use crate::failure::Outcome;
use clap::Args;

#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// How many jobs with each number of clients
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// How many clients at once, one number after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64],
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: Vec<u32>,
    #[command(flatten)]
    pub subject: Subject,
}

pub fn run(args: &SubmitArgs, bench: &Bench<'_>) -> Outcome<Report> {
    Installation::measure(bench, &args.subject, |installation| measure(args, installation))
}

fn measure(args: &SubmitArgs, installation: &Installation<'_>) -> Outcome<Report> {
    Workspace::with_cluster(installation, Shape::small(0, 0, 0), |workspace, _| {
        levels(args, installation, workspace)
    })
}

fn levels(args: &SubmitArgs, installation: &Installation<'_>, workspace: &Workspace) -> Outcome<Report> {
    let body = workspace.job_body("true", None);
    let levels: Vec<String> = args.clients.iter().map(u32::to_string).collect();
    let about = format!("{} jobs that only queue from {} clients", args.jobs, levels.join(", then "));
    let mut report = Report::new("submit", about, installation);
    report.parameter("jobs", args.jobs);
    report.parameter("clients", args.clients.clone());
    let mut best = 0.0_f64;
    let mut number = 0;
    for clients in &args.clients {
        installation.bench().terminal.note(&format!("{} jobs from {clients} clients", args.jobs));
        let mut crowd = Crowd::gather(installation, *clients)?;
        let numbers = number..number + u64::from(args.jobs);
        number = numbers.end;
        let begun = clock::now();
        let took: Samples = crowd.submit(workspace, &body, numbers)?;
        let rate = f64::from(args.jobs) / begun.elapsed().as_secs_f64();
        best = best.max(rate);
        let (key, label) =
            (format!("submits_per_second_{clients}"), format!("durable submits, {clients} clients"));
        report.one(&key, &label, Unit::PerSecond, rate);
        let (key, label) = (format!("submit_ms_{clients}"), format!("each of them, {clients} clients"));
        report.many(&key, &label, Unit::Milliseconds, &took);
    }
    report.one("submits_per_second", "durable submits at best", Unit::PerSecond, best);
    report.memory(installation)?;
    Ok(report)
}
