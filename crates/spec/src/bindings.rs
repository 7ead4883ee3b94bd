//! `${{parent...}}`: whether what a step names exists around it, and whether steps wait for each other in a circle.
//!
//! Values in, words out; it reads no file and notes no problem itself.

use crate::suggest::nearest;
use std::collections::{BTreeMap, BTreeSet};

/// The names at the ends of a step; `None` where they are not known here, as with a registered component.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub inputs: Option<BTreeSet<String>>,
    pub outputs: Option<BTreeSet<String>>,
}

/// What a step sees around it.
#[derive(Debug, Default)]
pub(crate) struct Around {
    pub inputs: BTreeSet<String>,
    pub outputs: BTreeSet<String>,
    pub steps: BTreeMap<String, Ends>,
}

impl Around {
    /// The step that `expression` (without its braces) makes `step` wait for, if any; `Err` says what is wrong with it.
    /// What does not begin with `parent.` is not a binding and is left alone.
    pub fn follow<'e>(&self, step: &str, expression: &'e str) -> Result<Option<&'e str>, String> {
        let parts: Vec<&str> = expression.split('.').collect();
        match parts.as_slice() {
            ["parent", "inputs", name, ..] => {
                // A member of a group is named by its group.
                let whole = expression.strip_prefix("parent.inputs.").unwrap_or(name);
                if self.inputs.contains(whole) || self.inputs.contains(*name) {
                    return Ok(None);
                }
                Err(missing(expression, "the pipeline has no input", whole, &self.inputs))
            }
            ["parent", "outputs", name] => {
                if self.outputs.contains(*name) {
                    return Ok(None);
                }
                Err(missing(expression, "the pipeline has no output", name, &self.outputs))
            }
            ["parent", "jobs", other, end @ ("inputs" | "outputs"), name] => {
                let Some(ends) = self.steps.get(*other) else {
                    let steps = self.steps.keys().cloned().collect();
                    return Err(missing(expression, "there is no step", other, &steps));
                };
                if *other == step {
                    return Err(format!("${{{{{expression}}}}}: a step cannot wait for itself"));
                }
                let (names, word) =
                    if *end == "inputs" { (&ends.inputs, "input") } else { (&ends.outputs, "output") };
                match names {
                    Some(names) if !names.contains(*name) => {
                        Err(missing(expression, &format!("the step `{other}` has no {word}"), name, names))
                    }
                    _ => Ok((*end == "outputs").then_some(*other)),
                }
            }
            ["parent", ..] => Err(format!(
                "${{{{{expression}}}}} is not a binding; write ${{{{parent.inputs.NAME}}}}, \
                 ${{{{parent.outputs.NAME}}}} or ${{{{parent.jobs.STEP.outputs.NAME}}}}"
            )),
            _ => Ok(None),
        }
    }
}

fn missing(expression: &str, what: &str, name: &str, known: &BTreeSet<String>) -> String {
    let mut message = format!("${{{{{expression}}}}}: {what} `{name}`");
    if let Some(near) = nearest(name, known.iter().map(String::as_str)) {
        message.push_str(&format!("; did you mean `{near}`?"));
    }
    message
}

/// A circle of steps that wait for each other, if there is one: `a`, `b`, `a`.
pub(crate) fn circle(waits: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    for start in waits.keys() {
        let mut trail = Vec::new();
        if let Some(found) = walk(start, waits, &mut trail, &mut done) {
            return Some(found);
        }
    }
    None
}

fn walk(
    step: &str,
    waits: &BTreeMap<String, BTreeSet<String>>,
    trail: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(at) = trail.iter().position(|earlier| earlier == step) {
        let mut circle = trail[at..].to_vec();
        circle.push(step.to_owned());
        return Some(circle);
    }
    if done.contains(step) {
        return None;
    }
    trail.push(step.to_owned());
    for next in waits.get(step).into_iter().flatten() {
        if let Some(found) = walk(next, waits, trail, done) {
            return Some(found);
        }
    }
    trail.pop();
    done.insert(step.to_owned());
    None
}

#[cfg(test)]
mod tests {
    use super::{Around, Ends, circle};
    use std::collections::{BTreeMap, BTreeSet};

    fn names(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn bindings_name_what_is_there() {
        let around = Around {
            inputs: names(&["rate", "group"]),
            outputs: names(&["model"]),
            steps: BTreeMap::from([
                ("prep".into(), Ends { inputs: Some(names(&["raw"])), outputs: Some(names(&["clean"])) }),
                ("far".into(), Ends::default()),
            ]),
        };
        for (expression, expected) in [
            ("parent.inputs.rate", Ok(None)),
            ("parent.inputs.group.member", Ok(None)),
            ("parent.outputs.model", Ok(None)),
            ("parent.jobs.prep.outputs.clean", Ok(Some("prep"))),
            ("parent.jobs.prep.inputs.raw", Ok(None)),
            ("parent.jobs.far.outputs.anything", Ok(Some("far"))),
            ("inputs.x", Ok(None)),
            ("parent.inputs.rte", Err("the pipeline has no input `rte`; did you mean `rate`?")),
            ("parent.outputs.x", Err("the pipeline has no output `x`")),
            ("parent.jobs.perp.outputs.clean", Err("there is no step `perp`; did you mean `prep`?")),
            ("parent.jobs.prep.outputs.x", Err("the step `prep` has no output `x`")),
            ("parent.jobs.train.outputs.x", Err("there is no step `train`")),
        ] {
            let expected = expected.map_err(|words| format!("${{{{{expression}}}}}: {words}"));
            assert_eq!(around.follow("train", expression), expected, "{expression}");
        }
        assert!(around.follow("prep", "parent.jobs.prep.outputs.clean").unwrap_err().contains("itself"));
        assert!(around.follow("prep", "parent.job.x").unwrap_err().contains("not a binding"));
    }

    #[test]
    fn circles_are_found() {
        let graph = |edges: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
            edges.iter().map(|(step, waits)| ((*step).to_owned(), names(waits))).collect()
        };
        assert_eq!(circle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[]), ("d", &["b", "c"])])), None);
        assert_eq!(
            circle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])),
            Some(vec!["b".into(), "c".into(), "b".into()])
        );
    }
}
