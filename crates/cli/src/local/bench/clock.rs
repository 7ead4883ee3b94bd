//! The clocks of a benchmark: measuring time is what it is for. Nothing else in this program reads them.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time, and watches other processes")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970, to the microsecond: comparable with what a job on this machine prints.
pub fn wall_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// Between two looks at another process.
pub fn pause(span: Duration) {
    std::thread::sleep(span);
}

pub fn ms_since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}
