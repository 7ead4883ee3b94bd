//! Batch endpoints and their deployments.

use crate::asset::inline_model;
use crate::document::Document;
use crate::error::Error;
use crate::fields::{Checker, Field, Kind, canonical, field, given, join, refused, required, text, text_map};
use crate::plan::{Collection, Request};
use crate::planner::{Context, Planner, Reference, is_file};
use crate::{component, environment, settings};
use serde_json::{Map, Value, json};

const ENDPOINT: &[Field] = &[
    required("name", Kind::Name),
    field("type", Kind::Word(&["batch"])),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("auth_mode", Kind::Word(&["aad_token"])),
    field("location", Kind::Text),
    field("defaults", Kind::Object(&[field("deployment_name", Kind::Text)])),
    refused(
        "traffic",
        "a batch endpoint has one default deployment (defaults.deployment_name), not shares of traffic",
    ),
    refused("identity", "an endpoint's jobs run as their cluster; leave it out"),
    field("id", Kind::ReadOnly),
    field("scoring_uri", Kind::ReadOnly),
    field("openapi_uri", Kind::ReadOnly),
    field("provisioning_state", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
];

const OUTPUT_ACTIONS: &[&str] = &["append_row", "summary_only"];
const LEVELS: &[&str] = &["info", "warning", "debug"];
const RETRY: &[Field] = &[field("max_retries", Kind::Whole(0)), field("timeout", Kind::Whole(1))];

/// How a model is run over the input; at the top of the file, or under `settings`.
const RUN: &[Field] = &[
    field("error_threshold", Kind::Whole(-1)),
    field("mini_batch_size", Kind::Whole(1)),
    field("max_concurrency_per_instance", Kind::Whole(1)),
    field("output_action", Kind::Word(OUTPUT_ACTIONS)),
    field("output_file_name", Kind::Text),
    field("logging_level", Kind::Word(LEVELS)),
    field("retry_settings", Kind::Object(RETRY)),
    field("environment_variables", Kind::Entries(&Kind::Scalar)),
];

const INSTANCES: &[Field] = &[field("instance_count", Kind::Whole(1))];

const CODE: &[Field] = &[field("code", Kind::Text), required("scoring_script", Kind::Text)];

const DEPLOYMENT: &[Field] = &[
    required("name", Kind::Name),
    required("endpoint_name", Kind::Name),
    field("type", Kind::Word(&["model", "pipeline"])),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("model", Kind::Anything),
    field("code_configuration", Kind::Object(CODE)),
    field("environment", Kind::ObjectOr(environment::FIELDS, &Kind::Text)),
    field("compute", Kind::Text),
    field("resources", Kind::Object(settings::RESOURCES)),
    field("instance_count", Kind::Whole(1)),
    field("settings", Kind::Anything),
    field("component", Kind::Text),
    refused(
        "job_definition",
        "name the pipeline component of the job instead (component: azureml:NAME:VERSION)",
    ),
    field("id", Kind::ReadOnly),
    field("provisioning_state", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
];

/// Checks a batch endpoint's file and plans its PUT. `location` is left to the caller where the file gives none.
///
/// # Errors
/// [`Error::Problems`] with every problem.
pub fn batch_endpoint_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    let planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    checker.check_document(ENDPOINT);
    let spec = &document.value;
    let mut properties = json!({"authMode": "aadToken", "properties": text_map(given(spec, "properties"))});
    if let Some(description) = given(spec, "description") {
        properties["description"] = description.clone();
    }
    if let Some(name) = given(spec, "defaults").and_then(|defaults| given(defaults, "deployment_name")) {
        properties["defaults"] = json!({ "deploymentName": name });
    }
    let mut body = json!({"tags": text_map(given(spec, "tags")), "properties": properties});
    if let Some(location) = given(spec, "location") {
        body["location"] = location.clone();
    }
    let name = text(spec, "name").unwrap_or_default().to_owned();
    planner.finish(checker.problems, name, None, body)
}

/// Checks a batch deployment's file and plans its PUT; the endpoint is in the document (`endpoint_name`).
///
/// # Errors
/// [`Error::Problems`] with every problem.
pub fn batch_deployment_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    let mut planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    let spec = &document.value;
    let pipeline = text(spec, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("pipeline"))
        || given(spec, "component").is_some();
    let properties = if pipeline {
        checker.check_document(DEPLOYMENT);
        of_pipeline(&mut planner, &mut checker, spec)
    } else {
        checker.check_document_with(&[DEPLOYMENT, RUN]);
        of_model(&mut planner, &mut checker, spec)
    };
    let body = json!({"tags": text_map(given(spec, "tags")), "properties": properties});
    let name = text(spec, "name").unwrap_or_default().to_owned();
    planner.finish(checker.problems, name, None, body)
}

fn of_model(planner: &mut Planner<'_>, checker: &mut Checker<'_>, spec: &Value) -> Value {
    if let Some(settings) = given(spec, "settings") {
        checker.check_at("settings", settings, &[RUN, INSTANCES]);
    }
    let mut properties = Map::new();
    if let Some(description) = given(spec, "description") {
        properties.insert("description".into(), description.clone());
    }
    properties.insert("properties".into(), text_map(given(spec, "properties")));
    match text(spec, "compute") {
        Some(compute) => {
            properties.insert("compute".into(), planner.compute_id(compute).into());
        }
        None => checker.problem("compute", "required: the cluster that the endpoint's jobs run on"),
    }
    if let Some(id) = model(planner, checker, spec) {
        properties.insert("model".into(), json!({"referenceType": "Id", "assetId": id}));
    }
    if let Some(code) = given(spec, "code_configuration") {
        let mut wire = Map::new();
        if let Some(path) = text(code, "code")
            && let Some(id) = planner.code(checker, "code_configuration.code", path, &[])
        {
            wire.insert("codeId".into(), id.into());
        }
        if let Some(script) = given(code, "scoring_script") {
            wire.insert("scoringScript".into(), script.clone());
        }
        properties.insert("codeConfiguration".into(), Value::Object(wire));
    }
    if let Some(value) = given(spec, "environment")
        && let Some(id) = environment::read(planner, checker, "environment", value)
    {
        properties.insert("environmentId".into(), id.into());
    }
    put_run(spec, &mut properties);
    Value::Object(properties)
}

fn model(planner: &mut Planner<'_>, checker: &mut Checker<'_>, spec: &Value) -> Option<String> {
    match given(spec, "model")? {
        Value::String(reference) => {
            match planner.reference(checker, "model", reference, Collection::Models)? {
                Reference::Given(id) => Some(id),
                Reference::Latest(name) => Some(planner.latest(Collection::Models, &name)),
                Reference::Other => {
                    let message = format!(
                        "`{reference}` names no model; write azureml:NAME:VERSION, azureml:NAME@latest or \
                         {{path: ./FOLDER}}"
                    );
                    checker.problem("model", message);
                    None
                }
            }
        }
        value => Some(inline_model(planner, checker, "model", value)),
    }
}

/// What is under `settings` wins over the same key at the top.
fn put_run(spec: &Value, properties: &mut Map<String, Value>) {
    let at = |key: &str| {
        given(spec, "settings").and_then(|settings| given(settings, key)).or_else(|| given(spec, key))
    };
    for (key, wire) in [
        ("error_threshold", "errorThreshold"),
        ("mini_batch_size", "miniBatchSize"),
        ("max_concurrency_per_instance", "maxConcurrencyPerInstance"),
        ("output_file_name", "outputFileName"),
    ] {
        if let Some(value) = at(key) {
            properties.insert(wire.into(), value.clone());
        }
    }
    if let Some(action) = at("output_action").and_then(Value::as_str) {
        let summary = canonical(action, OUTPUT_ACTIONS) == Some("summary_only");
        properties.insert("outputAction".into(), if summary { "SummaryOnly" } else { "AppendRow" }.into());
    }
    if let Some(level) = at("logging_level").and_then(Value::as_str) {
        properties.insert("loggingLevel".into(), level.to_lowercase().into());
    }
    if let Some(retry) = at("retry_settings") {
        let mut wire = Map::new();
        if let Some(retries) = given(retry, "max_retries") {
            wire.insert("maxRetries".into(), retries.clone());
        }
        if let Some(timeout) = given(retry, "timeout") {
            wire.insert("timeout".into(), settings::duration(timeout));
        }
        properties.insert("retrySettings".into(), Value::Object(wire));
    }
    if at("environment_variables").is_some() {
        properties.insert("environmentVariables".into(), text_map(at("environment_variables")));
    }
    let mut resources = given(spec, "resources").map(settings::resources);
    if let Some(count) = at("instance_count") {
        resources.get_or_insert_with(|| json!({"properties": {}}))["instanceCount"] = count.clone();
    }
    if let Some(resources) = resources {
        properties.insert("resources".into(), resources);
    }
}

fn of_pipeline(planner: &mut Planner<'_>, checker: &mut Checker<'_>, spec: &Value) -> Value {
    for key in ["model", "code_configuration", "environment"] {
        if given(spec, key).is_some() {
            checker.problem(key, "is for a model; a pipeline's deployment has a `component` and `settings`");
        }
    }
    let id = match text(spec, "component") {
        Some(reference) if is_file(reference) => {
            component::from_file(planner, checker, "component", reference)
                .map(|component| component.register(planner))
        }
        Some(reference) => match planner.reference(checker, "component", reference, Collection::Components) {
            Some(Reference::Given(id)) => Some(id),
            Some(Reference::Latest(name)) => Some(planner.latest(Collection::Components, &name)),
            Some(Reference::Other) => {
                checker.problem("component", format!("`{reference}` names no component"));
                None
            }
            None => None,
        },
        None => {
            checker.problem("component", "required: the pipeline component that the endpoint runs");
            None
        }
    };
    let mut settings = Map::new();
    for (key, value) in given(spec, "settings").and_then(Value::as_object).into_iter().flatten() {
        let value = match (key.as_str(), value.as_str()) {
            ("default_compute", Some(compute)) => planner.compute_id(compute).into(),
            ("default_compute" | "default_datastore" | "continue_on_step_failure" | "force_rerun", _) => {
                value.clone()
            }
            _ => {
                let message = "unknown key; the keys here are default_compute, default_datastore, \
                               continue_on_step_failure, force_rerun";
                checker.problem(&join("settings", key), message);
                continue;
            }
        };
        settings.insert(key.clone(), value);
    }
    let mut properties = json!({"deploymentConfiguration": {
        "deploymentConfigurationType": "PipelineComponent",
        "componentId": {"referenceType": "Id", "assetId": id},
        "settings": settings,
    }});
    if let Some(description) = given(spec, "description") {
        properties["description"] = description.clone();
    }
    properties
}
