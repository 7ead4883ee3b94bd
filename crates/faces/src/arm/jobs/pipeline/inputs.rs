//! The inputs of a pipeline and of its steps: data, values, and what expressions name.

use std::collections::{BTreeMap, BTreeSet};

use neap_core::Problem;
use serde_json::{Map, Value, json};

use super::bindings::{self, Binding};
use super::component::{check_literal, is_literal, plain};
use super::scope::{Scope, Written, flag};
use crate::arm::errors::bad;

/// An input with its value: as a job's body has it, with the steps that make it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    pub input: Value,
    pub after: BTreeSet<usize>,
    /// What stands for its content when work is compared.
    pub identity: Value,
}

impl Given {
    pub(super) fn literal(value: &str) -> Self {
        Self::plain(json!({"jobInputType": "literal", "value": value}))
    }

    /// An input that no step makes.
    fn plain(input: Value) -> Self {
        Self { identity: input.clone(), input, after: BTreeSet::new() }
    }

    /// The text of a plain value; none: it is data.
    pub(super) fn value(&self) -> Option<&str> {
        self.input["value"].as_str()
    }

    fn is_literal(&self) -> bool {
        self.input["jobInputType"] == "literal"
    }
}

/// The inputs of the pipeline that was submitted.
pub(super) fn of_pipeline(inputs: &Value) -> BTreeMap<String, Given> {
    let entries = inputs.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), as_given(value)?))).collect()
}

/// The same of a pipeline that is a component: what it declares is checked, and its defaults stand where nobody gave one.
pub(super) fn of_component(
    inputs: &Value,
    declared: Option<&Map<String, Value>>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Given> {
    let place_of = |name: &str| format!("properties.inputs.{name}");
    let mut out = of_pipeline(inputs);
    for (name, given) in &out {
        match declared.and_then(|declared| declared.get(name)) {
            Some(wanted) => check(name, wanted, given, &place_of(name), problems),
            None => problems
                .push(bad(format!("The component of this pipeline has no input '{name}'."), &place_of(name))),
        }
    }
    let given: BTreeSet<String> = out.keys().cloned().collect();
    let missing = declared.into_iter().flatten().filter(|(name, _)| !given.contains(*name));
    fill_in(&mut out, missing, "pipeline", place_of, problems);
    out
}

/// Every input that a step declares or is given. What a sweep tries is an input of its trial.
pub(super) fn of_step(
    scope: &Scope,
    step: &Written<'_>,
    tried: Option<&Map<String, Value>>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Given> {
    let given = step.node["inputs"].as_object();
    let declared = step.declaration["inputs"].as_object().filter(|_| !step.is_inline());
    let mut out = BTreeMap::new();
    for (name, value) in given.into_iter().flatten() {
        let place = step.place_of("inputs", name);
        let Some(found) = resolve(scope, value, &place, problems) else { continue };
        match declared.and_then(|declared| declared.get(name)) {
            Some(wanted) => check(name, wanted, &found, &place, problems),
            None if step.is_inline() => {}
            None => problems.push(bad(format!("The component of this step has no input '{name}'."), &place)),
        }
        out.insert(name.clone(), found);
    }
    let is_given = |name: &str| given.and_then(|given| given.get(name)).is_some_and(|value| !value.is_null());
    let is_tried = |name: &str| tried.is_some_and(|tried| tried.contains_key(name));
    let missing = declared.into_iter().flatten().filter(|(name, _)| !is_given(name) && !is_tried(name));
    fill_in(&mut out, missing, "step", |name| step.place_of("inputs", name), problems);
    out
}

/// Puts defaults in place of declared inputs that nobody gave.
fn fill_in<'a>(
    out: &mut BTreeMap<String, Given>,
    missing: impl Iterator<Item = (&'a String, &'a Value)>,
    whose: &str,
    place_of: impl Fn(&str) -> String,
    problems: &mut Vec<Problem>,
) {
    for (name, wanted) in missing {
        match &wanted["default"] {
            Value::Null if flag(&wanted["optional"]).unwrap_or(false) => {}
            Value::Null => problems.push(bad(
                format!("The input '{name}' of this {whose} has no value and no default."),
                &place_of(name),
            )),
            default => {
                out.insert(name.clone(), Given::literal(&plain(default)));
            }
        }
    }
}

/// Holds an input against its declaration.
fn check(name: &str, wanted: &Value, given: &Given, place: &str, problems: &mut Vec<Problem>) {
    let kind = wanted["type"].as_str().unwrap_or("string");
    let what = format!("The input '{name}'");
    match (is_literal(kind), given.value()) {
        (true, Some(value)) => check_literal(wanted, value, place, &what, problems),
        (true, None) => problems.push(bad(format!("{what} must be of type {kind}, and is data."), place)),
        (false, Some(value)) => {
            problems
                .push(bad(format!("{what} must be data of type {kind}, and is the value '{value}'."), place));
        }
        (false, None) => {}
    }
}

/// One input of a step: data, a value, or what an expression names. None: nobody gave it, or a problem was said.
fn resolve(scope: &Scope, value: &Value, place: &str, problems: &mut Vec<Problem>) -> Option<Given> {
    let given = as_given(value)?;
    let Some(literal) = given.value() else { return Some(given) };
    let Some(binding) = bindings::whole(literal) else {
        return Some(Given::literal(&scope.fill(literal)));
    };
    let mut found = match follow(scope, &binding, !problems.is_empty()) {
        Ok(found) => found,
        Err(Nothing::Given | Nothing::Read) => return None,
        Err(Nothing::There(what)) => {
            problems.push(bad(format!("'{literal}' names {what}."), place));
            return None;
        }
    };
    let mode = value["mode"].as_str().or_else(|| value["job_input_mode"].as_str());
    if let (Some(mode), false) = (mode, found.is_literal()) {
        found.input["mode"] = json!(mode);
    }
    Some(found)
}

/// Why an expression leads to nothing.
enum Nothing {
    /// To an optional input of the pipeline that nobody gave.
    Given,
    /// To an output of a step that could not be read; what was said of the step is enough.
    Read,
    /// To something that does not exist, in words.
    There(String),
}

fn follow(scope: &Scope, binding: &Binding<'_>, has_problems: bool) -> Result<Given, Nothing> {
    let there = |what: String| Err(Nothing::There(what));
    match binding {
        Binding::ParentInput(name) => match scope.inputs.get(*name) {
            Some(found) => Ok(found.clone()),
            None if scope.declared.contains(*name) => Err(Nothing::Given),
            None => there(format!("an input that the pipeline does not have: '{name}'")),
        },
        Binding::StepOutput(step, output) => match scope.done.get(*step) {
            None => there(format!("a step that is not there: '{step}'")),
            Some(done) => match done.outputs.get(*output) {
                Some(made) => Ok(made.as_input()),
                None if done.outputs.is_empty() && has_problems => Err(Nothing::Read),
                None => there(format!("an output that step '{step}' does not have: '{output}'")),
            },
        },
        Binding::StepInput(step, input) => {
            match scope.done.get(*step).and_then(|done| done.inputs.get(*input)) {
                Some(found) => Ok(found.clone()),
                None => there(format!("an input that step '{step}' does not have: '{input}'")),
            }
        }
        Binding::ParentOutput(_) | Binding::Unknown(_) => there("nothing that an input can take".into()),
    }
}

/// An input as a job's body has it, from any of the forms that clients send.
fn as_given(value: &Value) -> Option<Given> {
    let Value::Object(map) = value else {
        return (!value.is_null()).then(|| Given::literal(&plain(value)));
    };
    let kind = ["jobInputType", "job_input_type", "type"].iter().find_map(|key| map.get(*key)?.as_str());
    let uri = ["uri", "path"].iter().find_map(|key| map.get(*key)?.as_str());
    if let (Some(literal), None) = (map.get("value").filter(|v| !v.is_null()), uri) {
        return Some(Given::literal(&plain(literal)));
    }
    let mut input = Map::new();
    input.insert("jobInputType".into(), json!(kind.unwrap_or("uri_folder")));
    input.insert("uri".into(), json!(uri.unwrap_or("")));
    if let Some(mode) = map.get("mode").filter(|mode| mode.is_string()) {
        input.insert("mode".into(), mode.clone());
    }
    Some(Given::plain(Value::Object(input)))
}
