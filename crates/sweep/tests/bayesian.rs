//! Bayesian sampling earns its name: with the same number of trials it finds better values than random sampling does,
//! in the mean over fixed seeds, also when several trials run at once.

use neap_sweep::{Params, Sweep, Trial, TrialState, next};
use serde_json::{Value, json};

const SEEDS: u64 = 8;

fn sweep(space: &Value, algorithm: &str, goal: &str, total: u32, concurrent: u32) -> Sweep {
    Sweep::read(&json!({
        "searchSpace": space,
        "samplingAlgorithm": algorithm,
        "objective": {"goal": goal, "primaryMetric": "loss"},
        "limits": {"maxTotalTrials": total, "maxConcurrentTrials": concurrent},
    }))
    .unwrap()
}

/// Runs a sweep to its end, each batch completing as a whole; the values of all trials.
fn run(sweep: &Sweep, seed: u64, value: &dyn Fn(&Params) -> f64) -> Vec<f64> {
    let mut trials: Vec<Trial> = Vec::new();
    loop {
        let step = next(sweep, seed, &trials, 0);
        if step.done.is_some() {
            return trials.iter().map(|trial| trial.history[0]).collect();
        }
        for (number, params) in step.start {
            let history = vec![value(&params)];
            trials.push(Trial { number, params, state: TrialState::Completed, history });
        }
    }
}

fn smallest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The mean over seeds of the smallest value found.
fn mean(space: &Value, algorithm: &str, total: u32, concurrent: u32, value: &dyn Fn(&Params) -> f64) -> f64 {
    let sweep = sweep(space, algorithm, "minimize", total, concurrent);
    (0..SEEDS).map(|seed| smallest(&run(&sweep, seed, value))).sum::<f64>() / SEEDS as f64
}

fn number(params: &Params, name: &str) -> f64 {
    params[name].as_f64().unwrap()
}

/// Three equal valleys of 0.398 in hilly country.
fn branin(params: &Params) -> f64 {
    use std::f64::consts::PI;
    let (x, y) = (number(params, "x"), number(params, "y"));
    (y - 5.1 / (4.0 * PI * PI) * x * x + 5.0 / PI * x - 6.0).powi(2)
        + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * x.cos()
        + 10.0
}

/// As training goes: a best learning rate that depends on the optimiser, a batch size that matters little, steps.
fn training(params: &Params) -> f64 {
    let (best, floor) = match params["opt"].as_str().unwrap() {
        "adam" => (0.25, 0.1),
        "sgd" => (0.7, 0.15),
        _ => (0.5, 0.6),
    };
    floor
        + 3.0 * (number(params, "lr") - best).powi(2)
        + 0.05 * (number(params, "batch").log2() - 5.0).abs()
        + 0.02 * (number(params, "layers") - 6.0).abs()
}

#[test]
fn it_beats_random_on_a_hilly_function() {
    let space = json!({"x": ["uniform", [-5, 10]], "y": ["uniform", [0, 15]]});
    let (one, ten) = (mean(&space, "bayesian", 30, 1, &branin), mean(&space, "bayesian", 30, 5, &branin));
    let random = mean(&space, "random", 30, 1, &branin);
    assert!(one < 0.5 * random + 0.2 && one < 0.6, "one at a time {one}, random {random}");
    assert!(ten < 0.6 * random + 0.2, "five at a time {ten}, random {random}");
}

#[test]
fn it_beats_random_where_choices_and_steps_are_mixed_in() {
    let space = json!({
        "lr": ["uniform", [0, 1]], "opt": ["choice", [["adam", "sgd", "none"]]],
        "batch": ["choice", [[16, 32, 64, 128]]], "layers": ["quniform", [1, 12, 1]],
    });
    let (bayesian, random) =
        (mean(&space, "bayesian", 40, 4, &training), mean(&space, "random", 40, 4, &training));
    // 0.1 is the best there is.
    assert!(bayesian - 0.1 < 0.5 * (random - 0.1), "bayesian {bayesian}, random {random}");
}

#[test]
fn it_beats_random_in_six_dimensions_most_of_which_do_not_matter() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let space: Value = names.iter().map(|name| ((*name).to_owned(), json!(["uniform", [0, 1]]))).collect();
    let value = |params: &Params| (number(params, "b") - 0.3).powi(2) + (number(params, "e") - 0.8).powi(2);
    let (bayesian, random) = (mean(&space, "bayesian", 40, 1, &value), mean(&space, "random", 40, 1, &value));
    assert!(bayesian < 0.3 * random, "bayesian {bayesian}, random {random}");
}

#[test]
fn a_goal_may_be_to_maximize() {
    let space = json!({"x": ["uniform", [0, 1]]});
    let sweep = sweep(&space, "bayesian", "maximize", 20, 1);
    for seed in 0..SEEDS {
        let values = run(&sweep, seed, &|params| -(number(params, "x") - 0.37).powi(2));
        let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert!(best > -1e-4, "seed {seed}: {best}");
    }
}

#[test]
fn a_finite_space_is_never_asked_twice_for_the_same() {
    let space = json!({"a": ["choice", [[1, 2, 3, 4]]], "b": ["choice", [["x", "y", "z"]]]});
    let sweep = sweep(&space, "bayesian", "minimize", 100, 3);
    let mut trials: Vec<Trial> = Vec::new();
    while trials.len() < 12 {
        for (number, params) in next(&sweep, 4, &trials, 0).start {
            assert!(trials.iter().all(|trial| trial.params != params), "{params:?} again");
            let history = vec![f64::from(number)];
            trials.push(Trial { number, params, state: TrialState::Completed, history });
        }
    }
    assert!(next(&sweep, 4, &trials, 0).done.is_some());
}

#[test]
fn trials_under_way_make_others_go_elsewhere() {
    let space = json!({"x": ["uniform", [0, 1]]});
    let sweep = sweep(&space, "bayesian", "minimize", 100, 20);
    let mut trials: Vec<Trial> = (0..8)
        .map(|number| {
            let x = f64::from(number) / 7.0;
            let params = json!({"x": x}).as_object().cloned().unwrap();
            Trial {
                number,
                params,
                state: TrialState::Completed,
                history: vec![(x - 0.5).powi(2) * (1.0 + x)],
            }
        })
        .collect();
    let batch = next(&sweep, 1, &trials, 0).start;
    let mut drawn: Vec<f64> = batch.iter().map(|(_, params)| number(params, "x")).collect();
    assert_eq!(drawn.len(), 20);
    drawn.sort_by(f64::total_cmp);
    drawn.dedup();
    assert_eq!(drawn.len(), 20, "a batch repeats itself");
    // One more under way, at the very place that is best to ask about: the next goes elsewhere, and would have gone
    // there otherwise.
    let asked = batch[0].1.clone();
    let gap = |trials: &[Trial]| {
        let (_, params) = &next(&sweep, 1, trials, 0).start[0];
        (number(params, "x") - number(&asked, "x")).abs()
    };
    trials.push(Trial { number: 8, params: Params::new(), state: TrialState::Running, history: vec![] });
    let near = gap(&trials);
    trials[8].params = asked.clone();
    let far = gap(&trials);
    assert!(near < 0.01 && far > 0.02, "{near} {far}");
}

#[test]
fn failures_are_avoided() {
    let space = json!({"x": ["uniform", [0, 1]]});
    let sweep = sweep(&space, "bayesian", "minimize", 40, 1);
    let mut trials: Vec<Trial> = Vec::new();
    loop {
        let step = next(&sweep, 2, &trials, 0);
        if step.done.is_some() {
            break;
        }
        for (number_, params) in step.start {
            let x = number(&params, "x");
            let fails = x > 0.5;
            trials.push(Trial {
                number: number_,
                params,
                state: if fails { TrialState::Failed } else { TrialState::Completed },
                history: if fails { vec![] } else { vec![1.0 - x] },
            });
        }
    }
    let late = trials.iter().skip(20).filter(|trial| trial.state == TrialState::Failed).count();
    assert!(late <= 10, "{late} of the last 20 trials failed");
    let best = trials.iter().filter_map(|trial| trial.history.first()).copied().fold(f64::INFINITY, f64::min);
    assert!(best < 0.52, "{best}");
}

#[test]
fn many_trials_are_not_slow_to_choose_from() {
    let space = json!({"x": ["uniform", [0, 1]], "y": ["uniform", [0, 1]]});
    let sweep = sweep(&space, "bayesian", "minimize", 1000, 1000);
    let trials: Vec<Trial> = (0..998)
        .map(|number| {
            let (x, y) = (f64::from(number % 31) / 31.0, f64::from(number % 37) / 37.0);
            let params = json!({"x": x, "y": y}).as_object().cloned().unwrap();
            Trial {
                number,
                params,
                state: TrialState::Completed,
                history: vec![(x - 0.2).powi(2) + (y - 0.9).powi(2)],
            }
        })
        .collect();
    let step = next(&sweep, 1, &trials, 0);
    for (_, params) in &step.start {
        assert!(
            (number(params, "x") - 0.2).abs() < 0.1 && (number(params, "y") - 0.9).abs() < 0.1,
            "{params:?}"
        );
    }
    assert_eq!(step.start.len(), 2);
}
