//! How the steps of a pipeline hang together: what they name must be there, and nobody waits for itself.

use super::{Step, Work};
use crate::bindings::{Around, Ends, circle};
use crate::expressions::{check_command, expressions};
use crate::fields::{Checker, given, join, text};
use crate::suggest::nearest;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

fn keys(value: Option<&Value>) -> BTreeSet<String> {
    value.and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

/// What the steps of a pipeline can name: its own ends, and each other's.
pub(super) fn around(owner: &Value, entries: Option<&Map<String, Value>>, steps: &[Step<'_>]) -> Around {
    // A step that could not be read is a step all the same.
    let mut ends: BTreeMap<String, Ends> =
        entries.into_iter().flatten().map(|(name, _)| (name.clone(), Ends::default())).collect();
    for step in steps {
        let known = match &step.work {
            Work::Inline => Ends {
                inputs: Some(keys(step.value.get("inputs"))),
                outputs: Some(keys(step.value.get("outputs"))),
            },
            Work::Read(component) => Ends {
                inputs: Some(keys(component.spec.get("inputs"))),
                outputs: Some(keys(component.spec.get("outputs"))),
            },
            Work::Registered { .. } | Work::Unknown => Ends::default(),
        };
        ends.insert(step.name.to_owned(), known);
    }
    Around { inputs: keys(owner.get("inputs")), outputs: keys(owner.get("outputs")), steps: ends }
}

/// The keys of a step whose texts are the work's own and hold no bindings to the pipeline.
const OF_THE_WORK: &[&str] =
    &["command", "code", "component", "trial", "task", "environment", "input_data", "search_space"];

pub(super) fn check_bindings(checker: &mut Checker<'_>, jobs: &str, steps: &[Step<'_>], around: &Around) {
    let mut waits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for step in steps {
        let waited = waits.entry(step.name.to_owned()).or_default();
        for (key, value) in step.value.as_object().into_iter().flatten() {
            if !OF_THE_WORK.contains(&key.as_str()) {
                follow(checker, &join(&step.place, key), key, value, step.name, around, waited);
            }
        }
    }
    if let Some(circle) = circle(&waits) {
        checker.problem(jobs, format!("the steps wait for each other in a circle: {}", circle.join(" -> ")));
    }
}

fn follow(
    checker: &mut Checker<'_>,
    place: &str,
    key: &str,
    value: &Value,
    step: &str,
    around: &Around,
    waited: &mut BTreeSet<String>,
) {
    match value {
        Value::Object(map) => {
            for (inner, value) in map {
                follow(checker, &join(place, inner), key, value, step, around, waited);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                follow(checker, &format!("{place}[{index}]"), key, value, step, around, waited);
            }
        }
        Value::String(text) => {
            let Ok(found) = expressions(text) else {
                checker.problem(place, "a `${{` has no closing `}}`");
                return;
            };
            for expression in found {
                let end = matches!(key, "inputs" | "outputs");
                let short = expression.starts_with("inputs.")
                    || expression.starts_with("outputs.")
                    || expression.starts_with("jobs.");
                if end && short {
                    let message = format!(
                        "${{{{{expression}}}}} is not seen from here; write ${{{{parent.{expression}}}}}"
                    );
                    checker.problem(place, message);
                    continue;
                }
                match around.follow(step, expression) {
                    Ok(Some(other)) => {
                        waited.insert(other.to_owned());
                    }
                    Ok(None) => {}
                    Err(message) => checker.problem(place, message),
                }
            }
        }
        _ => {}
    }
}

/// What a step gives to its component must be asked for, and what is asked for must be given.
pub(super) fn check_ends(checker: &mut Checker<'_>, step: &Step<'_>) {
    let Work::Read(component) = &step.work else {
        if let (Work::Inline, Some(command)) = (&step.work, text(step.value, "command")) {
            let declared = [("inputs", step.value.get("inputs")), ("outputs", step.value.get("outputs"))];
            check_command(checker, &join(&step.place, "command"), command, &declared);
        }
        return;
    };
    for end in ["inputs", "outputs"] {
        let ports = component.ports(end);
        let places = [end, "search_space"];
        let given_here = places.iter().take(if end == "inputs" { 2 } else { 1 });
        for key in given_here {
            for name in keys(step.value.get(*key)) {
                if ports.contains_key(&name) || ports.contains_key(name.split('.').next().unwrap_or(&name)) {
                    continue;
                }
                let mut message = format!("the component has no such {}", end.trim_end_matches('s'));
                if let Some(near) = nearest(&name, ports.keys().map(String::as_str)) {
                    message.push_str(&format!("; did you mean `{near}`?"));
                }
                checker.problem(&join(&join(&step.place, key), &name), message);
            }
        }
    }
    for (name, port) in component.ports("inputs") {
        let optional = given(&port, "optional").and_then(Value::as_bool) == Some(true);
        let swept = step.value.get("search_space").and_then(|space| space.get(&name)).is_some();
        let here = step.value.get("inputs").and_then(|inputs| given(inputs, &name)).is_some();
        if !optional && !swept && !here && given(&port, "default").is_none() {
            checker.problem(
                &join(&join(&step.place, "inputs"), &name),
                "the component needs this input, and the step does not give it",
            );
        }
    }
}
