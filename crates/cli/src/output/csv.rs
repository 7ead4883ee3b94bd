//! Comma-separated values with headings: the columns of a table under the names that their values have.

use super::{Column, at};
use serde_json::Value;

pub fn render(value: &Value, columns: &[Column]) -> String {
    let rows: Vec<&Value> = match value {
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    };
    let mut paths: Vec<&str> = columns.iter().map(|(_, path)| *path).collect();
    if paths.is_empty() {
        let keys = rows.first().and_then(|row| row.as_object()).into_iter().flatten();
        paths.extend(
            keys.filter(|(_, value)| !value.is_object() && !value.is_array()).map(|(key, _)| key.as_str()),
        );
    }
    if paths.is_empty() {
        return rows.iter().map(|row| quoted(&cell(row)) + "\n").collect();
    }
    let names: Vec<String> = paths.iter().map(|path| quoted(&named(path, &paths))).collect();
    let mut out = names.join(",") + "\n";
    for row in rows {
        let cells: Vec<String> = paths.iter().map(|path| quoted(&cell(at(row, path)))).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

/// What its value is called: the last key of the path, or all of them where that alone is another's, too.
fn named(path: &str, all: &[&str]) -> String {
    let last = |path: &str| {
        path.rsplit('.').find(|key| key.parse::<usize>().is_err()).unwrap_or_default().to_owned()
    };
    let alike = all.iter().filter(|other| last(other) == last(path)).count();
    if alike > 1 { path.replace('.', "_") } else { last(path) }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_has_commas_is_quoted() {
        let rows = json!([{"name": "a,\"b\"", "usd": "0.000001", "more": {"hours": 0.5}}]);
        assert_eq!(
            render(&rows, &[("Name", "name"), ("Hours", "more.hours")]),
            "name,hours\n\"a,\"\"b\"\"\",0.5\n"
        );
        let plan = json!({"why": ["a", "b"], "start": {"p50": 1}, "end": {"p50": 2}});
        assert_eq!(
            render(&plan, &[("Why", "why.0"), ("Start", "start.p50"), ("End", "end.p50")]),
            "why,start_p50,end_p50\na,1,2\n"
        );
        assert_eq!(render(&rows, &[]), "name,usd\n\"a,\"\"b\"\"\",0.000001\n");
        assert_eq!(render(&json!([1, "x"]), &[]), "1\nx\n");
    }
}
