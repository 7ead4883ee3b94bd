//! Deployments of batch endpoints: parse → problems → command → answer.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::{Value, json};

use super::job::{self, Called, Model, Scoring};
use super::made::Owner;
use super::record::{self, Content, Kept, Which};
use super::{check_name, endpoints, read, rehearse};
use crate::app::{App, internal};
use crate::arm::errors::bad;
use crate::arm::{jobs, paths};
use crate::ask::Ask;
use crate::{limits, reply};

pub(super) fn get(app: &App, workspace: &Workspace, endpoint: &str, name: &str) -> Result<Response, Refusal> {
    let kept = record::find(app, workspace, Which::deployment(endpoint, name))?;
    Ok(reply::ok(&answer(workspace, endpoint, &kept)))
}

pub(super) fn list(app: &App, workspace: &Workspace, endpoint: &str) -> Result<Response, Refusal> {
    record::find(app, workspace, Which::endpoint(endpoint))?;
    let kept = record::deployments(app, workspace, endpoint)?;
    let value: Vec<Value> = kept.iter().map(|kept| answer(workspace, endpoint, kept)).collect();
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

pub(super) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    endpoint: &str,
    name: &str,
) -> Result<Response, Refusal> {
    record::find(app, workspace, Which::endpoint(endpoint))?;
    let before = record::look(app, workspace, Which::deployment(endpoint, name))?;
    let at = Called { endpoint, deployment: name };
    let kept = write(app, ask, workspace, at, &ask.json()?, before.as_ref()).await?;
    let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(reply::json(status, &answer(workspace, endpoint, &kept)))
}

/// Fields that are there replace those that were.
pub(super) async fn patch(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    endpoint: &str,
    name: &str,
) -> Result<Response, Refusal> {
    let before = record::find(app, workspace, Which::deployment(endpoint, name))?;
    let body = endpoints::merged(&before, &ask.json()?);
    let at = Called { endpoint, deployment: name };
    let kept = write(app, ask, workspace, at, &body, Some(&before)).await?;
    Ok(reply::ok(&answer(workspace, endpoint, &kept)))
}

async fn write(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    at: Called<'_>,
    body: &Value,
    before: Option<&Kept>,
) -> Result<Kept, Refusal> {
    let read::Read { tags, properties, mut problems } = read::read(body);
    problems.extend(check_name(at.deployment, "deployment"));
    let there = record::deployments(app, workspace, at.endpoint)?.len();
    if before.is_none() && there >= limits::BATCH_DEPLOYMENTS_MAX {
        let message = format!("The endpoint has {there} deployments; delete one that is not needed.");
        problems.push(Problem::new(Code::LimitReached, message));
    }
    let made = look(app, ask, workspace, at, &properties, &mut problems).await?;
    Refusal::unless_empty(problems)?;
    let which = Which::deployment(at.endpoint, at.deployment);
    let content = Content { tags, properties, made };
    record::put(app, &ask.caller, workspace, which, before, content).await
}

/// What is wrong with that which a deployment points at; what Neap made for it.
async fn look(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    at: Called<'_>,
    properties: &Value,
    problems: &mut Vec<Problem>,
) -> Result<Value, Refusal> {
    let owner = Owner { app, caller: &ask.caller, workspace };
    let name = new_job_name()?;
    if read::is_pipeline(properties) {
        let Some(spec) = spec_of(app, workspace, properties, problems)? else { return Ok(Value::Null) };
        let call = rehearse::call(app, workspace, Some(&spec)).await?;
        let (body, found) = job::of_pipeline(at, properties, &spec, &call);
        problems.extend(found);
        let found = rehearse::problems(app, &ask.caller.actor, workspace, &name, &body, problems).await?;
        problems.extend(found);
        return Ok(Value::Null);
    }
    let model = model_of(app, workspace, properties, problems)?;
    let mut made = Value::Null;
    if properties["codeConfiguration"].is_null() {
        match &model {
            Some(model) if model.kind != "mlflow_model" => problems.push(bad(
                format!("The model is a {}, which needs a 'codeConfiguration' with a scoring script; only an MLflow model (mlflow_model) does without.", model.kind),
                "properties.codeConfiguration",
            )),
            Some(model) if problems.is_empty() => match owner.for_mlflow(properties, model).await? {
                Ok(given) => made = given,
                Err(problem) => problems.push(problem),
            },
            _ => {}
        }
    }
    let is_complete = !properties["codeConfiguration"].is_null() || !made.is_null();
    let effective = with_made(properties, &made);
    let component = job::component(&effective, model.as_ref());
    let call = rehearse::call(app, workspace, None).await?;
    let body = job::of_model(at, &effective, model.as_ref(), &call, Scoring::Written(&component));
    let found = rehearse::problems(app, &ask.caller.actor, workspace, &name, &body, problems).await?;
    // Where there is no script, what is wrong with its absence has been said.
    let of_script = |problem: &Problem| {
        let at = problem.target.as_deref().unwrap_or("");
        at.starts_with("properties.codeConfiguration") || at.starts_with("properties.environmentId")
    };
    problems.extend(found.into_iter().filter(|problem| is_complete || !of_script(problem)));
    Ok(made)
}

/// A deployment's properties with what Neap made where they say nothing.
pub(super) fn with_made(properties: &Value, made: &Value) -> Value {
    let mut out = properties.clone();
    for (key, value) in made.as_object().into_iter().flatten() {
        if out[key.as_str()].is_null() {
            out[key.as_str()] = value.clone();
        }
    }
    out
}

/// The model that a deployment names, or the problem with it.
pub(super) fn model_of(
    app: &App,
    workspace: &Workspace,
    properties: &Value,
    problems: &mut Vec<Problem>,
) -> Result<Option<Model>, Refusal> {
    let place = "properties.model.assetId";
    let Some(id) = properties["model"]["assetId"].as_str().filter(|id| !id.is_empty()) else {
        return Ok(None);
    };
    let found = match jobs::model(app, workspace, id, place)? {
        Ok(found) => found,
        Err(problem) => {
            problems.push(problem);
            return Ok(None);
        }
    };
    let kind = found["modelType"].as_str().unwrap_or("custom_model").to_owned();
    Ok(Some(Model { id: id.to_owned(), kind }))
}

/// The pipeline component that a deployment names, or the problem with it.
pub(super) fn spec_of(
    app: &App,
    workspace: &Workspace,
    properties: &Value,
    problems: &mut Vec<Problem>,
) -> Result<Option<Value>, Refusal> {
    let place = "properties.deploymentConfiguration.componentId.assetId";
    let id = properties["deploymentConfiguration"]["componentId"]["assetId"].as_str().unwrap_or("");
    if id.is_empty() {
        return Ok(None);
    }
    match jobs::component(app, workspace, id, place)? {
        Ok(spec)
            if spec["type"] == "pipeline"
                && spec["jobs"].as_object().is_some_and(|jobs| !jobs.is_empty()) =>
        {
            return Ok(Some(spec));
        }
        Ok(spec) => {
            let kind = spec["type"].as_str().unwrap_or("unknown");
            let message = if kind == "pipeline" {
                format!("The component '{id}' is a pipeline without steps; register it with its 'jobs'.")
            } else {
                format!(
                    "The component '{id}' is of type {kind}; a batch deployment runs one of type pipeline."
                )
            };
            problems.push(bad(message, place));
        }
        Err(problem) => problems.push(problem),
    }
    Ok(None)
}

pub(super) fn new_job_name() -> Result<String, Refusal> {
    let guid = neap_identity::random_guid().map_err(|e| internal(e.to_string()))?;
    Ok(format!("batchjob-{guid}"))
}

/// Its jobs stay and go on. An endpoint whose default it was has none.
pub(super) async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    endpoint: &str,
    name: &str,
) -> Result<Response, Refusal> {
    let which = Which::deployment(endpoint, name);
    if record::look(app, workspace, Which::endpoint(endpoint))?.is_none()
        || record::look(app, workspace, which)?.is_none()
    {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    endpoints::forget_default(app, ask, workspace, endpoint, name).await?;
    record::delete(app, &ask.caller, workspace, which).await?;
    Ok(reply::empty(StatusCode::OK))
}

fn answer(workspace: &Workspace, endpoint: &str, kept: &Kept) -> Value {
    let mut properties = kept.properties.as_object().cloned().unwrap_or_default();
    properties.insert("provisioningState".into(), json!("Succeeded"));
    json!({
        "id": format!("{}/deployments/{}", endpoints::id(workspace, endpoint), kept.name),
        "name": kept.name,
        "type": format!("{}/workspaces/batchEndpoints/deployments", paths::NAMESPACE),
        "location": workspace.location,
        "tags": kept.tags,
        "properties": properties,
        "systemData": kept.system_data(),
    })
}
