//! A step as the server takes it: a node of a pipeline's job, in snake_case.

use super::{Step, StepKind, Work};
use crate::fields::{Checker, given, join, text, text_map};
use crate::inline::{inline_component, output_type};
use crate::planner::Planner;
use crate::wire::{snake_each, snake_keys};
use crate::{inputs, parallel, settings, sweep};
use serde_json::{Map, Value, json};

pub(super) fn node(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    step: &Step<'_>,
    steps: &[Step<'_>],
    owner: &Value,
) -> Value {
    let value = step.value;
    let mut node = Map::new();
    node.insert("name".into(), step.name.into());
    node.insert("type".into(), step.kind.word().into());
    for key in ["display_name", "comment"] {
        if let Some(item) = given(value, key) {
            node.insert(key.into(), item.clone());
        }
    }
    for key in ["tags", "properties"] {
        if given(value, key).is_some() {
            node.insert(key.into(), text_map(given(value, key)));
        }
    }
    if let Some(compute) = text(value, "compute") {
        let id = if compute == "local" { compute.to_owned() } else { planner.compute_id(compute) };
        node.insert("computeId".into(), id.into());
    }
    let mut ins = Map::new();
    for (name, item) in given(value, "inputs").and_then(Value::as_object).into_iter().flatten() {
        let place = join(&join(&step.place, "inputs"), name);
        if let Some(body) = inputs::input(planner, checker, &place, item) {
            ins.insert(name.clone(), snake_keys(&body, 1));
        }
    }
    let mut outs = Map::new();
    let written = given(value, "outputs").and_then(Value::as_object).into_iter().flatten();
    // An output that only has a name is the component's to describe.
    for (name, item) in written.filter(|(_, item)| !item.is_null()) {
        let kind = output_type(step, name, owner);
        outs.insert(name.clone(), inputs::step_output(item, &kind));
    }
    for (key, ends) in [("inputs", ins), ("outputs", outs)] {
        if !ends.is_empty() {
            node.insert(key.into(), Value::Object(ends));
        }
    }
    if let Some(identity) = given(value, "identity") {
        node.insert("identity".into(), snake_keys(&settings::identity(identity), 1));
    }
    let (id, source, spec) = match &step.work {
        Work::Inline => {
            let component = inline_component(planner, checker, step, steps, owner);
            (component.register(planner), "YAML.JOB", Some(component.spec))
        }
        Work::Read(component) => {
            (component.register(planner), "YAML.COMPONENT", Some(component.spec.clone()))
        }
        Work::Registered { id, source } => (id.clone(), *source, None),
        Work::Unknown => (String::new(), "", None),
    };
    match step.kind {
        StepKind::Command => put_command_settings(value, spec.as_ref(), &mut node),
        StepKind::Parallel => {
            parallel::put_node(value, spec.as_ref(), &mut node);
            if given(value, "environment_variables").is_some() {
                node.insert("environment_variables".into(), text_map(given(value, "environment_variables")));
            }
        }
        StepKind::Sweep => put_sweep(value, &mut node),
        StepKind::Pipeline => {}
    }
    node.insert("_source".into(), source.into());
    if step.kind == StepKind::Sweep {
        node.insert("trial".into(), json!({ "componentId": id }));
    } else {
        node.insert("componentId".into(), id.into());
    }
    Value::Object(node)
}

/// The settings of a command step; what the component says of resources and distribution holds where the step is silent.
fn put_command_settings(value: &Value, spec: Option<&Map<String, Value>>, node: &mut Map<String, Value>) {
    let here_or_there = |key: &str| given(value, key).or_else(|| spec.and_then(|spec| spec.get(key)));
    if let Some(resources) = here_or_there("resources") {
        node.insert("resources".into(), snake_keys(&settings::resources(resources), 1));
    }
    if let Some(distribution) = here_or_there("distribution") {
        node.insert("distribution".into(), snake_keys(&settings::distribution(distribution), 1));
    }
    if let Some(limits) = given(value, "limits").and_then(settings::limits) {
        node.insert("limits".into(), snake_keys(&limits, 1));
    }
    if let Some(queue) = given(value, "queue_settings") {
        node.insert("queue_settings".into(), snake_keys(&settings::queue_settings(queue), 1));
    }
    if let Some(services) = given(value, "services") {
        node.insert("services".into(), snake_each(&settings::services(services), 2));
    }
    if given(value, "environment_variables").is_some() {
        node.insert("environment_variables".into(), text_map(given(value, "environment_variables")));
    }
}

fn put_sweep(value: &Value, node: &mut Map<String, Value>) {
    for key in ["limits", "sampling_algorithm", "objective", "search_space", "queue_settings", "resources"] {
        if let Some(item) = given(value, key) {
            node.insert(key.into(), item.clone());
        }
    }
    if let Some(policy) = given(value, "early_termination") {
        node.insert("early_termination".into(), snake_keys(&sweep::early_termination(policy), 1));
    }
}
