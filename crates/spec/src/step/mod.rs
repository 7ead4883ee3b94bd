//! The steps of a pipeline: the fields that each kind has, and the component that says what it runs.
//!
//! `ends` checks how steps hang together; `node` writes a step as the server takes it.

mod ends;
mod node;

use crate::component::{self, Component, ComponentKind};
use crate::fields::{Checker, Field, Kind, field, given, join, refused, required, text};
use crate::plan::Collection;
use crate::planner::{Planner, Reference, is_file};
use crate::suggest::nearest;
use crate::{environment, inputs, parallel, settings, sweep};
use serde_json::{Map, Value};

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
    refused("command", OF_THE_COMPONENT),
    refused("environment", OF_THE_COMPONENT),
    refused("code", OF_THE_COMPONENT),
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
    ends::check_bindings(checker, &jobs, &steps, &ends::around(owner, entries, &steps));
    let mut nodes = Map::new();
    for step in &steps {
        ends::check_ends(checker, step);
        let node = node::node(planner, checker, step, &steps, owner);
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
