use serde_json::{Value, json};

use super::*;

fn window(asked: &Value) -> Window {
    Window::read(asked).unwrap()
}

/// The next stretches as text.
fn ahead(window: &Window, now: &str, count: usize) -> Vec<(String, String)> {
    let told = |stretch: &Stretch| (stretch.from.to_string(), stretch.until.to_string());
    window.ahead(now.parse().unwrap(), count).stretches.iter().map(told).collect()
}

#[track_caller]
fn check(asked: &Value, now: &str, expect: &[(&str, &str)]) {
    let found = ahead(&window(asked), now, expect.len());
    let found: Vec<(&str, &str)> =
        found.iter().map(|(from, until)| (from.as_str(), until.as_str())).collect();
    assert_eq!(found, expect);
}

fn nights() -> Value {
    json!({"start": "0 20 * * *", "end": "0 7 * * *", "time_zone": "Europe/Berlin"})
}

#[test]
fn nights_go_by_the_clock_also_where_it_changes() {
    // The one in which 02:00 becomes 03:00 has ten hours, the one in which 03:00 becomes 02:00 has twelve.
    check(
        &nights(),
        "2026-03-28T12:00:00Z",
        &[("2026-03-28T19:00:00Z", "2026-03-29T05:00:00Z"), ("2026-03-29T18:00:00Z", "2026-03-30T05:00:00Z")],
    );
    check(&nights(), "2026-10-24T12:00:00Z", &[("2026-10-24T18:00:00Z", "2026-10-25T06:00:00Z")]);
}

#[test]
fn a_duration_is_time_that_passes() {
    let asked = json!({"start": "0 20 * * *", "duration": "11h", "time_zone": "Europe/Berlin"});
    check(&asked, "2026-03-28T12:00:00Z", &[("2026-03-28T19:00:00Z", "2026-03-29T06:00:00Z")]);
    check(&asked, "2026-10-24T12:00:00Z", &[("2026-10-24T18:00:00Z", "2026-10-25T05:00:00Z")]);
}

#[test]
fn the_one_that_is_now_is_the_first() {
    check(&nights(), "2026-06-10T23:00:00Z", &[("2026-06-10T18:00:00Z", "2026-06-11T05:00:00Z")]);
    // A whole month, and one that lasts nearly a year.
    let month = json!({"start": "0 0 1 6 *", "end": "0 0 1 7 *"});
    check(&month, "2026-06-30T23:00:00Z", &[("2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z")]);
    let year = json!({"start": "0 0 2 1 *", "end": "0 0 31 12 *"});
    check(&year, "2026-12-30T23:00:00Z", &[("2026-01-02T00:00:00Z", "2026-12-31T00:00:00Z")]);
}

#[test]
fn at_the_end_itself_it_is_over() {
    check(&nights(), "2026-06-11T05:00:00Z", &[("2026-06-11T18:00:00Z", "2026-06-12T05:00:00Z")]);
}

#[test]
fn holidays_are_left_out_or_added_whole() {
    let mut asked = nights();
    asked["not_on"] = json!(["2026-06-10"]);
    check(&asked, "2026-06-10T12:00:00Z", &[("2026-06-11T18:00:00Z", "2026-06-12T05:00:00Z")]);
    // The night before ends at 07:00 of a day that is free as a whole: one stretch from one evening to the morning after
    // the next.
    asked["not_on"] = json!([]);
    asked["also_on"] = json!(["2026-06-11"]);
    check(&asked, "2026-06-10T12:00:00Z", &[("2026-06-10T18:00:00Z", "2026-06-12T05:00:00Z")]);
    let weekday = json!({"start": "0 20 * * MON-FRI", "end": "0 7 * * *", "also_on": ["2026-06-14"]});
    check(
        &weekday,
        "2026-06-13T12:00:00Z",
        &[("2026-06-14T00:00:00Z", "2026-06-15T00:00:00Z"), ("2026-06-15T20:00:00Z", "2026-06-16T07:00:00Z")],
    );
}

#[test]
fn starts_within_a_stretch_make_it_no_other() {
    let asked = json!({"start": "*/10 20-22 * * *", "end": "0 7 * * *"});
    check(&asked, "2026-06-10T12:00:00Z", &[("2026-06-10T20:00:00Z", "2026-06-11T07:00:00Z")]);
    let always = window(&json!({"start": "0 * * * *", "duration": "2h"}));
    let ahead = always.ahead("2026-06-10T12:30:00Z".parse().unwrap(), 4);
    assert_eq!(ahead.stretches.len(), 1);
    assert!(ahead.stretches[0].until >= ahead.known_until);
}

#[test]
fn one_that_begins_every_minute_is_open_and_known_for_a_while() {
    let now = "2026-06-10T12:30:00Z".parse().unwrap();
    for asked in [
        json!({"start": "* * * * *", "duration": "1h"}),
        json!({"start": "* * * * *", "duration": "31d"}),
        json!({"start": "*/2 * * * *", "end": "1-59/2 * * * *"}),
    ] {
        let ahead = window(&asked).ahead(now, 4);
        assert!(ahead.stretches.first().is_some_and(|stretch| stretch.from <= now), "{asked}: {ahead:?}");
        assert!(ahead.known_until > now, "{asked}: {ahead:?}");
        assert!(ahead.stretches.iter().all(|stretch| stretch.from < ahead.known_until), "{asked}: {ahead:?}");
    }
}

#[test]
fn what_is_known_goes_up_to_the_first_that_is_left_out() {
    let found = window(&nights()).ahead("2026-06-10T12:00:00Z".parse().unwrap(), 3);
    assert_eq!(found.stretches.len(), 3);
    assert_eq!(found.known_until.to_string(), "2026-06-13T18:00:00Z");
    let rare = window(&json!({"start": "0 0 29 2 *", "duration": "1d"}));
    let found = rare.ahead("2026-06-10T12:00:00Z".parse().unwrap(), 3);
    assert_eq!(found.stretches, vec![]);
    assert!(found.known_until.to_string().starts_with("2027-07"), "{found:?}");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let asked = json!({"start": "0 25 * * *", "end": "x", "time_zone": "Mars/Olympus",
        "not_on": ["2026-02-30"], "also_on": "2026-01-01"});
    let problems = Window::read(&asked).unwrap_err();
    let places: Vec<&str> = problems.iter().map(|problem| problem.at.as_str()).collect();
    assert_eq!(places, ["time_zone", "start", "end", "not_on", "also_on"]);
    for (asked, at) in [
        (json!({}), "start"),
        (json!({"start": "0 1 * * *"}), "end"),
        (json!({"start": "0 1 * * *", "end": "0 2 * * *", "duration": "1h"}), "end"),
        (json!({"start": "0 1 * * *", "duration": "0h"}), "duration"),
        (json!({"start": "0 1 * * *", "duration": "99d"}), "duration"),
        (json!({"start": "0 1 * * *", "duration": "é"}), "duration"),
        (json!({"start": "0 1 * * *", "duration": 7}), "duration"),
        (json!({"start": 3, "duration": "1h"}), "start"),
    ] {
        let problems = Window::read(&asked).unwrap_err();
        assert_eq!(problems[0].at, at, "{problems:?}");
    }
    let both =
        json!({"start": "0 1 * * *", "duration": "1h", "not_on": ["2026-01-01"], "also_on": ["2026-01-01"]});
    assert!(Window::read(&both).unwrap_err()[0].says.contains("both"));
}
