//! `${{...}}` in texts: finding them, and whether what a command names is declared.

use crate::fields::Checker;
use crate::suggest::nearest;
use serde_json::Value;

/// The expressions of a text, trimmed, each once; `Err` if one is not closed.
pub(crate) fn expressions(text: &str) -> Result<Vec<&str>, ()> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${{") {
        rest = &rest[start + 3..];
        let end = rest.find("}}").ok_or(())?;
        let expression = rest[..end].trim();
        if !found.contains(&expression) {
            found.push(expression);
        }
        rest = &rest[end + 2..];
    }
    Ok(found)
}

/// A command without its optional parts.
fn required(command: &str) -> String {
    let mut out = String::with_capacity(command.len());
    let mut rest = command;
    while let Some((before, after)) = rest.split_once("$[[") {
        out.push_str(before);
        rest = after.split_once("]]").map_or("", |(_, after)| after);
    }
    out + rest
}

/// What a command may name: the section, and the names declared there.
pub(crate) type Declared<'a> = &'a [(&'a str, Option<&'a Value>)];

/// Every `${{inputs.x}}` and the like of a command must name something that is declared.
pub(crate) fn check_command(checker: &mut Checker<'_>, place: &str, command: &str, declared: Declared<'_>) {
    // What lies in `$[[...]]` is left out where it names nothing.
    let command = required(command);
    let Ok(found) = expressions(&command) else {
        checker.problem(place, "a `${{` has no closing `}}`");
        return;
    };
    for expression in found {
        let Some((section, name)) = expression.split_once('.') else { continue };
        let Some((_, names)) = declared.iter().find(|(known, _)| *known == section) else { continue };
        let names = names.and_then(Value::as_object);
        // `inputs.group.x` names a member of a group; `inputs.x.path` is how older files spelled an input's path.
        let first = name.split('.').next().unwrap_or(name);
        if names.is_some_and(|map| map.contains_key(name) || map.contains_key(first)) {
            continue;
        }
        let mut message = format!("${{{{{expression}}}}} is not declared in `{section}`");
        if let Some(near) = names.and_then(|map| nearest(name, map.keys().map(String::as_str))) {
            message.push_str(&format!("; did you mean `{near}`?"));
        }
        checker.problem(place, message);
    }
}
