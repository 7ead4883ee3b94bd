//! Sweep jobs: the request held against the rules at submission, and each trial made of it later.
//!
//! A sweep is a family that is driven from outside of the core (`crate::conduct`); its trials are ordinary jobs.

use neap_core::budget::tag_labels;
use neap_core::command::{NewMember, NewMemberKind, SubmitFamily};
use neap_core::documents::{JobDocument, JobMeta};
use neap_core::family::FamilyKind;
use neap_core::state::Workspace;
use neap_core::{Command, JobId, Problem, Refusal};
use neap_ledger::{Document, JobRow};
use neap_sweep::{Params, Sweep};
use serde_json::{Map, Value, json};

use super::references::{LedgerShelf, Shelf};
use super::write::read_meta;
use super::{compare, find, presence, read, write};
use crate::app::{self, App};
use crate::arm::errors::bad;
use crate::ask::Ask;

pub(super) async fn submit(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<JobRow, Refusal> {
    let (command, documents) = prepare(app, &ask.caller.actor, workspace, name, body)?;
    app.submit(&ask.caller, command, documents).await?;
    find(app, workspace, name)
}

pub(super) fn prepare(
    app: &App,
    owner: &str,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<(Command, Vec<Document>), Refusal> {
    let mut problems = Vec::new();
    let document = read_sweep(app, name, body, workspace, &LedgerShelf { app, workspace }, &mut problems)?;
    problems.extend(presence::missing_among(app, &document, &[])?);
    let (meta, _) = read_meta(body, JobMeta::default(), &mut problems);
    let tags = tag_labels(&meta.tags);
    let (document, meta) = (app::document(&document)?, app::document(&meta)?);
    let member = NewMember {
        name: name.into(),
        family: 0,
        after: Vec::new(),
        what: NewMemberKind::Family { kind: FamilyKind::Driven, timeout_ms: None },
        tags,
        document: document.hash,
        meta: meta.hash,
    };
    let submit =
        SubmitFamily { workspace: workspace.id, owner: owner.into(), members: vec![member], problems };
    Ok((Command::SubmitFamily(submit), vec![document, meta]))
}

/// The trials that would be submitted at once, for a forecast: the sweep is to be this job.
pub(super) fn first_wave(
    app: &App,
    owner: &str,
    workspace: &Workspace,
    (name, id): (&str, JobId),
    body: &Value,
    documents: &[Document],
) -> Result<Vec<Command>, Refusal> {
    let asked = &body["properties"];
    let Ok(sweep) = Sweep::read(asked) else { return Ok(Vec::new()) };
    let kept = documents.first().and_then(|document| serde_json::from_slice(&document.body).ok());
    let kept: JobDocument = kept.unwrap_or_default();
    let mut commands = Vec::new();
    for (number, params) in neap_sweep::next(&sweep, 0, &[], 0).start {
        let of = write::Sweep { name, id, owner, sources: &kept.sources };
        let (command, _, serverless) = write::trial(app, workspace, of, asked, number, &params)?;
        if let Some(wanted) = serverless.filter(|_| commands.is_empty()) {
            let put = super::serverless::put(app, workspace, &wanted)?;
            commands.extend(put.map(|(put, _)| Command::PutCluster(put)));
        }
        commands.push(command);
    }
    Ok(commands)
}

/// What is kept of a sweep. Its trial is read once as if it ran, so that nothing is found out only then.
pub(super) fn read_sweep(
    app: &App,
    name: &str,
    body: &Value,
    workspace: &Workspace,
    shelf: &dyn Shelf,
    problems: &mut Vec<Problem>,
) -> Result<JobDocument, Refusal> {
    let empty = Map::new();
    let properties = body["properties"].as_object().unwrap_or(&empty);
    let asked = &body["properties"];
    let params = match Sweep::read(asked) {
        Ok(sweep) => {
            for place in
                neap_sweep::unknown_places(asked["trial"]["command"].as_str().unwrap_or(""), &sweep.space)
            {
                problems.push(bad(
                    format!("The trial's command uses '{place}', which the search space does not have."),
                    "properties.trial.command",
                ));
            }
            let command = asked["trial"]["command"].as_str().unwrap_or("");
            let (bytes, most) = (
                neap_sweep::rendered_bytes_max(command, &sweep.space),
                neap_sweep::limits::COMMAND_BYTES_MAX,
            );
            if bytes > most {
                let message = format!(
                    "The trial's command may have {bytes} bytes once the values of the search space are filled in; at most {most} are taken. Give the trial its long values in a file."
                );
                problems.push(bad(message, "properties.trial.command"));
                None
            } else {
                neap_sweep::next(&sweep, 0, &[], 0).start.into_iter().next().map(|(_, params)| params)
            }
        }
        Err(found) => {
            problems.extend(found.into_iter().map(|problem| {
                bad(format!("'{}': {}.", problem.at, problem.says), &format!("properties.{}", problem.at))
            }));
            None
        }
    };
    let trial = trial_body(asked, 0, &params.unwrap_or_default());
    let read = read::read(name, &trial, workspace, shelf)?;
    // Its outputs are the best trial's, in places of the sweep's own.
    problems.extend(read.problems.into_iter().filter(|problem| !mentions_space(problem)).map(in_trial));
    if !read.cluster.is_empty()
        && read.serverless.is_none()
        && app.state().cluster(workspace.id, &read.cluster).is_none_or(|cluster| cluster.is_deleting())
    {
        problems.push(
            Problem::new(
                neap_core::Code::ComputeNotFound,
                format!(
                    "The compute '{}' was not found in this workspace; 'neap compute list' shows those there are.",
                    read.cluster
                ),
            )
            .at("properties.computeId"),
        );
    }
    Ok(JobDocument {
        experiment: read.document.experiment,
        // What is tried is each trial's own.
        inputs: read
            .document
            .inputs
            .into_iter()
            .filter(|(name, _)| !asked["inputs"][name].is_null())
            .collect(),
        outputs: read.document.outputs,
        sources: read.document.sources,
        asked: compare::definition(properties),
        ..JobDocument::default()
    })
}

/// Said already, with the name of what is missing.
fn mentions_space(problem: &Problem) -> bool {
    problem.message.contains("search_space.")
}

/// A problem of a trial, told where the user wrote it.
fn in_trial(problem: Problem) -> Problem {
    let target = problem.target.map(|at| {
        let of_trial = ["command", "codeId", "environmentId", "environmentVariables", "distribution"];
        let rest = at.strip_prefix("properties.").unwrap_or(&at);
        if of_trial.iter().any(|key| rest.starts_with(key)) { format!("properties.trial.{rest}") } else { at }
    });
    Problem { target, ..problem }
}

/// The body of a trial's job.
pub(crate) fn trial_body(asked: &Value, number: u32, params: &Params) -> Value {
    let trial = &asked["trial"];
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            out.insert(key.into(), value);
        }
    };
    put("jobType", json!("Command"));
    put("displayName", json!(format!("trial {number}")));
    put("command", json!(neap_sweep::render(trial["command"].as_str().unwrap_or(""), params)));
    for key in ["codeId", "environmentId", "distribution"] {
        put(key, trial[key].clone());
    }
    for key in ["experimentName", "computeId", "identity", "queueSettings", "services"] {
        put(key, asked[key].clone());
    }
    // A trial that is a component takes what is tried as an input of the same name.
    let mut inputs = asked["inputs"].as_object().cloned().unwrap_or_default();
    for (name, value) in params {
        let literal = json!({"jobInputType": "literal", "value": neap_sweep::print(value)});
        inputs.insert(name.clone(), literal);
    }
    put("inputs", Value::Object(inputs));
    let resources = if trial["resources"].is_object() { &trial["resources"] } else { &asked["resources"] };
    put("resources", resources.clone());
    let mut variables = trial["environmentVariables"].as_object().cloned().unwrap_or_default();
    variables.extend(neap_sweep::environment(params).into_iter().map(|(name, value)| (name, json!(value))));
    put("environmentVariables", Value::Object(variables));
    // Every trial has its own; those of the best are copied to the sweep's place at the end.
    let outputs: Map<String, Value> = asked["outputs"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, output)| {
            let mut output = output.as_object().cloned().unwrap_or_default();
            for key in ["uri", "assetName", "assetVersion"] {
                output.remove(key);
            }
            (name.clone(), Value::Object(output))
        })
        .collect();
    put("outputs", Value::Object(outputs));
    let timeout = &asked["limits"]["trialTimeout"];
    let timeout = timeout.as_u64().map_or_else(|| timeout.clone(), |seconds| json!(format!("PT{seconds}S")));
    if timeout.is_string() {
        put("limits", json!({"jobLimitsType": "Command", "timeout": timeout}));
    }
    put("tags", json!({"hyperparameters": Value::Object(params.clone()).to_string()}));
    json!({"properties": out})
}
