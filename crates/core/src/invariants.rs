//! The promises, one function each, under the names DESIGN gives them. Used by tests, simulator, `neap verify`
//! and metrics.
//!
//! Those about one state take a [`State`]; those about a course of events are watched by a [`History`].

mod books;
mod governance;
mod money;
mod tiers;

pub use books::Books;
pub use governance::q1_usage_is_counted;
pub use money::{b1_leases_are_reserved, is_told_later};
pub use tiers::n1_parts_are_counted;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use self::governance::Grants;
use self::money::Granted;
use crate::apply::{family_timer, job_timer, lease_timer, node_timer, queue_key};
use crate::cluster::Cluster;
use crate::event::Event;
use crate::explain;
use crate::ids::JobId;
use crate::job::{Cause, JobState};
use crate::location::Given;
use crate::node::{Node, NodeState};
use crate::plan;
use crate::queue;
use crate::state::{State, Timer};
use crate::window;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Every invariant of a published state.
pub fn check(state: &State) -> Vec<Violation> {
    let mut out = check_unplanned(state);
    j2_no_attempt_is_nowhere(state, &mut out);
    n2_counts_stay_in_bounds(state, &mut out);
    w1_windows_hold(state, &mut out);
    out
}

/// Those that hold after every single event, also in the middle of a batch.
pub fn check_unplanned(state: &State) -> Vec<Violation> {
    let mut out = Vec::new();
    j1_no_job_is_lost(state, &mut out);
    j1_families_are_whole(state, &mut out);
    j2_one_attempt_at_a_time(state, &mut out);
    n1_every_node_is_known(state, &mut out);
    n1_parts_are_counted(state, &mut out);
    n3_leases_end(state, &mut out);
    q1_usage_is_counted(state, &mut out);
    b1_leases_are_reserved(state, &mut out);
    s1_schedules_are_whole(state, &mut out);
    w1_old_nodes_are_known(state, &mut out);
    l1_nothing_is_stuck(state, &mut out);
    l1_no_job_is_tried_for_ever(state, &mut out);
    out
}

fn broken(out: &mut Vec<Violation>, invariant: &'static str, what: String) {
    out.push(Violation { invariant, what });
}

/// J1: a job that has not ended waits in its cluster's queue or has an attempt, and its name leads to it.
pub fn j1_no_job_is_lost(state: &State, out: &mut Vec<Violation>) {
    for job in state.jobs.values() {
        let Some(cluster) = state.clusters.get(&job.cluster) else {
            broken(out, "J1", format!("job {} is on cluster {}, which is not there", job.id, job.cluster));
            continue;
        };
        let queued = cluster.queue.contains(&queue_key(job));
        let active = cluster.active.contains(&job.id);
        let waiting = cluster.waiting.contains(&job.id);
        let (should_wait, should_queue) = match job.state {
            JobState::Waiting => (true, false),
            JobState::Queued { .. } => (false, true),
            JobState::Active(_) => (false, false),
        };
        if queued != should_queue || waiting != should_wait || active == (should_queue || should_wait) {
            broken(
                out,
                "J1",
                format!("job {} is {:?} but queued={queued} active={active}", job.id, job.state),
            );
        }
        if state.job_named(job.workspace, &job.name) != Some(job.id) {
            broken(out, "J1", format!("the name '{}' does not lead to job {}", job.name, job.id));
        }
    }
    for cluster in state.clusters.values() {
        if queue::lanes_of(cluster) != cluster.queue.len() {
            broken(out, "J1", format!("cluster {} has not as many in its lanes as wait", cluster.id));
        }
        let listed = cluster.queue.iter().map(|key| key.job);
        let listed = listed.chain(cluster.waiting.iter().copied()).chain(cluster.active.iter().copied());
        for id in listed {
            if !state.jobs.contains_key(&id) {
                broken(out, "J1", format!("cluster {} lists job {id}, which is not there", cluster.id));
            }
        }
    }
}

/// J1, of families: each knows its members and they know it, and whoever waits does so for somebody who is there.
pub fn j1_families_are_whole(state: &State, out: &mut Vec<Violation>) {
    let mut members = BTreeSet::new();
    let jobs = state.jobs.values().map(|job| (job.id, job.family));
    for (id, family) in jobs.chain(state.families.values().map(|family| (family.id, family.family))) {
        let Some(family) = family else { continue };
        members.insert((family, id));
        if !state.families.get(&family).is_some_and(|family| family.members.contains(&id)) {
            broken(out, "J1", format!("job {id} is part of family {family}, which does not list it"));
        }
    }
    for family in state.families.values() {
        for member in family.members.iter().filter(|member| !members.contains(&(family.id, **member))) {
            broken(out, "J1", format!("family {} lists job {member}, which is not there", family.id));
        }
        if state.job_named(family.workspace, &family.name) != Some(family.id) {
            broken(out, "J1", format!("the name '{}' does not lead to family {}", family.name, family.id));
        }
    }
    for job in state.jobs.values().filter(|job| job.state != JobState::Waiting) {
        if state.waits.contains_key(&job.id) {
            broken(out, "J1", format!("job {} has begun and still waits", job.id));
        }
        if job.family.is_some_and(|family| state.waits.contains_key(&family)) {
            broken(out, "J1", format!("job {} has begun and its family waits", job.id));
        }
    }
    let waiting = state.jobs.values().filter(|job| job.state == JobState::Waiting).map(|job| job.id);
    for id in waiting.filter(|id| !state.waits.contains_key(id)) {
        broken(out, "J1", format!("job {id} waits for nothing"));
    }
    for (id, wait) in &state.waits {
        if !state.is_alive(*id) {
            broken(out, "J1", format!("job {id} waits and is not there"));
        }
        for other in &wait.on {
            if !state.is_alive(*other) || !state.awaited.get(other).is_some_and(|who| who.contains(id)) {
                broken(
                    out,
                    "J1",
                    format!("job {id} waits for {other}, which is not there or knows nothing of it"),
                );
            }
        }
    }
    for (id, waiters) in &state.awaited {
        if waiters.iter().any(|waiter| !state.waits.get(waiter).is_some_and(|wait| wait.on.contains(id))) {
            broken(out, "J1", format!("somebody is listed as waiting for job {id} who does not"));
        }
    }
}

/// J2: an active job has exactly one attempt, its latest, on the nodes that it was placed on and no other.
pub fn j2_one_attempt_at_a_time(state: &State, out: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for node in state.nodes.values() {
        for attempt in &node.attempts {
            if !seen.insert((attempt.job, node.id)) {
                broken(out, "J2", format!("job {} is on node {} twice", attempt.job, node.id));
            }
            let current = state.jobs.get(&attempt.job).and_then(|job| job.attempt());
            if !current.is_some_and(|a| a.number == attempt.number && a.phase_on(node.id).is_some()) {
                broken(out, "J2", format!("node {} runs {attempt}, which is not the job's attempt", node.id));
            }
        }
    }
    for job in state.jobs.values() {
        if let Some(attempt) = job.attempt() {
            if attempt.number != job.attempts_made {
                broken(
                    out,
                    "J2",
                    format!("job {} is at attempt {} of {}", job.id, attempt.number, job.attempts_made),
                );
            }
            for node in attempt.nodes_held().filter(|node| !seen.contains(&(job.id, *node))) {
                broken(out, "J2", format!("job {} is active on node {node}, which does not list it", job.id));
            }
            let ranks = attempt.nodes().count();
            if ranks != job.nodes as usize {
                broken(
                    out,
                    "J2",
                    format!("job {} runs on {ranks} nodes and asked for {}", job.id, job.nodes),
                );
            }
        }
    }
}

/// L1: no job was tried again more often than it may be, for any cause.
pub fn l1_no_job_is_tried_for_ever(state: &State, out: &mut Vec<Violation>) {
    for job in state.jobs.values() {
        for cause in Cause::ALL {
            let Some(most) = job.retries(cause).filter(|most| job.retried(cause) > *most) else { continue };
            let tried = job.retried(cause);
            broken(
                out,
                "L1",
                format!("job {} was tried again {tried} times for {cause:?}, at most {most}", job.id),
            );
        }
    }
}

/// J2: an attempt is on a node. Between the end of its last rank and what follows from that it is not; both are of one
/// batch.
pub fn j2_no_attempt_is_nowhere(state: &State, out: &mut Vec<Violation>) {
    for job in state.jobs.values() {
        if job.attempt().is_some_and(|attempt| attempt.nodes_held().next().is_none()) {
            broken(out, "J2", format!("job {} is active and on no node", job.id));
        }
    }
}

/// N1: clusters and nodes know each other, and what is counted is right.
pub fn n1_every_node_is_known(state: &State, out: &mut Vec<Violation>) {
    let mut provided = crate::units::Capacity::default();
    let mut given: imbl::OrdMap<Arc<str>, Given> = imbl::OrdMap::new();
    for node in state.nodes.values() {
        provided = provided.plus(node.nominal);
        if let Some(cluster) = state.clusters.get(&node.cluster) {
            let there = given.entry(cluster.location.clone()).or_default();
            there.nodes += 1;
            there.cpus_milli += u64::from(node.nominal.cpus_milli);
        }
        if !state.clusters.get(&node.cluster).is_some_and(|c| c.nodes.contains(&node.id)) {
            broken(
                out,
                "N1",
                format!("node {} belongs to cluster {}, which does not list it", node.id, node.cluster),
            );
        }
        if !node.exclusive && !node.nominal.fits(node.used) {
            broken(out, "N1", format!("node {} uses {} of {}", node.id, node.used, node.nominal));
        }
        if node.exclusive && node.attempts.len() != 1 {
            broken(out, "N1", format!("node {} is held whole by {} attempts", node.id, node.attempts.len()));
        }
    }
    if provided != state.provided {
        broken(out, "N1", format!("nodes hold {provided} and {} is counted", state.provided));
    }
    if given != state.given {
        broken(out, "N1", format!("nodes take {given:?} of locations and {:?} is counted", state.given));
    }
    for cluster in state.clusters.values() {
        let nodes: Vec<_> = state.nodes_of(cluster).collect();
        if nodes.len() != cluster.nodes.len() {
            broken(out, "N1", format!("cluster {} lists nodes that are not there", cluster.id));
        }
        let live = nodes.iter().filter(|n| n.is_live()).count() as u32;
        let busy = nodes.iter().filter(|n| n.is_live() && !n.attempts.is_empty()).count() as u32;
        let serves_nobody =
            |n: &&&Arc<Node>| n.is_live() && n.attempts.is_empty() && (n.silent || n.cordon.is_some());
        let unheard = nodes.iter().filter(serves_nobody).count() as u32;
        if (live, busy, unheard) != (cluster.live, cluster.busy, cluster.unheard) {
            broken(
                out,
                "N1",
                format!("cluster {} counts wrong: live {live}, busy {busy}, unheard {unheard}", cluster.id),
            );
        }
        let done = nodes.iter().filter(|n| n.is_done()).count();
        if done != cluster.done.len() {
            let listed = cluster.done.len();
            broken(out, "N1", format!("cluster {} is done with {done} nodes and lists {listed}", cluster.id));
        }
        let idle = nodes.iter().filter(|n| n.is_idle() && n.is_placeable()).count();
        if idle != cluster.idle.len() {
            broken(
                out,
                "N1",
                format!("cluster {} has {idle} idle nodes and lists {}", cluster.id, cluster.idle.len()),
            );
        }
    }
}

/// N2: the target lies between min and max, or a cut says why not.
///
/// Promised of clusters that were planned since they changed. A plan is bounded and may leave a cluster for the next one,
/// and no state says so; so where the counts are out of bounds, what the planner makes of the cluster must not be.
pub fn n2_counts_stay_in_bounds(state: &State, out: &mut Vec<Violation>) {
    for cluster in state.clusters.values().filter(|cluster| out_of_bounds(cluster).is_some()) {
        let planned = plan::settled(state, cluster.id);
        if let Some(what) = planned.clusters.get(&cluster.id).and_then(|cluster| out_of_bounds(cluster)) {
            broken(out, "N2", what);
        }
    }
}

fn out_of_bounds(cluster: &Cluster) -> Option<String> {
    let (id, target, max) = (cluster.id, cluster.target, cluster.scale.max);
    if cluster.is_deleting() {
        None
    } else if target > max {
        Some(format!("cluster {id} has target {target} above max {max}"))
    } else if target < cluster.scale.min && cluster.cuts.is_empty() && cluster.unheard == 0 {
        Some(format!("cluster {id} has target {target} below min with no cut"))
    } else {
        None
    }
}

/// W1: minimum and maximum are those that the windows say, at the time of the last event.
///
/// Promised of clusters that were planned since, as N2 is.
pub fn w1_windows_hold(state: &State, out: &mut Vec<Violation>) {
    let wrong = |state: &State, cluster: &Cluster| {
        let (scale, _) = window::in_force(cluster.declared, &cluster.windows, state.now);
        (scale != cluster.scale && !cluster.is_deleting()).then_some(scale)
    };
    for cluster in state.clusters.values().filter(|cluster| wrong(state, cluster).is_some()) {
        let planned = plan::settled(state, cluster.id);
        let Some(after) = planned.clusters.get(&cluster.id) else { continue };
        if let Some(scale) = wrong(&planned, after) {
            broken(
                out,
                "W1",
                format!("cluster {} has {:?} and its windows say {scale:?}", after.id, after.scale),
            );
        }
    }
}

/// W1: what is to be replaced is what is of an older definition.
pub fn w1_old_nodes_are_known(state: &State, out: &mut Vec<Violation>) {
    for cluster in state.clusters.values() {
        let old = state.nodes_of(cluster).filter(|node| cluster.is_outdated(node)).map(|node| node.id);
        if !old.eq(cluster.old.iter().copied()) {
            broken(out, "W1", format!("cluster {} replaces {:?}", cluster.id, cluster.old));
        }
    }
}

/// N3: nodes can end themselves, because leases are finite and longer than silence and heartbeat.
pub fn n3_leases_end(state: &State, out: &mut Vec<Violation>) {
    let s = &state.settings;
    let pace = s.pace(state.nodes.len());
    if !(pace.heartbeat_ms > 0
        && pace.heartbeat_ms < pace.silence_ms
        && pace.silence_ms < s.lease_ttl_ms
        && s.lease_ttl_ms < u64::MAX / 4)
    {
        broken(
            out,
            "N3",
            format!(
                "heartbeat {} ms < silence {} ms < lease {} ms must hold",
                pace.heartbeat_ms, pace.silence_ms, s.lease_ttl_ms
            ),
        );
    }
}

/// S1: a schedule is found by its name, a due one is known as due, and what is switched off neither waits nor is due.
pub fn s1_schedules_are_whole(state: &State, out: &mut Vec<Violation>) {
    for schedule in state.schedules.values() {
        let id = schedule.id;
        if state.schedule(schedule.workspace, &schedule.name).map(|found| found.id) != Some(id) {
            broken(out, "S1", format!("the name '{}' does not lead to schedule {id}", schedule.name));
        }
        if !state.workspaces.contains_key(&schedule.workspace) {
            broken(
                out,
                "S1",
                format!("schedule {id} is in workspace {}, which is not there", schedule.workspace),
            );
        }
        if schedule.due.is_some() != state.schedules_due.contains(&id) {
            broken(out, "S1", format!("schedule {id} is due {:?} and not known so", schedule.due));
        }
        if !schedule.enabled && (schedule.due.is_some() || schedule.next.is_some()) {
            broken(out, "S1", format!("schedule {id} is switched off and would fire"));
        }
    }
    if state.schedule_names.len() != state.schedules.len() {
        broken(out, "S1", "a name leads to a schedule that is not there".into());
    }
    for id in state.schedules_due.iter().filter(|id| !state.schedules.contains_key(*id)) {
        broken(out, "S1", format!("schedule {id} is due and not there"));
    }
}

/// L1: everything that passes has a timer that says when, timers lead somewhere, and every wait has a reason.
pub fn l1_nothing_is_stuck(state: &State, out: &mut Vec<Violation>) {
    let mut wanted = BTreeSet::new();
    for node in state.nodes.values() {
        wanted.extend(node_timer(state, node).map(|at| (at, Timer::Node(node.id))));
        wanted.extend(lease_timer(node).map(|at| (at, Timer::Money(node.id))));
        if !matches!(node.state, NodeState::Ready) && node.state.deadline().is_none() {
            broken(out, "L1", format!("node {} is {} with no deadline", node.id, node.word()));
        }
    }
    for job in state.jobs.values() {
        wanted.extend(job_timer(job).map(|at| (at, Timer::Job(job.id))));
        if job.attempt().is_none() && explain::queue_reasons(state, job.id).is_empty() {
            broken(out, "L1", format!("job {} waits for no reason", job.id));
        }
    }
    for family in state.families.values() {
        wanted.extend(family_timer(family).map(|at| (at, Timer::Job(family.id))));
    }
    for cluster in state.clusters.values() {
        wanted.extend(cluster.boot.retry_at.map(|at| (at, Timer::Cluster(cluster.id))));
        wanted.extend(cluster.scheduled.next.map(|at| (at, Timer::Window(cluster.id))));
    }
    for schedule in state.schedules.values() {
        wanted.extend(schedule.timer().map(|at| (at, Timer::Schedule(schedule.id))));
    }
    for budget in state.budgets.values() {
        wanted.extend(budget.period_ends.map(|at| (at, Timer::Budget(budget.id))));
    }
    let promising: BTreeSet<_> =
        state.clusters.values().filter(|cluster| cluster.minds_room()).map(|cluster| cluster.id).collect();
    if !state.promising.iter().eq(promising.iter()) {
        broken(
            out,
            "L1",
            format!(
                "clusters {promising:?} mind how much room there is, and {:?} are known to",
                state.promising
            ),
        );
    }
    wanted.extend(state.draining.map(|at| (at, Timer::Draining)));
    let kept: BTreeSet<_> = state.timers.iter().copied().collect();
    for missing in wanted.difference(&kept) {
        broken(out, "L1", format!("the timer {missing:?} is missing"));
    }
    for stray in kept.difference(&wanted) {
        broken(out, "L1", format!("the timer {stray:?} leads nowhere"));
    }
}

/// Watches a course of events for what no single state shows.
#[derive(Clone, Debug, Default)]
pub struct History {
    submitted: BTreeSet<JobId>,
    ended: BTreeSet<JobId>,
    grants: Grants,
    granted: Granted,
}

impl History {
    /// Looks at one event and the state after it.
    pub fn observe(&mut self, event: &Event, after: &State) -> Vec<Violation> {
        let mut out = Vec::new();
        match event {
            Event::JobSubmitted(e) if !self.submitted.insert(e.id) => {
                broken(&mut out, "J1", format!("job {} was submitted twice", e.id));
            }
            Event::FamilyOpened(e) if !self.submitted.insert(e.id) => {
                broken(&mut out, "J1", format!("family {} was opened twice", e.id));
            }
            Event::JobReleased(e) => self.not_ended(e.id, "released", &mut out),
            Event::JobPlaced(e) => self.not_ended(e.id, "placed", &mut out),
            Event::AttemptStarted(e) => self.not_ended(e.id, "started", &mut out),
            Event::JobRequeued(e) => self.not_ended(e.id, "requeued", &mut out),
            Event::JobEnded(e) => {
                if !self.ended.insert(e.id) {
                    broken(&mut out, "J3", format!("job {} ended twice", e.id));
                }
                if !e.outcome.status.is_final() {
                    broken(&mut out, "J3", format!("job {} ended as {:?}", e.id, e.outcome.status));
                }
            }
            Event::NodeRequested(e) => {
                if let Some(cluster) = after.clusters.get(&e.cluster)
                    && cluster.live > cluster.scale.max
                {
                    broken(
                        &mut out,
                        "N2",
                        format!(
                            "the request of node {} makes {} of {}",
                            e.id, cluster.live, cluster.scale.max
                        ),
                    );
                }
            }
            Event::NodeLeaving(e) => {
                let why = after.nodes.get(&e.id).map(|n| n.reason.to_string()).unwrap_or_default();
                let busy = after.nodes.get(&e.id).is_some_and(|n| !n.attempts.is_empty());
                if busy && why.starts_with("idle") {
                    broken(&mut out, "N2", format!("node {} was taken away for idleness while busy", e.id));
                }
            }
            _ => {}
        }
        self.grants.observe(event, after, &mut out);
        tiers::observe(event, after, &mut out);
        self.granted.observe(event, after, &mut out);
        out
    }

    /// J1 and J3 over the whole course: each submitted job is either still there or ended, never neither or both.
    pub fn against(&self, state: &State) -> Vec<Violation> {
        let mut out = Vec::new();
        for id in &self.submitted {
            let (there, ended) = (state.is_alive(*id), self.ended.contains(id));
            if there == ended {
                broken(&mut out, "J1", format!("job {id}: still there {there}, ended {ended}"));
            }
        }
        out
    }

    fn not_ended(&self, id: JobId, what: &str, out: &mut Vec<Violation>) {
        if self.ended.contains(&id) {
            broken(out, "J2", format!("job {id} was {what} after it had ended"));
        }
    }
}
