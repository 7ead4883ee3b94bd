//! `type: command` jobs.

use crate::expressions::check_command;
use crate::fields::{Checker, Field, Kind, field, given, required, text, text_map};
use crate::planner::Planner;
use crate::{environment, inputs, job, settings};
use serde_json::{Map, Value, json};

const FIELDS: &[Field] = &[
    required("command", Kind::Text),
    required("environment", Kind::ObjectOr(environment::FIELDS, &Kind::Text)),
    field("type", Kind::Word(&["command"])),
    field("code", Kind::Text),
    field("environment_variables", Kind::Entries(&Kind::Scalar)),
    field("inputs", inputs::INPUTS),
    field("outputs", inputs::OUTPUTS),
    field("resources", Kind::Object(settings::RESOURCES)),
    field("limits", Kind::Object(settings::LIMITS)),
    field("distribution", Kind::ByType(settings::DISTRIBUTIONS)),
    field("queue_settings", Kind::Object(settings::QUEUE_SETTINGS)),
    field("services", Kind::Entries(&Kind::ByType(settings::SERVICES))),
    field("identity", Kind::ByType(settings::IDENTITIES)),
    field("parent_job_name", Kind::Text),
];

pub(crate) fn job(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    spec: &Value,
    properties: &mut Map<String, Value>,
) {
    checker.check_document_with(&[FIELDS, job::COMMON]);
    properties.insert("jobType".into(), "Command".into());
    if let Some(command) = text(spec, "command") {
        properties.insert("command".into(), command.into());
        let declared = [("inputs", spec.get("inputs")), ("outputs", spec.get("outputs"))];
        check_command(checker, "command", command, &declared);
    }
    if let Some(code) = text(spec, "code")
        && let Some(id) = planner.code(checker, "code", code, &[])
    {
        properties.insert("codeId".into(), id.into());
    }
    if let Some(value) = given(spec, "environment")
        && let Some(id) = environment::read(planner, checker, "environment", value)
    {
        properties.insert("environmentId".into(), id.into());
    }
    let mut resources = given(spec, "resources").map(settings::resources);
    let mut variables = text_map(given(spec, "environment_variables"));
    if job::put_compute(planner, spec, properties) {
        // The Azure SDK's way to say "on the submitting machine"; the server answers what it thinks of it.
        let resources = resources.get_or_insert_with(|| json!({}));
        resources["properties"] = json!({"IsLocal": {"IsLocal": true}});
        variables["AZUREML_COMPUTE_USE_COMMON_RUNTIME"] = "true".into();
    }
    properties.insert("inputs".into(), inputs::of_job(planner, checker, spec));
    properties.insert("outputs".into(), inputs::outputs_of_job(checker, spec));
    if let Some(resources) = resources {
        properties.insert("resources".into(), resources);
    }
    if let Some(limits) = given(spec, "limits").and_then(settings::limits) {
        properties.insert("limits".into(), limits);
    }
    if let Some(distribution) = given(spec, "distribution") {
        properties.insert("distribution".into(), settings::distribution(distribution));
    }
    if let Some(parent) = given(spec, "parent_job_name") {
        properties.insert("parentJobName".into(), parent.clone());
    }
    properties.insert("environmentVariables".into(), variables);
}
