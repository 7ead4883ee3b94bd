//! The two spellings of the wire: camelCase in bodies, snake_case inside pipelines.

use serde_json::{Map, Value};

/// `worker_count` is `workerCount`.
pub(crate) fn camel(key: &str) -> String {
    let mut wire = String::with_capacity(key.len());
    let mut raise = false;
    for letter in key.chars() {
        if letter == '_' {
            raise = true;
        } else if std::mem::take(&mut raise) {
            wire.extend(letter.to_uppercase());
        } else {
            wire.push(letter);
        }
    }
    wire
}

/// `workerCount` is `worker_count`.
fn snake(key: &str) -> String {
    let mut text = String::with_capacity(key.len() + 4);
    for letter in key.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// The same mapping with keys in snake_case, `levels` deep; below `properties` the keys are the user's. Nulls and
/// empty mappings are left out, as the Azure clients leave them out of a step.
pub(crate) fn snake_keys(value: &Value, levels: usize) -> Value {
    let Value::Object(map) = value else { return value.clone() };
    if levels == 0 {
        return value.clone();
    }
    let mut out = Map::new();
    for (key, item) in map {
        if item.is_null() || item.as_object().is_some_and(Map::is_empty) {
            continue;
        }
        let inner = if key == "properties" { item.clone() } else { snake_keys(item, levels - 1) };
        out.insert(snake(key), inner);
    }
    Value::Object(out)
}

/// A map of the user's own keys, each value in snake_case `levels` deep.
pub(crate) fn snake_each(value: &Value, levels: usize) -> Value {
    let entries = value.as_object().into_iter().flatten();
    Value::Object(entries.map(|(key, item)| (key.clone(), snake_keys(item, levels))).collect::<Map<_, _>>())
}
