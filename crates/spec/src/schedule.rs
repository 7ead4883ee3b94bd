//! Schedules: when, and which job.

use crate::document::Document;
use crate::error::Error;
use crate::fields::{Checker, Field, Kind, canonical, field, given, join, refused, required, text, text_map};
use crate::job;
use crate::plan::Request;
use crate::planner::{Context, Planner, is_file};
use serde_json::{Map, Value, json};

const FREQUENCIES: &[&str] = &["minute", "hour", "day", "week", "month"];
const WEEK_DAYS: &[&str] = &["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

const PATTERN: &[Field] = &[
    required("hours", Kind::ListOr(&Kind::Whole(0), &Kind::Whole(0))),
    required("minutes", Kind::ListOr(&Kind::Whole(0), &Kind::Whole(0))),
    field("week_days", Kind::ListOr(&Kind::Word(WEEK_DAYS), &Kind::Word(WEEK_DAYS))),
    field("month_days", Kind::ListOr(&Kind::Whole(1), &Kind::Whole(1))),
];

const TRIGGERS: &[(&str, &[Field])] = &[
    (
        "cron",
        &[
            required("expression", Kind::Text),
            field("start_time", Kind::Text),
            field("end_time", Kind::Text),
            field("time_zone", Kind::Text),
        ],
    ),
    (
        "recurrence",
        &[
            required("frequency", Kind::Word(FREQUENCIES)),
            required("interval", Kind::Whole(1)),
            field("schedule", Kind::Object(PATTERN)),
            // The reference pages spell it so in places.
            field("pattern", Kind::Object(PATTERN)),
            field("start_time", Kind::Text),
            field("end_time", Kind::Text),
            field("time_zone", Kind::Text),
        ],
    ),
];

const FIELDS: &[Field] = &[
    required("name", Kind::Name),
    required("trigger", Kind::ByType(TRIGGERS)),
    required("create_job", Kind::Anything),
    field("type", Kind::Word(&["job"])),
    field("display_name", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    refused("create_monitor", "monitors are not offered; a schedule creates jobs (create_job)"),
    refused("import_data", "data imports are not offered; a schedule creates jobs (create_job)"),
    field("id", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("is_enabled", Kind::ReadOnly),
    field("provisioning_state", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
];

/// Checks a schedule's file and plans its PUT.
///
/// # Errors
/// [`Error::Problems`] with every problem; [`Error::NotSupported`] for a kind of job that Neap does not run.
pub fn schedule_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    let mut planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    let spec = &document.value;
    checker.check_document(FIELDS);
    let name = text(spec, "name").unwrap_or_default().to_owned();
    let mut properties = Map::new();
    for (key, wire) in [("display_name", "displayName"), ("description", "description")] {
        if let Some(value) = given(spec, key) {
            properties.insert(wire.into(), value.clone());
        }
    }
    for key in ["tags", "properties"] {
        properties.insert(key.into(), text_map(given(spec, key)));
    }
    if let Some(trigger) = given(spec, "trigger") {
        check_trigger(&mut checker, trigger);
        properties.insert("trigger".into(), self::trigger(trigger));
    }
    if let Some(create) = given(spec, "create_job") {
        let definition = definition(&mut planner, &mut checker, create, &name)?;
        properties.insert("action".into(), json!({"actionType": "CreateJob", "jobDefinition": definition}));
    }
    planner.finish(checker.problems, name, None, json!({ "properties": properties }))
}

fn check_trigger(checker: &mut Checker<'_>, trigger: &Value) {
    if let Some(expression) = text(trigger, "expression") {
        let fields = expression.split_whitespace().count();
        if fields != 5 {
            checker.problem(
                "trigger.expression",
                format!("has {fields} fields; write five: minutes hours days-of-month months days-of-week"),
            );
        }
    }
    if given(trigger, "schedule").is_some() && given(trigger, "pattern").is_some() {
        checker.problem("trigger.pattern", "is another word for `schedule`; write one of them");
    }
    let (key, pattern) = ["schedule", "pattern"]
        .iter()
        .find_map(|key| given(trigger, key).map(|pattern| (*key, pattern)))
        .unwrap_or(("schedule", &Value::Null));
    for (part, most) in [("hours", 23), ("minutes", 59), ("month_days", 31)] {
        let Some(value) = given(pattern, part) else { continue };
        for number in listed(value).iter().filter_map(Value::as_i64).filter(|number| *number > most) {
            let place = join(&join("trigger", key), part);
            checker.problem(&place, format!("{number} is above {most}"));
        }
    }
}

/// One value is a list of one.
fn listed(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| vec![value.clone()])
}

fn trigger(trigger: &Value) -> Value {
    let mut wire = Map::new();
    if text(trigger, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("cron")) {
        wire.insert("triggerType".into(), "Cron".into());
        wire.insert("expression".into(), trigger.get("expression").cloned().unwrap_or(Value::Null));
    } else {
        wire.insert("triggerType".into(), "Recurrence".into());
        let word = text(trigger, "frequency").and_then(|word| canonical(word, FREQUENCIES)).unwrap_or("day");
        wire.insert("frequency".into(), word.into());
        wire.insert("interval".into(), trigger.get("interval").cloned().unwrap_or(Value::Null));
        let pattern = given(trigger, "schedule").or_else(|| given(trigger, "pattern"));
        wire.insert("schedule".into(), self::pattern(pattern));
    }
    for (key, to) in [("start_time", "startTime"), ("end_time", "endTime")] {
        if let Some(value) = given(trigger, key) {
            wire.insert(to.into(), value.clone());
        }
    }
    wire.insert("timeZone".into(), text(trigger, "time_zone").unwrap_or("UTC").into());
    Value::Object(wire)
}

fn pattern(pattern: Option<&Value>) -> Value {
    let mut wire = Map::new();
    for (key, to) in [("hours", "hours"), ("minutes", "minutes"), ("month_days", "monthDays")] {
        match pattern.and_then(|pattern| given(pattern, key)) {
            Some(value) => {
                wire.insert(to.into(), listed(value).into());
            }
            None if to != "monthDays" => {
                wire.insert(to.into(), json!([]));
            }
            None => {}
        }
    }
    if let Some(days) = pattern.and_then(|pattern| given(pattern, "week_days")) {
        let days = listed(days);
        let days = days.iter().filter_map(Value::as_str).filter_map(|day| canonical(day, WEEK_DAYS));
        wire.insert("weekDays".into(), days.map(Value::from).collect());
    }
    Value::Object(wire)
}

/// The job: one that was submitted, a file, or what is written here; with changes laid over it.
fn definition(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    create: &Value,
    schedule: &str,
) -> Result<Value, Error> {
    match create {
        Value::String(reference) => {
            by_reference(planner, checker, "create_job", reference, &json!({}), schedule)
        }
        Value::Object(map) => match given(create, "job").and_then(Value::as_str) {
            Some(reference) => {
                let mut over = map.clone();
                over.shift_remove("job");
                let over = Value::Object(over);
                by_reference(planner, checker, "create_job.job", reference, &over, schedule)
            }
            None if given(create, "job").is_some() => {
                checker.problem("create_job.job", "must be text: a file, or azureml:JOB");
                Ok(Value::Null)
            }
            None => {
                let document = Document::from_value(create.clone());
                let mut inner = Checker::new(&document, &checker.folder);
                let definition = job::properties(planner, &mut inner, schedule)?;
                for problem in inner.problems {
                    checker.problem(&join("create_job", &problem.path), problem.message);
                }
                Ok(Value::Object(definition))
            }
        },
        _ => {
            checker.problem("create_job", "must be a file, azureml:JOB, or a mapping");
            Ok(Value::Null)
        }
    }
}

fn by_reference(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    reference: &str,
    over: &Value,
    schedule: &str,
) -> Result<Value, Error> {
    if let Some(name) = reference.strip_prefix("azureml:") {
        let id = if name.starts_with('/') {
            name.to_owned()
        } else {
            format!("{}/jobs/{name}", planner.scope.workspace_id())
        };
        return Ok(submitted(planner, checker, &id, over));
    }
    if !is_file(reference) {
        checker.problem(place, format!("`{reference}` is neither a YAML file nor azureml:JOB"));
        return Ok(Value::Null);
    }
    let Some((path, mut document)) = planner.read_file(checker, place, reference) else {
        return Ok(Value::Null);
    };
    document.merge(over);
    let mut inner = Checker::of_file(&document, &path);
    let definition = job::properties(planner, &mut inner, schedule)?;
    checker.problems.append(&mut inner.problems);
    Ok(Value::Object(definition))
}

/// A job that was submitted before, by its id, with what is to be different.
fn submitted(planner: &mut Planner<'_>, checker: &mut Checker<'_>, id: &str, over: &Value) -> Value {
    const OVER: &[Field] = &[
        field("type", Kind::Word(&["pipeline", "command"])),
        field("display_name", Kind::Text),
        field("experiment_name", Kind::Text),
        field("description", Kind::Text),
        field("tags", Kind::Entries(&Kind::Scalar)),
        field("compute", Kind::Text),
        field("inputs", crate::inputs::INPUTS),
        field("outputs", crate::inputs::OUTPUTS),
        field("settings", Kind::Entries(&Kind::Scalar)),
    ];
    checker.check_at("create_job", over, &[OVER]);
    let kind = match text(over, "type") {
        Some(word) if word.eq_ignore_ascii_case("command") => "Command",
        _ => "Pipeline",
    };
    let mut wire = json!({"jobType": kind, "sourceJobId": id, "isArchived": false,
        "experimentName": text(over, "experiment_name").unwrap_or_default()});
    for (key, to) in
        [("display_name", "displayName"), ("description", "description"), ("settings", "settings")]
    {
        if let Some(value) = given(over, key) {
            wire[to] = value.clone();
        }
    }
    if let Some(compute) = text(over, "compute") {
        wire["computeId"] = planner.compute_id(compute).into();
    }
    if given(over, "tags").is_some() {
        wire["tags"] = text_map(given(over, "tags"));
    }
    if given(over, "inputs").is_some() {
        wire["inputs"] = crate::inputs::of_job(planner, checker, over);
    }
    if given(over, "outputs").is_some() {
        wire["outputs"] = crate::inputs::outputs_of_job(checker, over);
    }
    wire
}
