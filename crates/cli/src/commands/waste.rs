//! `neap waste`: which setting would have saved money, by replay of the log.

use crate::args::{Global, named};
use crate::client::segment;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::moment;
use crate::output::Column;
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use neap_core::units::many;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Waste: idle (an idle time that was too long), minimum (min_instances that served nobody), boot-churn (an idle time that was \
                  too short), lock, failed-retries, size, tier. The first three are found by running the time's work again through the \
                  planner with another setting (replayed); the others are computed from what was paid.\n\nExamples:\n  \
                  neap waste -o table\n  neap waste cpu-cluster --from 7d\n  neap waste --from 2026-11-01 --to 2026-12-01 -o csv"
)]
pub struct WasteArgs {
    /// The cluster; without, all of the workspace
    #[arg(value_parser = named)]
    cluster: Option<String>,
    /// From when on: a date, a time, or how long ago (7d, 12h) [default: from the beginning]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Until when [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
}

const COLUMNS: &[Column] = &[
    ("Cluster", "cluster"),
    ("Waste", "waste"),
    ("Setting", "setting"),
    ("Now", "now"),
    ("Instead", "instead"),
    ("SavedUSD", "saved_usd"),
    ("WaitsMoreSeconds", "waits_more_seconds"),
    ("How", "how"),
];

pub fn run(args: &WasteArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let mut asked = Vec::new();
    if let Some(cluster) = &args.cluster {
        asked.push(format!("cluster={}", segment(cluster)));
    }
    let [from, to] = moment::read([("from", args.from.as_deref()), ("to", args.to.as_deref())])?;
    for (key, time) in [("from", from), ("to", to)] {
        if let Some(time) = time {
            asked.push(format!("{key}={time}"));
        }
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        let path = session.own_path(&format!("waste?{}", asked.join("&")));
        let answer = session.client.get(path.trim_end_matches('?')).await?;
        session.print(&rows(&answer), COLUMNS)?;
        for cluster in answer["clusters"].as_array().into_iter().flatten() {
            tell(&session, cluster);
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// One for each finding, with the cluster that it is about.
fn rows(answer: &Value) -> Value {
    let mut rows = Vec::new();
    for cluster in answer["clusters"].as_array().into_iter().flatten() {
        for finding in cluster["findings"].as_array().into_iter().flatten() {
            let mut row = json!({"cluster": cluster["cluster"]});
            for (key, value) in finding.as_object().into_iter().flatten() {
                row[key] = value.clone();
            }
            rows.push(row);
        }
    }
    Value::Array(rows)
}

fn tell(session: &Session, cluster: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&cluster["cluster"]);
    session.terminal.note(&format!(
        "{name}: {} USD were spent; run again as it was: {} USD, {}, {} s of waiting on average.",
        text(&cluster["spent_usd"]),
        text(&cluster["replayed"]["usd"]),
        many(cluster["replayed"]["jobs"].as_u64().unwrap_or(0), "job"),
        cluster["replayed"]["mean_wait_seconds"],
    ));
    let findings = cluster["findings"].as_array();
    if findings.is_none_or(Vec::is_empty) {
        session.terminal.note(&format!("{name}: no other setting would have saved anything."));
    }
    for finding in findings.into_iter().flatten() {
        session.terminal.note(&format!("{name}: {}", text(&finding["says"])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_rows_with_their_cluster() {
        let answer = json!({"clusters": [{"cluster": "a", "findings": [{"waste": "idle"}, {"waste": "tier"}]}, {"cluster": "b", "findings": []}]});
        assert_eq!(
            rows(&answer),
            json!([{"cluster": "a", "waste": "idle"}, {"cluster": "a", "waste": "tier"}])
        );
    }
}
