//! What an `MLTable` file asks to be done with its rows, as far as a parallel step does it.

use serde::Deserialize;
use serde_json::Value;

/// What `driver.py` does. It refuses the rest as well, for tables that cannot be read when a job is submitted.
pub const APPLIED: &[&str] =
    &["read_delimited", "read_parquet", "read_json_lines", "keep_columns", "drop_columns"];

#[derive(Debug, Deserialize)]
struct Table {
    #[serde(default)]
    transformations: Option<Vec<Value>>,
}

/// The transformations of an `MLTable` file that are not done. An error: it cannot be read.
pub fn not_applied(text: &str) -> Result<Vec<String>, String> {
    let table: Table = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let name = |step: &Value| match step {
        Value::String(name) => vec![name.clone()],
        Value::Object(map) => map.keys().cloned().collect(),
        other => vec![other.to_string()],
    };
    let asked = table.transformations.unwrap_or_default();
    Ok(asked.iter().flat_map(name).filter(|name| !APPLIED.contains(&name.as_str())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_is_named() {
        for (text, expect) in [
            ("paths: [{file: ./a.csv}]", &[][..]),
            ("transformations:", &[]),
            ("transformations:\n  - read_delimited:\n      delimiter: ','\n  - keep_columns: [a]", &[]),
            (
                "transformations:\n  - read_parquet\n  - filter: 'col(\"a\") > 0'\n  - take: 3",
                &["filter", "take"],
            ),
        ] {
            assert_eq!(not_applied(text).unwrap(), expect, "{text}");
        }
        assert!(not_applied("transformations: 3").is_err());
    }

    #[test]
    fn the_driver_does_the_same() {
        let words: Vec<String> = APPLIED.iter().map(|name| format!("\"{name}\"")).collect();
        assert!(crate::DRIVER.contains(&format!("APPLIED = ({})", words.join(", "))));
    }
}
