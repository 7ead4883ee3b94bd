//! `neap bench latency`: one job after the other on a node that is there, from submit to running.

use super::installation::{Bench, Installation};
use super::report::{Report, Unit};
use super::samples::Samples;
use super::wire::Wire;
use super::workspace::{Shape, Workspace};
use super::{SampleArgs, stamp};
use crate::failure::Outcome;

const IDLE_S: u32 = 3_600;
const WARM: u32 = 5;

pub fn run(args: &SampleArgs, bench: &Bench<'_>) -> Outcome<Report> {
    Installation::measure(bench, &args.subject, |installation| {
        Workspace::with_cluster(installation, Shape::small(1, 1, IDLE_S), |workspace, wire| {
            measure(args, installation, workspace, wire)
        })
    })
}

fn measure(
    args: &SampleArgs,
    installation: &Installation<'_>,
    workspace: &Workspace,
    wire: &mut Wire,
) -> Outcome<Report> {
    let bench = installation.bench();
    workspace.wait_for_idle_nodes(installation, wire, 1)?;
    let body = workspace.job_body(stamp::COMMAND, None);
    let [mut acknowledged, mut running, mut seen, mut completed] = [const { Vec::new() }; 4];
    for number in 0..WARM + args.jobs {
        bench.interrupt.check()?;
        let name = workspace.job_name(number.into());
        let course = stamp::submit(wire, workspace, &body, &name)?;
        if number >= WARM {
            acknowledged.push(course.acknowledged);
            running.push(course.running);
            seen.push(course.seen);
            completed.push(course.completed);
        }
    }
    let about = format!("{} jobs, one after the other, on one warm node", args.jobs);
    let mut report = Report::new("latency", about, installation);
    report.parameter("jobs", args.jobs);
    for (key, label, samples) in [
        ("running_ms", "submit to running", running),
        ("acknowledged_ms", "submit to acknowledged (durable)", acknowledged),
        ("seen_ms", "submit to its output read", seen),
        ("completed_ms", "submit to completed", completed),
    ] {
        report.many(key, label, Unit::Milliseconds, &samples.into_iter().collect::<Samples>());
    }
    report.memory(installation)?;
    Ok(report)
}
