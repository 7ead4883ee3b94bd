//! `neap status`: whether the server runs, and how it is.

use crate::args::Global;
use crate::client::Client;
use crate::connection::Connection;
use crate::failure::Outcome;
use crate::output::{Printer, emit, in_lines};
use crate::settings::{Settings, data_folder};
use crate::terminal::Terminal;
use clap::Args;
use serde_json::Value;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(after_help = "Without -o it is written for people; with -o it is the server's own answer.\n\n\
                        Examples:\n  neap status\n  neap status -o json --query nodes")]
pub struct StatusArgs {}

pub async fn run(_args: &StatusArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let connection = Connection::find(&data_folder(global.data.as_deref())?)?;
    let client = Client::new(connection, terminal.clone(), None)?;
    let status = client.get("/neap/v1/status").await?;
    if global.output.is_some() || global.query.is_some() {
        Printer::new(global, &Settings::load()?)?.print(&status, &[])?;
    } else {
        emit(&for_people(&in_lines(&status)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn for_people(status: &Value) -> String {
    let text = |key: &str| match status.get(key) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "-".to_owned(),
        Some(other) => other.to_string(),
    };
    let counts = |key: &str| {
        let map = status.get(key).and_then(Value::as_object);
        let parts: Vec<String> =
            map.into_iter().flatten().map(|(name, count)| format!("{count} {name}")).collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    };
    let list = |key: &str| {
        let parts: Vec<&str> = status
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    };
    let mut rows = vec![
        ("Server", format!("{}, version {}, process {}", text("url"), text("version"), text("pid"))),
        ("Installation", text("installation_id")),
        ("Up for", duration(status.get("uptime_ms").and_then(Value::as_u64).unwrap_or_default())),
        ("Ledger", format!("{} events", text("seq"))),
        ("Workspaces", text("workspaces")),
        ("Clusters", text("clusters")),
        ("Nodes", counts("nodes")),
        ("Jobs", counts("jobs")),
    ];
    if let Some(bytes) = status.get("resident_bytes").and_then(Value::as_u64) {
        rows.push(("Memory", format!("{} MiB", bytes.div_ceil(1 << 20))));
    }
    rows.push(("Isolation", list("isolation")));
    if list("isolation_missing") != "none" {
        rows.push(("Not isolated", list("isolation_missing")));
    }
    if let Some(reason) = status.get("read_only").and_then(Value::as_str) {
        rows.push(("READ-ONLY", reason.to_owned()));
    }
    rows.iter().map(|(name, value)| format!("{name:<13} {value}\n")).collect()
}

fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn status_reads_like_a_sentence() {
        let text = super::for_people(
            &json!({"version": "0.1.0", "installation_id": "i", "pid": 7, "uptime_ms": 65_000,
            "url": "https://h:1", "read_only": null, "seq": 12, "workspaces": 1, "clusters": 2, "nodes": {"idle": 1},
            "jobs": {"queued": 0, "running": 3}, "resident_bytes": 1048577, "isolation": ["pid"], "isolation_missing": []}),
        );
        let expected = [
            "Server        https://h:1, version 0.1.0, process 7",
            "Installation  i",
            "Up for        1 min 5 s",
            "Ledger        12 events",
            "Workspaces    1",
            "Clusters      2",
            "Nodes         1 idle",
            "Jobs          0 queued, 3 running",
            "Memory        2 MiB",
            "Isolation     pid",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
