//! Tab-separated values: one line per element, nested values left out, as `az` does.

use serde_json::Value;

pub fn render(value: &Value) -> String {
    match value {
        Value::Array(rows) => rows.iter().map(row).collect(),
        one => row(one),
    }
}

fn row(value: &Value) -> String {
    let cells: Vec<String> = match value {
        Value::Object(map) => map.values().map(cell).collect(),
        Value::Array(list) => list.iter().map(cell).collect(),
        Value::Bool(flag) => vec![flag.to_string()],
        one => return cell(one) + "\n",
    };
    // One value is given as it is. Among others it must not begin a row or a cell of its own.
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace(['\t', '\n', '\r'], " ")).collect();
    cells.join("\t") + "\n"
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.len().to_string(),
        Value::Object(_) => String::new(),
    }
}
