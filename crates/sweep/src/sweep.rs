//! A sweep as the user asks for it, read from a job's properties: space, algorithm, objective, limits, policy.

use serde_json::Value;

use crate::algorithm::Algorithm;
use crate::duration::seconds;
use crate::limits::{TIMEOUT_S_DEFAULT, TIMEOUT_S_MAX, TRIALS_CONCURRENT_MAX, TRIALS_TOTAL_MAX};
use crate::policy::Policy;
use crate::problem::{Problem, Problems};
use crate::read::{field, whole, word};
use crate::sampler;
use crate::space::Space;

#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    pub space: Space,
    pub algorithm: Algorithm,
    pub objective: Objective,
    pub limits: Limits,
    pub policy: Option<Policy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    pub primary_metric: String,
    pub goal: Goal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Minimize,
    Maximize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_total_trials: u32,
    pub max_concurrent_trials: u32,
    /// Of the whole sweep.
    pub timeout_s: u64,
    /// Of each trial. The trial's own job keeps it; [`crate::next`] does not.
    pub trial_timeout_s: Option<u64>,
}

impl Sweep {
    /// Reads `searchSpace`, `samplingAlgorithm`, `objective`, `limits` and `earlyTermination` of a job's properties, or
    /// the same in snake case of a pipeline's step. All problems at once; other fields are not looked at.
    ///
    /// Bayesian sampling is taken together with a policy: a trial that was stopped counts with its best value.
    pub fn read(properties: &Value) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems::default();
        let space = Space::read_into(field(properties, "searchSpace").unwrap_or(&Value::Null), &mut problems);
        let algorithm = Algorithm::read(field(properties, "samplingAlgorithm"), &mut problems);
        algorithm.check(&space, &mut problems);
        let objective = Objective::read(field(properties, "objective"), &mut problems);
        let limits = Limits::read(field(properties, "limits"), &mut problems);
        let policy = Policy::read(field(properties, "earlyTermination"), &mut problems);
        let sweep = Self { space, algorithm, objective, limits, policy };
        if problems.0.is_empty() { Ok(sweep) } else { Err(problems.0) }
    }

    /// How many trials there will be if nothing ends the sweep before: the limit, or all combinations if there are
    /// fewer.
    pub fn total_trials(&self) -> u32 {
        sampler::total(self)
    }
}

impl Objective {
    fn read(value: Option<&Value>, problems: &mut Problems) -> Self {
        let at = "objective";
        let value = value.unwrap_or(&Value::Null);
        let metric = field(value, "primaryMetric").and_then(Value::as_str).unwrap_or_default();
        if metric.trim().is_empty() {
            problems
                .add(&format!("{at}.primaryMetric"), "expected the name of the metric that the trial logs");
        }
        let goal = match field(value, "goal").and_then(Value::as_str).map(word).as_deref() {
            Some("minimize") => Goal::Minimize,
            Some("maximize") => Goal::Maximize,
            _ => {
                problems.add(&format!("{at}.goal"), "expected minimize or maximize");
                Goal::Minimize
            }
        };
        Self { primary_metric: metric.to_owned(), goal }
    }

    /// Whether one value is better than another, strictly.
    pub fn is_better(&self, one: f64, other: f64) -> bool {
        match self.goal {
            Goal::Minimize => one < other,
            Goal::Maximize => one > other,
        }
    }

    pub(crate) fn better_of(&self, one: f64, other: f64) -> f64 {
        if self.is_better(other, one) { other } else { one }
    }

    /// The best of what was reported, leaving out what is no number.
    pub fn best_of(&self, history: &[f64]) -> Option<f64> {
        history.iter().copied().filter(|value| value.is_finite()).reduce(|a, b| self.better_of(a, b))
    }
}

impl Limits {
    fn read(value: Option<&Value>, problems: &mut Problems) -> Self {
        let at = "limits";
        let value = value.unwrap_or(&Value::Null);
        let total = whole(value, at, "maxTotalTrials", 1, TRIALS_TOTAL_MAX.into(), problems);
        let total = total.map_or(TRIALS_TOTAL_MAX, |total| total as u32);
        let concurrent = whole(value, at, "maxConcurrentTrials", 1, TRIALS_CONCURRENT_MAX.into(), problems);
        let concurrent = concurrent.map_or(total, |concurrent| (concurrent as u32).min(total));
        let mut time = |name: &str| match seconds(field(value, name)?) {
            // The SDK writes 0 for what was not set.
            Ok(0) => None,
            Ok(time) if time <= TIMEOUT_S_MAX => Some(time),
            Ok(time) => {
                problems.add(
                    &format!("{at}.{name}"),
                    format!("is {time} s; at most {TIMEOUT_S_MAX} s are taken"),
                );
                None
            }
            Err(says) => {
                problems.add(&format!("{at}.{name}"), says);
                None
            }
        };
        Self {
            max_total_trials: total,
            max_concurrent_trials: concurrent,
            timeout_s: time("timeout").unwrap_or(TIMEOUT_S_DEFAULT),
            trial_timeout_s: time("trialTimeout"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Rule;
    use crate::policy::PolicyKind;
    use serde_json::json;

    fn recorded() -> Value {
        json!({
            "objective": {"goal": "maximize", "primaryMetric": "acc"},
            "samplingAlgorithm": {"samplingAlgorithmType": "Random"},
            "searchSpace": {"x": ["choice", [[1, 2, 3]]], "lr": ["uniform", [0.01, 0.9]]},
            "limits": {"jobLimitsType": "Sweep", "maxTotalTrials": 4, "maxConcurrentTrials": 2, "timeout": "PT2H", "trialTimeout": "PT10M"},
            "earlyTermination": {"policyType": "Bandit", "delayEvaluation": 0, "evaluationInterval": 1, "slackFactor": 0.1},
        })
    }

    #[test]
    fn what_the_sdk_sends_is_read() {
        let sweep = Sweep::read(&recorded()).unwrap();
        assert_eq!(sweep.objective, Objective { primary_metric: "acc".into(), goal: Goal::Maximize });
        assert_eq!(
            sweep.limits,
            Limits {
                max_total_trials: 4,
                max_concurrent_trials: 2,
                timeout_s: 7200,
                trial_timeout_s: Some(600)
            }
        );
        assert_eq!(
            sweep.policy,
            Some(Policy { kind: PolicyKind::BanditFactor(0.1), evaluation_interval: 1, delay_evaluation: 0 })
        );
        assert_eq!(
            sweep.algorithm,
            Algorithm::Random { seed: None, rule: Rule::Random, log_base: std::f64::consts::E }
        );
        assert_eq!(sweep.total_trials(), 4);
    }

    #[test]
    fn a_step_of_a_pipeline_reads_the_same() {
        let step = json!({
            "objective": {"goal": "maximize", "primary_metric": "acc"},
            "sampling_algorithm": "random",
            "search_space": {"x": {"type": "choice", "values": [1, 2, 3]}, "lr": {"type": "uniform", "min_value": 0.01, "max_value": 0.9}},
            "limits": {"max_total_trials": 4, "max_concurrent_trials": 2, "timeout": 7200, "trial_timeout": 600},
            "early_termination": {"policy_type": "Bandit", "delay_evaluation": 0, "evaluation_interval": 1, "slack_factor": 0.1, "slack_amount": 0.0},
        });
        assert_eq!(Sweep::read(&step), Sweep::read(&recorded()));
    }

    #[test]
    fn defaults_are_azures() {
        let mut bare = recorded();
        bare["limits"] = Value::Null;
        bare["earlyTermination"] = Value::Null;
        let sweep = Sweep::read(&bare).unwrap();
        assert_eq!(
            sweep.limits,
            Limits {
                max_total_trials: 1000,
                max_concurrent_trials: 1000,
                timeout_s: 5_184_000,
                trial_timeout_s: None
            }
        );
        assert_eq!(sweep.policy, None);
        bare["limits"] = json!({"maxTotalTrials": 7, "maxConcurrentTrials": 100, "timeout": "PT0S"});
        assert_eq!(Sweep::read(&bare).unwrap().limits.max_concurrent_trials, 7);
        assert_eq!(Sweep::read(&bare).unwrap().limits.timeout_s, 5_184_000);
    }

    /// Merges `change` into the recorded sweep; what is said must be `expect`.
    fn check(change: &Value, expect: &[&str]) {
        let mut asked = recorded();
        for (key, value) in change.as_object().unwrap() {
            asked[key.as_str()] = value.clone();
        }
        let said: Vec<String> = match Sweep::read(&asked) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(said, expect, "{change}");
    }

    #[test]
    fn all_problems_are_told_at_once() {
        check(
            &json!({
                "objective": {"goal": "better"}, "samplingAlgorithm": {"samplingAlgorithmType": "Genetic"},
                "searchSpace": {"x": ["uniform", [1, 0]]},
                "limits": {"maxTotalTrials": 1001, "maxConcurrentTrials": 0, "timeout": "soon"},
                "earlyTermination": {"policyType": "Bandit", "evaluationInterval": -1},
            }),
            &[
                "searchSpace.x: uniform expects min_value below max_value, not 1 and 0",
                "samplingAlgorithm: expected random, grid or bayesian",
                "objective.primaryMetric: expected the name of the metric that the trial logs",
                "objective.goal: expected minimize or maximize",
                "limits.maxTotalTrials: expected a whole number from 1 to 1000, not 1001",
                "limits.maxConcurrentTrials: expected a whole number from 1 to 1000, not 0",
                "limits.timeout: expected a duration such as PT2H, or seconds, not \"soon\"",
                "earlyTermination: bandit needs a slack_factor or a slack_amount above 0",
                "earlyTermination.evaluationInterval: expected a whole number from 0 to 4294967295, not -1",
            ],
        );
        check(
            &json!({"limits": {"timeout": "P400D"}}),
            &["limits.timeout: is 34560000 s; at most 31622400 s are taken"],
        );
    }

    #[test]
    fn an_algorithm_takes_only_its_spaces() {
        let space = json!({"a": ["choice", [[1]]], "b": ["uniform", [0, 1]], "c": ["quniform", [0, 1, 1]], "d": ["loguniform", [0, 1]],
            "e": ["randint", [3]], "f": ["choice", [[{"x": ["normal", [0, 1]], "y": ["uniform", [0, 1]]}]]]});
        check(&json!({"searchSpace": space}), &[]);
        check(
            &json!({"searchSpace": space, "samplingAlgorithm": "grid"}),
            &[
                "searchSpace.b: grid sampling takes only choice, not uniform; use random sampling",
                "searchSpace.c: grid sampling takes only choice, not quniform; use random sampling",
                "searchSpace.d: grid sampling takes only choice, not loguniform; use random sampling",
                "searchSpace.e: grid sampling takes only choice, not randint; use random sampling",
                "searchSpace.f: grid sampling takes only choice, not normal; use random sampling",
                "searchSpace.f: grid sampling takes only choice, not uniform; use random sampling",
            ],
        );
        check(
            &json!({"searchSpace": space, "samplingAlgorithm": {"samplingAlgorithmType": "Bayesian"}}),
            &[
                "searchSpace.d: bayesian sampling takes only choice, uniform and quniform, not loguniform; use random sampling",
                "searchSpace.e: bayesian sampling takes only choice, uniform and quniform, not randint; use random sampling",
                "searchSpace.f: bayesian sampling takes only choice, uniform and quniform, not normal; use random sampling",
                "searchSpace.f: bayesian sampling takes no distributions within the values of a choice; use random sampling",
            ],
        );
        let wide: serde_json::Map<String, Value> =
            (0..22).map(|n| (format!("p{n}"), json!(["uniform", [0, 1]]))).collect();
        check(
            &json!({"searchSpace": wide, "samplingAlgorithm": {"type": "random", "rule": "sobol"}}),
            &[
                "samplingAlgorithm.rule: sobol covers at most 21 distributions and the search space has 22; use the rule random",
            ],
        );
    }

    #[test]
    fn random_has_seed_rule_and_base() {
        let read = |value: Value| {
            let mut asked = recorded();
            asked["samplingAlgorithm"] = value;
            Sweep::read(&asked).map(|sweep| sweep.algorithm)
        };
        assert_eq!(
            read(json!({"samplingAlgorithmType": "Random", "rule": "Sobol", "seed": 999, "logbase": "10"})),
            Ok(Algorithm::Random { seed: Some(999), rule: Rule::Sobol, log_base: 10.0 })
        );
        assert_eq!(
            read(json!({"type": "random", "rule": "random", "logbase": "e"})),
            Ok(Algorithm::Random { seed: None, rule: Rule::Random, log_base: std::f64::consts::E })
        );
        check(
            &json!({"samplingAlgorithm": {"type": "random", "rule": "lattice", "seed": "x", "logbase": 1}}),
            &[
                "samplingAlgorithm.rule: expected random or sobol",
                "samplingAlgorithm.seed: expected a whole number, not \"x\"",
                "samplingAlgorithm.logbase: expected a number above 0 other than 1, or \"e\", not 1",
            ],
        );
    }

    #[test]
    fn policies_are_read() {
        check(&json!({"earlyTermination": {"type": "median_stopping"}}), &[]);
        check(
            &json!({"earlyTermination": {"policyType": "TruncationSelection", "truncationPercentage": 20}}),
            &[],
        );
        check(&json!({"earlyTermination": {"type": "bandit", "slack_amount": 0.2}}), &[]);
        check(
            &json!({"earlyTermination": {"type": "truncation_selection"}}),
            &["earlyTermination.truncationPercentage: is required: a whole number from 1 to 99"],
        );
        check(
            &json!({"earlyTermination": {"type": "truncation_selection", "truncation_percentage": 100}}),
            &["earlyTermination.truncationPercentage: expected a whole number from 1 to 99, not 100"],
        );
        check(
            &json!({"earlyTermination": {"type": "bandit", "slack_amount": 1, "slack_factor": 1}}),
            &["earlyTermination: bandit takes a slack_factor or a slack_amount, not both"],
        );
        check(
            &json!({"earlyTermination": {"type": "bandit", "slack_factor": -0.1}}),
            &["earlyTermination.slackFactor: expected a number above 0, not -0.1"],
        );
        check(
            &json!({"earlyTermination": {"type": "hyperband"}}),
            &["earlyTermination.policyType: expected bandit, median_stopping or truncation_selection"],
        );
        // Stopped trials feed the model with what they reached.
        check(
            &json!({"samplingAlgorithm": "bayesian", "earlyTermination": {"type": "median_stopping"}}),
            &[],
        );
    }
}
