//! `neap plan`: when a job would start, what it would cost and whom it would delay; what a change of a cluster would mean.
//! Nothing is uploaded, registered or changed.

use crate::args::{Global, named};
use crate::client::segment;
use crate::commands::job::{builder, check};
use crate::commands::{block_on, compute};
use crate::failure::{Failure, Outcome};
use crate::names::job_name;
use crate::output::{Column, emit, in_lines};
use crate::preparation;
use crate::session::Session;
use crate::specification::Specification;
use crate::terminal::Terminal;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Moments of a timeline that are written in words; all of them are in the answer.
const MOMENTS_TOLD: usize = 20;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "How long jobs run and nodes take to start is taken from the past of like ones; where there is none, say it.\n\n\
                  Examples:\n  neap plan -f job.yml\n  neap plan -f job.yml --duration 2h --set resources.instance_count=4\n  \
                  neap plan compute update cpu --max-instances 8\n  neap plan -f job.yml --query start.p95 -o tsv"
)]
pub struct PlanArgs {
    #[command(subcommand)]
    what: Option<PlanCommand>,
    /// YAML file with the job, as `neap job create` takes it
    #[arg(long, short = 'f', value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Name of the job [default: the file's, else made up]
    #[arg(long, short = 'n', value_parser = named)]
    name: Option<String>,
    /// Set any property of the specification, by path
    #[arg(long, num_args = 1.., value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// How long the job will run: 90s, 30m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    duration: Option<u64>,
    /// How long a node takes to start
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    boot: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// What a change of a cluster would mean for those who wait
    #[command(subcommand)]
    Compute(PlanCompute),
}

#[derive(Debug, Subcommand)]
pub enum PlanCompute {
    /// Other limits of a cluster: who would start sooner or later, and what that costs
    #[command(after_help = "Examples:\n  neap plan compute update cpu --max-instances 8\n  \
                            neap plan compute update cpu --min-instances 0 -d 600 -o json")]
    Update(PlanUpdate),
}

#[derive(Debug, Args)]
pub struct PlanUpdate {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER", required_unless_present = "name", value_parser = named)]
    cluster: Option<String>,
    // As `neap compute update` has it.
    #[arg(long, short = 'n', hide = true, conflicts_with = "cluster", value_parser = named)]
    name: Option<String>,
    #[command(flatten)]
    scale: compute::ScaleArgs,
}

const JOB: &[Column] = &[
    ("Job", "job"),
    ("Cluster", "cluster"),
    ("Start", "start.p50"),
    ("StartP95", "start.p95"),
    ("End", "end.p50"),
    ("EndP95", "end.p95"),
    ("Cost", "cost.p50"),
    ("CostP95", "cost.p95"),
    ("Sooner", "sooner.count"),
    ("Delayed", "delayed.count"),
];
const CLUSTER: &[Column] = &[
    ("Cluster", "cluster"),
    ("Done", "with.all_done.p50"),
    ("DoneWithout", "without.all_done.p50"),
    ("Cost", "with.cost.p50"),
    ("CostWithout", "without.cost.p50"),
    ("Sooner", "sooner.count"),
    ("Delayed", "delayed.count"),
];

pub fn run(args: &PlanArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    match &args.what {
        Some(PlanCommand::Compute(PlanCompute::Update(update))) => of_compute(update, global, terminal),
        None => of_job(args, global, terminal),
    }
}

fn of_job(args: &PlanArgs, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let fallback = job_name()?;
    let build = builder(&fallback);
    let flags = [("name", args.name.clone().map(Value::from))];
    let specification = Specification::load(args.file.as_deref(), &flags, &args.set)?;
    let session = Session::open(global, terminal);
    check(&specification, &build, session.as_ref().ok())?;
    let session = session?;
    block_on(async {
        let mut request = specification.plan(&session.scope, &build)?;
        let left_out = preparation::rehearse(&mut request, &session).await?;
        let mut path = session.own_path(&format!("jobs/{}/plan?", segment(&request.name)));
        for (key, value) in [("duration_s", args.duration), ("boot_s", args.boot)] {
            if let Some(value) = value {
                let _ = write!(path, "{key}={value}&");
            }
        }
        let path = path.trim_end_matches(['?', '&']);
        let mut answer = session.client.call(Method::POST, path, Some(&request.body)).await?.body;
        if let Some(notes) = answer["notes"].as_array_mut() {
            notes.extend(left_out.into_iter().map(Value::from));
        }
        show(&answer, job, JOB, global, &session)
    })
}

fn of_compute(args: &PlanUpdate, global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let Some(name) = args.cluster.as_ref().or(args.name.as_ref()) else {
        return Err(Failure::usage("name the cluster: neap plan compute update CLUSTER --max-instances N"));
    };
    let session = Session::open(global, terminal)?;
    block_on(async {
        let request = compute::changed(name, &args.scale, &session).await?;
        let path = session.own_path(&format!("computes/{}/plan", segment(&request.name)));
        let answer = session.client.call(Method::POST, &path, Some(&request.body)).await?.body;
        show(&answer, cluster, CLUSTER, global, &session)
    })
}

fn show(
    answer: &Value,
    told: fn(&Value) -> String,
    columns: &'static [Column],
    global: &Global,
    session: &Session,
) -> Outcome<ExitCode> {
    if global.output.is_some() || global.query.is_some() {
        session.print(answer, columns)?;
    } else {
        emit(&told(&in_lines(answer)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn job(answer: &Value) -> String {
    let mut out =
        format!("{} on {}, if it were submitted now:\n", text(answer, "job"), text(answer, "cluster"));
    let _ = writeln!(out, "  start  {}", when(&answer["start"]));
    let _ = writeln!(out, "  end    {}", when(&answer["end"]));
    let _ = writeln!(out, "  cost   {}", cost(&answer["cost"]));
    for basis in list(&answer["durations"]) {
        let word = if basis["from"] == "history" { "taken from" } else { "how long:" };
        let _ = writeln!(out, "  {word} {}", text(basis, "says"));
    }
    out.push_str(&nodes(&answer["nodes"], text(answer, "cluster")));
    out.push_str(&moved(answer, !answer["start"]["p50"].is_null()));
    out.push_str(&notes(answer));
    out
}

fn cluster(answer: &Value) -> String {
    let mut out = format!("{}, if it were so now:\n", text(answer, "cluster"));
    for (key, word) in [("with", "with the change"), ("without", "without it")] {
        let side = &answer[key];
        let _ = writeln!(out, "  {word}: all that is known now: end {}", when(&side["all_done"]));
        let _ = writeln!(out, "  {word}: cost {}", cost(&side["cost"]));
    }
    out.push_str(&nodes(&answer["with"]["nodes"], text(answer, "cluster")));
    let known = |key: &str| !answer[key]["all_done"]["p50"].is_null();
    out.push_str(&moved(answer, known("with") && known("without")));
    out.push_str(&notes(answer));
    out
}

fn when(range: &Value) -> String {
    let (Some(p50), Some(at)) = (range["p50_seconds"].as_u64(), range["p50"].as_str()) else {
        return "unknown".into();
    };
    let likely = match (range["p95_seconds"].as_u64(), range["p95"].as_str()) {
        (Some(p95), Some(_)) if p95 == p50 => String::new(),
        (Some(p95), Some(by)) => format!("; in 95 of 100 cases within {} ({by})", span(p95)),
        _ => "; how late at worst is unknown".into(),
    };
    match p50 {
        0 => format!("at once{likely}"),
        _ => format!("in {} ({at}){likely}", span(p50)),
    }
}

fn cost(range: &Value) -> String {
    match (range["p50"].as_str(), range["p95"].as_str()) {
        (Some(p50), Some(p95)) if p50 == p95 => p50.into(),
        (Some(p50), Some(p95)) => format!("{p50}; in 95 of 100 cases no more than {p95}"),
        (Some(p50), None) => format!("{p50}; how much at worst is unknown"),
        (None, _) => "unknown".into(),
    }
}

fn nodes(moments: &Value, name: &str) -> String {
    let moments = list(moments);
    if moments.is_empty() {
        return String::new();
    }
    let mut out = format!("Nodes of {name}, in a course of the middle:\n");
    for moment in moments.iter().take(MOMENTS_TOLD) {
        let _ = writeln!(
            out,
            "  {}  {} ({} with work)",
            text(moment, "at"),
            moment["nodes"],
            moment["with_work"]
        );
    }
    if moments.len() > MOMENTS_TOLD {
        let _ = writeln!(out, "  … and {} moments more (-o json)", moments.len() - MOMENTS_TOLD);
    }
    out
}

/// Who else would start at another time; where that is not known, nobody is not the answer.
fn moved(answer: &Value, known: bool) -> String {
    let mut out = String::new();
    for (key, word) in [("delayed", "later"), ("sooner", "sooner")] {
        let jobs = list(&answer[key]["jobs"]);
        let count = answer[key]["count"].as_u64().unwrap_or_default();
        if count > 0 {
            let _ = writeln!(
                out,
                "{} would start {word}:",
                if count == 1 { "1 job".into() } else { format!("{count} jobs") }
            );
        }
        for job in jobs {
            let by = |key: &str| job[key].as_i64().map(|by| span(by.unsigned_abs()));
            let by = match (by("p50_seconds"), by("p95_seconds")) {
                (Some(usual), Some(most)) => format!("by {usual}; p95 {most}"),
                (Some(usual), None) => format!("by {usual}; how much at worst is unknown"),
                (None, Some(most)) => format!("by how much is unknown; p95 {most}"),
                (None, None) => "by how much is unknown".into(),
            };
            let _ = writeln!(out, "  {} ({}) {by}", text(job, "job"), text(job, "owner"));
        }
    }
    let interrupted: Vec<&str> =
        list(&answer["interrupted"]["jobs"]).iter().filter_map(Value::as_str).collect();
    if !interrupted.is_empty() {
        let _ = writeln!(
            out,
            "Their nodes would be taken back, and they would be queued again: {}{}.",
            interrupted.join(", "),
            if answer["interrupted"]["count"].as_u64() > Some(interrupted.len() as u64) {
                ", …"
            } else {
                ""
            }
        );
    }
    match (out.is_empty(), known) {
        (true, true) => "Nobody else would start later.\n".into(),
        (true, false) => "Whether somebody else would start later is not known.\n".into(),
        (false, _) => out,
    }
}

fn notes(answer: &Value) -> String {
    let mut out = String::new();
    for note in list(&answer["notes"]) {
        let _ = writeln!(out, "{}", note.as_str().unwrap_or_default());
    }
    out.push_str("Nothing was changed.\n");
    out
}

/// The two largest units of a span.
fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// A hundred years: longer than anything is planned for.
const SECONDS_MAX: u64 = 36_500 * 86_400;

/// `90`, `90s`, `30m`, `2h`, `1d`.
fn seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().find(|(_, letter)| !letter.is_ascii_digit()) {
        Some((at, _)) => text.split_at(at),
        None => (text, "s"),
    };
    let factor = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err("write a time as 90s, 30m, 2h or 1d".into()),
    };
    let number: u64 = number.parse().map_err(|_| "write a time as 90s, 30m, 2h or 1d".to_owned())?;
    let seconds = number.checked_mul(factor).filter(|seconds| *seconds <= SECONDS_MAX);
    seconds.ok_or_else(|| format!("that is too long; at most {}d", SECONDS_MAX / 86_400))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_read_and_spans_are_written() {
        assert_eq!(
            ["90", "90s", "30m", "2h", "1d"].map(|text| seconds(text).unwrap()),
            [90, 90, 1_800, 7_200, 86_400]
        );
        for wrong in ["", "h", "2x", "-1s", "99999999999999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!([5, 65, 3_725, 90_000].map(span), ["5 s", "1 min 5 s", "1 h 2 min", "1 d 1 h"]);
    }

    #[test]
    fn a_plan_is_told() {
        let told = job(&json!({"job": "j", "cluster": "cpu",
            "start": {"p50": "T1", "p95": "T2", "p50_seconds": 65, "p95_seconds": 3_725},
            "end": {"p50": null, "p95": null, "p50_seconds": null, "p95_seconds": null},
            "cost": {"p50": "$0.10", "p95": "$0.10"},
            "durations": [{"from": "given", "says": "as you said"}, {"from": "history", "says": "the last 2 jobs"}],
            "nodes": [{"at": "T0", "nodes": 1, "with_work": 0}],
            "delayed": {"count": 1, "jobs": [{"job": "k", "owner": "ann", "p50_seconds": 5, "p95_seconds": null}]},
            "sooner": {"count": 0, "jobs": []}, "notes": ["Of the sweep only its first 2 trials are counted."]}));
        assert_eq!(
            told,
            "j on cpu, if it were submitted now:\n  start  in 1 min 5 s (T1); in 95 of 100 cases within 1 h 2 min (T2)\n  \
             end    unknown\n  cost   $0.10\n  how long: as you said\n  taken from the last 2 jobs\nNodes of cpu, in a course of the middle:\n  \
             T0  1 (0 with work)\n1 job would start later:\n  k (ann) by 5 s; how much at worst is unknown\n\
             Of the sweep only its first 2 trials are counted.\nNothing was changed.\n"
        );
    }
    #[test]
    fn what_is_unknown_of_others_is_not_denied() {
        let unknown = json!({"p50": null, "p95": null});
        let blank = json!({"job": "j", "cluster": "cpu", "start": unknown, "end": unknown, "cost": unknown,
            "delayed": {"count": 0, "jobs": []}, "sooner": {"count": 0, "jobs": []}});
        let told = job(&blank);
        assert!(told.contains("Whether somebody else would start later is not known.\n"), "{told}");
        assert!(!told.contains("Nobody else"), "{told}");
        let sides = json!({"all_done": unknown, "cost": {"p50": "$1.00", "p95": "$1.00"}});
        let told = cluster(&json!({"cluster": "cpu", "with": sides, "without": sides}));
        assert!(
            told.contains("  without it: all that is known now: end unknown\n  without it: cost $1.00\n"),
            "{told}"
        );
        assert!(told.contains("is not known.\n"), "{told}");
    }
}
