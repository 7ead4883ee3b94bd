//! Job files to a job request: which kind of job a file is, and what all kinds share.

use crate::document::Document;
use crate::error::Error;
use crate::fields::{Checker, Field, Kind, field, given, text, text_map};
use crate::plan::Request;
use crate::planner::{Context, Planner};
use crate::{command, pipeline, sweep};
use serde_json::{Map, Value, json};

/// What the file may leave open.
#[derive(Debug, Clone, Copy)]
pub struct Defaults<'a> {
    /// The name if the file gives none.
    pub name: &'a str,
    /// The experiment if the file gives none.
    pub experiment: &'a str,
}

/// The keys of every kind of job.
pub(crate) const COMMON: &[Field] = &[
    field("type", Kind::Text),
    field("name", Kind::Name),
    field("display_name", Kind::Text),
    field("experiment_name", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("compute", Kind::Text),
    field("id", Kind::ReadOnly),
    field("status", Kind::ReadOnly),
    field("error", Kind::ReadOnly),
    field("queue_reason", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("log_files", Kind::ReadOnly),
    field("parameters", Kind::ReadOnly),
    field("archived", Kind::ReadOnly),
    field("metrics", Kind::ReadOnly),
    field("params", Kind::ReadOnly),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobKind {
    Command,
    Pipeline,
    Sweep,
}

/// Checks a job specification and plans its submission.
///
/// # Errors
/// [`Error::Problems`] with every problem; [`Error::NotSupported`] for a kind of job that Neap does not run.
pub fn job_request(
    document: &Document,
    context: &Context<'_>,
    defaults: &Defaults<'_>,
) -> Result<Request, Error> {
    let mut planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    let spec = &document.value;
    let name = text(spec, "name").unwrap_or(defaults.name).to_owned();
    let mut properties = properties(&mut planner, &mut checker, defaults.experiment)?;
    if given(spec, "display_name").is_none() {
        properties.insert("displayName".into(), name.clone().into());
    }
    planner.finish(checker.problems, name, None, json!({ "properties": properties }))
}

/// The properties of the job in the checker's document; `displayName` only where the file gives one.
pub(crate) fn properties(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    experiment: &str,
) -> Result<Map<String, Value>, Error> {
    let spec = &checker.document().value;
    let kind = kind_of(spec)?;
    let mut properties = Map::new();
    for (key, wire) in [("display_name", "displayName"), ("description", "description")] {
        if let Some(value) = given(spec, key) {
            properties.insert(wire.into(), value.clone());
        }
    }
    properties.insert("experimentName".into(), text(spec, "experiment_name").unwrap_or(experiment).into());
    match kind {
        JobKind::Command => command::job(planner, checker, spec, &mut properties),
        JobKind::Pipeline => pipeline::job(planner, checker, spec, &mut properties),
        JobKind::Sweep => sweep::job(planner, checker, spec, &mut properties),
    }
    for (key, wire, make) in crate::settings::OF_JOBS {
        if let Some(value) = given(spec, key) {
            properties.insert((*wire).into(), make(value));
        }
    }
    properties.insert("tags".into(), text_map(given(spec, "tags")));
    properties.insert("properties".into(), text_map(given(spec, "properties")));
    properties.insert("isArchived".into(), false.into());
    Ok(properties)
}

fn kind_of(spec: &Value) -> Result<JobKind, Error> {
    let has = |key: &str| given(spec, key).is_some();
    let kind = match text(spec, "type") {
        Some(kind) => kind.to_lowercase(),
        None if has("create_job") || has("trigger") => "schedule".to_owned(),
        None if has("jobs") => "pipeline".to_owned(),
        None if has("trial") || has("search_space") => "sweep".to_owned(),
        None if has("task") => "parallel".to_owned(),
        None => "command".to_owned(),
    };
    let instead = match kind.as_str() {
        "pipeline" => return Ok(JobKind::Pipeline),
        "sweep" => return Ok(JobKind::Sweep),
        "parallel" => {
            "a parallel job is a step of a pipeline: put it under `jobs:` of a file with `type: pipeline`"
                .to_owned()
        }
        "schedule" => "this is a schedule; create it with `neap schedule create -f FILE`".to_owned(),
        "automl" | "spark" | "import" | "data_transfer" | "finetuning" | "distillation" | "base" => {
            format!("{kind} jobs are not offered; write the work as a command job (type: command)")
        }
        // An unknown word is a problem of the file, and the checker says it with all the others.
        _ => return Ok(JobKind::Command),
    };
    Err(Error::NotSupported(instead))
}

/// What `compute: local` means on the wire: no compute, and a note that the Azure clients leave.
pub(crate) fn put_compute(planner: &Planner<'_>, spec: &Value, properties: &mut Map<String, Value>) -> bool {
    match text(spec, "compute").map(|compute| compute.strip_prefix("azureml:").unwrap_or(compute)) {
        None | Some("serverless") => false,
        Some("local") => true,
        Some(compute) => {
            properties.insert("computeId".into(), planner.compute_id(compute).into());
            false
        }
    }
}
