//! What a benchmark found: a table for people, one JSON object for programs. Figures carry what they were measured on.

use super::installation::Installation;
use super::machine::Machine;
use super::samples::{Samples, Summary, rounded};
use super::table::Table;
use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::output::{Column, Format, Printer, emit};
use crate::settings::Settings;
use crate::terminal::Terminal;
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
    ground: Ground,
    parameters: Map<String, Value>,
    figures: Vec<Figure>,
    tables: Vec<Table>,
    /// What a reader of the figures must know.
    notes: Vec<String>,
}

/// What it was measured on: a machine, and a server there if one was needed.
#[derive(Debug)]
pub struct Ground {
    machine: Machine,
    isolation: Option<String>,
}

impl From<&Installation<'_>> for Ground {
    fn from(installation: &Installation<'_>) -> Self {
        Self { machine: installation.machine.clone(), isolation: Some(installation.isolation.clone()) }
    }
}

impl Ground {
    /// No server: what is measured runs in this program.
    pub fn here(terminal: &Terminal) -> Self {
        let mut machine = Machine::look(&std::env::temp_dir());
        machine.watch(terminal);
        Self { machine, isolation: None }
    }
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
    Seconds,
    Hours,
    Ratio,
    /// A part of a whole, 0 to 1.
    Share,
    Bytes,
    Count,
}

impl Unit {
    pub const fn word(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Seconds => "s",
            Self::Hours => "h",
            Self::Bytes => "MiB",
            Self::Ratio | Self::Share | Self::Count => "",
        }
    }

    pub fn show(self, value: f64) -> String {
        match self {
            Self::Ratio => format!("{value:.2}"),
            Self::Share => format!("{:.1}%", value * 100.0),
            Self::Bytes => format!("{:.1}", value / MIB),
            Self::Count => format!("{value:.0}"),
            Self::PerSecond | Self::Milliseconds | Self::Microseconds | Self::Seconds | Self::Hours => {
                if value >= 100.0 {
                    format!("{value:.0}")
                } else {
                    format!("{value:.2}")
                }
            }
        }
    }

    /// The number for programs: whole where there are no parts.
    pub fn json(self, value: f64) -> Value {
        match self {
            Self::Bytes | Self::Count => json!(value.round() as u64),
            Self::PerSecond
            | Self::Milliseconds
            | Self::Microseconds
            | Self::Seconds
            | Self::Hours
            | Self::Ratio
            | Self::Share => json!(rounded(value)),
        }
    }
}

impl Report {
    pub fn new(name: &'static str, about: String, ground: impl Into<Ground>) -> Self {
        Self {
            name,
            about,
            ground: ground.into(),
            parameters: Map::new(),
            figures: Vec::new(),
            tables: Vec::new(),
            notes: Vec::new(),
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

    /// Rows that are compared with each other.
    pub fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// A sentence below the figures.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
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
        let isolation =
            self.ground.isolation.as_ref().map_or_else(String::new, |word| format!("; isolation {word}"));
        emit(&format!(
            "{}: {}{isolation}\nneap {} on {}\n",
            self.name,
            self.about,
            env!("CARGO_PKG_VERSION"),
            self.ground.machine.sentence()
        ))?;
        let table = Global { output: Some(Format::Table), ..global.clone() };
        let printer = Printer::new(&table, &Settings::default())?;
        if !self.figures.is_empty() {
            emit("\n")?;
            printer.print(&self.rows(), COLUMNS)?;
        }
        for table in &self.tables {
            emit("\n")?;
            printer.print(&table.words(), &[])?;
        }
        for note in &self.notes {
            emit(&format!("\n{note}\n"))?;
        }
        Ok(())
    }

    /// Rates stand at the top by their median, times by p50 and p99; `series` has all of each.
    fn json(&self, command: &str) -> Value {
        let mut all = Map::new();
        all.insert("benchmark".into(), json!(self.name));
        all.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        all.insert("command".into(), json!(command));
        all.insert("machine".into(), self.ground.machine.json());
        if let Some(isolation) = &self.ground.isolation {
            all.insert("isolation".into(), json!(isolation));
        }
        all.insert("parameters".into(), Value::Object(self.parameters.clone()));
        let mut series = Map::new();
        for figure in &self.figures {
            match &figure.value {
                Measured::One(value) => {
                    all.insert(figure.key.clone(), figure.unit.json(*value));
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
        for table in &self.tables {
            all.insert(table.key.into(), table.json());
        }
        if !self.notes.is_empty() {
            all.insert("notes".into(), json!(self.notes));
        }
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
