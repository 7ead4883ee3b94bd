//! `neap bench planner`: how planning grows with nodes and queued jobs. The real machine in this process, no server.
//!
//! Each combination is measured in a process of its own, so that its memory is its own.

use super::installation::Bench;
use super::report::{Ground, Report, Unit};
use super::samples::Samples;
use super::table::{Cell, Column, Table};
use super::{Keep, clock, not_replayed};
use crate::failure::{Failure, Outcome};
use clap::Args;
use neap_core::catalogue::{self, Size};
use neap_core::job::Need;
use neap_core::{Capacity, limits};
use neap_sim::replay::standstill::{Moment, Standstill};
use serde::Deserialize;
use std::process::{Command, Stdio};

const SIZE: &str = "STANDARD_D64_V3";
const SIDE_BY_SIDE_MAX: u32 = 64;
/// Which of the running jobs ends next: far from the last one, as if by chance.
const STRIDE: usize = 7_919;

const COLUMNS: &[Column] = &[
    ("nodes", "Nodes", Unit::Count),
    ("jobs", "Jobs", Unit::Count),
    ("full_plan_ms", "Full plan", Unit::Milliseconds),
    ("placements", "Placed", Unit::Count),
    ("placements_per_second", "Placed", Unit::PerSecond),
    ("replan_us_p50", "One change p50", Unit::Microseconds),
    ("replan_us_p99", "p99", Unit::Microseconds),
    ("replan_us_max", "Max", Unit::Microseconds),
    ("explain_ms_p50", "Explain p50", Unit::Milliseconds),
    ("explain_ms_p99", "p99", Unit::Milliseconds),
    ("resident_bytes", "Memory", Unit::Bytes),
];

#[derive(Debug, Args)]
#[command(
    after_help = "So many nodes are ready and so many jobs wait on one cluster. A full plan looks at everything, as after \
                  a start, and places what there is room for. A change is one job that ends: the report is decided, \
                  the cluster planned again, the new state published. Explain: why one of those who wait does, chosen as if by chance. Nothing is \
                  written to disk.\n\n\
                  Examples:\n  neap bench planner\n  neap bench planner --nodes 10000 --jobs 1000000 -o json\n  \
                  neap bench planner --cpus 8"
)]
pub struct PlannerArgs {
    /// How many nodes, one number after the other
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::CLUSTER_NODES_MAX)))]
    pub nodes: Vec<u32>,
    /// How many queued jobs, with each number of nodes
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000, 1_000_000],
        value_parser = clap::value_parser!(u64).range(1..=limits::QUEUE_LENGTH_MAX as u64))]
    pub jobs: Vec<u64>,
    /// How many jobs run side by side on a node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(SIDE_BY_SIDE_MAX)))]
    pub cpus: u32,
    /// How many changes are measured, one after the other
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub changes: u32,
    /// How often the full plan is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    pub keep: Keep,
}

/// One combination; the names are those of the report.
#[derive(Debug, Deserialize)]
struct Row {
    nodes: f64,
    jobs: f64,
    full_plan_ms: f64,
    placements: f64,
    placements_per_second: f64,
    replan_us_p50: f64,
    replan_us_p99: f64,
    replan_us_max: f64,
    explain_ms_p50: f64,
    explain_ms_p99: f64,
    resident_bytes: f64,
}

pub fn run(args: &PlannerArgs, bench: &Bench<'_>) -> Outcome<Report> {
    let ground = Ground::here(bench.terminal);
    let combinations: Vec<(u32, u64)> =
        args.nodes.iter().flat_map(|nodes| args.jobs.iter().map(|jobs| (*nodes, *jobs))).collect();
    let mut table = Table::new("rows", COLUMNS);
    for (nodes, jobs) in &combinations {
        bench.interrupt.check()?;
        bench.terminal.note(&format!("{nodes} nodes, {jobs} jobs"));
        let alone = combinations.len() == 1;
        let row = if alone { measure(args, *nodes, *jobs, bench)? } else { apart(args, *nodes, *jobs)? };
        table.push(row.cells());
    }
    let about = format!(
        "one cluster, up to {} jobs on a node; full plan: median of {}; one change: of {}",
        args.cpus, args.rounds, args.changes
    );
    let mut report = Report::new("planner", about, ground);
    report.parameter("nodes", args.nodes.clone());
    report.parameter("jobs", args.jobs.clone());
    report.parameter("cpus", args.cpus);
    report.parameter("changes", args.changes);
    report.parameter("rounds", args.rounds);
    report.table(table);
    Ok(report)
}

fn measure(args: &PlannerArgs, nodes: u32, jobs: u64, bench: &Bench<'_>) -> Outcome<Row> {
    let moment = Moment { nodes, jobs, size: SIZE.into(), need: need(args.cpus) };
    let standstill = Standstill::new(&moment).map_err(|error| not_replayed(&error))?;
    let mut full = Samples::default();
    let mut placements = 0;
    let mut planning = standstill.begin();
    for round in 0..args.rounds {
        bench.interrupt.check()?;
        if round > 0 {
            planning = standstill.begin();
        }
        let begun = clock::now();
        placements = planning.plan_all();
        full.push(clock::ms_since(begun));
    }
    drop(standstill);

    let mut changes = Samples::default();
    for turn in 0..args.changes as usize {
        let Some(ended) = planning.choose(turn.wrapping_mul(STRIDE)) else { break };
        let begun = clock::now();
        planning.change(ended).map_err(|error| not_replayed(&error))?;
        changes.push(clock::ms_since(begun) * 1e3);
    }
    let changes = changes.summary().ok_or_else(|| Failure::failed("no job ran, so none could end"))?;
    let mut explained = Samples::default();
    for turn in 0..args.changes as usize {
        let Some(waiting) = planning.choose_waiting(turn.wrapping_mul(STRIDE)) else { break };
        let begun = clock::now();
        planning
            .explain(waiting)
            .ok_or_else(|| Failure::failed("a job that waits could not be explained"))?;
        explained.push(clock::ms_since(begun));
    }
    let explained = explained.summary();
    Ok(Row {
        nodes: nodes.into(),
        jobs: jobs as f64,
        full_plan_ms: full.median(),
        placements: placements as f64,
        placements_per_second: placements as f64 * 1e3 / full.median().max(f64::MIN_POSITIVE),
        replan_us_p50: changes.median,
        replan_us_p99: changes.p99,
        replan_us_max: changes.max,
        explain_ms_p50: explained.as_ref().map_or(0.0, |explained| explained.median),
        explain_ms_p99: explained.as_ref().map_or(0.0, |explained| explained.p99),
        resident_bytes: resident_bytes()? as f64,
    })
}

/// So much that exactly so many jobs fit on a node.
fn need(side_by_side: u32) -> Need {
    let node = catalogue::size(SIZE).map(Size::capacity).unwrap_or_default();
    match side_by_side {
        1 => Need::Whole,
        many => Need::Share(Capacity { cpus_milli: node.cpus_milli / many, memory_mb: 0, gpus: 0 }),
    }
}

/// The same measurement in another process of this program.
fn apart(args: &PlannerArgs, nodes: u32, jobs: u64) -> Outcome<Row> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find out which program this is: {error}")))?;
    let output = Command::new(program)
        .args(["bench", "planner", "-o", "json", "--only-show-errors"])
        .args(["--nodes", &nodes.to_string(), "--jobs", &jobs.to_string(), "--cpus", &args.cpus.to_string()])
        .args(["--changes", &args.changes.to_string(), "--rounds", &args.rounds.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::failed(format!("neap cannot be run: {error}")))?;
    let unclear = || Failure::failed(format!("{nodes} nodes with {jobs} jobs could not be measured"));
    if !output.status.success() {
        return Err(unclear());
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|_| unclear())?;
    Row::deserialize(&report["rows"][0]).map_err(|_| unclear())
}

/// Memory of this process, as the kernel counts it.
fn resident_bytes() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map(|kb| kb * 1024)
        .ok_or_else(|| Failure::failed("/proc/self/status does not tell this program's memory"))
}

impl Row {
    fn cells(&self) -> [Cell; 11] {
        [
            self.nodes.into(),
            self.jobs.into(),
            self.full_plan_ms.into(),
            self.placements.into(),
            self.placements_per_second.into(),
            self.replan_us_p50.into(),
            self.replan_us_p99.into(),
            self.replan_us_max.into(),
            self.explain_ms_p50.into(),
            self.explain_ms_p99.into(),
            self.resident_bytes.into(),
        ]
    }
}
