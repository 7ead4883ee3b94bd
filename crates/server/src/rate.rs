//! How much clients may ask: so many requests a second, and so many at once. What is over is refused before anything
//! of it is read, so that a flood costs little and the memory of the server stays bounded.
//!
//! Requests with a signature of their own (files and logs) have a lane apart: nodes fetch and store through it, and
//! must not wait behind callers of the interface. So have requests for tokens: whoever wants to end the server in a flood
//! needs one first. Agents' own connections do not come this way at all.
//!
//! Nothing is decided here about clusters and jobs, and nothing is queued: a refused client comes again.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use neap_control::clock;
use neap_control::instruments::Counter;
use neap_core::{Code, Millis, Refusal};
use tokio::sync::Semaphore;

use crate::config::Limits;

const RETRY_AFTER_S: &str = "1";
/// How one asks how the server is, and how one ends it: never limited, so that both work in a flood.
const ALWAYS: [&str; 3] = ["/neap/v1/status", "/neap/v1/shutdown", "/metrics"];
const TOKENS: [&str; 2] = ["/msi/token", "/metadata/identity/oauth2/token"];

#[derive(Debug)]
pub struct Gatekeeper {
    interface: Lane,
    files: Lane,
    tokens: Lane,
    refused: Arc<Counter>,
}

#[derive(Debug)]
struct Lane {
    bucket: Mutex<Bucket>,
    in_flight: Semaphore,
    limits: Limits,
}

impl Gatekeeper {
    /// `refused` counts what is turned away.
    pub fn new(limits: Limits, refused: Arc<Counter>) -> Arc<Self> {
        let lane = || Lane::new(limits);
        Arc::new(Self { interface: lane(), files: lane(), tokens: lane(), refused })
    }

    /// The same router, behind the limits.
    pub fn guard(self: Arc<Self>, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self, pass))
    }

    /// None: not limited.
    fn lane(&self, path: &str, query: Option<&str>) -> Option<&Lane> {
        if ALWAYS.contains(&path) {
            return None;
        }
        if TOKENS.contains(&path) {
            return Some(&self.tokens);
        }
        let signed = query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("sig=")));
        Some(if signed { &self.files } else { &self.interface })
    }
}

impl Lane {
    fn new(limits: Limits) -> Self {
        Self {
            bucket: Mutex::new(Bucket::new(limits)),
            in_flight: Semaphore::new(limits.requests_in_flight as usize),
            limits,
        }
    }
}

async fn pass(State(gatekeeper): State<Arc<Gatekeeper>>, request: Request, next: Next) -> Response {
    let Some(lane) = gatekeeper.lane(request.uri().path(), request.uri().query()) else {
        return next.run(request).await;
    };
    // Held until the answer begins. What is streamed after that costs one buffer, however long it takes.
    let Ok(_place) = lane.in_flight.try_acquire() else {
        return gatekeeper.refuse(&format!(
            "{} requests are being worked on, which is as many as limits.requests_in_flight allows",
            lane.limits.requests_in_flight
        ));
    };
    let now = clock::steady();
    if !lane.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now) {
        return gatekeeper.refuse(&format!(
            "More than {} requests a second came, which is what limits.requests_per_second allows",
            lane.limits.requests_per_second
        ));
    }
    next.run(request).await
}

impl Gatekeeper {
    fn refuse(&self, why: &str) -> Response {
        self.refused.inc();
        let sentence = format!("{why}. Send the request again after {RETRY_AFTER_S} s.");
        let mut response = neap_faces::refuse(&Refusal::because(Code::TooManyRequests, sentence));
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        response
    }
}

/// Fills with time, up to the burst. Counted in thousandths of a request, so that no time is lost to rounding.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    room_milli: u64,
    have_milli: u64,
    filled: Option<Millis>,
}

impl Bucket {
    fn new(limits: Limits) -> Self {
        let room_milli = u64::from(limits.burst.unwrap_or(limits.requests_per_second)) * 1000;
        Self {
            per_second: limits.requests_per_second.into(),
            room_milli,
            have_milli: room_milli,
            filled: None,
        }
    }

    fn take(&mut self, now: Millis) -> bool {
        let passed_ms = self.filled.map_or(0, |filled| now.since(filled));
        self.filled = Some(now);
        self.have_milli =
            self.have_milli.saturating_add(passed_ms.saturating_mul(self.per_second)).min(self.room_milli);
        let enough = self.have_milli >= 1000;
        if enough {
            self.have_milli -= 1000;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(per_second: u32, burst: Option<u32>) -> Limits {
        Limits { requests_per_second: per_second, burst, requests_in_flight: 1, ..Limits::default() }
    }

    /// How many of the requests that came at these times were let in.
    fn let_in(limits: Limits, times: impl IntoIterator<Item = u64>) -> usize {
        let mut bucket = Bucket::new(limits);
        times.into_iter().filter(|at| bucket.take(Millis(*at))).count()
    }

    #[test]
    fn a_flood_gets_the_burst_and_then_the_rate() {
        // 2,000 a second for ten seconds.
        let flood = || (0..20_000).map(|n| n / 2);
        for (limits, expect) in
            [(limits(200, None), 2_199), (limits(200, Some(10)), 2_009), (limits(5_000, None), 20_000)]
        {
            let got = let_in(limits, flood());
            assert!(got.abs_diff(expect) <= 1, "{limits:?}: {got} and not {expect}");
        }
    }

    #[test]
    fn a_quiet_time_fills_up_to_the_burst_and_no_further() {
        let times = (0..5).map(|_| 0).chain((0..5).map(|_| 3_600_000));
        assert_eq!(let_in(limits(1, Some(3)), times), 6);
    }

    #[test]
    fn files_have_a_lane_apart_and_the_way_out_is_never_barred() {
        let keeper = Gatekeeper::new(limits(1, None), Arc::default());
        let lane = |path: &str, query: Option<&str>| keeper.lane(path, query).map(std::ptr::from_ref);
        assert_eq!(lane("/neap/v1/status", Some("api-version=1")), None);
        assert_eq!(lane("/neap/v1/shutdown", None), None);
        assert_eq!(lane("/metrics", None), None);
        assert_eq!(lane("/msi/token", Some("resource=x")), Some(&raw const keeper.tokens));
        assert_eq!(lane("/neapst1/azureml/x", Some("sv=1&sig=abc")), Some(&raw const keeper.files));
        assert_eq!(lane("/subscriptions", Some("design=1")), Some(&raw const keeper.interface));
    }
}
