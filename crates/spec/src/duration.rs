//! Seconds and the ISO-8601 durations of the wire.

/// `120` is `PT2M`; the form that the Azure clients send.
pub fn iso_from_seconds(seconds: u64) -> String {
    if seconds == 0 {
        return "PT0S".to_owned();
    }
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hours, minutes, seconds) = (rest / 3600, rest % 3600 / 60, rest % 60);
    let mut text = "P".to_owned();
    if days > 0 {
        text.push_str(&format!("{days}D"));
    }
    if rest > 0 {
        text.push('T');
    }
    for (amount, unit) in [(hours, 'H'), (minutes, 'M'), (seconds, 'S')] {
        if amount > 0 {
            text.push_str(&format!("{amount}{unit}"));
        }
    }
    text
}

/// `PT2M` is 120. `None` for what is not a duration of days or less, or is negative. Fractions are cut.
pub fn seconds_from_iso(text: &str) -> Option<u64> {
    let span: jiff::Span = text.trim().parse().ok()?;
    let seconds = span.total((jiff::Unit::Second, jiff::SpanRelativeTo::days_are_24_hours())).ok()?;
    (0.0..9e15).contains(&seconds).then_some(seconds as u64)
}

#[cfg(test)]
mod tests {
    use super::{iso_from_seconds, seconds_from_iso};

    #[test]
    fn durations_go_both_ways() {
        for (seconds, iso) in [
            (0, "PT0S"),
            (120, "PT2M"),
            (3600, "PT1H"),
            (90, "PT1M30S"),
            (86_400, "P1D"),
            (90_061, "P1DT1H1M1S"),
        ] {
            assert_eq!(iso_from_seconds(seconds), iso);
            assert_eq!(seconds_from_iso(iso), Some(seconds), "{iso}");
        }
        assert_eq!(seconds_from_iso("PT120S"), Some(120));
        for wrong in ["-PT1M", "soon", ""] {
            assert_eq!(seconds_from_iso(wrong), None, "{wrong}");
        }
    }
}
