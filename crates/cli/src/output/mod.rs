//! The answer on stdout: `--query` first, then the chosen format, written as `az` writes it.

mod colour;
mod csv;
mod query;
mod screen;
mod table;
mod tsv;

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::settings::Settings;
use clap::ValueEnum;
use neap_core::visible;
use serde_json::Value;
use std::io::{ErrorKind, IsTerminal, Write};

pub use screen::Screen;

/// Text is folded in YAML only beyond any line that people write.
const LINE_CHARS_MAX: usize = 1 << 20;

/// The rows as comma-separated values, whatever format is chosen.
pub fn csv(rows: &Value, columns: &[Column]) -> String {
    // In a file a line may go on within quotes; on a terminal it would look like another.
    if std::io::stdout().is_terminal() {
        csv::render(&in_lines(rows), columns)
    } else {
        csv::render(rows, columns)
    }
}

/// A column of a table: its heading, and the dotted path of its value; a number is a place in a list.
pub type Column = (&'static str, &'static str);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON
    Json,
    /// JSON in colour
    Jsonc,
    /// YAML
    Yaml,
    /// YAML in colour
    Yamlc,
    /// A table for people
    Table,
    /// Tab-separated values, without headings
    Tsv,
    /// Comma-separated values, with headings
    Csv,
    /// Nothing
    None,
}

#[derive(Debug)]
pub struct Printer {
    format: Format,
    query: Option<String>,
}

impl Printer {
    pub fn new(global: &Global, settings: &Settings) -> Outcome<Self> {
        let format = match (global.output, settings.default_of("output")) {
            (Some(format), _) => format,
            (None, None) => Format::Json,
            (None, Some(word)) => Format::from_str(word, true).map_err(|_| {
                Failure::usage(format!("the configured default output={word} is not a format"))
                    .hint("one of json, jsonc, yaml, yamlc, table, tsv, csv, none: neap configure --defaults output=json")
            })?,
        };
        // A wrong expression is found before anything is asked of the server.
        if let Some(query) = &global.query {
            query::check(query)?;
        }
        Ok(Self { format, query: global.query.clone() })
    }

    /// Whether the answer is shown as rows with the columns of its command.
    pub fn has_rows(&self) -> bool {
        self.query.is_none() && matches!(self.format, Format::Table | Format::Csv)
    }

    /// Writes `value`. `columns` are the headings of a table; a query makes its own.
    pub fn print(&self, value: &Value, columns: &'static [Column]) -> Outcome<()> {
        let text = match &self.query {
            Some(query) => render(&query::search(query, value)?, self.format, &[], coloured())?,
            None => render(value, self.format, columns, coloured())?,
        };
        emit(&text)
    }
}

fn coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The text of a value in a format. Nothing is written for null, as with `az`.
fn render(value: &Value, format: Format, columns: &[Column], coloured: bool) -> Outcome<String> {
    if value.is_null() {
        return Ok(String::new());
    }
    let is_terminal = std::io::stdout().is_terminal();
    Ok(match format {
        Format::None => String::new(),
        Format::Json => json(value),
        Format::Jsonc => {
            let text = json(value);
            if coloured { colour::json(&text) } else { text }
        }
        Format::Yaml => on_screen(yaml(value)?, is_terminal),
        Format::Yamlc => {
            let text = on_screen(yaml(value)?, is_terminal);
            if coloured { colour::yaml(&text) } else { text }
        }
        Format::Table => table::render(value, columns),
        Format::Tsv => on_screen(tsv::render(value), is_terminal),
        Format::Csv => csv(value, columns),
    })
}

/// The same JSON, whoever shows it: what a terminal would act on is escaped.
fn json(value: &Value) -> String {
    visible::text(&format!("{value:#}\n")).into_owned()
}

/// A program gets the values as they are, a terminal only what it can show.
fn on_screen(text: String, is_terminal: bool) -> String {
    if is_terminal { visible::text(&text).into_owned() } else { text }
}

/// An answer for sentences: every text in it stays within its line.
pub fn in_lines(value: &Value) -> Value {
    match value {
        Value::String(text) => visible::line(text).into(),
        Value::Array(items) => items.iter().map(in_lines).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (visible::line(key).into_owned(), in_lines(value))).collect()
        }
        plain => plain.clone(),
    }
}

pub fn yaml(value: &Value) -> Outcome<String> {
    // A long id stays on its line, so that it can be copied.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: LINE_CHARS_MAX };
    let text = serde_saphyr::to_string_with_options(value, options)
        .map_err(|error| Failure::failed(format!("the answer cannot be written as YAML: {error}")))?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Writes to stdout. A reader that went away (`| head`) is no failure.
pub fn emit(text: &str) -> Outcome<()> {
    emit_bytes(text.as_bytes()).map(|_| ())
}

/// Writes to stdout; false if nobody reads it any more.
pub fn emit_bytes(bytes: &[u8]) -> Outcome<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("cannot write the answer: {error}"))),
    }
}

/// The value at a dotted path.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, key| {
        let in_list = || value.get(key.parse::<usize>().ok()?);
        value.get(key).or_else(in_list).unwrap_or(&Value::Null)
    })
}

#[cfg(test)]
mod tests {
    use super::{Format, render};
    use serde_json::{Value, json};

    #[track_caller]
    fn check(value: &Value, format: Format, expected: &str) {
        assert_eq!(render(value, format, &[("Name", "name"), ("Nodes", "a.n")], false).unwrap(), expected);
    }

    #[test]
    fn formats_follow_az() {
        let rows = json!([{"name": "one", "a": {"n": 1}, "ok": true, "x": null}, {"name": "seven", "a": {"n": 22}, "ok": false, "x": "y"}]);
        check(&rows, Format::Tsv, "one\t\tTrue\tNone\nseven\t\tFalse\ty\n");
        check(&rows, Format::Table, "Name    Nodes\n------  -------\none     1\nseven   22\n");
        check(&rows, Format::Csv, "name,n\none,1\nseven,22\n");
        check(&rows[0], Format::Table, "Name    Nodes\n------  -------\none     1\n");
        check(&json!({"b": 1, "a": [1, "x: y"]}), Format::Yaml, "b: 1\na:\n- 1\n- \"x: y\"\n");
        let long = "/subscriptions/".to_owned() + &"x/".repeat(100);
        check(&json!({"id": long}), Format::Yaml, &format!("id: {long}\n"));
        check(&json!({"text": "a\nb\n"}), Format::Yaml, "text: |\n  a\n  b\n");
        check(&json!({"b": 1}), Format::Json, "{\n  \"b\": 1\n}\n");
        check(&json!({"b": 1}), Format::Jsonc, "{\n  \"b\": 1\n}\n");
        check(&json!("text"), Format::Tsv, "text\n");
        check(&json!(true), Format::Tsv, "true\n");
        check(&json!([]), Format::Table, "");
        for format in [Format::Json, Format::Tsv, Format::Table, Format::Yaml] {
            check(&Value::Null, format, "");
        }
    }
}
