//! Times as people write them on the command line.

use crate::client::segment;
use crate::failure::{Failure, Outcome};
use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, civil};

/// The past, on commands that show something.
#[derive(Debug, Default, Args)]
pub struct AtArgs {
    /// As it was then: a time (2026-11-01T08:00:00Z), a date, or how long ago (-2h, 7d)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<String>,
}

impl AtArgs {
    /// The path with the time that is asked about, if one is.
    pub fn on(&self, path: &str) -> Outcome<String> {
        let [Some(time)] = read([self.flag()])? else { return Ok(path.to_owned()) };
        let joint = if path.contains('?') { '&' } else { '?' };
        Ok(format!("{path}{joint}neap-at={}", segment(&time.to_string())))
    }

    /// The flag with what was given, to be read together with others.
    pub fn flag(&self) -> (&'static str, Option<&str>) {
        ("at", self.at.as_deref())
    }

    pub fn is_given(&self) -> bool {
        self.at.is_some()
    }
}

/// The times that these flags name; all that are none are told at once.
pub fn read<const N: usize>(flags: [(&str, Option<&str>); N]) -> Outcome<[Option<Timestamp>; N]> {
    let now = Timestamp::now();
    let mut wrong = Vec::new();
    let times = flags.map(|(flag, text)| {
        let text = text?;
        let time = moment(text, now);
        if time.is_none() {
            wrong.push(format!("--{flag} {text}: not a time"));
        }
        time
    });
    let failure = match wrong.as_slice() {
        [] => return Ok(times),
        [only] => Failure::usage(only),
        several => Failure {
            details: several.to_vec(),
            ..Failure::usage(format!("{} flags do not give a time", several.len()))
        },
    };
    Err(failure.hint("write 2026-11-01, 2026-11-01T08:00:00Z, -7d or 12h"))
}

/// A time, a date (its beginning, in UTC), or how long ago, with or without a minus.
fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Ok(date) = text.parse::<civil::Date>() {
        return date.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp());
    }
    let text = text.strip_prefix('-').unwrap_or(text);
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number = i64::from(number.parse::<u32>().ok()?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    now.checked_sub(number.checked_mul(seconds)?.seconds()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_instants_or_how_long_ago() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let at = |text: &str| moment(text, now).map(|time| time.to_string());
        assert_eq!(at("2026-11-01").as_deref(), Some("2026-11-01T00:00:00Z"));
        assert_eq!(at("2026-11-01T08:00:00Z").as_deref(), Some("2026-11-01T08:00:00Z"));
        assert_eq!(at("12h").as_deref(), Some("2026-11-16T00:00:00Z"));
        assert_eq!(at("-12h"), at("12h"));
        assert_eq!(at("90s").as_deref(), Some("2026-11-16T11:58:30Z"));
        assert_eq!(at("1w").as_deref(), Some("2026-11-09T12:00:00Z"));
        for wrong in ["", "-", "d", "yesterday", "5y", "€", "--2h"] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn all_that_are_no_times_are_told_at_once() {
        let one = read([("from", Some("x")), ("to", None)]).unwrap_err();
        assert_eq!((one.message.as_str(), one.details.len()), ("--from x: not a time", 0));
        let two = read([("from", Some("x")), ("to", Some("y")), ("at", Some("1h"))]).unwrap_err();
        assert_eq!(two.message, "2 flags do not give a time");
        assert_eq!(two.details, ["--from x: not a time", "--to y: not a time"]);
        assert_eq!((one.hints.len(), two.hints.len()), (1, 1));
    }

    #[test]
    fn a_path_gets_the_time_that_is_asked_about() {
        let args = AtArgs { at: Some("2026-11-01T08:00:00Z".into()) };
        assert_eq!(args.on("/a").unwrap(), "/a?neap-at=2026-11-01T08%3A00%3A00Z");
        assert_eq!(args.on("/a?b=c").unwrap(), "/a?b=c&neap-at=2026-11-01T08%3A00%3A00Z");
        assert_eq!(AtArgs::default().on("/a").unwrap(), "/a");
        assert!(AtArgs { at: Some("soon".into()) }.on("/a").is_err());
    }
}
