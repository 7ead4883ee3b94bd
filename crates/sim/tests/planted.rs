//! Every planted bug is found, and the seed that shows it is named.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use neap_core::planted::{self, Bug};
use neap_sim::{Faults, Options, run};

/// Worlds that may be tried for one bug.
const SEEDS_MAX: u64 = 20_000;
const STEPS: u64 = 500;

/// What must go wrong in the world for a bug to show.
fn faults_for(bug: Bug) -> &'static str {
    match bug {
        Bug::LeaseFromReceipt => "partition,delay,remove-fails,pause",
        Bug::FailedFenceCounts => "remove-fails,break,pause",
        Bug::OlderConnectionWins => "reorder,break,delay",
        Bug::SupervisorIgnoresLease => "never-returns,zombie",
        Bug::AgentIgnoresLease => "never-returns,break",
        Bug::BackoffNeverEnds => "create-fails,throttle",
        Bug::LeaseNeverEnds | Bug::RestartForgetsLeases => "vanish,server-crash",
        Bug::NoOrphanSweep => "provider-timeout,zombie,server-crash",
        Bug::ReportAcknowledgedBeforeCommit => "server-crash,disk",
        _ => "all",
    }
}

fn find(bug: Bug) -> Result<String, String> {
    planted::plant(Some(bug));
    let faults = Faults::parse(faults_for(bug)).unwrap();
    let found = (1..=SEEDS_MAX).find_map(|seed| {
        let outcome = run(&Options { seed, steps: STEPS, faults, story: false });
        outcome.violation.map(|violation| (seed, violation))
    });
    planted::plant(None);
    match found {
        // The bug is what was found, and nothing else.
        Some((seed, _)) if run(&Options { seed, steps: STEPS, faults, story: false }).violation.is_some() => {
            Err(format!("seed {seed} breaks a promise without {} too", bug.word()))
        }
        Some((seed, violation)) => Ok(format!("{:<34} seed {seed:<6} {violation}", bug.word())),
        None => Err(format!("{} was not found in {SEEDS_MAX} worlds", bug.word())),
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the seeds are told to whoever asks for the test's output")]
fn every_planted_bug_is_found() {
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match find(*bug) {
                        Ok(line) => println!("{line}"),
                        Err(line) => missed.lock().unwrap().push(line),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(Bug::ALL.len() >= 25);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
