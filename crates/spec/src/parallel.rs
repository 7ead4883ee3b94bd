//! Parallel work: `run(mini_batch)` over many files or rows. A step of a pipeline, or a component.

use crate::expressions::check_command;
use crate::fields::{Checker, Field, Kind, field, given, join, required, text};
use crate::planner::Planner;
use crate::{environment, settings};
use serde_json::{Map, Value};

const TASK: &[Field] = &[
    field("type", Kind::Word(&["run_function", "function", "model"])),
    field("code", Kind::Text),
    field("entry_script", Kind::Text),
    field("program_arguments", Kind::Text),
    field("model", Kind::Text),
    field("append_row_to", Kind::Text),
    required("environment", Kind::ObjectOr(environment::FIELDS, &Kind::Text)),
];

const RETRY: &[Field] = &[field("max_retries", Kind::Whole(0)), field("timeout", Kind::Whole(1))];

/// What a parallel step and a parallel component have in common, besides their ends.
pub(crate) const PARALLEL: &[Field] = &[
    field("task", Kind::Object(TASK)),
    field("input_data", Kind::Text),
    field("mini_batch_size", Kind::TextOrNumber),
    field("partition_keys", Kind::List(&Kind::Text)),
    field("mini_batch_error_threshold", Kind::Whole(-1)),
    field("error_threshold", Kind::Whole(-1)),
    field("logging_level", Kind::Word(&["INFO", "WARNING", "DEBUG"])),
    field("max_concurrency_per_instance", Kind::Whole(1)),
    field("retry_settings", Kind::Object(RETRY)),
    field("resources", Kind::Object(settings::RESOURCES)),
];

/// Puts the parts of parallel work into a component's specification. `ends` is where inputs and outputs are declared.
pub(crate) fn put_spec(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    value: &Value,
    spec: &mut Map<String, Value>,
) {
    check(checker, place, value);
    if let Some(task) = given(value, "task") {
        let task = task_body(planner, checker, &join(place, "task"), task);
        spec.insert("task".into(), task);
    }
    for key in [
        "input_data",
        "partition_keys",
        "mini_batch_error_threshold",
        "error_threshold",
        "max_concurrency_per_instance",
        "retry_settings",
        "resources",
    ] {
        if let Some(item) = given(value, key).filter(|item| !bound(item)) {
            spec.insert(key.into(), item.clone());
        }
    }
    if let Some(level) = text(value, "logging_level") {
        spec.insert("logging_level".into(), level.to_uppercase().into());
    }
    if let Some(size) = given(value, "mini_batch_size").filter(|size| !bound(size)) {
        let size = batch_size(size).map_or_else(|| size.clone(), |size| size.to_string().into());
        spec.insert("mini_batch_size".into(), size);
    }
}

/// The same parts as a pipeline's step repeats them.
pub(crate) fn put_node(value: &Value, spec: Option<&Map<String, Value>>, node: &mut Map<String, Value>) {
    for key in [
        "resources",
        "error_threshold",
        "mini_batch_error_threshold",
        "max_concurrency_per_instance",
        "task",
        "input_data",
        "retry_settings",
    ] {
        // A task that was read is written with ids; one of a registered component is repeated as it was shown.
        let given_here = given(value, key).filter(|_| key != "task" || spec.is_none());
        if let Some(item) = given_here.or_else(|| spec.and_then(|spec| spec.get(key))) {
            node.insert(key.into(), item.clone());
        }
    }
    let level = text(value, "logging_level").map(str::to_uppercase).map(Value::from);
    if let Some(level) = level.or_else(|| spec.and_then(|spec| spec.get("logging_level")).cloned()) {
        node.insert("logging_level".into(), level);
    }
    let size = given(value, "mini_batch_size").or_else(|| spec.and_then(|spec| spec.get("mini_batch_size")));
    if let Some(size) = size {
        node.insert("mini_batch_size".into(), batch_size(size).map_or_else(|| size.clone(), Value::from));
    }
    let keys = given(value, "partition_keys").or_else(|| spec.and_then(|spec| spec.get("partition_keys")));
    if let Some(keys) = keys {
        // The Azure clients send the list as a text.
        node.insert("partition_keys".into(), keys.to_string().into());
    }
}

fn bound(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${{parent."),
        Value::Object(map) => map.values().any(bound),
        Value::Array(list) => list.iter().any(bound),
        _ => false,
    }
}

/// `10` files, or `10kb`, `2mb`, `1gb` as bytes; `None` for what is neither.
fn batch_size(value: &Value) -> Option<u64> {
    if let Some(number) = value.as_u64() {
        return Some(number);
    }
    let size = value.as_str()?.trim().to_lowercase();
    let (number, factor) = match size.strip_suffix('b') {
        Some(rest) => match (rest.strip_suffix('k'), rest.strip_suffix('m'), rest.strip_suffix('g')) {
            (Some(number), _, _) => (number, 1_u64 << 10),
            (_, Some(number), _) => (number, 1 << 20),
            (_, _, Some(number)) => (number, 1 << 30),
            _ => (rest, 1),
        },
        None => (size.as_str(), 1),
    };
    number.trim().parse::<u64>().ok()?.checked_mul(factor)
}

fn check(checker: &mut Checker<'_>, place: &str, value: &Value) {
    if given(value, "task").is_none() {
        checker.problem(&join(place, "task"), "required, and not given");
    }
    if let Some(size) = given(value, "mini_batch_size")
        && !bound(size)
        && batch_size(size).is_none_or(|size| size == 0)
    {
        let message = "must be a count of files (10) or a size (10kb, 2mb), more than nothing";
        checker.problem(&join(place, "mini_batch_size"), message);
    }
    let ends = [("inputs", value.get("inputs")), ("outputs", value.get("outputs"))];
    match text(value, "input_data") {
        None => {
            checker
                .problem(&join(place, "input_data"), "required: the input to go through, ${{inputs.NAME}}");
        }
        Some(data) if !data.contains("${{") => {
            let message = format!("must name an input as ${{{{inputs.NAME}}}}, not `{data}`");
            checker.problem(&join(place, "input_data"), message);
        }
        Some(data) => check_command(checker, &join(place, "input_data"), data, &ends),
    }
    let Some(task) = given(value, "task") else { return };
    let place = join(place, "task");
    for key in ["program_arguments", "append_row_to"] {
        if let Some(words) = text(task, key) {
            check_command(checker, &join(&place, key), words, &ends);
        }
    }
    if text(task, "type").is_some_and(|kind| kind.eq_ignore_ascii_case("model")) {
        let message = "`type: model` is not offered: load the model in init() of a script (type: run_function) and \
                       give it as an input";
        checker.problem(&join(&place, "type"), message);
    } else if given(task, "entry_script").is_none() {
        checker
            .problem(&join(&place, "entry_script"), "required: the script with init() and run(mini_batch)");
    }
}

fn task_body(planner: &mut Planner<'_>, checker: &mut Checker<'_>, place: &str, task: &Value) -> Value {
    let mut body = Map::new();
    let kind = text(task, "type").map_or_else(|| "run_function".to_owned(), str::to_lowercase);
    body.insert("type".into(), kind.into());
    if let Some(code) = text(task, "code")
        && let Some(id) = planner.code(checker, &join(place, "code"), code, &[])
    {
        body.insert("code".into(), format!("azureml:{id}").into());
    }
    for key in ["entry_script", "program_arguments", "model", "append_row_to"] {
        if let Some(item) = given(task, key) {
            body.insert(key.into(), item.clone());
        }
    }
    if let Some(value) = given(task, "environment")
        && let Some(id) = environment::read(planner, checker, &join(place, "environment"), value)
    {
        body.insert("environment".into(), environment::in_component(&id).into());
    }
    Value::Object(body)
}

#[cfg(test)]
mod tests {
    use super::batch_size;
    use serde_json::json;

    #[test]
    fn sizes_are_counts_or_bytes() {
        for (written, expected) in [
            (json!(5), Some(5)),
            (json!("5"), Some(5)),
            (json!("10kb"), Some(10_240)),
            (json!("2 MB"), Some(2 << 20)),
            (json!("1GB"), Some(1 << 30)),
            (json!("7b"), Some(7)),
            (json!("many"), None),
            (json!(-1), None),
        ] {
            assert_eq!(batch_size(&written), expected, "{written}");
        }
    }
}
