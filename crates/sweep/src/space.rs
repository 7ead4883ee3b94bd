//! What may be chosen: parameters and their distributions, and how a point of the unit cube becomes values.
//!
//! Every distribution, one within a value of a choice too, has a coordinate of its own; so any way of making points
//! (random, Sobol) is a way of sampling. Parameters are in the order of their names.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use crate::gaussian;

/// The values of one trial, by parameter.
pub type Params = Map<String, Value>;

#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    pub parameters: BTreeMap<String, Distribution>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    Choice(Vec<Alternative>),
    /// A whole number from 0, below `upper`.
    Randint {
        upper: u64,
    },
    Real(Real),
}

/// One value of a choice.
#[derive(Clone, Debug, PartialEq)]
pub enum Alternative {
    Plain(Value),
    /// A mapping with distributions in it.
    Mapping(Vec<(String, Member)>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Member {
    Fixed(Value),
    Drawn(Distribution),
}

/// uniform, normal and what is made from them: the logarithm is so distributed, or the value is rounded to steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Real {
    pub shape: Shape,
    pub log: bool,
    pub quantum: Option<Quantum>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Uniform { min: f64, max: f64 },
    Normal { mu: f64, sigma: f64 },
}

/// Steps of a quantised value. Whole steps make whole numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantum {
    pub size: f64,
    pub whole: bool,
}

impl Space {
    /// Coordinates of a point.
    pub fn dimensions(&self) -> usize {
        self.parameters.values().map(Distribution::dimensions).sum()
    }

    /// The values at a point, one coordinate in [0, 1) per distribution. A coordinate that is missing is 0.5.
    pub fn at(&self, point: &[f64], log_base: f64) -> Params {
        let mut walk = Walk { point, at: 0, log_base };
        self.parameters.iter().map(|(name, of)| (name.clone(), of.draw(&mut walk))).collect()
    }

    /// How many combinations there are, if that can be counted.
    pub fn size(&self) -> Option<u64> {
        product(self.parameters.values().map(Distribution::size))
    }

    /// The combination of that index, below [`Self::size`]; the last parameter changes fastest.
    pub fn nth(&self, index: u64) -> Params {
        nth_of(self.parameters.iter(), index, |of, at| of.nth(at))
    }

    /// Whether no distribution depends on another's value.
    pub fn is_flat(&self) -> bool {
        self.parameters.len() == self.dimensions()
    }
}

struct Walk<'a> {
    point: &'a [f64],
    at: usize,
    log_base: f64,
}

impl Distribution {
    pub fn dimensions(&self) -> usize {
        1 + match self {
            Self::Choice(alternatives) => alternatives.iter().map(Alternative::dimensions).sum(),
            Self::Randint { .. } | Self::Real(_) => 0,
        }
    }

    /// The name that the search space gives it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Choice(_) => "choice",
            Self::Randint { .. } => "randint",
            Self::Real(Real { shape, log, quantum }) => match (shape, log, quantum.is_some()) {
                (Shape::Uniform { .. }, false, false) => "uniform",
                (Shape::Uniform { .. }, false, true) => "quniform",
                (Shape::Uniform { .. }, true, false) => "loguniform",
                (Shape::Uniform { .. }, true, true) => "qloguniform",
                (Shape::Normal { .. }, false, false) => "normal",
                (Shape::Normal { .. }, false, true) => "qnormal",
                (Shape::Normal { .. }, true, false) => "lognormal",
                (Shape::Normal { .. }, true, true) => "qlognormal",
            },
        }
    }

    fn draw(&self, walk: &mut Walk<'_>) -> Value {
        let u = walk.point.get(walk.at).copied().unwrap_or(0.5);
        walk.at += 1;
        match self {
            Self::Choice(alternatives) => {
                let picked = slot(u, alternatives.len() as u64);
                let mut value = Value::Null;
                for (at, alternative) in alternatives.iter().enumerate() {
                    if at as u64 == picked {
                        value = alternative.draw(walk);
                    } else {
                        walk.at += alternative.dimensions();
                    }
                }
                value
            }
            Self::Randint { upper } => slot(u, *upper).into(),
            Self::Real(real) => real.value(u, walk.log_base),
        }
    }

    fn size(&self) -> Option<u64> {
        match self {
            Self::Choice(alternatives) => {
                alternatives.iter().map(Alternative::size).try_fold(0_u64, |sum, size| sum.checked_add(size?))
            }
            Self::Randint { upper } => Some(*upper),
            Self::Real(_) => None,
        }
    }

    fn nth(&self, mut index: u64) -> Value {
        match self {
            Self::Choice(alternatives) => {
                for alternative in alternatives {
                    let size = alternative.size().unwrap_or(1);
                    if index < size {
                        return alternative.nth(index);
                    }
                    index -= size;
                }
                Value::Null
            }
            Self::Randint { .. } => index.into(),
            // Has no index; `size` says so.
            Self::Real(_) => Value::Null,
        }
    }
}

impl Alternative {
    fn dimensions(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Mapping(members) => members.iter().map(|(_, member)| member.dimensions()).sum(),
        }
    }

    fn draw(&self, walk: &mut Walk<'_>) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Mapping(members) => Value::Object(
                members
                    .iter()
                    .map(|(name, member)| {
                        let value = match member {
                            Member::Fixed(value) => value.clone(),
                            Member::Drawn(of) => of.draw(walk),
                        };
                        (name.clone(), value)
                    })
                    .collect(),
            ),
        }
    }

    fn size(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => Some(1),
            Self::Mapping(members) => product(members.iter().map(|(_, member)| member.size())),
        }
    }

    fn nth(&self, index: u64) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Mapping(members) => Value::Object(nth_of(
                members.iter().map(|(name, member)| (name, member)),
                index,
                |member, at| match member {
                    Member::Fixed(value) => value.clone(),
                    Member::Drawn(of) => of.nth(at),
                },
            )),
        }
    }
}

impl Member {
    fn dimensions(&self) -> usize {
        match self {
            Self::Fixed(_) => 0,
            Self::Drawn(of) => of.dimensions(),
        }
    }

    fn size(&self) -> Option<u64> {
        match self {
            Self::Fixed(_) => Some(1),
            Self::Drawn(of) => of.size(),
        }
    }
}

trait Counted {
    fn count(&self) -> u64;
}

impl Counted for Distribution {
    fn count(&self) -> u64 {
        self.size().unwrap_or(1)
    }
}

impl Counted for Member {
    fn count(&self) -> u64 {
        self.size().unwrap_or(1)
    }
}

/// Digits of `index` in a number system with one digit per part, the last the lowest.
fn nth_of<'a, T: Counted + 'a>(
    parts: impl DoubleEndedIterator<Item = (&'a String, &'a T)>,
    mut index: u64,
    value: impl Fn(&T, u64) -> Value,
) -> Params {
    let mut backwards: Vec<(String, Value)> = Vec::new();
    for (name, part) in parts.rev() {
        let size = part.count().max(1);
        backwards.push((name.clone(), value(part, index % size)));
        index /= size;
    }
    backwards.into_iter().rev().collect()
}

fn product(sizes: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    // Kept where a shuffle of indices still works.
    sizes
        .into_iter()
        .try_fold(1_u64, |product, size| product.checked_mul(size?))
        .filter(|product| *product < 1 << 62)
}

fn slot(u: f64, count: u64) -> u64 {
    ((u * count as f64) as u64).min(count.saturating_sub(1))
}

impl Real {
    pub(crate) fn value(&self, u: f64, log_base: f64) -> Value {
        let x = match self.shape {
            Shape::Uniform { min, max } => min + u * (max - min),
            Shape::Normal { mu, sigma } => mu + sigma * gaussian::quantile(u),
        };
        let x = match self.log {
            true if log_base == std::f64::consts::E => x.exp(),
            true => log_base.powf(x),
            false => x,
        };
        match &self.quantum {
            Some(quantum) => quantum.round(x),
            None => number(x),
        }
    }
}

impl Quantum {
    /// The nearest step, half to even as Python rounds. Steps of 0.1 make 0.3 and not 0.30000000000000004.
    pub(crate) fn round(&self, x: f64) -> Value {
        let steps = (x / self.size).round_ties_even();
        let value = steps * self.size;
        if self.whole && value.abs() < 9.0e15 {
            return (value as i64).into();
        }
        let decimals = self.size.to_string().split_once('.').map_or(0, |(_, after)| after.len());
        number(format!("{value:.decimals$}").parse().unwrap_or(value))
    }
}

/// What is too large for a number of JSON is held at the largest.
fn number(x: f64) -> Value {
    let held = x.clamp(f64::MIN, f64::MAX);
    Number::from_f64(if held == 0.0 { 0.0 } else { held }).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn space(value: &Value) -> Space {
        Space::read(value).unwrap()
    }

    #[test]
    fn a_grid_is_counted_and_ordered() {
        let space = space(&json!({"b": ["choice", [["x", "y"]]], "a": ["choice", [[1, 2, 3]]]}));
        assert_eq!(space.size(), Some(6));
        let all: Vec<Value> = (0..6).map(|n| Value::Object(space.nth(n))).collect();
        assert_eq!(
            all,
            [
                json!({"a": 1, "b": "x"}),
                json!({"a": 1, "b": "y"}),
                json!({"a": 2, "b": "x"}),
                json!({"a": 2, "b": "y"}),
                json!({"a": 3, "b": "x"}),
                json!({"a": 3, "b": "y"})
            ]
        );
    }

    #[test]
    fn choices_within_choices_are_counted() {
        let space = space(&json!({"model": ["choice", [[
            {"name": "svm", "kernel": ["choice", [["rbf", "linear"]]]},
            {"name": "tree", "depth": ["choice", [[1, 2, 3]]], "leaf": ["choice", [[5, 6]]]},
            "none",
        ]]]}));
        assert_eq!(space.size(), Some(9));
        assert_eq!(space.dimensions(), 4);
        assert!(!space.is_flat());
        assert_eq!(Value::Object(space.nth(1)), json!({"model": {"name": "svm", "kernel": "linear"}}));
        assert_eq!(Value::Object(space.nth(3)), json!({"model": {"name": "tree", "depth": 1, "leaf": 6}}));
        assert_eq!(Value::Object(space.nth(8)), json!({"model": "none"}));
        // A coordinate belongs to its distribution, whichever value the choice took.
        let of = |point: &[f64]| Value::Object(space.at(point, std::f64::consts::E));
        assert_eq!(of(&[0.0, 0.9, 0.0, 0.0]), json!({"model": {"name": "svm", "kernel": "linear"}}));
        assert_eq!(of(&[0.5, 0.9, 0.9, 0.0]), json!({"model": {"name": "tree", "depth": 3, "leaf": 5}}));
        assert_eq!(of(&[0.9, 0.9, 0.9, 0.0]), json!({"model": "none"}));
    }

    #[test]
    fn points_become_values() {
        for (distribution, u, expect) in [
            (json!(["choice", [[16, "a", true]]]), 0.0, json!(16)),
            (json!(["choice", [[16, "a", true]]]), 0.999_999, json!(true)),
            (json!(["randint", [4]]), 0.999_999, json!(3)),
            (json!(["randint", [4]]), 0.0, json!(0)),
            (json!(["uniform", [1, 3]]), 0.25, json!(1.5)),
            (json!(["quniform", [1, 10, 2]]), 0.5, json!(6)),
            (json!(["quniform", [0, 5, 1]]), 0.5, json!(2)),
            (json!(["quniform", [0, 1, 0.1]]), 0.29, json!(0.3)),
            (json!(["quniform", [0, 1, 0.25]]), 0.5, json!(0.5)),
            (json!(["quniform", [0.05, 0.75, 1]]), 0.9, json!(1)),
            (json!(["loguniform", [0, 0.0001]]), 0.0, json!(1.0)),
            (json!(["normal", [10, 3]]), 0.5, json!(10.0)),
            (json!(["qnormal", [10, 3, 5]]), 0.5, json!(10)),
            (json!(["lognormal", [0, 1]]), 0.5, json!(1.0)),
            (json!(["qlognormal", [0, 1, 0.5]]), 0.5, json!(1.0)),
            (json!(["qloguniform", [0, 5, 10]]), 0.999_999, json!(150)),
        ] {
            let space = space(&json!({"x": distribution}));
            let value = &space.at(&[u], std::f64::consts::E)["x"];
            match (value.as_f64(), expect.as_f64()) {
                (Some(one), Some(other)) if value.is_f64() == expect.is_f64() => {
                    assert!((one - other).abs() < 1e-12, "{distribution}: {value}");
                }
                _ => assert_eq!(value, &expect, "{distribution}"),
            }
            assert_eq!(space.parameters["x"].name(), distribution[0], "{distribution}");
        }
        let ten = space(&json!({"x": ["loguniform", [-5, -1]]})).at(&[0.5], 10.0);
        assert!((ten["x"].as_f64().unwrap() - 1e-3).abs() < 1e-15);
        let huge = space(&json!({"x": ["lognormal", [0, 200]]})).at(&[1.0], std::f64::consts::E);
        assert!(huge["x"].as_f64().unwrap().is_finite());
    }
}
