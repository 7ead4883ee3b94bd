//! Reads one template expression and evaluates it on the way: recursive descent with a limit on the depth. Pure.

use serde_json::{Value, json};

use super::expression::{Evaluated, Evaluator, NESTED_TOO_DEEPLY, lookup_any_case};
use super::functions::shown;
use crate::limits::EXPRESSION_DEPTH_MAX;

/// Recursive descent over one expression. With `live` false it only reads past a branch that is not taken.
#[derive(Debug)]
pub(super) struct Parser<'e, 'a> {
    pub rest: &'e str,
    pub evaluator: &'e Evaluator<'a>,
    pub depth: usize,
}

impl Parser<'_, '_> {
    pub fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, wanted: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub fn expression(&mut self, live: bool) -> Evaluated {
        if self.depth > EXPRESSION_DEPTH_MAX {
            return Err(NESTED_TOO_DEEPLY.into());
        }
        self.depth += 1;
        let mut value = self.primary(live)?;
        loop {
            if self.take('.') {
                let key = self.word();
                value = if live { self.member(&value, &json!(key))? } else { Value::Null };
            } else if self.take('[') {
                let index = self.expression(live)?;
                if !self.take(']') {
                    return Err("a ']' is missing".into());
                }
                value = if live { self.member(&value, &index)? } else { Value::Null };
            } else {
                self.depth -= 1;
                return Ok(value);
            }
        }
    }

    fn word(&mut self) -> String {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.into()
    }

    fn primary(&mut self, live: bool) -> Evaluated {
        self.skip_space();
        if self.rest.starts_with('\'') {
            return self.quoted();
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            let end = self.rest[1..].find(|c: char| !c.is_ascii_digit()).map_or(self.rest.len(), |at| at + 1);
            let (number, rest) = self.rest.split_at(end);
            self.rest = rest;
            return number.parse::<i64>().map(Value::from).map_err(|e| format!("'{}': {e}", shown(number)));
        }
        let name = self.word();
        if name.is_empty() {
            return Err(format!(
                "'{}' is not expected there",
                self.rest.chars().take(10).collect::<String>()
            ));
        }
        if !self.take('(') {
            return Err(format!("'{}' is not a function call", shown(&name)));
        }
        self.arguments(&name, live)
    }

    fn arguments(&mut self, name: &str, live: bool) -> Evaluated {
        let choosing = name.eq_ignore_ascii_case("if");
        let mut arguments = Vec::new();
        if !self.take(')') {
            loop {
                // Only the branch that is taken is evaluated.
                let taken = match (choosing, arguments.len(), arguments.first()) {
                    (true, 1, Some(Value::Bool(condition))) => *condition,
                    (true, 2, Some(Value::Bool(condition))) => !*condition,
                    _ => true,
                };
                arguments.push(self.expression(live && taken)?);
                if self.take(')') {
                    break;
                }
                if !self.take(',') {
                    return Err(format!("a ')' is missing after the arguments of '{}'", shown(name)));
                }
            }
        }
        if !live {
            return Ok(Value::Null);
        }
        if choosing {
            return match arguments.as_slice() {
                [Value::Bool(true), then, _] => Ok(then.clone()),
                [Value::Bool(false), _, otherwise] => Ok(otherwise.clone()),
                _ => Err("'if' takes a condition and two values".into()),
            };
        }
        self.evaluator.call(name, &arguments, self.depth)
    }

    fn quoted(&mut self) -> Evaluated {
        let mut out = String::new();
        let mut rest = &self.rest[1..];
        loop {
            let (before, after) = rest.split_once('\'').ok_or("a quote is not closed")?;
            out += before;
            match after.strip_prefix('\'') {
                Some(after) => {
                    out.push('\'');
                    rest = after;
                }
                None => {
                    self.rest = after;
                    return Ok(json!(out));
                }
            }
        }
    }

    fn member(&self, value: &Value, key: &Value) -> Evaluated {
        let found = match (value, key) {
            (Value::Object(map), Value::String(key)) => {
                self.evaluator.allowance.bytes(map.len())?;
                lookup_any_case(map, key)
            }
            (Value::Array(items), Value::Number(index)) => {
                index.as_u64().and_then(|i| items.get(usize::try_from(i).ok()?))
            }
            _ => None,
        };
        let found = found.ok_or_else(|| format!("there is no member {}", shown(&key.to_string())))?;
        self.evaluator.allowance.value(found)?;
        Ok(found.clone())
    }
}
