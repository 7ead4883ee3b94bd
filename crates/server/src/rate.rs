//! How many requests the server takes: per second, and at the same time. Requests over a limit are refused before anything of
//! their body is read, so that a flood costs little and the memory of the server stays bounded.
//!
//! Each request goes through one lane, which is chosen by the credential that it has shown and the server has verified: the
//! interface for the owner, files for signed URLs and jobs' own tokens, tokens for the identity secret, control for the owner
//! who asks how the server is or ends it, and a narrow one for strangers. So neither strangers nor jobs can keep the owner or
//! the nodes waiting. No route is exempt. Agents' own connections do not come this way.
//!
//! Nothing is decided here about clusters and jobs, and nothing is queued: a refused client tries again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use futures_util::StreamExt;
use neap_control::clock;
use neap_control::instruments::Counter;
use neap_core::{Code, Millis, Refusal};
use neap_faces::{App, Standing};
use tokio::sync::Semaphore;

use crate::config::Limits;
use crate::limits::{
    ATTEMPT_REQUESTS_MAX, CONTROL_REQUESTS_IN_FLIGHT, CONTROL_REQUESTS_PER_SECOND, STRANGER_BODY,
    STRANGER_BODY_BYTES_MAX,
};
use crate::paced::{Budget, Fate, Paced};
use crate::visitors::{Party, Visit};

const RETRY_AFTER_S: &str = "1";
/// How the owner asks how the server is, and how they end it: not through the lane of the interface, so that both work when
/// that is full.
const CONTROL: [&str; 3] = ["/neap/v1/status", "/neap/v1/shutdown", "/metrics"];

/// Whether a request with this head has shown a credential.
type Judge = Arc<dyn Fn(&axum::http::request::Parts) -> Standing + Send + Sync>;

pub struct Gatekeeper {
    judge: Judge,
    interface: Lane,
    files: Lane,
    tokens: Lane,
    control: Lane,
    strangers: Lane,
    refused: Arc<Counter>,
}

impl std::fmt::Debug for Gatekeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gatekeeper").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Lane {
    bucket: Mutex<Bucket>,
    in_flight: Semaphore,
    in_flight_max: u32,
    per_second: u32,
    /// What to raise in the configuration where the limits are too low.
    keys: Keys,
    bodies: Arc<Budget>,
    /// Requests that are worked on, by the credential of a job.
    shares: Mutex<BTreeMap<u64, u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Keys {
    per_second: &'static str,
    in_flight: &'static str,
}

impl Gatekeeper {
    /// `refused` counts what is turned away.
    pub fn new(limits: Limits, app: App, refused: Arc<Counter>) -> Arc<Self> {
        Arc::new(Self::judging(limits, Arc::new(move |head| neap_faces::standing(&app, head)), refused))
    }

    fn judging(limits: Limits, judge: Judge, refused: Arc<Counter>) -> Self {
        let usual = Keys {
            per_second: "which is what limits.requests_per_second allows",
            in_flight: "which is as many as limits.requests_in_flight allows",
        };
        let stated = Keys {
            per_second: "which is what this server takes of status, shutdown and metrics",
            in_flight: "which is as many as this server takes of status, shutdown and metrics",
        };
        let narrow = Keys {
            per_second: "which is what limits.unauthenticated_requests_per_second allows those without a credential",
            in_flight: "which is as many as limits.unauthenticated_requests_in_flight allows those without a credential",
        };
        let lane = || {
            let burst = limits.burst.unwrap_or(limits.requests_per_second);
            Lane::new(limits.requests_per_second, burst, limits.requests_in_flight, usual, limits)
        };
        let (strangers, at_once) =
            (limits.unauthenticated_requests_per_second, limits.unauthenticated_requests_in_flight);
        let control = CONTROL_REQUESTS_PER_SECOND;
        Self {
            judge,
            interface: lane(),
            files: lane(),
            tokens: lane(),
            control: Lane::new(control, control, CONTROL_REQUESTS_IN_FLIGHT, stated, limits),
            strangers: Lane::new(strangers, strangers, at_once, narrow, limits),
            refused,
        }
    }

    /// The same router, behind the limits.
    pub fn guard(self: Arc<Self>, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self, pass))
    }

    fn lane(&self, standing: Standing, path: &str) -> &Lane {
        match standing {
            Standing::Stranger => &self.strangers,
            Standing::Owner if CONTROL.contains(&path) => &self.control,
            Standing::Owner => &self.interface,
            Standing::Secret => &self.tokens,
            Standing::Attempt(_) => &self.files,
        }
    }
}

impl Lane {
    fn new(per_second: u32, burst: u32, in_flight: u32, keys: Keys, limits: Limits) -> Self {
        Self {
            bucket: Mutex::new(Bucket::new(per_second, burst)),
            in_flight: Semaphore::new(in_flight as usize),
            in_flight_max: in_flight,
            per_second,
            keys,
            bodies: Budget::new(limits.body_bytes_in_flight),
            shares: Mutex::default(),
        }
    }

    /// A place for a request with a job's credential: one job does not take them all.
    fn share(&self, standing: Standing) -> Option<Share<'_>> {
        let Standing::Attempt(credential) = standing else {
            return Some(Share { lane: self, credential: None });
        };
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let held = shares.entry(credential).or_default();
        if *held >= ATTEMPT_REQUESTS_MAX {
            return None;
        }
        *held += 1;
        Some(Share { lane: self, credential: Some(credential) })
    }
}

/// A request with a job's credential that is worked on.
struct Share<'a> {
    lane: &'a Lane,
    credential: Option<u64>,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let Some(credential) = self.credential else { return };
        let mut shares = self.lane.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = shares.get_mut(&credential) {
            *held -= 1;
            if *held == 0 {
                shares.remove(&credential);
            }
        }
    }
}

async fn pass(State(gatekeeper): State<Arc<Gatekeeper>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let standing = (gatekeeper.judge)(&head);
    // Not left in the request: what is streamed long after the answer began must not keep the connection counted.
    let visit = head.extensions.remove::<Arc<Visit>>();
    if let Some(visit) = &visit
        && !is_welcome(visit, standing)
    {
        return gatekeeper.refuse("There are too many connections, or requests on this one");
    }
    let lane = gatekeeper.lane(standing, head.uri.path());
    // Held until the answer begins. What is streamed after that costs one buffer, however long it takes.
    let Ok(_place) = lane.in_flight.try_acquire() else {
        return gatekeeper.refuse(&format!(
            "{} requests are being worked on, {}",
            lane.in_flight_max, lane.keys.in_flight
        ));
    };
    let Some(_share) = lane.share(standing) else {
        return gatekeeper.refuse(&format!(
            "{ATTEMPT_REQUESTS_MAX} requests with this credential are being worked on, which is as many as one may have"
        ));
    };
    let now = clock::steady();
    if !lane.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now) {
        return gatekeeper.refuse(&format!(
            "More than {} requests a second came, {}",
            lane.per_second, lane.keys.per_second
        ));
    }
    if standing == Standing::Stranger {
        let response = next.run(Request::from_parts(head, Body::empty())).await;
        tokio::spawn(drain(body));
        return response;
    }
    let budget = neap_faces::buffers_body(&head.uri).then(|| lane.bodies.clone());
    let fate = Fate::new(budget);
    let body = Body::new(Paced::new(body, fate.clone()));
    let response = next.run(Request::from_parts(head, body)).await;
    match fate.wrong() {
        Some(refusal) => gatekeeper.cut_off(&refusal),
        None => response,
    }
}

/// Whether the connection may go on, now that it has shown this.
fn is_welcome(visit: &Visit, standing: Standing) -> bool {
    match standing {
        Standing::Stranger => visit.may_ask_as_stranger(),
        Standing::Owner | Standing::Secret => visit.is_owners(),
        Standing::Attempt(credential) => visit.becomes(Party::Attempt(credential)),
    }
}

/// Reads a little of a body that nobody wants: a client that is cut off in the middle of sending does not get to read why.
async fn drain(body: Body) {
    let mut pieces = body.into_data_stream();
    let draining = async {
        let mut left = STRANGER_BODY_BYTES_MAX;
        while let Some(Ok(piece)) = pieces.next().await {
            match left.checked_sub(piece.len()) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(STRANGER_BODY, draining).await;
}

impl Gatekeeper {
    fn refuse(&self, why: &str) -> Response {
        let sentence = format!("{why}. Send the request again after {RETRY_AFTER_S} s.");
        self.answer(&Refusal::because(Code::TooManyRequests, sentence))
    }

    fn answer(&self, refusal: &Refusal) -> Response {
        self.refused.inc();
        let mut response = neap_faces::refuse(refusal);
        if refusal.code() == Code::TooManyRequests {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        response
    }

    /// The body did not come to its end: the connection is of no more use.
    fn cut_off(&self, refusal: &Refusal) -> Response {
        let mut response = self.answer(refusal);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
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
    fn new(per_second: u32, burst: u32) -> Self {
        let room_milli = u64::from(burst) * 1000;
        Self { per_second: per_second.into(), room_milli, have_milli: room_milli, filled: None }
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

    /// How many of the requests that came at these times were let in.
    fn let_in(per_second: u32, burst: u32, times: impl IntoIterator<Item = u64>) -> usize {
        let mut bucket = Bucket::new(per_second, burst);
        times.into_iter().filter(|at| bucket.take(Millis(*at))).count()
    }

    #[test]
    fn a_flood_gets_the_burst_and_then_the_rate() {
        // 2,000 a second for ten seconds.
        let flood = || (0..20_000).map(|n| n / 2);
        for (per_second, burst, expect) in [(200, 200, 2_199), (200, 10, 2_009), (5_000, 5_000, 20_000)] {
            let got = let_in(per_second, burst, flood());
            assert!(got.abs_diff(expect) <= 1, "{per_second}, {burst}: {got} and not {expect}");
        }
    }

    #[test]
    fn a_quiet_time_fills_up_to_the_burst_and_no_further() {
        let times = (0..5).map(|_| 0).chain((0..5).map(|_| 3_600_000));
        assert_eq!(let_in(1, 3, times), 6);
    }

    fn keeper(standing: Standing, limits: Limits) -> Arc<Gatekeeper> {
        Arc::new(Gatekeeper::judging(limits, Arc::new(move |_| standing), Arc::default()))
    }

    #[test]
    fn a_lane_is_chosen_by_the_credential_and_no_path_is_exempt() {
        let keeper = keeper(Standing::Stranger, Limits::default());
        for (standing, path, expect) in [
            (Standing::Stranger, "/neap/v1/status", &keeper.strangers),
            (Standing::Stranger, "/metrics", &keeper.strangers),
            (Standing::Stranger, "/msi/token", &keeper.strangers),
            (Standing::Stranger, "/neapst1/azureml/x", &keeper.strangers),
            (Standing::Owner, "/neap/v1/status", &keeper.control),
            (Standing::Owner, "/neap/v1/shutdown", &keeper.control),
            (Standing::Owner, "/metrics", &keeper.control),
            (Standing::Owner, "/subscriptions", &keeper.interface),
            (Standing::Secret, "/msi/token", &keeper.tokens),
            (Standing::Attempt(1), "/neapst1/azureml/x", &keeper.files),
            (Standing::Attempt(1), "/neap/v1/status", &keeper.files),
        ] {
            assert!(std::ptr::eq(keeper.lane(standing, path), expect), "{standing:?} {path}");
        }
    }

    #[test]
    fn one_credential_of_a_job_does_not_take_every_place() {
        let keeper = keeper(Standing::Stranger, Limits::default());
        let lane = &keeper.files;
        let held: Vec<_> =
            (0..ATTEMPT_REQUESTS_MAX).map(|_| lane.share(Standing::Attempt(1)).unwrap()).collect();
        assert!(lane.share(Standing::Attempt(1)).is_none());
        assert!(lane.share(Standing::Attempt(2)).is_some());
        drop(held);
        assert!(lane.shares.lock().unwrap().is_empty());
        assert!(lane.share(Standing::Attempt(1)).is_some());
    }

    /// What comes of a request with this body, for a handler that answers with the length of what it read.
    async fn ask(keeper: &Arc<Gatekeeper>, body: Body) -> (u16, String) {
        use tower::ServiceExt;
        let handler = async |request: Request| {
            let read = axum::body::to_bytes(request.into_body(), 1 << 20).await;
            read.map_or_else(|_| "broken".into(), |body| body.len().to_string())
        };
        let router = keeper.clone().guard(Router::new().fallback(handler));
        let request = Request::builder().uri("/subscriptions").body(body).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let text = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_strangers_body_is_not_waited_for_and_an_owners_not_for_ever() {
        let never = || Body::from_stream(futures_util::stream::pending::<Result<String, std::io::Error>>());
        let strangers = keeper(Standing::Stranger, Limits::default());
        assert_eq!(ask(&strangers, Body::from("a body")).await, (200, "0".into()));
        assert_eq!(ask(&strangers, never()).await, (200, "0".into()));
        let owners = keeper(Standing::Owner, Limits::default());
        assert_eq!(ask(&owners, Body::from("a body")).await, (200, "6".into()));
        let (status, text) = ask(&owners, never()).await;
        assert_eq!(status, 408, "{text}");
        assert!(text.contains("RequestTimeout"), "{text}");
        let small = keeper(Standing::Owner, Limits { body_bytes_in_flight: 5, ..Limits::default() });
        let (status, text) = ask(&small, Body::from("a body")).await;
        assert!(status == 429 && text.contains("limits.body_bytes_in_flight"), "{status} {text}");
    }

    #[tokio::test]
    async fn strangers_are_refused_beyond_their_own_limits() {
        let limits = Limits { unauthenticated_requests_per_second: 2, ..Limits::default() };
        let keeper = keeper(Standing::Stranger, limits);
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(ask(&keeper, Body::empty()).await.0);
        }
        assert_eq!(statuses[..2], [200, 200]);
        assert!(statuses.contains(&429), "{statuses:?}");
    }
}
