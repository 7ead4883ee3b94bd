//! Template expressions: `"[concat(parameters('a'), '-x')]"`. Evaluated only where used, since templates hold branches
//! that would not evaluate. Pure; `newGuid` and `utcNow` are not offered.

use neap_core::{Code, Problem};
use serde_json::{Map, Value, json};

use super::template::{Scope, resource_id};
use crate::arm::paths;
use crate::limits::EXPRESSION_DEPTH_MAX;

type Evaluated = Result<Value, String>;

#[derive(Debug)]
pub(super) struct Evaluator<'a> {
    declared: Option<&'a Map<String, Value>>,
    variables: Option<&'a Map<String, Value>>,
    given: Option<&'a Map<String, Value>>,
    scope: Scope,
}

impl<'a> Evaluator<'a> {
    pub fn new(
        template: &'a Map<String, Value>,
        given: Option<&'a Map<String, Value>>,
        scope: Scope,
    ) -> Self {
        Self {
            declared: template.get("parameters").and_then(Value::as_object),
            variables: template.get("variables").and_then(Value::as_object),
            given,
            scope,
        }
    }

    pub fn missing_parameters(&self) -> Vec<Problem> {
        let declared = self.declared.into_iter().flatten();
        declared
            .filter(|(name, declaration)| {
                declaration.get("defaultValue").is_none() && self.given(name).is_none()
            })
            .map(|(name, _)| {
                Problem::new(Code::BadArgument, format!("The template parameter '{name}' has no value."))
                    .at(format!("properties.parameters.{name}"))
            })
            .collect()
    }

    pub fn answered_parameters(&self) -> Value {
        let mut out = Map::new();
        for (name, declaration) in self.declared.into_iter().flatten() {
            let kind = declaration["type"].as_str().unwrap_or("String");
            let secure = kind.to_ascii_lowercase().starts_with("secure");
            let value = if secure { Value::Null } else { self.parameter(name, 0).unwrap_or(Value::Null) };
            out.insert(name.clone(), json!({"type": kind, "value": value}));
        }
        Value::Object(out)
    }

    /// Every expression in a value, also in keys.
    pub fn evaluate(&self, value: &Value) -> Evaluated {
        self.walk(value, 0)
    }

    fn walk(&self, value: &Value, depth: usize) -> Evaluated {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err("it refers to itself, or is nested too deeply".into());
        }
        match value {
            Value::String(text) => self.text(text, depth),
            Value::Array(items) => items.iter().map(|item| self.walk(item, depth + 1)).collect(),
            Value::Object(map) => {
                let mut out = Map::new();
                for (key, value) in map {
                    let key = match self.text(key, depth + 1)? {
                        Value::String(key) => key,
                        other => return Err(format!("{other} is not a key")),
                    };
                    out.insert(key, self.walk(value, depth + 1)?);
                }
                Ok(Value::Object(out))
            }
            plain => Ok(plain.clone()),
        }
    }

    fn text(&self, text: &str, depth: usize) -> Evaluated {
        if let Some(literal) = text.strip_prefix("[[") {
            return Ok(json!(format!("[{literal}")));
        }
        let Some(expression) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            return Ok(json!(text));
        };
        let mut parser = Parser { rest: expression, evaluator: self, depth: depth + 1 };
        let value = parser.expression(true)?;
        parser.skip_space();
        if parser.rest.is_empty() {
            Ok(value)
        } else {
            Err(format!("'{}' is left over in '{text}'", parser.rest))
        }
    }

    fn given(&self, name: &str) -> Option<&'a Value> {
        lookup(self.given, name).and_then(|given| given.get("value"))
    }

    fn parameter(&self, name: &str, depth: usize) -> Evaluated {
        if let Some(value) = self.given(name) {
            return Ok(value.clone());
        }
        let declaration =
            lookup(self.declared, name).ok_or_else(|| format!("there is no parameter '{name}'"))?;
        self.walk(declaration.get("defaultValue").unwrap_or(&Value::Null), depth + 1)
    }

    fn call(&self, name: &str, arguments: &[Value], depth: usize) -> Evaluated {
        let texts = || arguments.iter().map(plain_text).collect::<Vec<_>>();
        let first = || arguments.first().cloned().unwrap_or(Value::Null);
        let truth = |value: &Value| match value {
            Value::Bool(flag) => *flag,
            Value::String(text) => text.eq_ignore_ascii_case("true"),
            Value::Number(n) => n.as_i64() != Some(0),
            _ => false,
        };
        Ok(match name.to_ascii_lowercase().as_str() {
            "parameters" => self.parameter(&plain_text(&first()), depth)?,
            "variables" => {
                let name = plain_text(&first());
                self.walk(
                    lookup(self.variables, &name).ok_or_else(|| format!("there is no variable '{name}'"))?,
                    depth + 1,
                )?
            }
            "concat" if first().is_array() => {
                arguments.iter().filter_map(Value::as_array).flatten().cloned().collect()
            }
            "concat" => json!(texts().concat()),
            "format" => json!(formatted(&texts())),
            "tolower" => json!(plain_text(&first()).to_lowercase()),
            "toupper" => json!(plain_text(&first()).to_uppercase()),
            "string" => json!(plain_text(&first())),
            "trim" => json!(plain_text(&first()).trim()),
            "replace" => json!(
                texts().as_slice()[..]
                    .chunks(3)
                    .next()
                    .filter(|c| c.len() == 3)
                    .map(|c| c[0].replace(&c[1], &c[2]))
                    .ok_or("replace takes three arguments")?
            ),
            "int" => json!(plain_text(&first()).parse::<i64>().map_err(|e| format!("int: {e}"))?),
            "bool" => json!(truth(&first())),
            "json" => serde_json::from_str(&plain_text(&first())).map_err(|e| format!("json: {e}"))?,
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
            other => return Err(format!("the function '{other}' is not supported in templates")),
        })
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

fn lookup<'a>(map: Option<&'a Map<String, Value>>, name: &str) -> Option<&'a Value> {
    let map = map?;
    map.get(name)
        .or_else(|| map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
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

fn formatted(texts: &[String]) -> String {
    let mut out = texts.first().cloned().unwrap_or_default();
    for (index, text) in texts.iter().skip(1).enumerate() {
        out = out.replace(&format!("{{{index}}}"), text);
    }
    out
}

/// Recursive descent over one expression. With `live` false it only reads past a branch that is not taken.
struct Parser<'e, 'a> {
    rest: &'e str,
    evaluator: &'e Evaluator<'a>,
    depth: usize,
}

impl Parser<'_, '_> {
    fn skip_space(&mut self) {
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

    fn expression(&mut self, live: bool) -> Evaluated {
        if self.depth > EXPRESSION_DEPTH_MAX {
            return Err("it refers to itself, or is nested too deeply".into());
        }
        self.depth += 1;
        let mut value = self.primary(live)?;
        loop {
            if self.take('.') {
                let key = self.word();
                value = if live { member(&value, &json!(key))? } else { Value::Null };
            } else if self.take('[') {
                let index = self.expression(live)?;
                if !self.take(']') {
                    return Err("a ']' is missing".into());
                }
                value = if live { member(&value, &index)? } else { Value::Null };
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
            return number.parse::<i64>().map(Value::from).map_err(|e| format!("'{number}': {e}"));
        }
        let name = self.word();
        if name.is_empty() {
            return Err(format!(
                "'{}' is not expected there",
                self.rest.chars().take(10).collect::<String>()
            ));
        }
        if !self.take('(') {
            return Err(format!("'{name}' is not a function call"));
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
                    return Err(format!("a ')' is missing after the arguments of '{name}'"));
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
}

fn member(value: &Value, key: &Value) -> Evaluated {
    let found = match (value, key) {
        (Value::Object(map), Value::String(key)) => lookup(Some(map), key),
        (Value::Array(items), Value::Number(index)) => {
            index.as_u64().and_then(|i| items.get(usize::try_from(i).ok()?))
        }
        _ => None,
    };
    found.cloned().ok_or_else(|| format!("there is no member {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let template = json!({"parameters": {"a": {"defaultValue": "x"}, "loop": {"defaultValue": "[parameters('loop')]"}, "list": {"defaultValue": [1, 2]}},
            "variables": {"v": {"k": ["[parameters('a')]"]}, "self": "[variables('self')]"}});
        let scope = Scope {
            subscription: "s".into(),
            tenant: "t".into(),
            group: "g".into(),
            location: "eastus".into(),
            deployment: "d".into(),
        };
        let evaluator = Evaluator::new(template.as_object().unwrap(), None, scope);
        let check =
            |text: &str, expect: Value| assert_eq!(evaluator.evaluate(&json!(text)), Ok(expect), "{text}");
        check("plain", json!("plain"));
        check("[[literal]", json!("[literal]"));
        check("[concat('a', '''', parameters('A'), 1)]", json!("a'x1"));
        check("[variables('v').k[0]]", json!("x"));
        check("[if(equals('A', 'a'), 1, variables('none'))]", json!(1));
        check("[if(not(true()), nope('x'), 'y')]", json!("y"));
        check("[or(equals(toLower('WEST'),'west'), false())]", json!(true));
        check("[resourceGroup().location]", json!("eastus"));
        check(
            "[resourceId('s2', 'g2', 'A.B/c/d', 'x', 'y')]",
            json!("/subscriptions/s2/resourceGroups/g2/providers/A.B/c/x/d/y"),
        );
        check("[json('null')]", Value::Null);
        check("[length(parameters('list'))]", json!(2));
        check("[empty('')]", json!(true));
        check("[format('{0}-{1}', 'a', 'b')]", json!("a-b"));
        check("[union(createObject('a', 1), createObject('b', 2))]", json!({"a": 1, "b": 2}));
        for bad in [
            "[nope()]",
            "[parameters('none')]",
            "[concat('a']",
            "[concat('a)]",
            "[variables('self')]",
            "[parameters('loop')]",
            "[]",
            "[1 2]",
            "[variables('v').z]",
        ] {
            assert!(evaluator.evaluate(&json!(bad)).is_err(), "{bad}");
        }
    }
}
