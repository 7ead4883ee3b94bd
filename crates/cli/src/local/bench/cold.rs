//! `neap bench cold`: from zero nodes each time, submit to the first line that the job prints, and back to zero.

use super::installation::{Bench, Installation};
use super::report::{Report, Unit};
use super::samples::Samples;
use super::wire::Wire;
use super::workspace::{Shape, Workspace};
use super::{SampleArgs, clock, stamp};
use crate::failure::Outcome;

pub fn run(args: &SampleArgs, bench: &Bench<'_>) -> Outcome<Report> {
    Installation::measure(bench, &args.subject, |installation| {
        Workspace::with_cluster(installation, Shape::small(0, 1, 0), |workspace, wire| {
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
    let body = workspace.job_body(stamp::COMMAND, None);
    let [mut first, mut seen, mut completed, mut zero] = [const { Vec::new() }; 4];
    for number in 0..args.jobs {
        bench.interrupt.check()?;
        workspace.wait_for_idle_nodes(installation, wire, 0)?;
        let name = workspace.job_name(number.into());
        let course = stamp::submit(wire, workspace, &body, &name)?;
        first.push(course.running);
        seen.push(course.seen);
        completed.push(course.completed);
        let ended = clock::now();
        workspace.wait_for_idle_nodes(installation, wire, 0)?;
        zero.push(clock::ms_since(ended));
    }
    let about = format!("{} jobs, each on a cluster of zero nodes", args.jobs);
    let mut report = Report::new("cold", about, installation);
    report.parameter("jobs", args.jobs);
    for (key, label, samples) in [
        ("first_line_ms", "submit to the first log line", first),
        ("seen_ms", "submit to that line read", seen),
        ("completed_ms", "submit to completed", completed),
        ("zero_ms", "completed to zero nodes again", zero),
    ] {
        report.many(key, label, Unit::Milliseconds, &samples.into_iter().collect::<Samples>());
    }
    report.memory(installation)?;
    Ok(report)
}
