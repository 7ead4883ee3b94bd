//! Windows: stretches of time from a start to an end on a zone's clock, less dates on which none begins, and with dates
//! that are part of it as a whole.
//!
//! Ends go by the clock where they are cron expressions, and by time that truly passes where they are durations.

use std::collections::BTreeSet;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::limits::{
    DATES_MAX, WINDOW_AHEAD_DAYS, WINDOW_BEHIND_DAYS, WINDOW_MINUTES_MAX, WINDOW_STARTS_LOOKED_AT_MAX,
};
use crate::read::{Problem, read_zone, say};
use crate::{Cron, Zone};

#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub start: Cron,
    pub until: Until,
    pub zone: Zone,
    /// None begins on these.
    pub not_on: BTreeSet<Date>,
    /// It also holds on these, from midnight to midnight.
    pub also_on: BTreeSet<Date>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// The first such time after the start.
    Cron(Cron),
    Minutes(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub from: Timestamp,
    pub until: Timestamp,
}

/// The next stretches, and up to when there is no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    pub stretches: Vec<Stretch>,
    pub known_until: Timestamp,
}

impl Window {
    /// Reads `{start, end | duration, time_zone, not_on, also_on}`; the duration is in minutes, hours or days: `90m`, `12h`.
    pub fn read(asked: &Value) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let zone = read_zone(&asked["time_zone"], &mut problems);
        let start = read_cron(&asked["start"], "start", &mut problems);
        if asked["start"].is_null() {
            let says =
                "'start' is missing: when the window begins, such as '0 20 * * *' for every day at 20:00.";
            say(&mut problems, "start", says);
        }
        let until = match (&asked["end"], &asked["duration"]) {
            (Value::Null, Value::Null) => {
                let says = "'end' or 'duration' is missing: '0 7 * * *' for the next 07:00, or '11h'.";
                say(&mut problems, "end", says);
                None
            }
            (end, Value::Null) => read_cron(end, "end", &mut problems).map(Until::Cron),
            (Value::Null, duration) => read_minutes(duration, &mut problems).map(Until::Minutes),
            _ => {
                say(&mut problems, "end", "Give 'end' or 'duration', and not both.");
                None
            }
        };
        let not_on = read_dates(&asked["not_on"], "not_on", &mut problems);
        let also_on = read_dates(&asked["also_on"], "also_on", &mut problems);
        if let Some(date) = not_on.intersection(&also_on).next() {
            say(&mut problems, "also_on", format!("{date} is both in 'not_on' and in 'also_on'."));
        }
        match (start, until) {
            (Some(start), Some(until)) if problems.is_empty() => {
                Ok(Self { start, until, zone, not_on, also_on })
            }
            _ => {
                let renamed = |mut problem: Problem| {
                    problem.at = problem.at.replace("timeZone", "time_zone");
                    problem
                };
                Err(problems.into_iter().map(renamed).collect())
            }
        }
    }

    /// The stretches that are not over at `now`, in order and apart from each other, at most `count` of them.
    pub fn ahead(&self, now: Timestamp, count: usize) -> Ahead {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        let horizon = now.checked_add(days(WINDOW_AHEAD_DAYS)).unwrap_or(Timestamp::MAX);
        let mut at = now.checked_sub(self.behind(now)).unwrap_or(Timestamp::MIN);
        let mut found: Vec<Stretch> = Vec::new();
        let mut known_until = horizon;
        for looked_at in 0..=WINDOW_STARTS_LOOKED_AT_MAX {
            // One that begins every minute is known for some weeks only.
            if looked_at == WINDOW_STARTS_LOOKED_AT_MAX {
                known_until = at;
                break;
            }
            let Some(from) = self.start.next(&self.zone, at).filter(|from| *from <= horizon) else { break };
            at = from;
            if self.not_on.contains(&self.zone.clock(from).date()) {
                continue;
            }
            let Some(until) = self.end_of(from) else { break };
            // Whatever starts before the same end adds nothing.
            if let Until::Cron(_) = self.until {
                at = until.checked_sub(SignedDuration::from_secs(1)).unwrap_or(at).max(from);
            }
            add(&mut found, Stretch { from, until });
            // A whole day may make one of two.
            if found.iter().filter(|stretch| stretch.until > now).count() > count + self.also_on.len() {
                known_until = found.last().map_or(horizon, |stretch| stretch.from);
                break;
            }
        }
        for date in &self.also_on {
            let whole = |date: Date| self.zone.instant(date.at(0, 0, 0, 0));
            let day = whole(*date).zip(date.tomorrow().ok().and_then(whole));
            if let Some((from, until)) = day.filter(|(from, _)| *from < known_until) {
                found.push(Stretch { from, until });
            }
        }
        found.sort_by_key(|stretch| stretch.from);
        let mut stretches = Vec::new();
        for stretch in found.into_iter().filter(|stretch| stretch.from < known_until) {
            add(&mut stretches, stretch);
        }
        stretches.retain(|stretch| stretch.until > now);
        if stretches.len() > count {
            known_until = stretches.get(count).map_or(known_until, |stretch| stretch.from);
            stretches.truncate(count);
        }
        Ahead { stretches, known_until }
    }

    /// How long ago a stretch may have begun that is not over. Whatever began before an end that has passed is over.
    fn behind(&self, now: Timestamp) -> SignedDuration {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        match &self.until {
            // A day more, for where the first of those begins that touch.
            Until::Minutes(minutes) => SignedDuration::from_mins(*minutes) + days(1),
            Until::Cron(end) => {
                let ended = |behind: &SignedDuration| {
                    let since = now.checked_sub(*behind).ok();
                    since.and_then(|since| end.next(&self.zone, since)).is_some_and(|at| at <= now)
                };
                [1, 32].map(days).into_iter().find(ended).unwrap_or_else(|| days(WINDOW_BEHIND_DAYS))
            }
        }
    }

    fn end_of(&self, from: Timestamp) -> Option<Timestamp> {
        match &self.until {
            Until::Cron(end) => end.next(&self.zone, from),
            Until::Minutes(minutes) => from.checked_add(SignedDuration::from_mins(*minutes)).ok(),
        }
    }

    /// Minutes east of UTC, for telling a time as the zone's clock does.
    pub fn offset_minutes(&self, at: Timestamp) -> i32 {
        self.zone.offset_seconds(at) / 60
    }
}

/// One more that does not begin before the last: those that touch become one.
fn add(stretches: &mut Vec<Stretch>, next: Stretch) {
    match stretches.last_mut().filter(|last| next.from <= last.until) {
        Some(last) => last.until = last.until.max(next.until),
        None => stretches.push(next),
    }
}

fn read_cron(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Cron> {
    if value.is_null() {
        return None;
    }
    let Some(text) = value.as_str() else {
        say(problems, at, format!("'{at}' is a cron expression in quotes, such as '0 20 * * *'."));
        return None;
    };
    match Cron::parse(text) {
        Ok(cron) => Some(cron),
        Err(why) => {
            say(
                problems,
                at,
                format!("The cron expression '{text}' of '{at}' cannot be used: {}.", why.join("; ")),
            );
            None
        }
    }
}

fn read_minutes(value: &Value, problems: &mut Vec<Problem>) -> Option<i64> {
    let text = value.as_str().unwrap_or("");
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let each = match unit {
        "m" => Some(1),
        "h" => Some(60),
        "d" => Some(24 * 60),
        _ => None,
    };
    let minutes = number.parse::<i64>().ok().zip(each).and_then(|(number, each)| number.checked_mul(each));
    let minutes = minutes.filter(|minutes| (1..=WINDOW_MINUTES_MAX).contains(minutes));
    if minutes.is_none() {
        let most = WINDOW_MINUTES_MAX / (24 * 60);
        let says = format!(
            "The duration {value} is not understood: minutes, hours or days from 1m to {most}d, such as '90m' or '11h'."
        );
        say(problems, "duration", says);
    }
    minutes
}

fn read_dates(value: &Value, at: &str, problems: &mut Vec<Problem>) -> BTreeSet<Date> {
    let items = match value {
        Value::Null => return BTreeSet::new(),
        Value::Array(items) => items,
        _ => {
            say(problems, at, format!("'{at}' is a list of dates such as 2026-12-25."));
            return BTreeSet::new();
        }
    };
    if items.len() > DATES_MAX {
        say(problems, at, format!("'{at}' has {} dates; {DATES_MAX} are allowed.", items.len()));
        return BTreeSet::new();
    }
    let mut dates = BTreeSet::new();
    for item in items {
        match item.as_str().and_then(|text| text.parse::<Date>().ok()) {
            Some(date) => drop(dates.insert(date)),
            None => say(problems, at, format!("{item} in '{at}' is no date such as 2026-12-25.")),
        }
    }
    dates
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
