//! A step that has its work written in it becomes a component without a name, with types for its ends as far as they
//! can be told from what they are bound to.

use crate::component::{Component, ComponentKind};
use crate::fields::{Checker, given, join, text, text_map};
use crate::planner::Planner;
use crate::step::{Step, StepKind, Work};
use crate::{environment, inputs, parallel};
use serde_json::{Map, Value, json};

/// The component that an inline step is turned into.
pub(crate) fn inline_component(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    step: &Step<'_>,
    steps: &[Step<'_>],
    owner: &Value,
) -> Component {
    let value = step.value;
    let mut spec = Map::new();
    if given(value, "tags").is_some() {
        spec.insert("tags".into(), text_map(given(value, "tags")));
    }
    if let Some(description) = given(value, "description") {
        spec.insert("description".into(), description.clone());
    }
    let kind = if step.kind == StepKind::Parallel { ComponentKind::Parallel } else { ComponentKind::Command };
    spec.insert("type".into(), kind.word().into());
    spec.insert("is_deterministic".into(), true.into());
    let mut ins = Map::new();
    for (name, item) in given(value, "inputs").and_then(Value::as_object).into_iter().flatten() {
        ins.insert(name.clone(), input_port(item, steps, owner));
    }
    spec.insert("inputs".into(), Value::Object(ins));
    let mut outs = Map::new();
    for (name, item) in given(value, "outputs").and_then(Value::as_object).into_iter().flatten() {
        let mut port = json!({"type": output_type(step, name, owner)});
        let mode = inputs::written_output_mode(item)
            .or_else(|| inputs::written_output_mode(of_pipeline(item, owner)?));
        if let Some(mode) = mode {
            port["mode"] = mode.into();
        }
        outs.insert(name.clone(), port);
    }
    spec.insert("outputs".into(), Value::Object(outs));
    if kind == ComponentKind::Parallel {
        parallel::put_spec(planner, checker, &step.place, value, &mut spec);
    } else {
        if let Some(command) = given(value, "command") {
            spec.insert("command".into(), command.clone());
        }
        if let Some(code) = text(value, "code")
            && let Some(id) = planner.code(checker, &join(&step.place, "code"), code, &[])
        {
            spec.insert("code".into(), format!("azureml:{id}").into());
        }
        if let Some(environment) = given(value, "environment")
            && let Some(id) =
                environment::read(planner, checker, &join(&step.place, "environment"), environment)
        {
            spec.insert("environment".into(), environment::in_component(&id).into());
        }
        for key in ["resources", "distribution"] {
            if let Some(item) = given(value, key) {
                spec.insert(key.into(), item.clone());
            }
        }
    }
    spec.insert("_source".into(), "YAML.JOB".into());
    Component { kind, spec }
}

fn input_port(item: &Value, steps: &[Step<'_>], owner: &Value) -> Value {
    let (kind, mode) = type_of(item, steps, owner, 0);
    let mut port = Map::new();
    port.insert("type".into(), kind.into());
    if let Some(mode) = text(item, "mode").map(str::to_owned).or(mode) {
        port.insert("mode".into(), mode.into());
    }
    if !item.is_object() && inputs::binding(item).is_none() && !item.is_null() {
        port.insert("default".into(), crate::fields::scalar_text(item).into());
    }
    Value::Object(port)
}

/// The type of what stands at an input, and the mode where the pipeline's own input gives one.
fn type_of(item: &Value, steps: &[Step<'_>], owner: &Value, depth: usize) -> (String, Option<String>) {
    let folder = || ("uri_folder".to_owned(), None);
    if let Some(bound) = inputs::binding(item) {
        if let Some(kind) = text(item, "type") {
            return (kind.to_owned(), None);
        }
        let expression = bound.trim_start_matches("${{").trim_end_matches("}}").trim();
        let parts: Vec<&str> = expression.split('.').collect();
        return match parts.as_slice() {
            ["parent", "inputs", name] => match owner.get("inputs").and_then(|all| all.get(*name)) {
                Some(source) if depth < steps.len() => {
                    let (kind, _) = type_of(source, steps, owner, depth + 1);
                    (kind, text(source, "mode").map(str::to_owned))
                }
                _ => folder(),
            },
            ["parent", "jobs", other, "outputs", name] => steps
                .iter()
                .find(|step| step.name == *other)
                .map_or_else(folder, |step| (output_type(step, name, owner), None)),
            ["parent", "jobs", other, "inputs", name] => {
                let source = steps.iter().find(|step| step.name == *other);
                match source.and_then(|step| step.value.get("inputs")?.get(*name)) {
                    Some(source) if depth < steps.len() => type_of(source, steps, owner, depth + 1),
                    _ => folder(),
                }
            }
            _ => ("string".to_owned(), None),
        };
    }
    match item {
        Value::Bool(_) => ("boolean".to_owned(), None),
        Value::Number(number) if number.is_f64() => ("number".to_owned(), None),
        Value::Number(_) => ("integer".to_owned(), None),
        Value::String(_) => ("string".to_owned(), None),
        Value::Object(_) => match (text(item, "type"), item.get("value").filter(|value| !value.is_null())) {
            (Some(kind), _) => (kind.to_owned(), None),
            (None, Some(value)) => type_of(value, steps, owner, depth + 1),
            (None, None) => folder(),
        },
        Value::Null | Value::Array(_) => folder(),
    }
}

/// The type of a step's output: the component's, else what is written, else that of the pipeline's output it is.
pub(crate) fn output_type(step: &Step<'_>, name: &str, owner: &Value) -> String {
    if let Work::Read(component) = &step.work
        && let Some(kind) =
            component.spec.get("outputs").and_then(|ports| ports.get(name)?.get("type")?.as_str())
    {
        return kind.to_owned();
    }
    let Some(item) = step.value.get("outputs").and_then(|outputs| outputs.get(name)) else {
        return "uri_folder".to_owned();
    };
    match (text(item, "type"), of_pipeline(item, owner)) {
        (None, Some(output)) => inputs::output_type(output),
        _ => inputs::output_type(item),
    }
    .to_owned()
}

/// The pipeline's output that a step's output is bound to.
fn of_pipeline<'v>(item: &Value, owner: &'v Value) -> Option<&'v Value> {
    let expression = inputs::binding(item)?.trim_start_matches("${{").trim_end_matches("}}").trim();
    owner.get("outputs")?.get(expression.strip_prefix("parent.outputs.")?)
}
