//! Parallel steps of pipelines: held against the rules at submission, and each worker made of one later.
//!
//! A parallel job is a family that is driven from outside of the core (`crate::conduct`); its workers are ordinary jobs,
//! one per node, that run the driver of `neap_parallel`.

use std::collections::BTreeMap;

use neap_core::budget::tag_labels;
use neap_core::command::SubmitJob;
use neap_core::documents::{BlobPath, InputDocument, JobDocument, JobMeta};
use neap_core::family::Family;
use neap_core::state::Workspace;
use neap_core::{Code, Command, DocHash, Problem, Refusal};
use neap_parallel::Parallel;
use neap_storage::BlobAddress;
use serde_json::{Map, Value, json};

use super::references::{LedgerShelf, Shelf};
use super::serverless::{self, Serverless};
use super::write::read_meta;
use super::{compare, read, sources};
use crate::app::{self, App};
use crate::arm::errors::bad;
use crate::limits;
use crate::workspace_files::{self, ARTIFACT_CONTAINER, ARTIFACT_STORE};

/// The input by which a worker is given the driver.
const DRIVER_INPUT: &str = "neap_parallel_driver";

/// What is kept of a parallel step. Its worker is read once as if it ran, so that nothing is found out only then.
pub(super) fn read_parallel(
    app: &App,
    name: &str,
    body: &Value,
    workspace: &Workspace,
    shelf: &dyn Shelf,
    problems: &mut Vec<Problem>,
) -> Result<JobDocument, Refusal> {
    let empty = Map::new();
    let asked = &body["properties"];
    let (mut settings, found) = Parallel::read_leniently(asked);
    problems.extend(
        found.into_iter().map(|p| bad(format!("'{}': {}.", p.at, p.says), &format!("properties.{}", p.at))),
    );
    if asked["inputs"][&settings.input].is_null() {
        // Said already.
        settings.input.clear();
    }
    let worker = worker_body(asked, &settings, None);
    let read = read::read(name, &worker, workspace, shelf)?;
    let no_environment = asked["task"]["environment"].is_null();
    if no_environment {
        problems.push(bad("A parallel step needs a 'task.environment'.", "properties.task.environment"));
    }
    let said =
        |problem: &Problem| no_environment && problem.target.as_deref() == Some("properties.environmentId");
    problems.extend(read.problems.into_iter().filter(|problem| !said(problem)).map(in_step));
    if matches!(read.document.inputs.get(&settings.input), Some(InputDocument::Literal { .. })) {
        let message = format!(
            "The input '{}' has the mode 'direct'; a parallel step divides files that it is given.",
            settings.input
        );
        problems.push(bad(message, "properties.input_data"));
    }
    if let (Some(code), false) = (&read.document.code, settings.entry_script.is_empty())
        && !has_file(app, code, &settings.entry_script)
    {
        let message = format!("The entry script '{}' is not in the code.", settings.entry_script);
        problems.push(bad(message, "properties.task.entry_script"));
    }
    if settings.is_table
        && let Some(at) = read.document.inputs.get(&settings.input).and_then(InputDocument::at)
    {
        problems.extend(check_table(app, &settings.input, at));
    }
    for (name, _) in read.document.outputs.iter().filter(|(_, output)| output.more().register.is_some()) {
        let message = format!(
            "The output '{name}' of a parallel step cannot be registered yet; register it from a command step."
        );
        problems.push(Problem::new(Code::NotSupported, message).at(format!("properties.outputs.{name}")));
    }
    if !read.cluster.is_empty()
        && read.serverless.is_none()
        && app.state().cluster(workspace.id, &read.cluster).is_none_or(|cluster| cluster.is_deleting())
    {
        let message = format!(
            "The compute '{}' was not found in this workspace; 'neap compute list' shows those there are.",
            read.cluster
        );
        problems.push(Problem::new(Code::ComputeNotFound, message).at("properties.computeId"));
    }
    let mut inputs = read.document.inputs;
    inputs.remove(DRIVER_INPUT);
    let mut sources = read.document.sources;
    sources.inputs.remove(DRIVER_INPUT);
    Ok(JobDocument {
        experiment: read.document.experiment,
        inputs,
        outputs: read.document.outputs,
        sources,
        asked: compare::definition(asked.as_object().unwrap_or(&empty)),
        ..JobDocument::default()
    })
}

/// A problem of a worker, told where the user wrote it.
fn in_step(problem: Problem) -> Problem {
    let target = problem.target.map(|at| {
        let known = [
            ("properties.codeId", "properties.task.code"),
            ("properties.environmentId", "properties.task.environment"),
            ("properties.command", "properties.task.program_arguments"),
            ("properties.environmentVariables", "properties.environment_variables"),
        ];
        match known.iter().find(|(from, _)| at.starts_with(from)) {
            Some((from, to)) => at.replacen(from, to, 1),
            None => at,
        }
    });
    let message = problem.message.replacen("The command uses", "program_arguments uses", 1);
    Problem { target, message, ..problem }
}

/// Whether a file is in the code. One that cannot be looked for counts as there: the worker will say it.
fn has_file(app: &App, code: &BlobPath, file: &str) -> bool {
    let folder = code.path.trim_end_matches('/');
    let name = if folder.is_empty() { file.to_owned() } else { format!("{folder}/{file}") };
    let Ok(address) = BlobAddress::new(&code.account, &code.container, &name) else { return false };
    !matches!(
        app.store.properties(&address),
        Err(neap_storage::Error::BlobNotFound(_) | neap_storage::Error::ContainerNotFound { .. })
    )
}

/// What an `MLTable` file in the server's own store asks for and is not done. The worker looks at all others.
fn check_table(app: &App, input: &str, at: &BlobPath) -> Option<Problem> {
    let name = format!("{}/MLTable", at.path.trim_end_matches('/'));
    let address = BlobAddress::new(&at.account, &at.container, name.trim_start_matches('/')).ok()?;
    let text = app.store.read(&address, 0, limits::MLTABLE_BYTES_MAX).ok()?;
    let message = match neap_parallel::not_applied(&String::from_utf8_lossy(&text)) {
        Ok(names) if names.is_empty() => return None,
        Ok(names) => format!(
            "The MLTable file of the input '{input}' asks for {}, which a parallel step does not apply: {} are. Do the rest in run(mini_batch).",
            names.join(", "),
            neap_parallel::APPLIED.join(", ")
        ),
        Err(why) => format!("The MLTable file of the input '{input}' cannot be read: {why}."),
    };
    Some(bad(message, &format!("properties.inputs.{input}")))
}

/// Where the driver lies in a workspace: under a name that follows from what it is, so that an older one stays as it was.
fn driver_path() -> String {
    let hash = DocHash::of(b"", neap_parallel::DRIVER.as_bytes());
    let hex: String = hash.0.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("neap/parallel/{hex}/driver.py")
}

/// The body of a worker's job; without a number, what all of them have in common.
fn worker_body(asked: &Value, settings: &Parallel, number: Option<usize>) -> Value {
    let task = &asked["task"];
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            out.insert(key.into(), value);
        }
    };
    put("jobType", json!("Command"));
    put("displayName", number.map_or(Value::Null, |number| json!(format!("worker {number}"))));
    put("command", json!(worker_command(settings)));
    for (from, to) in [("code", "codeId"), ("environment", "environmentId")] {
        put(to, json!(plain_id(&task[from])));
    }
    for key in ["experimentName", "computeId", "identity", "queueSettings"] {
        put(key, asked[key].clone());
    }
    put("environmentVariables", asked["environment_variables"].clone());
    let mut resources = asked["resources"].clone();
    if let Some(resources) = resources.as_object_mut() {
        resources.remove("instanceCount");
    }
    put("resources", resources);
    let mut inputs = asked["inputs"].as_object().cloned().unwrap_or_default();
    let driver = format!("azureml://datastores/{ARTIFACT_STORE}/paths/{}", driver_path());
    inputs.insert(DRIVER_INPUT.into(), json!({"jobInputType": "uri_file", "uri": driver}));
    put("inputs", Value::Object(inputs));
    put("outputs", Value::Object(worker_outputs(asked, settings, number)));
    json!({"properties": out})
}

/// What every worker runs: the driver over the divided input, with the user's arguments.
fn worker_command(settings: &Parallel) -> String {
    let divided = if settings.input.is_empty() {
        String::new()
    } else {
        format!("\"${{{{inputs.{}}}}}\"", settings.input)
    };
    let command = format!("python \"${{{{inputs.{DRIVER_INPUT}}}}}\" {divided} {}", settings.arguments);
    command.trim_end().to_owned()
}

/// An id without `azureml:` before a full path; a short name keeps its prefix, so that it is read as one.
fn plain_id(value: &Value) -> Option<&str> {
    value.as_str().map(|id| id.strip_prefix("azureml:").filter(|rest| rest.starts_with('/')).unwrap_or(id))
}

/// Workers write beside each other into the step's outputs; only the file of rows is not theirs.
fn worker_outputs(asked: &Value, settings: &Parallel, number: Option<usize>) -> Map<String, Value> {
    let mut outputs = asked["outputs"].as_object().cloned().unwrap_or_default();
    if number.is_none() {
        return outputs;
    }
    for (name, output) in &mut outputs {
        let is_file =
            output["jobOutputType"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("uri_file"));
        let Some(output) = output.as_object_mut() else { continue };
        if settings.append_row_to.as_ref() == Some(name) && is_file {
            output.remove("uri");
        }
        if output.get("mode").and_then(Value::as_str).is_none_or(|mode| !mode.eq_ignore_ascii_case("direct"))
        {
            // What others have stored there by now is not this worker's to bring, or to change.
            output.insert("mode".into(), json!("Upload"));
        }
    }
    outputs
}

/// A worker, under a name that says which. One that is there already is not submitted again.
pub(crate) async fn submit_worker(
    app: &App,
    workspace: &Workspace,
    family: &Family,
    asked: &Value,
    settings: &Parallel,
    number: usize,
) -> Result<(), Refusal> {
    let driver = BlobPath {
        account: workspace_files::account(workspace.id),
        container: ARTIFACT_CONTAINER.into(),
        path: driver_path(),
    };
    workspace_files::put_if_absent(app, driver, neap_parallel::DRIVER.as_bytes()).await?;
    let name = format!("{}_worker_{number}", family.name);
    let mut body = worker_body(asked, settings, Some(number));
    sources::pin(&mut body, &app.document::<JobDocument>(&family.document)?.sources);
    let mut read = read::read(&name, &body, workspace, &LedgerShelf { app, workspace })?;
    read.document.preamble.extend(settings.notes.iter().cloned());
    let (meta, _) = read_meta(&body, JobMeta::default(), &mut read.problems);
    if let Some(wanted) = read.serverless.as_ref().filter(|_| read.problems.is_empty()) {
        let wanted = Serverless { nodes: settings.instances.max(wanted.nodes), ..wanted.clone() };
        serverless::ensure(app, &crate::conduct::conductor(), workspace, &wanted).await?;
    }
    let tags = tag_labels(&meta.tags);
    let (document, meta) = (app::document(&read.document)?, app::document(&meta)?);
    let command = Command::SubmitJob(SubmitJob {
        workspace: workspace.id,
        name: name.as_str().into(),
        cluster: read.cluster.into(),
        owner: family.owner.clone(),
        priority: read.priority,
        need: read.need,
        nodes: read.nodes,
        family: Some(family.id),
        tags,
        timeout_ms: read.timeout_ms,
        retry: read.retry,
        like: Some(super::write::like(&read.document)),
        tier: read.tier,
        document: document.hash,
        meta: meta.hash,
        problems: read.problems,
    });
    app.submit(&crate::conduct::conductor(), command, vec![document, meta]).await.map(drop)
}

/// Clients know no type of job for a parallel step: they are shown a command job that runs on each node what its workers
/// run, with its code and environment, and properties that say what it is. What was asked stays beside it.
pub(super) fn shown_to_clients(asked: &mut Map<String, Value>, properties: &mut BTreeMap<String, String>) {
    let whole = Value::Object(asked.clone());
    if whole["jobType"] != "Parallel" {
        return;
    }
    if let Ok(settings) = Parallel::read(&whole) {
        asked.insert("command".into(), json!(worker_command(&settings)));
    }
    for (from, to) in [("code", "codeId"), ("environment", "environmentId")] {
        if let Some(id) = plain_id(&whole["task"][from]) {
            asked.insert(to.into(), json!(id));
        }
    }
    asked.insert("jobType".into(), json!("Command"));
    properties.insert("azureml.parallelrunstep".into(), "true".into());
    properties.insert("neap.jobType".into(), "Parallel".into());
}
