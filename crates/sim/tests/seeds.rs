//! Fault seeds in number, and the seeds that once failed.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use neap_sim::{Faults, Options, run};

/// Ten thousand worlds, each with its own choice of faults.
const SEEDS: u64 = 10_000;
const STEPS: u64 = 400;

#[test]
fn ten_thousand_worlds_keep_every_promise() {
    let next = AtomicU64::new(1);
    let steps = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed > SEEDS {
                            return failed;
                        }
                        let outcome =
                            run(&Options { seed, steps: STEPS, faults: Faults::all(), story: false });
                        steps.fetch_add(outcome.steps, Ordering::Relaxed);
                        if let Some(violation) = outcome.violation {
                            failed.push(format!("neap sim --seed {seed} --steps {STEPS}: {violation}"));
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{} of {SEEDS} worlds failed:\n{}", failed.len(), failed.join("\n"));
    assert!(steps.into_inner() > SEEDS * STEPS, "every world went its steps");
}

/// A file of `tests/seeds/` says what once went wrong, and holds lines `seed S steps N faults LIST`.
#[test]
fn seeds_that_once_failed_stay_good() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/seeds");
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "seeds") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| line.starts_with("seed ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["seed", seed, "steps", steps, "faults", faults] = words[..] else {
                panic!("{}: cannot be read: {line}", path.display());
            };
            let options = Options {
                seed: seed.parse().unwrap(),
                steps: steps.parse().unwrap(),
                faults: Faults::parse(faults).unwrap(),
                story: false,
            };
            let outcome = run(&options);
            assert!(outcome.violation.is_none(), "{}: {line}: {:?}", path.display(), outcome.violation);
            replayed += 1;
        }
    }
    assert!(replayed > 0, "there are seeds to replay");
}

/// What a world is for does happen in it: a check of what never comes finds nothing.
#[test]
fn everything_that_is_watched_happens() {
    let wanted = [
        "FamilyOpened",
        "kind: Driven",
        "family: Some",
        "JobReleased",
        "FamilyClosing",
        "StepNotReached",
        "StepFailed",
        "JobTimedOut",
        "others: [NodeId",
        "why: Rank",
        "rank 1 (node n-",
        "RankEnded",
    ];
    let mut missing: Vec<&str> = wanted.to_vec();
    for seed in 1..400 {
        let outcome = run(&Options { seed, steps: STEPS, faults: Faults::all(), story: true });
        missing.retain(|word| !outcome.story.contains(word));
        if missing.is_empty() {
            return;
        }
    }
    panic!("never seen: {missing:?}");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 1..20 {
        let options = Options { seed, steps: 300, faults: Faults::all(), story: true };
        let (one, other) = (run(&options), run(&options));
        assert!(!one.story.is_empty());
        assert_eq!(one.story, other.story, "seed {seed}");
    }
}
