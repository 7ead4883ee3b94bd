//! Work of the shape that public traces of GPU clusters show: most jobs small and short, most of the time taken by few
//! that are long, arrivals by the hour of the day and the day of the week, and sweeps of many jobs by one user.
//!
//! Drawn with integers alone, so that a seed is the same trace on every machine.

use super::trace::{Trace, TraceJob};
use crate::rng::Rng;

const HOUR_MS: u64 = 3_600_000;
const HOURS_PER_DAY: u64 = 24;
const USERS: u64 = 40;

/// Submissions by hour of a working day; the least are before dawn, the most in the afternoon.
const HOURS: [u64; 24] = [4, 3, 2, 2, 2, 2, 3, 4, 7, 11, 13, 13, 11, 12, 14, 15, 14, 12, 10, 8, 8, 7, 6, 5];
/// Of seven days the last two have this part of it, in per cent.
const WEEKEND_PERCENT: u64 = 40;

/// Running times: so many of a thousand jobs are shorter than so many seconds. Half are done within five minutes; the
/// mean is close to two hours.
const DURATIONS: [(u64, u64); 9] = [
    (0, 5),
    (100, 20),
    (250, 70),
    (500, 300),
    (750, 1_500),
    (900, 9_000),
    (950, 25_000),
    (990, 110_000),
    (1_000, 300_000),
];
/// GPUs and how many of a hundred jobs ask for them.
const GPUS: [(u32, u64); 7] = [(0, 6), (1, 52), (2, 12), (4, 12), (8, 14), (16, 3), (32, 1)];

/// One submission in so many is a sweep of up to so many jobs, seconds apart.
const SWEEP_ONE_IN: u64 = 12;
const SWEEP_JOBS_MAX: u64 = 24;
const SWEEP_GAP_MS_MAX: u64 = 20_000;

/// So many jobs over so many days.
pub fn synthetic(seed: u64, jobs: usize, days: u64) -> Trace {
    let mut rng = Rng::new(seed);
    let weights: Vec<u64> = (0..days.max(1) * HOURS_PER_DAY).map(weight).collect();
    let total: u64 = weights.iter().sum();
    let mut drawn = Vec::with_capacity(jobs);
    while drawn.len() < jobs {
        let mut submit_ms = arrival(&mut rng, &weights, total);
        let user = format!("user-{}", small(&mut rng, USERS) + 1).into();
        let gpus = gpus(&mut rng);
        let sweep = if rng.once_in(SWEEP_ONE_IN) { rng.between(2, SWEEP_JOBS_MAX) } else { 1 };
        for _ in 0..sweep.min((jobs - drawn.len()) as u64) {
            let run_ms = duration_s(rng.below(1_000_000)) * 1_000;
            drawn.push(TraceJob {
                submit_ms,
                run_ms,
                gpus,
                cpus_milli: None,
                user: std::sync::Arc::clone(&user),
            });
            submit_ms += rng.below(SWEEP_GAP_MS_MAX);
        }
    }
    Trace::new(drawn)
}

fn weight(hour: u64) -> u64 {
    let of_day = HOURS[usize::try_from(hour % HOURS_PER_DAY).unwrap_or_default()];
    let percent = if hour / HOURS_PER_DAY % 7 >= 5 { WEEKEND_PERCENT } else { 100 };
    of_day * percent
}

fn arrival(rng: &mut Rng, weights: &[u64], total: u64) -> u64 {
    let mut left = rng.below(total);
    let mut hour = 0;
    for weight in weights {
        if left < *weight {
            break;
        }
        left -= weight;
        hour += 1;
    }
    hour * HOUR_MS + rng.below(HOUR_MS)
}

/// The running time at a millionth of all, straight between the points of the table.
fn duration_s(millionth: u64) -> u64 {
    let above =
        DURATIONS.iter().position(|(part, _)| part * 1_000 > millionth).unwrap_or(DURATIONS.len() - 1);
    let ((from, shorter), (to, longer)) = (DURATIONS[above.max(1) - 1], DURATIONS[above.max(1)]);
    shorter + (longer - shorter) * (millionth - from * 1_000) / ((to - from) * 1_000)
}

fn gpus(rng: &mut Rng) -> u32 {
    let mut left = rng.below(GPUS.iter().map(|(_, weight)| weight).sum());
    for (gpus, weight) in GPUS {
        if left < weight {
            return gpus;
        }
        left -= weight;
    }
    1
}

/// Below `end`, and the smaller the likelier: few users submit most jobs.
fn small(rng: &mut Rng, end: u64) -> u64 {
    let bound = rng.below(end) + 1;
    rng.below(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_trace() {
        assert_eq!(synthetic(1, 500, 7), synthetic(1, 500, 7));
        assert_ne!(synthetic(1, 500, 7), synthetic(2, 500, 7));
    }

    #[test]
    fn most_jobs_are_short_and_most_time_is_long_jobs() {
        let trace = synthetic(3, 5_000, 7);
        assert_eq!(trace.jobs.len(), 5_000);
        let mut runs: Vec<u64> = trace.jobs.iter().map(|job| job.run_ms / 1_000).collect();
        runs.sort_unstable();
        let (median, total) = (runs[runs.len() / 2], runs.iter().sum::<u64>());
        let longest: u64 = runs[runs.len() * 9 / 10..].iter().sum();
        assert!((200..450).contains(&median), "the median is {median} s");
        assert!(longest * 10 > total * 7, "the longest tenth has {longest} of {total} s");
    }

    #[test]
    fn days_are_busier_than_nights() {
        let trace = synthetic(4, 5_000, 5);
        let at = |from: u64, to: u64| {
            let hour = |job: &&TraceJob| (from..to).contains(&(job.submit_ms / HOUR_MS % HOURS_PER_DAY));
            trace.jobs.iter().filter(hour).count()
        };
        assert!(at(12, 17) > 3 * at(1, 6));
    }

    #[test]
    fn running_times_follow_the_table() {
        for (millionth, expected) in
            [(0, 5), (100_000, 20), (500_000, 300), (625_000, 900), (999_999, 299_981)]
        {
            assert_eq!(duration_s(millionth), expected);
        }
    }
}
