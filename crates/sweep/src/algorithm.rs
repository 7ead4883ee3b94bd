//! How values are chosen: grid, random or bayesian, and which spaces each takes.

use serde_json::Value;

use crate::problem::Problems;
use crate::read::{field, word};
use crate::sobol;
use crate::space::{Alternative, Distribution, Member, Space};

#[derive(Clone, Debug, PartialEq)]
pub enum Algorithm {
    /// Every combination, in the order of the parameters' names.
    Grid,
    Random {
        /// Of the user; without it the caller's seed counts.
        seed: Option<i64>,
        rule: Rule,
        /// What distributions of logarithms raise to their power; e if not given.
        log_base: f64,
    },
    Bayesian,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Random,
    Sobol,
}

impl Algorithm {
    pub(crate) fn read(value: Option<&Value>, problems: &mut Problems) -> Self {
        let at = "samplingAlgorithm";
        let kind = match value {
            Some(Value::String(kind)) => Some(kind.as_str()),
            Some(object) => field(object, "samplingAlgorithmType")
                .or_else(|| field(object, "type"))
                .and_then(Value::as_str),
            None => None,
        };
        match (kind.map(word).as_deref(), value) {
            (Some("grid"), _) => Self::Grid,
            (Some("bayesian"), _) => Self::Bayesian,
            (Some("random"), Some(object)) => Self::random(object, at, problems),
            _ => {
                problems.add(at, "expected random, grid or bayesian");
                Self::Grid
            }
        }
    }

    fn random(object: &Value, at: &str, problems: &mut Problems) -> Self {
        let rule = match field(object, "rule").map(|rule| rule.as_str().map(word)) {
            None => Rule::Random,
            Some(Some(rule)) if rule == "random" => Rule::Random,
            Some(Some(rule)) if rule == "sobol" => Rule::Sobol,
            Some(_) => {
                problems.add(&format!("{at}.rule"), "expected random or sobol");
                Rule::Random
            }
        };
        let seed = field(object, "seed").and_then(|seed| {
            if seed.as_i64().is_none() {
                problems.add(&format!("{at}.seed"), format!("expected a whole number, not {seed}"));
            }
            seed.as_i64()
        });
        let log_base = match field(object, "logbase").or_else(|| field(object, "logBase")) {
            None => std::f64::consts::E,
            Some(given) => match base(given) {
                Some(base) => base,
                None => {
                    problems.add(
                        &format!("{at}.logbase"),
                        format!("expected a number above 0 other than 1, or \"e\", not {given}"),
                    );
                    std::f64::consts::E
                }
            },
        };
        Self::Random { seed, rule, log_base }
    }

    pub(crate) fn log_base(&self) -> f64 {
        match self {
            Self::Random { log_base, .. } => *log_base,
            Self::Grid | Self::Bayesian => std::f64::consts::E,
        }
    }

    /// Notes every parameter that this algorithm does not take.
    pub(crate) fn check(&self, space: &Space, problems: &mut Problems) {
        let mut refuse = |name: &str, says: String| problems.add(&format!("searchSpace.{name}"), says);
        for (name, distribution) in &space.parameters {
            match self {
                Self::Grid => {
                    for other in kinds(distribution, &|kind| kind == "choice") {
                        refuse(
                            name,
                            format!("grid sampling takes only choice, not {other}; use random sampling"),
                        );
                    }
                }
                Self::Bayesian => {
                    for other in
                        kinds(distribution, &|kind| ["choice", "uniform", "quniform"].contains(&kind))
                    {
                        refuse(
                            name,
                            format!(
                                "bayesian sampling takes only choice, uniform and quniform, not {other}; use random sampling"
                            ),
                        );
                    }
                    if distribution.dimensions() > 1 {
                        refuse(
                            name,
                            "bayesian sampling takes no distributions within the values of a choice; use random sampling".into(),
                        );
                    }
                }
                Self::Random { .. } => {}
            }
        }
        if let Self::Random { rule: Rule::Sobol, .. } = self
            && space.dimensions() > sobol::DIMENSIONS_MAX
        {
            problems.add(
                "samplingAlgorithm.rule",
                format!(
                    "sobol covers at most {} distributions and the search space has {}; use the rule random",
                    sobol::DIMENSIONS_MAX,
                    space.dimensions()
                ),
            );
        }
    }
}

fn base(given: &Value) -> Option<f64> {
    let number = match given {
        Value::String(text) if text.trim() == "e" => Some(std::f64::consts::E),
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    number.filter(|base: &f64| base.is_finite() && *base > 0.0 && *base != 1.0)
}

/// The distributions in this one, itself among them, that are not taken; each name once.
fn kinds(distribution: &Distribution, taken: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    let mut found = Vec::new();
    if !taken(distribution.name()) {
        found.push(distribution.name());
    }
    if let Distribution::Choice(alternatives) = distribution {
        for alternative in alternatives {
            let Alternative::Mapping(members) = alternative else { continue };
            for (_, member) in members {
                if let Member::Drawn(inner) = member {
                    for kind in kinds(inner, taken) {
                        if !found.contains(&kind) {
                            found.push(kind);
                        }
                    }
                }
            }
        }
    }
    found
}
