//! The node's boot log: lines on stderr, which the provider redirects into a file that outlives the node.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on nothing is written: a process that plays many agents has no boot log.
pub(crate) fn silence() {
    QUIET.store(true, Ordering::Relaxed);
}

/// One line, with the time.
pub(crate) fn line(text: &str) {
    if QUIET.load(Ordering::Relaxed) {
        return;
    }
    // Nobody is left to be told if stderr is gone.
    let _ = writeln!(
        std::io::stderr().lock(),
        "{:.3} {text}",
        jiff::Timestamp::from_nanosecond(now_ns()).unwrap_or_default()
    );
}

/// Wall-clock time, for people and for certificates; nothing is counted with it.
pub(crate) fn now_ns() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}
