//! Where those who wait stand in their queue, and when they will start: one outlook for all of them, made when somebody asks
//! and kept for a moment. Nothing waits for it: whoever asks while it is made gets the last one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use neap_control::clock::Stopwatch;
use neap_core::cluster::Cluster;
use neap_core::forecast::{self, Asked, Assumed, Effort, End, Outlook, Range, Wanted};
use neap_core::limits::FORECAST_HORIZON_MS;
use neap_core::queue::Order;
use neap_core::{ClusterId, JobId, Millis, State};

use crate::app::App;
use crate::limits;

/// What can be said of a job that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// From 1; none beyond the places that are counted, and for one that waits for others of its family.
    pub place: Option<usize>,
    pub start: Range<Millis>,
    /// Why no start can be said, if so.
    pub unknown: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Estimates {
    last: Mutex<Option<Arc<Seen>>>,
    making: Mutex<()>,
}

/// All that was seen at one moment.
#[derive(Debug)]
struct Seen {
    made: Millis,
    /// Jobs from here on came later.
    next_job: JobId,
    places: BTreeMap<JobId, usize>,
    starts: BTreeMap<JobId, Range<Millis>>,
    /// Why those of a cluster that have no start have none.
    unknown: BTreeMap<ClusterId, String>,
}

impl Seen {
    fn is_fresh(&self, now: Millis, job: JobId) -> bool {
        let patience_ms =
            if job < self.next_job { limits::ESTIMATES_KEPT_MS } else { limits::ESTIMATES_APART_MS };
        now.since(self.made) < patience_ms
    }
}

/// None of one that does not wait, and of the past.
pub(crate) fn of(app: &App, id: JobId) -> Option<Estimate> {
    let state = app.state();
    let job = state.jobs.get(&id).filter(|job| job.attempt().is_none() && job.cancel.is_none())?;
    if app.control.is_past().is_some() {
        return None;
    }
    let estimates = &app.memory.estimates;
    let last = || estimates.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let now = app.now();
    let seen = match last().filter(|seen| seen.is_fresh(now, id)) {
        Some(seen) => seen,
        None => match estimates.making.try_lock() {
            Ok(_making) => {
                let seen = Arc::new(look(&state, now));
                *estimates.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&seen));
                seen
            }
            Err(_) => last()?,
        },
    };
    if id >= seen.next_job {
        return None;
    }
    let start = seen.starts.get(&id).copied().unwrap_or_default();
    let why = || seen.unknown.get(&job.cluster).cloned().unwrap_or_else(|| NOTHING_KNOWN.into());
    let unknown = start.p50.is_none().then(why);
    Some(Estimate { place: seen.places.get(&id).copied(), start, unknown })
}

const NOTHING_KNOWN: &str = "nothing is known yet";

fn look(state: &State, now: Millis) -> Seen {
    let mut places = BTreeMap::new();
    for cluster in state.clusters.values().filter(|cluster| !cluster.queue.is_empty()) {
        let order = Order::new(state, cluster).take(limits::PLACES_COUNTED_MAX);
        places.extend(order.enumerate().map(|(at, job)| (job.id, at + 1)));
    }
    let assumed = Assumed::default();
    let asked =
        Asked { assumed: &assumed, coming: &[], wanted: Wanted::Starts, watched: None, others_come: true };
    let effort = Effort { steps_max: limits::ESTIMATES_STEPS_MAX };
    let outlook = forecast::outlook(state, now, &asked, effort, &mut within(limits::ESTIMATES_US_MAX))
        .unwrap_or_default();
    let waiting = outlook.courses.iter().flat_map(|course| course.jobs.keys());
    let waiting: std::collections::BTreeSet<JobId> =
        waiting.copied().filter(|id| state.jobs.get(id).is_some_and(|job| job.attempt().is_none())).collect();
    let starts = waiting.into_iter().map(|id| (id, outlook.start(id))).collect();
    let why = |cluster: &Arc<Cluster>| (cluster.id, unknown(state, &assumed, cluster, &outlook));
    let unknown = state.clusters.values().filter(|cluster| has_waiting(cluster)).map(why).collect();
    Seen { made: now, next_job: state.next.job, places, starts, unknown }
}

fn has_waiting(cluster: &Cluster) -> bool {
    !cluster.queue.is_empty() || !cluster.waiting.is_empty()
}

/// Until so much time is over.
pub(crate) fn within(us_max: u64) -> impl FnMut() -> bool {
    let watch = Stopwatch::start();
    move || watch.elapsed_us() < us_max
}

/// How far a forecast looks.
pub(crate) const fn days() -> u64 {
    FORECAST_HORIZON_MS / (24 * 3600 * 1000)
}

/// Why it cannot be said when somebody on a cluster starts.
pub(crate) fn unknown(state: &State, assumed: &Assumed, cluster: &Cluster, outlook: &Outlook) -> String {
    if outlook.end_reason() == End::Far {
        return format!("it is more than {} days ahead, and a forecast looks no further", days());
    }
    if outlook.end_reason() == End::Bound {
        return match outlook.looked_until() {
            Some(until) => format!("it is later than {}, and nobody looked further ahead", until.rfc3339()),
            None => "there was no time to look ahead".into(),
        };
    }
    let names: Vec<String> = forecast::unknown(state, assumed, cluster)
        .take(limits::UNKNOWN_JOBS_TOLD)
        .map(|job| format!("'{}'", job.name))
        .collect();
    if assumed.boot_ms.is_none() && state.history.boots(cluster.id).is_none() {
        return "how long a node takes to start is not known: none has started yet".into();
    }
    match names.as_slice() {
        [] => "as things stand it does not start: what is in its way does not end by itself".into(),
        names => format!(
            "how long {} will run is not known: no like job has ended yet, and there is no limits.timeout",
            names.join(", ")
        ),
    }
}
