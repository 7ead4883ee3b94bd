//! Time zones by their Windows names, which Azure uses, and by their IANA names; and from a clock's time to an instant.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

/// `Windows name,IANA name`.
const WINDOWS: &str = include_str!("../data/windows-zones.csv");

#[derive(Clone)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name)
    }
}

/// Two zones are equal when they are called the same.
impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name.eq_ignore_ascii_case(&other.name)
    }
}

impl Zone {
    pub fn utc() -> Self {
        Self { name: "UTC".into(), zone: TimeZone::UTC }
    }

    /// By a Windows or an IANA name, without regard to case.
    pub fn named(name: &str) -> Option<Self> {
        let iana = windows().find(|(windows, _)| windows.eq_ignore_ascii_case(name)).map(|(_, iana)| iana);
        let zone = TimeZoneDatabase::bundled().get(iana.unwrap_or(name)).ok()?;
        Some(Self { name: name.into(), zone })
    }

    pub(crate) fn clock(&self, at: Timestamp) -> DateTime {
        self.zone.to_datetime(at)
    }

    /// When the clock shows this: the first time if it does twice, the moment of skipping if it never does.
    pub fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // Read with the later offset, a skipped time lies shortly before the change.
                let before_change = after.to_timestamp(civil).ok()?;
                self.next_change(before_change)
            }
        }
    }

    /// East of UTC.
    pub(crate) fn offset_seconds(&self, at: Timestamp) -> i32 {
        self.zone.to_offset(at).seconds()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// When the offset changes next.
    pub(crate) fn next_change(&self, after: Timestamp) -> Option<Timestamp> {
        self.zone.following(after).next().map(|change| change.timestamp())
    }

    /// The instant of a clock time, by the offset that is in force at `like`.
    pub(crate) fn instant_like(&self, civil: DateTime, like: Timestamp) -> Option<Timestamp> {
        self.zone.to_offset(like).to_timestamp(civil).ok()
    }
}

fn windows() -> impl Iterator<Item = (&'static str, &'static str)> {
    WINDOWS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_windows_name_has_a_zone() {
        let names: Vec<_> = windows().collect();
        assert!(names.len() > 140, "{}", names.len());
        for (name, iana) in names {
            assert!(Zone::named(name).is_some(), "{name} ({iana})");
        }
    }

    #[test]
    fn names_are_read_without_regard_to_case() {
        for good in ["pacific standard time", "UTC", "utc", "Europe/Berlin", "europe/berlin", "UTC-08"] {
            assert!(Zone::named(good).is_some(), "{good}");
        }
        for bad in ["", "Pacific Time", "Mars/Olympus"] {
            assert!(Zone::named(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn skipped_times_are_the_moment_of_skipping_and_doubled_ones_the_first() {
        let zone = Zone::named("Eastern Standard Time").unwrap();
        let check = |civil: &str, expect: &str| {
            assert_eq!(zone.instant(civil.parse().unwrap()).unwrap().to_string(), expect, "{civil}");
        };
        check("2024-03-10T01:59:59", "2024-03-10T06:59:59Z");
        check("2024-03-10T02:00:00", "2024-03-10T07:00:00Z");
        check("2024-03-10T02:30:00", "2024-03-10T07:00:00Z");
        check("2024-03-10T03:00:00", "2024-03-10T07:00:00Z");
        check("2024-11-03T01:30:00", "2024-11-03T05:30:00Z");
        check("2024-11-03T02:00:00", "2024-11-03T07:00:00Z");
    }
}
