//! How often a job is tried again, and for what: `resources.properties.neap.retry`. Azure has no such setting for
//! command jobs; its clients pass `resources.properties` through as it is.

use neap_core::Problem;
use neap_core::job::Retry;
use neap_core::limits::{RETRIES_MAX, RETRY_EXIT_CODES_MAX};
use serde_json::Value;

use super::need::plain;
use crate::arm::errors::bad;

/// Reads `{exit_codes, max, node_lost, preempted}`; numbers may come as text, and the codes as a list or as text with commas.
pub(super) fn read(value: Option<&Value>, place: &str, problems: &mut Vec<Problem>) -> Option<Retry> {
    let value = plain(value.filter(|value| !value.is_null())?);
    let Some(object) = value.as_object() else {
        problems.push(bad(
            format!("'{place}' must be an object such as {{\"exit_codes\": [75], \"max\": 3}}."),
            place,
        ));
        return None;
    };
    let mut retry = Retry::default();
    let mut max = None;
    for (key, value) in object {
        let target = format!("{place}.{key}");
        match key.as_str() {
            "exit_codes" => retry.exit_codes = exit_codes(value, &target, problems),
            "max" => max = count(value, &target, problems),
            "node_lost" => retry.node_lost = count(value, &target, problems),
            "preempted" => retry.preempted = count(value, &target, problems),
            // For [`dedicated_after`].
            "dedicated_after" => {}
            _ => problems.push(bad(
                format!("'{target}' is not known: exit_codes, max, node_lost, preempted and dedicated_after can be stated."),
                &target,
            )),
        }
    }
    match (max, retry.exit_codes.is_empty()) {
        (Some(max), false) => retry.max = max,
        // Once more is the least that listing a code can mean.
        (None, false) => retry.max = 1,
        (Some(_), true) if !object.contains_key("exit_codes") => problems.push(bad(
            format!(
                "'{place}.max' says how often, and '{place}.exit_codes' for which exit codes is missing."
            ),
            place,
        )),
        (_, true) => {}
    }
    Some(retry)
}

/// Reads `dedicated_after`: once its nodes were taken back so often, the job goes on on dedicated nodes.
pub(super) fn dedicated_after(
    value: Option<&Value>,
    place: &str,
    problems: &mut Vec<Problem>,
) -> Option<u32> {
    let value = plain(value?);
    let asked = value.get("dedicated_after").filter(|value| !value.is_null())?;
    let target = format!("{place}.dedicated_after");
    let most = count(asked, &target, problems)?;
    if most == 0 {
        problems.push(bad(
            format!("'{target}' must be at least 1; a job that wants dedicated nodes from the start says queue_settings.job_tier: Standard."),
            &target,
        ));
    }
    Some(most).filter(|most| *most > 0)
}

fn exit_codes(value: &Value, target: &str, problems: &mut Vec<Problem>) -> Vec<i32> {
    let words: Vec<String> = match value {
        Value::Array(items) => items.iter().map(|item| text(item).unwrap_or_default()).collect(),
        other => text(other).unwrap_or_default().split(',').map(|word| word.trim().to_owned()).collect(),
    };
    let codes: Option<Vec<i32>> =
        words.iter().map(|word| word.parse().ok().filter(|code| (1..=255).contains(code))).collect();
    match codes {
        Some(mut codes) if !codes.is_empty() && codes.len() <= RETRY_EXIT_CODES_MAX => {
            codes.sort_unstable();
            codes.dedup();
            codes
        }
        _ => {
            let message = format!(
                "'{target}' must list between 1 and {RETRY_EXIT_CODES_MAX} exit codes from 1 to 255, such as [75, 137]."
            );
            problems.push(bad(message, target));
            Vec::new()
        }
    }
}

fn count(value: &Value, target: &str, problems: &mut Vec<Problem>) -> Option<u32> {
    let number = text(value).and_then(|text| text.parse().ok()).filter(|n| *n <= RETRIES_MAX);
    if number.is_none() {
        problems.push(bad(format!("'{target}' must be a whole number from 0 to {RETRIES_MAX}."), target));
    }
    number
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.trim().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tries_by_cause() {
        let retry = |exit_codes: &[i32], max, node_lost, preempted| Retry {
            exit_codes: exit_codes.to_vec(),
            max,
            node_lost,
            preempted,
        };
        for (asked, expect) in [
            (json!({"exit_codes": [137, 75, 75], "max": 3}), retry(&[75, 137], 3, None, None)),
            (json!({"exit_codes": "75, 137", "max": "3"}), retry(&[75, 137], 3, None, None)),
            (json!({"exit_codes": 1}), retry(&[1], 1, None, None)),
            (json!({"exit_codes": [1], "max": 0}), retry(&[1], 0, None, None)),
            (json!({"node_lost": 0, "preempted": "5"}), retry(&[], 0, Some(0), Some(5))),
            (json!("{\"exit_codes\": [2], \"max\": 2}"), retry(&[2], 2, None, None)),
        ] {
            let mut problems = Vec::new();
            assert_eq!(read(Some(&asked), "retry", &mut problems), Some(expect), "{asked}");
            assert_eq!(problems, [], "{asked}");
        }
        assert_eq!(read(None, "retry", &mut Vec::new()), None);
    }

    #[test]
    fn dedicated_after_some_evictions() {
        for (asked, expect, problems_expected) in [
            (json!({"dedicated_after": 2}), Some(2), 0),
            (json!({"dedicated_after": "3", "preempted": 9}), Some(3), 0),
            (json!("{\"dedicated_after\": 1}"), Some(1), 0),
            (json!({"preempted": 9}), None, 0),
            (json!({"dedicated_after": 0}), None, 1),
            (json!({"dedicated_after": "often"}), None, 1),
        ] {
            let mut problems = Vec::new();
            assert_eq!(dedicated_after(Some(&asked), "retry", &mut problems), expect, "{asked}");
            assert_eq!(problems.len(), problems_expected, "{asked}: {problems:?}");
        }
    }

    #[test]
    fn every_problem_is_told() {
        for (asked, count) in [
            (json!(3), 1),
            (json!("often"), 1),
            (json!({"max": 3}), 1),
            (json!({"exit_codes": [0]}), 1),
            (json!({"exit_codes": [256], "max": -1, "node_lost": 1.5, "preempted": 1001, "times": 1}), 5),
            (json!({"exit_codes": []}), 1),
            (json!({"exit_codes": {"a": 1}}), 1),
        ] {
            let mut problems = Vec::new();
            read(Some(&asked), "retry", &mut problems);
            assert_eq!(problems.len(), count, "{asked}: {problems:?}");
        }
    }
}
