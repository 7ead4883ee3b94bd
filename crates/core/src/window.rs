//! Windows on a cluster's scale: while one is open, minimum and maximum are other than declared. When windows are open is
//! said from outside: the calendar's next spans are on record, and what is in force follows from them and the time alone.
//!
//! Where windows overlap: of the maximums the lowest holds, of the minimums the highest; a minimum is never above the
//! maximum that holds. A window never raises the maximum over the declared one, which is what quotas count.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Cut, Scale};
use crate::ids::DocHash;
use crate::units::Millis;

/// By lower-case name.
pub type Windows = OrdMap<Arc<str>, Arc<Window>>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub name: Arc<str>,
    pub enabled: bool,
    pub min: Option<u32>,
    pub max: Option<u32>,
    /// What runs on nodes beyond the maximum is stopped and waits; else it is left to end.
    pub stops: bool,
    /// Its time zone, for people.
    pub zone: Arc<str>,
    /// In order and apart from each other.
    pub spans: Vec<Span>,
    /// When further spans are to be worked out.
    pub refill_at: Option<Millis>,
    pub document: DocHash,
    pub by: Arc<str>,
    pub created: Millis,
    pub modified: Millis,
}

/// From a moment on, up to another, which is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub from: Millis,
    pub until: Millis,
    /// Minutes east of UTC of the zone's clock, at both.
    pub offsets: (i32, i32),
}

impl Span {
    /// The end of one that is open as far ahead as anybody looked.
    pub const NEVER: Millis = Millis(u64::MAX);

    /// Where it has one.
    pub fn end(&self) -> Option<Millis> {
        (self.until != Self::NEVER).then_some(self.until)
    }
}

/// What windows make of a cluster now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduled {
    /// The window whose minimum, and whose maximum, is in force.
    pub min_by: Option<Arc<str>>,
    pub max_by: Option<Arc<str>>,
    /// When minimum or maximum change next, on the clock of the zone.
    pub until: Option<Arc<str>>,
    /// When to look again.
    pub next: Option<Millis>,
}

/// A change that is to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub at: Millis,
    /// The same on the clock of the zone: `2026-11-17 07:00 Europe/Berlin`.
    pub clock: Arc<str>,
    pub min: u32,
    pub max: u32,
}

impl Window {
    pub fn is_open(&self, now: Millis) -> bool {
        self.enabled && self.spans.iter().any(|span| span.from <= now && now < span.until)
    }

    /// When it opens or closes next.
    pub fn next(&self, now: Millis) -> Option<(Millis, bool, Arc<str>)> {
        let span = self.spans.iter().find(|span| self.enabled && span.until > now)?;
        let opens = span.from > now;
        let (at, offset) = if opens { (span.from, span.offsets.0) } else { (span.end()?, span.offsets.1) };
        Some((at, opens, clock(at, offset, &self.zone)))
    }
}

/// Minimum and maximum as they are at a moment, and by which windows.
pub fn in_force(declared: Scale, windows: &Windows, now: Millis) -> (Scale, Scheduled) {
    let (mut scale, mut scheduled) = effective(declared, windows, now);
    let changes = next_change(declared, windows, now);
    scheduled.until = changes.map(|change| change.clock);
    let refills = windows.values().filter(|window| window.enabled).filter_map(|window| window.refill_at);
    let looks = boundaries(windows, now).into_keys().next();
    scheduled.next = looks.into_iter().chain(refills.filter(|at| *at > now)).min();
    scale.idle_ms = declared.idle_ms;
    (scale, scheduled)
}

fn effective(declared: Scale, windows: &Windows, now: Millis) -> (Scale, Scheduled) {
    let open = || windows.values().filter(|window| window.is_open(now));
    let lowest = open().filter_map(|window| Some((window.max?, window))).min_by_key(|(max, _)| *max);
    let highest = open().filter_map(|window| Some((window.min?, window))).max_by_key(|(min, _)| *min);
    let mut scale = declared;
    let mut scheduled = Scheduled::default();
    if let Some((max, window)) = lowest.filter(|(max, _)| *max < declared.max) {
        scale.max = max;
        scheduled.max_by = Some(window.name.clone());
    }
    if let Some((min, window)) = highest.filter(|(min, _)| *min != declared.min) {
        scale.min = min;
        scheduled.min_by = Some(window.name.clone());
    }
    scale.min = scale.min.min(scale.max);
    (scale, scheduled)
}

/// The next moment at which minimum or maximum are others than now.
pub fn next_change(declared: Scale, windows: &Windows, now: Millis) -> Option<Change> {
    let (current, _) = effective(declared, windows, now);
    boundaries(windows, now).into_iter().find_map(|(at, clock)| {
        let (then, _) = effective(declared, windows, at);
        (then != current).then_some(Change { at, clock, min: then.min, max: then.max })
    })
}

/// Every later moment at which a window opens or closes.
fn boundaries(windows: &Windows, after: Millis) -> BTreeMap<Millis, Arc<str>> {
    let mut out = BTreeMap::new();
    for window in windows.values().filter(|window| window.enabled) {
        for span in &window.spans {
            let end = span.end().map(|end| (end, span.offsets.1));
            for (at, offset) in [(span.from, span.offsets.0)].into_iter().chain(end) {
                if at > after {
                    out.entry(at).or_insert_with(|| clock(at, offset, &window.zone));
                }
            }
        }
    }
    out
}

fn clock(at: Millis, offset_minutes: i32, zone: &str) -> Arc<str> {
    let local = i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(i64::from(offset_minutes) * 60_000);
    let local = Millis(u64::try_from(local).unwrap_or(0)).rfc3339();
    let (date, time) = local.split_at(local.find('T').unwrap_or(0));
    format!("{date} {} {zone}", time.get(1..6).unwrap_or_default()).into()
}

/// Why a cluster has a lower maximum than declared, if so; of a mixed one, what that leaves to a part of it.
pub fn cut(cluster: &Cluster, part: &Cluster, wanted: u32) -> Option<Cut> {
    let name = cluster.scheduled.max_by.clone()?;
    Some(Cut::Window {
        name,
        wanted,
        max: cluster.scale.max,
        declared: cluster.declared.max,
        until: cluster.scheduled.until.clone(),
        left: cluster.mix.as_ref().map(|_| (part.shape.tier, part.scale.max)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(
        name: &str,
        min: Option<u32>,
        max: Option<u32>,
        spans: &[(u64, u64)],
    ) -> (Arc<str>, Arc<Window>) {
        let span = |(from, until): &(u64, u64)| Span {
            from: Millis(*from),
            until: Millis(*until),
            offsets: (0, 60),
        };
        let window = Window {
            name: name.into(),
            enabled: true,
            min,
            max,
            stops: false,
            zone: "Z".into(),
            spans: spans.iter().map(span).collect(),
            refill_at: Some(Millis(90)),
            document: DocHash([0; 32]),
            by: "me".into(),
            created: Millis(0),
            modified: Millis(0),
        };
        (name.into(), Arc::new(window))
    }

    const DECLARED: Scale = Scale { min: 2, max: 8, idle_ms: 7 };

    #[test]
    fn what_is_in_force_by_the_hour() {
        let windows: Windows = [
            window("nights", None, Some(0), &[(10, 20), (50, 60)]),
            window("quiet", Some(0), Some(4), &[(15, 30)]),
            window("rush", Some(6), None, &[(18, 40)]),
            window("vain", None, Some(9), &[(70, 80)]),
        ]
        .into_iter()
        .collect();
        for (now, min, max, min_by, max_by, next) in [
            (0, 2, 8, "", "", 10),
            (9, 2, 8, "", "", 10),
            (10, 0, 0, "", "nights", 15),
            (15, 0, 0, "quiet", "nights", 18),
            (18, 0, 0, "rush", "nights", 20),
            (20, 4, 4, "rush", "quiet", 30),
            (30, 6, 8, "rush", "", 40),
            (40, 2, 8, "", "", 50),
            (60, 2, 8, "", "", 70),
            // Nothing is lowered by it.
            (70, 2, 8, "", "", 80),
            (80, 2, 8, "", "", 90),
        ] {
            let (scale, scheduled) = in_force(DECLARED, &windows, Millis(now));
            assert_eq!((scale.min, scale.max, scale.idle_ms), (min, max, 7), "at {now}");
            assert_eq!(scheduled.min_by.as_deref().unwrap_or(""), min_by, "at {now}");
            assert_eq!(scheduled.max_by.as_deref().unwrap_or(""), max_by, "at {now}");
            assert_eq!(scheduled.next, Some(Millis(next)), "at {now}");
        }
        let (_, over) = in_force(DECLARED, &windows, Millis(95));
        assert_eq!(over, Scheduled::default());
    }

    #[test]
    fn one_without_an_end_does_not_close() {
        let windows: Windows =
            [window("always", None, Some(1), &[(10, Span::NEVER.0)])].into_iter().collect();
        let at = |now| in_force(DECLARED, &windows, Millis(now));
        assert_eq!((at(9).0.max, at(10).0.max, at(1_000_000).0.max), (8, 1, 1));
        assert_eq!(at(9).1.next, Some(Millis(10)));
        assert_eq!(
            (at(10).1.until, at(10).1.next),
            (None, Some(Millis(90))),
            "only the calendar is looked at"
        );
        assert_eq!(windows["always"].next(Millis(10)), None);
    }

    #[test]
    fn the_next_change_is_where_something_changes() {
        let windows: Windows =
            [window("a", None, Some(1), &[(10, 20)]), window("b", None, Some(1), &[(20, 30)])]
                .into_iter()
                .collect();
        let change = next_change(DECLARED, &windows, Millis(12)).unwrap();
        assert_eq!((change.at, change.min, change.max), (Millis(30), 2, 8));
        assert_eq!(&*change.clock, "1970-01-01 01:00 Z");
        assert_eq!(next_change(DECLARED, &windows, Millis(30)), None);
    }

    #[test]
    fn one_that_is_switched_off_does_nothing() {
        let (name, window) = window("a", None, Some(1), &[(10, 20)]);
        let off = Arc::new(Window { enabled: false, ..(*window).clone() });
        let windows: Windows = [(name, off)].into_iter().collect();
        assert_eq!(in_force(DECLARED, &windows, Millis(12)), (DECLARED, Scheduled::default()));
    }

    #[test]
    fn times_are_told_on_the_zones_clock() {
        let at = Millis(1_794_895_200_000);
        assert_eq!(at.rfc3339(), "2026-11-17T06:00:00.000Z");
        assert_eq!(&*clock(at, 60, "Europe/Berlin"), "2026-11-17 07:00 Europe/Berlin");
        assert_eq!(&*clock(at, -480, "US/Pacific"), "2026-11-16 22:00 US/Pacific");
    }
}
