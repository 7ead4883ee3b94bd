//! The values of the next trials. Grid and random trials depend on seed and number alone; bayesian ones also on the
//! trials that are known when they are asked for.

use crate::algorithm::{Algorithm, Rule};
use crate::bayes;
use crate::random::{Stream, shuffled};
use crate::sobol;
use crate::space::Params;
use crate::step::Trial;
use crate::sweep::Sweep;

/// How many trials there can be: a space with fewer combinations than the limit has fewer trials.
pub(crate) fn total(sweep: &Sweep) -> u32 {
    let limit = sweep.limits.max_total_trials;
    let combinations = match &sweep.algorithm {
        Algorithm::Grid => sweep.space.size(),
        Algorithm::Random { rule: Rule::Random, .. } | Algorithm::Bayesian if sweep.space.is_flat() => {
            sweep.space.size()
        }
        Algorithm::Random { .. } | Algorithm::Bayesian => None,
    };
    combinations.map_or(limit, |size| u32::try_from(size).unwrap_or(u32::MAX).min(limit))
}

/// The values of the trials `numbers`.
pub(crate) fn sample(
    sweep: &Sweep,
    seed: u64,
    numbers: std::ops::Range<u32>,
    trials: &[Trial],
) -> Vec<(u32, Params)> {
    match &sweep.algorithm {
        Algorithm::Grid => numbers.map(|number| (number, sweep.space.nth(u64::from(number)))).collect(),
        Algorithm::Random { seed: own, rule, .. } => {
            let seed = own.map_or(seed, |own| own as u64);
            numbers.map(|number| (number, at_random(sweep, seed, *rule, number))).collect()
        }
        Algorithm::Bayesian => bayes::suggest(sweep, seed, numbers, trials),
    }
}

fn at_random(sweep: &Sweep, seed: u64, rule: Rule, number: u32) -> Params {
    let space = &sweep.space;
    let point = match rule {
        Rule::Sobol => sobol::point(number, space.dimensions(), seed),
        Rule::Random => {
            // What can be counted is drawn without repeating anything.
            if let Some(size) = space.size().filter(|size| space.is_flat() && u64::from(number) < *size) {
                return space.nth(shuffled(u64::from(number), size, seed));
            }
            let mut stream = Stream::new(seed, u64::from(number));
            (0..space.dimensions()).map(|_| stream.unit()).collect()
        }
    };
    space.at(&point, sweep.algorithm.log_base())
}
