//! Reading fields of a sweep. The standalone job writes `maxTotalTrials`, a pipeline's step `max_total_trials`; both
//! are the same field.

use serde_json::Value;

use crate::problem::Problems;

/// A field by its camel-case name or its snake-case one. `null` is as good as absent, as the SDK sends it.
pub(crate) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let snake = snake(name);
    object.get(name).or_else(|| object.get(snake.as_str())).filter(|value| !value.is_null())
}

fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// `MedianStopping`, `median_stopping` and `medianstopping` are one word.
pub(crate) fn word(text: &str) -> String {
    text.chars().filter(|letter| *letter != '_').map(|letter| letter.to_ascii_lowercase()).collect()
}

/// A whole number within bounds, or `None` with the problem noted. Absent is `None` without a problem.
pub(crate) fn whole(
    object: &Value,
    at: &str,
    name: &str,
    low: u64,
    high: u64,
    problems: &mut Problems,
) -> Option<u64> {
    let value = field(object, name)?;
    let number = value.as_u64().or_else(|| {
        value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..9.0e15).contains(n)).map(|n| n as u64)
    });
    match number.filter(|n| (low..=high).contains(n)) {
        Some(number) => Some(number),
        None => {
            problems.add(
                &format!("{at}.{name}"),
                format!("expected a whole number from {low} to {high}, not {value}"),
            );
            None
        }
    }
}

/// A finite number. Absent is `None` without a problem.
pub(crate) fn number(object: &Value, at: &str, name: &str, problems: &mut Problems) -> Option<f64> {
    let value = field(object, name)?;
    match value.as_f64().filter(|n| n.is_finite()) {
        Some(number) => Some(number),
        None => {
            problems.add(&format!("{at}.{name}"), format!("expected a number, not {value}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_has_two_spellings_and_null_is_absent() {
        let object = json!({"maxTotalTrials": 3, "trial_timeout": 4, "timeout": null});
        assert_eq!(field(&object, "maxTotalTrials"), Some(&json!(3)));
        assert_eq!(field(&object, "trialTimeout"), Some(&json!(4)));
        assert_eq!(field(&object, "timeout"), None);
        assert_eq!(word("MedianStopping"), word("median_stopping"));
    }

    #[test]
    fn whole_numbers_keep_their_bounds() {
        for (value, expect) in [
            (json!(1), Some(1)),
            (json!(5.0), Some(5)),
            (json!(0), None),
            (json!(11), None),
            (json!("2"), None),
            (json!(1.5), None),
        ] {
            let mut problems = Problems::default();
            assert_eq!(whole(&json!({"n": value}), "limits", "n", 1, 10, &mut problems), expect, "{value}");
            assert_eq!(problems.0.len(), usize::from(expect.is_none()), "{value}");
        }
    }
}
