//! When a schedule fires, and when a window is open: cron expressions and recurrences, in time zones, as data.
//!
//! No I/O, no clock, nothing of other rooms. [`Trigger::read`] reads what Azure ML calls a trigger, with every problem
//! at once; [`Trigger::next`] says when it fires next. Equal inputs get equal answers, on every machine: the time zone
//! database is part of the program.
//!
//! Where clocks are put forward, a time that is skipped fires at the moment of skipping. Where they are put back, a time
//! that comes twice fires the first time. Whatever counts minutes or hours goes by time that truly passes.

pub mod limits;

mod cron;
mod read;
mod recurrence;
mod window;
mod zone;

pub use cron::Cron;
pub use read::Problem;
pub use recurrence::{Frequency, Pattern, Recurrence};
pub use window::{Ahead, Stretch, Until, Window};
pub use zone::Zone;

use jiff::Timestamp;
use jiff::civil::DateTime;

#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    pub rule: Rule,
    pub zone: Zone,
    /// On the zone's clock. Absent: when the trigger was put in place.
    pub start: Option<DateTime>,
    /// On the zone's clock; a time that is this one still fires.
    pub end: Option<DateTime>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    Cron(Cron),
    Recurrence(Recurrence),
}

impl Trigger {
    /// The first firing later than `after`, of a trigger that was put in place at `placed`. `None`: never again.
    pub fn next(&self, placed: Timestamp, after: Timestamp) -> Option<Timestamp> {
        let start = match self.start {
            Some(civil) => self.zone.instant(civil)?,
            None => placed,
        };
        // A moment before the start: the start itself may fire.
        let after = after.max(Timestamp::from_nanosecond(start.as_nanosecond() - 1).ok()?);
        let next = match &self.rule {
            Rule::Cron(cron) => cron.next(&self.zone, after),
            Rule::Recurrence(recurrence) => recurrence.next(&self.zone, start, after),
        }?;
        match self.end {
            Some(end) if next > self.zone.instant(end)? => None,
            _ => Some(next),
        }
    }
}
