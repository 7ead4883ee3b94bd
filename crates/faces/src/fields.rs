//! Reading JSON bodies field by field. A wrong type is a problem to be told with all others, never the end of reading.

use std::collections::BTreeMap;

use neap_core::{Code, Problem};
use serde_json::{Map, Value};

/// An object being read, with its place in the body.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    object: Option<&'a Map<String, Value>>,
    place: String,
}

impl<'a> Fields<'a> {
    /// `value` absent or null reads as an empty object; anything but an object is a problem.
    pub fn of(value: Option<&'a Value>, place: &str, problems: &mut Vec<Problem>) -> Self {
        let object = match value {
            None | Some(Value::Null) => None,
            Some(Value::Object(map)) => Some(map),
            Some(other) => {
                problems.push(wrong(place, "an object", other));
                None
            }
        };
        Self { object, place: place.into() }
    }

    pub const fn is_present(&self) -> bool {
        self.object.is_some()
    }

    pub fn place(&self, key: &str) -> String {
        if self.place.is_empty() { key.into() } else { format!("{}.{key}", self.place) }
    }

    /// A value that is there and not null; the key is found without regard to case.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        let object = self.object?;
        object
            .get(key)
            .or_else(|| object.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, v)| v))
            .filter(|v| !v.is_null())
    }

    /// A problem for every key that is none of these. Some may be there without being told of.
    pub fn only(&self, known: &[&str], silent: &[&str], whose: &str, problems: &mut Vec<Problem>) {
        let is_known = |key: &String| known.iter().chain(silent).any(|name| key.eq_ignore_ascii_case(name));
        for key in self.object.into_iter().flat_map(|object| object.keys()).filter(|key| !is_known(key)) {
            let message = format!("'{}' is not known; {whose} has {}.", self.place(key), known.join(", "));
            problems.push(Problem::new(Code::BadArgument, message).at(self.place(key)));
        }
    }

    pub fn object(&self, key: &str, problems: &mut Vec<Problem>) -> Self {
        Self::of(self.value(key), &self.place(key), problems)
    }

    pub fn text(&self, key: &str, problems: &mut Vec<Problem>) -> Option<&'a str> {
        let value = self.value(key)?;
        value.as_str().or_else(|| {
            problems.push(wrong(&self.place(key), "a string", value));
            None
        })
    }

    pub fn flag(&self, key: &str, problems: &mut Vec<Problem>) -> Option<bool> {
        match self.value(key)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
            other => {
                problems.push(wrong(&self.place(key), "true or false", other));
                None
            }
        }
    }

    pub fn integer(&self, key: &str, problems: &mut Vec<Problem>) -> Option<i64> {
        let value = self.value(key)?;
        let read = value.as_i64().or_else(|| match value.as_f64() {
            // 2.0 is 2; the comparison also keeps the cast in range.
            Some(number) if number.fract() == 0.0 && number.abs() < 9.0e15 => Some(number as i64),
            _ => None,
        });
        if read.is_none() {
            problems.push(wrong(&self.place(key), "a whole number", value));
        }
        read
    }

    pub fn number(&self, key: &str, problems: &mut Vec<Problem>) -> Option<f64> {
        let value = self.value(key)?;
        value.as_f64().or_else(|| {
            problems.push(wrong(&self.place(key), "a number", value));
            None
        })
    }

    /// A map of strings, such as tags.
    pub fn strings(&self, key: &str, problems: &mut Vec<Problem>) -> Option<BTreeMap<String, String>> {
        let value = self.value(key)?;
        let Value::Object(map) = value else {
            problems.push(wrong(&self.place(key), "an object of strings", value));
            return None;
        };
        let mut out = BTreeMap::new();
        for (name, value) in map {
            match value {
                Value::String(text) => drop(out.insert(name.clone(), text.clone())),
                Value::Null => drop(out.insert(name.clone(), String::new())),
                Value::Bool(_) | Value::Number(_) => drop(out.insert(name.clone(), value.to_string())),
                other => problems.push(wrong(&format!("{}.{name}", self.place(key)), "a string", other)),
            }
        }
        Some(out)
    }

    pub fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.object.into_iter().flatten().filter(|(_, value)| !value.is_null())
    }
}

fn wrong(place: &str, expected: &str, got: &Value) -> Problem {
    let got = match got {
        Value::Null => "null".into(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(n) => format!("the number {n}"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    };
    Problem::new(Code::BadArgument, format!("'{place}' must be {expected}, and is {got}.")).at(place)
}

/// Tags as Azure limits them.
pub(crate) fn check_tags(tags: &BTreeMap<String, String>, place: &str, problems: &mut Vec<Problem>) {
    use neap_core::limits::{TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX};
    let mut refuse = |message: String| problems.push(Problem::new(Code::BadArgument, message).at(place));
    if tags.len() > TAGS_MAX {
        refuse(format!("'{place}' has {} entries; at most {TAGS_MAX} are allowed.", tags.len()));
    }
    for (key, value) in tags.iter().take(TAGS_MAX) {
        if key.chars().count() > TAG_KEY_CHARS_MAX {
            refuse(format!("A key in '{place}' is longer than {TAG_KEY_CHARS_MAX} characters."));
            continue;
        }
        if value.chars().count() > TAG_VALUE_CHARS_MAX {
            refuse(format!(
                "The value of '{key}' in '{place}' is longer than {TAG_VALUE_CHARS_MAX} characters."
            ));
        }
    }
}

/// What people write on a resource: bounded, since lists and pages show all of it.
pub(crate) fn check_labels(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    use neap_core::limits as most;
    for (key, chars_max) in [
        ("displayName", most::DISPLAY_NAME_CHARS_MAX),
        ("description", most::DESCRIPTION_CHARS_MAX),
        ("experimentName", most::EXPERIMENT_NAME_CHARS_MAX),
    ] {
        let chars = fields.value(key).and_then(Value::as_str).map_or(0, |text| text.chars().count());
        if chars > chars_max {
            let message =
                format!("'{}' has {chars} characters; at most {chars_max} are allowed.", fields.place(key));
            problems.push(Problem::new(Code::BadArgument, message).at(fields.place(key)));
        }
    }
    // A wrong type is told by whoever reads the field.
    let mut unread = Vec::new();
    if let Some(tags) = fields.strings("tags", &mut unread) {
        check_tags(&tags, &fields.place("tags"), problems);
    }
    let place = fields.place("properties");
    let properties = fields.strings("properties", &mut unread).unwrap_or_default();
    let mut refuse = |message: String| problems.push(Problem::new(Code::BadArgument, message).at(&*place));
    if properties.len() > most::PROPERTIES_MAX {
        refuse(format!(
            "'{place}' has {} entries; at most {} are allowed.",
            properties.len(),
            most::PROPERTIES_MAX
        ));
    }
    for (key, value) in properties.iter().take(most::PROPERTIES_MAX) {
        if key.chars().count() > most::TAG_KEY_CHARS_MAX {
            refuse(format!("A key in '{place}' is longer than {} characters.", most::TAG_KEY_CHARS_MAX));
        } else if value.chars().count() > most::PROPERTY_VALUE_CHARS_MAX {
            refuse(format!(
                "The value of '{key}' in '{place}' is longer than {} characters.",
                most::PROPERTY_VALUE_CHARS_MAX
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_wrong_type_is_told() {
        let body = json!({"a": {"Text": 1, "flag": "x", "count": "2", "tags": {"k": []}, "none": null, "two": 2.0, "n": 1.5}, "b": []});
        let mut problems = Vec::new();
        let top = Fields::of(Some(&body), "", &mut problems);
        let a = top.object("a", &mut problems);
        assert_eq!(a.text("text", &mut problems), None);
        assert_eq!(a.flag("flag", &mut problems), None);
        assert_eq!(a.integer("count", &mut problems), None);
        assert_eq!(a.integer("two", &mut problems), Some(2));
        assert_eq!(a.integer("n", &mut problems), None);
        assert_eq!(a.text("none", &mut problems), None);
        a.strings("tags", &mut problems);
        top.object("b", &mut problems);
        let places: Vec<_> = problems.iter().filter_map(|p| p.target.as_deref()).collect();
        assert_eq!(places, ["a.text", "a.flag", "a.count", "a.n", "a.tags.k", "b"]);
    }

    #[test]
    fn labels_are_bounded() {
        use neap_core::limits::{PROPERTIES_MAX, TAGS_MAX};
        let many = |count: usize| (0..count).map(|n| (format!("k{n}"), json!("v"))).collect::<Map<_, _>>();
        for (value, expect) in [
            (
                json!({"tags": many(TAGS_MAX), "properties": many(PROPERTIES_MAX), "displayName": "d".repeat(256)}),
                0,
            ),
            (json!({"tags": many(TAGS_MAX + 1), "properties": many(PROPERTIES_MAX + 1)}), 2),
            (
                json!({"displayName": "d".repeat(257), "description": "d".repeat(5_001), "experimentName": "e".repeat(257)}),
                3,
            ),
            (json!({"properties": {"k": "v".repeat(8_001), "l": "v"}, "tags": 3}), 1),
        ] {
            let mut problems = Vec::new();
            let fields = Fields::of(Some(&value), "properties", &mut problems);
            check_labels(&fields, &mut problems);
            assert_eq!(problems.len(), expect, "{problems:?}");
        }
    }
}
