//! Figures that are compared line by line: the same columns in every row, as a table for people and as objects for
//! programs.

use super::report::Unit;
use serde_json::{Map, Value};

#[derive(Debug)]
pub struct Table {
    /// Its name among the figures.
    pub key: &'static str,
    columns: &'static [Column],
    rows: Vec<Vec<Cell>>,
}

/// Key, heading, unit.
pub type Column = (&'static str, &'static str, Unit);

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Text(String),
    Number(f64),
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Table {
    pub fn new(key: &'static str, columns: &'static [Column]) -> Self {
        Self { key, columns, rows: Vec::new() }
    }

    /// One cell for each column.
    pub fn push<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.columns.len(), "a cell for each column");
        self.rows.push(cells.into());
    }

    /// A list of objects.
    pub fn json(&self) -> Value {
        self.objects(|(key, _, unit), cell| {
            let value = match cell {
                Cell::Text(text) => text.as_str().into(),
                Cell::Number(number) => unit.json(*number),
            };
            ((*key).to_owned(), value)
        })
    }

    /// A list of objects with headings for keys and words for values.
    pub fn words(&self) -> Value {
        self.objects(|(_, heading, unit), cell| {
            let heading = match unit.word() {
                "" => (*heading).to_owned(),
                word => format!("{heading} {word}"),
            };
            let text = match cell {
                Cell::Text(text) => text.clone(),
                Cell::Number(number) => unit.show(*number),
            };
            (heading, text.into())
        })
    }

    fn objects(&self, entry: impl Fn(&Column, &Cell) -> (String, Value)) -> Value {
        let object = |row: &Vec<Cell>| -> Map<String, Value> {
            self.columns.iter().zip(row).map(|(column, cell)| entry(column, cell)).collect()
        };
        self.rows.iter().map(|row| Value::Object(object(row))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::local::bench::report::Unit;
    use serde_json::json;

    #[test]
    fn the_same_rows_for_people_and_for_programs() {
        let mut table = Table::new(
            "rows",
            &[
                ("policy", "Policy", Unit::Count),
                ("wait_s", "Wait", Unit::Seconds),
                ("idle", "Idle", Unit::Share),
            ],
        );
        table.push(["a".into(), 1.23456.into(), 0.25.into()]);
        table.push(["b".into(), 0.0.into(), 1.0.into()]);
        assert_eq!(
            table.json(),
            json!([{"policy": "a", "wait_s": 1.235, "idle": 0.25}, {"policy": "b", "wait_s": 0.0, "idle": 1.0}])
        );
        assert_eq!(
            table.words(),
            json!([{"Policy": "a", "Wait s": "1.23", "Idle": "25.0%"}, {"Policy": "b", "Wait s": "0.00", "Idle": "100.0%"}])
        );
    }
}
