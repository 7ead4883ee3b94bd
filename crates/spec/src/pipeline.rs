//! `type: pipeline` jobs.

use crate::fields::{Checker, Field, Kind, field, given, join, text};
use crate::plan::Collection;
use crate::planner::{Planner, Reference, is_file};
use crate::{component, inputs, job, settings, step};
use serde_json::{Map, Value};

const SETTINGS: &[Field] = &[
    field("default_compute", Kind::Text),
    field("default_datastore", Kind::Text),
    field("continue_on_step_failure", Kind::Flag),
    field("force_rerun", Kind::Flag),
    field("continue_run_on_failed_optional_input", Kind::Flag),
    field("_source", Kind::ReadOnly),
    crate::fields::refused(
        "on_init",
        "a step that runs before all others is not offered; let the others bind to it",
    ),
    crate::fields::refused(
        "on_finalize",
        "a step that runs after all others is not offered; let it bind to them",
    ),
];

const FIELDS: &[Field] = &[
    field("type", Kind::Word(&["pipeline"])),
    field("jobs", Kind::Entries(&Kind::Anything)),
    field("component", Kind::Text),
    field("settings", Kind::Object(SETTINGS)),
    field("inputs", inputs::INPUTS),
    field("outputs", inputs::OUTPUTS),
    field("identity", Kind::ByType(settings::IDENTITIES)),
    field("services", Kind::Entries(&Kind::ByType(settings::SERVICES))),
];

pub(crate) fn job(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    spec: &Value,
    properties: &mut Map<String, Value>,
) {
    checker.check_document_with(&[FIELDS, job::COMMON]);
    properties.insert("jobType".into(), "Pipeline".into());
    if let Some(compute) = text(spec, "compute") {
        properties.insert("computeId".into(), planner.compute_id(compute).into());
    }
    properties.insert("settings".into(), pipeline_settings(planner, spec));
    properties.insert("inputs".into(), inputs::of_job(planner, checker, spec));
    properties.insert("outputs".into(), inputs::outputs_of_job(checker, spec));
    match (given(spec, "jobs"), text(spec, "component")) {
        (Some(_), None) => {
            let nodes = step::nodes(planner, checker, "", spec);
            properties.insert("jobs".into(), nodes);
        }
        (None, Some(reference)) => {
            if let Some(id) = whole_component(planner, checker, reference, spec) {
                properties.insert("componentId".into(), id.into());
            }
            properties.insert("jobs".into(), Value::Object(Map::new()));
        }
        (Some(_), Some(_)) => {
            checker.problem("component", "a pipeline has `jobs` or a `component`, not both");
        }
        (None, None) => {
            checker.problem("jobs", "required: the steps of the pipeline, or a `component` that is one");
        }
    }
}

fn pipeline_settings(planner: &Planner<'_>, spec: &Value) -> Value {
    let mut wire = Map::new();
    let Some(settings) = given(spec, "settings") else {
        wire.insert("_source".into(), "YAML.JOB".into());
        return Value::Object(wire);
    };
    if let Some(compute) = text(settings, "default_compute") {
        wire.insert("default_compute".into(), planner.compute_id(compute).into());
    }
    if let Some(store) = text(settings, "default_datastore") {
        let name = store.strip_prefix("azureml:").unwrap_or(store);
        let id = if name.starts_with('/') {
            name.to_owned()
        } else {
            format!("{}/datastores/{name}", planner.scope.workspace_id())
        };
        wire.insert("default_datastore".into(), id.into());
    }
    for key in ["continue_on_step_failure", "force_rerun", "continue_run_on_failed_optional_input"] {
        if let Some(value) = given(settings, key) {
            wire.insert(key.into(), value.clone());
        }
    }
    wire.insert("_source".into(), "YAML.JOB".into());
    Value::Object(wire)
}

/// A pipeline job that is nothing but a pipeline component with inputs.
fn whole_component(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    reference: &str,
    spec: &Value,
) -> Option<String> {
    if !is_file(reference) {
        return match planner.reference(checker, "component", reference, Collection::Components)? {
            Reference::Given(id) => Some(id),
            Reference::Latest(name) => Some(planner.latest(Collection::Components, &name)),
            Reference::Other => {
                checker.problem(
                    "component",
                    format!("`{reference}` names no component; write a file or azureml:NAME:VERSION"),
                );
                None
            }
        };
    }
    let component = component::from_file(planner, checker, "component", reference)?;
    if component.kind != component::ComponentKind::Pipeline {
        checker.problem(
            "component",
            format!("this is a {} component, and not a pipeline", component.kind.word()),
        );
        return None;
    }
    for (name, port) in component.ports("inputs") {
        let free = given(&port, "default").is_some()
            || given(&port, "optional").and_then(Value::as_bool) == Some(true);
        let here = spec.get("inputs").and_then(|inputs| given(inputs, &name)).is_some();
        if !free && !here {
            checker.problem(
                &join("inputs", &name),
                "the component needs this input, and the job does not give it",
            );
        }
    }
    Some(component.register(planner))
}
