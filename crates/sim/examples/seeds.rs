//! Many seeds on this thread, with the rate: `cargo run -p neap-sim --example seeds -- FIRST COUNT STEPS FAULTS`.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use neap_sim::{Faults, Options, run, shrink};

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (first, count, steps) = (number(1), number(100), number(400));
    let faults =
        std::env::args().nth(4).map_or_else(Faults::all, |text| Faults::parse(&text).unwrap_or_default());
    let started = std::time::Instant::now();
    let (mut total, mut events, mut virtual_ms, mut bad) = (0, 0, 0, 0);
    for seed in first..first + count {
        let options = Options { seed, steps, faults, story: false };
        let outcome = run(&options);
        total += outcome.steps;
        events += outcome.events;
        virtual_ms += outcome.virtual_ms;
        if let Some(violation) = outcome.violation {
            bad += 1;
            if bad <= 15 {
                println!("seed {seed}: {violation} (step {})", outcome.steps);
            }
            if bad == 1 && std::env::var_os("STORY").is_some() {
                let small = shrink(&options, &violation);
                println!("{}steps {}", run(&Options { story: true, ..small }).story, small.steps);
            }
        }
    }
    let took = started.elapsed().as_secs_f64();
    println!(
        "{count} seeds, {bad} bad, {total} steps, {events} events, {} virtual s, {took:.2} s: {:.0} steps/s, {:.2} ms/seed",
        virtual_ms / 1000,
        total as f64 / took,
        took * 1000.0 / count as f64
    );
}
