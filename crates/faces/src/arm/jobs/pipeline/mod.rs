//! Pipeline jobs: read as a whole, expanded into steps, submitted as one family, all of it or nothing.

mod bindings;
mod body;
mod component;
mod expand;
mod inputs;
mod order;
mod outputs;
mod reuse;
mod scope;

use std::collections::{BTreeMap, BTreeSet};

use neap_core::budget::tag_labels;
use neap_core::command::{NewMember, NewMemberKind, SubmitFamily};
use neap_core::documents::{BlobPath, JobDocument, JobMeta};
use neap_core::family::FamilyKind;
use neap_core::state::Workspace;
use neap_core::{Problem, Refusal};
use neap_ledger::{Document, JobRow};
use serde_json::{Map, Value, json};

use super::references::LedgerShelf;
use super::serverless::Serverless;
use super::write::read_meta;
use super::{compare, find, output_uri, parallel, ports, prepare, presence, read, sweep, write};
use crate::app::{self, App, unreadable};
use crate::ask::Ask;
use crate::durations;
use expand::{Around, Step, StepKind};
use outputs::Made;
use reuse::Earlier;

pub(super) use body::of_component as component_body;
pub(super) use component::{check_literal, find as find_component, is_literal};

pub(super) async fn submit(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<JobRow, Refusal> {
    let prepared = prepare(app, &ask.caller.actor, workspace, name, body).await?;
    prepared.submit(app, &ask.caller, workspace).await?;
    find(app, workspace, name)
}

/// A pipeline as one command, with what it needs.
pub(super) struct Whole {
    pub submit: SubmitFamily,
    pub documents: Vec<Document>,
    /// Clusters that Neap makes for it.
    pub serverless: BTreeSet<Serverless>,
}

/// The whole pipeline as one command, or everything that is wrong with it.
pub(super) fn read_whole(
    app: &App,
    owner: &str,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<Whole, Refusal> {
    let shelf = LedgerShelf { app, workspace };
    let earlier = |work: &str| earlier(app, workspace, work);
    let around = Around { shelf: &shelf, workspace, earlier: &earlier };
    let expansion = expand::expand(name, &body["properties"], &around)?;
    let mut reading =
        Reading { app, workspace, shelf: &shelf, problems: expansion.problems, serverless: BTreeSet::new() };
    let (meta, _) = read_meta(body, JobMeta::default(), &mut reading.problems);
    let timeout_ms = timeout(&body["properties"], &mut reading.problems);
    let (mut members, mut documents) = (Vec::new(), Vec::new());
    let mut steps = Vec::new();
    for (at, step) in expansion.steps.iter().enumerate() {
        let meta = if at == 0 { meta.clone() } else { step_meta(step, &mut reading.problems) };
        let (document, what) = reading.member(step, timeout_ms.filter(|_| at == 0))?;
        let tags = tag_labels(&meta.tags);
        let (kept, meta) = (app::document(&document)?, app::document(&meta)?);
        steps.push((step.place.as_str(), document));
        let document = kept;
        members.push(NewMember {
            name: step.name.as_str().into(),
            family: step.family,
            after: step.after.iter().copied().collect(),
            what,
            tags,
            document: document.hash,
            meta: meta.hash,
        });
        documents.extend([document, meta]);
    }
    let made: Vec<BlobPath> =
        steps.iter().flat_map(|(_, document)| document.outputs.values().map(|o| o.at().clone())).collect();
    for (place, document) in &steps {
        let missing = presence::missing_among(app, document, &made)?;
        reading.problems.extend(missing.into_iter().map(|problem| within(problem, place)));
    }
    let nowhere =
        |member: &NewMember| matches!(&member.what, NewMemberKind::Job { cluster, .. } if cluster.is_empty());
    let Reading { problems, serverless, .. } = reading;
    if members.iter().any(nowhere) {
        // There is no cluster to hold the step against; the rest of what is wrong is said now.
        return Err(Refusal { problems });
    }
    let submit = SubmitFamily { workspace: workspace.id, owner: owner.into(), members, problems };
    Ok(Whole { submit, documents: distinct(documents), serverless })
}

/// Steps of one pipeline often have the same metadata: a document is written once.
fn distinct(documents: Vec<Document>) -> Vec<Document> {
    let mut seen = std::collections::BTreeSet::new();
    documents.into_iter().filter(|document| seen.insert(document.hash)).collect()
}

/// A pipeline being read, with what was found on the way.
struct Reading<'a> {
    app: &'a App,
    workspace: &'a Workspace,
    shelf: &'a LedgerShelf<'a>,
    problems: Vec<Problem>,
    serverless: BTreeSet<Serverless>,
}

impl Reading<'_> {
    /// What a step becomes, with the problems of reading it named by its place in the pipeline.
    fn member(
        &mut self,
        step: &Step,
        timeout_ms: Option<u64>,
    ) -> Result<(JobDocument, NewMemberKind), Refusal> {
        match &step.what {
            StepKind::Pipeline { go_on, definition, outputs } => {
                let document = self.nested(step, definition, outputs)?;
                Ok((
                    document,
                    NewMemberKind::Family { kind: FamilyKind::Steps { go_on: *go_on }, timeout_ms },
                ))
            }
            StepKind::Job { body, .. } if body["properties"]["jobType"] == "Sweep" => {
                let mut found = Vec::new();
                let document =
                    sweep::read_sweep(self.app, &step.name, body, self.workspace, self.shelf, &mut found)?;
                self.problems.extend(found.into_iter().map(|problem| within(problem, &step.place)));
                Ok((document, NewMemberKind::Family { kind: FamilyKind::Driven, timeout_ms: None }))
            }
            StepKind::Job { body, .. } if body["properties"]["jobType"] == "Parallel" => {
                let mut found = Vec::new();
                let document = parallel::read_parallel(
                    self.app,
                    &step.name,
                    body,
                    self.workspace,
                    self.shelf,
                    &mut found,
                )?;
                self.problems.extend(found.into_iter().map(|problem| within(problem, &step.place)));
                Ok((document, NewMemberKind::Family { kind: FamilyKind::Driven, timeout_ms: None }))
            }
            StepKind::Job { body, work, reused, .. } => {
                let asked = read::read(&step.name, body, self.workspace, self.shelf)?;
                self.problems.extend(asked.problems.into_iter().map(|problem| within(problem, &step.place)));
                self.serverless.extend(asked.serverless);
                let what = NewMemberKind::Job {
                    cluster: asked.cluster.into(),
                    priority: asked.priority,
                    need: asked.need,
                    nodes: asked.nodes,
                    timeout_ms: asked.timeout_ms,
                    retry: asked.retry,
                    like: Some(write::like(&asked.document)),
                    tier: asked.tier,
                    work: work.as_deref().map(Into::into),
                    reused: reused.is_some(),
                };
                Ok((asked.document, what))
            }
        }
    }

    fn nested(
        &mut self,
        step: &Step,
        definition: &Value,
        outputs: &BTreeMap<String, Made>,
    ) -> Result<JobDocument, Refusal> {
        let empty = Map::new();
        let definition = definition.as_object().unwrap_or(&empty);
        let mut document = JobDocument {
            experiment: definition.get("experimentName").and_then(Value::as_str).unwrap_or("Default").into(),
            asked: compare::definition(definition),
            ..JobDocument::default()
        };
        ports::places_of(
            &step.name,
            &as_outputs(outputs),
            self.workspace,
            self.shelf,
            &mut document.outputs,
            &mut self.problems,
        )?;
        Ok(document)
    }
}

fn step_meta(step: &Step, problems: &mut Vec<Problem>) -> JobMeta {
    match &step.what {
        StepKind::Pipeline { definition, .. } => {
            read_meta(&json!({"properties": {"tags": definition["tags"]}}), JobMeta::default(), problems).0
        }
        StepKind::Job { body, reused, .. } => {
            let (mut meta, _) = read_meta(body, JobMeta::default(), problems);
            if let Some(job) = reused {
                meta.properties.insert("azureml.isreused".into(), "true".into());
                meta.properties.insert("azureml.reusedrunid".into(), job.clone());
            }
            meta
        }
    }
}

/// A problem of a step, told with the step's place in the pipeline.
fn within(problem: Problem, place: &str) -> Problem {
    let target = problem.target.map_or_else(|| place.to_owned(), |at| at.replacen("properties", place, 1));
    let step = place.rsplit("jobs.").next().unwrap_or(place);
    Problem { message: format!("Step '{step}': {}", problem.message), target: Some(target), ..problem }
}

fn as_outputs(made: &BTreeMap<String, Made>) -> Value {
    let outputs: Map<String, Value> = made
        .iter()
        .map(|(name, made)| (name.clone(), json!({"jobOutputType": made.kind, "uri": made.uri})))
        .collect();
    Value::Object(outputs)
}

fn timeout(properties: &Value, problems: &mut Vec<Problem>) -> Option<u64> {
    let asked = properties["limits"]["timeout"].as_str()?;
    match durations::parse_ms(asked).map(u64::try_from) {
        Ok(Ok(ms)) if ms > 0 => Some(ms),
        _ => {
            let place = "properties.limits.timeout";
            problems.push(crate::arm::errors::bad(format!("The timeout '{asked}' is no duration."), place));
            None
        }
    }
}

/// The newest job that did this work and still has what it made.
fn earlier(app: &App, workspace: &Workspace, work: &str) -> Result<Option<Earlier>, Refusal> {
    let Some(row) = app.control.reader().job_by_work(workspace.id, work).map_err(unreadable)? else {
        return Ok(None);
    };
    let document: JobDocument = app.document(&row.document)?;
    let outputs = document
        .outputs
        .iter()
        .map(|(name, output)| (name.clone(), output_uri(workspace, output).0))
        .collect();
    Ok(Some(Earlier { job: row.name, outputs }))
}
