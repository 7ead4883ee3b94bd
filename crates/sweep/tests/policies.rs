//! Early termination as tables: the policy, what the trials have logged, and who is stopped.

use TrialState::{Canceled, Completed, Failed, Queued, Running};
use neap_sweep::{Params, Sweep, Trial, TrialState, next};
use serde_json::{Value, json};

fn sweep(goal: &str, policy: &Value) -> Sweep {
    Sweep::read(&json!({
        "searchSpace": {"x": ["uniform", [0, 1]]},
        "samplingAlgorithm": "random",
        "objective": {"goal": goal, "primaryMetric": "m"},
        "limits": {"maxTotalTrials": 1000},
        "earlyTermination": policy,
    }))
    .unwrap()
}

fn check(goal: &str, policy: &Value, trials: &[(TrialState, &[f64])], stopped: &[u32]) {
    let sweep = sweep(goal, policy);
    let mut trials: Vec<Trial> = trials
        .iter()
        .enumerate()
        .map(|(number, (state, history))| Trial {
            number: number as u32,
            params: Params::new(),
            state: *state,
            history: history.to_vec(),
        })
        .collect();
    let stop = next(&sweep, 1, &trials, 0).stop;
    assert_eq!(stop.iter().map(|stop| stop.number).collect::<Vec<_>>(), stopped, "{policy} {stop:?}");
    // Asked again once they are stopped, nobody else goes.
    for number in stopped {
        trials[*number as usize].state = Canceled;
    }
    assert_eq!(next(&sweep, 1, &trials, 0).stop, [], "{policy}, again");
}

fn factor(factor: f64) -> Value {
    json!({"type": "bandit", "slack_factor": factor})
}

fn amount(amount: f64) -> Value {
    json!({"type": "bandit", "slack_amount": amount})
}

#[test]
fn bandit_by_factor() {
    // 0.8 / 1.2 is 0.6667.
    check("maximize", &factor(0.2), &[(Running, &[0.8]), (Running, &[0.67]), (Running, &[0.66])], &[2]);
    // What counts is a trial's best so far, not its last.
    check("maximize", &factor(0.2), &[(Running, &[0.8, 0.8]), (Running, &[0.7, 0.1])], &[]);
    // 1 · 1.5.
    check("minimize", &factor(0.5), &[(Running, &[1.0]), (Running, &[1.5]), (Running, &[1.6])], &[2]);
    // The best is never stopped, whatever the sign.
    check("maximize", &factor(0.5), &[(Running, &[-1.0]), (Running, &[-1.4]), (Running, &[-1.6])], &[2]);
    check("minimize", &factor(0.5), &[(Running, &[-3.0]), (Running, &[-2.1]), (Running, &[-1.9])], &[2]);
    check("minimize", &factor(0.5), &[(Running, &[0.0]), (Running, &[0.0]), (Running, &[0.1])], &[2]);
}

#[test]
fn bandit_by_amount() {
    check("maximize", &amount(0.2), &[(Running, &[0.8]), (Running, &[0.61]), (Running, &[0.59])], &[2]);
    check("minimize", &amount(0.5), &[(Running, &[-1.0]), (Running, &[-0.5]), (Running, &[-0.4])], &[2]);
}

#[test]
fn only_running_trials_are_stopped_and_failed_ones_count_for_nothing() {
    check(
        "maximize",
        &factor(0.1),
        &[(Completed, &[0.9]), (Running, &[0.5]), (Canceled, &[0.1]), (Failed, &[0.1])],
        &[1],
    );
    check("maximize", &factor(0.1), &[(Failed, &[0.9]), (Running, &[0.5])], &[]);
    check("maximize", &factor(0.1), &[(Canceled, &[0.9]), (Running, &[0.5])], &[1]);
    check("maximize", &factor(0.1), &[(Running, &[0.9]), (Queued, &[0.1]), (Running, &[])], &[]);
}

#[test]
fn a_young_trial_is_measured_by_what_others_had_at_its_age() {
    check("maximize", &factor(0.1), &[(Completed, &[0.1, 0.5, 0.9]), (Running, &[0.1])], &[]);
    check("maximize", &factor(0.1), &[(Completed, &[0.1, 0.5, 0.9]), (Running, &[0.1, 0.1])], &[1]);
    check(
        "maximize",
        &json!({"type": "truncation_selection", "truncation_percentage": 50}),
        &[(Completed, &[0.1, 0.9]), (Running, &[0.2])],
        &[],
    );
    check(
        "maximize",
        &json!({"type": "median_stopping"}),
        &[(Completed, &[0.1, 0.9, 0.9]), (Running, &[0.2])],
        &[],
    );
}

#[test]
fn intervals_and_delay() {
    let policy = |interval: u32, delay: u32| json!({"type": "bandit", "slack_factor": 0.1, "evaluation_interval": interval, "delay_evaluation": delay});
    let good: &[f64] = &[0.9; 10];
    let bad: &[f64] = &[0.1; 10];
    for (interval, delay, reports, stops) in [
        (1, 0, 1, true),
        (0, 0, 1, true),
        (2, 0, 1, false),
        (2, 0, 2, true),
        (2, 0, 3, true),
        (1, 5, 4, false),
        (1, 5, 5, true),
        // The first multiple of 3 that is at least 5.
        (3, 5, 5, false),
        (3, 5, 6, true),
        (10, 0, 9, false),
        (10, 0, 10, true),
    ] {
        let stopped: &[u32] = if stops { &[1] } else { &[] };
        check("maximize", &policy(interval, delay), &[(Running, good), (Running, &bad[..reports])], stopped);
    }
    // Between evaluations nothing counts: at 3 reports with an interval of 2 the second is the last that does.
    check("maximize", &policy(2, 0), &[(Running, &[0.5, 0.5]), (Running, &[0.5, 0.5, 0.0])], &[]);
    check("maximize", &policy(2, 0), &[(Running, &[0.5, 0.5]), (Running, &[0.1, 0.1, 0.9])], &[1]);
}

#[test]
fn median_stopping() {
    let policy = json!({"type": "median_stopping"});
    // Averages 1, 2, 3: the median is 2, and equal is not worse.
    check("maximize", &policy, &[(Running, &[1.0]), (Running, &[2.0]), (Running, &[3.0])], &[0]);
    check("minimize", &policy, &[(Running, &[1.0]), (Running, &[2.0]), (Running, &[3.0])], &[2]);
    // Averages 2.5 and 1.5, median 2: the best value decides for the trial, the averages for the bar.
    check("maximize", &policy, &[(Running, &[1.0, 4.0]), (Running, &[0.5, 2.5])], &[]);
    check("maximize", &policy, &[(Running, &[1.0, 4.0]), (Running, &[1.9, 1.1])], &[1]);
    // Alone there is nothing to compare with.
    check("maximize", &policy, &[(Running, &[1.0])], &[]);
    check("maximize", &policy, &[(Completed, &[5.0]), (Completed, &[6.0]), (Running, &[1.0])], &[2]);
}

#[test]
fn truncation_selection() {
    let policy =
        |percentage: u32| json!({"type": "truncation_selection", "truncation_percentage": percentage});
    let five: Vec<(TrialState, &[f64])> =
        vec![(Running, &[5.0]), (Running, &[1.0]), (Running, &[4.0]), (Running, &[2.0]), (Running, &[3.0])];
    check("maximize", &policy(20), &five, &[1]);
    check("maximize", &policy(40), &five, &[1, 3]);
    check("minimize", &policy(20), &five, &[0]);
    // A fifth of four is nobody.
    check("maximize", &policy(20), &five[..4], &[]);
    // Of equals the later ones go.
    check("maximize", &policy(50), &[(Running, &[1.0]), (Running, &[1.0])], &[1]);
    // Who has not come so far is not among them.
    check("maximize", &policy(50), &[(Running, &[1.0, 1.0]), (Running, &[2.0])], &[]);
    let mut finished = policy(50);
    finished["exclude_finished_jobs"] = json!(true);
    check("maximize", &finished, &[(Completed, &[9.0]), (Running, &[1.0])], &[]);
    check("maximize", &policy(50), &[(Completed, &[9.0]), (Running, &[1.0])], &[1]);
}

#[test]
fn what_is_no_number_is_worst() {
    let nan = f64::NAN;
    check("maximize", &factor(0.1), &[(Running, &[0.5]), (Running, &[nan])], &[1]);
    check("minimize", &factor(0.1), &[(Running, &[0.5]), (Running, &[f64::NEG_INFINITY])], &[1]);
    check("maximize", &factor(0.1), &[(Running, &[nan]), (Running, &[nan])], &[]);
    check("maximize", &factor(0.1), &[(Running, &[0.5, nan])], &[]);
    check("maximize", &json!({"type": "median_stopping"}), &[(Running, &[0.5]), (Running, &[nan])], &[1]);
    check(
        "maximize",
        &json!({"type": "truncation_selection", "truncation_percentage": 50}),
        &[(Running, &[nan]), (Running, &[-9.0])],
        &[0],
    );
}

#[test]
fn the_reason_has_the_numbers() {
    let sweep = sweep("maximize", &json!({"type": "bandit", "slack_amount": 0.25, "evaluation_interval": 2}));
    let trial = |number, history: &[f64]| Trial {
        number,
        params: Params::new(),
        state: Running,
        history: history.to_vec(),
    };
    let stop = next(&sweep, 1, &[trial(0, &[0.75, 0.5]), trial(1, &[0.25, 0.125, 1.0])], 0).stop;
    assert_eq!(
        stop[0].why,
        "bandit policy at interval 2: best m 0.25, the best trial has 0.75, allowed is 0.5"
    );
}
