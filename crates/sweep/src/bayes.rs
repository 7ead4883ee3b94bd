//! Bayesian sampling: a Gaussian process over the trials so far says where an improvement is most to be expected.
//!
//! The first trials fill the space evenly. Trials under way count as if they brought what the model expects of them,
//! so that a batch spreads. Takes choice, uniform and quniform, as Azure does; `Algorithm::check` sees to it.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

use crate::gaussian::{below, density, quantile};
use crate::limits::{
    MODEL_CANDIDATES_ALL, MODEL_OBSERVATIONS_MAX, MODEL_OBSERVATIONS_MIN, MODEL_PENDING_MAX,
};
use crate::model::Model;
use crate::random::Stream;
use crate::sobol;
use crate::space::{Alternative, Distribution, Params, Shape, Space};
use crate::step::{Trial, TrialState};
use crate::sweep::{Goal, Sweep};

/// Points drawn from the whole space, and around the best trials, that are weighed for one trial.
const CANDIDATES_WIDE: usize = 320;
const CANDIDATES_NEAR: usize = 32;
const NEAR_TRIALS: usize = 4;
/// How far from a good trial to look, as shares of a parameter's range.
const NEAR_SPREADS: [f64; 2] = [0.15, 0.04];
/// The winner is improved in rounds, each looking closer.
const POLISH_SPREADS: [f64; 3] = [0.03, 0.01, 0.003];
const POLISH_POINTS: usize = 24;
/// Improvements below this share of the values' spread are not sought.
const IMPROVEMENT_MIN: f64 = 0.01;

/// Parameters of one trial after the other; each knows those before it.
pub(crate) fn suggest(sweep: &Sweep, seed: u64, numbers: Range<u32>, trials: &[Trial]) -> Vec<(u32, Params)> {
    let space = &sweep.space;
    let seen = observe(sweep, trials);
    let first = first_trials(space);
    let mut taken: BTreeSet<String> = trials.iter().map(|trial| key(space, &trial.params)).collect();
    let mut known =
        fit(space, &seen).map(|model| Known { model, best: seen.first().map_or(0.0, |one| one.loss) });
    let pending: Vec<&Trial> = trials.iter().filter(|trial| trial.state.is_active()).collect();
    for trial in &pending[pending.len().saturating_sub(MODEL_PENDING_MAX)..] {
        known = known.map(|known| known.believing(space, &trial.params));
    }
    let mut out = Vec::new();
    for number in numbers {
        let params = match &known {
            Some(known) if number >= first => propose(space, known, &seen, &taken, seed, number),
            _ => even(space, &taken, seed, number),
        };
        if pending.len() + out.len() < MODEL_PENDING_MAX {
            known = known.map(|known| known.believing(space, &params));
        }
        taken.insert(key(space, &params));
        out.push((number, params));
    }
    out
}

/// The model, and the best value that was seen or is believed to come.
struct Known {
    model: Model,
    best: f64,
}

impl Known {
    /// As if a trial under way had brought what is expected of it. Without the new best the place would stay as
    /// tempting as it was.
    fn believing(self, space: &Space, params: &Params) -> Self {
        let Some(features) = features(space, params) else { return self };
        let (expected, _) = self.model.expect(&features);
        match self.model.clone().believing(features) {
            Some(model) => Self { model, best: self.best.min(expected) },
            None => self,
        }
    }
}

/// The values as text, to know them again.
fn key(space: &Space, params: &Params) -> String {
    space.parameters.keys().map(|name| params.get(name).unwrap_or(&Value::Null).to_string() + "\n").collect()
}

/// Trials that fill the space before the model is asked.
fn first_trials(space: &Space) -> u32 {
    2 * (space.parameters.len() as u32 + 1)
}

/// A trial's values and how good it was, small is good.
struct Seen {
    params: Params,
    loss: f64,
}

/// Every trial that ended or has something to show. A failed one counts as bad as the worst.
fn observe(sweep: &Sweep, trials: &[Trial]) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut failed = Vec::new();
    for trial in trials {
        let best = sweep.objective.best_of(&trial.history);
        match (trial.state, best) {
            (TrialState::Completed | TrialState::Canceled, Some(best)) => seen.push(Seen {
                params: trial.params.clone(),
                loss: match sweep.objective.goal {
                    Goal::Minimize => best,
                    Goal::Maximize => -best,
                },
            }),
            (TrialState::Failed, _) => failed.push(trial.params.clone()),
            _ => {}
        }
    }
    if let Some(worst) = seen.iter().map(|one| one.loss).max_by(f64::total_cmp) {
        seen.extend(failed.into_iter().map(|params| Seen { params, loss: worst }));
    }
    seen.sort_by(|a, b| a.loss.total_cmp(&b.loss));
    seen
}

fn fit(space: &Space, seen: &[Seen]) -> Option<Model> {
    if seen.len() < MODEL_OBSERVATIONS_MIN {
        return None;
    }
    // Of more than the model takes: the better half, and of the rest evenly many.
    let spare = seen.len().saturating_sub(MODEL_OBSERVATIONS_MAX);
    let kept = seen.iter().enumerate().filter(|(at, _)| {
        let tail = at.saturating_sub(MODEL_OBSERVATIONS_MAX / 2);
        let room = MODEL_OBSERVATIONS_MAX / 2;
        spare == 0 || tail == 0 || tail * room / (room + spare) != (tail - 1) * room / (room + spare)
    });
    // What is very bad says no more than what is bad, and would flatten all that is good.
    let (best, median) = (seen.first()?.loss, seen.get(seen.len() / 2)?.loss);
    let cap = if median > best { median + 2.0 * (median - best) } else { f64::INFINITY };
    let (points, losses): (Vec<_>, Vec<_>) =
        kept.filter_map(|(_, one)| Some((features(space, &one.params)?, one.loss.min(cap)))).unzip();
    Model::fit(&points, &losses)
}

/// A point of an even sequence whose values no trial has yet, if there is one soon.
fn even(space: &Space, taken: &BTreeSet<String>, seed: u64, number: u32) -> Params {
    let of = |number| space.at(&sobol::point(number, space.dimensions(), seed), std::f64::consts::E);
    let ahead = (0..64).map(|skip| of(number.wrapping_add(skip * 1_024)));
    fresh(space, ahead, taken).or_else(|| fresh(space, every(space), taken)).unwrap_or_else(|| of(number))
}

fn fresh(
    space: &Space,
    mut candidates: impl Iterator<Item = Params>,
    taken: &BTreeSet<String>,
) -> Option<Params> {
    candidates.find(|params| !taken.contains(&key(space, params)))
}

/// Every combination of a space that is small enough.
fn every(space: &Space) -> impl Iterator<Item = Params> + '_ {
    let size = space.size().filter(|size| *size <= MODEL_CANDIDATES_ALL).unwrap_or(0);
    (0..size).map(|index| space.nth(index))
}

fn propose(
    space: &Space,
    known: &Known,
    seen: &[Seen],
    taken: &BTreeSet<String>,
    seed: u64,
    number: u32,
) -> Params {
    let mut stream = Stream::new(seed, u64::from(number));
    let spread = match (seen.first(), seen.get(seen.len() / 2)) {
        (Some(best), Some(median)) => median.loss - best.loss,
        _ => 0.0,
    };
    let goal = known.best - IMPROVEMENT_MIN * spread;
    let mut candidates: Vec<Params> = every(space).collect();
    let countable = !candidates.is_empty();
    if !countable {
        for _ in 0..CANDIDATES_WIDE {
            let point: Vec<f64> = (0..space.dimensions()).map(|_| stream.unit()).collect();
            candidates.push(space.at(&point, std::f64::consts::E));
        }
        for one in seen.iter().take(NEAR_TRIALS) {
            for spread in NEAR_SPREADS {
                candidates.extend(
                    (0..CANDIDATES_NEAR).filter_map(|_| near(space, &one.params, spread, &mut stream)),
                );
            }
        }
    }
    candidates.retain(|params| !taken.contains(&key(space, params)));
    let weigh = |params: &Params| {
        features(space, params).map_or(f64::NEG_INFINITY, |at| improvement(&known.model, &at, goal))
    };
    let mut leading: Option<(f64, Params)> = None;
    let offer = |leading: &mut Option<(f64, Params)>, params: Params| {
        let weight = weigh(&params);
        if leading.as_ref().is_none_or(|(most, _)| weight > *most) {
            *leading = Some((weight, params));
        }
    };
    for params in candidates {
        offer(&mut leading, params);
    }
    if !countable {
        for spread in POLISH_SPREADS.into_iter().flat_map(|spread| [spread; POLISH_POINTS]) {
            let moved = leading.as_ref().and_then(|(_, around)| near(space, around, spread, &mut stream));
            if let Some(params) = moved.filter(|params| !taken.contains(&key(space, params))) {
                offer(&mut leading, params);
            }
        }
    }
    leading.map_or_else(|| even(space, taken, seed, number), |(_, params)| params)
}

/// How much better than `goal` a trial there is expected to be, worse ones counting as nothing.
fn improvement(model: &Model, features: &[f64], goal: f64) -> f64 {
    let (mean, deviation) = model.expect(features);
    let z = (goal - mean) / deviation;
    (goal - mean) * below(z) + deviation * density(z)
}

/// Values not far from those given; a choice is now and then another one.
fn near(space: &Space, params: &Params, spread: f64, stream: &mut Stream) -> Option<Params> {
    let mut point = Vec::with_capacity(space.parameters.len());
    for (name, distribution) in &space.parameters {
        let at = coordinate(distribution, params.get(name)?)?;
        let moved = match distribution {
            Distribution::Choice(_) | Distribution::Randint { .. } if stream.unit() < 0.2 => stream.unit(),
            Distribution::Choice(_) | Distribution::Randint { .. } => at,
            Distribution::Real(_) => reflect(at + spread * quantile(stream.unit())),
        };
        point.push(moved);
    }
    Some(space.at(&point, std::f64::consts::E))
}

/// Back into [0, 1), as a ball off a wall.
fn reflect(x: f64) -> f64 {
    let folded = x.rem_euclid(2.0);
    if folded < 1.0 { folded } else { (2.0 - folded).min(1.0 - f64::EPSILON) }
}

/// The coordinate that gives this value.
fn coordinate(distribution: &Distribution, value: &Value) -> Option<f64> {
    match distribution {
        Distribution::Choice(alternatives) => {
            let at = alternatives
                .iter()
                .position(|one| matches!(one, Alternative::Plain(plain) if plain == value))?;
            Some((at as f64 + 0.5) / alternatives.len() as f64)
        }
        Distribution::Randint { upper } => Some((value.as_f64()? + 0.5) / *upper as f64),
        Distribution::Real(real) => match real.shape {
            Shape::Uniform { min, max } => Some(((value.as_f64()? - min) / (max - min)).clamp(0.0, 1.0)),
            Shape::Normal { .. } => None,
        },
    }
}

/// What the model sees. A choice of numbers is their rank, so that 16, 32, 64 are evenly apart; any other choice is
/// one feature per value, all of them equally far from each other.
fn features(space: &Space, params: &Params) -> Option<Vec<f64>> {
    let mut out = Vec::new();
    for (name, distribution) in &space.parameters {
        let value = params.get(name)?;
        match distribution {
            Distribution::Choice(alternatives) => match ranks(alternatives) {
                Some(ranked) => {
                    let of = value.as_f64()?;
                    let below = ranked.iter().filter(|other| **other < of).count();
                    out.push(below as f64 / (ranked.len().max(2) - 1) as f64);
                }
                None => {
                    for alternative in alternatives {
                        let same = matches!(alternative, Alternative::Plain(plain) if plain == value);
                        out.push(if same { std::f64::consts::FRAC_1_SQRT_2 } else { 0.0 });
                    }
                }
            },
            Distribution::Randint { .. } | Distribution::Real(_) => {
                out.push(coordinate(distribution, value)?);
            }
        }
    }
    Some(out)
}

/// The numbers of a choice, each once; `None` if something else is among them.
fn ranks(alternatives: &[Alternative]) -> Option<Vec<f64>> {
    let mut numbers = alternatives
        .iter()
        .map(|one| match one {
            Alternative::Plain(value) => value.as_f64(),
            Alternative::Mapping(_) => None,
        })
        .collect::<Option<Vec<f64>>>()?;
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn features_of_values() {
        let space = Space::read(&json!({
            "a": ["choice", [[64, 16, 32]]], "b": ["choice", [["x", "y"]]], "c": ["uniform", [2, 4]], "d": ["quniform", [0, 10, 2]],
        }))
        .unwrap();
        let params = json!({"a": 32, "b": "y", "c": 2.5, "d": 10}).as_object().cloned().unwrap();
        assert_eq!(
            features(&space, &params),
            Some(vec![0.5, 0.0, std::f64::consts::FRAC_1_SQRT_2, 0.25, 1.0])
        );
        let foreign = json!({"a": 32, "b": "y"}).as_object().cloned().unwrap();
        assert_eq!(features(&space, &foreign), None);
    }

    #[test]
    fn a_coordinate_gives_its_value_back() {
        let space = Space::read(&json!({
            "a": ["choice", [[64, 16, 32]]], "b": ["choice", [["x", {"k": 1}]]], "c": ["uniform", [2, 4]], "d": ["quniform", [0, 10, 2]],
        }))
        .unwrap();
        for number in 0..200 {
            let params = space.at(&sobol::point(number, 4, 3), std::f64::consts::E);
            let point: Vec<f64> =
                space.parameters.iter().map(|(name, of)| coordinate(of, &params[name]).unwrap()).collect();
            let again = space.at(&point, std::f64::consts::E);
            for (name, value) in &params {
                match (value.as_f64(), again[name].as_f64()) {
                    (Some(one), Some(other)) => assert!((one - other).abs() < 1e-9),
                    _ => assert_eq!(value, &again[name]),
                }
            }
        }
    }

    #[test]
    fn walls_reflect() {
        for (x, expect) in [(0.25, 0.25), (-0.25, 0.25), (1.25, 0.75), (2.25, 0.25)] {
            assert!((reflect(x) - expect).abs() < 1e-12, "{x}");
        }
        assert!(reflect(1.0) < 1.0);
    }
}
