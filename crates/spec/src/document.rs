//! A YAML document as a JSON tree, with the line that each value stands on.

use crate::error::{Error, Problem};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::fmt;

/// A specification as it was written, and as overrides changed it.
#[derive(Debug, Clone, Default)]
pub struct Document {
    pub value: Value,
    lines: BTreeMap<String, u32>,
}

impl Document {
    /// Reads one YAML document whose top is a mapping.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut document = Self::read(text, serde_saphyr::options! { with_snippet: false })?;
        if document.has_booleans() {
            letters_stay(&mut document.value, &Self::parse_with_words(text)?.value);
        }
        Ok(document)
    }

    /// The same, where only `true` and `false` are booleans: `off`, `no` and `y` are words.
    pub fn parse_with_words(text: &str) -> Result<Self, Error> {
        Self::read(text, serde_saphyr::options! { with_snippet: false, strict_booleans: true })
    }

    fn has_booleans(&self) -> bool {
        fn in_value(value: &Value) -> bool {
            match value {
                Value::Bool(_) => true,
                Value::Array(items) => items.iter().any(in_value),
                Value::Object(map) => map.values().any(in_value),
                Value::Null | Value::Number(_) | Value::String(_) => false,
            }
        }
        in_value(&self.value)
    }

    fn read(text: &str, options: serde_saphyr::Options) -> Result<Self, Error> {
        let tree: Spanned<Tree> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| Error::NotYaml(error.to_string()))?;
        let mut lines = BTreeMap::new();
        let value = plain(tree.value, "", &mut lines);
        match value {
            Value::Object(_) => Ok(Self { value, lines }),
            Value::Null => Err(top("the file is empty; it must hold keys such as `type` and `name`")),
            _ => Err(top("the file must hold a mapping, with keys such as `type` and `name`, at its top")),
        }
    }

    /// A document that did not come from a file: flags alone, or an entity fetched from the server.
    pub fn from_value(value: Value) -> Self {
        Self { value, lines: BTreeMap::new() }
    }

    /// The line of the value at `path`, else of the nearest thing around it.
    pub fn line(&self, path: &str) -> Option<u32> {
        let mut place = path;
        loop {
            if let Some(line) = self.lines.get(place) {
                return Some(*line);
            }
            place = &place[..place.rfind(['.', '['])?];
        }
    }

    /// Lays `over` on the document: mappings are merged, anything else is replaced.
    pub(crate) fn merge(&mut self, over: &Value) {
        merge_into(&mut self.value, over);
    }

    /// Sets `path` to `value`, as a flag or `--set` does; the place in the file is forgotten.
    pub fn set(&mut self, path: &str, value: Value) -> Result<(), Error> {
        crate::overrides::set_path(&mut self.value, path, value)
            .map_err(|message| Error::Problems(vec![Problem::at(path, message)]))?;
        self.lines.retain(|known, _| known != path);
        Ok(())
    }

    /// Applies one `--set a.b=value`. The value is read as JSON where it is JSON, else as text.
    pub fn set_assignment(&mut self, assignment: &str, force_string: bool) -> Result<(), Error> {
        let (path, value) = assignment.split_once('=').ok_or_else(|| {
            let message = "an override is written path=value, as in --set max_instances=4";
            Error::Problems(vec![Problem::at(assignment, message)])
        })?;
        self.set(path.trim(), crate::overrides::typed_value(value, force_string))
    }
}

/// `y` and `n` are letters, as every loader of Azure's files reads them; `yes`, `no`, `on` and `off` are booleans.
fn letters_stay(read: &mut Value, words: &Value) {
    match (read, words) {
        (read @ Value::Bool(_), Value::String(word)) if matches!(word.as_str(), "y" | "Y" | "n" | "N") => {
            *read = words.clone();
        }
        (Value::Array(read), Value::Array(words)) => {
            read.iter_mut().zip(words).for_each(|(read, word)| letters_stay(read, word));
        }
        (Value::Object(read), Value::Object(words)) => {
            read.values_mut().zip(words.values()).for_each(|(read, word)| letters_stay(read, word));
        }
        _ => {}
    }
}

fn top(message: &str) -> Error {
    Error::Problems(vec![Problem::at("", message)])
}

fn merge_into(value: &mut Value, over: &Value) {
    match (value, over) {
        (Value::Object(map), Value::Object(over)) => {
            for (key, item) in over {
                merge_into(map.entry(key.clone()).or_insert(Value::Null), item);
            }
        }
        (value, over) => *value = over.clone(),
    }
}

/// The shape serde-saphyr gives us, each inner value with its place.
enum Tree {
    Scalar(Value),
    List(Vec<Spanned<Tree>>),
    Mapping(Vec<(String, Spanned<Tree>)>),
}

fn plain(tree: Tree, path: &str, lines: &mut BTreeMap<String, u32>) -> Value {
    match tree {
        Tree::Scalar(value) => value,
        Tree::List(items) => {
            let mut list = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                let path = format!("{path}[{index}]");
                note_line(&path, &item, lines);
                list.push(plain(item.value, &path, lines));
            }
            Value::Array(list)
        }
        Tree::Mapping(entries) => {
            let mut map = Map::with_capacity(entries.len());
            for (key, item) in entries {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                note_line(&path, &item, lines);
                let value = plain(item.value, &path, lines);
                map.insert(key, value);
            }
            Value::Object(map)
        }
    }
}

fn note_line(path: &str, item: &Spanned<Tree>, lines: &mut BTreeMap<String, u32>) {
    let line = u32::try_from(item.referenced.line()).unwrap_or(0);
    if line > 0 {
        lines.insert(path.to_owned(), line);
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Bool(v)))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Number::from_f64(v).map_or_else(|| Value::String(v.to_string()), Value::Number)))
    }

    fn visit_str<E>(self, v: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::String(v.to_owned())))
    }

    fn visit_string<E>(self, v: String) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::String(v)))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = access.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry::<String, Spanned<Tree>>()? {
            entries.push(entry);
        }
        Ok(Tree::Mapping(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::Document;
    use serde_json::json;

    #[test]
    fn values_keep_their_types_and_lines() {
        let document = Document::parse("a: 1\nb:\n  c: yes please\n  d: [1.5, true, ~]\ne:\n").unwrap();
        assert_eq!(
            document.value,
            json!({"a": 1, "b": {"c": "yes please", "d": [1.5, true, null]}, "e": null})
        );
        assert_eq!(document.line("a"), Some(1));
        assert_eq!(document.line("b.c"), Some(3));
        assert_eq!(document.line("b.d[1]"), Some(4));
    }

    #[test]
    fn letters_are_no_booleans() {
        let document =
            Document::parse("name: n\nlist: [y, Y, N, yes, off, true, 'n']\nfalse: {a: n, b: no}\n").unwrap();
        assert_eq!(
            document.value,
            json!({"name": "n", "list": ["y", "Y", "N", true, false, true, "n"], "false": {"a": "n", "b": false}})
        );
        let words = Document::parse_with_words("a: [n, no, on, true]\n").unwrap();
        assert_eq!(words.value, json!({"a": ["n", "no", "on", true]}));
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        for text in ["", "- a\n", "just words", "a: [1", "a: 1\na: 2\n"] {
            assert!(Document::parse(text).is_err(), "{text:?}");
        }
    }
}
