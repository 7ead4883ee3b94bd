//! Where time comes from: the only file of this crate that looks at a clock.

use neap_core::Millis;

/// Wall-clock milliseconds. The writer makes them never decrease.
#[allow(clippy::disallowed_methods, reason = "this is the driver's clock; pure code gets its value")]
pub fn wall() -> Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

pub fn unix_seconds() -> i64 {
    i64::try_from(wall().0 / 1000).unwrap_or(i64::MAX)
}

/// Milliseconds that only ever go forward, whatever is done to the wall clock: what leases are counted on.
#[allow(clippy::disallowed_methods, reason = "this is the driver's clock; pure code gets its value")]
pub fn steady() -> Millis {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let start = *START.get_or_init(std::time::Instant::now);
    Millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// Wall-clock nanoseconds, for spans.
#[allow(clippy::disallowed_methods, reason = "this is the driver's clock; pure code gets its value")]
pub fn wall_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// How long something took.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "this is the driver's clock; pure code gets its value")]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub fn elapsed_us(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
