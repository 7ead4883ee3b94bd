//! A whole sweep without any machine: twenty trials, ten at a time, each logging an accuracy that grows by epochs.
//! A bandit policy stops the bad ones, and the best of all is found.

use neap_sweep::{Outcome, Params, Sweep, Trial, TrialState, next, render};
use serde_json::{Value, json};

const EPOCHS: usize = 10;

fn sweep(algorithm: &Value, policy: &Value) -> Sweep {
    Sweep::read(&json!({
        "searchSpace": {"lr": ["uniform", [0.001, 1.0]], "layers": ["choice", [[1, 2, 3]]]},
        "samplingAlgorithm": algorithm,
        "objective": {"goal": "maximize", "primaryMetric": "accuracy"},
        "limits": {"maxTotalTrials": 20, "maxConcurrentTrials": 10, "timeout": "PT2H"},
        "earlyTermination": policy,
    }))
    .unwrap()
}

/// Where a trial ends up: best at a learning rate of 0.3 with two layers.
fn quality(params: &Params) -> f64 {
    let (lr, layers) = (params["lr"].as_f64().unwrap(), params["layers"].as_f64().unwrap());
    0.95 - 1.2 * (lr - 0.3).powi(2) - 0.1 * (layers - 2.0).abs()
}

fn accuracy(params: &Params, epoch: usize) -> f64 {
    quality(params) * (1.0 - 0.6_f64.powi(epoch as i32 + 1))
}

struct Ran {
    trials: Vec<Trial>,
    stopped: Vec<(u32, String)>,
    epochs: usize,
    most_at_once: usize,
    outcome: Outcome,
    best: Option<u32>,
}

/// Every turn each running trial logs one epoch, those behind it a turn later than those before it.
fn run(sweep: &Sweep, seed: u64) -> Ran {
    let (mut trials, mut stopped) = (Vec::<Trial>::new(), Vec::new());
    let (mut epochs, mut most_at_once) = (0, 0);
    for turn in 0.. {
        assert!(turn < 1_000, "the sweep never ends");
        let step = next(sweep, seed, &trials, turn);
        assert_eq!(step, next(sweep, seed, &trials, turn));
        if let Some(done) = step.done {
            return Ran { trials, stopped, epochs, most_at_once, outcome: done.outcome, best: done.best };
        }
        for stop in step.stop {
            let trial = &mut trials[stop.number as usize];
            trial.state = TrialState::Canceled;
            stopped.push((stop.number, stop.why));
        }
        for (number, params) in step.start {
            trials.push(Trial { number, params, state: TrialState::Queued, history: Vec::new() });
        }
        most_at_once = most_at_once.max(trials.iter().filter(|trial| trial.state.is_active()).count());
        for trial in trials.iter_mut().filter(|trial| trial.state.is_active()) {
            if trial.state == TrialState::Queued {
                trial.state = TrialState::Running;
                continue;
            }
            trial.history.push(accuracy(&trial.params, trial.history.len()));
            epochs += 1;
            if trial.history.len() == EPOCHS {
                trial.state = TrialState::Completed;
            }
        }
    }
    unreachable!("the loop has no other end")
}

fn best_of_all(trials: &[Trial]) -> u32 {
    let best = trials.iter().max_by(|a, b| quality(&a.params).total_cmp(&quality(&b.params)));
    best.map(|trial| trial.number).unwrap()
}

#[test]
fn bandit_stops_the_bad_ones_and_the_best_is_found() {
    let policy =
        json!({"type": "bandit", "slack_factor": 0.1, "evaluation_interval": 1, "delay_evaluation": 3});
    for algorithm in
        [json!("random"), json!({"type": "random", "rule": "sobol", "seed": 3}), json!("bayesian")]
    {
        for seed in 0..10 {
            let ran = run(&sweep(&algorithm, &policy), seed);
            assert_eq!((ran.trials.len(), ran.most_at_once), (20, 10), "{algorithm} {seed}");
            assert_eq!(ran.outcome, Outcome::Completed);
            assert_eq!(ran.best, Some(best_of_all(&ran.trials)), "{algorithm} {seed}");
            let best = quality(&ran.trials[ran.best.unwrap() as usize].params);
            for trial in &ran.trials {
                // Curves differ by a factor alone, so the policy can be checked by hand.
                let bad = quality(&trial.params) < best / 1.1;
                if trial.state == TrialState::Canceled {
                    assert!(bad && trial.history.len() >= 3, "{trial:?}");
                } else {
                    assert_eq!(trial.history.len(), EPOCHS);
                }
            }
            assert!(ran.stopped.iter().all(|(_, why)| why.starts_with("bandit policy at interval")));
            assert!(
                !ran.stopped.is_empty() && ran.epochs < 20 * EPOCHS - 4 * ran.stopped.len(),
                "{}",
                ran.epochs
            );
        }
    }
}

#[test]
fn without_a_policy_everything_runs_to_its_end() {
    let ran = run(&sweep(&json!("random"), &Value::Null), 1);
    assert_eq!((ran.stopped.len(), ran.epochs), (0, 20 * EPOCHS));
    assert_eq!(ran.best, Some(best_of_all(&ran.trials)));
}

#[test]
fn other_policies_save_time_too_and_keep_the_best() {
    for policy in [
        json!({"type": "median_stopping", "evaluation_interval": 1, "delay_evaluation": 5}),
        json!({"type": "truncation_selection", "truncation_percentage": 30, "evaluation_interval": 2, "delay_evaluation": 4}),
    ] {
        for seed in 0..10 {
            let ran = run(&sweep(&json!("random"), &policy), seed);
            assert_eq!(ran.best, Some(best_of_all(&ran.trials)), "{policy} {seed}");
            assert!(ran.stopped.len() >= 3 && ran.epochs < 20 * EPOCHS, "{policy} {seed}: {:?}", ran.stopped);
        }
    }
}

#[test]
fn commands_have_the_values_of_their_trial() {
    let sweep = sweep(&json!("random"), &Value::Null);
    for (_, params) in next(&sweep, 1, &[], 0).start {
        let command =
            render("python train.py --lr ${{search_space.lr}} --layers ${{search_space.layers}}", &params);
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[3].parse::<f64>().unwrap(), params["lr"].as_f64().unwrap());
        assert_eq!(words[5].parse::<u64>().unwrap(), params["layers"].as_u64().unwrap());
    }
}
