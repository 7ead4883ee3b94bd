//! `neap queue`: who waits on a cluster, and what each has used.

use crate::args::{Global, named, whole};
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use serde_json::Value;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "The order is priority, then whose share is smallest (what is long past counts less), then age.\n\n\
                        Examples:\n  neap queue cpu-cluster\n  neap queue cpu-cluster --shares -o table\n  \
                        neap queue cpu-cluster --running --query '[].job'"
)]
pub struct QueueArgs {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER", value_parser = named)]
    cluster: String,
    /// What each owner has running and has used, instead of the jobs
    #[arg(long)]
    shares: bool,
    /// What runs, instead of who waits
    #[arg(long, conflicts_with = "shares")]
    running: bool,
    /// How many jobs are listed
    #[arg(long, default_value_t = 100, allow_negative_numbers = true, value_parser = whole::<usize>)]
    top: usize,
}

const JOBS: &[Column] = &[
    ("Place", "position"),
    ("Job", "job"),
    ("Owner", "owner"),
    ("Priority", "priority"),
    ("WaitedSeconds", "waited_seconds"),
    ("Nodes", "needs.nodes"),
    ("Cpus", "needs.cpus"),
    ("EstimatedStart", "estimated_start"),
    ("P95", "estimated_start_p95"),
    ("HeldBy", "held_by"),
];
const RUNNING: &[Column] = &[
    ("Job", "job"),
    ("Owner", "owner"),
    ("Priority", "priority"),
    ("Status", "status"),
    ("Nodes", "nodes"),
    ("EndsBy", "ends_by"),
];
const SHARES: &[Column] = &[
    ("Owner", "owner"),
    ("RunningJobs", "running_jobs"),
    ("RunningCores", "running_cores"),
    ("UsedCoreHours", "used_core_hours"),
];

pub fn run(args: &QueueArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let session = Session::open(global, terminal)?;
    block_on(async {
        let path = format!("computes/{}/queue?top={}", segment(&args.cluster), args.top);
        let answer = session.client.get(&session.own_path(&path)).await?;
        if args.shares {
            session.print(&shares(&answer), SHARES)?;
        } else if args.running {
            session.print(&answer["running"], RUNNING)?;
        } else {
            session.print(&answer["jobs"], JOBS)?;
            session.terminal.note(&counts(&answer));
            for cut in answer["cuts"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                session.terminal.note(cut);
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What each has used, as exactly as anybody reads it.
fn shares(answer: &Value) -> Value {
    let mut shares = answer["shares"].clone();
    for share in shares.as_array_mut().into_iter().flatten() {
        if let Some(hours) = share["used_core_hours"].as_f64() {
            share["used_core_hours"] = ((hours * 10_000.0).round() / 10_000.0).into();
        }
    }
    shares
}

/// How many there are, however few of them are listed.
fn counts(answer: &Value) -> String {
    let shares = answer["shares"].as_array().into_iter().flatten();
    let running: u64 = shares.filter_map(|share| share["running_jobs"].as_u64()).sum();
    let waiting = answer["waiting"].as_u64().unwrap_or(0);
    let listed = answer["jobs"].as_array().map_or(0, Vec::len);
    let cut = if listed as u64 != waiting { format!(" Listed: the first {listed}.") } else { String::new() };
    format!(
        "{waiting} wait, {running} run; {} of {} nodes have work.{cut}",
        answer["nodes"]["busy"], answer["nodes"]["live"]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn core_hours_have_four_places() {
        let answer = json!({"shares": [{"owner": "x", "used_core_hours": 0.067_669_444_444_444_45}]});
        assert_eq!(shares(&answer), json!([{"owner": "x", "used_core_hours": 0.0677}]));
    }

    #[test]
    fn all_are_counted_also_where_few_are_listed() {
        let mut answer = json!({"waiting": 3, "jobs": [{"job": "a"}], "running": [{"job": "b"}],
            "shares": [{"owner": "x", "running_jobs": 2}, {"owner": "y", "running_jobs": 5}],
            "nodes": {"busy": 7, "live": 8}});
        assert_eq!(counts(&answer), "3 wait, 7 run; 7 of 8 nodes have work. Listed: the first 1.");
        answer["waiting"] = 1.into();
        assert_eq!(counts(&answer), "1 wait, 7 run; 7 of 8 nodes have work.");
    }
}
