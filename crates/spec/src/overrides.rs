//! `--set path=value` and `--remove path`: changing a tree by a dotted path.

use serde_json::{Map, Value};

/// One step of a path: a key, or an index in a list.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// Reads `4`, `true`, `null`, `[1,2]` and `{"a":1}` as what they are, and anything else as text.
pub fn typed_value(text: &str, force_string: bool) -> Value {
    if force_string {
        return Value::String(text.to_owned());
    }
    match text {
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        "None" => Value::Null,
        _ => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}

/// Sets the value at `path` (`a.b`, `a[0].b`), making the mappings on the way.
pub fn set_path(tree: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let mut place = tree;
    for step in steps(path)? {
        place = match step {
            Step::Key(key) => {
                if place.is_null() {
                    *place = Value::Object(Map::new());
                }
                let map = place.as_object_mut().ok_or_else(|| {
                    format!("`{key}` cannot be set: what stands there is a value, not a mapping")
                })?;
                map.entry(key).or_insert(Value::Null)
            }
            Step::Index(index) => place
                .as_array_mut()
                .and_then(|list| list.get_mut(index))
                .ok_or_else(|| format!("there is no element [{index}]"))?,
        };
    }
    *place = value;
    Ok(())
}

/// Removes the value at `path`; false if there was none.
pub fn remove_path(tree: &mut Value, path: &str) -> Result<bool, String> {
    let mut steps = steps(path)?;
    let Some(last) = steps.pop() else { return Ok(false) };
    Ok(match (last, below(tree, steps)) {
        (Step::Key(key), Some(Value::Object(map))) => map.shift_remove(&key).is_some(),
        (Step::Index(index), Some(Value::Array(list))) if index < list.len() => {
            list.remove(index);
            true
        }
        _ => false,
    })
}

/// Gives the value at `path` another key; false if there is no such value, or the other key is there already.
pub(crate) fn rename_key(tree: &mut Value, path: &str, key: &str) -> bool {
    let Ok(mut steps) = steps(path) else { return false };
    let Some(Step::Key(old)) = steps.pop() else { return false };
    match below(tree, steps) {
        Some(Value::Object(map)) if !map.contains_key(key) => match map.shift_remove(&old) {
            Some(value) => map.insert(key.to_owned(), value).is_none(),
            None => false,
        },
        _ => false,
    }
}

fn below(tree: &mut Value, steps: Vec<Step>) -> Option<&mut Value> {
    steps.into_iter().try_fold(tree, |place, step| match step {
        Step::Key(key) => place.get_mut(key),
        Step::Index(index) => place.get_mut(index),
    })
}

fn steps(path: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        if key.is_empty() {
            return Err(format!("`{path}` is not a path; write it as in `resources.instance_count`"));
        }
        steps.push(Step::Key(key.to_owned()));
        while let Some(inner) = rest.strip_prefix('[') {
            let (index, after) =
                inner.split_once(']').ok_or_else(|| format!("`{path}` lacks a closing bracket"))?;
            steps.push(Step::Index(index.parse().map_err(|_| format!("`{index}` is not an index"))?));
            rest = after;
        }
        if !rest.is_empty() {
            return Err(format!("`{path}` is not a path: `{rest}` follows a bracket"));
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::{remove_path, rename_key, set_path, typed_value};
    use serde_json::{Value, json};

    #[test]
    fn values_take_their_type() {
        for (text, expected) in [
            ("4", json!(4)),
            ("true", json!(true)),
            ("null", Value::Null),
            ("{\"a\":1}", json!({"a": 1})),
            ("STANDARD_DS3_v2", json!("STANDARD_DS3_v2")),
            ("\"4\"", json!("4")),
        ] {
            assert_eq!(typed_value(text, false), expected, "{text}");
        }
        assert_eq!(typed_value("4", true), json!("4"));
    }

    #[test]
    fn paths_reach_into_the_tree() {
        let mut tree = json!({"a": {"b": [{"c": 1}]}});
        set_path(&mut tree, "a.b[0].c", json!(2)).unwrap();
        set_path(&mut tree, "x.y", json!("z")).unwrap();
        assert_eq!(tree, json!({"a": {"b": [{"c": 2}]}, "x": {"y": "z"}}));
        assert!(set_path(&mut tree, "a.b[7]", json!(0)).is_err());
        assert!(set_path(&mut tree, "x.y.z", json!(0)).is_err());
        assert!(set_path(&mut tree, "a..b", json!(0)).is_err());
        assert!(remove_path(&mut tree, "a.b[0]").unwrap());
        assert!(!remove_path(&mut tree, "nothing.here").unwrap());
        assert_eq!(tree, json!({"a": {"b": []}, "x": {"y": "z"}}));
    }

    #[test]
    fn a_key_is_renamed_where_it_stands() {
        let mut tree = json!({"a": {"b": [{"c": 1}]}, "x": 2, "y": 3});
        assert!(rename_key(&mut tree, "a.b[0].c", "d") && rename_key(&mut tree, "x", "z"));
        assert_eq!(tree, json!({"a": {"b": [{"d": 1}]}, "z": 2, "y": 3}));
        assert!(!rename_key(&mut tree, "z", "y"), "it is there");
        assert!(!rename_key(&mut tree, "nothing.here", "there") && !rename_key(&mut tree, "no", "one"));
    }
}
