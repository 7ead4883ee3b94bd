//! What a benchmark found: a table for people, one JSON object for programs. Figures carry what they were measured on.

use super::installation::Installation;
use super::samples::{Samples, Summary, rounded};
use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::output::{Column, Format, Printer, emit};
use crate::settings::Settings;
use serde_json::{Map, Value, json};
use std::path::Path;

const MIB: f64 = 1024.0 * 1024.0;

const COLUMNS: &[Column] = &[
    ("Measure", "measure"),
    ("Unit", "unit"),
    ("n", "n"),
    ("p50", "p50"),
    ("p99", "p99"),
    ("Min", "min"),
    ("Max", "max"),
    ("Spread", "spread"),
];

#[derive(Debug)]
pub struct Report {
    name: &'static str,
    /// One line that says what was done.
    about: String,
    machine: Value,
    machine_sentence: String,
    isolation: String,
    parameters: Map<String, Value>,
    figures: Vec<Figure>,
}

#[derive(Debug)]
struct Figure {
    key: String,
    label: String,
    unit: Unit,
    value: Measured,
}

#[derive(Debug)]
enum Measured {
    One(f64),
    Many(Summary),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    PerSecond,
    Milliseconds,
    Microseconds,
    Ratio,
    Bytes,
    Count,
}

impl Unit {
    const fn word(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Bytes => "MiB",
            Self::Ratio | Self::Count => "",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Ratio => format!("{value:.2}"),
            Self::Bytes => format!("{:.1}", value / MIB),
            Self::Count => format!("{value:.0}"),
            Self::PerSecond | Self::Milliseconds | Self::Microseconds if value >= 100.0 => {
                format!("{value:.0}")
            }
            Self::PerSecond | Self::Milliseconds | Self::Microseconds => format!("{value:.2}"),
        }
    }
}

impl Report {
    pub fn new(name: &'static str, about: String, installation: &Installation<'_>) -> Self {
        Self {
            name,
            about,
            machine: installation.machine.json(),
            machine_sentence: installation.machine.sentence(),
            isolation: installation.isolation.clone(),
            parameters: Map::new(),
            figures: Vec::new(),
        }
    }

    pub fn parameter(&mut self, key: &str, value: impl Into<Value>) {
        self.parameters.insert(key.to_owned(), value.into());
    }

    /// A single number.
    pub fn one(&mut self, key: &str, label: &str, unit: Unit, value: f64) {
        self.figures.push(Figure { key: key.into(), label: label.into(), unit, value: Measured::One(value) });
    }

    /// A series. Nothing is told of an empty one.
    pub fn many(&mut self, key: &str, label: &str, unit: Unit, samples: &Samples) {
        if let Some(summary) = samples.summary() {
            let value = Measured::Many(summary);
            self.figures.push(Figure { key: key.into(), label: label.into(), unit, value });
        }
    }

    /// The server's memory: before any work, and now.
    pub fn memory(&mut self, installation: &Installation<'_>) -> Outcome<()> {
        let (idle, after) = (installation.resident_idle as f64, installation.resident_bytes()? as f64);
        self.one("resident_bytes", "server memory, idle", Unit::Bytes, idle);
        self.one("resident_after_bytes", "server memory, afterwards", Unit::Bytes, after);
        Ok(())
    }

    /// Writes the JSON object to a file, whole or not at all.
    pub fn save(&self, path: &Path) -> Outcome<()> {
        let part = path.with_added_extension("part");
        std::fs::write(&part, format!("{:#}\n", self.json(&command_line())))
            .and_then(|()| std::fs::rename(&part, path))
            .map_err(|error| Failure::file("write", path, &error))
    }

    pub fn print(&self, global: &Global) -> Outcome<()> {
        let for_people = global.query.is_none() && matches!(global.output, None | Some(Format::Table));
        if !for_people {
            return Printer::new(global, &Settings::load()?)?.print(&self.json(&command_line()), &[]);
        }
        emit(&format!(
            "{}: {}; isolation {}\nneap {} on {}\n\n",
            self.name,
            self.about,
            self.isolation,
            env!("CARGO_PKG_VERSION"),
            self.machine_sentence
        ))?;
        let table = Global { output: Some(Format::Table), ..global.clone() };
        Printer::new(&table, &Settings::default())?.print(&self.rows(), COLUMNS)
    }

    /// Rates stand at the top by their median, times by p50 and p99; `series` has all of each.
    fn json(&self, command: &str) -> Value {
        let mut all = Map::new();
        all.insert("benchmark".into(), json!(self.name));
        all.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        all.insert("command".into(), json!(command));
        all.insert("machine".into(), self.machine.clone());
        all.insert("isolation".into(), json!(self.isolation));
        all.insert("parameters".into(), Value::Object(self.parameters.clone()));
        let mut series = Map::new();
        for figure in &self.figures {
            match &figure.value {
                Measured::One(value) if matches!(figure.unit, Unit::Bytes | Unit::Count) => {
                    all.insert(figure.key.clone(), json!(value.round() as u64));
                }
                Measured::One(value) => {
                    all.insert(figure.key.clone(), json!(rounded(*value)));
                }
                Measured::Many(summary) if figure.unit == Unit::Milliseconds => {
                    all.insert(format!("{}_p50", figure.key), json!(rounded(summary.median)));
                    all.insert(format!("{}_p99", figure.key), json!(rounded(summary.p99)));
                    series.insert(figure.key.clone(), summary.json());
                }
                Measured::Many(summary) => {
                    all.insert(figure.key.clone(), json!(rounded(summary.median)));
                    series.insert(figure.key.clone(), summary.json());
                }
            }
        }
        all.insert("series".into(), Value::Object(series));
        Value::Object(all)
    }

    fn rows(&self) -> Value {
        self.figures
            .iter()
            .map(|Figure { label, unit, value, .. }| match value {
                Measured::One(value) => {
                    json!({"measure": label, "unit": unit.word(), "p50": unit.show(*value)})
                }
                Measured::Many(all) => json!({
                    "measure": label,
                    "unit": unit.word(),
                    "n": all.n,
                    "p50": unit.show(all.median),
                    "p99": unit.show(all.p99),
                    "min": unit.show(all.min),
                    "max": unit.show(all.max),
                    "spread": format!("{:.0}%", all.spread * 100.0),
                }),
            })
            .collect()
    }
}

/// As it was typed, without the program's folder.
fn command_line() -> String {
    let mut words = vec!["neap".to_owned()];
    words.extend(std::env::args().skip(1));
    words.join(" ")
}
