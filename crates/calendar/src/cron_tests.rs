use super::*;
use proptest::prelude::*;

fn next(expression: &str, zone: &str, after: &str) -> Option<String> {
    let cron = Cron::parse(expression).unwrap();
    let next = cron.next(&Zone::named(zone).unwrap(), after.parse().unwrap());
    next.map(|at| at.to_string())
}

#[test]
fn table() {
    for (expression, after, expect) in [
        ("* * * * *", "2024-01-01T00:00:00Z", "2024-01-01T00:01:00Z"),
        ("* * * * *", "2024-01-01T00:00:59.999Z", "2024-01-01T00:01:00Z"),
        ("0 * * * *", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"),
        ("15,45 * * * *", "2024-01-01T00:15:00Z", "2024-01-01T00:45:00Z"),
        ("*/20 * * * *", "2024-01-01T00:41:00Z", "2024-01-01T01:00:00Z"),
        ("5/20 * * * *", "2024-01-01T00:06:00Z", "2024-01-01T00:25:00Z"),
        ("0 9-17/4 * * *", "2024-01-01T09:00:00Z", "2024-01-01T13:00:00Z"),
        ("0 9-17/4 * * *", "2024-01-01T17:00:00Z", "2024-01-02T09:00:00Z"),
        ("30 10 * * 1-5", "2024-01-05T11:00:00Z", "2024-01-08T10:30:00Z"),
        ("0 0 * * MON,thursday", "2024-01-01T00:00:00Z", "2024-01-04T00:00:00Z"),
        ("0 0 1 JAN-mar *", "2024-03-01T00:00:00Z", "2025-01-01T00:00:00Z"),
        ("0 0 29 2 *", "2024-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 31 * *", "2024-01-31T00:00:00Z", "2024-03-31T00:00:00Z"),
        ("59 23 31 12 *", "2023-12-31T23:59:00Z", "2024-12-31T23:59:00Z"),
        // Both day fields must fit, as NCronTab has it.
        ("0 0 13 * FRI", "2024-01-01T00:00:00Z", "2024-09-13T00:00:00Z"),
        ("0 0 29 2 MON", "2024-01-01T00:00:00Z", "2044-02-29T00:00:00Z"),
    ] {
        assert_eq!(next(expression, "UTC", after).as_deref(), Some(expect), "{expression} after {after}");
    }
}

#[test]
fn every_hour_goes_by_time_that_passes() {
    let eastern = "Eastern Standard Time";
    // Put back at 06:00Z: one o'clock comes twice, and both count.
    for (after, expect) in [
        ("2024-11-03T04:30:00Z", "2024-11-03T05:00:00Z"),
        ("2024-11-03T05:00:00Z", "2024-11-03T06:00:00Z"),
        ("2024-11-03T05:30:00Z", "2024-11-03T06:00:00Z"),
        ("2024-11-03T06:00:00Z", "2024-11-03T07:00:00Z"),
        // Put forward at 07:00Z: two o'clock is three o'clock.
        ("2024-03-10T06:30:00Z", "2024-03-10T07:00:00Z"),
        ("2024-03-10T07:00:00Z", "2024-03-10T08:00:00Z"),
    ] {
        assert_eq!(next("0 * * * *", eastern, after).as_deref(), Some(expect), "{after}");
    }
}

#[test]
fn certain_hours_go_by_the_clock() {
    let eastern = "America/New_York";
    for (expression, after, expect) in [
        ("30 2 * * *", "2024-03-09T08:00:00Z", "2024-03-10T07:00:00Z"),
        ("30 2 * * *", "2024-03-10T07:00:00Z", "2024-03-11T06:30:00Z"),
        ("30 1 * * *", "2024-11-03T04:00:00Z", "2024-11-03T05:30:00Z"),
        ("30 1 * * *", "2024-11-03T05:30:00Z", "2024-11-04T06:30:00Z"),
        ("30 1 * * *", "2024-11-03T06:10:00Z", "2024-11-04T06:30:00Z"),
        // Lord Howe goes forward by half an hour.
    ] {
        assert_eq!(next(expression, eastern, after).as_deref(), Some(expect), "{expression} {after}");
    }
    let howe = "Lord Howe Standard Time";
    assert_eq!(next("15,40 2 * * *", howe, "2024-10-05T15:00:00Z").as_deref(), Some("2024-10-05T15:30:00Z"));
    assert_eq!(next("15,40 2 * * *", howe, "2024-10-05T15:30:00Z").as_deref(), Some("2024-10-05T15:40:00Z"));
}

#[test]
fn all_that_is_wrong_is_said() {
    let wrong = |text: &str| Cron::parse(text).unwrap_err();
    assert_eq!(wrong("* * *").len(), 1);
    assert_eq!(wrong("60 24 0 13 7").len(), 5);
    assert_eq!(wrong("*/0 5-2 L xyz 1-").len(), 5);
    assert_eq!(wrong("-1 +1 1.5 , *").len(), 4);
    assert_eq!(wrong("0 0 31 2 *"), ["it names a day that never comes"]);
    assert_eq!(wrong("0 0 * * * *").len(), 1, "seconds are not taken");
}

proptest! {
    /// The next time fits, is later, and no minute between fits.
    #[test]
    fn nothing_is_passed_over(
        minute in 0u8..60, step in 1u8..30, hours in prop::sample::select(vec!["*", "2", "1,14", "*/6"]),
        zone in prop::sample::select(vec!["UTC", "Eastern Standard Time", "Lord Howe Standard Time", "India Standard Time"]),
        second in 1_700_000_000i64..1_740_000_000,
    ) {
        let cron = Cron::parse(&format!("{minute}/{step} {hours} * * *")).unwrap();
        let zone = Zone::named(zone).unwrap();
        let after = Timestamp::from_second(second).unwrap();
        let next = cron.next(&zone, after).unwrap();
        prop_assert!(next > after);
        let mut at = Timestamp::from_second((second / 60 + 1) * 60).unwrap();
        while at < next {
            let clock = zone.clock(at);
            let fits = has(cron.minutes, clock.minute()) && has(cron.hours, clock.hour());
            // The second of two equal times does not count where certain hours are named.
            let first = zone.instant(clock) == Some(at) || cron.hours == EVERY_HOUR;
            prop_assert!(!(fits && first), "{at} was passed over for {next}");
            at = Timestamp::from_second(at.as_second() + 60).unwrap();
        }
    }
}
