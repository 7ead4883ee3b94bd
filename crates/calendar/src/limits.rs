//! Every limit of calendars, by name.

/// How far ahead is looked for the next time: a 29 February on a given weekday comes within 40 years.
pub const SEARCH_DAYS_MAX: i64 = 41 * 366;
/// The largest interval of a recurrence.
pub const INTERVAL_MAX: i64 = 1_000;
/// Characters of a cron expression.
pub const EXPRESSION_CHARS_MAX: usize = 1_000;
/// How far ahead stretches of a window are worked out, and how far back one may have begun that is not over.
pub const WINDOW_AHEAD_DAYS: i64 = 400;
pub const WINDOW_BEHIND_DAYS: i64 = 367;
/// The longest duration of a window.
pub const WINDOW_MINUTES_MAX: i64 = 31 * 24 * 60;
/// Starts of a window that are looked at, at a time.
pub const WINDOW_STARTS_LOOKED_AT_MAX: usize = 100_000;
/// Dates that a window leaves out, or has beside its own.
pub const DATES_MAX: usize = 400;
