//! `type: command` files to a job request: the PUT body, and what must be uploaded or registered before it.

use crate::document::Document;
use crate::environment::{self, Environment};
use crate::error::Error;
use crate::fields::{Checker, Field, Kind, field, given, required, text, text_map};
use crate::job_parts::{self as parts, InputPlan};
use crate::scope::Scope;
use crate::{ReadText, job_parts::INPUT_OBJECT, job_parts::OUTPUT_OBJECT};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What a local path becomes on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadKind {
    /// The snapshot that the command runs in.
    Code,
    /// The data of this input; `file` if it was declared as a single file.
    Input { name: String },
}

/// A local path to upload before the job is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub kind: UploadKind,
    pub path: PathBuf,
}

/// A job ready to be sent, once its uploads are done and its environment is known.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRequest {
    pub name: String,
    pub body: Value,
    pub uploads: Vec<Upload>,
    pub environment: Environment,
}

impl JobRequest {
    /// Names the uploaded snapshot.
    pub fn set_code(&mut self, id: &str) {
        self.body["properties"]["codeId"] = id.into();
    }

    /// Names the uploaded data of an input.
    pub fn set_input(&mut self, name: &str, uri: &str) {
        self.body["properties"]["inputs"][name]["uri"] = uri.into();
    }

    /// Names the environment, once it is registered or looked up.
    pub fn set_environment(&mut self, id: &str) {
        self.body["properties"]["environmentId"] = id.into();
    }
}

/// What the file may leave open, and where it came from.
#[derive(Debug)]
pub struct Submission<'a> {
    pub scope: &'a Scope,
    /// Relative paths count from here: the folder of the YAML file.
    pub folder: &'a Path,
    /// The name if the file gives none.
    pub name: &'a str,
    /// The experiment if the file gives none.
    pub experiment: &'a str,
}

const FIELDS: &[Field] = &[
    required("command", Kind::Text),
    required("environment", Kind::ObjectOr(environment::FIELDS, &Kind::Text)),
    field("type", Kind::Word(&["command"])),
    field("name", Kind::Text),
    field("display_name", Kind::Text),
    field("experiment_name", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("code", Kind::Text),
    field("compute", Kind::Text),
    field("environment_variables", Kind::Entries(&Kind::Scalar)),
    field("inputs", Kind::Entries(&Kind::ObjectOr(INPUT_OBJECT, &Kind::Scalar))),
    field("outputs", Kind::Entries(&Kind::Object(OUTPUT_OBJECT))),
    field("resources", Kind::Object(parts::RESOURCES)),
    field("limits", Kind::Object(&[field("timeout", Kind::Whole(1))])),
    field("distribution", Kind::ByType(parts::DISTRIBUTIONS)),
    field("queue_settings", Kind::Object(parts::QUEUE_SETTINGS)),
    field("services", Kind::Entries(&Kind::ByType(parts::SERVICES))),
    field("identity", Kind::ByType(parts::IDENTITIES)),
    field("parent_job_name", Kind::Text),
    field("id", Kind::ReadOnly),
    field("status", Kind::ReadOnly),
    field("error", Kind::ReadOnly),
    field("queue_reason", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("log_files", Kind::ReadOnly),
    field("parameters", Kind::ReadOnly),
];

/// Checks a job specification and plans its submission.
///
/// # Errors
/// [`Error::Problems`] with every problem; [`Error::NotSupported`] for a job that is not a command job.
pub fn job_request(
    document: &Document,
    submission: &Submission<'_>,
    read_text: ReadText<'_>,
) -> Result<JobRequest, Error> {
    let spec = &document.value;
    refuse_other_types(spec)?;
    let mut checker = Checker::new(document);
    checker.check_document(FIELDS);
    let scope = submission.scope;
    let environment = given(spec, "environment")
        .and_then(|value| environment::read(&mut checker, value, scope, submission.folder, read_text));

    let mut uploads = Vec::new();
    let mut properties = Map::new();
    let name = text(spec, "name").unwrap_or(submission.name).to_owned();
    properties.insert("jobType".into(), "Command".into());
    properties.insert("displayName".into(), text(spec, "display_name").unwrap_or(&name).into());
    properties.insert(
        "experimentName".into(),
        text(spec, "experiment_name").unwrap_or(submission.experiment).into(),
    );
    for (key, wire) in [("description", "description"), ("command", "command")] {
        if let Some(value) = given(spec, key) {
            properties.insert(wire.into(), value.clone());
        }
    }
    if let Some(code) = text(spec, "code") {
        match code_reference(code, scope) {
            Ok(Some(id)) => {
                properties.insert("codeId".into(), id.into());
            }
            Ok(None) => uploads.push(Upload {
                kind: UploadKind::Code,
                path: below(submission.folder, code.strip_prefix("file:").unwrap_or(code)),
            }),
            Err(message) => checker.problem("code", message),
        }
    }
    if let Some(Environment::Id(id)) = &environment {
        properties.insert("environmentId".into(), id.clone().into());
    }
    let mut resources = given(spec, "resources").map(parts::resources);
    let mut variables = text_map(given(spec, "environment_variables"));
    match text(spec, "compute").map(|compute| compute.strip_prefix("azureml:").unwrap_or(compute)) {
        None | Some("serverless") => {}
        Some("local") => {
            // The Azure SDK's way to say "on the submitting machine"; the server answers what it thinks of it.
            let resources = resources.get_or_insert_with(|| json!({}));
            resources["properties"] = json!({"IsLocal": {"IsLocal": true}});
            variables["AZUREML_COMPUTE_USE_COMMON_RUNTIME"] = "true".into();
        }
        Some(id) if id.starts_with('/') => {
            properties.insert("computeId".into(), id.into());
        }
        Some(name) => {
            properties.insert("computeId".into(), format!("{}/computes/{name}", scope.workspace_id()).into());
        }
    }
    let mut inputs = Map::new();
    for (input, value) in given(spec, "inputs").and_then(Value::as_object).into_iter().flatten() {
        match parts::input(value, scope) {
            Ok(InputPlan::Absent) => {}
            Ok(InputPlan::Ready(body)) => {
                inputs.insert(input.clone(), body);
            }
            Ok(InputPlan::Upload(body, path)) => {
                inputs.insert(input.clone(), body);
                let path = below(submission.folder, &path);
                uploads.push(Upload { kind: UploadKind::Input { name: input.clone() }, path });
            }
            Err(message) => checker.problem(&format!("inputs.{input}"), message),
        }
    }
    let mut outputs = Map::new();
    for (output, value) in given(spec, "outputs").and_then(Value::as_object).into_iter().flatten() {
        outputs.insert(output.clone(), parts::output(value));
    }
    parts::check_references(&mut checker, spec);

    properties.insert("inputs".into(), Value::Object(inputs));
    properties.insert("outputs".into(), Value::Object(outputs));
    if let Some(resources) = resources {
        properties.insert("resources".into(), resources);
    }
    if let Some(limits) = given(spec, "limits").and_then(parts::limits) {
        properties.insert("limits".into(), limits);
    }
    for (key, wire, make) in [
        ("distribution", "distribution", parts::distribution as fn(&Value) -> Value),
        ("queue_settings", "queueSettings", parts::queue_settings),
        ("services", "services", parts::services),
        ("identity", "identity", parts::identity),
    ] {
        if let Some(value) = given(spec, key) {
            properties.insert(wire.into(), make(value));
        }
    }
    properties.insert("environmentVariables".into(), variables);
    properties.insert("tags".into(), text_map(given(spec, "tags")));
    properties.insert("properties".into(), text_map(given(spec, "properties")));
    properties.insert("isArchived".into(), false.into());

    match environment {
        Some(environment) if checker.problems.is_empty() => {
            Ok(JobRequest { name, body: json!({ "properties": properties }), uploads, environment })
        }
        _ => Err(Error::Problems(checker.problems)),
    }
}

/// A path of the file, counted from its folder, without the `./` that people write.
fn below(folder: &Path, path: &str) -> PathBuf {
    folder.join(path).components().collect()
}

fn refuse_other_types(spec: &Value) -> Result<(), Error> {
    let kind = match text(spec, "type") {
        Some(kind) if kind.eq_ignore_ascii_case("command") => return Ok(()),
        Some(kind) => kind.to_lowercase(),
        None if given(spec, "create_job").is_some() || given(spec, "trigger").is_some() => {
            "schedule".to_owned()
        }
        None if given(spec, "jobs").is_some() => "pipeline".to_owned(),
        None if given(spec, "trial").is_some() => "sweep".to_owned(),
        None => return Ok(()),
    };
    let known = match kind.as_str() {
        "pipeline" => {
            "pipeline jobs are not supported yet; submit each step as a command job (type: command)"
        }
        "sweep" => "sweep jobs are not supported yet; submit the trials as command jobs (type: command)",
        "parallel" => "parallel jobs are not supported yet; submit a command job (type: command)",
        "schedule" => "schedules are not supported yet; submit the job itself (type: command)",
        "automl" | "spark" | "import" | "finetuning" | "distillation" => {
            return Err(Error::NotSupported(format!(
                "{kind} jobs are not offered; write the work as a command job (type: command)"
            )));
        }
        // An unknown word is a problem of the file, and the checker says it with all the others.
        _ => return Ok(()),
    };
    Err(Error::NotSupported(known.to_owned()))
}

/// The id of code that is on the server already; `None` for a local path.
fn code_reference(code: &str, scope: &Scope) -> Result<Option<String>, String> {
    if let Some(rest) = code.strip_prefix("azureml:") {
        if rest.starts_with('/') && !rest.starts_with("//") {
            return Ok(Some(rest.to_owned()));
        }
        return match rest.split_once(':') {
            Some((name, version)) if !rest.starts_with("//") => {
                Ok(Some(format!("{}/codes/{name}/versions/{version}", scope.workspace_id())))
            }
            _ => Err(format!(
                "`{code}` is not code that can be named; write azureml:NAME:VERSION or a local path"
            )),
        };
    }
    if code.starts_with("git+") || (code.contains("://") && !code.starts_with("file:")) {
        return Err("code from a URL is not supported; clone it and give the local folder".to_owned());
    }
    Ok(None)
}
