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
    after_help = "Causes: boot, staging (environment, code and inputs), run, failed, canceled, lost (attempts that did not \
                  count), idle, lock (idle nodes that a lock keeps), leaving, failed-boot.\n\nExamples:\n  \
                  neap cost --by user -o table\n  neap cost --by cause --from 7d\n  neap cost --by tag:team --from 2026-11-01 --to 2026-12-01\n  \
                  neap cost --by job --csv > november.csv"
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
    /// Write comma-separated values
    #[arg(long)]
    csv: bool,
}

const COLUMNS: &[Column] = &[("Name", "name"), ("USD", "usd"), ("NodeHours", "node_hours")];

pub fn run(args: &CostArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let mut path = format!("cost?by={}", crate::client::segment(&args.by));
    for (key, text) in [("from", &args.from), ("to", &args.to)] {
        if let Some(text) = text {
            let at = moment::read(key, text)?;
            path.push_str(&format!("&{key}={at}"));
        }
    }
    let session = Session::open(global, terminal)?;
    block_on(async {
        let mut answer = session.client.get(&args.at.on(&session.own_path(&path))?).await?;
        let total = answer["total_usd"].as_str().unwrap_or_default().to_owned();
        for row in answer["rows"].as_array_mut().into_iter().flatten() {
            let hours = row["node_ms"].as_u64().unwrap_or(0) as f64 / 3_600_000.0;
            row["node_hours"] = format!("{hours:.4}").into();
            if row["name"].is_null() {
                row["name"] = nobody(&args.by).into();
            }
        }
        let rows = answer["rows"].take();
        if args.csv {
            output::emit(&csv(&rows))?;
        } else {
            session.print(&rows, COLUMNS)?;
        }
        session.terminal.note(&format!(
            "{total} USD from {} to {}",
            answer["from"].as_str().unwrap_or_default(),
            answer["to"].as_str().unwrap_or_default()
        ));
        Ok(ExitCode::SUCCESS)
    })
}

/// Time that no job has to answer for, or no tag.
fn nobody(by: &str) -> &'static str {
    if by.starts_with("tag:") { "(untagged)" } else { "(cluster minimum)" }
}

fn csv(rows: &Value) -> String {
    let mut out = String::from("name,usd,node_hours\n");
    for row in rows.as_array().into_iter().flatten() {
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        let name = text("name");
        let quoted = if name.contains([',', '"', '\n']) {
            format!("\"{}\"", name.replace('"', "\"\""))
        } else {
            name.to_owned()
        };
        out.push_str(&format!("{quoted},{},{}\n", text("usd"), text("node_hours")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_with_commas_are_quoted() {
        let rows = json!([{"name": "a,\"b\"", "usd": "0.000001", "node_hours": "0.5000"}]);
        assert_eq!(csv(&rows), "name,usd,node_hours\n\"a,\"\"b\"\"\",0.000001,0.5000\n");
    }
}
