//! ISO 8601 durations to milliseconds and back, as ARM writes them (`PT2M`).

/// Reads a duration. Years and months have no fixed length and are refused.
pub fn parse_ms(text: &str) -> Result<i64, String> {
    let bad = |why: &str| format!("'{text}' is not an ISO 8601 duration such as PT2M or PT1H30M: {why}");
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1_i64, rest),
        None => (1, text),
    };
    let rest = rest.strip_prefix(['P', 'p']).ok_or_else(|| bad("it does not begin with P"))?;
    let mut total_ms = 0_i64;
    let mut in_time = false;
    let mut number = String::new();
    let mut parts = 0;
    for c in rest.chars() {
        match c.to_ascii_uppercase() {
            'T' if !in_time && number.is_empty() => in_time = true,
            digit @ ('0'..='9' | '.') => number.push(digit),
            ',' => number.push('.'),
            unit => {
                let unit_ms: i64 = match (unit, in_time) {
                    ('W', false) => 7 * 86_400_000,
                    ('D', false) => 86_400_000,
                    ('H', true) => 3_600_000,
                    ('M', true) => 60_000,
                    ('S', true) => 1_000,
                    ('Y' | 'M', false) => return Err(bad("years and months have no fixed length, use days")),
                    _ => return Err(bad(&format!("'{c}' is not expected there"))),
                };
                let value = milli(&number).ok_or_else(|| bad("a number is missing or too large"))?;
                let part = i64::try_from(i128::from(value) * i128::from(unit_ms) / 1_000).ok();
                total_ms =
                    part.and_then(|part| total_ms.checked_add(part)).ok_or_else(|| bad("it is too long"))?;
                number.clear();
                parts += 1;
            }
        }
    }
    if parts == 0 || !number.is_empty() {
        return Err(bad("a number or its unit is missing"));
    }
    Ok(sign * total_ms)
}

/// A decimal number in thousandths.
fn milli(number: &str) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let thousandths: i64 = format!("{:0<3}", fraction.chars().take(3).collect::<String>()).parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(thousandths)
}

pub(crate) fn format_ms(ms: u64) -> String {
    if ms == 0 {
        return "PT0S".into();
    }
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (hours, rest) = (rest / 3_600_000, rest % 3_600_000);
    let (minutes, rest) = (rest / 60_000, rest % 60_000);
    let (seconds, thousandths) = (rest / 1_000, rest % 1_000);
    let mut out = String::from("P");
    if days > 0 {
        out += &format!("{days}D");
    }
    if !ms.is_multiple_of(86_400_000) {
        out.push('T');
    }
    if hours > 0 {
        out += &format!("{hours}H");
    }
    if minutes > 0 {
        out += &format!("{minutes}M");
    }
    if thousandths > 0 {
        out += format!("{seconds}.{thousandths:03}").trim_end_matches('0');
        out.push('S');
    } else if seconds > 0 {
        out += &format!("{seconds}S");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, ms, canonical) in [
            ("PT2M", 120_000, "PT2M"),
            ("PT120S", 120_000, "PT2M"),
            ("PT0S", 0, "PT0S"),
            ("P1D", 86_400_000, "P1D"),
            ("P1DT2H30M1.5S", 95_401_500, "P1DT2H30M1.5S"),
            ("P1W", 604_800_000, "P7D"),
            ("PT1H", 3_600_000, "PT1H"),
            ("PT0.25S", 250, "PT0.25S"),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
            assert_eq!(format_ms(u64::try_from(ms).unwrap()), canonical, "{text}");
        }
        assert_eq!(parse_ms("-PT5S"), Ok(-5_000));
        for bad in [
            "",
            "120",
            "2M",
            "PT",
            "P",
            "PT5",
            "PTM",
            "P1M",
            "P1Y",
            "PT1D",
            "PT1..5S",
            "PT99999999999999999999S",
            "PT2MX",
        ] {
            assert!(parse_ms(bad).is_err(), "{bad}");
        }
    }
}
