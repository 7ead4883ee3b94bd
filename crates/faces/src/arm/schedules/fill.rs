//! A job of a schedule: its name, and what is filled in when it is made.

use neap_core::Millis;
use neap_core::schedule::Schedule;
use serde_json::{Map, Value, json};

use super::fire::instant;

/// On each job of a schedule, so that it is known where it comes from.
pub(super) const SCHEDULE_PROPERTY: &str = "azureml.scheduleName";
const TIME_PROPERTY: &str = "azureml.scheduleTriggerTime";
/// Where `${{name}}` and `${{creation_context.trigger_time}}` are filled in.
const FILLED: &[&str] = &["inputs", "outputs", "tags", "displayName", "experimentName", "description"];

/// Of one schedule and one time there is one job. `nightly-20260131T220000Z`, with milliseconds where there are any.
pub(super) fn job_name(schedule: &str, at: Millis) -> String {
    let time = instant(at).map_or_else(|| at.0.to_string(), |at| at.strftime("%Y%m%dT%H%M%S").to_string());
    match at.0 % 1_000 {
        0 => format!("{schedule}-{time}Z"),
        ms => format!("{schedule}-{time}{ms:03}Z"),
    }
}

/// The body under which a job is submitted.
pub(super) fn job_body(job: &Value, schedule: &str, name: &str, at: Millis) -> Value {
    let mut properties = job["properties"].as_object().cloned().unwrap_or_default();
    let time = instant(at).map_or_else(|| at.rfc3339(), |at| at.to_string());
    for key in FILLED {
        if let Some(value) = properties.get_mut(*key) {
            fill(value, name, &time);
        }
    }
    if properties.get("experimentName").and_then(Value::as_str).is_none_or(str::is_empty) {
        properties.insert("experimentName".into(), json!(schedule));
    }
    let own = properties.entry("properties").or_insert_with(|| json!({}));
    if !own.is_object() {
        *own = Value::Object(Map::new());
    }
    own[SCHEDULE_PROPERTY] = json!(schedule);
    own[TIME_PROPERTY] = json!(time);
    json!({"properties": properties})
}

fn fill(value: &mut Value, name: &str, time: &str) {
    match value {
        Value::String(text) => *text = filled(text, name, time),
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, name, time)),
        Value::Object(map) => map.values_mut().for_each(|item| fill(item, name, time)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Other expressions stay as they are.
fn filled(text: &str, name: &str, time: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, opened)) = rest.split_once("${{") {
        out += before;
        let Some((inside, after)) = opened.split_once("}}") else {
            return out + "${{" + opened;
        };
        match inside.trim() {
            "name" => out += name,
            "creation_context.trigger_time" => out += time,
            _ => {
                out += "${{";
                out += inside;
                out += "}}";
            }
        }
        rest = after;
    }
    out + rest
}

/// Whether a job with these properties is one of this schedule's.
pub(super) fn is_of(properties: &std::collections::BTreeMap<String, String>, schedule: &Schedule) -> bool {
    properties.get(SCHEDULE_PROPERTY).is_some_and(|name| **name == *schedule.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_called_after_its_time() {
        assert_eq!(job_name("n", Millis(1_769_896_800_000)), "n-20260131T220000Z");
        assert_eq!(job_name("n", Millis(1_769_896_800_007)), "n-20260131T220000007Z");
    }

    #[test]
    fn names_and_times_are_filled_in_where_they_belong() {
        let job = json!({"properties": {
            "command": "echo ${{name}}",
            "experimentName": "",
            "inputs": {"a": {"value": "${{name}} at ${{ creation_context.trigger_time }}"}, "b": {"value": "${{x}} ${{"}, "n": {"value": 3}},
            "properties": null,
        }});
        let body = job_body(&job, "s", "s-1", Millis(1_769_896_800_000));
        let properties = &body["properties"];
        assert_eq!(properties["inputs"]["a"]["value"], "s-1 at 2026-01-31T22:00:00Z");
        assert_eq!(properties["inputs"]["b"]["value"], "${{x}} ${{");
        assert_eq!(properties["inputs"]["n"]["value"], 3);
        assert_eq!(properties["command"], "echo ${{name}}");
        assert_eq!(properties["experimentName"], "s");
        assert_eq!(properties["properties"]["azureml.scheduleName"], "s");
    }
}
