//! Durations of limits: ISO 8601 as ARM writes them (`PT2H`), or seconds as a pipeline's step has them.

use serde_json::Value;

/// Whole seconds, rounded up. The error says what is expected.
pub(crate) fn seconds(value: &Value) -> Result<u64, String> {
    let wrong = || format!("expected a duration such as PT2H, or seconds, not {value}");
    match value {
        Value::Number(number) => number.as_u64().ok_or_else(wrong),
        Value::String(text) => iso(text).ok_or_else(wrong),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(wrong()),
    }
}

fn iso(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('P')?;
    let mut total = 0.0;
    let mut in_time = false;
    let mut parts = 0;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('T') {
            if in_time {
                return None;
            }
            in_time = true;
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].chars().next()?;
        // Months and years have no fixed length; no client sends them.
        total += amount
            * match (unit, in_time) {
                ('W', false) => 604_800.0,
                ('D', false) => 86_400.0,
                ('H', true) => 3_600.0,
                ('M', true) => 60.0,
                ('S', true) => 1.0,
                _ => return None,
            };
        parts += 1;
        rest = &rest[end + unit.len_utf8()..];
    }
    (parts > 0 && total < 1e12).then(|| total.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_are_read() {
        for (value, expect) in [
            (json!("PT2H"), Some(7200)),
            (json!("PT10M"), Some(600)),
            (json!("P1DT1H1M1.5S"), Some(90_062)),
            (json!("P60D"), Some(5_184_000)),
            (json!("P1W"), Some(604_800)),
            (json!(90), Some(90)),
            (json!("PT"), None),
            (json!("P"), None),
            (json!("P1M"), None),
            (json!("PT1"), None),
            (json!("2h"), None),
            (json!("PT1D"), None),
            (json!("PTT1S"), None),
            (json!("PT1é"), None),
            (json!(-1), None),
            (json!([]), None),
        ] {
            assert_eq!(seconds(&value).ok(), expect, "{value}");
        }
    }
}
