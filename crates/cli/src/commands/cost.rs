//! `neap cost`: what nodes cost, by whom and for what.

use crate::args::Global;
use crate::commands::block_on;
use crate::failure::Outcome;
use crate::moment::{self, AtArgs};
use crate::output::{self, Column};
use crate::session::Session;
use crate::terminal::Terminal;
use clap::Args;
use serde_json::Value;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Causes: boot, staging (code and inputs), image-pull, environment-build, run, failed, canceled, lost (attempts that did not \
                  count), idle, lock (idle nodes that a lock keeps), eviction, leaving, failed-boot. Storage and transfer between locations stand beside \
                  them, with their own kind.\n\nExamples:\n  \
                  neap cost --by user -o table\n  neap cost --by cause --from 7d\n  neap cost --by tag:team --from 2026-11-01 --to 2026-12-01\n  \
                  neap cost --by job -o csv > november.csv"
)]
pub struct CostArgs {
    /// What to sum by: cluster, job, user, cause, node or tag:NAME
    #[arg(long, default_value = "cluster")]
    by: String,
    /// From when on: a date, a time, or how long ago (7d, 12h) [default: from the beginning]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Until when [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    #[command(flatten)]
    at: AtArgs,
    /// Write comma-separated values, as -o csv does
    #[arg(long)]
    csv: bool,
}

const COLUMNS: &[Column] = &[
    ("Name", "name"),
    ("Kind", "kind"),
    ("USD", "usd"),
    ("NodeHours", "node_hours"),
    ("Quantity", "quantity"),
    ("Unit", "unit"),
];

pub fn run(args: &CostArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let mut path = format!("cost?by={}", crate::client::segment(&args.by));
    let flags = [("from", args.from.as_deref()), ("to", args.to.as_deref()), args.at.flag()];
    let [from, to, _] = moment::read(flags)?;
    for (key, time) in [("from", from), ("to", to)] {
        if let Some(time) = time {
            path.push_str(&format!("&{key}={time}"));
        }
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        let answer = session.client.get(&args.at.on(&session.own_path(&path))?).await?;
        let rows = rows(&answer, &args.by);
        if args.csv {
            output::emit(&output::csv(&rows, COLUMNS))?;
        } else {
            session.print(&rows, COLUMNS)?;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let beside = &answer["beside"];
        let more = if beside["rows"].as_array().is_some_and(|rows| !rows.is_empty()) {
            format!(" for nodes, and {} USD beside them (storage, transfer)", text(&beside["total_usd"]))
        } else {
            String::new()
        };
        session.terminal.note(&format!(
            "{} USD{more} from {} to {}",
            text(&answer["total_usd"]),
            text(&answer["from"]),
            text(&answer["to"])
        ));
        Ok(ExitCode::SUCCESS)
    })
}

/// What nodes cost, and after that what is beside them.
fn rows(answer: &Value, by: &str) -> Value {
    let of = |value: &Value| value["rows"].as_array().cloned().unwrap_or_default();
    let nodes = of(answer).into_iter().map(|mut row| {
        let hours = row["node_ms"].as_u64().unwrap_or(0) as f64 / 3_600_000.0;
        row["node_hours"] = format!("{hours:.4}").into();
        row["kind"] = "nodes".into();
        if row["name"].is_null() {
            row["name"] = nobody(by).into();
        }
        row
    });
    let beside = of(&answer["beside"]).into_iter().map(|mut row| {
        if row["name"].is_null() {
            row["name"] = "(workspace)".into();
        }
        row
    });
    nodes.chain(beside).collect()
}

/// Time that no job has to answer for, or no tag.
fn nobody(by: &str) -> &'static str {
    if by.starts_with("tag:") { "(untagged)" } else { "(cluster minimum)" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_beside_nodes_comes_after_them() {
        let answer = json!({"rows": [{"name": "a,b", "usd": "0.000001", "node_ms": 1_800_000}, {"name": null, "usd": "0.000000"}],
            "beside": {"rows": [{"kind": "storage", "name": null, "usd": "0.020000", "quantity": 1.0, "unit": "GB-month"}]}});
        assert_eq!(
            output::csv(&rows(&answer, "user"), COLUMNS),
            "name,kind,usd,node_hours,quantity,unit\n\"a,b\",nodes,0.000001,0.5000,,\n(cluster minimum),nodes,0.000000,0.0000,,\n(workspace),storage,0.020000,,1.0,GB-month\n"
        );
    }
}
