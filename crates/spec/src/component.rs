//! Components: a command, parallel work or a pipeline with typed ends, in a file of its own or inside a step.

use crate::document::Document;
use crate::error::Error;
use crate::expressions::check_command;
use crate::fields::{
    Checker, Field, Kind, canonical, field, given, join, refused, required, scalar_text, text, text_map,
};
use crate::limits::COMPONENT_DEPTH_MAX;
use crate::plan::{Collection, Registration, Request};
use crate::planner::{Context, Planner};
use crate::{environment, parallel, settings, step};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

const PORT_TYPES: &[&str] = &[
    "uri_folder",
    "uri_file",
    "mltable",
    "mlflow_model",
    "custom_model",
    "triton_model",
    "path",
    "string",
    "integer",
    "number",
    "boolean",
];

const PORT_MODES: &[&str] =
    &["ro_mount", "rw_mount", "mount", "download", "upload", "direct", "eval_mount", "eval_download"];

const INPUT_PORT: &[Field] = &[
    required("type", Kind::Word(PORT_TYPES)),
    field("description", Kind::Text),
    field("optional", Kind::Flag),
    field("default", Kind::Scalar),
    field("mode", Kind::Word(PORT_MODES)),
    field("min", Kind::TextOrNumber),
    field("max", Kind::TextOrNumber),
    field("enum", Kind::List(&Kind::Scalar)),
];

const OUTPUT_PORT: &[Field] = &[
    required("type", Kind::Word(PORT_TYPES)),
    field("description", Kind::Text),
    field("mode", Kind::Word(PORT_MODES)),
    refused("early_available", "an output is there when its step has ended; leave it out"),
];

/// The keys of every component.
const COMMON: &[Field] = &[
    field("type", Kind::Word(&["command", "parallel", "pipeline"])),
    field("name", Kind::Name),
    field("version", Kind::TextOrNumber),
    field("display_name", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Anything)),
    field("is_deterministic", Kind::Flag),
    field("inputs", Kind::Entries(&Kind::Object(INPUT_PORT))),
    field("outputs", Kind::Entries(&Kind::Object(OUTPUT_PORT))),
    refused("auto_delete_setting", "assets are kept until they are deleted; leave it out"),
    field("id", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("latest_version", Kind::ReadOnly),
    field("intellectual_property", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
    field("archived", Kind::ReadOnly),
];

const COMMAND: &[Field] = &[
    required("command", Kind::Text),
    required("environment", Kind::ObjectOr(environment::FIELDS, &Kind::Text)),
    field("code", Kind::Text),
    field("additional_includes", Kind::List(&Kind::Text)),
    field("distribution", Kind::ByType(settings::DISTRIBUTIONS)),
    field("resources", Kind::Object(settings::RESOURCES)),
    field("queue_settings", Kind::Object(settings::QUEUE_SETTINGS)),
    field("environment_variables", Kind::Entries(&Kind::Scalar)),
    field("limits", Kind::Object(settings::LIMITS)),
];

const PARALLEL: &[Field] = &[field("environment_variables", Kind::Entries(&Kind::Scalar))];

const PIPELINE: &[Field] = &[
    required("jobs", Kind::Entries(&Kind::Anything)),
    refused("settings", "settings belong to the pipeline job, not to a component of it"),
];

/// A command component's file, where only a command will do (the trial of a sweep job).
pub(crate) const COMMAND_FILE: &[Field] = &[
    required("command", Kind::Text),
    required("environment", Kind::ObjectOr(environment::FIELDS, &Kind::Text)),
    field("type", Kind::Word(&["command"])),
    field("code", Kind::Text),
    field("additional_includes", Kind::List(&Kind::Text)),
    field("distribution", Kind::ByType(settings::DISTRIBUTIONS)),
    field("resources", Kind::Object(settings::RESOURCES)),
    field("environment_variables", Kind::Entries(&Kind::Scalar)),
    field("name", Kind::Name),
    field("version", Kind::TextOrNumber),
    field("display_name", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Anything)),
    field("is_deterministic", Kind::Flag),
    field("inputs", Kind::Entries(&Kind::Object(INPUT_PORT))),
    field("outputs", Kind::Entries(&Kind::Object(OUTPUT_PORT))),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComponentKind {
    Command,
    Parallel,
    Pipeline,
}

impl ComponentKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Parallel => "parallel",
            Self::Pipeline => "pipeline",
        }
    }
}

/// A component that was read here.
#[derive(Debug)]
pub(crate) struct Component {
    pub kind: ComponentKind,
    /// `componentSpec` on the wire.
    pub spec: Map<String, Value>,
}

impl Component {
    /// The ports of one end.
    pub fn ports(&self, end: &str) -> Map<String, Value> {
        self.spec.get(end).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// The id that the component gets when it is registered without a name.
    pub fn register(&self, planner: &mut Planner<'_>) -> String {
        planner.register(Registration {
            collection: Collection::Components,
            name: None,
            version: None,
            body: body(&self.anonymous(), true),
        })
    }

    /// The same work under the name that all components without one share, as the Azure clients send it.
    fn anonymous(&self) -> Map<String, Value> {
        let mut spec = self.spec.clone();
        spec.insert("name".into(), Collection::Components.anonymous_name().into());
        spec.insert("version".into(), "1".into());
        spec
    }
}

/// The body of a component's PUT.
fn body(spec: &Map<String, Value>, anonymous: bool) -> Value {
    let mut properties = json!({"componentSpec": spec, "isAnonymous": anonymous, "isArchived": false,
        "properties": {}, "tags": spec.get("tags").cloned().unwrap_or_else(|| json!({}))});
    if let Some(description) = spec.get("description") {
        properties["description"] = description.clone();
    }
    json!({ "properties": properties })
}

/// A component's file, to be registered under its name.
///
/// # Errors
/// [`Error::Problems`] with every problem.
pub fn component_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    let mut planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    let value = &document.value;
    if given(value, "name").is_none() {
        checker.problem("name", "required, and not given");
    }
    let component = read(&mut planner, &mut checker, "", value);
    let body = component.map(|component| body(&component.spec, false)).unwrap_or_default();
    let name = text(value, "name").unwrap_or_default().to_owned();
    planner.finish(checker.problems, name, given(value, "version").map(scalar_text), body)
}

/// Reads the component in a file that a step names. What is wrong in it is said with the file's name.
pub(crate) fn from_file(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    reference: &str,
) -> Option<Component> {
    let (path, document) = planner.read_file(checker, place, reference)?;
    if planner.open.contains(&path) {
        let files: Vec<String> =
            planner.open.iter().map(|file: &PathBuf| file.display().to_string()).collect();
        checker.problem(place, format!("{} uses itself ({})", path.display(), files.join(" uses ")));
        return None;
    }
    if planner.open.len() >= COMPONENT_DEPTH_MAX {
        checker.problem(place, format!("component files are nested deeper than {COMPONENT_DEPTH_MAX}"));
        return None;
    }
    planner.open.push(path.clone());
    let mut inner = Checker::of_file(&document, &path);
    let component = read(planner, &mut inner, "", &document.value);
    planner.open.pop();
    checker.problems.append(&mut inner.problems);
    component
}

/// Reads the component that stands at `place`.
pub(crate) fn read(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    value: &Value,
) -> Option<Component> {
    let kind = kind_of(checker, place, value)?;
    match kind {
        ComponentKind::Command => checker.check_at(place, value, &[COMMAND, COMMON]),
        ComponentKind::Parallel => checker.check_at(place, value, &[PARALLEL, parallel::PARALLEL, COMMON]),
        ComponentKind::Pipeline => checker.check_at(place, value, &[PIPELINE, COMMON]),
    }
    let mut spec = Map::new();
    if let Some(name) = given(value, "name") {
        spec.insert("name".into(), name.clone());
    }
    if let Some(version) = given(value, "version") {
        spec.insert("version".into(), scalar_text(version).into());
    }
    for key in ["display_name", "description"] {
        if let Some(item) = given(value, key) {
            spec.insert(key.into(), item.clone());
        }
    }
    if given(value, "tags").is_some() {
        spec.insert("tags".into(), text_map(given(value, "tags")));
    }
    spec.insert("type".into(), kind.word().into());
    if kind != ComponentKind::Pipeline || given(value, "is_deterministic").is_some() {
        let deterministic = given(value, "is_deterministic").cloned().unwrap_or(Value::Bool(true));
        spec.insert("is_deterministic".into(), deterministic);
    }
    spec.insert("inputs".into(), ports(given(value, "inputs")));
    spec.insert("outputs".into(), ports(given(value, "outputs")));
    match kind {
        ComponentKind::Command => put_command(planner, checker, place, value, &mut spec),
        ComponentKind::Parallel => {
            parallel::put_spec(planner, checker, place, value, &mut spec);
            if given(value, "environment_variables").is_some() {
                spec.insert("environment_variables".into(), text_map(given(value, "environment_variables")));
            }
        }
        ComponentKind::Pipeline => {
            let jobs = step::nodes(planner, checker, place, value);
            spec.insert("jobs".into(), jobs);
            spec.insert("sourceJobId".into(), Value::Null);
        }
    }
    spec.insert("_source".into(), "YAML.COMPONENT".into());
    Some(Component { kind, spec })
}

fn kind_of(checker: &mut Checker<'_>, place: &str, value: &Value) -> Option<ComponentKind> {
    let word = match text(value, "type") {
        Some(word) => word.to_lowercase(),
        None if given(value, "jobs").is_some() => "pipeline".to_owned(),
        None if given(value, "task").is_some() => "parallel".to_owned(),
        None => "command".to_owned(),
    };
    let refusal = match word.as_str() {
        "command" => return Some(ComponentKind::Command),
        "parallel" => return Some(ComponentKind::Parallel),
        "pipeline" => return Some(ComponentKind::Pipeline),
        "sweep" => {
            "a sweep is a step and not a component: write `type: sweep` in the step, with the component as \
                    its `trial`"
                .to_owned()
        }
        "spark" | "import" | "automl" | "data_transfer" | "flow" => {
            format!(
                "{word} components are not offered; write the work as a command component (type: command)"
            )
        }
        other => {
            let words = ["command", "parallel", "pipeline"];
            let near = crate::suggest::nearest(other, words).map(|near| format!("; did you mean `{near}`?"));
            format!("`{other}` is not one of {}{}", words.join(", "), near.unwrap_or_default())
        }
    };
    checker.problem(&join(place, "type"), refusal);
    None
}

fn put_command(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    value: &Value,
    spec: &mut Map<String, Value>,
) {
    if let Some(command) = text(value, "command") {
        spec.insert("command".into(), command.into());
        let declared = [("inputs", value.get("inputs")), ("outputs", value.get("outputs"))];
        check_command(checker, &join(place, "command"), command, &declared);
    }
    let includes: Vec<String> = given(value, "additional_includes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect();
    for (number, include) in includes.iter().enumerate() {
        let path = checker.below(include);
        if !planner.files.exists(&path) {
            let place = format!("{}[{number}]", join(place, "additional_includes"));
            checker.problem(&place, format!("{} does not exist", path.display()));
        }
    }
    match text(value, "code") {
        Some(code) => {
            if let Some(id) = planner.code(checker, &join(place, "code"), code, &includes) {
                spec.insert("code".into(), format!("azureml:{id}").into());
            }
        }
        None if !includes.is_empty() => {
            checker.problem(&join(place, "additional_includes"), "needs a `code` folder to be laid into");
        }
        None => {}
    }
    if let Some(environment) = given(value, "environment")
        && let Some(id) = environment::read(planner, checker, &join(place, "environment"), environment)
    {
        spec.insert("environment".into(), environment::in_component(&id).into());
    }
    for key in ["distribution", "resources", "queue_settings", "limits"] {
        if let Some(item) = given(value, key) {
            spec.insert(key.into(), item.clone());
        }
    }
    if given(value, "environment_variables").is_some() {
        spec.insert("environment_variables".into(), text_map(given(value, "environment_variables")));
    }
}

/// Ports as the wire has them: types and modes in their one spelling, values as texts, nulls left out.
fn ports(value: Option<&Value>) -> Value {
    let mut all = Map::new();
    for (name, port) in value.and_then(Value::as_object).into_iter().flatten() {
        let mut wire = Map::new();
        for (key, item) in port.as_object().into_iter().flatten().filter(|(_, item)| !item.is_null()) {
            let item = match (key.as_str(), item) {
                ("type", Value::String(word)) => canonical(word, PORT_TYPES).map(Value::from),
                ("mode", Value::String(word)) => canonical(word, PORT_MODES).map(Value::from),
                ("default" | "min" | "max", item) => Some(scalar_text(item).into()),
                ("enum", Value::Array(list)) => Some(list.iter().map(scalar_text).collect()),
                (_, item) => Some(item.clone()),
            };
            if let Some(item) = item {
                wire.insert(key.clone(), item);
            }
        }
        all.insert(name.clone(), Value::Object(wire));
    }
    Value::Object(all)
}
