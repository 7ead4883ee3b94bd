//! `neap bench trace`: a GPU cluster's trace at several policies, through the real machine on simulated nodes in virtual
//! time: how long jobs wait, and what their nodes cost.

use super::installation::Bench;
use super::report::{Ground, Report, Unit};
use super::table::{Cell, Column, Table};
use super::{Keep, not_replayed};
use crate::failure::{Failure, Outcome};
use clap::Args;
use neap_core::catalogue::{self, Size};
use neap_core::{Capacity, limits};
use neap_sim::replay::Replay;
use neap_sim::replay::course::{Course, NodeTime, Waiting};
use neap_sim::replay::scene::{NodeTimes, Pool};
use neap_sim::replay::synthetic::synthetic;
use neap_sim::replay::trace::{Trace, Work};
use std::path::{Path, PathBuf};

const POOL: &str = "trace";
/// From the order to go to the node's absence.
const LEAVE_MS: u64 = 100;
const HOUR_MS: f64 = 3_600_000.0;
/// Between two looks at whether somebody wants this to end.
const STEPS: u32 = 4_096;

const COLUMNS: &[Column] = &[
    ("nodes", "Nodes", Unit::Count),
    ("policy", "Policy", Unit::Count),
    ("wait_mean_s", "Wait mean", Unit::Seconds),
    ("wait_mean_least_s", "Least", Unit::Seconds),
    ("wait_mean_most_s", "Most", Unit::Seconds),
    ("wait_p50_s", "p50", Unit::Seconds),
    ("wait_p95_s", "p95", Unit::Seconds),
    ("node_hours", "Node time", Unit::Hours),
    ("idle_share", "Idle", Unit::Share),
    ("boot_share", "Boot", Unit::Share),
    ("gpu_use", "GPUs used", Unit::Share),
    ("nodes_made", "Made", Unit::Count),
];

const COUNTED: &str = "A job waits from its submission until it is placed on a ready node (one wider than a node, until its \
                       last node is). Nodes are counted from the wish for each until it is gone, and until the last job \
                       has ended. Order is strict in every row: a job that does not fit yet is not overtaken.";
const CHANCE: &str = "Least and most are the mean waits of single traces. Where many jobs wait for room, on which node each \
                      lands decides more than the policy does, to either side: rows that differ by less than their traces \
                      do are alike.";

#[derive(Debug, Args)]
#[command(
    after_help = "The format of a trace, and how the public ones map onto it: docs/trace-format.md. Without --trace some \
                  of the same shape are made: most jobs short, most time in few long ones, busy days and calm nights.\n\n\
                  Examples:\n  neap bench trace\n  neap bench trace --trace jobs.csv --nodes 64 --idle 0,120,600\n  \
                  neap bench trace --jobs 500 --days 2 --seed 7 --seeds 1 --write jobs.csv"
)]
pub struct TraceArgs {
    /// A trace to replay, as CSV [default: synthetic ones]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["jobs", "days", "seed", "seeds"])]
    pub trace: Option<PathBuf>,
    /// Idle times before scale-down in seconds, a row for each
    #[arg(long, value_delimiter = ',', default_values_t = [0, 120, 600], value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=limits::IDLE_TIME_S_MAX))]
    pub idle: Vec<u64>,
    /// The most nodes, which the fixed cluster always has: one number after the other
    #[arg(long, value_delimiter = ',', default_values_t = [20, 32],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::CLUSTER_NODES_MAX)))]
    pub nodes: Vec<u32>,
    /// What the nodes are
    #[arg(long, default_value = "STANDARD_ND40RS_V2")]
    pub size: String,
    /// How long a local node takes to boot, in milliseconds
    #[arg(long, default_value_t = 250, value_name = "MS", value_parser = clap::value_parser!(u64).range(..=86_400_000))]
    pub boot_ms: u64,
    /// How long a cloud node takes to boot, in seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub cloud_boot: u64,
    /// Idle time of the cloud cluster, in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=limits::IDLE_TIME_S_MAX))]
    pub cloud_idle: u64,
    /// Jobs of a synthetic trace
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub jobs: u32,
    /// Days that it covers
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=366))]
    pub days: u32,
    /// Which one of its kind
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many of them, from that seed on, are taken together
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,
    /// Also write the (first) trace that is replayed to this file
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    #[command(flatten)]
    pub keep: Keep,
}

/// One row.
#[derive(Debug)]
struct Policy {
    name: String,
    min: u32,
    max: u32,
    idle_s: u64,
    boot_ms: u64,
}

/// What a policy came to, over all traces.
#[derive(Debug, Default)]
struct Tally {
    waits_ms: Vec<u64>,
    /// Of each trace.
    means_ms: Vec<u64>,
    nodes: NodeTime,
}

pub fn run(args: &TraceArgs, bench: &Bench<'_>) -> Outcome<Report> {
    let node = catalogue::size(&args.size).map(Size::capacity).ok_or_else(|| {
        Failure::usage(format!("the size {} is not known", args.size)).hint("neap compute list-sizes")
    })?;
    let traces = traces(args)?;
    if node.gpus == 0 && traces.iter().flat_map(|trace| &trace.jobs).any(|job| job.gpus > 0) {
        return Err(Failure::usage(format!(
            "nodes of size {} have no GPUs and jobs ask for some",
            args.size
        )));
    }
    if let (Some(path), Some(first)) = (&args.write, traces.first()) {
        std::fs::write(path, first.write()).map_err(|error| Failure::file("write", path, &error))?;
    }
    let ground = Ground::here(bench.terminal);
    let work: Vec<Work> = traces.iter().map(|trace| trace.on(POOL, node)).collect();
    let gpu_hours = traces.iter().map(Trace::gpu_ms).sum::<u128>() as f64 / HOUR_MS;
    let mut table = Table::new("rows", COLUMNS);
    for policy in args.nodes.iter().flat_map(|nodes| policies(args, *nodes)) {
        bench.terminal.note(&format!("at most {} nodes: {}", policy.max, policy.name));
        let mut tally = Tally::default();
        for work in &work {
            tally.add(work, &replay(args, &policy, work, bench)?);
        }
        table.push(tally.cells(&policy, gpu_hours, node));
    }
    let about = format!(
        "{}: {} jobs, {gpu_hours:.0} GPU-hours, on nodes of {} GPUs",
        match &args.trace {
            Some(path) => path.display().to_string(),
            None => format!("{} synthetic traces of {} days", args.seeds, args.days),
        },
        traces.iter().map(|trace| trace.jobs.len()).sum::<usize>(),
        node.gpus
    );
    let mut report = Report::new("trace", about, ground);
    match &args.trace {
        Some(path) => report.parameter("trace", path.display().to_string()),
        None => {
            report.parameter("jobs", args.jobs);
            report.parameter("days", args.days);
            report.parameter("seed", args.seed);
            report.parameter("seeds", args.seeds);
        }
    }
    report.parameter("idle_s", args.idle.clone());
    report.parameter("nodes", args.nodes.clone());
    report.parameter("size", args.size.clone());
    report.parameter("boot_ms", args.boot_ms);
    report.parameter("cloud_boot_s", args.cloud_boot);
    report.parameter("cloud_idle_s", args.cloud_idle);
    report.table(table);
    report.note(COUNTED);
    report.note(CHANCE);
    Ok(report)
}

fn traces(args: &TraceArgs) -> Outcome<Vec<Trace>> {
    match &args.trace {
        Some(path) => Ok(vec![read(path)?]),
        None => Ok((args.seed..args.seed.saturating_add(args.seeds))
            .map(|seed| synthetic(seed, args.jobs as usize, args.days.into()))
            .collect()),
    }
}

fn read(path: &Path) -> Outcome<Trace> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
    Trace::read(&text).map_err(|problems| {
        let mut failure = Failure::usage(format!("{} is not a trace that can be replayed", path.display()))
            .hint("docs/trace-format.md describes the columns");
        failure.details = problems.iter().map(ToString::to_string).collect();
        failure
    })
}

fn policies(args: &TraceArgs, max: u32) -> Vec<Policy> {
    let elastic = |name: String, boot_ms: u64, idle_s: u64| Policy { name, min: 0, max, idle_s, boot_ms };
    let mut policies = vec![
        Policy { name: "fixed nodes, first come".to_owned(), min: max, max, idle_s: 0, boot_ms: 0 },
        elastic(
            format!("Azure rule, boot {} s, idle {} s", args.cloud_boot, args.cloud_idle),
            args.cloud_boot * 1_000,
            args.cloud_idle,
        ),
    ];
    policies.extend(args.idle.iter().map(|idle_s| {
        elastic(format!("Neap, boot {} ms, idle {idle_s} s", args.boot_ms), args.boot_ms, *idle_s)
    }));
    policies
}

fn replay(args: &TraceArgs, policy: &Policy, work: &Work, bench: &Bench<'_>) -> Outcome<Course> {
    let pool = Pool {
        name: POOL.into(),
        size: args.size.as_str().into(),
        min: policy.min,
        max: policy.max,
        idle_ms: policy.idle_s * 1_000,
    };
    let times = NodeTimes { boot_ms: policy.boot_ms, leave_ms: LEAVE_MS };
    let mut replay = Replay::new(&[pool], &work.tasks, times).map_err(|error| not_replayed(&error))?;
    loop {
        bench.interrupt.check()?;
        for _ in 0..STEPS {
            if !replay.step().map_err(|error| not_replayed(&error))? {
                return Ok(replay.finish());
            }
        }
    }
}

impl Tally {
    fn add(&mut self, work: &Work, course: &Course) {
        let before = self.waits_ms.len();
        self.waits_ms.extend(work.waits_ms(course));
        self.means_ms.push(Waiting::of(self.waits_ms[before..].iter().copied()).mean_ms);
        self.nodes = self.nodes.plus(course.nodes);
    }

    fn cells(self, policy: &Policy, gpu_hours: f64, node: Capacity) -> [Cell; 12] {
        let seconds = |ms: Option<u64>| Cell::from(ms.unwrap_or_default() as f64 / 1e3);
        let total_ms = self.nodes.total_ms().max(1) as f64;
        let node_hours = total_ms / HOUR_MS;
        let waiting = Waiting::of(self.waits_ms);
        [
            f64::from(policy.max).into(),
            policy.name.as_str().into(),
            seconds(Some(waiting.mean_ms)),
            seconds(self.means_ms.iter().min().copied()),
            seconds(self.means_ms.iter().max().copied()),
            seconds(Some(waiting.p50_ms)),
            seconds(Some(waiting.p95_ms)),
            node_hours.into(),
            (self.nodes.idle_ms as f64 / total_ms).into(),
            (self.nodes.boot_ms as f64 / total_ms).into(),
            (gpu_hours / (node_hours * f64::from(node.gpus.max(1)))).into(),
            f64::from(self.nodes.made).into(),
        ]
    }
}
