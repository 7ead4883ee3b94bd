//! Calls of an endpoint, each a job, and the jobs that calls made.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::documents::JobMeta;
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use neap_ledger::{Archived, JobFilter, JobRow};
use serde_json::{Value, json};

use super::endpoints::such_as;
use super::job::{self, Called, DEPLOYMENT_PROPERTY, ENDPOINT_PROPERTY, Scoring};
use super::made::Owner;
use super::record::{self, Kept, Which};
use super::{call, deployments, endpoints, read, rehearse};
use crate::app::{App, unreadable};
use crate::arm::{errors, jobs, paths, system_data};
use crate::ask::Ask;
use crate::{limits, reply};

/// The header by which a call names a deployment.
const DEPLOYMENT_HEADER: &str = "azureml-model-deployment";
/// A client that had no answer sends the same call with the same id again.
const REPEATABILITY_HEADERS: [&str; 2] = ["repeatability-request-id", "repeatability_request-id"];

pub(super) async fn post(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    endpoint: &str,
    deployment: Option<&str>,
) -> Result<Response, Refusal> {
    let owner = record::find(app, workspace, Which::endpoint(endpoint))?;
    let kept = called(app, ask, workspace, &owner, deployment)?;
    let at = Called { endpoint, deployment: &kept.name };
    let call::Read { name, call, mut problems } =
        call::read(&ask.json()?, read::is_pipeline(&kept.properties));
    let repeated = repeatability(ask);
    let is_repeatable = name.is_none() && repeated.is_some();
    let name = match (name, repeated) {
        (Some(name), _) => name,
        (None, Some(id)) => format!("batchjob-{id}"),
        (None, None) => deployments::new_job_name()?,
    };
    if is_repeatable && let Some(again) = there(app, workspace, at, &name)? {
        return Ok(reply::json(StatusCode::CREATED, &answer(workspace, at.endpoint, &again)));
    }
    problems.extend(neap_core::names::check_job_name(&name));
    let body = body(app, ask, workspace, at, &kept, &call, &name, problems).await?;
    let prepared = jobs::prepare(app, &ask.caller.actor, workspace, &name, &body).await?;
    match prepared.submit(app, &ask.caller, workspace).await {
        Ok(()) => {}
        // Somebody was quicker with the same call.
        Err(refusal) if is_repeatable && refusal.code() == Code::JobNameTaken => {
            let again = there(app, workspace, at, &name)?.ok_or(refusal)?;
            return Ok(reply::json(StatusCode::CREATED, &answer(workspace, endpoint, &again)));
        }
        Err(refusal) => return Err(refusal),
    }
    let row = jobs::find(app, workspace, &name)?;
    let meta: JobMeta = app.document(&row.meta)?;
    let job = answer(workspace, endpoint, &(row, meta));
    let mut response = reply::json(StatusCode::CREATED, &job);
    reply::set(&mut response, "location", &format!("{}{}", ask.base, job["id"].as_str().unwrap_or("")));
    Ok(response)
}

/// The deployment that a call is for: named in the path, in a header, or the endpoint's default.
fn called(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    endpoint: &Kept,
    named: Option<&str>,
) -> Result<Kept, Refusal> {
    let default = endpoint.properties["defaults"]["deploymentName"].as_str();
    let wanted = named.or_else(|| ask.header(DEPLOYMENT_HEADER)).or(default);
    if let Some(name) = wanted
        && let Some(kept) = record::look(app, workspace, Which::deployment(&endpoint.name, name))?
    {
        return Ok(kept);
    }
    let there = record::deployments(app, workspace, &endpoint.name)?;
    let names: Vec<&str> = there.iter().map(|kept| kept.name.as_str()).collect();
    let (endpoint, names) = (&endpoint.name, such_as(&names));
    Err(match wanted {
        Some(name) => Refusal::because(
            Code::ResourceNotFound,
            format!("The batch endpoint '{endpoint}' has no deployment '{name}'{names}."),
        ),
        None => Refusal::because(
            Code::BadArgument,
            format!(
                "The batch endpoint '{endpoint}' has no default deployment; name one in the header '{DEPLOYMENT_HEADER}', or set defaults.deploymentName{names}."
            ),
        ),
    })
}

fn repeatability(ask: &Ask) -> Option<String> {
    let id = REPEATABILITY_HEADERS.iter().find_map(|name| ask.header(name))?;
    let good = id.len() <= limits::REPEATABILITY_ID_CHARS_MAX
        && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    good.then(|| id.to_ascii_lowercase())
}

/// The body of the job, or everything that is wrong with the call and, by now, with the deployment.
#[allow(clippy::too_many_arguments, reason = "a call, where it is made, and what was found so far")]
async fn body(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    at: Called<'_>,
    kept: &Kept,
    call: &job::Call,
    name: &str,
    mut problems: Vec<Problem>,
) -> Result<Value, Refusal> {
    let actor = &ask.caller.actor;
    if read::is_pipeline(&kept.properties) {
        let Some(spec) = deployments::spec_of(app, workspace, &kept.properties, &mut problems)? else {
            return Err(Refusal { problems });
        };
        let (body, found) = job::of_pipeline(at, &kept.properties, &spec, call);
        problems.extend(found);
        let found = rehearse::problems(app, actor, workspace, name, &body, &problems).await?;
        // The steps were looked at with the deployment: what is wrong in them now follows from what the call lacks.
        let follows = |problem: &Problem| {
            problem.target.as_deref().is_some_and(|at| at.starts_with("properties.jobs."))
        };
        let lacking = !problems.is_empty();
        problems.extend(found.into_iter().filter(|problem| !(lacking && follows(problem))));
        Refusal::unless_empty(problems)?;
        return Ok(body);
    }
    let read = read::read(&json!({"properties": job::changed(&kept.properties, call)}));
    problems.extend(read.problems);
    let properties = deployments::with_made(&read.properties, &kept.made);
    let model = deployments::model_of(app, workspace, &properties, &mut problems)?;
    let component = job::component(&properties, model.as_ref());
    let body = job::of_model(at, &properties, model.as_ref(), call, Scoring::Written(&component));
    let found = rehearse::problems(app, actor, workspace, name, &body, &problems).await?;
    problems.extend(found);
    Refusal::unless_empty(problems)?;
    let id = Owner { app, caller: &ask.caller, workspace }.component(&component).await?;
    Ok(job::of_model(at, &properties, model.as_ref(), call, Scoring::Registered(&id)))
}

type Job = (JobRow, JobMeta);

/// The job that the same call made before, if it did.
fn there(app: &App, workspace: &Workspace, at: Called<'_>, name: &str) -> Result<Option<Job>, Refusal> {
    let Some(row) = app.control.reader().job(workspace.id, name).map_err(unreadable)? else {
        return Ok(None);
    };
    let meta: JobMeta = app.document(&row.meta)?;
    Ok(is_of(&meta, at.endpoint, Some(at.deployment)).then_some((row, meta)))
}

fn is_of(meta: &JobMeta, endpoint: &str, deployment: Option<&str>) -> bool {
    let has = |key: &str, value: &str| meta.properties.get(key).is_some_and(|found| found == value);
    has(ENDPOINT_PROPERTY, endpoint) && deployment.is_none_or(|name| has(DEPLOYMENT_PROPERTY, name))
}

pub(super) fn get(
    app: &App,
    workspace: &Workspace,
    endpoint: &str,
    deployment: Option<&str>,
    name: &str,
) -> Result<Response, Refusal> {
    let row = jobs::find(app, workspace, name)?;
    let meta: JobMeta = app.document(&row.meta)?;
    if !is_of(&meta, endpoint, deployment) {
        return Err(errors::not_found("batch job", name));
    }
    Ok(reply::ok(&answer(workspace, endpoint, &(row, meta))))
}

/// Newest first. An endpoint or deployment that is gone has none to list; its jobs are among all others.
pub(super) fn list(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    endpoint: &str,
    deployment: Option<&str>,
) -> Result<Response, Refusal> {
    // A client that was given no deployment says so in its own words.
    let deployment = deployment.filter(|name| *name != "None");
    record::find(app, workspace, Which { endpoint, deployment })?;
    let filter = JobFilter { archived: Archived::All, ..JobFilter::default() };
    let mut before = ask.query.get("$skip").map(jobs::cursor).transpose()?;
    let (mut value, mut looked_at, mut more) = (Vec::new(), 0, true);
    while more && value.len() < limits::PAGE_ROWS && looked_at < limits::PAGE_SCAN_ROWS_MAX {
        let reader = app.control.reader();
        let rows =
            reader.jobs(workspace.id, &filter, before, limits::PAGE_ROWS as u32).map_err(unreadable)?;
        more = rows.len() == limits::PAGE_ROWS;
        looked_at += rows.len();
        for row in rows {
            before = Some(row.id);
            let meta: JobMeta = app.document(&row.meta)?;
            if is_of(&meta, endpoint, deployment) {
                value.push(answer(workspace, endpoint, &(row, meta)));
            }
        }
    }
    let next = before.filter(|_| more).map(|id| {
        let path = format!("/{}", ask.segments.join("/"));
        format!("{}{path}?{}", ask.base, ask.query.with("$skip", &format!("j{id}")))
    });
    Ok(reply::ok(&json!({"value": value, "nextLink": next})))
}

fn answer(workspace: &Workspace, endpoint: &str, (row, meta): &Job) -> Value {
    json!({
        "id": format!("{}/jobs/{}", endpoints::id(workspace, endpoint), row.name),
        "name": row.name,
        "type": format!("{}/workspaces/batchEndpoints/jobs", paths::NAMESPACE),
        "properties": {
            "status": row.status.word(),
            "displayName": meta.display_name,
            "endpoint": endpoint,
            "deployment": meta.properties.get(DEPLOYMENT_PROPERTY),
            "jobId": paths::child_id(workspace, &format!("jobs/{}", row.name)),
        },
        "systemData": system_data(&row.owner, row.created, row.ended.or(row.started).unwrap_or(row.created)),
    })
}
