//! `neap bench recovery`: a server with a long past is killed with -9 and started again, until it answers.

use super::clock;
use super::history::{self, Written};
use super::installation::{Bench, Installation, Subject};
use super::report::{Report, Unit};
use super::samples::Samples;
use super::wire::Wire;
use super::workspace::{Shape, Workspace};
use crate::failure::{Exit, Failure, Outcome};
use clap::Args;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(120);
/// The cluster on which jobs of the past still wait; it may have no nodes.
const WAITS: &str = "benchwaits";

#[derive(Debug, Args)]
pub struct RecoveryArgs {
    /// How many events the ledger holds
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub events: u64,
    /// How often the server is killed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    #[command(flatten)]
    pub subject: Subject,
}

pub fn run(args: &RecoveryArgs, bench: &Bench<'_>) -> Outcome<Report> {
    if args.subject.here {
        return Err(Failure::usage("recovery kills the server that it measures: it takes no --here"));
    }
    Installation::measure(bench, &args.subject, |installation| measure(args, installation))
}

fn measure(args: &RecoveryArgs, installation: &mut Installation<'_>) -> Outcome<Report> {
    let bench = installation.bench();
    let mut wire = installation.wire()?;
    let workspace = Workspace::prepare(installation, &mut wire, Shape::small(0, 1, 0))?;
    workspace.create_cluster(&mut wire, WAITS, Shape::small(0, 0, 0))?;
    installation.stop()?;
    bench.terminal.note(&format!("writing a past of {} events", args.events));
    let written = history::write(bench, &installation.data, args.events, &workspace.cluster, WAITS)?;
    installation.begin_again()?;
    installation.begun_again()?;

    let path = workspace.cluster_path(&workspace.cluster);
    let (mut recovery, mut memory) = (Samples::default(), Samples::default());
    for round in 1..=args.rounds {
        bench.terminal.note(&format!("kill {round} of {}", args.rounds));
        let begun = clock::now();
        installation.kill()?;
        installation.begin_again()?;
        first_answer(installation, &path, begun)?;
        recovery.push(clock::ms_since(begun));
        installation.begun_again()?;
        memory.push(installation.resident_bytes()? as f64);
    }
    report(args, installation, &written, &recovery, &memory)
}

/// Asks until there is an answer.
fn first_answer(installation: &mut Installation<'_>, path: &str, begun: Instant) -> Outcome<()> {
    loop {
        match installation.wire().and_then(|mut wire: Wire| wire.get(path)) {
            Ok(_) => return Ok(()),
            Err(failure) if failure.exit == Exit::Unreachable && begun.elapsed() < PATIENCE => {
                installation.check_beginning()?;
                clock::pause(POLL);
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn report(
    args: &RecoveryArgs,
    installation: &Installation<'_>,
    written: &Written,
    recovery: &Samples,
    memory: &Samples,
) -> Outcome<Report> {
    let about = format!(
        "{} events, {} of them after the last snapshot; killed {} times",
        written.events, written.after_snapshot, args.rounds
    );
    let mut report = Report::new("recovery", about, installation);
    report.parameter("events", args.events);
    report.parameter("rounds", args.rounds);
    report.many("recovery_ms", "kill -9 to the first answer", Unit::Milliseconds, recovery);
    report.one("after_snapshot", "events replayed", Unit::Count, written.after_snapshot as f64);
    report.one(
        "fill_per_second",
        "events written to fill the ledger",
        Unit::PerSecond,
        written.events_per_second,
    );
    report.many("resident_recovered_bytes", "server memory, recovered", Unit::Bytes, memory);
    report.memory(installation)?;
    Ok(report)
}
