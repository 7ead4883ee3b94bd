use super::*;
use proptest::prelude::*;

use Frequency::{Day, Hour, Minute, Month, Week};

fn every(frequency: Frequency, interval: i64, pattern: [&[i8]; 4]) -> Recurrence {
    let [hours, minutes, week_days, month_days] = pattern.map(<[i8]>::to_vec);
    Recurrence { frequency, interval, pattern: Pattern { hours, minutes, week_days, month_days } }
}

const NONE: [&[i8]; 4] = [&[], &[], &[], &[]];

#[track_caller]
fn check(recurrence: &Recurrence, zone: &str, start: &str, after: &str, expect: &[&str]) {
    let zone = Zone::named(zone).unwrap();
    let start: Timestamp = start.parse().unwrap();
    let mut after: Timestamp = after.parse().unwrap();
    for expect in expect {
        after = recurrence.next(&zone, start, after).unwrap();
        assert_eq!(after.to_string(), *expect, "{recurrence:?}");
    }
}

#[test]
fn minutes_and_hours_are_counted_from_the_start() {
    let start = "2024-01-01T00:00:07Z";
    check(&every(Minute, 5, NONE), "UTC", start, "2023-01-01T00:00:00Z", &[start, "2024-01-01T00:05:07Z"]);
    check(&every(Minute, 5, NONE), "UTC", start, "2024-01-01T01:02:00Z", &["2024-01-01T01:05:07Z"]);
    check(&every(Hour, 36, NONE), "UTC", start, start, &["2024-01-02T12:00:07Z", "2024-01-04T00:00:07Z"]);
    // Across a change of the clock hours stay hours.
    let eastern = "Eastern Standard Time";
    check(
        &every(Hour, 12, NONE),
        eastern,
        "2024-03-09T17:00:00Z",
        "2024-03-09T17:00:00Z",
        &["2024-03-10T05:00:00Z", "2024-03-10T17:00:00Z"],
    );
    check(
        &every(Hour, 2, [&[], &[0, 30], &[], &[]]),
        "India Standard Time",
        "2024-01-01T00:10:00Z",
        "2024-01-01T00:10:00Z",
        &["2024-01-01T01:30:00Z", "2024-01-01T02:00:00Z", "2024-01-01T03:30:00Z"],
    );
    // Only on Mondays, only in the hours named.
    check(
        &every(Minute, 30, [&[9], &[], &[0], &[]]),
        "UTC",
        "2024-01-01T00:00:00Z",
        "2024-01-01T09:00:00Z",
        &["2024-01-01T09:30:00Z", "2024-01-08T09:00:00Z"],
    );
}

#[test]
fn days_weeks_and_months_go_by_the_clock() {
    // The example of the reference: 10:00 on the west coast, every day at these times.
    let daily = every(Day, 1, [&[4, 5, 10, 11, 12], &[0, 30], &[], &[]]);
    check(
        &daily,
        "Pacific Standard Time",
        "2022-07-10T17:00:00Z",
        "2022-07-10T16:59:59Z",
        &[
            "2022-07-10T17:00:00Z",
            "2022-07-10T17:30:00Z",
            "2022-07-10T18:00:00Z",
            "2022-07-10T18:30:00Z",
            "2022-07-10T19:00:00Z",
            "2022-07-10T19:30:00Z",
            "2022-07-11T11:00:00Z",
        ],
    );
    let eastern = "Eastern Standard Time";
    // Two in the morning is skipped on 10 March.
    check(
        &every(Day, 1, [&[2], &[30], &[], &[]]),
        eastern,
        "2024-03-08T00:00:00Z",
        "2024-03-08T00:00:00Z",
        &["2024-03-08T07:30:00Z", "2024-03-09T07:30:00Z", "2024-03-10T07:00:00Z", "2024-03-11T06:30:00Z"],
    );
    // Every other week, on Mondays and Thursdays, from a Wednesday on.
    check(
        &every(Week, 2, [&[10], &[0], &[0, 3], &[]]),
        "UTC",
        "2024-01-03T00:00:00Z",
        "2024-01-03T00:00:00Z",
        &["2024-01-04T10:00:00Z", "2024-01-15T10:00:00Z", "2024-01-18T10:00:00Z", "2024-01-29T10:00:00Z"],
    );
    check(
        &every(Week, 1, NONE),
        "UTC",
        "2024-01-03T05:06:07Z",
        "2024-05-01T06:00:00Z",
        &["2024-05-08T05:06:07Z"],
    );
    // A start on the 31st is the last day of shorter months; a pattern's 31st is left out of them.
    let last = "2024-01-31T08:00:00Z";
    check(
        &every(Month, 1, NONE),
        "UTC",
        last,
        last,
        &["2024-02-29T08:00:00Z", "2024-03-31T08:00:00Z", "2024-04-30T08:00:00Z"],
    );
    check(
        &every(Month, 1, [&[8], &[0], &[], &[1, 31]]),
        "UTC",
        last,
        last,
        &["2024-02-01T08:00:00Z", "2024-03-01T08:00:00Z", "2024-03-31T08:00:00Z"],
    );
    check(
        &every(Month, 3, [&[8], &[0], &[4], &[13]]),
        "UTC",
        "2024-03-01T00:00:00Z",
        "2024-03-01T00:00:00Z",
        &["2024-09-13T08:00:00Z", "2024-12-13T08:00:00Z"],
    );
}

#[test]
fn what_never_fires_is_known() {
    assert!(!every(Month, 1, [&[], &[], &[], &[32]]).can_fire());
    assert!(every(Month, 12, [&[], &[], &[], &[31]]).can_fire());
    assert!(every(Day, 1, [&[1], &[2], &[3], &[]]).can_fire());
}

proptest! {
    /// Later than asked for, not before the start, and asking at any time between gives the same.
    #[test]
    fn next_is_the_least_and_steady(
        frequency in prop::sample::select(vec![Minute, Hour, Day, Week, Month]),
        interval in 1i64..40,
        hours in prop::collection::btree_set(0i8..24, 0..3),
        minutes in prop::collection::btree_set(0i8..60, 0..3),
        week_days in prop::collection::btree_set(0i8..7, 0..3),
        zone in prop::sample::select(vec!["UTC", "Eastern Standard Time", "Lord Howe Standard Time"]),
        start in 1_700_000_000i64..1_710_000_000, gone in 0i64..20_000_000, part in 0.0f64..1.0,
    ) {
        let pattern = Pattern {
            hours: hours.into_iter().collect(), minutes: minutes.into_iter().collect(),
            week_days: week_days.into_iter().collect(), month_days: Vec::new(),
        };
        let recurrence = Recurrence { frequency, interval, pattern };
        let zone = Zone::named(zone).unwrap();
        let start = Timestamp::from_second(start).unwrap();
        let after = Timestamp::from_second(start.as_second() + gone).unwrap();
        if let Some(next) = recurrence.next(&zone, start, after) {
            prop_assert!(next > after && next >= start);
            let span = next.as_second() - after.as_second() - 1;
            #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
            let between = Timestamp::from_second(after.as_second() + (span as f64 * part) as i64).unwrap();
            prop_assert_eq!(recurrence.next(&zone, start, between), Some(next));
        }
    }
}
