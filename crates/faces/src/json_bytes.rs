//! About how many bytes a JSON value takes, for limits on what is made of values.

use serde_json::Value;

/// What a value takes beside its text: a rough figure for numbers, lists and keys.
const VALUE_BYTES: usize = 32;

/// Values are nested no deeper than their parser allows, so this does not run out of stack.
pub(crate) fn json_bytes(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(json_bytes).sum(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| key.len() + VALUE_BYTES + json_bytes(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inner.saturating_add(VALUE_BYTES)
}
