//! `neap explain`: every reason at once, and the least that would change it.

use crate::args::{Global, named};
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::moment::AtArgs;
use crate::output::{Column, emit, in_lines};
use crate::session::Session;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use neap_core::units::jobs_wait;
use serde_json::Value;
use std::fmt::Write as _;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// Why a job is where it is
    ///
    /// Of a job that waits: everything that is in its way, and up to three smallest sets of things that, if they were not
    /// in its way, would let it start.
    #[command(after_help = "Examples:\n  neap explain job train-42\n  neap explain job train-42 -o json")]
    Job(NameArgs),
    /// Why a cluster is as it is, and what the first who wait lack
    #[command(after_help = "Examples:\n  neap explain cluster cpu-cluster")]
    Cluster(NameArgs),
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// Its name
    #[arg(value_parser = named)]
    name: String,
    #[command(flatten)]
    at: AtArgs,
}

const JOB: &[Column] = &[
    ("Job", "job"),
    ("Status", "status"),
    ("Place", "verdict.position"),
    ("Why", "reasons.0"),
    ("Start", "estimate.start_p50"),
    ("StartP95", "estimate.start_p95"),
];
const CLUSTER: &[Column] = &[
    ("Cluster", "cluster"),
    ("Nodes", "live"),
    ("Busy", "busy"),
    ("Target", "target"),
    ("Min", "min"),
    ("Max", "max"),
    ("Waiting", "waiting"),
    ("Why", "reasons.0"),
];

/// What is asked of the server, what for, how it is told and which columns it has.
type Asked<'a> = (String, &'a NameArgs, fn(&Value) -> String, &'static [Column]);

pub fn run(command: &ExplainCommand, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let session = Session::open(global, terminal)?;
    let (path, args, told, columns): Asked<'_> = match command {
        ExplainCommand::Job(args) => (format!("jobs/{}/explain", segment(&args.name)), args, job, JOB),
        ExplainCommand::Cluster(args) => {
            (format!("computes/{}/explain", segment(&args.name)), args, cluster, CLUSTER)
        }
    };
    let path = args.at.on(&session.own_path(&path))?;
    block_on(async {
        let answer = session.client.get(&path).await?;
        if global.output.is_some() || global.query.is_some() {
            session.print(&answer, columns)?;
        } else {
            emit(&told(&in_lines(&answer)))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn job(answer: &Value) -> String {
    let mut out = format!("{} is {}.\n", text(answer, "job"), text(answer, "status"));
    for reason in list(answer, "reasons") {
        let _ = writeln!(out, "  {}", reason.as_str().unwrap_or_default());
    }
    out.push_str(&verdict(&answer["verdict"]));
    out.push_str(&estimate(&answer["estimate"]));
    out
}

fn estimate(estimate: &Value) -> String {
    match (estimate["start_p50"].as_str(), estimate["start_p95"].as_str()) {
        (Some(p50), Some(p95)) => format!("Estimated start: {p50}; in 95 of 100 cases by {p95}.\n"),
        (Some(p50), None) => format!("Estimated start: {p50}; how late at worst is unknown.\n"),
        (None, _) if estimate.is_null() => String::new(),
        (None, _) => format!("Estimated start: unknown; {}.\n", text(estimate, "unknown")),
    }
}

fn cluster(answer: &Value) -> String {
    let mut out = format!(
        "{}: {} of {} nodes have work, {} to {} are allowed, {}.\n",
        text(answer, "cluster"),
        answer["busy"],
        answer["live"],
        answer["min"],
        answer["max"],
        jobs_wait(answer["waiting"].as_u64().unwrap_or(0))
    );
    for reason in list(answer, "reasons") {
        let _ = writeln!(out, "  {}", reason.as_str().unwrap_or_default());
    }
    if let Some(clock) = answer["next_change"]["clock"].as_str() {
        let change = &answer["next_change"];
        let _ = writeln!(out, "  Next change: {} to {} nodes from {clock} on.", change["min"], change["max"]);
    }
    for job in list(answer, "jobs") {
        let _ = writeln!(out, "Job {}:", text(job, "job"));
        out.push_str(&verdict(&job["verdict"]));
    }
    out
}

fn verdict(verdict: &Value) -> String {
    if verdict.is_null() {
        return String::new();
    }
    let mut out = format!("Place in the queue: {}.\n", verdict["position"]);
    let sets = list(verdict, "unblocking");
    if sets.iter().any(|set| set.as_array().is_some_and(Vec::is_empty)) {
        let coming = verdict["nodes_coming"].as_u64().unwrap_or_default();
        let _ = match coming {
            0 => writeln!(out, "Nothing is in its way: it is about to be placed."),
            1 => writeln!(out, "Nothing is in its way: it starts when the node that is on its way is there."),
            n => writeln!(out, "Nothing is in its way: it starts when the {n} nodes on their way are there."),
        };
        return out;
    }
    let constraints = list(verdict, "constraints");
    if !constraints.is_empty() {
        out.push_str("In its way:\n");
    }
    for constraint in constraints {
        let binds = if constraint["binds"] == true { " (whatever else is done)" } else { "" };
        let _ = writeln!(out, "  {}{binds}: {}", kind(constraint), text(constraint, "sentence"));
    }
    if !sets.is_empty() {
        out.push_str("It would start without:\n");
    }
    for set in sets {
        let kinds: Vec<String> = set.as_array().into_iter().flatten().map(kind).collect();
        let _ = writeln!(out, "  - {}", kinds.join(" and "));
    }
    out
}

/// In words rather than as the wire has it.
fn kind(constraint: &Value) -> String {
    match constraint["kind"].as_str().unwrap_or_default() {
        "queue_order" => "those ahead of it".into(),
        "maximum" => "max_instances".into(),
        "window" => "the schedule on max_instances".into(),
        "rolling" => "the replacing of nodes".into(),
        "quota" => "the quota".into(),
        "provider" => "the provider's limit".into(),
        "boot_backoff" => "the wait after failed starts".into(),
        "lock" => "the lock".into(),
        "allowance" => "the limit on what its owner may have".into(),
        "draining" => "the server's being stopped".into(),
        other => other.replace('_', " "),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_in_the_way_and_what_would_help_is_told() {
        let told = job(
            &json!({"job": "j", "status": "Queued", "reasons": ["All 2 nodes are busy."], "verdict": {
            "position": 3, "nodes_coming": 0,
            "constraints": [{"kind": "queue_order", "sentence": "2 jobs are ahead.", "binds": false},
                {"kind": "quota", "sentence": "No cores.", "binds": true}],
            "unblocking": [[{"kind": "quota"}, {"kind": "maximum"}], [{"kind": "queue_order"}, {"kind": "quota"}]]}}),
        );
        assert_eq!(
            told,
            "j is Queued.\n  All 2 nodes are busy.\nPlace in the queue: 3.\nIn its way:\n  those ahead of it: 2 jobs are ahead.\n  \
             the quota (whatever else is done): No cores.\nIt would start without:\n  - the quota and max_instances\n  \
             - those ahead of it and the quota\n"
        );
        let soon = verdict(&json!({"position": 1, "nodes_coming": 1, "constraints": [], "unblocking": [[]]}));
        assert!(soon.ends_with("it starts when the node that is on its way is there.\n"), "{soon}");
    }
}
