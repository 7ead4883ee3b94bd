//! `--query`: JMESPath, with the order of keys kept.
//!
//! The expression engine keeps objects in alphabetical order, where `az` keeps the order that the expression or the
//! answer gives. The order is put back here: keys named by the expression first, as named; then as in the answer.

use crate::failure::{Failure, Outcome};
use jmespath::ast::Ast;
use serde_json::{Map, Value};

pub fn check(expression: &str) -> Outcome<()> {
    jmespath::compile(expression).map(|_| ()).map_err(|error| wrong(expression, &error))
}

pub fn search(expression: &str, value: &Value) -> Outcome<Value> {
    let compiled = jmespath::compile(expression).map_err(|error| wrong(expression, &error))?;
    let found = compiled.search(value).map_err(|error| wrong(expression, &error))?;
    let found = serde_json::to_value(found)
        .map_err(|error| Failure::failed(format!("the query's result cannot be written: {error}")))?;
    let mut order = Vec::new();
    named_keys(compiled.as_ast(), &mut order);
    answer_keys(value, &mut order);
    Ok(whole_numbers(ordered(found, &order)))
}

fn wrong(expression: &str, error: &jmespath::JmespathError) -> Failure {
    let reason = error.to_string();
    let reason = reason.lines().next().unwrap_or_default().to_owned();
    Failure::usage(format!("--query `{expression}` is not a valid JMESPath expression: {reason}"))
        .hint("as in --query \"[?size=='STANDARD_DS3_V2'].{Name:name, Max:max_instances}\"")
}

fn named_keys(ast: &Ast, order: &mut Vec<String>) {
    match ast {
        Ast::MultiHash { elements, .. } => {
            for pair in elements {
                note(&pair.key, order);
            }
            for pair in elements {
                named_keys(&pair.value, order);
            }
        }
        Ast::MultiList { elements, .. } => elements.iter().for_each(|element| named_keys(element, order)),
        Ast::Projection { lhs, rhs, .. }
        | Ast::Subexpr { lhs, rhs, .. }
        | Ast::And { lhs, rhs, .. }
        | Ast::Or { lhs, rhs, .. }
        | Ast::Comparison { lhs, rhs, .. } => {
            named_keys(lhs, order);
            named_keys(rhs, order);
        }
        Ast::Condition { then, .. } => named_keys(then, order),
        Ast::Flatten { node, .. } | Ast::ObjectValues { node, .. } | Ast::Not { node, .. } => {
            named_keys(node, order);
        }
        Ast::Function { args, .. } => args.iter().for_each(|argument| named_keys(argument, order)),
        _ => {}
    }
}

fn answer_keys(value: &Value, order: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for key in map.keys() {
                note(key, order);
            }
            map.values().for_each(|inner| answer_keys(inner, order));
        }
        // The rows of a list look alike; a few tell the order.
        Value::Array(list) => list.iter().take(8).for_each(|inner| answer_keys(inner, order)),
        _ => {}
    }
}

fn note(key: &str, order: &mut Vec<String>) {
    if !order.iter().any(|known| known == key) {
        order.push(key.to_owned());
    }
}

fn ordered(value: Value, order: &[String]) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> = map.into_iter().collect();
            entries.sort_by_key(|(key, _)| order.iter().position(|known| known == key).unwrap_or(usize::MAX));
            Value::Object(
                entries.into_iter().map(|(key, value)| (key, ordered(value, order))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(list) => Value::Array(list.into_iter().map(|value| ordered(value, order)).collect()),
        other => other,
    }
}

/// `length(@)` and its kin answer 3.0 where people read 3.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => {
                (float as i64).into()
            }
            _ => Value::Number(number),
        },
        Value::Array(list) => Value::Array(list.into_iter().map(whole_numbers).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (key, whole_numbers(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{check, search};
    use serde_json::json;

    #[test]
    fn queries_keep_the_order_of_keys() {
        let rows = json!([{"name": "b", "size": "S", "min": 0, "max": 4}, {"name": "a", "size": "L", "min": 1, "max": 2}]);
        for (expression, expected) in [
            ("[0].name", r#""b""#),
            ("[].{Size:size,Name:name}", r#"[{"Size":"S","Name":"b"},{"Size":"L","Name":"a"}]"#),
            ("[?min>`0`]", r#"[{"name":"a","size":"L","min":1,"max":2}]"#),
            ("[].[name,max]", r#"[["b",4],["a",2]]"#),
            ("length(@)", "2"),
            ("sort_by(@,&name)[0].{Z:name,A:max}", r#"{"Z":"a","A":2}"#),
            ("[0].nothing", "null"),
        ] {
            assert_eq!(search(expression, &rows).unwrap().to_string(), expected, "{expression}");
        }
        assert!(check("[?").is_err());
    }
}
