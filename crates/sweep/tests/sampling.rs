//! Samples have the distribution they should. Seeds are fixed, so nothing here depends on luck.

use std::collections::{BTreeMap, BTreeSet};

use neap_sweep::{Params, Sweep, next};
use serde_json::{Value, json};

const SAMPLES: usize = 1_000;

fn draw(space: &Value, algorithm: &Value, seed: u64) -> Vec<Params> {
    let sweep = Sweep::read(&json!({
        "searchSpace": space,
        "samplingAlgorithm": algorithm,
        "objective": {"goal": "minimize", "primaryMetric": "m"},
        "limits": {"maxTotalTrials": SAMPLES},
    }))
    .unwrap();
    next(&sweep, seed, &[], 0).start.into_iter().map(|(_, params)| params).collect()
}

fn numbers(distribution: &Value, rule: &str, seed: u64) -> Vec<f64> {
    let algorithm = json!({"type": "random", "rule": rule});
    draw(&json!({"x": distribution}), &algorithm, seed)
        .iter()
        .map(|params| params["x"].as_f64().unwrap())
        .collect()
}

/// The largest distance between the share of samples below a value and what it should be (Kolmogorov and Smirnov).
fn distance(mut samples: Vec<f64>, below: impl Fn(f64) -> f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let count = samples.len() as f64;
    samples
        .iter()
        .enumerate()
        .map(|(at, x)| {
            let share = below(*x);
            (share - at as f64 / count).abs().max((share - (at + 1) as f64 / count).abs())
        })
        .fold(0.0, f64::max)
}

/// A logistic curve is within 0.0002 of the normal distribution with these coefficients; enough for this test.
fn normal_below(z: f64) -> f64 {
    1.0 / (1.0 + (-(0.07056 * z.powi(3) + 1.5976 * z)).exp())
}

#[test]
fn continuous_distributions() {
    for seed in 0..4 {
        for (rule, near) in [("random", 0.052), ("sobol", 0.01)] {
            let check = |distribution: Value, below: &dyn Fn(f64) -> f64| {
                let off = distance(numbers(&distribution, rule, seed), below);
                assert!(off < near, "{distribution} {rule} seed {seed}: {off}");
            };
            check(json!(["uniform", [-2, 3]]), &|x| (x + 2.0) / 5.0);
            check(json!(["loguniform", [-6, -1]]), &|x| (x.ln() + 6.0) / 5.0);
            check(json!(["normal", [10, 3]]), &|x| normal_below((x - 10.0) / 3.0));
            check(json!(["lognormal", [1, 0.5]]), &|x| normal_below((x.ln() - 1.0) / 0.5));
        }
    }
}

#[test]
fn discrete_distributions() {
    for rule in ["random", "sobol"] {
        let count = |distribution: Value| {
            // A second parameter, so that nothing can be counted out.
            let space = json!({"x": distribution, "y": ["uniform", [0, 1]]});
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for params in draw(&space, &json!({"type": "random", "rule": rule}), 3) {
                *counts.entry(params["x"].to_string()).or_default() += 1;
            }
            counts
        };
        let even = |counts: &BTreeMap<String, usize>, kinds: usize| {
            let expect = SAMPLES / kinds;
            assert_eq!(counts.len(), kinds, "{counts:?}");
            assert!(counts.values().all(|n| n.abs_diff(expect) < expect / 3), "{rule} {counts:?}");
        };
        even(&count(json!(["choice", [["a", "b", "c", "d"]]])), 4);
        even(&count(json!(["randint", [5]])), 5);
        // Ends of a quantised range get half a step each.
        let quantised = count(json!(["quniform", [0, 4, 1]]));
        assert_eq!(quantised.keys().collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
        assert!((95..160).contains(&quantised["0"]) && (200..300).contains(&quantised["2"]), "{quantised:?}");
        for (distribution, step) in [
            (json!(["qloguniform", [0, 3, 2]]), 2.0),
            (json!(["qnormal", [0, 10, 5]]), 5.0),
            (json!(["qlognormal", [1, 1, 0.5]]), 0.5),
        ] {
            for value in numbers(&distribution, rule, 1) {
                assert_eq!(value % step, 0.0, "{distribution}: {value}");
            }
        }
    }
}

#[test]
fn the_base_of_logarithms_is_the_users() {
    let algorithm = json!({"type": "random", "logbase": 10});
    for params in draw(&json!({"x": ["loguniform", [-5, -1]]}), &algorithm, 1) {
        assert!((1e-5..1e-1).contains(&params["x"].as_f64().unwrap()));
    }
}

#[test]
fn a_trial_depends_on_seed_and_number_alone() {
    let space = json!({"x": ["uniform", [0, 1]], "c": ["choice", [[1, 2, 3]]]});
    for algorithm in [json!("random"), json!({"type": "random", "rule": "sobol"})] {
        let all = draw(&space, &algorithm, 9);
        assert_eq!(all, draw(&space, &algorithm, 9));
        assert_ne!(all, draw(&space, &algorithm, 10));
    }
    // The user's seed is stronger than the caller's.
    let own = json!({"type": "random", "seed": 5});
    assert_eq!(draw(&space, &own, 1), draw(&space, &own, 2));
}

#[test]
fn parameters_are_independent() {
    let space = json!({"x": ["uniform", [-1, 1]], "y": ["uniform", [-1, 1]]});
    for (rule, near) in [("random", 0.06), ("sobol", 0.01)] {
        let all = draw(&space, &json!({"type": "random", "rule": rule}), 4);
        let product: f64 = all.iter().map(|p| p["x"].as_f64().unwrap() * p["y"].as_f64().unwrap()).sum();
        assert!((product / SAMPLES as f64).abs() < near, "{rule} {product}");
    }
}

#[test]
fn what_can_be_counted_never_repeats() {
    let space = json!({"a": ["choice", [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]], "b": ["randint", [200]]});
    let mut firsts = BTreeMap::<String, u32>::new();
    for seed in 0..3 {
        let all = draw(&space, &json!("random"), seed);
        let distinct: BTreeSet<String> =
            all.iter().map(|params| Value::Object(params.clone()).to_string()).collect();
        assert_eq!((all.len(), distinct.len()), (1000, 1000));
        for params in all.iter().take(100) {
            *firsts.entry(params["a"].to_string()).or_default() += 1;
        }
    }
    assert!(firsts.len() == 10 && firsts.values().all(|n| (15..46).contains(n)), "{firsts:?}");
}

#[test]
fn distributions_within_choices() {
    let space = json!({"model": ["choice", [[{"kind": "svm", "c": ["uniform", [1, 2]]}, {"kind": "tree", "depth": ["randint", [3]]}]]]});
    let mut svm = 0;
    for params in draw(&space, &json!("random"), 2) {
        let model = &params["model"];
        if model["kind"] == "svm" {
            svm += 1;
            assert!((1.0..2.0).contains(&model["c"].as_f64().unwrap()) && model.get("depth").is_none());
        } else {
            assert!(model["depth"].as_u64().unwrap() < 3 && model.get("c").is_none());
        }
    }
    assert!((440..560).contains(&svm), "{svm}");
}
