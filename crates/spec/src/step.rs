//! The steps of a pipeline: each one's component, its inputs and outputs, its settings; and how they hang together.

use crate::bindings::{Around, Ends, circle};
use crate::component::{self, Component, ComponentKind};
use crate::expressions::{check_command, expressions};
use crate::fields::{Checker, Field, Kind, field, given, join, required, text, text_map};
use crate::inline::{inline_component, output_type};
use crate::plan::Collection;
use crate::planner::{Planner, Reference, is_file};
use crate::suggest::nearest;
use crate::wire::{snake_each, snake_keys};
use crate::{environment, inputs, parallel, settings, sweep};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    Command,
    Parallel,
    Pipeline,
    Sweep,
}

impl StepKind {
    fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Parallel => "parallel",
            Self::Pipeline => "pipeline",
            Self::Sweep => "sweep",
        }
    }
}

/// The keys of every step.
const COMMON: &[Field] = &[
    field("type", Kind::Text),
    field("name", Kind::Text),
    field("display_name", Kind::Text),
    field("experiment_name", Kind::Text),
    field("description", Kind::Text),
    field("comment", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("compute", Kind::Text),
    field("inputs", inputs::INPUTS),
    field("outputs", inputs::OUTPUTS),
    field("identity", Kind::ByType(settings::IDENTITIES)),
    field("id", Kind::ReadOnly),
    field("status", Kind::ReadOnly),
    field("componentId", Kind::ReadOnly),
];

const COMMAND_SETTINGS: &[Field] = &[
    field("environment_variables", Kind::Entries(&Kind::Scalar)),
    field("resources", Kind::Object(settings::RESOURCES)),
    field("limits", Kind::Object(settings::LIMITS)),
    field("distribution", Kind::ByType(settings::DISTRIBUTIONS)),
    field("queue_settings", Kind::Object(settings::QUEUE_SETTINGS)),
    field("services", Kind::Entries(&Kind::ByType(settings::SERVICES))),
];

const INLINE_COMMAND: &[Field] = &[
    required("command", Kind::Text),
    required("environment", Kind::ObjectOr(environment::FIELDS, &Kind::Text)),
    field("code", Kind::Text),
];

const OF_THE_COMPONENT: &str = "belongs to the component; a step that names a component cannot change it";

const COMPONENT_COMMAND: &[Field] = &[
    required("component", Kind::Anything),
    crate::fields::refused("command", OF_THE_COMPONENT),
    crate::fields::refused("environment", OF_THE_COMPONENT),
    crate::fields::refused("code", OF_THE_COMPONENT),
];

const COMPONENT: &[Field] = &[required("component", Kind::Anything)];
const VARIABLES: &[Field] = &[field("environment_variables", Kind::Entries(&Kind::Scalar))];
const TRIAL: &[Field] = &[required("trial", Kind::Anything)];

/// Where a step's work is written.
pub(crate) enum Work {
    /// In the step itself.
    Inline,
    /// In a component that was read here.
    Read(Box<Component>),
    /// In a component that is registered; its ends are not known here.
    Registered { id: String, source: &'static str },
    /// It could not be read, and that was said.
    Unknown,
}

pub(crate) struct Step<'v> {
    pub name: &'v str,
    pub place: String,
    pub value: &'v Value,
    pub kind: StepKind,
    pub work: Work,
}

/// The nodes of the pipeline whose `jobs` stand in `owner`, which itself stands at `place`.
pub(crate) fn nodes(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    owner: &Value,
) -> Value {
    let jobs = join(place, "jobs");
    let entries = given(owner, "jobs").and_then(Value::as_object);
    if entries.is_some_and(Map::is_empty) {
        checker.problem(&jobs, "a pipeline needs at least one step");
    }
    let before = std::mem::replace(&mut checker.bindings, true);
    let mut steps = Vec::new();
    for (name, value) in entries.into_iter().flatten() {
        let place = join(&jobs, name);
        if !good_name(name) {
            checker.problem(&place, "a step's name has letters, digits and `_`, and begins with a letter");
        }
        if let Some(kind) = kind_of(checker, &place, value) {
            let work = read_work(planner, checker, &place, value, kind);
            steps.push(Step { name, place, value, kind, work });
        }
    }
    let around = around(owner, entries, &steps);
    check_bindings(checker, &jobs, &steps, &around);
    let mut nodes = Map::new();
    for step in &steps {
        check_ends(checker, step);
        let node = node(planner, checker, step, &steps, owner);
        nodes.insert(step.name.to_owned(), node);
    }
    checker.bindings = before;
    Value::Object(nodes)
}

fn good_name(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn kind_of(checker: &mut Checker<'_>, place: &str, value: &Value) -> Option<StepKind> {
    if !value.is_object() {
        checker.problem(place, "a step is a mapping, with `command` and `environment`, or with `component`");
        return None;
    }
    let word = match text(value, "type") {
        Some(word) => word.to_lowercase(),
        None if given(value, "trial").is_some() => "sweep".to_owned(),
        None if given(value, "task").is_some() => "parallel".to_owned(),
        None if given(value, "jobs").is_some() => "pipeline".to_owned(),
        None => "command".to_owned(),
    };
    let refusal = match word.as_str() {
        "command" => return Some(StepKind::Command),
        "parallel" => return Some(StepKind::Parallel),
        "pipeline" => return Some(StepKind::Pipeline),
        "sweep" => return Some(StepKind::Sweep),
        "automl" | "spark" | "import" | "data_transfer" | "if_else" | "do_while" | "parallel_for"
        | "flow" => {
            format!("{word} steps are not offered; write the work as a command step (type: command)")
        }
        other => {
            let words = ["command", "sweep", "parallel", "pipeline"];
            let near = nearest(other, words).map(|near| format!("; did you mean `{near}`?"));
            format!("`{other}` is not one of {}{}", words.join(", "), near.unwrap_or_default())
        }
    };
    checker.problem(&join(place, "type"), refusal);
    None
}

/// Checks a step against its table, and reads its component.
fn read_work(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    value: &Value,
    kind: StepKind,
) -> Work {
    let named = given(value, "component");
    match kind {
        StepKind::Command if named.is_none() => {
            checker.check_at(place, value, &[INLINE_COMMAND, COMMAND_SETTINGS, COMMON]);
            return Work::Inline;
        }
        StepKind::Command => {
            checker.check_at(place, value, &[COMPONENT_COMMAND, COMMAND_SETTINGS, COMMON]);
        }
        StepKind::Parallel if named.is_none() => {
            checker.check_at(place, value, &[parallel::PARALLEL, VARIABLES, COMMON]);
            return Work::Inline;
        }
        StepKind::Parallel => {
            checker.check_at(place, value, &[COMPONENT, parallel::PARALLEL, VARIABLES, COMMON]);
        }
        StepKind::Pipeline if named.is_none() && given(value, "jobs").is_some() => {
            let message = "a pipeline inside a pipeline is a component: move it to a file of its own and name it \
                           here (component: ./FILE.yml)";
            checker.problem(&join(place, "jobs"), message);
            return Work::Unknown;
        }
        StepKind::Pipeline => checker.check_at(place, value, &[COMPONENT, COMMON]),
        StepKind::Sweep => {
            checker.check_at(place, value, &[TRIAL, sweep::SWEEP, COMMON]);
            sweep::check(checker, place, value);
        }
    }
    let key = if kind == StepKind::Sweep { "trial" } else { "component" };
    let place = join(place, key);
    let wanted = match kind {
        StepKind::Command | StepKind::Sweep => ComponentKind::Command,
        StepKind::Parallel => ComponentKind::Parallel,
        StepKind::Pipeline => ComponentKind::Pipeline,
    };
    let read = match given(value, key) {
        Some(Value::String(reference)) if is_file(reference) => {
            component::from_file(planner, checker, &place, reference)
        }
        Some(Value::String(reference)) => return registered(planner, checker, &place, reference),
        Some(inline @ Value::Object(_)) => {
            let outside = std::mem::replace(&mut checker.bindings, false);
            let read = component::read(planner, checker, &place, inline);
            checker.bindings = outside;
            read
        }
        _ => None,
    };
    match read {
        Some(component) if component.kind == wanted => Work::Read(Box::new(component)),
        Some(component) => {
            let message = format!(
                "this is a {} component, and the step is `type: {}`",
                component.kind.word(),
                kind.word()
            );
            checker.problem(&place, message);
            Work::Unknown
        }
        None => Work::Unknown,
    }
}

fn registered(planner: &mut Planner<'_>, checker: &mut Checker<'_>, place: &str, reference: &str) -> Work {
    let source =
        if reference.starts_with("azureml://") { "REMOTE.REGISTRY" } else { "REMOTE.WORKSPACE.COMPONENT" };
    let bare = reference.strip_prefix("azureml:").filter(|name| !name.contains([':', '@', '/']));
    if let Some(name) = bare.filter(|name| !name.is_empty()) {
        // A component without a version is its newest, as `az ml` has it.
        return Work::Registered { id: planner.latest(Collection::Components, name), source };
    }
    match planner.reference(checker, place, reference, Collection::Components) {
        Some(Reference::Given(id)) => Work::Registered { id, source },
        Some(Reference::Latest(name)) => {
            Work::Registered { id: planner.latest(Collection::Components, &name), source }
        }
        Some(Reference::Other) => {
            let message = format!(
                "`{reference}` names no component; write a file (./{reference}.yml), azureml:NAME:VERSION or \
                 azureml:NAME@latest"
            );
            checker.problem(place, message);
            Work::Unknown
        }
        None => Work::Unknown,
    }
}

fn keys(value: Option<&Value>) -> BTreeSet<String> {
    value.and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

fn around(owner: &Value, entries: Option<&Map<String, Value>>, steps: &[Step<'_>]) -> Around {
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

fn check_bindings(checker: &mut Checker<'_>, jobs: &str, steps: &[Step<'_>], around: &Around) {
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
fn check_ends(checker: &mut Checker<'_>, step: &Step<'_>) {
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

fn node(
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
