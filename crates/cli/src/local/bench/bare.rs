//! What this machine can do at best: processes spawned and waited for by plain threads, with nothing around them.

use super::clock;
use super::interrupt::Interrupt;
use crate::failure::{Failure, Outcome};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long each kind is measured in a round.
const SPAN: Duration = Duration::from_millis(1_000);

/// `/bin/true` itself.
pub fn spawns_per_second(at_once: u32, interrupt: &Interrupt) -> Outcome<f64> {
    measure(at_once, &["/bin/true"], interrupt)
}

/// A shell that does nothing: what a job's command is run by.
pub fn shells_per_second(at_once: u32, interrupt: &Interrupt) -> Outcome<f64> {
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    measure(at_once, &[shell, "-c", "true"], interrupt)
}

fn measure(at_once: u32, argv: &[&str], interrupt: &Interrupt) -> Outcome<f64> {
    interrupt.check()?;
    let done = AtomicU64::new(0);
    let begun = clock::now();
    let outcome = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once)
            .map(|_| {
                scope.spawn(|| -> std::io::Result<()> {
                    while begun.elapsed() < SPAN {
                        // Without an environment, as cheap as a spawn can be.
                        Command::new(argv[0]).args(&argv[1..]).env_clear().status()?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked")))
        })
    });
    let seconds = begun.elapsed().as_secs_f64();
    outcome.map_err(|error| Failure::failed(format!("{} cannot be run: {error}", argv[0])))?;
    Ok(done.load(Ordering::Relaxed) as f64 / seconds)
}
