//! Template expressions: `"[concat(parameters('a'), '-x')]"`. Evaluated only where used, since templates hold branches
//! that would not evaluate. Pure; `newGuid` and `utcNow` are not offered.

use std::collections::BTreeMap;

use neap_core::{Code, Problem};
use serde_json::{Map, Value, json};

use super::allowance::Allowance;
use super::functions::shown;
use super::parser::Parser;
use super::template::Scope;
use crate::limits::EXPRESSION_DEPTH_MAX;

pub(super) type Evaluated = Result<Value, String>;

pub(super) const NESTED_TOO_DEEPLY: &str = "it refers to itself, or is nested too deeply";

/// Why a value cannot be evaluated, and at which field of it.
#[derive(Debug)]
pub(super) struct Fault {
    /// As `.properties.tags[2]`; empty for the value itself.
    pub at: String,
    pub why: String,
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self { at: String::new(), why }
    }
}

impl Fault {
    fn below(self, step: &str) -> Self {
        Self { at: format!("{step}{}", self.at), ..self }
    }
}

#[derive(Debug)]
pub(super) struct Evaluator<'a> {
    declared: Names<'a>,
    variables: Names<'a>,
    given: Names<'a>,
    pub(super) scope: Scope,
    /// For the whole template.
    pub(super) allowance: Allowance,
}

/// Names of a template are found in any case.
type Names<'a> = BTreeMap<String, (&'a str, &'a Value)>;

fn names(map: Option<&Map<String, Value>>) -> Names<'_> {
    let named = map.into_iter().flatten();
    named.map(|(name, value)| (name.to_ascii_lowercase(), (name.as_str(), value))).collect()
}

fn lookup<'a>(names: &Names<'a>, name: &str) -> Option<&'a Value> {
    names.get(&name.to_ascii_lowercase()).map(|(_, value)| *value)
}

impl<'a> Evaluator<'a> {
    pub fn new(
        template: &'a Map<String, Value>,
        given: Option<&'a Map<String, Value>>,
        scope: Scope,
    ) -> Self {
        Self {
            declared: names(template.get("parameters").and_then(Value::as_object)),
            variables: names(template.get("variables").and_then(Value::as_object)),
            given: names(given),
            scope,
            allowance: Allowance::default(),
        }
    }

    pub fn missing_parameters(&self) -> Vec<Problem> {
        let missing = self.declared.values().filter(|(name, declaration)| {
            declaration.get("defaultValue").is_none() && self.given(name).is_none()
        });
        missing
            .map(|(name, _)| {
                let message = format!("The template parameter '{}' has no value.", shown(name));
                Problem::new(Code::BadArgument, message).at(format!("properties.parameters.{}", shown(name)))
            })
            .collect()
    }

    pub fn answered_parameters(&self) -> Value {
        let mut out = Map::new();
        for (name, declaration) in self.declared.values() {
            let kind = declaration["type"].as_str().unwrap_or("String");
            let secure = kind.to_ascii_lowercase().starts_with("secure");
            let value = if secure { Value::Null } else { self.parameter(name, 0).unwrap_or(Value::Null) };
            out.insert((*name).to_owned(), json!({"type": kind, "value": value}));
        }
        Value::Object(out)
    }

    /// Every expression in a value, also in keys.
    pub fn evaluate(&self, value: &Value) -> Result<Value, Fault> {
        self.walk(value, 0)
    }

    fn walk(&self, value: &Value, depth: usize) -> Result<Value, Fault> {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(NESTED_TOO_DEEPLY.to_owned().into());
        }
        self.allowance.step()?;
        match value {
            Value::String(text) => Ok(self.text(text, depth)?),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| {
                        self.walk(item, depth + 1).map_err(|fault| fault.below(&format!("[{index}]")))
                    })
                    .collect()
            }
            Value::Object(map) => {
                let mut out = Map::new();
                for (key, value) in map {
                    let below = |fault: Fault| fault.below(&format!(".{}", shown(key)));
                    let key = match self.text(key, depth + 1).map_err(|why| below(why.into()))? {
                        Value::String(key) => key,
                        other => {
                            return Err(below(format!("{} is not a key", shown(&other.to_string())).into()));
                        }
                    };
                    out.insert(key, self.walk(value, depth + 1).map_err(below)?);
                }
                Ok(Value::Object(out))
            }
            plain => Ok(plain.clone()),
        }
    }

    fn text(&self, text: &str, depth: usize) -> Evaluated {
        // Reading past a branch that is not taken costs as much as evaluating it.
        self.allowance.bytes(text.len())?;
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
            Err(format!("'{}' is left over in '{}'", shown(parser.rest), shown(text)))
        }
    }

    fn given(&self, name: &str) -> Option<&'a Value> {
        lookup(&self.given, name).and_then(|given| given.get("value"))
    }

    pub(super) fn parameter(&self, name: &str, depth: usize) -> Evaluated {
        if let Some(value) = self.given(name) {
            self.allowance.value(value)?;
            return Ok(value.clone());
        }
        let declaration =
            lookup(&self.declared, name).ok_or_else(|| format!("there is no parameter '{}'", shown(name)))?;
        let default = declaration.get("defaultValue").unwrap_or(&Value::Null);
        self.walk(default, depth + 1).map_err(|fault| fault.why)
    }

    pub(super) fn variable(&self, name: &str, depth: usize) -> Evaluated {
        let value =
            lookup(&self.variables, name).ok_or_else(|| format!("there is no variable '{}'", shown(name)))?;
        self.walk(value, depth + 1).map_err(|fault| fault.why)
    }
}

pub(super) fn lookup_any_case<'a>(map: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    map.get(name)
        .or_else(|| map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope {
            subscription: "s".into(),
            tenant: "t".into(),
            group: "g".into(),
            location: "eastus".into(),
            deployment: "d".into(),
        }
    }

    #[test]
    fn expressions() {
        let template = json!({"parameters": {"a": {"defaultValue": "x"}, "loop": {"defaultValue": "[parameters('loop')]"}, "list": {"defaultValue": [1, 2]}},
            "variables": {"v": {"k": ["[parameters('a')]"]}, "self": "[variables('self')]"}});
        let evaluator = Evaluator::new(template.as_object().unwrap(), None, scope());
        let check = |text: &str, expect: Value| {
            assert_eq!(evaluator.evaluate(&json!(text)).unwrap(), expect, "{text}")
        };
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

    #[test]
    fn what_grows_without_end_is_refused_at_its_field() {
        let growing = |lines: usize, bytes: usize, copies: usize| {
            let mut map = Map::new();
            map.insert("v0".into(), json!("x".repeat(bytes)));
            for line in 1..lines {
                let above = line - 1;
                map.insert(
                    format!("v{line}"),
                    json!(format!("[concat({}'')]", format!("variables('v{above}'),").repeat(copies))),
                );
            }
            map
        };
        let big = "a".repeat(2_000_000);
        for (variables, text, expect) in [
            (growing(60, 100, 2), "[variables('v40')]".to_owned(), "nested"),
            (growing(60, 0, 8), "[variables('v6')]".to_owned(), "steps"),
            (growing(60, 100_000, 8), "[variables('v4')]".to_owned(), "bytes"),
            (Map::new(), format!("[replace('{0}', 'a', '{0}')]", "a".repeat(5_000)), "bytes"),
            (Map::new(), format!("[replace('{0}', '', '{0}')]", "a".repeat(5_000)), "bytes"),
            (Map::new(), format!("[format('{}', '{}')]", "{0}".repeat(5_000), "a".repeat(5_000)), "bytes"),
            (Map::new(), format!("[json('[{}1]')]", "1,".repeat(500_000)), "bytes"),
            (
                json!({"b": big}).as_object().unwrap().clone(),
                format!("[concat({}'')]", "variables('b'),".repeat(50)),
                "bytes",
            ),
            (
                json!({"skip": format!("[if(true(), 1, '{big}')]")}).as_object().unwrap().clone(),
                format!("[concat({}'')]", "variables('skip'),".repeat(50)),
                "bytes",
            ),
            (Map::new(), format!("[{}1{}]", "array(".repeat(5_000), ")".repeat(5_000)), "nested"),
            (Map::new(), format!("[{}'x'{}]", "not(".repeat(100_000), ")".repeat(100_000)), "nested"),
        ] {
            let template = json!({"variables": variables});
            let evaluator = Evaluator::new(template.as_object().unwrap(), None, scope());
            let fault = evaluator.evaluate(&json!({"tags": {"a": ["x", text]}})).unwrap_err();
            assert!(fault.why.contains(expect), "{}: {}", shown(&text), fault.why);
            assert_eq!(fault.at, ".tags.a[1]");
            assert!(fault.why.len() < 300, "{}", fault.why);
        }
    }

    #[test]
    fn what_was_put_in_by_format_is_not_looked_at_again() {
        let template = json!({});
        let evaluator = Evaluator::new(template.as_object().unwrap(), None, scope());
        for (text, expect) in
            [("[format('{0}{1}', '{1}', 'x')]", "{1}x"), ("[format('{ {0} {7} {', 'a')]", "{ a {7} {")]
        {
            assert_eq!(evaluator.evaluate(&json!(text)).unwrap(), json!(expect), "{text}");
        }
    }
}
