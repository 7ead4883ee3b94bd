//! ARM resources as the entities that `az ml` shows: the keys of its YAML files, in snake_case.

mod asset;
mod compute;
mod job;
mod listing;
mod resource;

pub use asset::{container, version};
pub use compute::compute;
pub use job::{definition, is_final, job, properties_of_run, run, service};
pub use listing::{node, usage, vm_size, workspace};
pub use resource::{batch_deployment, batch_endpoint, datastore, schedule};

use serde_json::{Map, Value};

/// The last segment of an ARM id that follows `/kind/`.
fn name_in_id<'a>(id: &'a str, kind: &str) -> Option<&'a str> {
    let mut segments = id.split('/');
    segments.by_ref().find(|segment| segment.eq_ignore_ascii_case(kind))?;
    segments.next().filter(|name| !name.is_empty())
}

/// `LowPriority` is `low_priority`.
fn snake(text: &str) -> String {
    let mut snake = String::with_capacity(text.len() + 4);
    let mut previous_lower = false;
    for letter in text.chars() {
        if letter.is_uppercase() && previous_lower {
            snake.push('_');
        }
        previous_lower = letter.is_lowercase() || letter.is_ascii_digit();
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// A mapping with every key in snake_case, also inside; values are kept.
fn snake_keys(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().map(|(key, value)| (snake(key), snake_keys(value))).collect::<Map<_, _>>(),
        ),
        Value::Array(list) => Value::Array(list.iter().map(snake_keys).collect()),
        other => other.clone(),
    }
}

/// Sets a key if there is something to set.
fn put(map: &mut Map<String, Value>, key: &str, value: impl Into<Option<Value>>) {
    if let Some(value) = value.into().filter(|value| !value.is_null()) {
        map.insert(key.to_owned(), value);
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}
