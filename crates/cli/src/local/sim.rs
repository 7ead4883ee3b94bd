//! `neap sim`: the simulated world, one seed or many.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::output::emit;
use crate::terminal::Terminal;
use clap::Args;
use neap_sim::{Fault, Faults, Options, run as run_world, shrink};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Args)]
#[command(
    after_help = "The real machine, conversations, agent session and log format run in a world on one thread with a \
                  seeded clock, network, disk, provider, agents and users. Faults happen for --steps steps; then \
                  everything must come to rest. A failing seed is made as short as it can be and told. \
                  Exit code 1 if a promise was broken.\n\n\
                  Examples:\n  neap sim --seeds 1000\n  neap sim --seed 42 --story\n  \
                  neap sim --seed 42 --steps 500 --faults server-crash,disk"
)]
pub struct SimArgs {
    /// The first seed
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub seed: u64,
    /// How many seeds, one after the other
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seeds: u64,
    /// Steps with faults in each world
    #[arg(long, default_value_t = 400, value_name = "N")]
    pub steps: u64,
    /// Faults by name with commas between, or all, or none
    #[arg(long, default_value = "all", value_name = "LIST")]
    pub faults: String,
    /// Tell what happens, step by step (of one seed)
    #[arg(long)]
    pub story: bool,
}

pub fn run(args: &SimArgs, _global: &Global, terminal: &Terminal) -> Outcome<ExitCode> {
    let faults = Faults::parse(&args.faults).map_err(|word| {
        let known: Vec<&str> = Fault::ALL.iter().map(|fault| fault.word()).collect();
        Failure::usage(format!("'{word}' is no fault; use all, none or some of: {}", known.join(", ")))
    })?;
    let options = Options { seed: args.seed, steps: args.steps, faults, story: false };
    if args.story {
        let outcome = run_world(&Options { story: true, ..options });
        emit(&outcome.story)?;
        emit(&format!("{}\n", summary(outcome.steps, outcome.events, outcome.virtual_ms)))?;
        return Ok(match outcome.violation {
            None => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
        });
    }
    let spinner = terminal.spinner("simulating");
    let total = run_many(&options, args.seeds);
    spinner.finish_and_clear();
    let mut text = format!("{} seeds, {}", args.seeds, summary(total.steps, total.events, total.virtual_ms));
    let Some(first) = total.failed.first() else {
        emit(&format!("{text}: no promise was broken\n"))?;
        return Ok(ExitCode::SUCCESS);
    };
    let _ = writeln!(text, ": {} seeds broke a promise", total.failed.len());
    for (seed, violation) in &total.failed {
        let _ =
            writeln!(text, "  neap sim --seed {seed} --steps {} --faults {faults}: {violation}", args.steps);
    }
    let small = shrink(&Options { seed: first.0, ..options }, &first.1);
    let _ = writeln!(text, "\nThe story of seed {}, with {} steps:\n", small.seed, small.steps);
    text.push_str(&run_world(&Options { story: true, ..small }).story);
    emit(&text)?;
    Ok(ExitCode::FAILURE)
}

fn summary(steps: u64, events: u64, virtual_ms: u64) -> String {
    format!("{steps} steps, {events} events, {} h of simulated time", virtual_ms / 3_600_000)
}

#[derive(Debug, Default)]
struct Total {
    steps: u64,
    events: u64,
    virtual_ms: u64,
    failed: Vec<(u64, neap_sim::Violation)>,
}

/// Worlds share nothing: each core takes the next seed.
fn run_many(options: &Options, seeds: u64) -> Total {
    let next = AtomicU64::new(options.seed);
    let end = options.seed.saturating_add(seeds);
    let total = Mutex::new(Total::default());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = run_world(&Options { seed, ..*options });
                    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    total.steps += outcome.steps;
                    total.events += outcome.events;
                    total.virtual_ms += outcome.virtual_ms;
                    total.failed.extend(outcome.violation.map(|violation| (seed, violation)));
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.failed.sort_by_key(|(seed, _)| *seed);
    total
}
