//! What a request says, wherever it says it: in a JSON body or in the query. Whole numbers come as numbers or as text,
//! and floats that JSON has no word for as text.

use neap_core::Millis;
use serde_json::{Map, Value};

use super::faults::Fault;
use crate::ask::Query;

#[derive(Clone, Debug, Default)]
pub(super) struct Given(Map<String, Value>);

impl Given {
    pub fn read(body: &[u8], query: &Query) -> Result<Self, Fault> {
        let mut map = if body.is_empty() {
            Map::new()
        } else {
            match serde_json::from_slice(body) {
                Ok(Value::Object(map)) => map,
                Ok(Value::Null) => Map::new(),
                Ok(_) => return Err(Fault::invalid("The request body is not a JSON object.")),
                Err(e) => return Err(Fault::invalid(format!("The request body is not JSON: {e}."))),
            }
        };
        for (key, value) in query.pairs() {
            match map.get_mut(key) {
                // Repeated in the query, it is a list.
                Some(Value::Array(list)) => list.push(value.into()),
                Some(Value::String(first)) => {
                    let list = vec![Value::from(first.clone()), value.into()];
                    map.insert(key.into(), Value::Array(list));
                }
                Some(_) => {}
                None => {
                    map.insert(key.into(), value.into());
                }
            }
        }
        Ok(Self(map))
    }

    pub fn of(value: &Value) -> Self {
        Self(value.as_object().cloned().unwrap_or_default())
    }

    /// A text that is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    pub fn need(&self, key: &str) -> Result<&str, Fault> {
        self.text(key).ok_or_else(|| Fault::invalid(format!("The parameter '{key}' is missing.")))
    }

    /// The run; older clients call it `run_uuid`.
    pub fn run_id(&self) -> Result<&str, Fault> {
        self.text("run_id")
            .or_else(|| self.text("run_uuid"))
            .ok_or_else(|| Fault::invalid("The parameter 'run_id' is missing."))
    }

    /// A value as text also where it may be empty.
    pub fn value(&self) -> String {
        match self.0.get("value") {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        }
    }

    pub fn integer(&self, key: &str) -> Result<Option<i64>, Fault> {
        let read = match self.0.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => {
                number.as_i64().or_else(|| number.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
            }
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        read.map(Some).ok_or_else(|| Fault::invalid(format!("'{key}' must be a whole number.")))
    }

    pub fn millis(&self, key: &str) -> Result<Option<Millis>, Fault> {
        Ok(self.integer(key)?.and_then(|at| u64::try_from(at).ok()).map(Millis))
    }

    pub fn float(&self, key: &str) -> Result<f64, Fault> {
        let read = match self.0.get(key) {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                other => other.parse().ok(),
            },
            _ => None,
        };
        read.ok_or_else(|| Fault::invalid(format!("'{key}' must be a number.")))
    }

    /// A word of an enumeration, by name or by number.
    pub fn word(&self, key: &str) -> Option<String> {
        match self.0.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        }
    }

    pub fn is_false(&self, key: &str) -> bool {
        self.0.get(key) == Some(&Value::Bool(false))
    }

    pub fn texts(&self, key: &str) -> Vec<String> {
        match self.0.get(key) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(String::from).collect(),
            Some(Value::String(text)) => vec![text.clone()],
            _ => Vec::new(),
        }
    }

    pub fn list(&self, key: &str) -> Vec<Self> {
        self.0.get(key).and_then(Value::as_array).into_iter().flatten().map(Self::of).collect()
    }

    pub fn object(&self, key: &str) -> Self {
        self.0.get(key).map(Self::of).unwrap_or_default()
    }

    /// `[{"key": …, "value": …}]`.
    pub fn pairs(&self, key: &str) -> Vec<(String, String)> {
        let pair = |entry: Self| (entry.text("key").unwrap_or_default().to_owned(), entry.value());
        self.list(key).into_iter().map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_as_numbers_and_as_text() {
        let given = Given::read(
            br#"{"a": 3, "b": "4", "c": "NaN", "d": 1e3, "e": "x", "f": 2.5, "tags": [{"key": "k", "value": "v"}]}"#,
            &Query::parse("run_ids=r1&run_ids=r2&step=7"),
        )
        .unwrap();
        assert_eq!(given.integer("a").unwrap(), Some(3));
        assert_eq!(given.integer("b").unwrap(), Some(4));
        assert_eq!(given.integer("d").unwrap(), Some(1000));
        assert_eq!(given.integer("step").unwrap(), Some(7));
        assert_eq!(given.integer("none").unwrap(), None);
        assert!(given.integer("e").is_err() && given.integer("f").is_err());
        assert!(given.float("c").unwrap().is_nan() && given.float("e").is_err());
        assert_eq!(given.texts("run_ids"), ["r1", "r2"]);
        assert_eq!(given.pairs("tags"), [("k".to_owned(), "v".to_owned())]);
        assert!(Given::read(b"[1]", &Query::default()).is_err());
    }
}
