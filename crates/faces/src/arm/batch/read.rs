//! From a deployment's PUT body to what is kept of it: defaults filled in, and every problem at once. What it points at
//! (model, code, environment, compute) is looked at elsewhere.

use neap_core::{Code, Problem};
use neap_parallel::is_file_name;
use serde_json::{Map, Value, json};

use crate::arm::errors::bad;
use crate::durations;
use crate::fields::{Fields, check_tags};

/// Azure ML's own defaults.
pub(super) const ROWS_FILE: &str = "predictions.csv";
const MINI_BATCH_SIZE: i64 = 10;
const CONCURRENCY: i64 = 1;
const ERROR_THRESHOLD: i64 = -1;
const RETRIES: i64 = 3;
const TIMEOUT: &str = "PT30S";
const LEVELS: &[&str] = &["Info", "Warning", "Debug"];

/// Fields of `properties` that are read here or that only answers carry; anything else is refused.
const KNOWN: &[&str] = &[
    "description",
    "properties",
    "compute",
    "model",
    "codeConfiguration",
    "environmentId",
    "environmentVariables",
    "outputAction",
    "outputFileName",
    "errorThreshold",
    "miniBatchSize",
    "maxConcurrencyPerInstance",
    "retrySettings",
    "loggingLevel",
    "resources",
    "deploymentConfiguration",
    "provisioningState",
];

#[derive(Debug)]
pub(super) struct Read {
    pub tags: Value,
    pub properties: Value,
    pub problems: Vec<Problem>,
}

/// Whether it runs a pipeline component, and not a model.
pub(super) fn is_pipeline(properties: &Value) -> bool {
    properties["deploymentConfiguration"]["deploymentConfigurationType"]
        .as_str()
        .is_some_and(|kind| kind.eq_ignore_ascii_case("PipelineComponent"))
}

pub(super) fn read(body: &Value) -> Read {
    let mut problems = Vec::new();
    let top = Fields::of(Some(body), "", &mut problems);
    let tags = top.strings("tags", &mut problems).unwrap_or_default();
    check_tags(&tags, "tags", &mut problems);
    let fields = top.object("properties", &mut problems);
    let mut out = Map::new();
    if let Some(description) = fields.text("description", &mut problems) {
        out.insert("description".into(), json!(description));
    }
    let own = fields.strings("properties", &mut problems).unwrap_or_default();
    out.insert("properties".into(), json!(own));
    for (key, _) in fields.entries().filter(|(key, _)| !KNOWN.iter().any(|k| k.eq_ignore_ascii_case(key))) {
        let message = format!("'{key}' is not known of a batch deployment, and would have no effect.");
        problems.push(bad(message, &fields.place(key)));
    }
    settings(&fields, &mut out, &mut problems);
    let configuration = fields.object("deploymentConfiguration", &mut problems);
    match configuration.text("deploymentConfigurationType", &mut problems) {
        Some(kind) if kind.eq_ignore_ascii_case("PipelineComponent") => {
            pipeline(&fields, &configuration, &mut out, &mut problems);
        }
        Some(kind) if !kind.eq_ignore_ascii_case("Model") => {
            let message = format!("A deployment of type '{kind}' is not known: Model or PipelineComponent.");
            problems.push(bad(message, &configuration.place("deploymentConfigurationType")));
        }
        _ => model(&fields, &mut out, &mut problems),
    }
    Read { tags: json!(tags), properties: Value::Object(out), problems }
}

fn pipeline(
    fields: &Fields<'_>,
    configuration: &Fields<'_>,
    out: &mut Map<String, Value>,
    problems: &mut Vec<Problem>,
) {
    for key in ["model", "codeConfiguration", "environmentId"] {
        if fields.value(key).is_some() {
            let message = format!("'{key}' is for a model; a deployment of a pipeline has a component.");
            problems.push(bad(message, &fields.place(key)));
        }
    }
    let component = configuration.object("componentId", problems);
    let place = component.place("assetId");
    let id = component.text("assetId", problems).unwrap_or("");
    if id.is_empty() {
        problems.push(bad("A deployment of a pipeline needs the id of its component.", &place));
    }
    let mut settings = Map::new();
    for (key, value) in configuration.object("settings", problems).entries() {
        let short = key.rsplit('.').next().unwrap_or(key).to_ascii_lowercase();
        match short.as_str() {
            "default_compute" | "default_datastore" | "continue_on_step_failure" | "force_rerun" => {
                settings.insert(short, value.clone());
            }
            _ => problems.push(bad(
                format!("The setting '{key}' is not known: default_compute, default_datastore, continue_on_step_failure and force_rerun are."),
                &format!("{}.{key}", configuration.place("settings")),
            )),
        }
    }
    let mut kept = json!({
        "deploymentConfigurationType": "PipelineComponent",
        "componentId": {"referenceType": "Id", "assetId": id},
        "settings": settings,
    });
    if let Some(description) = configuration.text("description", problems) {
        kept["description"] = json!(description);
    }
    if let Some(tags) = configuration.strings("tags", problems) {
        kept["tags"] = json!(tags);
    }
    out.insert("deploymentConfiguration".into(), kept);
}

fn model(fields: &Fields<'_>, out: &mut Map<String, Value>, problems: &mut Vec<Problem>) {
    match fields.text("compute", problems).filter(|id| !id.is_empty()) {
        Some(id) => drop(out.insert("compute".into(), json!(id))),
        None => problems.push(bad(
            "A batch deployment needs a 'compute': the cluster that the endpoint's jobs run on.",
            "properties.compute",
        )),
    }
    let model = fields.object("model", problems);
    if model.is_present() {
        let kind = model.text("referenceType", problems).unwrap_or("Id");
        let id = model.text("assetId", problems).unwrap_or("");
        if !kind.eq_ignore_ascii_case("Id") {
            let message = format!(
                "A model referred to as '{kind}' is not supported; register it and name its version."
            );
            problems.push(Problem::new(Code::NotSupported, message).at(model.place("referenceType")));
        } else if id.is_empty() {
            problems.push(bad("The model has no 'assetId'.", &model.place("assetId")));
        }
        out.insert("model".into(), json!({"referenceType": "Id", "assetId": id}));
    }
    let code = fields.object("codeConfiguration", problems);
    if code.is_present() {
        let mut kept = Map::new();
        for (key, what) in [
            ("codeId", "the folder that the scoring script lies in"),
            ("scoringScript", "the Python file with init() and run(mini_batch)"),
        ] {
            match code.text(key, problems).filter(|text| !text.is_empty()) {
                Some(text) => drop(kept.insert(key.into(), json!(text))),
                None => problems.push(bad(format!("'{key}' is missing: {what}."), &code.place(key))),
            }
        }
        out.insert("codeConfiguration".into(), Value::Object(kept));
    }
    let environment = fields.text("environmentId", problems).filter(|id| !id.is_empty());
    if let Some(id) = environment {
        out.insert("environmentId".into(), json!(id));
    }
    if code.is_present() && environment.is_none() {
        problems.push(bad("A scoring script needs an 'environmentId'.", "properties.environmentId"));
    }
    if !model.is_present() && !code.is_present() {
        problems.push(bad(
            "A batch deployment needs a 'model', or a 'codeConfiguration' with a scoring script, or both.",
            "properties.model",
        ));
    }
    let resources = fields.object("resources", problems);
    let mut kept: Map<String, Value> = resources.entries().map(|(k, v)| (k.clone(), v.clone())).collect();
    let count = whole(&resources, "instanceCount", 1, 1, problems);
    kept.insert("instanceCount".into(), json!(count));
    out.insert("resources".into(), Value::Object(kept));
}

/// How it is run over the input. A call may say each of these otherwise.
fn settings(fields: &Fields<'_>, out: &mut Map<String, Value>, problems: &mut Vec<Problem>) {
    for (key, default, least) in [
        ("errorThreshold", ERROR_THRESHOLD, -1),
        ("miniBatchSize", MINI_BATCH_SIZE, 1),
        ("maxConcurrencyPerInstance", CONCURRENCY, 1),
    ] {
        out.insert(key.into(), json!(whole(fields, key, default, least, problems)));
    }
    let retry = fields.object("retrySettings", problems);
    let retries = whole(&retry, "maxRetries", RETRIES, 0, problems);
    let timeout = retry.text("timeout", problems).unwrap_or(TIMEOUT);
    if let Err(why) = seconds(timeout) {
        problems.push(bad(why, &retry.place("timeout")));
    }
    out.insert("retrySettings".into(), json!({"maxRetries": retries, "timeout": timeout}));
    for (key, known) in [("outputAction", &["AppendRow", "SummaryOnly"][..]), ("loggingLevel", LEVELS)] {
        let given = fields.text(key, problems).unwrap_or(known[0]);
        let plain = given.replace('_', "");
        let found = known.iter().find(|word| word.eq_ignore_ascii_case(&plain));
        if found.is_none() {
            let message = format!("'{given}' is no {key}: {}.", known.join(", "));
            problems.push(bad(message, &fields.place(key)));
        }
        out.insert(key.into(), json!(found.unwrap_or(&known[0])));
    }
    let file = fields.text("outputFileName", problems).unwrap_or(ROWS_FILE);
    if !is_file_name(file) {
        problems.push(bad(format!("'{file}' is not the name of a file."), &fields.place("outputFileName")));
    }
    out.insert("outputFileName".into(), json!(file));
    let variables = fields.strings("environmentVariables", problems).unwrap_or_default();
    out.insert("environmentVariables".into(), json!(variables));
}

fn whole(fields: &Fields<'_>, key: &str, default: i64, least: i64, problems: &mut Vec<Problem>) -> i64 {
    let number = fields.integer(key, problems).unwrap_or(default);
    if number < least {
        problems.push(bad(format!("'{key}' is {number}, and must be at least {least}."), &fields.place(key)));
    }
    number
}

/// A time limit in whole seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    match durations::parse_ms(text).map(u64::try_from)? {
        Ok(ms) if ms >= 1_000 => Ok(ms / 1_000),
        _ => Err(format!("The time '{text}' must be a second or longer.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(body: &Value) -> Vec<String> {
        read(body).problems.into_iter().filter_map(|problem| problem.target).collect()
    }

    #[test]
    fn defaults_are_azures_and_what_is_answered_can_be_put_again() {
        let body = json!({"location": "eastus", "properties": {
            "compute": "azureml:cpu", "model": {"referenceType": "Id", "assetId": "azureml:m:1"}}});
        let first = read(&body);
        assert_eq!(first.problems, []);
        assert_eq!(
            first.properties,
            json!({
                "properties": {}, "compute": "azureml:cpu", "model": {"referenceType": "Id", "assetId": "azureml:m:1"},
                "errorThreshold": -1, "miniBatchSize": 10, "maxConcurrencyPerInstance": 1, "outputAction": "AppendRow",
                "outputFileName": "predictions.csv", "loggingLevel": "Info", "environmentVariables": {},
                "retrySettings": {"maxRetries": 3, "timeout": "PT30S"}, "resources": {"instanceCount": 1},
            })
        );
        let again = read(&json!({"tags": first.tags, "properties": first.properties}));
        assert_eq!((again.properties, again.problems), (first.properties, Vec::new()));
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let body = json!({"tags": 3, "properties": {
            "codeConfiguration": {"codeId": ""}, "model": {"referenceType": "OutputPath"}, "errorThreshold": -2,
            "miniBatchSize": 0, "maxConcurrencyPerInstance": "2", "retrySettings": {"maxRetries": -1, "timeout": "soon"},
            "outputAction": "Print", "outputFileName": "../x", "loggingLevel": "loud", "resources": {"instanceCount": 0},
            "wings": 2}});
        let mut at = places(&body);
        at.sort();
        assert_eq!(
            at,
            [
                "properties.codeConfiguration.codeId",
                "properties.codeConfiguration.scoringScript",
                "properties.compute",
                "properties.environmentId",
                "properties.errorThreshold",
                "properties.loggingLevel",
                "properties.maxConcurrencyPerInstance",
                "properties.miniBatchSize",
                "properties.model.referenceType",
                "properties.outputAction",
                "properties.outputFileName",
                "properties.resources.instanceCount",
                "properties.retrySettings.maxRetries",
                "properties.retrySettings.timeout",
                "properties.wings",
                "tags",
            ]
        );
        assert_eq!(places(&json!({"properties": {}})), ["properties.compute", "properties.model"]);
    }

    #[test]
    fn a_pipeline_has_a_component_and_settings() {
        let body = json!({"properties": {"deploymentConfiguration": {
            "deploymentConfigurationType": "PipelineComponent", "componentId": {"referenceType": "Id", "assetId": "azureml:c:1"},
            "settings": {"ComponentDeployment.Settings.continue_on_step_failure": "True", "default_compute": "cpu"}}}});
        let read_once = read(&body);
        assert_eq!(read_once.problems, []);
        assert!(is_pipeline(&read_once.properties));
        let settings = &read_once.properties["deploymentConfiguration"]["settings"];
        assert_eq!(*settings, json!({"continue_on_step_failure": "True", "default_compute": "cpu"}));
        let wrong = json!({"properties": {"model": {"assetId": "x"}, "deploymentConfiguration": {
            "deploymentConfigurationType": "PipelineComponent", "settings": {"speed": 3}}}});
        assert_eq!(
            places(&wrong),
            [
                "properties.model",
                "properties.deploymentConfiguration.componentId.assetId",
                "properties.deploymentConfiguration.settings.speed"
            ]
        );
    }

    #[test]
    fn time_limits() {
        assert_eq!(seconds("PT5M"), Ok(300));
        for bad in ["PT0S", "-PT5S", "5", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
