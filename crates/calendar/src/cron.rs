//! Five-field cron expressions as NCronTab reads them: minute, hour, day of month, month, day of week.
//!
//! A field is a list of `*`, values and ranges, each with an optional step. Months and days have English names. A day
//! must fit both day fields. What runs in every hour goes by time that passes; what runs at certain hours goes by the
//! clock.

use jiff::civil::{Date, DateTime};
use jiff::{Timestamp, ToSpan};

use crate::limits::{EXPRESSION_CHARS_MAX, SEARCH_DAYS_MAX};
use crate::zone::Zone;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Sunday.
    weekdays: u64,
}

struct Field {
    called: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &[
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: &[&str] = &["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const FIELDS: [Field; 5] = [
    Field { called: "minute", least: 0, most: 59, names: &[] },
    Field { called: "hour", least: 0, most: 23, names: &[] },
    Field { called: "day of month", least: 1, most: 31, names: &[] },
    Field { called: "month", least: 1, most: 12, names: MONTHS },
    Field { called: "day of week", least: 0, most: 6, names: WEEKDAYS },
];
const EVERY_HOUR: u64 = (1 << 24) - 1;

impl Cron {
    /// The expression, or everything that is wrong with it, each a clause.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        if text.chars().count() > EXPRESSION_CHARS_MAX {
            return Err(vec![format!("it has more than {EXPRESSION_CHARS_MAX} characters")]);
        }
        let parts: Vec<&str> = text.split_whitespace().collect();
        if parts.len() != FIELDS.len() {
            return Err(vec![format!(
                "it has {} fields and needs 5: minute, hour, day of month, month, day of week",
                parts.len()
            )]);
        }
        let mut problems = Vec::new();
        let mut sets = [0; 5];
        for ((set, part), field) in sets.iter_mut().zip(&parts).zip(&FIELDS) {
            match field.parse(part) {
                Ok(values) => *set = values,
                Err(why) => problems.push(format!("the {} '{part}' {why}", field.called)),
            }
        }
        let [minutes, hours, days, months, weekdays] = sets;
        let cron = Self { minutes, hours, days, months, weekdays };
        // Any four hundred years have the same days; the search is from a leap year on.
        if problems.is_empty() && cron.next_day(Date::constant(2000, 1, 1)).is_none() {
            problems.push("it names a day that never comes".into());
        }
        if problems.is_empty() { Ok(cron) } else { Err(problems) }
    }

    pub(crate) fn next(&self, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
        if self.hours == EVERY_HOUR {
            self.next_passing(zone, after)
        } else {
            self.next_on_clock(zone, after)
        }
    }

    /// By time that passes: within each stretch of one offset, whenever the clock fits.
    fn next_passing(&self, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
        let mut from = minute_after(zone.clock(after))?;
        let mut like = after;
        loop {
            let civil = self.next_civil(from)?;
            let instant = zone.instant_like(civil, like)?;
            match zone.next_change(like) {
                Some(change) if change <= instant => {
                    like = change;
                    from = minute_at_or_after(zone.clock(change))?;
                }
                _ => return Some(instant),
            }
        }
    }

    fn next_on_clock(&self, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
        let mut from = minute_after(zone.clock(after))?;
        loop {
            let civil = self.next_civil(from)?;
            let instant = zone.instant(civil)?;
            if instant > after {
                return Some(instant);
            }
            from = minute_after(civil)?;
        }
    }

    /// The first time that fits, from a whole minute on.
    fn next_civil(&self, from: DateTime) -> Option<DateTime> {
        let first = self.next_day(from.date())?;
        if first == from.date() {
            let (hour, minute) = (from.hour(), from.minute());
            let in_this_hour = has(self.hours, hour).then(|| next_in(self.minutes, minute)).flatten();
            if let Some(minute) = in_this_hour {
                return Some(first.at(hour, minute, 0, 0));
            }
            if let Some(hour) = next_in(self.hours, hour + 1) {
                return Some(first.at(hour, next_in(self.minutes, 0)?, 0, 0));
            }
        } else {
            return Some(first.at(next_in(self.hours, 0)?, next_in(self.minutes, 0)?, 0, 0));
        }
        let day = self.next_day(first.tomorrow().ok()?)?;
        Some(day.at(next_in(self.hours, 0)?, next_in(self.minutes, 0)?, 0, 0))
    }

    fn next_day(&self, from: Date) -> Option<Date> {
        let mut day = from;
        for _ in 0..SEARCH_DAYS_MAX {
            if has(self.months, day.month())
                && has(self.days, day.day())
                && has(self.weekdays, day.weekday().to_sunday_zero_offset())
            {
                return Some(day);
            }
            day = day.tomorrow().ok()?;
        }
        None
    }
}

fn has(set: u64, value: i8) -> bool {
    set >> value & 1 == 1
}

/// The least member that is at least `from`.
fn next_in(set: u64, from: i8) -> Option<i8> {
    let rest = set.checked_shr(u32::from(from.unsigned_abs()))?;
    (rest != 0).then(|| from + i8::try_from(rest.trailing_zeros()).unwrap_or(0))
}

fn minute_after(civil: DateTime) -> Option<DateTime> {
    let floor = civil.date().at(civil.hour(), civil.minute(), 0, 0);
    floor.checked_add(1.minute()).ok()
}

fn minute_at_or_after(civil: DateTime) -> Option<DateTime> {
    let floor = civil.date().at(civil.hour(), civil.minute(), 0, 0);
    if floor == civil { Some(floor) } else { minute_after(civil) }
}

impl Field {
    fn parse(&self, text: &str) -> Result<u64, String> {
        let mut set = 0;
        for item in text.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => match step.parse::<u32>() {
                    Ok(step) if step > 0 => (range, Some(step)),
                    _ => return Err(format!("has the step '{step}', which is no number from 1 on")),
                },
                None => (item, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (self.least, self.most),
                Some((first, last)) => (self.value(first)?, self.value(last)?),
                None => {
                    let value = self.value(range)?;
                    (value, if step.is_some() { self.most } else { value })
                }
            };
            if first > last {
                return Err(format!("has the range '{range}', which ends before it begins"));
            }
            for value in (first..=last).step_by(step.unwrap_or(1) as usize) {
                set |= 1 << value;
            }
        }
        Ok(set)
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        let named = self.names.iter().position(|name| lower.len() >= 3 && name.starts_with(&lower));
        let number = match named {
            Some(at) => u32::try_from(at).ok().map(|at| at + self.least),
            None => text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit())),
        };
        number.filter(|n| (self.least..=self.most).contains(n)).ok_or_else(|| {
            let names =
                self.names.first().map_or_else(String::new, |name| format!(" or a name such as {name}"));
            format!("has '{text}', which is no number from {} to {}{names}", self.least, self.most)
        })
    }
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
