//! `neap bench noop`: jobs that do nothing, from the first submit to the last completion, beside bare spawns.

use super::crowd::Crowd;
use super::installation::{Bench, Installation, Subject, cpu_ms};
use super::machine::busy_ms;
use super::report::{Report, Unit};
use super::samples::Samples;
use super::wire::Wire;
use super::workspace::{SIDE_BY_SIDE_MAX, Shape, Workspace, share};
use super::{bare, clock};
use crate::failure::Outcome;
use clap::Args;

/// The nodes stay for the whole benchmark.
const IDLE_S: u32 = 3_600;

#[derive(Debug, Args)]
pub struct NoopArgs {
    /// How many jobs in each round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// How many nodes, all of them warm
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// How many jobs run side by side on a node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(SIDE_BY_SIDE_MAX)))]
    pub cpus: u32,
    /// How many connections submit at once
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: u32,
    /// How many rounds, each beside its own bare spawns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    #[command(flatten)]
    pub subject: Subject,
}

#[derive(Debug, Default)]
struct Rounds {
    jobs: Samples,
    bare: Samples,
    shells: Samples,
    submits: Samples,
    server_us: Samples,
    client_us: Samples,
    rest_us: Samples,
}

pub fn run(args: &NoopArgs, bench: &Bench<'_>) -> Outcome<Report> {
    Installation::measure(bench, &args.subject, |installation| measure(args, installation))
}

fn measure(args: &NoopArgs, installation: &Installation<'_>) -> Outcome<Report> {
    let (size, cpus) = share(args.cpus);
    let shape = Shape { size, min: args.nodes, max: args.nodes, idle_s: IDLE_S };
    Workspace::with_cluster(installation, shape, |workspace, wire| {
        let rounds = rounds(args, installation, workspace, wire, cpus)?;
        report(args, installation, &rounds)
    })
}

fn rounds(
    args: &NoopArgs,
    installation: &Installation<'_>,
    workspace: &Workspace,
    wire: &mut Wire,
    cpus: f64,
) -> Outcome<Rounds> {
    workspace.wait_for_idle_nodes(installation, wire, args.nodes)?;
    let mut crowd = Crowd::gather(installation, args.clients)?;
    let body = workspace.job_body("true", Some(cpus));
    let at_once = args.nodes * args.cpus;
    let bench = installation.bench();

    // Every slot has had a job before anything counts.
    let warm = u64::from(at_once) * 4;
    crowd.submit(workspace, &body, 0..warm)?;
    workspace.wait_for_no_jobs(installation, wire)?;

    let mut rounds = Rounds::default();
    let mut number = warm;
    for round in 1..=args.rounds {
        bench.terminal.note(&format!("round {round} of {}: {} jobs", args.rounds, args.jobs));
        rounds.bare.push(bare::spawns_per_second(at_once, &bench.interrupt)?);
        rounds.shells.push(bare::shells_per_second(at_once, &bench.interrupt)?);
        let numbers = number..number + u64::from(args.jobs);
        number = numbers.end;
        let cpu = Cpu::now(installation);
        let begun = clock::now();
        crowd.submit(workspace, &body, numbers)?;
        let submitted = begun.elapsed();
        workspace.wait_for_no_jobs(installation, wire)?;
        let ended = begun.elapsed();
        let jobs = f64::from(args.jobs);
        rounds.jobs.push(jobs / ended.as_secs_f64());
        rounds.submits.push(jobs / submitted.as_secs_f64());
        let used = Cpu::now(installation).since(&cpu);
        rounds.server_us.push(used.server_ms * 1e3 / jobs);
        rounds.client_us.push(used.client_ms * 1e3 / jobs);
        rounds.rest_us.push(used.rest_ms * 1e3 / jobs);
    }
    workspace.check_completed(wire, number)?;
    Ok(rounds)
}

/// Where processor time went: the server, this program, and all else on the machine, which is nodes and jobs.
struct Cpu {
    server_ms: f64,
    client_ms: f64,
    rest_ms: f64,
}

impl Cpu {
    fn now(installation: &Installation<'_>) -> Self {
        let (server_ms, client_ms) = (installation.server_cpu_ms(), cpu_ms("/proc/self/stat"));
        Self { server_ms, client_ms, rest_ms: busy_ms() - server_ms - client_ms }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            server_ms: self.server_ms - before.server_ms,
            client_ms: self.client_ms - before.client_ms,
            rest_ms: self.rest_ms - before.rest_ms,
        }
    }
}

fn report(args: &NoopArgs, installation: &Installation<'_>, rounds: &Rounds) -> Outcome<Report> {
    let about = format!(
        "{} jobs a round on {} warm nodes, {} side by side on each, from {} clients",
        args.jobs, args.nodes, args.cpus, args.clients
    );
    let mut report = Report::new("noop", about, installation);
    for (key, value) in [
        ("jobs", args.jobs),
        ("nodes", args.nodes),
        ("cpus", args.cpus),
        ("clients", args.clients),
        ("rounds", args.rounds),
    ] {
        report.parameter(key, value);
    }
    let ratio = |of: &Samples| rounds.jobs.median() / of.median().max(f64::MIN_POSITIVE);
    report.many("jobs_per_second", "no-op jobs, submit to completed", Unit::PerSecond, &rounds.jobs);
    report.many("bare_spawns_per_second", "bare spawns of /bin/true", Unit::PerSecond, &rounds.bare);
    report.one("ratio", "jobs to bare spawns", Unit::Ratio, ratio(&rounds.bare));
    report.many("bare_shells_per_second", "bare spawns of a shell", Unit::PerSecond, &rounds.shells);
    report.one("shell_ratio", "jobs to bare shells", Unit::Ratio, ratio(&rounds.shells));
    report.many("submits_per_second", "submits in the same rounds", Unit::PerSecond, &rounds.submits);
    report.many(
        "server_cpu_us_per_job",
        "processor time a job, server",
        Unit::Microseconds,
        &rounds.server_us,
    );
    report.many(
        "client_cpu_us_per_job",
        "processor time a job, clients",
        Unit::Microseconds,
        &rounds.client_us,
    );
    report.many(
        "rest_cpu_us_per_job",
        "processor time a job, nodes and jobs",
        Unit::Microseconds,
        &rounds.rest_us,
    );
    report.memory(installation)?;
    Ok(report)
}
