//! Every limit of calendars, by name.

/// How far ahead is looked for the next time: a 29 February on a given weekday comes within 40 years.
pub const SEARCH_DAYS_MAX: i64 = 41 * 366;
/// The largest interval of a recurrence.
pub const INTERVAL_MAX: i64 = 1_000;
/// Characters of a cron expression.
pub const EXPRESSION_CHARS_MAX: usize = 1_000;
