//! A table for people: headings, a rule, rows; two spaces between columns, no colour, nothing cut off.

use super::{Column, at};
use neap_core::visible;
use serde_json::Value;

pub fn render(value: &Value, columns: &[Column]) -> String {
    let rows: Vec<&Value> = match value {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    };
    if rows.is_empty() {
        return String::new();
    }
    let (headings, cells) = if columns.is_empty() || !rows.iter().all(|row| row.is_object()) {
        own_columns(&rows)
    } else {
        let headings = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let cells =
            rows.iter().map(|row| columns.iter().map(|(_, path)| cell(at(row, path))).collect()).collect();
        (headings, cells)
    };
    draw(&headings, &cells)
}

/// Headings out of the values themselves: what is nested is left out, as are ids and types.
fn own_columns(rows: &[&Value]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut keys: Vec<&str> = Vec::new();
    for row in rows {
        for (key, value) in row.as_object().into_iter().flatten() {
            let shown =
                !value.is_object() && !value.is_array() && !matches!(key.as_str(), "id" | "type" | "etag");
            if shown && !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
    }
    if !keys.is_empty() {
        let headings = keys.iter().map(|key| capitalised(key)).collect();
        let cells = rows.iter().map(|row| keys.iter().map(|key| cell(&row[*key])).collect()).collect();
        return (headings, cells);
    }
    let lists: Vec<Vec<String>> = rows
        .iter()
        .map(|row| match row {
            Value::Array(list) => list.iter().map(cell).collect(),
            one => vec![cell(one)],
        })
        .collect();
    let width = lists.iter().map(Vec::len).max().unwrap_or_default();
    let headings = if rows.iter().all(|row| row.is_array()) {
        (1..=width).map(|number| format!("Column{number}")).collect()
    } else {
        vec!["Result".to_owned(); width]
    };
    (headings, lists)
}

fn capitalised(key: &str) -> String {
    let key = visible::line(key);
    let mut letters = key.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => visible::line(text.split('\n').next().unwrap_or_default()).into_owned(),
        other => visible::line(&other.to_string()).into_owned(),
    }
}

fn draw(headings: &[String], rows: &[Vec<String>]) -> String {
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(column, heading)| {
            let widest =
                rows.iter().filter_map(|row| row.get(column)).map(|cell| length(cell)).max().unwrap_or(0);
            // The rule is two wider than the heading, as az's tables are.
            widest.max(length(heading) + 2)
        })
        .collect();
    let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = String::new();
    for row in [headings, &rules].into_iter().chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width - length(cell) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
