//! `compute evict`: a node is taken back, as an eviction would, and what comes of its jobs is looked at until they run again.

use crate::args::{Global, named, number};
use crate::client::segment;
use crate::failure::{Failure, Outcome};
use crate::output::{Column, emit, in_lines};
use crate::session::Session;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// Jobs are looked at this often until they run again.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
#[command(
    after_help = "It ends with 0 if every job ran again with what it had saved, and with 1 if not.\n\n\
                        Examples:\n  neap compute evict spot-cluster --simulate\n  \
                        neap compute evict spot-cluster --grace 20\n  \
                        neap compute evict spot-cluster --node n-3 --max-lost 60 -o json"
)]
pub struct EvictArgs {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER", value_parser = named)]
    cluster: String,
    /// The node that is taken back; by default the one whose jobs have run longest
    #[arg(long, value_parser = named)]
    node: Option<String>,
    /// Seconds that the processes of its jobs have to save what they have
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, allow_negative_numbers = true, value_parser = number)]
    grace: f64,
    /// Say what would be interrupted and what of it is saved, and do nothing
    #[arg(long)]
    simulate: bool,
    /// More lost work than this, in seconds, is a failure
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = number)]
    max_lost: Option<f64>,
    /// How long the jobs are waited for, in seconds beyond the grace
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, allow_negative_numbers = true, value_parser = number)]
    timeout: f64,
}

const COLUMNS: &[Column] = &[
    ("Job", "job"),
    ("Result", "result"),
    ("Attempt", "attempt"),
    ("ResumedOn", "resumed_on"),
    ("Restored", "restored"),
    ("LostSeconds", "lost_seconds"),
    ("SecondsAway", "seconds_away"),
];
const SIMULATED_COLUMNS: &[Column] = &[
    ("Job", "job"),
    ("Status", "status"),
    ("Attempt", "attempt"),
    ("Started", "started"),
    ("Saved", "checkpoint.0.saved"),
    ("UnsavedSeconds", "unsaved_seconds"),
];

pub async fn run(args: &EvictArgs, global: &Global, session: &Session) -> Outcome<ExitCode> {
    // Before anything is taken back.
    let patience = patience(args)?;
    let path = session.own_path(&format!("computes/{}/evict", segment(&args.cluster)));
    let asked = json!({"node": args.node, "grace_seconds": args.grace, "simulate": args.simulate, "reason": "a drill"});
    let taken = session.client.call(Method::POST, &path, Some(&asked)).await?.body;
    let for_machines = global.output.is_some() || global.query.is_some();
    if args.simulate {
        match for_machines {
            true => session.print_rows(&taken, "jobs", SIMULATED_COLUMNS)?,
            false => drop(emit(&foreseen(&in_lines(&taken)))?),
        }
        return Ok(ExitCode::SUCCESS);
    }
    session.terminal.note(&format!("{} is taken back", text(&taken, "node")));
    let mut after = Vec::new();
    for job in list(&taken, "jobs") {
        after.push(wait(patience, job, session).await?);
    }
    let report = judge(&taken, &after, args.max_lost);
    match for_machines {
        true => session.print_rows(&report, "jobs", COLUMNS)?,
        false => drop(emit(&for_people(&in_lines(&report)))?),
    }
    Ok(if report["passed"] == true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How long the jobs are waited for. A grace that cannot be is the server's to refuse.
fn patience(args: &EvictArgs) -> Outcome<Duration> {
    let timeout = Duration::try_from_secs_f64(args.timeout)
        .map_err(|_| Failure::usage("--timeout is seconds, and not below 0"))?;
    Ok(timeout.saturating_add(Duration::try_from_secs_f64(args.grace).unwrap_or_default()))
}

/// Waits until the job runs again or has ended; gives what is known of it then.
async fn wait(patience: Duration, job: &Value, session: &Session) -> Outcome<Value> {
    let name = text(job, "job");
    let path = session.own_path(&format!("jobs/{}/checkpoint", segment(&name)));
    let back = async {
        loop {
            let now = session.client.get(&path).await?;
            if is_back(job, &now) {
                return Ok(now);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(patience, back).await {
        Ok(back) => back,
        Err(_) => session.client.get(&path).await,
    }
}

/// Whether it runs in a later attempt, or will not any more.
fn is_back(before: &Value, now: &Value) -> bool {
    let status = text(now, "status");
    let again = now["attempt"].as_u64() > before["attempt"].as_u64();
    matches!(status.as_str(), "Completed" | "Failed" | "Canceled")
        || again && matches!(status.as_str(), "Running" | "Finalizing")
}

/// What came of it: each job passes or fails, with the reason.
fn judge(taken: &Value, after: &[Value], max_lost: Option<f64>) -> Value {
    let jobs: Vec<Value> = list(taken, "jobs")
        .iter()
        .zip(after)
        .map(|(job, now)| judge_job(taken, job, now, max_lost))
        .collect();
    let lost = jobs.iter().filter_map(|job| job["lost_seconds"].as_f64()).fold(0.0, f64::max);
    json!({
        "cluster": taken["cluster"],
        "node": taken["node"],
        "at": taken["at"],
        "passed": jobs.iter().all(|job| job["result"] == "pass"),
        "lost_seconds_max": lost,
        "jobs": jobs,
        "notes": taken["notes"],
    })
}

fn judge_job(taken: &Value, job: &Value, now: &Value, max_lost: Option<f64>) -> Value {
    let status = text(now, "status");
    let again = now["attempt"].as_u64() > job["attempt"].as_u64();
    let ran_before = !job["started"].is_null();
    let restored = again && now["restored"].is_string();
    // What the node saved at the end knows best; else all since the last save before.
    let its_own = again && now["lost_by_attempt"] == job["attempt"];
    let lost = match now["lost_seconds"].as_f64().filter(|_| its_own) {
        Some(lost) => Some(lost),
        None => job["unsaved_seconds"].as_f64().filter(|_| again),
    };
    let (taken_ms, started_ms) = (taken["at_unix_ms"].as_f64(), now["started_unix_ms"].as_f64());
    let away = taken_ms.zip(started_ms).filter(|_| again).map(|(from, to)| ((to - from) / 1000.0).max(0.0));
    let problem = match status.as_str() {
        "Failed" | "Canceled" => Some(format!("it ended as {status}")),
        // It ended in its own time before its node went.
        "Completed" if !again => None,
        "Completed" | "Running" | "Finalizing" if again => match lost {
            _ if ran_before && !restored => Some(
                "it began anew: nothing was saved of it. Have it write to the folder in AZUREML_CHECKPOINT_DIR".to_owned(),
            ),
            Some(lost) if max_lost.is_some_and(|most| lost > most) => {
                Some(format!("it lost {lost:.1} s of work, more than the {:.1} s that were allowed", max_lost.unwrap_or(0.0)))
            }
            _ => None,
        },
        _ => Some(format!("it does not run again yet: {status} ({})", text(now, "reason"))),
    };
    json!({
        "job": job["job"],
        "result": if problem.is_none() { "pass" } else { "fail" },
        "problem": problem,
        "status": now["status"],
        "attempt": now["attempt"],
        "resumed_on": if again { now["nodes"].clone() } else { Value::Null },
        "restored": if restored { now["restored"].clone() } else { Value::Null },
        "lost_seconds": lost,
        "seconds_away": away,
    })
}

fn for_people(report: &Value) -> String {
    let verdict = if report["passed"] == true { "passed" } else { "FAILED" };
    let mut out = format!(
        "{}: {} was taken back: the drill {verdict}\n",
        text(report, "cluster"),
        text(report, "node")
    );
    for job in list(report, "jobs") {
        out += &format!("  {:<4}  {}", text(job, "result"), text(job, "job"));
        if let Some(lost) = job["lost_seconds"].as_f64() {
            out += &format!(", {lost:.1} s of work lost");
        }
        if let Some(away) = job["seconds_away"].as_f64() {
            let nodes: Vec<&str> = list(job, "resumed_on").iter().filter_map(Value::as_str).collect();
            let attempt = job["attempt"].as_u64().unwrap_or(0);
            out += &format!(", ran again after {away:.1} s on {} (attempt {attempt})", nodes.join(", "));
        }
        if let Some(restored) = job["restored"].as_str() {
            out += &format!("\n        restored: {restored}");
        }
        if let Some(problem) = job["problem"].as_str() {
            out += &format!("\n        {problem}");
        }
        out.push('\n');
    }
    for note in list(report, "notes").iter().filter_map(Value::as_str) {
        out += &format!("  {note}\n");
    }
    out
}

fn foreseen(taken: &Value) -> String {
    let mut out = format!("{}: {} would be taken back\n", text(taken, "cluster"), text(taken, "node"));
    for job in list(taken, "jobs") {
        out += &format!("  {} ({}, attempt {})", text(job, "job"), text(job, "status"), job["attempt"]);
        let kept = list(job, "checkpoint");
        if kept.is_empty() {
            out += ": nothing of it is saved yet";
        }
        for rank in kept {
            let files = rank["files"].as_u64().unwrap_or(0);
            out += &format!(", saved {} with {files} files", text(rank, "saved"));
        }
        if let Some(unsaved) = job["unsaved_seconds"].as_f64() {
            out += &format!(
                "; {unsaved:.1} s of work are not saved, and are lost unless it saves them when it is warned"
            );
        }
        out.push('\n');
    }
    for note in list(taken, "notes").iter().filter_map(Value::as_str) {
        out += &format!("  {note}\n");
    }
    out
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken() -> Value {
        json!({"cluster": "spot", "node": "n-3", "at": "T", "at_unix_ms": 10_000, "notes": [],
            "jobs": [{"job": "j", "attempt": 1, "started": "S", "unsaved_seconds": 40.0}]})
    }

    fn now(status: &str, attempt: u64, restored: Option<&str>, lost: Option<f64>) -> Value {
        json!({"status": status, "attempt": attempt, "nodes": ["n-4"], "started_unix_ms": 12_500,
            "restored": restored, "lost_seconds": lost, "lost_by_attempt": 1, "reason": "it waits"})
    }

    #[test]
    fn a_job_passes_if_it_runs_again_with_what_it_had() {
        let saved = Some("2 files");
        for (now, most, result, lost, words) in [
            (now("Running", 2, saved, Some(0.4)), None, "pass", Some(0.4), ""),
            (now("Completed", 2, saved, Some(0.4)), Some(1.0), "pass", Some(0.4), ""),
            (now("Completed", 1, None, None), None, "pass", None, ""),
            (now("Running", 2, saved, Some(9.0)), Some(1.0), "fail", Some(9.0), "9.0 s"),
            (now("Running", 2, None, None), None, "fail", Some(40.0), "began anew"),
            (now("Failed", 2, saved, None), None, "fail", Some(40.0), "Failed"),
            (now("Queued", 1, None, None), None, "fail", None, "it waits"),
        ] {
            let report = judge(&taken(), std::slice::from_ref(&now), most);
            let job = &report["jobs"][0];
            assert_eq!(
                (job["result"].as_str(), job["lost_seconds"].as_f64()),
                (Some(result), lost),
                "{report}"
            );
            assert!(job["problem"].as_str().unwrap_or_default().contains(words), "{report}");
            assert_eq!(report["passed"], result == "pass");
        }
    }

    #[test]
    fn it_waits_for_the_next_attempt_and_not_for_the_last() {
        let job = &taken()["jobs"][0];
        for (now, back) in [
            (now("Running", 1, None, None), false),
            (now("Queued", 1, None, None), false),
            (now("Preparing", 2, None, None), false),
            (now("Running", 2, None, None), true),
            (now("Canceled", 1, None, None), true),
        ] {
            assert_eq!(is_back(job, &now), back, "{now}");
        }
    }

    #[test]
    fn the_report_is_for_people() {
        let report = judge(&taken(), &[now("Running", 2, Some("2 files, 9 bytes"), Some(0.4))], None);
        assert_eq!(
            for_people(&report),
            "spot: n-3 was taken back: the drill passed\n  pass  j, 0.4 s of work lost, ran again after 2.5 s on n-4 (attempt 2)\n        restored: 2 files, 9 bytes\n"
        );
    }
}
