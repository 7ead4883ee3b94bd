//! Reads `config.yaml` and tells everything that is wrong with it at once, each problem with its line and its key: what
//! cannot be read is told and taken out, and the rest is read again.

use neap_spec::{Document, Error, nearest};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use super::Config;

/// So many values that cannot be read are told; a file with more is not a configuration.
const UNREADABLE_MAX: usize = 50;

/// What is wrong, and where.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

#[derive(Debug)]
struct Problem {
    /// As `sizes[0].cores`.
    path: String,
    /// Another key that it is only true of if that one could be read.
    given: Option<&'static str>,
    message: String,
}

impl Problems {
    pub(super) fn tell(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.into(), given: None, message: message.into() });
    }

    /// Of a value that goes by what stands under another key.
    pub(super) fn tell_given(&mut self, key: &'static str, path: String, message: String) {
        self.0.push(Problem { path, given: Some(key), message });
    }

    pub(super) fn tell_if(&mut self, is_wrong: bool, path: &str, message: &str) {
        if is_wrong {
            self.tell(path, message);
        }
    }
}

/// The configuration, or what is wrong with it, a line each.
pub(super) fn read(text: &str) -> Result<Config, Vec<String>> {
    let document = Document::parse_with_words(text).map_err(|e| match e {
        Error::NotYaml(why) => vec![format!("it is not YAML: {why}")],
        _ => vec!["it must hold keys with their values, as `lease_ttl_seconds: 120`".into()],
    })?;
    let mut problems = Problems::default();
    let mut value = document.value.clone();
    let config = loop {
        let read: Result<Config, _> = serde_path_to_error::deserialize(&value);
        let failed = match read {
            Ok(config) => break Some(config),
            Err(failed) => failed,
        };
        let path = path_of(failed.path());
        problems.tell(path, worded(failed.inner()));
        let is_out = take_out(&mut value, failed.path(), failed.inner());
        if !is_out || problems.0.len() >= UNREADABLE_MAX {
            break None;
        }
    };
    let unreadable: Vec<String> = problems.0.iter().map(|problem| problem.path.clone()).collect();
    if let Some(config) = &config {
        let mut wrong = Problems::default();
        config.check(&mut wrong);
        wrong.0.retain(|problem| !unreadable.iter().any(|path| is_echo(problem, path)));
        problems.0.extend(wrong.0);
    }
    match config {
        Some(config) if problems.0.is_empty() => Ok(config),
        _ => Err(told(&document, problems)),
    }
}

/// Whether a problem is only there because a value could not be read.
fn is_echo(problem: &Problem, unreadable: &str) -> bool {
    let is_at_or_in = |whole: &str, part: &str| {
        part.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    is_at_or_in(unreadable, &problem.path)
        || is_at_or_in(&problem.path, unreadable)
        || problem.given.is_some_and(|key| is_at_or_in(key, unreadable))
}

/// In the order of the file.
fn told(document: &Document, problems: Problems) -> Vec<String> {
    let mut lines: Vec<(Option<u32>, String)> = Vec::new();
    for problem in problems.0 {
        let line = document.line(&problem.path);
        let place = if problem.path.is_empty() { String::new() } else { format!("{}: ", problem.path) };
        let text = match line {
            Some(line) => format!("line {line}: {place}{}", problem.message),
            None => format!("{place}{}", problem.message),
        };
        lines.push((line, text));
    }
    lines.sort_by_key(|(line, _)| *line);
    lines.into_iter().map(|(_, text)| text).collect()
}

fn path_of(path: &serde_path_to_error::Path) -> String {
    let mut text = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            Segment::Unknown => {}
        }
    }
    text
}

/// A key goes; in a list something takes the place, so that what follows keeps its number. False: nothing could be done.
fn take_out(value: &mut Value, path: &serde_path_to_error::Path, error: &serde_json::Error) -> bool {
    let steps: Vec<&Segment> = path.iter().filter(|step| !matches!(step, Segment::Unknown)).collect();
    let Some((last, above)) = steps.split_last() else { return false };
    let around = above.iter().try_fold(value, |place, step| match step {
        Segment::Seq { index } => place.get_mut(*index),
        Segment::Map { key } => place.get_mut(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    match (last, around) {
        (Segment::Map { key }, Some(Value::Object(map))) => map.shift_remove(key).is_some(),
        (Segment::Seq { index }, Some(Value::Array(list))) => {
            let Some(item) = list.get_mut(*index) else { return false };
            let stand_in = match expected(&error.to_string()) {
                Some(kind) if kind.contains("struct") => Value::Object(Map::new()),
                _ => Value::from(""),
            };
            // What stands in is tried once.
            std::mem::replace(item, stand_in) != *item
        }
        _ => false,
    }
}

fn expected(text: &str) -> Option<&str> {
    text.split_once(", expected ").map(|(_, kind)| kind)
}

/// In the words of who wrote the file. A value is not repeated: it may be a secret at the wrong place.
fn worded(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let Some(kind) = expected(&text) else { return text };
    let known = || kind.split('`').skip(1).step_by(2);
    if let Some(rest) = text.strip_prefix("unknown field `") {
        let key = rest.split('`').next().unwrap_or_default();
        return match nearest(key, known()) {
            Some(near) => format!("unknown key; did you mean `{near}`?"),
            None => format!("unknown key; there are {}", known().collect::<Vec<_>>().join(", ")),
        };
    }
    if text.starts_with("unknown variant") {
        return format!("must be one of {}", known().collect::<Vec<_>>().join(", "));
    }
    let must = match kind {
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "path string" => "text; put it in quotes if it looks like a number",
        "a sequence" => "a list",
        "a map" => "keys with their values",
        struct_name if struct_name.starts_with("struct ") => "keys with their values",
        other => other,
    };
    format!("must be {must}")
}
