//! The one decision of a sweep: from the trials as they are to what is started, what is stopped, and whether it is
//! over. The caller asks after every change and keeps nothing but the trials.

use serde_json::Value;

use crate::limits::FIRST_TRIALS_FAILED;
use crate::sampler;
use crate::space::Params;
use crate::sweep::Sweep;

#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// From 0, in the order of starting.
    pub number: u32,
    pub params: Params,
    pub state: TrialState,
    /// Every value of the primary metric that was logged, in order.
    pub history: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialState {
    Queued,
    Running,
    Completed,
    Failed,
    /// By a policy, by its timeout or by a user.
    Canceled,
}

impl TrialState {
    pub fn is_active(self) -> bool {
        match self {
            Self::Queued | Self::Running => true,
            Self::Completed | Self::Failed | Self::Canceled => false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    pub start: Vec<(u32, Params)>,
    /// Repeated until the trial has ended, so that a lost order is no harm.
    pub stop: Vec<Stop>,
    /// Only when no trial is under way any more.
    pub done: Option<Verdict>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Stop {
    pub number: u32,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub outcome: Outcome,
    /// The trial whose outputs are the sweep's.
    pub best: Option<u32>,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    Failed,
    /// Its time was over, or all its trials were canceled.
    Canceled,
}

/// What to do now. `elapsed_s` is how long the sweep has been under way.
///
/// # Rules
///
/// - As many trials as the limits allow are under way, until the total is reached.
/// - A trial that fails does not end the sweep. If the first three (by number) failed, and no trial has completed or
///   logged the metric, the sweep is given up: what runs is stopped and it ends as failed.
/// - When its time is over, what is under way is stopped and the sweep is canceled; its best trial is still named.
/// - When all trials have ended: completed if one completed, else failed if one failed, else canceled.
pub fn next(sweep: &Sweep, seed: u64, trials: &[Trial], elapsed_s: u64) -> Step {
    let started = trials.iter().map(|trial| trial.number.saturating_add(1)).max().unwrap_or(0);
    let total = sweep.total_trials();
    let active = trials.iter().filter(|trial| trial.state.is_active()).count();
    let ending = if started >= total && active == 0 {
        Some(ended(sweep, trials))
    } else if elapsed_s >= sweep.limits.timeout_s {
        Some((Outcome::Canceled, format!("the sweep's time of {} s is over", sweep.limits.timeout_s)))
    } else if hopeless(sweep, trials) {
        Some((Outcome::Failed, given_up(sweep)))
    } else {
        None
    };
    if let Some((outcome, why)) = ending {
        let stop = trials
            .iter()
            .filter(|trial| trial.state.is_active())
            .map(|trial| Stop { number: trial.number, why: why.clone() })
            .collect();
        let done = (active == 0).then(|| Verdict { outcome, best: best(sweep, trials), why });
        return Step { start: Vec::new(), stop, done };
    }
    let stop = sweep.policy.as_ref().map(|policy| policy.judge(&sweep.objective, trials)).unwrap_or_default();
    let room = sweep.limits.max_concurrent_trials.saturating_sub(active as u32);
    let until = total.min(started.saturating_add(room));
    let start =
        if started < until { sampler::sample(sweep, seed, started..until, trials) } else { Vec::new() };
    Step { start, stop, done: None }
}

/// The completed trial with the best value of the primary metric that it ever logged; of equals the first.
pub fn best(sweep: &Sweep, trials: &[Trial]) -> Option<u32> {
    let mut leading: Option<(u32, f64)> = None;
    for trial in trials.iter().filter(|trial| trial.state == TrialState::Completed) {
        let Some(value) = sweep.objective.best_of(&trial.history) else { continue };
        let leads = leading.is_none_or(|(number, most)| {
            sweep.objective.is_better(value, most) || (value == most && trial.number < number)
        });
        if leads {
            leading = Some((trial.number, value));
        }
    }
    leading.map(|(number, _)| number)
}

fn hopeless(sweep: &Sweep, trials: &[Trial]) -> bool {
    let first = FIRST_TRIALS_FAILED.min(sweep.total_trials());
    let failed =
        trials.iter().filter(|trial| trial.number < first && trial.state == TrialState::Failed).count()
            as u32;
    let any_sign =
        trials.iter().any(|trial| trial.state == TrialState::Completed || !trial.history.is_empty());
    failed == first && !any_sign
}

fn given_up(sweep: &Sweep) -> String {
    let first = FIRST_TRIALS_FAILED.min(sweep.total_trials());
    format!(
        "the first {first} trials failed and none has logged {}; see the log of trial 0",
        sweep.objective.primary_metric
    )
}

/// How a sweep ended whose trials have all ended.
fn ended(sweep: &Sweep, trials: &[Trial]) -> (Outcome, String) {
    let count = |state| trials.iter().filter(|trial| trial.state == state).count();
    let (completed, failed, canceled) =
        (count(TrialState::Completed), count(TrialState::Failed), count(TrialState::Canceled));
    let metric = &sweep.objective.primary_metric;
    let counts = format!("{completed} trials completed, {failed} failed, {canceled} were canceled");
    if completed == 0 && failed > 0 {
        let first =
            trials.iter().find(|trial| trial.state == TrialState::Failed).map_or(0, |trial| trial.number);
        return (Outcome::Failed, format!("{counts}; see the log of trial {first}"));
    }
    if completed == 0 {
        return (Outcome::Canceled, counts);
    }
    let why = match best(sweep, trials).and_then(|best| trials.iter().find(|trial| trial.number == best)) {
        Some(trial) => {
            let value = sweep.objective.best_of(&trial.history).unwrap_or_default();
            format!(
                "{counts}; trial {} is best with {metric} {value}, {}",
                trial.number,
                Value::Object(trial.params.clone())
            )
        }
        None => format!(
            "{counts}; none that completed has logged {metric}, so no trial is best: log it under this very name"
        ),
    };
    (Outcome::Completed, why)
}
