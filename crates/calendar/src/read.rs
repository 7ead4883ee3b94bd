//! A trigger as Azure's wire has it, read with every problem at once.

use jiff::Timestamp;
use jiff::civil::DateTime;
use serde_json::Value;

use crate::limits::INTERVAL_MAX;
use crate::{Cron, Frequency, Pattern, Recurrence, Rule, Trigger, Zone};

/// What is wrong, and where in the trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub at: String,
    /// A whole sentence.
    pub says: String,
}

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

impl Trigger {
    /// Reads `{triggerType, expression | frequency, interval, schedule, startTime, endTime, timeZone}`.
    pub fn read(trigger: &Value) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let zone = read_zone(&trigger["timeZone"], &mut problems);
        let start = read_time(&trigger["startTime"], "startTime", &zone, &mut problems);
        let end = read_time(&trigger["endTime"], "endTime", &zone, &mut problems);
        if let (Some(start), Some(end)) = (start, end)
            && end <= start
        {
            say(
                &mut problems,
                "endTime",
                format!("The end time {end} is not later than the start time {start}."),
            );
        }
        let kind = trigger["triggerType"].as_str().unwrap_or("");
        let rule = match kind.to_ascii_lowercase().as_str() {
            "cron" => read_cron(trigger, &mut problems),
            "recurrence" => read_recurrence(trigger, &mut problems),
            _ => {
                let says = format!("The trigger type '{kind}' is not known: Cron or Recurrence.");
                say(&mut problems, "triggerType", says);
                None
            }
        };
        match rule {
            Some(rule) if problems.is_empty() => Ok(Self { rule, zone, start, end }),
            _ => Err(problems),
        }
    }
}

pub(crate) fn say(problems: &mut Vec<Problem>, at: &str, says: impl Into<String>) {
    problems.push(Problem { at: at.into(), says: says.into() });
}

pub(crate) fn read_zone(value: &Value, problems: &mut Vec<Problem>) -> Zone {
    match value {
        Value::Null => Zone::utc(),
        Value::String(name) if name.is_empty() => Zone::utc(),
        other => other.as_str().and_then(Zone::named).unwrap_or_else(|| {
            let says = format!(
                "The time zone {other} is not known; give a Windows name such as 'Pacific Standard Time', or an IANA name such as 'America/Los_Angeles'."
            );
            say(problems, "timeZone", says);
            Zone::utc()
        }),
    }
}

/// Without an offset it is the zone's clock; with one it is that instant.
fn read_time(value: &Value, at: &str, zone: &Zone, problems: &mut Vec<Problem>) -> Option<DateTime> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) if text.is_empty() => return None,
        other => other.as_str().unwrap_or(""),
    };
    let read = text.parse::<DateTime>().ok();
    let read = read.or_else(|| text.parse::<Timestamp>().ok().map(|instant| zone.clock(instant)));
    if read.is_none() {
        say(
            problems,
            at,
            format!("{value} is no time; write it as 2022-07-10T10:00:00, on the clock of 'timeZone'."),
        );
    }
    read
}

fn read_cron(trigger: &Value, problems: &mut Vec<Problem>) -> Option<Rule> {
    let Some(expression) = trigger["expression"].as_str() else {
        say(problems, "expression", "A cron trigger needs an 'expression', such as '0 * * * *'.");
        return None;
    };
    match Cron::parse(expression) {
        Ok(cron) => Some(Rule::Cron(cron)),
        Err(found) => {
            for why in found {
                say(
                    problems,
                    "expression",
                    format!("The cron expression '{expression}' is not valid: {why}."),
                );
            }
            None
        }
    }
}

fn read_recurrence(trigger: &Value, problems: &mut Vec<Problem>) -> Option<Rule> {
    let before = problems.len();
    let frequency = match trigger["frequency"].as_str().unwrap_or("").to_ascii_lowercase().as_str() {
        "minute" => Some(Frequency::Minute),
        "hour" => Some(Frequency::Hour),
        "day" => Some(Frequency::Day),
        "week" => Some(Frequency::Week),
        "month" => Some(Frequency::Month),
        _ => {
            let says = format!(
                "The frequency {} is not known: Minute, Hour, Day, Week or Month.",
                trigger["frequency"]
            );
            say(problems, "frequency", says);
            None
        }
    };
    let interval = trigger["interval"].as_i64().filter(|n| (1..=INTERVAL_MAX).contains(n));
    if interval.is_none() {
        let says =
            format!("The interval {} is no whole number from 1 to {INTERVAL_MAX}.", trigger["interval"]);
        say(problems, "interval", says);
    }
    let schedule = &trigger["schedule"];
    if !schedule.is_null() && !schedule.is_object() {
        say(
            problems,
            "schedule",
            "'schedule' has to be an object with hours, minutes, weekDays and monthDays.",
        );
    }
    let pattern = Pattern {
        hours: numbers(&schedule["hours"], "schedule.hours", 0..=23, problems),
        minutes: numbers(&schedule["minutes"], "schedule.minutes", 0..=59, problems),
        week_days: week_days(&schedule["weekDays"], problems),
        month_days: numbers(&schedule["monthDays"], "schedule.monthDays", 1..=31, problems),
    };
    if problems.len() > before {
        return None;
    }
    let recurrence = Recurrence { frequency: frequency?, interval: interval?, pattern };
    if !recurrence.can_fire() {
        say(
            problems,
            "schedule",
            "The recurrence names days that never come; look at weekDays and monthDays.",
        );
        return None;
    }
    Some(Rule::Recurrence(recurrence))
}

/// A list, or one alone; sorted, each once.
fn items(value: &Value) -> &[Value] {
    match value {
        Value::Null => &[],
        Value::Array(items) => items,
        one => std::slice::from_ref(one),
    }
}

fn numbers(
    value: &Value,
    at: &str,
    range: std::ops::RangeInclusive<i64>,
    problems: &mut Vec<Problem>,
) -> Vec<i8> {
    let mut out = Vec::new();
    for item in items(value) {
        match item.as_i64().filter(|n| range.contains(n)).and_then(|n| i8::try_from(n).ok()) {
            Some(number) => out.push(number),
            None => {
                let says = format!(
                    "'{at}' has {item}, which is no whole number from {} to {}.",
                    range.start(),
                    range.end()
                );
                say(problems, at, says);
            }
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}

fn week_days(value: &Value, problems: &mut Vec<Problem>) -> Vec<i8> {
    let mut out = Vec::new();
    for item in items(value) {
        let lower = item.as_str().unwrap_or("").to_ascii_lowercase();
        match WEEKDAYS.iter().position(|day| *day == lower).and_then(|at| i8::try_from(at).ok()) {
            Some(day) => out.push(day),
            None => {
                say(
                    problems,
                    "schedule.weekDays",
                    format!("{item} is no day of the week: Monday to Sunday."),
                );
            }
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[allow(clippy::needless_pass_by_value, reason = "a test reads better without references")]
    fn next(trigger: Value, placed: &str, after: &str) -> Option<String> {
        let next = Trigger::read(&trigger).unwrap().next(placed.parse().unwrap(), after.parse().unwrap());
        next.map(|at| at.to_string())
    }

    #[test]
    fn the_examples_of_the_reference() {
        let cron = json!({"triggerType": "Cron", "expression": "0 * * * *", "startTime": "2022-07-10T10:00:00", "timeZone": "Pacific Standard Time"});
        let now = "2026-11-15T23:10:00Z";
        assert_eq!(next(cron.clone(), now, now).as_deref(), Some("2026-11-16T00:00:00Z"));
        assert_eq!(next(cron, now, "2021-01-01T00:00:00Z").as_deref(), Some("2022-07-10T17:00:00Z"));
        let daily = json!({"triggerType": "Recurrence", "frequency": "Day", "interval": 1,
            "schedule": {"hours": [4, 5, 10, 11, 12], "minutes": [0, 30], "weekDays": null},
            "startTime": "2022-07-10T10:00:00", "timeZone": "Pacific Standard Time"});
        assert_eq!(next(daily, now, now).as_deref(), Some("2026-11-16T12:00:00Z"));
    }

    #[test]
    fn without_a_start_a_recurrence_fires_when_it_is_put_in_place() {
        let every = json!({"triggerType": "recurrence", "frequency": "hour", "interval": 2, "schedule": {"hours": [], "minutes": []}});
        let placed = "2026-01-01T10:20:30Z";
        assert_eq!(next(every.clone(), placed, "2026-01-01T10:00:00Z").as_deref(), Some(placed));
        assert_eq!(next(every, placed, placed).as_deref(), Some("2026-01-01T12:20:30Z"));
    }

    #[test]
    fn an_end_is_the_last_moment() {
        let mut cron = json!({"triggerType": "Cron", "expression": "0 0 * * *", "startTime": "2024-01-01 00:00:00", "endTime": "2024-01-03T00:00:00Z"});
        assert_eq!(
            next(cron.clone(), "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z").as_deref(),
            Some("2024-01-03T00:00:00Z")
        );
        assert_eq!(next(cron.clone(), "2024-01-01T00:00:00Z", "2024-01-03T00:00:00Z"), None);
        cron["endTime"] = json!("2023-01-01");
        assert_eq!(Trigger::read(&cron).unwrap_err()[0].at, "endTime");
    }

    #[test]
    fn all_that_is_wrong_is_said() {
        let at = |trigger: Value| -> Vec<String> {
            Trigger::read(&trigger).unwrap_err().into_iter().map(|problem| problem.at).collect()
        };
        assert_eq!(at(json!({})), ["triggerType"]);
        assert_eq!(
            at(
                json!({"triggerType": "Cron", "timeZone": "Nowhere", "startTime": "soon", "expression": "60 * * * x"})
            ),
            ["timeZone", "startTime", "expression", "expression"]
        );
        assert_eq!(
            at(json!({"triggerType": "Recurrence", "frequency": "year", "interval": 0,
                "schedule": {"hours": [24], "minutes": ["x"], "weekDays": ["Noday"], "monthDays": [0, 32]}})),
            [
                "frequency",
                "interval",
                "schedule.hours",
                "schedule.minutes",
                "schedule.weekDays",
                "schedule.monthDays",
                "schedule.monthDays"
            ]
        );
    }
}
