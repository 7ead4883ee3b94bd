//! The promises of the design, watched in the world: what no single state and no single process can see.

use std::collections::{BTreeMap, BTreeSet};

use neap_control::leases::Due;
use neap_core::cluster::QueueKey;
use neap_core::invariants::{self, History, Violation};
use neap_core::job::JobState;
use neap_core::{Event, JobId, NodeId, State};
use neap_protocol::AttemptRef;

use crate::nodes::Instance;
use crate::world::{InstanceId, World};

/// A node that nobody knows is removed within this, counted while a server serves.
const UNKNOWN_MS_MAX: u64 = 400_000;
/// Published states between two full scans.
const SCAN_EVERY: u64 = 16;
/// After the lease, an agent's join patience and a margin for what it does last, nothing of a forsaken node runs.
pub(crate) const FORSAKEN_MS_MAX: u64 = 20_000 + 120_000 + 45_000;
/// Calm world: everything comes to rest within this.
pub(crate) const REST_MS_MAX: u64 = 900_000;

#[derive(Debug, Default)]
pub(crate) struct Checks {
    history: History,
    /// Jobs whose submit was answered with yes.
    pub acknowledged: BTreeSet<JobId>,
    names: BTreeMap<std::sync::Arc<str>, JobId>,
    /// What was asked for at submission.
    priorities: BTreeMap<JobId, u8>,
    ended: BTreeSet<u64>,
    /// When each node last had work, or became ready.
    used_at: BTreeMap<NodeId, neap_core::Millis>,
    running: BTreeMap<u64, Vec<(InstanceId, AttemptRef)>>,
    unknown_since: BTreeMap<InstanceId, (u64, u64)>,
    published: u64,
}

fn broken(out: &mut Vec<Violation>, invariant: &'static str, what: String) {
    out.push(Violation { invariant, what });
}

impl Checks {
    /// One durable event, the state before it and the state after it.
    pub fn event(
        &mut self,
        _now: u64,
        event: &Event,
        before: &State,
        after: &State,
        out: &mut Vec<Violation>,
    ) {
        out.extend(self.history.observe(event, after));
        match event {
            Event::JobSubmitted(e) => {
                if let Some(other) = self.names.insert(e.name.clone(), e.id) {
                    broken(
                        out,
                        "J1",
                        format!("the name '{}' was given to jobs {other} and {}", e.name, e.id),
                    );
                }
                self.priorities.insert(e.id, e.priority);
            }
            Event::JobPlaced(e) => {
                self.used_at.insert(e.node, after.now);
                self.placed_in_order(e.id, before, out);
            }
            Event::NodeReady(e) => {
                self.used_at.insert(e.id, after.now);
            }
            Event::JobEnded(e) => {
                self.ended.insert(e.id.0);
                let current = before.jobs.get(&e.id).and_then(|job| job.attempt());
                if let Some(attempt) = current {
                    self.used_at.insert(attempt.node, after.now);
                }
                if e.attempt.is_some() && e.attempt != current.map(|a| a.number) {
                    let current = current.map(|a| a.number);
                    broken(
                        out,
                        "J3",
                        format!("job {} ended by attempt {:?}, current {current:?}", e.id, e.attempt),
                    );
                }
            }
            Event::JobRequeued(e) => {
                let current = before.jobs.get(&e.id).and_then(|job| job.attempt());
                if let Some(attempt) = current {
                    self.used_at.insert(attempt.node, after.now);
                }
                if current.map(|a| a.number) != Some(e.attempt) {
                    broken(
                        out,
                        "J2",
                        format!("job {} went back by attempt {}, not its own", e.id, e.attempt),
                    );
                }
            }
            Event::NodeLeaving(e) => self.leaves_for_a_reason(e.id, before, after, out),
            _ => {}
        }
    }

    /// Strictly in queue order, by what was asked for at submission.
    fn placed_in_order(&self, id: JobId, before: &State, out: &mut Vec<Violation>) {
        let Some(job) = before.jobs.get(&id) else { return };
        let key = |id: JobId| QueueKey {
            behind: u8::MAX - self.priorities.get(&id).copied().unwrap_or_default(),
            job: id,
        };
        let waiting = before
            .jobs
            .values()
            .filter(|other| other.cluster == job.cluster && matches!(other.state, JobState::Queued { .. }));
        if let Some(first) = waiting.map(|other| key(other.id)).min()
            && first != key(id)
        {
            broken(out, "J1", format!("job {id} was placed before job {}, which was ahead of it", first.job));
        }
    }

    /// N2: a busy node is not taken for lack of work, nor an idle one before its time.
    fn leaves_for_a_reason(&self, id: NodeId, before: &State, after: &State, out: &mut Vec<Violation>) {
        let Some(node) = before.nodes.get(&id) else { return };
        let why = after.nodes.get(&id).map(|n| n.reason.clone()).unwrap_or_default();
        let idle = why.starts_with("idle for");
        if (idle || why.starts_with("max_instances")) && !node.attempts.is_empty() {
            broken(out, "N2", format!("node {id} was taken away while busy: {why}"));
        }
        let patience = before.clusters.get(&node.cluster).map_or(0, |c| c.scale.idle_ms);
        let used = self.used_at.get(&id).copied().unwrap_or_default();
        // One that is leaving already is only asked for again.
        if idle && node.is_live() && after.now.since(used) < patience && node.attempts.is_empty() {
            broken(
                out,
                "N2",
                format!(
                    "node {id} left as '{why}', {} ms after its work; {patience} were due",
                    after.now.since(used)
                ),
            );
        }
    }

    /// J2: one process of a job at a time, and none after its end was accepted.
    pub fn process_starts(&mut self, _now: u64, instance: InstanceId, attempt: AttemptRef) -> Vec<Violation> {
        let mut out = Vec::new();
        if self.ended.contains(&attempt.job) {
            broken(&mut out, "J2", format!("attempt {attempt} started after job {} had ended", attempt.job));
        }
        let running = self.running.entry(attempt.job).or_default();
        if let Some((other, which)) = running.first() {
            broken(
                &mut out,
                "J2",
                format!("attempt {attempt} started on m-{instance} while {which} ran on m-{other}"),
            );
        }
        running.push((instance, attempt));
        out
    }

    pub fn process_stops(&mut self, instance: InstanceId, attempt: AttemptRef) {
        if let Some(running) = self.running.get_mut(&attempt.job) {
            running.retain(|which| *which != (instance, attempt));
        }
    }

    /// J1: what was acknowledged is in the log, and is there or has ended.
    pub fn jobs(&self, durable: &State) -> Vec<Violation> {
        let mut out = self.history.against(durable);
        for id in &self.acknowledged {
            if !self.priorities.contains_key(id) {
                broken(&mut out, "J1", format!("job {id} was acknowledged and is not in the log"));
            }
        }
        out
    }
}

impl World {
    pub fn report_all(&mut self, found: Vec<Violation>) {
        for violation in found {
            self.broken(violation.invariant, violation.what);
        }
    }

    /// After a commit: every so often everything is looked at.
    pub fn check_published(&mut self) {
        self.checks.published += 1;
        if self.checks.published.is_multiple_of(SCAN_EVERY) {
            self.scan();
        }
    }

    pub fn scan(&mut self) {
        let Some(server) = &self.server else { return };
        let state = server.machine.state();
        let mut found = invariants::check(state);
        found.extend(self.checks.jobs(&self.disk.shadow));
        if *state != self.disk.shadow {
            broken(&mut found, "A1", "the published state is not the one that the log gives".into());
        }
        self.report_all(found);
    }

    /// J2: when a lease is over at the server, nothing runs under it any more; only then may another attempt start.
    pub fn check_leases_over(&mut self, due: &[Due]) {
        for due in due {
            let Due::LeaseEnded(node) = due else { continue };
            let late = self.instances.values().filter(|i| i.node == *node).find_map(|i| i.running().next());
            if let Some(attempt) = late {
                self.broken(
                    "J2",
                    format!("the lease of n-{node} ended and attempt {attempt} still runs on it"),
                );
            }
        }
    }

    /// N1, and what must be so when all is over.
    pub fn audit(&mut self) {
        self.remember_list();
        let (now, epoch) = (self.now, self.epoch);
        let found = self.checks.jobs(&self.disk.shadow);
        self.report_all(found);
        let serving = self.server.as_ref().is_some_and(|server| server.serving);
        let mut lost = None;
        for (id, instance) in &self.instances {
            if !serving || self.disk.shadow.nodes.contains_key(&instance.node) {
                self.checks.unknown_since.remove(id);
                continue;
            }
            let (since, at_epoch) = *self.checks.unknown_since.entry(*id).or_insert((now, epoch));
            if at_epoch != epoch {
                self.checks.unknown_since.insert(*id, (now, epoch));
            } else if now - since > UNKNOWN_MS_MAX {
                lost = Some((*id, instance.node));
            }
        }
        if let Some((id, node)) = lost {
            self.broken("N1", format!("m-{id} (n-{node}) is known to nobody and still there"));
        }
    }

    /// Nothing waits, nothing runs, nobody is there who should not be.
    pub fn is_at_rest(&self) -> Result<(), String> {
        let Some(server) = self.server.as_ref().filter(|s| s.serving) else {
            return Err("no server serves".into());
        };
        let state = server.machine.state();
        if let Some(job) = state.jobs.values().next() {
            return Err(format!("job {} is {:?}, cancel {:?}", job.id, job.state, job.cancel));
        }
        for cluster in state.clusters.values() {
            let idle = u32::try_from(cluster.idle.len()).unwrap_or(u32::MAX);
            if cluster.is_deleting() || cluster.live != cluster.scale.min || idle != cluster.live {
                return Err(format!(
                    "cluster {} has {} live and {idle} idle nodes, min {}, deleting {}",
                    cluster.id,
                    cluster.live,
                    cluster.scale.min,
                    cluster.is_deleting()
                ));
            }
        }
        if let Some(node) = state.nodes.values().find(|node| !node.is_idle() || node.silent) {
            return Err(format!(
                "node {} is {} ({}), silent {}",
                node.id,
                node.word(),
                node.reason,
                node.silent
            ));
        }
        for (id, instance) in &self.instances {
            if !state.nodes.contains_key(&instance.node) {
                return Err(format!("m-{id} (n-{}) is there and nobody knows it", instance.node));
            }
            if let Some(attempt) = instance.running().next() {
                return Err(format!("m-{id} still runs {attempt}"));
            }
        }
        Ok(())
    }

    /// N3: without a control plane, attempts and agents end by themselves.
    pub fn check_forsaken(&mut self) {
        let left: Vec<String> = self
            .instances
            .iter()
            .filter_map(|(id, instance)| {
                if let Some(attempt) = instance.running().next() {
                    return Some(format!("m-{id} still runs {attempt}"));
                }
                (Instance::agent_lives(instance) && !instance.is_zombie())
                    .then(|| format!("the agent of m-{id} still lives"))
            })
            .collect();
        if let Some(what) = left.into_iter().next() {
            self.broken("N3", what);
        }
    }
}
