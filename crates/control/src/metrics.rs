//! Everything the control plane counts. Held by the handle; read by whoever shows it.
//!
//! What can be read from the published state (nodes, queues) is not kept here: it is read when it is asked for.

use std::sync::{Arc, Mutex, PoisonError};

use neap_core::{ClusterId, Code, Millis, State};
use neap_ledger::Entry;

use crate::instruments::{COUNTS, Counter, Family, Gauge, Histogram, LONG, SHORT};
use crate::observe::Observer;
use crate::trace::Tracer;
use crate::{clock, limits};

#[derive(Debug)]
pub struct Metrics {
    pub commands_accepted: Counter,
    /// By code.
    pub commands_refused: Family<Code, Counter>,
    /// By kind.
    pub events: Family<&'static str, Counter>,
    pub commit_seconds: Histogram,
    /// Events in one commit.
    pub commit_events: Histogram,
    /// By what went wrong: `full`, `read_only`, `other`.
    pub commit_failures: Family<&'static str, Counter>,
    /// When and why the last commit failed; empty again after one that did not.
    ledger_closed: Mutex<Option<(Millis, String)>>,
    disk_full: Mutex<Option<Arc<str>>>,
    pub clusters: Family<ClusterId, ClusterMetrics>,
    /// By call: `create`, `remove`, `list`.
    pub provider: Family<&'static str, ProviderCall>,
    pub lease_renewals: Counter,
    /// Requests turned away because there were too many.
    pub requests_limited: Arc<Counter>,
    /// Connections that were refused, or displaced by a newer one.
    pub connections_limited: Arc<Counter>,
    pub agent_sessions: Gauge,
    pub agent_sessions_opened: Counter,
    pub invariant_checks: Counter,
    /// Violations found by the last check, by invariant.
    pub invariant_violations: Family<&'static str, Gauge>,
    pub spans_exported: Counter,
    /// By result: `delivered`, `failed`, `dropped`.
    pub alert_notices: Family<&'static str, Counter>,
    pub alerts_firing: Gauge,
    observer: Mutex<Observer>,
}

/// What is counted for one cluster for as long as it lives.
#[derive(Debug)]
pub struct ClusterMetrics {
    pub jobs_submitted: Counter,
    /// By final status.
    pub jobs_ended: Family<&'static str, Counter>,
    pub jobs_requeued: Counter,
    /// Of those, because their node was taken back.
    pub jobs_preempted: Counter,
    pub nodes_preempted: Counter,
    /// Failed through no fault of their own since the last that completed.
    pub system_failures: Gauge,
    pub target_cuts: Family<&'static str, Counter>,
    pub nodes_requested: Family<&'static str, Counter>,
    pub nodes_left: Family<&'static str, Counter>,
    pub boot_failures: Counter,
    pub nodes_silenced: Counter,
    /// From a job's submission to the moment its new node was ready.
    pub autoscale_delay: Histogram,
    pub queue_wait: Histogram,
    pub node_boot: Histogram,
    /// From a placement to the moment its process runs: code and inputs are fetched.
    pub attempt_staging: Histogram,
    pub attempt_run: Histogram,
}

#[derive(Debug)]
pub struct ProviderCall {
    pub seconds: Histogram,
    pub errors: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            commands_accepted: Counter::default(),
            commands_refused: Family::default(),
            events: Family::default(),
            commit_seconds: Histogram::new(&SHORT),
            commit_events: Histogram::new(&COUNTS),
            commit_failures: Family::default(),
            ledger_closed: Mutex::default(),
            disk_full: Mutex::default(),
            clusters: Family::default(),
            provider: Family::default(),
            lease_renewals: Counter::default(),
            requests_limited: Arc::default(),
            connections_limited: Arc::default(),
            agent_sessions: Gauge::default(),
            agent_sessions_opened: Counter::default(),
            invariant_checks: Counter::default(),
            invariant_violations: Family::default(),
            spans_exported: Counter::default(),
            alert_notices: Family::default(),
            alerts_firing: Gauge::default(),
            observer: Mutex::default(),
        }
    }
}

impl Default for ClusterMetrics {
    fn default() -> Self {
        Self {
            jobs_submitted: Counter::default(),
            jobs_ended: Family::default(),
            jobs_requeued: Counter::default(),
            jobs_preempted: Counter::default(),
            nodes_preempted: Counter::default(),
            system_failures: Gauge::default(),
            target_cuts: Family::default(),
            nodes_requested: Family::default(),
            nodes_left: Family::default(),
            boot_failures: Counter::default(),
            nodes_silenced: Counter::default(),
            autoscale_delay: Histogram::new(&LONG),
            queue_wait: Histogram::new(&LONG),
            node_boot: Histogram::new(&LONG),
            attempt_staging: Histogram::new(&LONG),
            attempt_run: Histogram::new(&LONG),
        }
    }
}

impl Default for ProviderCall {
    fn default() -> Self {
        Self { seconds: Histogram::new(&SHORT), errors: Counter::default() }
    }
}

impl Metrics {
    /// A batch is durable: `before` is the state it was decided on.
    pub fn committed(&self, before: &State, entries: &[Entry], took_us: u64, tracer: &Tracer) {
        self.commit_seconds.observe(took_us);
        self.commit_events.observe(entries.len() as u64);
        *self.ledger_closed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for entry in entries {
            self.events.inc(&entry.event.kind());
        }
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        observer.batch(self, before, entries, tracer);
    }

    /// A batch could not be written.
    pub fn commit_failed(&self, error: &neap_ledger::Error, now: Millis) {
        let word = match error {
            neap_ledger::Error::Full { .. } => "full",
            neap_ledger::Error::ReadOnly { .. } => "read_only",
            _ => "other",
        };
        self.commit_failures.inc(&word);
        *self.ledger_closed.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((now, error.to_string().trim_end_matches('.').to_owned()));
    }

    /// The log lives on its reserve, for this reason, or no longer does.
    pub fn disk_is_full(&self, why: Option<Arc<str>>) {
        *self.disk_full.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    pub fn decided(&self, refused: Option<Code>) {
        match refused {
            None => self.commands_accepted.inc(),
            Some(code) => self.commands_refused.inc(&code),
        }
    }

    /// Why the last commit failed, if it did. What is wanted is tried again every moment, so a failure that is long
    /// past means that nothing is wanted, not that nothing can be written.
    pub fn ledger_closed(&self) -> Option<String> {
        let full = self.disk_full.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(why) = full {
            return Some(why.to_string());
        }
        let closed = self.ledger_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |at: Millis| clock::steady().since(at) < limits::COMMIT_FAILURE_FRESH_MS;
        closed.as_ref().filter(|(at, _)| recent(*at)).map(|(_, why)| why.clone())
    }

    pub fn cluster(&self, id: ClusterId) -> Option<Arc<ClusterMetrics>> {
        self.clusters.of(&id, ClusterMetrics::default)
    }

    pub fn provider_called(&self, call: &'static str, took_us: u64, failed: bool) {
        if let Some(member) = self.provider.of(&call, ProviderCall::default) {
            member.seconds.observe(took_us);
            member.errors.add(u64::from(failed));
        }
    }

    /// What the last check of the invariants found; those that hold again are back at zero.
    pub fn invariants_checked(&self, violations: &[neap_core::invariants::Violation]) {
        self.invariant_checks.inc();
        for name in ["J1", "J2", "N1", "N2", "N3", "L1"] {
            if let Some(gauge) = self.invariant_violations.of(&name, Gauge::default) {
                gauge.set(violations.iter().filter(|v| v.invariant == name).count() as u64);
            }
        }
    }
}
