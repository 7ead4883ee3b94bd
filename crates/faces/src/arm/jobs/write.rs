//! Submitting jobs, and editing what may be edited.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::budget::{self, tag_labels};
use neap_core::command::SubmitJob;
use neap_core::documents::{JobDocument, JobMeta, Sources};
use neap_core::family::Family;
use neap_core::history::Like;
use neap_core::lock::{self, Act, LockScope};
use neap_core::meter::Payer;
use neap_core::state::Workspace;
use neap_core::{Code, Command, DocHash, JobId, Problem, Refusal};
use neap_ledger::{Document, JobRow};
use serde_json::{Map, Value};

use super::references::LedgerShelf;
use super::serverless::Serverless;
use super::{
    Prepared, advice, answer, apart, compare, find, instance, preflight, presence, read, serverless, sources,
};
use crate::app::{self, App, unreadable};
use crate::ask::Ask;
use crate::fields::{Fields, check_labels};
use crate::reply;

pub(crate) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let body = ask.json()?;
    if let Some(id) = app.state().job_named(workspace.id, name) {
        let row =
            app.control.reader().job_by_id(id).map_err(unreadable)?.ok_or_else(|| name_used_up(name))?;
        return update(app, ask, workspace, row, &body).await;
    }
    let kind = body["properties"]["jobType"].as_str().unwrap_or("").to_ascii_lowercase();
    let submitted = match kind.as_str() {
        "pipeline" => super::pipeline::submit(app, ask, workspace, name, &body).await,
        "sweep" => super::sweep::submit(app, ask, workspace, name, &body).await,
        _ => submit(app, ask, workspace, name, &body).await,
    };
    match submitted {
        Ok(row) => {
            let mut shown = answer(app, &ask.base, workspace, &row)?;
            let mut warnings = never_paid_for(app, workspace, name);
            warnings.extend(apart::warnings(app, workspace, name, &body)?);
            warnings.extend(advice::unsaved(app, workspace, name, &body));
            if !warnings.is_empty() {
                shown["properties"]["properties"]["neapWarnings"] = warnings.join(" ").into();
            }
            let mut response = reply::json(StatusCode::CREATED, &shown);
            let at =
                format!("{}{}", ask.base, crate::arm::paths::child_id(workspace, &format!("jobs/{name}")));
            reply::set(&mut response, "location", &at);
            Ok(response)
        }
        // The same PUT was quicker on another connection: then this one is the update.
        Err(refusal) if refusal.code() == Code::JobNameTaken => {
            match app.control.reader().job(workspace.id, name).map_err(unreadable)? {
                Some(row) => update(app, ask, workspace, row, &body).await,
                None => Err(refusal),
            }
        }
        Err(refusal) => Err(refusal),
    }
}

/// Budgets under which the job can never start: it is taken, waits, and is told so.
fn never_paid_for(app: &App, workspace: &Workspace, name: &str) -> Vec<String> {
    let state = app.state();
    if state.budgets.is_empty() {
        return Vec::new();
    }
    let job = state.job_named(workspace.id, name).and_then(|id| state.jobs.get(&id));
    let found = job.and_then(|job| Some((job, state.clusters.get(&job.cluster)?)));
    found.map_or_else(Vec::new, |(job, cluster)| {
        budget::never(&state, cluster, &Payer::of(&state, job), job.nodes)
    })
}

fn name_used_up(name: &str) -> Refusal {
    Refusal::because(
        Code::JobNameTaken,
        format!(
            "The name '{name}' belonged to a job that was deleted; a job name is used once. Choose another."
        ),
    )
}

async fn submit(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<JobRow, Refusal> {
    let prepared = prepare(app, &ask.caller.actor, workspace, name, body).await?;
    let meta = prepared.documents.last().map(|meta| meta.hash);
    prepared.submit(app, &ask.caller, workspace).await?;
    meta.map_or_else(|| find(app, workspace, name), |meta| row_of(app, workspace, name, meta))
}

pub(super) async fn prepare(
    app: &App,
    owner: &str,
    workspace: &Workspace,
    name: &str,
    body: &Value,
) -> Result<Prepared, Refusal> {
    let mut asked = read::read(name, body, workspace, &LedgerShelf { app, workspace })?;
    let mut problems = asked.problems;
    problems.extend(presence::missing(app, &asked.document).await?);
    problems.extend(preflight::check(app, workspace, &asked.cluster, &mut asked.document).await?);
    let (meta, _) = read_meta(body, JobMeta::default(), &mut problems);
    if asked.cluster.is_empty() {
        // There is no cluster to hold the job against; the rest of what is wrong is said now.
        problems.extend(neap_core::names::check_job_name(name));
        return Err(Refusal { problems });
    }
    let serverless = asked.serverless.into_iter().collect();
    let tags = tag_labels(&meta.tags);
    let (document, meta) = (app::document(&asked.document)?, app::document(&meta)?);
    let command = Command::SubmitJob(SubmitJob {
        workspace: workspace.id,
        name: name.into(),
        cluster: asked.cluster.into(),
        owner: owner.into(),
        priority: asked.priority,
        need: asked.need,
        nodes: asked.nodes,
        family: None,
        tags,
        timeout_ms: asked.timeout_ms,
        retry: asked.retry,
        like: Some(like(&asked.document)),
        tier: asked.tier,
        document: document.hash,
        meta: meta.hash,
        problems,
    });
    Ok(Prepared { command, documents: vec![document, meta], serverless })
}

/// A trial of a sweep, under a name that says which. One that is there already is not submitted again.
pub(crate) async fn submit_trial(
    app: &App,
    workspace: &Workspace,
    sweep: &Family,
    asked: &Value,
    number: u32,
    params: &neap_sweep::Params,
) -> Result<(), Refusal> {
    let sources = app.document::<JobDocument>(&sweep.document)?.sources;
    let of = Sweep { name: &sweep.name, id: sweep.id, owner: &sweep.owner, sources: &sources };
    let (command, documents, serverless) = trial(app, workspace, of, asked, number, params)?;
    if let Some(wanted) = serverless {
        serverless::ensure(app, &crate::conduct::conductor(), workspace, &wanted).await?;
    }
    app.submit(&crate::conduct::conductor(), command, documents).await.map(drop)
}

/// The sweep that a trial is one of.
#[derive(Clone, Copy)]
pub(super) struct Sweep<'a> {
    pub name: &'a str,
    pub id: JobId,
    pub owner: &'a str,
    pub sources: &'a Sources,
}

/// A trial as the command that submits it, and the cluster that Neap makes for it.
pub(super) fn trial(
    app: &App,
    workspace: &Workspace,
    sweep: Sweep<'_>,
    asked: &Value,
    number: u32,
    params: &neap_sweep::Params,
) -> Result<(Command, Vec<Document>, Option<Serverless>), Refusal> {
    let name = format!("{}_{number}", sweep.name);
    let mut body = super::sweep::trial_body(asked, number, params);
    sources::pin(&mut body, sweep.sources);
    let mut read = read::read(&name, &body, workspace, &LedgerShelf { app, workspace })?;
    read.document.hyperparameters = Some(Value::Object(params.clone()));
    let (meta, _) = read_meta(&body, JobMeta::default(), &mut read.problems);
    let serverless = read.serverless.filter(|_| read.problems.is_empty());
    let tags = tag_labels(&meta.tags);
    let (document, meta) = (app::document(&read.document)?, app::document(&meta)?);
    let command = Command::SubmitJob(SubmitJob {
        workspace: workspace.id,
        name: name.as_str().into(),
        cluster: read.cluster.into(),
        owner: sweep.owner.into(),
        priority: read.priority,
        need: read.need,
        nodes: read.nodes,
        family: Some(sweep.id),
        tags,
        timeout_ms: read.timeout_ms,
        retry: read.retry,
        // Its own command has values in it that no other trial has.
        like: Some(Like::of(
            &read.document.experiment,
            asked["trial"]["command"].as_str().unwrap_or_default(),
            &code_name(&read.document),
        )),
        tier: read.tier,
        document: document.hash,
        meta: meta.hash,
        problems: read.problems,
    });
    Ok((command, vec![document, meta], serverless))
}

/// What a job does, for finding others like it: its experiment, its command as it was written, and its code.
pub(super) fn like(document: &JobDocument) -> Like {
    Like::of(&document.experiment, &document.command, &code_name(document))
}

fn code_name(document: &JobDocument) -> String {
    let hash = document.sources.code_hash.clone();
    hash.or_else(|| document.code.as_ref().map(|at| at.path.clone())).unwrap_or_default()
}

/// The job just submitted: from the state while it waits; from the tables if it is further by now.
fn row_of(app: &App, workspace: &Workspace, name: &str, meta: DocHash) -> Result<JobRow, Refusal> {
    let state = app.state();
    let waits = || {
        let job = state.jobs.get(&state.job_named(workspace.id, name)?)?;
        JobRow::submitted(job, &state.clusters.get(&job.cluster)?.name, meta)
    };
    waits().map_or_else(|| find(app, workspace, name), Ok)
}

/// A PUT under a used name: the same definition, perhaps with other metadata, or a refusal that names the differences.
async fn update(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    row: JobRow,
    body: &Value,
) -> Result<Response, Refusal> {
    let kept: JobDocument = app.document(&row.document)?;
    let body = &*instance::filled(body, workspace, &LedgerShelf { app, workspace }, &mut Vec::new())?;
    let asked = compare::definition(body.get("properties").and_then(Value::as_object).unwrap_or(&Map::new()));
    let differing = compare::differing_fields(&kept.asked, &asked);
    if !differing.is_empty() {
        return Err(Refusal::because(
            Code::JobNameTaken,
            format!(
                "A job named '{}' exists with another definition; these differ: {}. Choose another name; tags, description, displayName, properties and isArchived can be changed.",
                row.name,
                differing.join(", ")
            ),
        ));
    }
    let mut problems = Vec::new();
    let meta: JobMeta = app.document(&row.meta)?;
    let (changed, archived) = read_meta(body, meta.clone(), &mut problems);
    Refusal::unless_empty(problems)?;
    if meta != changed || archived.is_some_and(|archived| archived != row.archived) {
        lock::check(&app.state(), &LockScope::Workspace(workspace.id), Act::Change)?;
    }
    let row = keep(app, ask, row, &meta, changed, archived).await?;
    Ok(reply::ok(&answer(app, &ask.base, workspace, &row)?))
}

/// Changes what may be changed of a job, from the fields of `edits` that are there. Used by run history.
pub(crate) async fn edit(
    app: &App,
    ask: &Ask,
    row: JobRow,
    edits: &Value,
    archived: Option<bool>,
) -> Result<JobRow, Refusal> {
    let mut problems = Vec::new();
    let meta: JobMeta = app.document(&row.meta)?;
    let body = serde_json::json!({"properties": edits});
    let (changed, _) = read_meta(&body, meta.clone(), &mut problems);
    Refusal::unless_empty(problems)?;
    keep(app, ask, row, &meta, changed, archived).await
}

async fn keep(
    app: &App,
    ask: &Ask,
    row: JobRow,
    before: &JobMeta,
    meta: JobMeta,
    archived: Option<bool>,
) -> Result<JobRow, Refusal> {
    let archived = archived.unwrap_or(row.archived);
    if *before == meta && archived == row.archived {
        return Ok(row);
    }
    let kept = app::document(&meta)?;
    app.submit(&ask.caller, Command::UpdateJob { job: row.id, meta: kept.hash, archived }, vec![kept])
        .await?;
    app.control.reader().job_by_id(row.id).map_err(unreadable)?.ok_or_else(|| name_used_up(&row.name))
}

/// What is absent stays; Neap's own facts, which GET adds, are not taken for the user's.
pub(super) fn read_meta(
    body: &Value,
    mut meta: JobMeta,
    problems: &mut Vec<Problem>,
) -> (JobMeta, Option<bool>) {
    let fields = Fields::of(body.get("properties"), "properties", problems);
    check_labels(&fields, problems);
    if let Some(name) = fields.text("displayName", problems) {
        meta.display_name = Some(name.into());
    }
    if let Some(description) = fields.text("description", problems) {
        meta.description = Some(description.into());
    }
    if let Some(tags) = fields.strings("tags", problems) {
        meta.tags = tags;
    }
    if let Some(mut properties) = fields.strings("properties", problems) {
        properties.retain(|key, _| !key.starts_with("neap."));
        meta.properties = properties;
    }
    (meta, fields.flag("isArchived", problems))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_is_taken_and_absent_parts_stay() {
        let mut problems = Vec::new();
        let before = JobMeta {
            description: Some("d".into()),
            tags: [("a".into(), "1".into())].into(),
            ..JobMeta::default()
        };
        let body = json!({"properties": {"displayName": "x", "properties": {"p": "1", "neap.node": "n-1"}, "isArchived": true}});
        let (meta, archived) = read_meta(&body, before, &mut problems);
        assert_eq!(problems, []);
        assert_eq!(archived, Some(true));
        assert_eq!(
            (meta.display_name.as_deref(), meta.description.as_deref(), meta.tags.len()),
            (Some("x"), Some("d"), 1)
        );
        assert_eq!(meta.properties.keys().collect::<Vec<_>>(), ["p"]);
    }
}
