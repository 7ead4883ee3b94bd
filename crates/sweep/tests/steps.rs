//! What a sweep starts and how it ends, as tables and as rules over many seeds.

use TrialState::{Canceled, Completed, Failed, Queued, Running};
use neap_sweep::{Outcome, Params, Sweep, Trial, TrialState, best, next};
use proptest::prelude::*;
use serde_json::{Value, json};

fn sweep(total: u32, concurrent: u32) -> Sweep {
    of(&json!({"x": ["uniform", [0, 1]]}), "random", total, concurrent)
}

fn of(space: &Value, algorithm: &str, total: u32, concurrent: u32) -> Sweep {
    Sweep::read(&json!({
        "searchSpace": space,
        "samplingAlgorithm": algorithm,
        "objective": {"goal": "maximize", "primaryMetric": "acc"},
        "limits": {"maxTotalTrials": total, "maxConcurrentTrials": concurrent, "timeout": "PT1H"},
    }))
    .unwrap()
}

fn trials(states: &[(TrialState, &[f64])]) -> Vec<Trial> {
    states
        .iter()
        .enumerate()
        .map(|(number, (state, history))| Trial {
            number: number as u32,
            params: Params::new(),
            state: *state,
            history: history.to_vec(),
        })
        .collect()
}

#[test]
fn trials_start_as_the_limits_allow() {
    let sweep = sweep(5, 2);
    for (states, started) in [
        (vec![], vec![0, 1]),
        (vec![(Queued, &[][..])], vec![1]),
        (vec![(Running, &[][..]), (Queued, &[])], vec![]),
        (vec![(Running, &[][..]), (Completed, &[])], vec![2]),
        (vec![(Completed, &[][..]), (Failed, &[]), (Canceled, &[])], vec![3, 4]),
        (vec![(Completed, &[][..]), (Completed, &[]), (Completed, &[]), (Completed, &[])], vec![4]),
        (
            vec![(Completed, &[][..]), (Completed, &[]), (Completed, &[]), (Completed, &[]), (Running, &[])],
            vec![],
        ),
    ] {
        let step = next(&sweep, 1, &trials(&states), 0);
        assert_eq!(step.start.iter().map(|(number, _)| *number).collect::<Vec<_>>(), started, "{states:?}");
        assert_eq!((step.stop, step.done), (vec![], None), "{states:?}");
    }
}

#[test]
fn a_sweep_ends_by_what_its_trials_did() {
    let nothing: &[f64] = &[];
    for (states, outcome, best) in [
        (
            vec![(Completed, &[0.1, 0.7, 0.3][..]), (Completed, &[0.6]), (Completed, &[0.2])],
            Outcome::Completed,
            Some(0),
        ),
        (
            vec![(Completed, &[0.5][..]), (Completed, &[0.5]), (Completed, nothing)],
            Outcome::Completed,
            Some(0),
        ),
        (vec![(Failed, &[0.9][..]), (Canceled, &[0.8]), (Completed, &[0.1])], Outcome::Completed, Some(2)),
        (vec![(Completed, nothing), (Completed, &[f64::NAN]), (Failed, nothing)], Outcome::Completed, None),
        (vec![(Failed, nothing), (Failed, nothing), (Failed, nothing)], Outcome::Failed, None),
        (vec![(Failed, nothing), (Canceled, nothing), (Canceled, nothing)], Outcome::Failed, None),
        (vec![(Canceled, nothing), (Canceled, nothing), (Canceled, nothing)], Outcome::Canceled, None),
    ] {
        // At the end the clock no longer matters.
        for elapsed in [0, 1_000_000] {
            let step = next(&sweep(3, 3), 1, &trials(&states), elapsed);
            let done = step.done.unwrap();
            assert_eq!((done.outcome, done.best), (outcome, best), "{states:?}: {}", done.why);
            assert!(step.start.is_empty() && step.stop.is_empty());
        }
    }
}

#[test]
fn the_verdict_says_what_happened() {
    let mut ended = trials(&[(Completed, &[0.5]), (Failed, &[])]);
    ended[0].params.insert("x".into(), json!(0.25));
    assert_eq!(
        next(&sweep(2, 2), 1, &ended, 0).done.unwrap().why,
        "1 trials completed, 1 failed, 0 were canceled; trial 0 is best with acc 0.5, {\"x\":0.25}"
    );
    ended[0].history.clear();
    assert_eq!(
        next(&sweep(2, 2), 1, &ended, 0).done.unwrap().why,
        "1 trials completed, 1 failed, 0 were canceled; none that completed has logged acc, so no trial is best: log it under this very name"
    );
}

#[test]
fn the_best_may_be_asked_at_any_time() {
    assert_eq!(
        best(&sweep(9, 9), &trials(&[(Completed, &[0.5]), (Running, &[0.9]), (Completed, &[0.6])])),
        Some(2)
    );
    assert_eq!(best(&sweep(9, 9), &[]), None);
}

#[test]
fn a_sweep_whose_first_trials_all_fail_is_given_up() {
    let (no, yes): (&[f64], &[f64]) = (&[], &[0.5]);
    let sweep = sweep(20, 4);
    let step =
        next(&sweep, 1, &trials(&[(Failed, no), (Failed, no), (Failed, no), (Running, no), (Queued, no)]), 0);
    assert_eq!(step.stop.iter().map(|stop| stop.number).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(step.stop[0].why, "the first 3 trials failed and none has logged acc; see the log of trial 0");
    assert_eq!((step.start, step.done), (vec![], None));
    let step = next(&sweep, 1, &trials(&[(Failed, no), (Failed, no), (Failed, no), (Canceled, no)]), 0);
    assert_eq!(step.done.map(|done| done.outcome), Some(Outcome::Failed));
    for going_on in [
        vec![(Failed, no), (Failed, no)],
        vec![(Failed, no), (Failed, no), (Running, no), (Failed, no)],
        vec![(Failed, no), (Failed, no), (Failed, no), (Completed, no)],
        vec![(Failed, no), (Failed, no), (Failed, no), (Running, yes)],
        vec![(Failed, yes), (Failed, no), (Failed, no)],
    ] {
        let step = next(&sweep, 1, &trials(&going_on), 0);
        assert!(!step.start.is_empty() && step.done.is_none(), "{going_on:?}");
    }
}

#[test]
fn time_ends_a_sweep() {
    let sweep = sweep(20, 2);
    let running = trials(&[(Completed, &[0.5]), (Running, &[0.9]), (Queued, &[])]);
    assert_eq!(next(&sweep, 1, &running, 3_599).stop, []);
    let step = next(&sweep, 1, &running, 3_600);
    assert_eq!(step.stop.iter().map(|stop| stop.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((step.start, step.done), (vec![], None));
    let ended = trials(&[(Completed, &[0.5]), (Canceled, &[0.9]), (Canceled, &[])]);
    let done = next(&sweep, 1, &ended, 3_600).done.unwrap();
    assert_eq!((done.outcome, done.best), (Outcome::Canceled, Some(0)));
    assert_eq!(done.why, "the sweep's time of 3600 s is over");
}

#[test]
fn a_small_space_has_fewer_trials() {
    let space = json!({"a": ["choice", [[1, 2, 3]]], "b": ["choice", [["x", "y"]]]});
    for algorithm in ["grid", "random", "bayesian"] {
        let sweep = of(&space, algorithm, 100, 100);
        assert_eq!(sweep.total_trials(), 6, "{algorithm}");
        let step = next(&sweep, 7, &[], 0);
        let mut drawn: Vec<String> =
            step.start.iter().map(|(_, params)| Value::Object(params.clone()).to_string()).collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), 6, "{algorithm}");
    }
    assert_eq!(of(&space, "grid", 4, 100).total_trials(), 4);
}

/// Trials as any caller might have them: numbered from 0, in any state, with any history.
fn any_trials() -> impl Strategy<Value = Vec<Trial>> {
    let state = prop_oneof![Just(Queued), Just(Running), Just(Completed), Just(Failed), Just(Canceled)];
    let value = prop_oneof![8 => -10.0..10.0_f64, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)];
    prop::collection::vec((state, prop::collection::vec(value, 0..6), 0.0..1.0_f64), 0..14).prop_map(|all| {
        all.into_iter()
            .enumerate()
            .map(|(number, (state, history, x))| Trial {
                number: number as u32,
                params: json!({"x": x, "c": "a"}).as_object().cloned().unwrap(),
                state,
                history,
            })
            .collect()
    })
}

fn any_sweep() -> impl Strategy<Value = Sweep> {
    let policy = prop_oneof![
        Just(Value::Null),
        Just(json!({"type": "bandit", "slack_factor": 0.2, "evaluation_interval": 2})),
        Just(json!({"type": "bandit", "slack_amount": 0.2, "delay_evaluation": 2})),
        Just(json!({"type": "median_stopping"})),
        Just(json!({"type": "truncation_selection", "truncation_percentage": 30})),
    ];
    let algorithm = prop_oneof![
        Just(json!("random")),
        Just(json!({"type": "random", "rule": "sobol"})),
        Just(json!("bayesian"))
    ];
    (policy, algorithm, 1..20_u32, 1..20_u32, any::<bool>()).prop_map(
        |(policy, algorithm, total, concurrent, up)| {
            Sweep::read(&json!({
                "searchSpace": {"x": ["uniform", [0, 1]], "c": ["choice", [["a", "b"]]]},
                "samplingAlgorithm": algorithm,
                "objective": {"goal": if up { "maximize" } else { "minimize" }, "primaryMetric": "m"},
                "limits": {"maxTotalTrials": total, "maxConcurrentTrials": concurrent, "timeout": 100},
                "earlyTermination": policy,
            }))
            .unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_of_every_step(sweep in any_sweep(), trials in any_trials(), seed: u64, elapsed in 0..150_u64) {
        let step = next(&sweep, seed, &trials, elapsed);
        prop_assert_eq!(format!("{step:?}"), format!("{:?}", next(&sweep, seed, &trials, elapsed)), "the same asked twice");
        let active = trials.iter().filter(|trial| trial.state.is_active()).count();
        // Limits hold, and numbers go on where they were.
        if !step.start.is_empty() {
            prop_assert!(active + step.start.len() <= sweep.limits.max_concurrent_trials as usize);
            prop_assert!(trials.len() + step.start.len() <= sweep.limits.max_total_trials as usize);
            prop_assert!(elapsed < sweep.limits.timeout_s);
        }
        for (at, (number, params)) in step.start.iter().enumerate() {
            prop_assert_eq!(*number as usize, trials.len() + at);
            let x = params["x"].as_f64().unwrap();
            prop_assert!((0.0..=1.0).contains(&x));
            prop_assert!(params["c"] == "a" || params["c"] == "b");
        }
        // Only what is under way is stopped, and never the best of those that ever logged something.
        for stop in &step.stop {
            prop_assert!(trials[stop.number as usize].state.is_active());
        }
        // Over means over, and a sweep that is neither over nor full goes on.
        prop_assert!(step.done.is_none() || (active == 0 && step.start.is_empty() && step.stop.is_empty()));
        if active == 0 {
            prop_assert!(step.done.is_some() || !step.start.is_empty(), "a sweep that stands still");
        }
        if let Some(best) = step.done.as_ref().and_then(|done| done.best) {
            prop_assert_eq!(trials[best as usize].state, Completed);
        }
    }

    #[test]
    fn a_policy_always_leaves_one(sweep in any_sweep(), mut trials in any_trials()) {
        let running: Vec<usize> = (0..trials.len()).filter(|at| trials[*at].state == Running).collect();
        // With all in the race at the same age, somebody wins it.
        trials.retain(|trial| trial.state == Running);
        for (number, trial) in trials.iter_mut().enumerate() {
            trial.number = number as u32;
            trial.history.resize(4, 0.5);
        }
        let step = next(&sweep, 1, &trials, 0);
        prop_assert!(running.is_empty() || step.stop.len() < running.len());
    }
}
