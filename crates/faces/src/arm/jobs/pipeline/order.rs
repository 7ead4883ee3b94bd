//! In which order the steps of a pipeline are expanded: each after those whose inputs or outputs it takes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::bindings::{self, Binding};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order<'a> {
    pub steps: Vec<&'a str>,
    /// Steps that wait for each other, and those that wait for them.
    pub circle: Vec<&'a str>,
}

/// In rounds: first the steps that take nothing from others, then those that take from these, and so on. Each need is
/// looked at once, however long the chain is.
pub(super) fn order(jobs: &Map<String, Value>) -> Order<'_> {
    let names: Vec<&str> = jobs.keys().map(String::as_str).collect();
    let place: BTreeMap<&str, usize> = names.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    let mut unmet = vec![0_usize; names.len()];
    let mut takers: Vec<Vec<usize>> = vec![Vec::new(); names.len()];
    for (at, node) in jobs.values().enumerate() {
        // A step that is not there keeps nobody waiting: whoever names it is told so.
        for need in needed(node).into_iter().filter_map(|need| place.get(need)) {
            unmet[at] += 1;
            takers[*need].push(at);
        }
    }
    let mut steps = Vec::with_capacity(names.len());
    let mut ready: Vec<usize> = (0..names.len()).filter(|at| unmet[*at] == 0).collect();
    while !ready.is_empty() {
        let mut next = Vec::new();
        for at in ready {
            steps.push(names[at]);
            for taker in &takers[at] {
                unmet[*taker] -= 1;
                if unmet[*taker] == 0 {
                    next.push(*taker);
                }
            }
        }
        next.sort_unstable();
        ready = next;
    }
    let circle = (0..names.len()).filter(|at| unmet[*at] > 0).map(|at| names[at]).collect();
    Order { steps, circle }
}

/// The names of the steps that a step's inputs point at.
fn needed(node: &Value) -> BTreeSet<&str> {
    let inputs = node["inputs"].as_object().into_iter().flatten();
    let texts = inputs.filter_map(|(_, value)| {
        value.as_str().or_else(|| value["value"].as_str()).or_else(|| value["path"].as_str())
    });
    let bindings = texts.flat_map(bindings::all);
    bindings
        .filter_map(|binding| match binding {
            Binding::StepOutput(step, _) | Binding::StepInput(step, _) => Some(step),
            Binding::ParentInput(_) | Binding::ParentOutput(_) | Binding::Unknown(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ordered(jobs: &Value) -> (Vec<String>, Vec<String>) {
        let jobs = jobs.as_object().cloned().unwrap_or_default();
        let Order { steps, circle } = order(&jobs);
        let owned = |names: Vec<&str>| names.into_iter().map(String::from).collect();
        (owned(steps), owned(circle))
    }

    fn takes(step: &str) -> Value {
        json!({"inputs": {"x": {"value": format!("${{{{parent.jobs.{step}.outputs.o}}}}")}}})
    }

    #[test]
    fn steps_come_after_what_they_take() {
        for (jobs, steps, circle) in [
            (json!({"a": takes("b"), "b": {}}), vec!["b", "a"], vec![]),
            (json!({"a": takes("c"), "b": takes("a"), "c": {}}), vec!["c", "a", "b"], vec![]),
            (json!({"a": takes("nobody")}), vec!["a"], vec![]),
            (json!({"a": takes("b"), "b": takes("a"), "c": {}}), vec!["c"], vec!["a", "b"]),
            (json!({"a": takes("a"), "b": takes("a")}), vec![], vec!["a", "b"]),
            (json!({}), vec![], vec![]),
        ] {
            let owned = |names: Vec<&str>| names.into_iter().map(String::from).collect::<Vec<_>>();
            assert_eq!(ordered(&jobs), (owned(steps), owned(circle)), "{jobs}");
        }
    }

    #[test]
    fn needs_are_read_from_every_form_of_an_input() {
        let node = json!({"inputs": {
            "a": "x-${{parent.jobs.one.outputs.o}}-${{parent.jobs.two.inputs.i}}",
            "b": {"path": "${{parent.jobs.three.outputs.o}}"},
            "c": {"value": "${{parent.inputs.word}}"},
            "d": 3,
        }});
        assert_eq!(needed(&node), BTreeSet::from(["one", "two", "three"]));
    }
}
