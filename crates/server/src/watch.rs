//! Looks at the published state now and then, and says when a promise is broken. It changes nothing.

use std::time::Duration;

use neap_control::Handle;
use neap_control::clock::Stopwatch;
use neap_core::State;
use neap_core::invariants::{self, Violation};

const PAUSE: Duration = Duration::from_secs(30);
/// A check may take this part of one core's time, however large the state is.
const SHARE: u32 = 50;
/// Above so many jobs the check that asks each waiting job for its reasons is left out: it takes the square of them.
const JOBS_EXPLAINED_MAX: usize = 2_000;

pub async fn invariants(handle: Handle) {
    loop {
        let watch = Stopwatch::start();
        let state = handle.state();
        let Ok(violations) = tokio::task::spawn_blocking(move || check(&state)).await else { return };
        for violation in violations.iter().take(20) {
            tracing::error!(invariant = violation.invariant, what = violation.what, "an invariant is broken");
        }
        handle.metrics().invariants_checked(&violations);
        let took = Duration::from_micros(watch.elapsed_us());
        tokio::time::sleep(PAUSE.max(took * SHARE)).await;
    }
}

fn check(state: &State) -> Vec<Violation> {
    if state.jobs.len() <= JOBS_EXPLAINED_MAX {
        return invariants::check(state);
    }
    let mut out = Vec::new();
    invariants::j1_no_job_is_lost(state, &mut out);
    invariants::j2_one_attempt_at_a_time(state, &mut out);
    invariants::n1_every_node_is_known(state, &mut out);
    invariants::n2_counts_stay_in_bounds(state, &mut out);
    invariants::n3_leases_end(state, &mut out);
    out
}
