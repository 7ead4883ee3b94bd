//! The functions of template expressions. Pure; whatever makes a longer text than it was given pays for it first.

use serde_json::{Value, json};

use super::expression::{Evaluated, Evaluator};
use super::template::resource_id;
use crate::arm::paths;
use crate::limits::EXPRESSION_JSON_FACTOR;

impl Evaluator<'_> {
    pub(super) fn call(&self, name: &str, arguments: &[Value], depth: usize) -> Evaluated {
        let texts = || arguments.iter().map(plain_text).collect::<Vec<_>>();
        let first = || arguments.first().cloned().unwrap_or(Value::Null);
        let truth = |value: &Value| match value {
            Value::Bool(flag) => *flag,
            Value::String(text) => text.eq_ignore_ascii_case("true"),
            Value::Number(n) => n.as_i64() != Some(0),
            _ => false,
        };
        self.allowance.step()?;
        let value = match name.to_ascii_lowercase().as_str() {
            "parameters" => self.parameter(&plain_text(&first()), depth)?,
            "variables" => self.variable(&plain_text(&first()), depth)?,
            "concat" if first().is_array() => {
                arguments.iter().filter_map(Value::as_array).flatten().cloned().collect()
            }
            "concat" => json!(texts().concat()),
            "format" => json!(self.formatted(&texts())?),
            "tolower" => json!(plain_text(&first()).to_lowercase()),
            "toupper" => json!(plain_text(&first()).to_uppercase()),
            "string" => json!(plain_text(&first())),
            "trim" => json!(plain_text(&first()).trim()),
            "replace" => json!(self.replaced(&texts())?),
            "int" => json!(plain_text(&first()).parse::<i64>().map_err(|e| format!("int: {e}"))?),
            "bool" => json!(truth(&first())),
            "json" => {
                let text = plain_text(&first());
                self.allowance.bytes(text.len().saturating_mul(EXPRESSION_JSON_FACTOR))?;
                serde_json::from_str(&text).map_err(|e| format!("json: {e}"))?
            }
            "null" => Value::Null,
            "true" => json!(true),
            "false" => json!(false),
            "equals" => match (arguments.first(), arguments.get(1)) {
                (Some(Value::String(a)), Some(Value::String(b))) => json!(a.eq_ignore_ascii_case(b)),
                (a, b) => json!(a == b),
            },
            "not" => json!(!truth(&first())),
            "and" => json!(arguments.iter().all(truth)),
            "or" => json!(arguments.iter().any(truth)),
            "empty" => json!(match first() {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Object(map) => map.is_empty(),
                _ => false,
            }),
            "length" => json!(match first() {
                Value::String(text) => text.chars().count(),
                Value::Array(items) => items.len(),
                Value::Object(map) => map.len(),
                _ => 0,
            }),
            "contains" => json!(match first() {
                Value::String(text) => text.contains(&plain_text(arguments.get(1).unwrap_or(&Value::Null))),
                Value::Array(items) => arguments.get(1).is_some_and(|item| items.contains(item)),
                Value::Object(map) => arguments.get(1).is_some_and(|key| map.contains_key(&plain_text(key))),
                _ => false,
            }),
            "coalesce" => arguments.iter().find(|value| !value.is_null()).cloned().unwrap_or(Value::Null),
            "array" if first().is_array() => first(),
            "array" => json!([first()]),
            "createarray" => Value::Array(arguments.to_vec()),
            "createobject" => Value::Object(
                arguments
                    .chunks(2)
                    .filter(|pair| pair.len() == 2)
                    .map(|pair| (plain_text(&pair[0]), pair[1].clone()))
                    .collect(),
            ),
            "union" if first().is_object() => Value::Object(
                arguments
                    .iter()
                    .filter_map(Value::as_object)
                    .flatten()
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect(),
            ),
            "uniquestring" => json!(
                paths::derived_guid(&texts().iter().map(String::as_str).collect::<Vec<_>>()).replace('-', "")
                    [..13]
            ),
            "guid" => json!(paths::derived_guid(&texts().iter().map(String::as_str).collect::<Vec<_>>())),
            "subscription" => {
                json!({"subscriptionId": self.scope.subscription, "tenantId": self.scope.tenant, "id": format!("/subscriptions/{}", self.scope.subscription), "displayName": "Neap"})
            }
            "tenant" => json!({"tenantId": self.scope.tenant}),
            "resourcegroup" => {
                json!({"name": self.scope.group, "location": self.scope.location, "id": paths::group_id(&self.scope.subscription, &self.scope.group)})
            }
            "deployment" => json!({"name": self.scope.deployment}),
            "resourceid" => json!(self.resource_id(&texts())?),
            _ => return Err(format!("the function '{}' is not supported in templates", shown(name))),
        };
        self.allowance.value(&value)?;
        Ok(value)
    }

    /// Pays for the result before it is made: a short pattern in a long text can make it far longer.
    fn replaced(&self, texts: &[String]) -> Result<String, String> {
        let [text, old, new, ..] = texts else { return Err("replace takes three arguments".into()) };
        let count = text.matches(old.as_str()).count();
        self.allowance.bytes(count.saturating_mul(new.len()).saturating_add(text.len()))?;
        Ok(text.replace(old.as_str(), new))
    }

    /// `{0}` and so on, each replaced once: what was put in is not looked at again.
    fn formatted(&self, texts: &[String]) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = texts.first().map_or("", String::as_str);
        while let Some((before, after)) = rest.split_once('{') {
            self.allowance.bytes(before.len())?;
            out += before;
            let placed = after.split_once('}').and_then(|(index, after)| {
                let index: usize = index.parse().ok()?;
                Some((texts.get(index.checked_add(1)?)?, after))
            });
            match placed {
                Some((text, after)) => {
                    self.allowance.bytes(text.len())?;
                    out += text;
                    rest = after;
                }
                None => {
                    out.push('{');
                    rest = after;
                }
            }
        }
        Ok(out + rest)
    }

    /// `resourceId([subscription], [group], type, name…)`: the type is the first argument with a dot and a slash.
    fn resource_id(&self, arguments: &[String]) -> Result<String, String> {
        let at = arguments
            .iter()
            .position(|a| a.contains('.') && a.contains('/'))
            .ok_or("resourceId names no resource type")?;
        let mut scope = self.scope.clone();
        match &arguments[..at] {
            [] => {}
            [group] => scope.group.clone_from(group),
            [subscription, group] => {
                scope.subscription.clone_from(subscription);
                scope.group.clone_from(group);
            }
            _ => return Err("resourceId has too many arguments before the type".into()),
        }
        Ok(resource_id(&scope, &arguments[at], &arguments[at + 1..].join("/")))
    }
}

fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        other => other.to_string(),
    }
}

/// The beginning of a text, for messages: a template may hold megabytes.
pub(super) fn shown(text: &str) -> String {
    const CHARS: usize = 60;
    match text.char_indices().nth(CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
