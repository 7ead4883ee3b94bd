//! `neap bench kueue`: the load shapes of Kueue's own performance gate on the planner, with simulated nodes in virtual
//! time; what Kueue published of its runs stands beside it.

use super::installation::Bench;
use super::report::{Ground, Report, Unit};
use super::samples::Samples;
use super::table::{Column, Table};
use super::{Keep, clock, not_replayed};
use crate::failure::Outcome;
use clap::{Args, ValueEnum};
use neap_sim::replay::Replay;
use neap_sim::replay::course::Course;
use neap_sim::replay::scene::NodeTimes;
use neap_sim::replay::shapes::{BASELINE, LARGE_SCALE, Shape};

const COLUMNS: &[Column] = &[
    ("class", "Class", Unit::Count),
    ("workloads", "Workloads", Unit::Count),
    ("admission_mean_ms", "Neap mean", Unit::Milliseconds),
    ("admission_p95_ms", "p95", Unit::Milliseconds),
    ("admission_max_ms", "Max", Unit::Milliseconds),
    ("kueue_admission_mean_ms", "Kueue mean", Unit::Milliseconds),
];

const MAPPING: &str = "A queue is a cluster with one node of 20 units, its nominal quota; there is no borrowing between \
                       queues and no preemption, and order is strict: priority, then creation. Admission is placement \
                       on the node. Time is virtual: deciding takes none of it, so that times to admission tell of order \
                       alone. What deciding and planning cost is the processor time.";
const PUBLISHED: &str = "Kueue's figures are the published means of its own runs on its own machines, in real time; they \
                         also pay for every write to the Kubernetes API and etcd. They are a reference, not a race.";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  neap bench kueue\n  neap bench kueue --shape large-scale -o json")]
pub struct KueueArgs {
    /// 15,000 workloads in 30 queues, or 50,000 in 1,000
    #[arg(long, value_enum, default_value_t = ShapeName::Baseline)]
    pub shape: ShapeName,
    /// How often everything is run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    pub keep: Keep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShapeName {
    Baseline,
    LargeScale,
}

impl ShapeName {
    const fn shape(self) -> &'static Shape {
        match self {
            Self::Baseline => &BASELINE,
            Self::LargeScale => &LARGE_SCALE,
        }
    }
}

/// What the rounds took, in real time.
#[derive(Debug, Default)]
struct Rounds {
    cpu_ms: Samples,
    decisions: Samples,
    admissions: Samples,
    batch_us: Samples,
}

pub fn run(args: &KueueArgs, bench: &Bench<'_>) -> Outcome<Report> {
    let ground = Ground::here(bench.terminal);
    let shape = args.shape.shape();
    let mut rounds = Rounds::default();
    let mut course = None;
    for round in 1..=args.rounds {
        bench.terminal.note(&format!("round {round} of {}: {}", args.rounds, shape.name));
        course = Some(rounds.run(shape, bench)?);
    }
    let about = format!(
        "{}: {} workloads in {} queues, in virtual time",
        shape.name,
        shape.tasks().len(),
        shape.queues
    );
    let mut report = Report::new("kueue", about, ground);
    report.parameter("shape", shape.name);
    report.parameter("rounds", args.rounds);
    if let Some(course) = course {
        tell(&mut report, shape, &course, &rounds);
    }
    Ok(report)
}

impl Rounds {
    fn run(&mut self, shape: &Shape, bench: &Bench<'_>) -> Outcome<Course> {
        let (pools, tasks) = (shape.pools(), shape.tasks());
        let before = cpu_ms();
        let mut replay =
            Replay::new(&pools, &tasks, NodeTimes::default()).map_err(|error| not_replayed(&error))?;
        loop {
            bench.interrupt.check()?;
            let begun = clock::now();
            if !replay.step().map_err(|error| not_replayed(&error))? {
                break;
            }
            self.batch_us.push(clock::ms_since(begun) * 1e3);
        }
        let cpu_ms = cpu_ms() - before;
        let course = replay.finish();
        let seconds = (cpu_ms / 1e3).max(f64::MIN_POSITIVE);
        self.cpu_ms.push(cpu_ms);
        self.decisions.push(course.events as f64 / seconds);
        self.admissions.push(course.placements as f64 / seconds);
        Ok(course)
    }
}

fn tell(report: &mut Report, shape: &Shape, course: &Course, rounds: &Rounds) {
    report.many("cpu_ms", "processor time for all of it", Unit::Milliseconds, &rounds.cpu_ms);
    report.many("decisions_per_second", "events decided and planned", Unit::PerSecond, &rounds.decisions);
    report.many("admissions_per_second", "workloads admitted", Unit::PerSecond, &rounds.admissions);
    report.many("batch_us", "one batch", Unit::Microseconds, &rounds.batch_us);
    report.one("span_s", "all of it, virtual time", Unit::Seconds, course.end_ms as f64 / 1e3);
    report.one("least_s", "least possible, by the work itself", Unit::Seconds, shape.least_ms() as f64 / 1e3);
    report.one(
        "kueue_wall_s",
        "Kueue, published mean wall time",
        Unit::Seconds,
        shape.kueue_wall_ms as f64 / 1e3,
    );
    report.one("usage", "quota in use", Unit::Share, shape.usage(course));
    report.one("kueue_usage", "Kueue, published mean", Unit::Share, shape.kueue_usage);
    let mut table = Table::new("classes", COLUMNS);
    for admission in shape.admissions(course) {
        let waiting = admission.waiting;
        table.push([
            admission.class.into(),
            (admission.workloads as f64).into(),
            (waiting.mean_ms as f64).into(),
            (waiting.p95_ms as f64).into(),
            (waiting.max_ms as f64).into(),
            (admission.kueue_mean_ms as f64).into(),
        ]);
    }
    report.table(table);
    report.note(MAPPING);
    report.note(PUBLISHED);
}

/// Processor time of this process so far.
fn cpu_ms() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 * 1e3 + spent.tv_nsec as f64 / 1e6
}
