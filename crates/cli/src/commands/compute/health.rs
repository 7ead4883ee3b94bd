//! `compute health`: one verdict on a cluster, with the signals behind it.

use crate::args::{Global, named};
use crate::client::segment;
use crate::failure::{Failure, Outcome};
use crate::output::{Column, emit, in_lines};
use crate::session::Session;
use clap::Args;
use serde_json::Value;

#[derive(Debug, Args)]
#[command(after_help = "Without -o it is written for people; with -o it is the server's own answer.\n\n\
                        Examples:\n  neap compute health cpu-cluster\n  \
                        neap compute health cpu-cluster -o json --query verdict")]
pub struct HealthArgs {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER", required_unless_present = "name", value_parser = named)]
    cluster: Option<String>,
    /// Name of the cluster
    #[arg(long, short = 'n', conflicts_with = "cluster", value_parser = named)]
    name: Option<String>,
}

const COLUMNS: &[Column] = &[
    ("Cluster", "cluster"),
    ("Verdict", "verdict"),
    ("Queued", "jobs.queued"),
    ("Active", "jobs.active"),
    ("Target", "target_nodes"),
];

pub async fn run(args: &HealthArgs, global: &Global, session: &Session) -> Outcome<()> {
    let name = args.cluster.as_ref().or(args.name.as_ref());
    let name = name.ok_or_else(|| Failure::usage("which cluster? `neap compute health CLUSTER`"))?;
    let path = session.own_path(&format!("computes/{}/health", segment(name)));
    let health = session.client.get(&path).await?;
    if global.output.is_some() || global.query.is_some() {
        session.print(&health, COLUMNS)
    } else {
        emit(&for_people(&in_lines(&health))).map(|_| ())
    }
}

fn for_people(health: &Value) -> String {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
    let mut out = format!("{} is {}\n", text(health, "cluster"), text(health, "verdict"));
    for signal in health.get("signals").and_then(Value::as_array).into_iter().flatten() {
        out += &format!(
            "  {:<8}  {:<16} {}\n",
            text(signal, "verdict"),
            text(signal, "signal"),
            text(signal, "says")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn the_worst_is_said_first() {
        let text = super::for_people(&json!({"cluster": "cpu", "verdict": "degraded", "signals": [
            {"signal": "oldest_wait", "verdict": "degraded", "says": "3 wait, the oldest for 700 s."},
            {"signal": "boot_failures", "verdict": "healthy", "says": "Nodes start."}]}));
        assert_eq!(
            text,
            "cpu is degraded\n  degraded  oldest_wait      3 wait, the oldest for 700 s.\n  healthy   boot_failures    Nodes start.\n"
        );
    }
}
