//! Recurrences: every so many minutes, hours, days, weeks or months from a start on, at the times of a pattern.
//!
//! Of the pattern, what is finer than the frequency says when within each interval; what is coarser keeps others out.
//! Weeks begin on Monday. A day of the pattern that a month does not have is left out; without a pattern, a month that
//! is too short fires on its last day.

use jiff::civil::{Date, DateTime};
use jiff::{SignedDuration, Span, Timestamp};

use crate::limits::SEARCH_DAYS_MAX;
use crate::zone::Zone;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrence {
    pub frequency: Frequency,
    pub interval: i64,
    pub pattern: Pattern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    Minute,
    Hour,
    Day,
    Week,
    Month,
}

/// Empty parts say nothing. All are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    pub hours: Vec<i8>,
    pub minutes: Vec<i8>,
    /// 0 is Monday.
    pub week_days: Vec<i8>,
    pub month_days: Vec<i8>,
}

impl Pattern {
    fn has_day(&self, day: Date) -> bool {
        let in_week =
            self.week_days.is_empty() || self.week_days.contains(&day.weekday().to_monday_zero_offset());
        in_week && (self.month_days.is_empty() || self.month_days.contains(&day.day()))
    }

    fn has_hour(&self, clock: DateTime) -> bool {
        self.hours.is_empty() || self.hours.contains(&clock.hour())
    }

    fn has_minute(&self, clock: DateTime) -> bool {
        self.minutes.is_empty() || self.minutes.contains(&clock.minute())
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Recurrence {
    pub(crate) fn next(&self, zone: &Zone, start: Timestamp, after: Timestamp) -> Option<Timestamp> {
        match self.frequency {
            Frequency::Minute => self.next_passing(zone, start, after, 60),
            Frequency::Hour if self.pattern.minutes.is_empty() => self.next_passing(zone, start, after, 3600),
            Frequency::Hour => self.next_in_hours(zone, start, after),
            Frequency::Day | Frequency::Week | Frequency::Month => self.next_on_days(zone, start, after),
        }
    }

    /// By time that passes, from the start on.
    fn next_passing(
        &self,
        zone: &Zone,
        start: Timestamp,
        after: Timestamp,
        unit_s: i64,
    ) -> Option<Timestamp> {
        let step_s = self.interval * unit_s;
        let last = after.checked_add(SignedDuration::from_hours(24 * SEARCH_DAYS_MAX)).ok()?;
        let mut at = first_after(start, step_s, after)?;
        while at <= last {
            let clock = zone.clock(at);
            let nothing_before = if !self.pattern.has_day(clock.date()) {
                zone.instant(clock.date().tomorrow().ok()?.at(0, 0, 0, 0))
            } else if !self.pattern.has_hour(clock) {
                end_of_hour(zone, at, clock)
            } else {
                None
            };
            if let Some(then) = nothing_before {
                let just_before = Timestamp::from_nanosecond(then.as_nanosecond() - 1).ok()?;
                at = first_after(start, step_s, just_before.max(at))?;
            } else if self.pattern.has_hour(clock) && self.pattern.has_minute(clock) {
                return Some(at);
            } else {
                at = at.checked_add(SignedDuration::from_secs(step_s)).ok()?;
            }
        }
        None
    }

    /// At certain minutes of every so many hours, counted from the hour of the start.
    fn next_in_hours(&self, zone: &Zone, start: Timestamp, after: Timestamp) -> Option<Timestamp> {
        let clock = zone.clock(start);
        let into_hour = SignedDuration::from_secs(i64::from(clock.minute()) * 60 + i64::from(clock.second()))
            + SignedDuration::from_nanos(i64::from(clock.subsec_nanosecond()));
        let base = start.checked_sub(into_hour).ok()?;
        let step_s = self.interval * 3600;
        let last = after.checked_add(SignedDuration::from_hours(24 * SEARCH_DAYS_MAX)).ok()?;
        let mut hour = last_at_or_before(base, step_s, after)?;
        while hour <= last {
            for minute in &self.pattern.minutes {
                let at = hour.checked_add(SignedDuration::from_secs(i64::from(*minute) * 60)).ok()?;
                let clock = zone.clock(at);
                if at > after && self.pattern.has_day(clock.date()) && self.pattern.has_hour(clock) {
                    return Some(at);
                }
            }
            hour = hour.checked_add(SignedDuration::from_secs(step_s)).ok()?;
        }
        None
    }

    /// On days of the calendar, at times of the clock.
    fn next_on_days(&self, zone: &Zone, start: Timestamp, after: Timestamp) -> Option<Timestamp> {
        let begin = zone.clock(start);
        let from = zone.clock(after).date();
        let mut round = self.rounds_before(begin.date(), from);
        loop {
            let days = self.days_of_round(begin.date(), round)?;
            if days_between(from, self.first_of_round(begin.date(), round)?) > SEARCH_DAYS_MAX {
                return None;
            }
            for day in days {
                for time in self.times(begin, day) {
                    let at = zone.instant(time)?;
                    if at > after {
                        return Some(at);
                    }
                }
            }
            round += 1;
        }
    }

    /// How many whole intervals may be left out because they lie in the past.
    fn rounds_before(&self, begin: Date, from: Date) -> i64 {
        let units = match self.frequency {
            Frequency::Minute | Frequency::Hour | Frequency::Day => days_between(begin, from),
            Frequency::Week => days_between(begin, from) / 7,
            Frequency::Month => months_of(from) - months_of(begin),
        };
        (units / self.interval - 2).max(0)
    }

    fn first_of_round(&self, begin: Date, round: i64) -> Option<Date> {
        let units = round.checked_mul(self.interval)?;
        match self.frequency {
            Frequency::Minute | Frequency::Hour | Frequency::Day => begin.checked_add(days(units)?).ok(),
            Frequency::Week => {
                let since_monday = i64::from(begin.weekday().to_monday_zero_offset());
                begin.checked_add(days(units.checked_mul(7)? - since_monday)?).ok()
            }
            Frequency::Month => {
                let first = begin.first_of_month();
                first.checked_add(Span::new().try_months(units).ok()?).ok()
            }
        }
    }

    fn days_of_round(&self, begin: Date, round: i64) -> Option<Vec<Date>> {
        let first = self.first_of_round(begin, round)?;
        let pattern = &self.pattern;
        let all = match self.frequency {
            Frequency::Minute | Frequency::Hour | Frequency::Day => vec![first],
            Frequency::Week => {
                let own = [begin.weekday().to_monday_zero_offset()];
                let named = if pattern.week_days.is_empty() { &own[..] } else { &pattern.week_days };
                let day = |offset: &i8| first.checked_add(days(i64::from(*offset))?).ok();
                named.iter().map(day).collect::<Option<_>>()?
            }
            Frequency::Month if pattern.month_days.is_empty() && pattern.week_days.is_empty() => {
                let day = begin.day().min(first.days_in_month());
                vec![Date::new(first.year(), first.month(), day).ok()?]
            }
            Frequency::Month => {
                let day = |day| Date::new(first.year(), first.month(), day).ok();
                (1..=first.days_in_month()).filter_map(day).collect()
            }
        };
        Some(all.into_iter().filter(|day| pattern.has_day(*day)).collect())
    }

    fn times(&self, begin: DateTime, day: Date) -> Vec<DateTime> {
        if self.pattern.hours.is_empty() && self.pattern.minutes.is_empty() {
            return vec![day.to_datetime(begin.time())];
        }
        let (own_hour, own_minute) = ([begin.hour()], [begin.minute()]);
        let hours = if self.pattern.hours.is_empty() { &own_hour[..] } else { &self.pattern.hours };
        let minutes = if self.pattern.minutes.is_empty() { &own_minute[..] } else { &self.pattern.minutes };
        hours.iter().flat_map(|hour| minutes.iter().map(|minute| day.at(*hour, *minute, 0, 0))).collect()
    }

    /// Whether it ever fires, as far as can be told without a start.
    pub(crate) fn can_fire(&self) -> bool {
        if self.pattern.is_empty() {
            return true;
        }
        let start = Timestamp::constant(951_782_400, 0);
        (0..i64::from(self.frequency == Frequency::Month) * 11 + 1).any(|month| {
            let shifted = start.checked_add(SignedDuration::from_hours(24 * 31 * month));
            shifted.is_ok_and(|start| self.next(&Zone::utc(), start, start).is_some())
        })
    }
}

fn first_after(start: Timestamp, step_s: i64, after: Timestamp) -> Option<Timestamp> {
    if after < start {
        return Some(start);
    }
    last_at_or_before(start, step_s, after)?.checked_add(SignedDuration::from_secs(step_s)).ok()
}

/// Where the hour ends in which the clock shows this, unless the clock is changed before by less than an hour.
fn end_of_hour(zone: &Zone, at: Timestamp, clock: DateTime) -> Option<Timestamp> {
    let rest_s = 3600 - i64::from(clock.minute()) * 60 - i64::from(clock.second());
    let end = Timestamp::from_second(at.as_second() + rest_s).ok()?;
    (zone.clock(end).minute() == 0).then_some(end)
}

/// The last of `start`, `start + step`… that is not later than `at`; `start` if all are.
fn last_at_or_before(start: Timestamp, step_s: i64, at: Timestamp) -> Option<Timestamp> {
    let step = i128::from(step_s) * 1_000_000_000;
    let steps = (at.as_nanosecond() - start.as_nanosecond()).max(0) / step;
    Timestamp::from_nanosecond(start.as_nanosecond() + steps * step).ok()
}

fn days(count: i64) -> Option<Span> {
    Span::new().try_days(count).ok()
}

fn days_between(from: Date, to: Date) -> i64 {
    from.duration_until(to).as_hours() / 24
}

fn months_of(day: Date) -> i64 {
    i64::from(day.year()) * 12 + i64::from(day.month())
}

#[cfg(test)]
#[path = "recurrence_tests.rs"]
mod tests;
