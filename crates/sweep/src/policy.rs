//! Early termination: which running trials are not worth going on with.
//!
//! An interval is one report of the primary metric. A trial is judged at the last multiple of `evaluation_interval`
//! that it has reached, from `delay_evaluation` on, by its best value up to there against what others had up to the
//! same interval; so a young trial is never measured by what older ones reached later. Values that are no numbers
//! are worse than all others. Failed trials count for nothing.

use serde_json::Value;

use crate::problem::Problems;
use crate::read::{field, number, whole, word};
use crate::step::{Stop, Trial, TrialState};
use crate::sweep::{Goal, Objective};

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub kind: PolicyKind,
    /// Every how many reports the policy is applied; at least 1.
    pub evaluation_interval: u32,
    /// Reports before the policy is applied first.
    pub delay_evaluation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyKind {
    /// Stops what is further from the best than a share of it.
    BanditFactor(f64),
    /// Stops what is further from the best than an amount.
    BanditAmount(f64),
    /// Stops what is worse than the median of all running averages.
    MedianStopping,
    /// Stops the lowest per cent.
    TruncationSelection { percentage: u32, exclude_finished: bool },
}

impl Policy {
    /// `None` if there is no policy, or a wrong one.
    pub(crate) fn read(value: Option<&Value>, problems: &mut Problems) -> Option<Self> {
        let at = "earlyTermination";
        let value = value?;
        let before = problems.0.len();
        let kind =
            field(value, "policyType").or_else(|| field(value, "type")).and_then(Value::as_str).map(word);
        let kind = match kind.as_deref() {
            Some("bandit") => bandit(value, at, problems),
            Some("medianstopping") => Some(PolicyKind::MedianStopping),
            Some("truncationselection") => {
                let percentage = whole(value, at, "truncationPercentage", 1, 99, problems);
                if percentage.is_none() && problems.0.len() == before {
                    problems.add(
                        &format!("{at}.truncationPercentage"),
                        "is required: a whole number from 1 to 99",
                    );
                }
                Some(PolicyKind::TruncationSelection {
                    percentage: percentage.unwrap_or(1) as u32,
                    exclude_finished: field(value, "excludeFinishedJobs")
                        .and_then(Value::as_bool)
                        .unwrap_or(false),
                })
            }
            _ => {
                problems.add(
                    &format!("{at}.policyType"),
                    "expected bandit, median_stopping or truncation_selection",
                );
                None
            }
        };
        let most = u64::from(u32::MAX);
        // The SDK sends 0 where nothing was said.
        let interval = whole(value, at, "evaluationInterval", 0, most, problems).unwrap_or(0).max(1) as u32;
        let delay = whole(value, at, "delayEvaluation", 0, most, problems).unwrap_or(0) as u32;
        let policy = Self { kind: kind?, evaluation_interval: interval, delay_evaluation: delay };
        (problems.0.len() == before).then_some(policy)
    }

    /// The running trials that this policy stops now, each with the reason.
    pub(crate) fn judge(&self, objective: &Objective, trials: &[Trial]) -> Vec<Stop> {
        let running = trials.iter().filter(|trial| trial.state == TrialState::Running);
        running
            .filter_map(|trial| {
                let interval = self.due(trial.history.len())?;
                let why = self.verdict(objective, trial, trials, interval)?;
                Some(Stop {
                    number: trial.number,
                    why: format!("{} at interval {interval}: {why}", self.name()),
                })
            })
            .collect()
    }

    /// The last interval that a trial with so many reports is judged at.
    fn due(&self, reports: usize) -> Option<usize> {
        let interval = self.evaluation_interval as usize;
        let last = reports / interval * interval;
        (last > 0 && last >= self.delay_evaluation as usize).then_some(last)
    }

    fn name(&self) -> &'static str {
        match self.kind {
            PolicyKind::BanditFactor(_) | PolicyKind::BanditAmount(_) => "bandit policy",
            PolicyKind::MedianStopping => "median stopping policy",
            PolicyKind::TruncationSelection { .. } => "truncation selection policy",
        }
    }

    /// Why the trial is stopped, or `None` if it goes on.
    fn verdict(
        &self,
        objective: &Objective,
        trial: &Trial,
        trials: &[Trial],
        interval: usize,
    ) -> Option<String> {
        let metric = &objective.primary_metric;
        let own = objective.best_of(upto(trial, interval));
        let said = own.map_or_else(|| format!("{metric} has no value"), |own| format!("best {metric} {own}"));
        match self.kind {
            PolicyKind::BanditFactor(_) | PolicyKind::BanditAmount(_) => {
                let others = trials.iter().filter(|other| other.state != TrialState::Failed);
                let best = others
                    .filter_map(|other| objective.best_of(upto(other, interval)))
                    .reduce(|a, b| objective.better_of(a, b))?;
                let allowed = self.allowed(objective.goal, best);
                let stopped = own.is_none_or(|own| objective.is_better(allowed, own));
                stopped.then(|| format!("{said}, the best trial has {best}, allowed is {allowed}"))
            }
            PolicyKind::MedianStopping => {
                let mut averages: Vec<f64> =
                    peers(trials, interval, false).filter_map(|peer| average(upto(peer, interval))).collect();
                let median = median(&mut averages)?;
                let stopped = own.is_none_or(|own| objective.is_better(median, own));
                stopped.then(|| format!("{said}, the median of running averages is {median}"))
            }
            PolicyKind::TruncationSelection { percentage, exclude_finished } => {
                let peers: Vec<&Trial> = peers(trials, interval, exclude_finished).collect();
                let cut = peers.len() * percentage as usize / 100;
                // As many as are no better than this one, itself left out; of equals the later goes first.
                let no_better = peers
                    .iter()
                    .filter(|peer| {
                        let other = objective.best_of(upto(peer, interval));
                        match (own, other) {
                            (Some(own), Some(other)) if own == other => peer.number > trial.number,
                            (Some(own), Some(other)) => objective.is_better(own, other),
                            (Some(_), None) => true,
                            (None, Some(_)) => false,
                            (None, None) => peer.number > trial.number,
                        }
                    })
                    .count();
                (no_better < cut)
                    .then(|| format!("{said} is among the lowest {percentage} % of {} trials", peers.len()))
            }
        }
    }

    /// The worst value that is still within the slack. A factor widens whichever sign the best value has: 0.8 may
    /// be 0.8 / (1 + f) if it is maximised, and -0.8 may be -0.8 · (1 + f).
    fn allowed(&self, goal: Goal, best: f64) -> f64 {
        match (self.kind, goal) {
            (PolicyKind::BanditFactor(factor), Goal::Maximize) => {
                (best / (1.0 + factor)).min(best * (1.0 + factor))
            }
            (PolicyKind::BanditFactor(factor), Goal::Minimize) => {
                (best / (1.0 + factor)).max(best * (1.0 + factor))
            }
            (PolicyKind::BanditAmount(amount), Goal::Maximize) => best - amount,
            (PolicyKind::BanditAmount(amount), Goal::Minimize) => best + amount,
            (PolicyKind::MedianStopping | PolicyKind::TruncationSelection { .. }, _) => best,
        }
    }
}

fn bandit(value: &Value, at: &str, problems: &mut Problems) -> Option<PolicyKind> {
    // The SDK sends 0 for the one that was not given.
    let mut slack = |name: &str| {
        let given = number(value, at, name, problems).filter(|slack| *slack != 0.0)?;
        if given < 0.0 {
            problems.add(&format!("{at}.{name}"), format!("expected a number above 0, not {given}"));
        }
        Some(given)
    };
    let (factor, amount) = (slack("slackFactor"), slack("slackAmount"));
    match (factor, amount) {
        (Some(factor), None) => Some(PolicyKind::BanditFactor(factor)),
        (None, Some(amount)) => Some(PolicyKind::BanditAmount(amount)),
        (None, None) => {
            problems.add(at, "bandit needs a slack_factor or a slack_amount above 0");
            None
        }
        (Some(_), Some(_)) => {
            problems.add(at, "bandit takes a slack_factor or a slack_amount, not both");
            None
        }
    }
}

fn upto(trial: &Trial, interval: usize) -> &[f64] {
    &trial.history[..interval.min(trial.history.len())]
}

/// Those that have come as far, and those that completed before and will not. Trials that a policy stopped stay, so
/// that asking again at the same interval stops nobody else.
fn peers(trials: &[Trial], interval: usize, exclude_finished: bool) -> impl Iterator<Item = &Trial> {
    trials.iter().filter(move |trial| match trial.state {
        TrialState::Failed | TrialState::Queued => false,
        TrialState::Completed => !exclude_finished && !trial.history.is_empty(),
        TrialState::Running | TrialState::Canceled => trial.history.len() >= interval,
    })
}

fn average(values: &[f64]) -> Option<f64> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    (!finite.is_empty()).then(|| finite.iter().sum::<f64>() / finite.len() as f64)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        _ if values.is_empty() => None,
        0 => Some(0.5 * (values[middle - 1] + values[middle])),
        _ => Some(values[middle]),
    }
}
