//! From a schedule's PUT body to its definition, with every problem at once.

use neap_calendar::Trigger;
use neap_core::documents::{JobDocument, JobMeta};
use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::arm::errors::bad;
use crate::arm::{jobs, paths};
use crate::fields::{Fields, check_tags};

pub(super) struct Read {
    pub enabled: Option<bool>,
    /// `properties` as they are kept.
    pub asked: Value,
    pub trigger: Option<Trigger>,
    /// The body of its jobs.
    pub job: Option<Value>,
    pub problems: Vec<Problem>,
}

const JOB: &str = "properties.action.jobDefinition";
/// Only answers carry these, or the state has them.
const NOT_KEPT: &[&str] = &["isEnabled", "provisioningState", "neap"];
/// Only answers carry these of a job.
const NOT_OF_A_JOB: &[&str] =
    &["sourceJobId", "status", "isArchived", "parentJobName", "error", "parameters"];

/// `source` gives the definition of the job of an id, or the problem with it.
pub(super) fn read(
    asked: &Value,
    source: impl FnOnce(&str) -> Result<Result<Value, Problem>, Refusal>,
) -> Result<Read, Refusal> {
    let mut problems = Vec::new();
    let fields = Fields::of(Some(asked), "properties", &mut problems);
    fields.text("displayName", &mut problems);
    fields.text("description", &mut problems);
    if let Some(tags) = fields.strings("tags", &mut problems) {
        check_tags(&tags, "properties.tags", &mut problems);
    }
    fields.strings("properties", &mut problems);
    let enabled = fields.flag("isEnabled", &mut problems);

    let trigger = match fields.value("trigger") {
        Some(trigger) => Trigger::read(trigger)
            .map_err(|found| {
                let told = |problem: neap_calendar::Problem| {
                    bad(problem.says, &format!("properties.trigger.{}", problem.at))
                };
                problems.extend(found.into_iter().map(told));
            })
            .ok(),
        None => {
            problems.push(bad("A schedule needs a 'trigger'.", "properties.trigger"));
            None
        }
    };
    let job = read_action(&asked["action"], source, &mut problems)?;
    let kept = asked.as_object().into_iter().flatten();
    let kept = kept.filter(|(key, value)| !NOT_KEPT.contains(&key.as_str()) && !value.is_null());
    let asked = Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
    Ok(Read { enabled, asked, trigger, job, problems })
}

fn read_action(
    action: &Value,
    source: impl FnOnce(&str) -> Result<Result<Value, Problem>, Refusal>,
    problems: &mut Vec<Problem>,
) -> Result<Option<Value>, Refusal> {
    let kind = action["actionType"].as_str().unwrap_or("");
    let place = "properties.action.actionType";
    match kind.to_ascii_lowercase().as_str() {
        "createjob" => {}
        "" => {
            problems.push(bad("A schedule needs an 'action' of type CreateJob.", "properties.action"));
            return Ok(None);
        }
        "createmonitor" | "importdata" | "invokebatchendpoint" => {
            let sentence =
                format!("Schedules of type '{kind}' are not part of Neap; schedule a job that does it.");
            problems.push(Problem::new(Code::NotSupported, sentence).at(place));
            return Ok(None);
        }
        _ => {
            problems.push(bad(format!("The action type '{kind}' is not known: CreateJob."), place));
            return Ok(None);
        }
    }
    let definition = &action["jobDefinition"];
    let Some(own) = definition.as_object() else {
        problems.push(bad("The action has no 'jobDefinition'.", JOB));
        return Ok(None);
    };
    let complete = ["jobs", "command", "trial"].iter().any(|key| !is_nothing(&definition[key]));
    let base = match definition["sourceJobId"].as_str().filter(|id| !id.is_empty() && !complete) {
        Some(id) => match source(id)? {
            Ok(base) => base,
            Err(problem) => {
                problems.push(problem);
                return Ok(None);
            }
        },
        None => Value::Null,
    };
    Ok(Some(json!({"properties": over(base, own)})))
}

/// What the schedule says of its jobs, over the definition of the job that it refers to.
fn over(base: Value, own: &Map<String, Value>) -> Map<String, Value> {
    let mut out = match base {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let refers = !out.is_empty();
    for (key, value) in own.iter().filter(|(key, _)| !NOT_OF_A_JOB.contains(&key.as_str())) {
        // The reference is always sent as one to a pipeline, and with fields that say nothing.
        if value.is_null() || (refers && (key == "jobType" || is_nothing(value))) {
            continue;
        }
        match (out.get_mut(key), value) {
            (Some(Value::Object(under)), Value::Object(above)) => {
                under.extend(above.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    out
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The definition of a job of this workspace, as it was submitted.
pub(super) fn source_job(
    app: &App,
    workspace: &Workspace,
    id: &str,
) -> Result<Result<Value, Problem>, Refusal> {
    let place = format!("{JOB}.sourceJobId");
    let Some(reference) = paths::reference(id, "jobs", workspace).filter(|reference| reference.here) else {
        return Ok(Err(bad(format!("'{id}' is not the id of a job of this workspace."), &place)));
    };
    let row = match jobs::find(app, workspace, &reference.name) {
        Ok(row) => row,
        Err(refusal) if refusal.code() == Code::ResourceNotFound => {
            return Ok(Err(bad(
                format!("The job '{}', which the schedule refers to, was not found.", reference.name),
                &place,
            )));
        }
        Err(refusal) => return Err(refusal),
    };
    let document: JobDocument = app.document(&row.document)?;
    let meta: JobMeta = app.document(&row.meta)?;
    let mut definition = document.asked;
    definition["displayName"] = json!(meta.display_name);
    definition["description"] = json!(meta.description);
    definition["tags"] = json!(meta.tags);
    Ok(Ok(definition))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_source(_: &str) -> Result<Result<Value, Problem>, Refusal> {
        panic!("no job is referred to")
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let asked = json!({
            "isEnabled": "yes", "tags": 3,
            "trigger": {"triggerType": "Cron", "expression": "61 * * * *", "timeZone": "Nowhere"},
            "action": {"actionType": "CreateMonitor"},
        });
        let read = read(&asked, no_source).unwrap();
        let at: Vec<_> = read.problems.iter().filter_map(|problem| problem.target.as_deref()).collect();
        for target in [
            "properties.isEnabled",
            "properties.tags",
            "properties.trigger.timeZone",
            "properties.trigger.expression",
            "properties.action.actionType",
        ] {
            assert!(at.contains(&target), "{target} in {at:?}");
        }
    }

    #[test]
    fn a_reference_is_the_job_with_what_is_said_otherwise() {
        let asked = json!({
            "trigger": {"triggerType": "Cron", "expression": "0 * * * *"},
            "action": {"actionType": "CreateJob", "jobDefinition": {
                "jobType": "Pipeline", "sourceJobId": "azureml:train", "experimentName": "", "jobs": {},
                "inputs": {"b": {"value": "2"}}, "isArchived": false,
            }},
        });
        let train = json!({"jobType": "Command", "command": "x", "experimentName": "e", "inputs": {"a": {"value": "1"}, "b": {"value": "1"}}});
        let read = read(&asked, |id| {
            assert_eq!(id, "azureml:train");
            Ok(Ok(train))
        })
        .unwrap();
        assert_eq!(read.problems, []);
        assert_eq!(
            read.job.unwrap()["properties"],
            json!({"jobType": "Command", "command": "x", "experimentName": "e", "inputs": {"a": {"value": "1"}, "b": {"value": "2"}}})
        );
    }
}
