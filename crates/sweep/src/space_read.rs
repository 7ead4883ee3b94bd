//! Reading a search space: the wire form `["uniform", [0.1, 0.9]]`, and the mapping form
//! `{"type": "uniform", "min_value": 0.1, "max_value": 0.9}` that steps of pipelines have.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::limits::{
    CHOICE_VALUES_MAX, DIMENSIONS_MAX, NESTING_MAX, PARAMETER_NAME_CHARS_MAX, PARAMETERS_MAX,
};
use crate::problem::{Problem, Problems};
use crate::read::word;
use crate::space::{Alternative, Distribution, Member, Quantum, Real, Shape, Space};

/// Name and arguments of every distribution, as the SDK orders them on the wire.
const FORMS: [(&str, &[&str]); 10] = [
    ("choice", &["values"]),
    ("randint", &["upper"]),
    ("uniform", &["min_value", "max_value"]),
    ("quniform", &["min_value", "max_value", "q"]),
    ("loguniform", &["min_value", "max_value"]),
    ("qloguniform", &["min_value", "max_value", "q"]),
    ("normal", &["mu", "sigma"]),
    ("qnormal", &["mu", "sigma", "q"]),
    ("lognormal", &["mu", "sigma"]),
    ("qlognormal", &["mu", "sigma", "q"]),
];

impl Space {
    /// Reads `searchSpace`. All problems at once, each with the parameter's name.
    pub fn read(value: &Value) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems::default();
        let space = Self::read_into(value, &mut problems);
        if problems.0.is_empty() { Ok(space) } else { Err(problems.0) }
    }

    pub(crate) fn read_into(value: &Value, problems: &mut Problems) -> Self {
        let at = "searchSpace";
        let mut parameters = BTreeMap::new();
        match value.as_object() {
            None => problems.add(at, "expected a mapping from parameters to distributions"),
            Some(object) if object.is_empty() => problems.add(at, "expected at least one parameter"),
            Some(object) if object.len() > PARAMETERS_MAX => {
                problems
                    .add(at, format!("has {} parameters; at most {PARAMETERS_MAX} are taken", object.len()));
            }
            Some(object) => {
                for (name, value) in object {
                    let place = format!("{at}.{name}");
                    if !is_name(name) {
                        problems.add(
                            &place,
                            format!(
                                "a parameter's name is letters, digits and underscores, does not begin with a digit, and has at most {PARAMETER_NAME_CHARS_MAX} characters"
                            ),
                        );
                    }
                    if let Some(distribution) = distribution(value, &place, 0, problems) {
                        parameters.insert(name.clone(), distribution);
                    }
                }
            }
        }
        let space = Self { parameters };
        if space.dimensions() > DIMENSIONS_MAX {
            problems.add(
                at,
                format!("has {} distributions; at most {DIMENSIONS_MAX} are taken", space.dimensions()),
            );
        }
        space
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && name.len() <= PARAMETER_NAME_CHARS_MAX
}

/// Name and arguments of either form; the error says what is wrong with its shape.
fn parts(value: &Value) -> Result<(&'static str, Vec<&Value>), String> {
    let known = || FORMS.map(|(name, _)| name).join(", ");
    let expected = || {
        format!(
            "expected a distribution such as [\"uniform\", [0.1, 0.9]] or [\"choice\", [[1, 2, 3]]], not {value}"
        )
    };
    let named = match value {
        Value::Array(items) => items.first().and_then(Value::as_str).filter(|_| items.len() == 2),
        Value::Object(object) => object.get("type").and_then(Value::as_str),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
    .ok_or_else(expected)?;
    let (name, arguments) = FORMS
        .iter()
        .find(|(name, _)| *name == word(named))
        .ok_or_else(|| format!("'{named}' is no distribution; there are {}", known()))?;
    let takes = || format!("{name} takes {} value(s): {}", arguments.len(), arguments.join(", "));
    let given: Vec<&Value> = match value {
        Value::Array(items) => items[1].as_array().ok_or_else(takes)?.iter().collect(),
        _ => {
            let missing: Vec<&str> =
                arguments.iter().copied().filter(|argument| value.get(*argument).is_none()).collect();
            if !missing.is_empty() {
                return Err(format!("{name} needs {}", missing.join(", ")));
            }
            arguments.iter().filter_map(|argument| value.get(*argument)).collect()
        }
    };
    if given.len() != arguments.len() {
        return Err(takes());
    }
    Ok((name, given))
}

fn distribution(value: &Value, at: &str, depth: usize, problems: &mut Problems) -> Option<Distribution> {
    let (name, given) = match parts(value) {
        Ok(parts) => parts,
        Err(says) => {
            problems.add(at, says);
            return None;
        }
    };
    match name {
        "choice" => choice(given[0], at, depth, problems),
        "randint" => match given[0].as_u64().filter(|upper| (1..=1 << 53).contains(upper)) {
            Some(upper) => Some(Distribution::Randint { upper }),
            None => {
                problems.add(
                    at,
                    format!("randint expects upper to be a whole number of at least 1, not {}", given[0]),
                );
                None
            }
        },
        _ => real(name, &given, at, problems),
    }
}

fn real(name: &str, given: &[&Value], at: &str, problems: &mut Problems) -> Option<Distribution> {
    let numbers: Vec<f64> =
        given.iter().filter_map(|value| value.as_f64()).filter(|number| number.is_finite()).collect();
    if numbers.len() != given.len() {
        let written: Vec<String> = given.iter().map(ToString::to_string).collect();
        problems.add(at, format!("{name} expects numbers, not [{}]", written.join(", ")));
        return None;
    }
    let before = problems.0.len();
    let log = name.contains("log");
    let (first, second) = (numbers[0], numbers[1]);
    let shape = if name.ends_with("uniform") {
        if first >= second {
            problems.add(at, format!("{name} expects min_value below max_value, not {first} and {second}"));
        }
        if !(second - first).is_finite() || (log && second > 700.0) {
            problems.add(
                at,
                format!(
                    "{name} is over what numbers hold{}",
                    if log { "; its bounds are logarithms" } else { "" }
                ),
            );
        }
        Shape::Uniform { min: first, max: second }
    } else {
        if second <= 0.0 {
            problems.add(at, format!("{name} expects sigma above 0, not {second}"));
        }
        Shape::Normal { mu: first, sigma: second }
    };
    let quantum = numbers.get(2).map(|size| Quantum { size: *size, whole: !given[2].is_f64() });
    if let Some(Quantum { size, .. }) = quantum
        && size <= 0.0
    {
        problems.add(at, format!("{name} expects q above 0, not {size}"));
    }
    (problems.0.len() == before).then_some(Distribution::Real(Real { shape, log, quantum }))
}

fn choice(values: &Value, at: &str, depth: usize, problems: &mut Problems) -> Option<Distribution> {
    let Some(values) = values.as_array() else {
        problems.add(
            at,
            format!("choice expects one list of values, as in [\"choice\", [[1, 2, 3]]], not {values}"),
        );
        return None;
    };
    if values.is_empty() || values.len() > CHOICE_VALUES_MAX {
        problems.add(at, format!("choice expects 1 to {CHOICE_VALUES_MAX} values, not {}", values.len()));
        return None;
    }
    if depth >= NESTING_MAX {
        problems.add(at, format!("choices are nested more than {NESTING_MAX} deep"));
        return None;
    }
    let before = problems.0.len();
    let alternatives = values
        .iter()
        .enumerate()
        .map(|(n, value)| alternative(value, &format!("{at}[{n}]"), depth, problems))
        .collect();
    (problems.0.len() == before).then_some(Distribution::Choice(alternatives))
}

fn alternative(value: &Value, at: &str, depth: usize, problems: &mut Problems) -> Alternative {
    let Some(object) = value.as_object().filter(|object| object.values().any(is_distribution)) else {
        return Alternative::Plain(value.clone());
    };
    let mut members = Vec::new();
    for (name, value) in object {
        let member = if is_distribution(value) {
            distribution(value, &format!("{at}.{name}"), depth + 1, problems).map(Member::Drawn)
        } else {
            Some(Member::Fixed(value.clone()))
        };
        members.extend(member.map(|member| (name.clone(), member)));
    }
    Alternative::Mapping(members)
}

/// Within a value of a choice anything may stand; what begins as a distribution does is taken for one.
fn is_distribution(value: &Value) -> bool {
    let named = match value {
        Value::Array(items) if items.len() == 2 && items[1].is_array() => items[0].as_str(),
        Value::Object(object) => object.get("type").and_then(Value::as_str),
        _ => None,
    };
    named.is_some_and(|named| FORMS.iter().any(|(name, _)| *name == word(named)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(space: &Value, expect: &[&str]) {
        let said: Vec<String> = match Space::read(space) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(said, expect, "{space}");
    }

    #[test]
    fn every_distribution_is_read_in_both_forms() {
        for (list, mapping) in [
            (
                json!(["choice", [[1, "a", 0.5, true, {"a": 1}]]]),
                json!({"type": "choice", "values": [1, "a", 0.5, true, {"a": 1}]}),
            ),
            (json!(["randint", [7]]), json!({"type": "randint", "upper": 7})),
            (json!(["uniform", [0, 1.5]]), json!({"type": "uniform", "min_value": 0, "max_value": 1.5})),
            (
                json!(["loguniform", [-6, -1]]),
                json!({"type": "loguniform", "min_value": -6, "max_value": -1}),
            ),
            (
                json!(["quniform", [1, 9, 2]]),
                json!({"type": "quniform", "min_value": 1, "max_value": 9, "q": 2}),
            ),
            (
                json!(["qloguniform", [1, 5, 0.5]]),
                json!({"type": "qloguniform", "min_value": 1, "max_value": 5, "q": 0.5}),
            ),
            (json!(["normal", [10, 3]]), json!({"type": "normal", "mu": 10, "sigma": 3})),
            (json!(["lognormal", [0, 1]]), json!({"type": "lognormal", "mu": 0, "sigma": 1})),
            (json!(["qnormal", [0, 1, 2]]), json!({"type": "qnormal", "mu": 0, "sigma": 1, "q": 2})),
            (json!(["qlognormal", [0, 1, 2]]), json!({"type": "qlognormal", "mu": 0, "sigma": 1, "q": 2})),
        ] {
            let read = |value: &Value| Space::read(&json!({"x": value})).unwrap();
            assert_eq!(read(&list), read(&mapping), "{list}");
            assert_eq!(read(&list).parameters["x"].name(), list[0]);
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        check(
            &json!({
                "a": ["choice", [1, 2]], "b": ["choice", [[]]], "c": ["uniform", [2, 1]], "d": ["gaussian", [0, 1]],
                "e": ["quniform", [0, 1]], "f": ["normal", [0, -1]], "g": ["qnormal", [0, 1, 0]],
                "h": ["uniform", ["x", 1]], "i": 7, "2j": ["randint", [0]], "k": {"type": "uniform", "max_value": 1},
                "l": ["choice", [7]], "m": ["loguniform", [0, 1000]],
            }),
            &[
                "searchSpace.a: choice takes 1 value(s): values",
                "searchSpace.b: choice expects 1 to 10000 values, not 0",
                "searchSpace.c: uniform expects min_value below max_value, not 2 and 1",
                "searchSpace.d: 'gaussian' is no distribution; there are choice, randint, uniform, quniform, loguniform, qloguniform, normal, qnormal, lognormal, qlognormal",
                "searchSpace.e: quniform takes 3 value(s): min_value, max_value, q",
                "searchSpace.f: normal expects sigma above 0, not -1",
                "searchSpace.g: qnormal expects q above 0, not 0",
                "searchSpace.h: uniform expects numbers, not [\"x\", 1]",
                "searchSpace.i: expected a distribution such as [\"uniform\", [0.1, 0.9]] or [\"choice\", [[1, 2, 3]]], not 7",
                "searchSpace.2j: a parameter's name is letters, digits and underscores, does not begin with a digit, and has at most 255 characters",
                "searchSpace.2j: randint expects upper to be a whole number of at least 1, not 0",
                "searchSpace.k: uniform needs min_value",
                "searchSpace.l: choice expects one list of values, as in [\"choice\", [[1, 2, 3]]], not 7",
                "searchSpace.m: loguniform is over what numbers hold; its bounds are logarithms",
            ],
        );
        check(&json!({}), &["searchSpace: expected at least one parameter"]);
        check(&json!([]), &["searchSpace: expected a mapping from parameters to distributions"]);
    }

    #[test]
    fn distributions_within_values_are_read_and_their_problems_named() {
        check(
            &json!({"m": ["choice", [[{"lr": ["uniform", [1, 0]], "n": 3}, {"deep": ["choice", [[{"x": ["normal", [0, 0]]}]]]}]]]}),
            &[
                "searchSpace.m[0].lr: uniform expects min_value below max_value, not 1 and 0",
                "searchSpace.m[1].deep[0].x: normal expects sigma above 0, not 0",
            ],
        );
        // A list that only resembles one is a value.
        let space = Space::read(&json!({"m": ["choice", [[{"pair": ["left", [1]]}]]]})).unwrap();
        assert!(space.is_flat());
    }

    #[test]
    fn limits_hold() {
        let many: serde_json::Map<String, Value> =
            (0..=PARAMETERS_MAX).map(|n| (format!("p{n}"), json!(["randint", [2]]))).collect();
        check(&Value::Object(many), &["searchSpace: has 101 parameters; at most 100 are taken"]);
        let values: Vec<u32> = (0..=CHOICE_VALUES_MAX as u32).collect();
        check(
            &json!({"x": ["choice", [values]]}),
            &["searchSpace.x: choice expects 1 to 10000 values, not 10001"],
        );
        let mut nested = json!(["choice", [[1]]]);
        for _ in 0..NESTING_MAX {
            nested = json!(["choice", [[{"x": nested}]]]);
        }
        let said = Space::read(&json!({"x": nested})).unwrap_err();
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].says, "choices are nested more than 8 deep");
        let wide: Vec<Value> =
            (0..=DIMENSIONS_MAX / 2).map(|_| json!({"a": ["randint", [2]], "b": ["randint", [2]]})).collect();
        check(
            &json!({"x": ["choice", [wide]]}),
            &["searchSpace: has 10003 distributions; at most 10000 are taken"],
        );
    }
}
