//! What a component declares, and what a step gives it: types, defaults and what is missing.

use neap_core::state::Workspace;
use neap_core::{Code, Problem, Refusal};
use serde_json::Value;

use super::super::references::{Shelf, registered};
use crate::arm::errors::bad;

/// The `componentSpec` that a step names, or the problem with the name.
pub(in crate::arm::jobs) fn find(
    shelf: &dyn Shelf,
    workspace: &Workspace,
    id: &str,
    place: &str,
    problems: &mut Vec<Problem>,
) -> Result<Option<Value>, Refusal> {
    if id.trim_start_matches("azureml:").starts_with("//registries/") {
        problems.push(
            Problem::new(
                Code::NotSupported,
                format!("The component '{id}' is in a registry that this server does not have; register it in this workspace."),
            )
            .at(place),
        );
        return Ok(None);
    }
    let found = registered(shelf, workspace, id, ("components", "component"), Code::ResourceNotFound, place)?;
    Ok(match found {
        Ok(mut properties) => Some(properties["componentSpec"].take()),
        Err(problem) => {
            // The whole answer is that of a bad request, not of a missing job.
            problems.push(Problem { code: Code::BadArgument, ..problem });
            None
        }
    })
}

/// Whether a declared type is a plain value rather than data.
pub(in crate::arm::jobs) fn is_literal(kind: &str) -> bool {
    matches!(
        kind.to_ascii_lowercase().as_str(),
        "integer" | "number" | "boolean" | "string" | "float" | "str" | "int" | "bool"
    )
}

/// Holds a plain value against its declaration.
pub(in crate::arm::jobs) fn check_literal(
    declared: &Value,
    value: &str,
    place: &str,
    what: &str,
    problems: &mut Vec<Problem>,
) {
    let kind = declared["type"].as_str().unwrap_or("string").to_ascii_lowercase();
    let number = value.trim().parse::<f64>().ok();
    let fits = match kind.as_str() {
        "integer" | "int" => value.trim().parse::<i64>().is_ok() || number.is_some_and(|n| n.fract() == 0.0),
        "number" | "float" => number.is_some(),
        "boolean" | "bool" => matches!(value.to_ascii_lowercase().as_str(), "true" | "false" | "0" | "1"),
        _ => true,
    };
    if !fits {
        problems.push(bad(format!("{what} must be of type {kind}, and is '{value}'."), place));
        return;
    }
    let bound = |key: &str| match &declared[key] {
        Value::Number(n) => n.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    if let (Some(number), Some(least)) = (number, bound("min"))
        && number < least
    {
        problems.push(bad(format!("{what} must be at least {least}, and is {value}."), place));
    }
    if let (Some(number), Some(most)) = (number, bound("max"))
        && number > most
    {
        problems.push(bad(format!("{what} must be at most {most}, and is {value}."), place));
    }
    if let Some(allowed) = declared["enum"].as_array() {
        let words: Vec<String> = allowed.iter().map(plain).collect();
        if !words.iter().any(|word| word == value) {
            problems
                .push(bad(format!("{what} must be one of {}, and is '{value}'.", words.join(", ")), place));
        }
    }
}

/// A JSON value as the text that a command sees.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn literals_are_held_against_their_declaration() {
        let check = |declared: Value, value: &str| {
            let mut problems = Vec::new();
            check_literal(&declared, value, "p", "The input 'x'", &mut problems);
            problems.iter().map(|p| p.message.to_string()).collect::<Vec<_>>()
        };
        for (declared, value) in [
            (json!({"type": "integer"}), "3"),
            (json!({"type": "integer", "min": 1, "max": "3"}), "3"),
            (json!({"type": "number"}), "1e-3"),
            (json!({"type": "boolean"}), "True"),
            (json!({"type": "string", "enum": ["a", "b"]}), "b"),
            (json!({"type": "string"}), "anything"),
        ] {
            assert_eq!(check(declared.clone(), value), Vec::<String>::new(), "{declared} {value}");
        }
        for (declared, value, expect) in [
            (json!({"type": "integer"}), "x", "must be of type integer, and is 'x'"),
            (json!({"type": "number"}), "abc", "must be of type number"),
            (json!({"type": "boolean"}), "yes", "must be of type boolean"),
            (json!({"type": "integer", "min": 5}), "3", "at least 5"),
            (json!({"type": "integer", "max": 2}), "3", "at most 2"),
            (json!({"type": "string", "enum": ["a"]}), "b", "one of a"),
        ] {
            let said = check(declared.clone(), value);
            assert!(said.len() == 1 && said[0].contains(expect), "{declared} {value}: {said:?}");
        }
    }
}
