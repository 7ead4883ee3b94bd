//! Schedules: parse → problems → command → answer. What fires when its time has come is `crate::conduct`.

mod fill;
mod fire;
mod read;

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::command::PutSchedule;
use neap_core::documents::ScheduleDocument;
use neap_core::schedule::{Firing, Schedule};
use neap_core::state::Workspace;
use neap_core::{Code, Command, Millis, Refusal};
use serde_json::{Map, Value, json};

use super::errors::bad;
use super::{paths, system_data};
use crate::app::{self, App};
use crate::ask::Ask;
use crate::reply;

pub(crate) use fire::{fire, is_lasting, record};

fn find(app: &App, workspace: &Workspace, name: &str) -> Result<std::sync::Arc<Schedule>, Refusal> {
    app.state().schedule(workspace.id, name).cloned().ok_or_else(|| {
        Refusal::because(Code::ResourceNotFound, format!("The schedule '{name}' was not found."))
    })
}

pub(crate) fn get(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    Ok(reply::ok(&answer(app, workspace, &*find(app, workspace, name)?)?))
}

pub(crate) fn list(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let view = ask.query.get("listViewType").unwrap_or("EnabledOnly").to_ascii_lowercase();
    let shown = |schedule: &Schedule| match view.as_str() {
        "all" => Ok(true),
        "enabledonly" => Ok(schedule.enabled),
        "disabledonly" => Ok(!schedule.enabled),
        _ => Err(Refusal::from(bad(
            format!("'{view}' is no view of schedules: EnabledOnly, DisabledOnly or All."),
            "listViewType",
        ))),
    };
    let mut value = Vec::new();
    for schedule in app.state().schedules_of(workspace.id) {
        if shown(schedule)? {
            value.push(answer(app, workspace, schedule)?);
        }
    }
    Ok(reply::ok(&json!({"value": value})))
}

pub(crate) async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let asked = ask.json()?["properties"].clone();
    let created = write(app, ask, workspace, name, &asked).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(reply::json(status, &answer(app, workspace, &*find(app, workspace, name)?)?))
}

/// Fields that are there replace those that were.
pub(crate) async fn patch(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let schedule = find(app, workspace, name)?;
    let kept: ScheduleDocument = app.document(&schedule.document)?;
    let mut asked = kept.asked.as_object().cloned().unwrap_or_default();
    // As it was understood: the job that it refers to may be gone.
    asked.insert("action".into(), action_of(&kept));
    for (key, value) in ask.json()?["properties"].as_object().into_iter().flatten() {
        asked.insert(key.clone(), value.clone());
    }
    write(app, ask, workspace, name, &Value::Object(asked)).await?;
    Ok(reply::ok(&answer(app, workspace, &*find(app, workspace, name)?)?))
}

/// True if it is new.
async fn write(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
    asked: &Value,
) -> Result<bool, Refusal> {
    let (state, now) = (app.state(), app.now());
    let current = state.schedule(workspace.id, name);
    let kept: Option<ScheduleDocument> =
        current.map(|schedule| app.document(&schedule.document)).transpose()?;
    let owner = current.map_or_else(|| ask.caller.actor.clone(), |schedule| schedule.owner.to_string());
    let mut read = read::read(asked, |id| read::source_job(app, workspace, id))?;
    let enabled = read.enabled.or(current.map(|schedule| schedule.enabled)).unwrap_or(true);
    // What is switched off must be so also when its cluster has gone.
    if let Some(job) = &read.job
        && (enabled || current.is_none())
    {
        let found = fire::problems(app, workspace, &owner, name, job, now).await?;
        read.problems.extend(found);
    }
    let (Some(trigger), Some(job)) = (read.trigger, read.job) else {
        read.problems.extend(neap_core::names::check_schedule_name(name));
        return Err(Refusal { problems: read.problems });
    };
    // The same trigger goes on from where it began; a new one begins now.
    let same = kept.as_ref().filter(|kept| {
        neap_calendar::Trigger::read(&kept.asked["trigger"]).is_ok_and(|before| before == trigger)
    });
    let placed_ms = same.map_or(now.0, |kept| kept.placed_ms);
    let after = if same.is_some() || trigger.start.is_some() { now } else { Millis(now.0.saturating_sub(1)) };
    let next = fire::instant(Millis(placed_ms))
        .zip(fire::instant(after))
        .and_then(|(placed, after)| fire::millis(trigger.next(placed, after)?));
    let document = ScheduleDocument { asked: read.asked, job, placed_ms };
    let document = app::document(&document)?;
    let command = Command::PutSchedule(PutSchedule {
        workspace: workspace.id,
        name: name.into(),
        owner: owner.into(),
        enabled,
        next,
        document: document.hash,
        problems: read.problems,
    });
    app.submit(&ask.caller, command, vec![document]).await?;
    Ok(current.is_none())
}

pub(crate) async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let Some(schedule) = app.state().schedule(workspace.id, name).map(|schedule| schedule.id) else {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    };
    app.submit(&ask.caller, Command::DeleteSchedule { schedule }, Vec::new()).await?;
    Ok(reply::empty(StatusCode::OK))
}

/// Fires it now, whatever its times are. The same `scheduleTime` again is the same job.
pub(crate) async fn trigger(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let schedule = find(app, workspace, name)?;
    let body = ask.json()?;
    let at = match &body["scheduleTime"] {
        Value::Null => app.now(),
        given => {
            let time = given.as_str().and_then(|text| text.parse().ok()).and_then(fire::millis);
            time.ok_or_else(|| {
                bad(format!("{given} is no time, such as 2026-01-31T10:00:00Z."), "scheduleTime")
            })?
        }
    };
    let fired = fire(app, workspace, &schedule, at).await;
    let job = match &fired {
        Ok(fired) if fired.again => return Ok(submitted(&fired.job)),
        Ok(fired) => Some(fired.job.clone()),
        Err(_) => None,
    };
    if fired.as_ref().err().is_none_or(fire::is_lasting) {
        record(app, &ask.caller, &schedule, at, true, job, fired.as_ref().err()).await?;
    }
    fired.map(|fired| submitted(&fired.job))
}

fn submitted(job: &str) -> Response {
    reply::ok(&json!({"scheduleActionType": "CreateJob", "submissionId": job}))
}

fn answer(app: &App, workspace: &Workspace, schedule: &Schedule) -> Result<Value, Refusal> {
    let document: ScheduleDocument = app.document(&schedule.document)?;
    let action = action_of(&document);
    let mut properties = match document.asked {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    properties.insert("action".into(), action);
    properties.insert("isEnabled".into(), json!(schedule.enabled));
    properties.insert("provisioningState".into(), json!("Succeeded"));
    properties.insert("neap".into(), facts(schedule));
    Ok(json!({
        "id": paths::child_id(workspace, &format!("schedules/{}", schedule.name)),
        "name": schedule.name,
        "type": format!("{}/workspaces/schedules", paths::NAMESPACE),
        "properties": properties,
        "systemData": system_data(&schedule.owner, schedule.created, schedule.modified),
    }))
}

/// With the whole definition of its jobs, also where it only referred to one.
fn action_of(document: &ScheduleDocument) -> Value {
    let mut job = document.job["properties"].clone();
    if !job["inputs"].is_object() {
        job["inputs"] = json!({});
    }
    let source = &document.asked["action"]["jobDefinition"]["sourceJobId"];
    if source.is_string() {
        job["sourceJobId"] = source.clone();
    }
    json!({"actionType": "CreateJob", "jobDefinition": job})
}

/// When it fires, and what became of the last firings.
fn facts(schedule: &Schedule) -> Value {
    let last = schedule.firings.last();
    let firing = |firing: &Firing| json!({"time": firing.at.rfc3339(), "forced": firing.forced, "job": firing.job, "problem": firing.problem});
    json!({
        "nextTime": schedule.next.map(Millis::rfc3339),
        "dueTime": schedule.due.map(Millis::rfc3339),
        "lastJob": schedule.firings.iter().rev().find_map(|firing| firing.job.clone()),
        "lastProblem": last.and_then(|firing| firing.problem.clone()),
        "firings": schedule.firings.iter().map(firing).collect::<Vec<_>>(),
    })
}
