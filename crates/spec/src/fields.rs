//! The field tables' language, and the one checker that walks a document with them.
//!
//! It says everything that is wrong at once: unknown keys with the nearest known one, wrong types, words that are not
//! allowed, required keys that are missing. It changes nothing and knows no resource.

use crate::document::Document;
use crate::error::{Flaw, Problem};
use crate::suggest::nearest;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// What may stand at a key.
#[derive(Debug)]
pub(crate) enum Kind {
    Text,
    /// The name of what the document is, which is a part of its path.
    Name,
    /// Text, or a number that is meant as text (a version).
    TextOrNumber,
    /// A whole number, not below the bound.
    Whole(i64),
    /// Any number.
    Number,
    Flag,
    /// One of these words; case, `-` and `_` do not matter.
    Word(&'static [&'static str]),
    Object(&'static [Field]),
    List(&'static Kind),
    /// A mapping with keys of the user's choice.
    Entries(&'static Kind),
    /// Text, a number or a flag.
    Scalar,
    /// The first kind if the value is a mapping, else the second.
    ObjectOr(&'static [Field], &'static Kind),
    /// As [`Kind::ByType`] if the value is a mapping, else the second kind.
    ObjectOrTyped(&'static [(&'static str, &'static [Field])], &'static Kind),
    /// The first kind if the value is a list, else the second.
    ListOr(&'static Kind, &'static Kind),
    /// A mapping whose fields depend on the word at `type`.
    ByType(&'static [(&'static str, &'static [Field])]),
    Anything,
    /// Filled by the server; accepted, so that what was shown can be sent back, and ignored.
    ReadOnly,
    /// A key that `az ml` knows and Neap does not do; the sentence says so.
    Refused(&'static str),
}

#[derive(Debug)]
pub(crate) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
}

pub(crate) const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: false }
}

/// A key that is known and refused, with the reason.
pub(crate) const fn refused(name: &'static str, why: &'static str) -> Field {
    field(name, Kind::Refused(why))
}

pub(crate) const fn required(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: true }
}

/// The words of `allowed` that `word` means, without regard to case, `-` and `_`.
pub(crate) fn canonical(word: &str, allowed: &'static [&'static str]) -> Option<&'static str> {
    let folded = fold(word);
    allowed.iter().copied().find(|candidate| fold(candidate) == folded)
}

fn fold(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// Collects problems while a document is read.
#[derive(Debug)]
pub(crate) struct Checker<'a> {
    document: &'a Document,
    /// Relative paths of the document count from here.
    pub folder: PathBuf,
    /// The document's file, where it is not the one that the user gave.
    file: Option<String>,
    /// Whether `${{parent.inputs.x}}` may stand for any value, as it may in a pipeline's steps.
    pub bindings: bool,
    pub problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    pub fn new(document: &'a Document, folder: &Path) -> Self {
        Self { document, folder: folder.to_owned(), file: None, bindings: false, problems: Vec::new() }
    }

    /// The checker of a file that another one names.
    pub fn of_file(document: &'a Document, file: &Path) -> Self {
        let folder = file.parent().unwrap_or(Path::new(""));
        Self { file: Some(file.display().to_string()), ..Self::new(document, folder) }
    }

    pub fn document(&self) -> &'a Document {
        self.document
    }

    /// Notes a problem at `path`, with the line of the nearest place that the file has.
    pub fn problem(&mut self, path: &str, message: impl Into<String>) {
        self.flaw(path, message.into(), Flaw::Value);
    }

    fn flaw(&mut self, path: &str, message: String, flaw: Flaw) {
        let line = self.document.line(path);
        self.problems.push(Problem { file: self.file.clone(), path: path.to_owned(), line, message, flaw });
    }

    /// A path of the file, counted from its folder, without the `./` that people write.
    pub fn below(&self, path: &str) -> PathBuf {
        let parts = self.folder.join(path);
        let parts = parts.components().filter(|part| !matches!(part, std::path::Component::CurDir));
        let path: PathBuf = parts.collect();
        if path.as_os_str().is_empty() { PathBuf::from(".") } else { path }
    }

    pub fn check_document(&mut self, fields: &'static [Field]) {
        self.check_document_with(&[fields]);
    }

    /// Checks the document against several tables taken together; where a key is in two, the first one counts.
    pub fn check_document_with(&mut self, tables: &[&'static [Field]]) {
        if let Value::Object(map) = &self.document.value {
            self.object("", map, tables, None);
        }
    }

    /// Checks one part of the document against a table of its own.
    pub fn check_at(&mut self, path: &str, value: &Value, tables: &[&'static [Field]]) {
        match value {
            Value::Object(map) => self.object(path, map, tables, None),
            _ => self.wrong(path, "a mapping", value),
        }
    }

    fn object(
        &mut self,
        path: &str,
        map: &Map<String, Value>,
        tables: &[&'static [Field]],
        skip: Option<&str>,
    ) {
        let fields = || tables.iter().flat_map(|table| table.iter());
        for (key, value) in map {
            if key == "$schema" || skip == Some(key) {
                continue;
            }
            let place = join(path, key);
            match fields().find(|field| field.name == key) {
                Some(field) => self.value(&place, value, &field.kind),
                None => {
                    let near = nearest(key, fields().map(|field| field.name));
                    let message = match near {
                        Some(near) => format!("unknown key; did you mean `{near}`?"),
                        None => format!("unknown key; the keys here are {}", key_list(fields())),
                    };
                    self.flaw(&place, message, Flaw::Key { meant: near.map(str::to_owned) });
                }
            }
        }
        for field in fields().filter(|field| field.required) {
            if map.get(field.name).is_none_or(Value::is_null) {
                self.problem(&join(path, field.name), "required, and not given");
            }
        }
    }

    fn value(&mut self, path: &str, value: &Value, kind: &Kind) {
        if value.is_null() {
            return;
        }
        let scalar = !matches!(kind, Kind::Refused(_));
        if self.bindings && scalar && value.as_str().is_some_and(|text| text.contains("${{")) {
            return;
        }
        match kind {
            Kind::Anything | Kind::ReadOnly => {}
            Kind::Refused(why) => self.flaw(path, (*why).to_owned(), Flaw::Key { meant: None }),
            Kind::Number => {
                if !value.is_number() {
                    self.wrong(path, "a number", value);
                }
            }
            Kind::Text | Kind::Name => match value {
                Value::String(name) if matches!(kind, Kind::Name) && is_no_name(name) => {
                    self.problem(path, format!("`{name}` is no name"));
                }
                Value::String(_) => {}
                Value::Number(_) | Value::Bool(_) => {
                    self.problem(path, format!("must be text; put {value} in quotes"));
                }
                _ => self.wrong(path, "text", value),
            },
            Kind::TextOrNumber => {
                if !value.is_string() && !value.is_number() {
                    self.wrong(path, "text", value);
                }
            }
            Kind::Scalar => {
                if value.is_array() || value.is_object() {
                    self.wrong(path, "text, a number or true/false", value);
                }
            }
            Kind::Whole(least) => match value.as_i64() {
                Some(number) if number >= *least => {}
                Some(number) => self.problem(path, format!("must be {least} or more, not {number}")),
                None => self.wrong(path, "a whole number", value),
            },
            Kind::Flag => {
                if !value.is_boolean() {
                    self.wrong(path, "true or false", value);
                }
            }
            Kind::Word(allowed) => match value.as_str() {
                Some(word) if canonical(word, allowed).is_some() => {}
                Some(word) => self.bad_word(path, word, allowed),
                None => self.wrong(path, &format!("one of {}", allowed.join(", ")), value),
            },
            Kind::Object(fields) => match value {
                Value::Object(map) => self.object(path, map, &[fields], None),
                _ => self.wrong(path, "a mapping", value),
            },
            Kind::List(inner) => match value {
                Value::Array(list) => {
                    for (index, item) in list.iter().enumerate() {
                        self.value(&format!("{path}[{index}]"), item, inner);
                    }
                }
                _ => self.wrong(path, "a list", value),
            },
            Kind::Entries(inner) => match value {
                Value::Object(map) => {
                    for (key, item) in map {
                        self.value(&join(path, key), item, inner);
                    }
                }
                _ => self.wrong(path, "a mapping", value),
            },
            Kind::ObjectOr(fields, other) => match value {
                Value::Object(map) => self.object(path, map, &[fields], None),
                _ => self.value(path, value, other),
            },
            Kind::ObjectOrTyped(variants, other) => match value {
                Value::Object(_) => self.by_type(path, value, variants),
                _ => self.value(path, value, other),
            },
            Kind::ListOr(inner, other) => match value {
                Value::Array(_) => self.value(path, value, &Kind::List(inner)),
                _ => self.value(path, value, other),
            },
            Kind::ByType(variants) => self.by_type(path, value, variants),
        }
    }

    fn by_type(&mut self, path: &str, value: &Value, variants: &[(&'static str, &'static [Field])]) {
        let Value::Object(map) = value else { return self.wrong(path, "a mapping", value) };
        let place = join(path, "type");
        let words: Vec<&str> = variants.iter().map(|(word, _)| *word).collect();
        match map.get("type").and_then(Value::as_str) {
            None => self.problem(&place, format!("required: one of {}", words.join(", "))),
            Some(word) => match variants.iter().find(|(known, _)| fold(known) == fold(word)) {
                Some((_, fields)) => self.object(path, map, &[fields], Some("type")),
                None => self.bad_word(&place, word, &words),
            },
        }
    }

    fn bad_word(&mut self, path: &str, word: &str, allowed: &[&str]) {
        let mut message = format!("`{word}` is not one of {}", allowed.join(", "));
        if let Some(near) = nearest(word, allowed.iter().copied()) {
            message.push_str(&format!("; did you mean `{near}`?"));
        }
        self.problem(path, message);
    }

    fn wrong(&mut self, path: &str, wanted: &str, value: &Value) {
        let found = match value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(flag) => flag.to_string(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => format!("the text `{}`", text.chars().take(40).collect::<String>()),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "a mapping".to_owned(),
        };
        self.problem(path, format!("must be {wanted}, not {found}"));
    }
}

/// In a path it would mean another place.
fn is_no_name(text: &str) -> bool {
    matches!(text, "" | "." | "..")
}

/// A key below a path.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn key_list<'a>(fields: impl Iterator<Item = &'a Field>) -> String {
    let mut names: Vec<&str> = fields
        .filter(|field| !matches!(field.kind, Kind::ReadOnly | Kind::Refused(_)))
        .map(|field| field.name)
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    names.join(", ")
}

/// A child of a mapping, where null counts as absent.
pub(crate) fn given<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|child| !child.is_null())
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// A scalar as the Azure clients write it on the wire: Python's words for flags.
pub(crate) fn scalar_text(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A mapping of scalars as a mapping of text (tags, environment variables).
pub(crate) fn text_map(value: Option<&Value>) -> Value {
    let mut map = Map::new();
    for (key, item) in value.and_then(Value::as_object).into_iter().flatten() {
        let text = if item.is_null() { String::new() } else { scalar_text(item) };
        map.insert(key.clone(), Value::String(text));
    }
    Value::Object(map)
}
