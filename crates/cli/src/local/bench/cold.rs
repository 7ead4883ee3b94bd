//! `neap bench cold`: from zero nodes each time, submit to the first line that the job prints, and back to zero.

use super::installation::{Bench, Installation};
use super::report::{Report, Unit};
use super::samples::Samples;
use super::workspace::{Shape, Workspace};
use super::{SampleArgs, clock, stamp};
use crate::failure::Outcome;

pub fn run(args: &SampleArgs, bench: &Bench<'_>) -> Outcome<Report> {
    Installation::measure(bench, &args.subject, |installation| measure(args, installation))
}

fn measure(args: &SampleArgs, installation: &Installation<'_>) -> Outcome<Report> {
    let bench = installation.bench();
    let mut wire = installation.wire()?;
    let workspace = Workspace::prepare(installation, &mut wire, Shape::small(0, 1, 0))?;
    let body = workspace.job_body(stamp::COMMAND, None);
    let [mut first, mut seen, mut completed, mut zero] = [const { Vec::new() }; 4];
    for number in 0..args.jobs {
        bench.interrupt.check()?;
        workspace.wait_for_idle_nodes(installation, &mut wire, 0)?;
        let name = workspace.job_name(number.into());
        let course = stamp::submit(&mut wire, &workspace, &body, &name)?;
        first.push(course.running);
        seen.push(course.seen);
        completed.push(course.completed);
        let ended = clock::now();
        workspace.wait_for_idle_nodes(installation, &mut wire, 0)?;
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
    workspace.leave(&mut wire)?;
    Ok(report)
}
