//! The promises of the design, watched in the world: what no single state and no single process can see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use neap_control::leases::Due;
use neap_core::cluster::QueueKey;
use neap_core::family::FamilyKind;
use neap_core::invariants::{self, Books, History, Violation};
use neap_core::job::{Job, JobState, Need, Status};
use neap_core::node::{Node, NodeState};
use neap_core::plan::nodes_ever;
use neap_core::plan::{Dirty, plan};
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
    books: Books,
    /// Jobs whose submit was answered with yes.
    pub acknowledged: BTreeSet<JobId>,
    names: BTreeMap<Arc<str>, JobId>,
    /// What was asked for at submission.
    asked: BTreeMap<JobId, Asked>,
    /// What each job and family ended as.
    ended: BTreeMap<JobId, Status>,
    /// Members of each family that have not ended, and families of which one did not complete.
    members: BTreeMap<JobId, BTreeSet<JobId>>,
    spoilt: BTreeSet<JobId>,
    /// (job, attempt, rank)
    ranks_ended: BTreeSet<(JobId, u32, u32)>,
    /// When each node last had work, or became ready.
    used_at: BTreeMap<NodeId, neap_core::Millis>,
    running: BTreeMap<u64, Vec<(InstanceId, NodeId, AttemptRef)>>,
    unknown_since: BTreeMap<InstanceId, (u64, u64)>,
    published: u64,
}

#[derive(Debug)]
struct Asked {
    priority: u8,
    nodes: usize,
    family: Option<JobId>,
    after: Vec<JobId>,
    /// A family that is complete when its members are.
    of_steps: bool,
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
        out.extend(self.books.observe(before, after.now, event));
        match event {
            Event::JobSubmitted(e) => {
                let (priority, nodes) = (e.priority, e.nodes as usize);
                let asked =
                    Asked { priority, nodes, family: e.family, after: e.after.clone(), of_steps: false };
                self.asked_for(e.id, &e.name, asked, out);
            }
            Event::FamilyOpened(e) => {
                let of_steps = matches!(e.kind, FamilyKind::Steps { .. });
                let asked =
                    Asked { priority: 0, nodes: 0, family: e.family, after: e.after.clone(), of_steps };
                self.asked_for(e.id, &e.name, asked, out);
            }
            Event::JobReleased(e) => self.has_waited(e.id, "released", out),
            Event::JobPlaced(e) => {
                let nodes: Vec<NodeId> = std::iter::once(e.node).chain(e.others.iter().copied()).collect();
                self.used(nodes.iter().copied(), after);
                self.placed_in_order(e.id, before, out);
                self.placed_whole(e.id, &nodes, before, out);
                self.has_waited(e.id, "placed", out);
                self.is_wanted(e.id, before, out);
            }
            Event::RankEnded(e) => {
                self.used([e.node].into_iter(), after);
                if !self.ranks_ended.insert((e.id, e.attempt, e.rank)) {
                    broken(out, "J3", format!("rank {} of {}-{} ended twice", e.rank, e.id, e.attempt));
                }
            }
            Event::NodeReady(e) => {
                self.used_at.insert(e.id, after.now);
            }
            Event::JobEnded(e) => {
                let current = before.jobs.get(&e.id).and_then(|job| job.attempt());
                self.used(current.into_iter().flat_map(|attempt| attempt.nodes_held()), after);
                if e.attempt.is_some() && e.attempt != current.map(|a| a.number) {
                    let current = current.map(|a| a.number);
                    broken(
                        out,
                        "J3",
                        format!("job {} ended by attempt {:?}, current {current:?}", e.id, e.attempt),
                    );
                }
                self.nothing_runs(e.id, "ended", out);
                self.ends(e.id, e.outcome.status, out);
            }
            Event::JobRequeued(e) => {
                let current = before.jobs.get(&e.id).and_then(|job| job.attempt());
                self.used(current.into_iter().flat_map(|attempt| attempt.nodes_held()), after);
                if current.map(|a| a.number) != Some(e.attempt) {
                    broken(
                        out,
                        "J2",
                        format!("job {} went back by attempt {}, not its own", e.id, e.attempt),
                    );
                }
                self.nothing_runs(e.id, "went back", out);
            }
            Event::NodeLeaving(e) => self.leaves_for_a_reason(e.id, before, after, out),
            _ => {}
        }
    }

    /// In queue order, by what was asked for at submission. Whoever goes before somebody else must leave him what he
    /// waits for: he does not fit now, and will have his nodes although this one may never end.
    fn placed_in_order(&self, id: JobId, before: &State, out: &mut Vec<Violation>) {
        let Some(job) = before.jobs.get(&id) else { return };
        // Of a mixed cluster each part has an order of its own; the rules of the core say which.
        let cluster = before.clusters.get(&job.cluster).filter(|cluster| cluster.mix.is_none());
        let Some(cluster) = cluster else { return };
        let key = |id: JobId| QueueKey {
            behind: u8::MAX - self.asked.get(&id).map_or(0, |asked| asked.priority),
            job: id,
        };
        let waiting = before.jobs.values().filter(|other| {
            let startable = other.nodes <= cluster.scale.max
                && (other.nodes == 1 || other.nodes <= nodes_ever(before, cluster));
            // Among those of the same priority who comes first is a matter of what each has used.
            let comparable = other.owner == job.owner || key(other.id).behind < key(id).behind;
            other.cluster == job.cluster
                && matches!(other.state, JobState::Queued { .. })
                && startable
                && comparable
        });
        let Some(first) = waiting.min_by_key(|other| key(other.id)).filter(|first| key(first.id) < key(id))
        else {
            return;
        };
        let fits = match first.need {
            Need::Whole => cluster.idle.len() >= first.nodes as usize,
            Need::Share(share) => {
                let nodes = before.nodes_of(cluster);
                nodes.into_iter().any(|node| node.is_placeable() && node.free().fits(share))
            }
        };
        // Where somebody else's job is the first of all, that one's nodes are kept, and not everybody's.
        let mut queued = before
            .jobs
            .values()
            .filter(|other| other.cluster == job.cluster && matches!(other.state, JobState::Queued { .. }));
        let alone = queued.all(|other| other.owner == job.owner);
        // Whoever waits for money holds nobody up.
        let fits = fits && job.timeout_ms.is_none() && alone && before.budgets.is_empty();
        let endless = |node: &&Arc<Node>| {
            let mut jobs = node.attempts.iter().filter_map(|attempt| before.jobs.get(&attempt.job));
            let goes_on = |job: &Job| job.attempt().is_some_and(|attempt| attempt.stop.is_none());
            node.is_live() && jobs.any(|job| job.timeout_ms.is_none() && goes_on(job))
        };
        let held = before.nodes_of(cluster).filter(endless).count();
        let taken = if job.timeout_ms.is_none() && job.need == Need::Whole { job.nodes as usize } else { 0 };
        let delayed = first.need == Need::Whole
            && alone
            && before.budgets.is_empty()
            && taken > 0
            && (cluster.scale.max as usize).saturating_sub(held + taken) < first.nodes as usize;
        if fits || delayed {
            let how = if fits { "which fits" } else { "which will not have its nodes" };
            broken(out, "J1", format!("job {id} was placed before job {}, {how}", first.id));
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

    /// J2: a process is of the job's current attempt, on a node that the attempt was placed on, and alone there; and none
    /// starts after the job's end was accepted.
    pub fn process_starts(
        &mut self,
        instance: InstanceId,
        node: NodeId,
        attempt: AttemptRef,
        durable: &State,
    ) -> Vec<Violation> {
        let mut out = Vec::new();
        let job = JobId(attempt.job);
        if self.ended.contains_key(&job) {
            broken(&mut out, "J2", format!("attempt {attempt} started after job {job} had ended"));
        }
        let running = self.running.entry(attempt.job).or_default();
        let beside = |(_, at, which): &&(InstanceId, NodeId, AttemptRef)| *which != attempt || *at == node;
        if let Some((other, _, which)) = running.iter().find(beside) {
            broken(
                &mut out,
                "J2",
                format!("attempt {attempt} started on m-{instance} while {which} ran on m-{other}"),
            );
        }
        let current = durable.jobs.get(&job).and_then(|job| job.attempt());
        if !current.is_some_and(|a| a.number == attempt.attempt && a.phase_on(node).is_some()) {
            broken(&mut out, "J2", format!("attempt {attempt} started on n-{node} and is not to run there"));
        }
        running.push((instance, node, attempt));
        out
    }

    pub fn process_stops(&mut self, instance: InstanceId, attempt: AttemptRef) {
        if let Some(running) = self.running.get_mut(&attempt.job) {
            running.retain(|(at, _, which)| (*at, *which) != (instance, attempt));
        }
    }

    fn asked_for(&mut self, id: JobId, name: &Arc<str>, asked: Asked, out: &mut Vec<Violation>) {
        if let Some(other) = self.names.insert(name.clone(), id) {
            broken(out, "J1", format!("the name '{name}' was given to jobs {other} and {id}"));
        }
        if let Some(family) = asked.family {
            self.members.entry(family).or_default().insert(id);
        }
        self.asked.insert(id, asked);
    }

    fn used(&mut self, nodes: impl Iterator<Item = NodeId>, after: &State) {
        self.used_at.extend(nodes.map(|node| (node, after.now)));
    }

    /// The families that a job is in, the innermost first.
    fn families_of(&self, id: JobId) -> impl Iterator<Item = JobId> {
        let family = |id: &JobId| self.asked.get(id).and_then(|asked| asked.family);
        std::iter::successors(family(&id), move |id| family(id))
    }

    /// J1: whatever it waits for, and whatever the families around it wait for, has completed.
    fn has_waited(&self, id: JobId, what: &str, out: &mut Vec<Violation>) {
        for waiter in std::iter::once(id).chain(self.families_of(id)) {
            let after = self.asked.get(&waiter).map_or(&[][..], |asked| &asked.after);
            for other in after.iter().filter(|other| self.ended.get(other) != Some(&Status::Completed)) {
                let is = self.ended.get(other);
                broken(
                    out,
                    "J1",
                    format!("job {id} was {what}; {waiter} waits for {other}, which is {is:?}"),
                );
            }
        }
    }

    /// J1: nothing new starts in a family that is ending.
    fn is_wanted(&self, id: JobId, before: &State, out: &mut Vec<Violation>) {
        let ending = |family: &JobId| before.families.get(family).is_some_and(|family| family.is_ending());
        if let Some(family) = self.families_of(id).find(ending) {
            broken(out, "J1", format!("job {id} was placed and its family {family} is ending"));
        }
    }

    /// J2: on as many nodes as it asked for, all at once; each is there, and free if it is to be had whole.
    fn placed_whole(&self, id: JobId, nodes: &[NodeId], before: &State, out: &mut Vec<Violation>) {
        let asked = self.asked.get(&id).map_or(0, |asked| asked.nodes);
        let distinct: BTreeSet<&NodeId> = nodes.iter().collect();
        if distinct.len() != asked || nodes.len() != asked {
            broken(out, "J2", format!("job {id} asked for {asked} nodes and was placed on {nodes:?}"));
        }
        let whole = before.jobs.get(&id).is_some_and(|job| job.need == Need::Whole);
        let free = |id: &&NodeId| {
            let node = before.nodes.get(*id).filter(|node| node.state == NodeState::Ready && !node.silent);
            node.is_some_and(|node| !node.exclusive && (node.attempts.is_empty() || !whole))
        };
        if let Some(node) = nodes.iter().find(|node| !free(node)) {
            broken(out, "J2", format!("job {id} was placed on node {node}, which is not free"));
        }
    }

    /// J2: nothing of a job runs when it goes back or ends; only then may another attempt start.
    fn nothing_runs(&self, id: JobId, what: &str, out: &mut Vec<Violation>) {
        if let Some((machine, _, attempt)) = self.running.get(&id.0).and_then(|running| running.first()) {
            broken(out, "J2", format!("job {id} {what} while attempt {attempt} runs on m-{machine}"));
        }
    }

    /// J1: a family ends after its members, and as complete only if they all are.
    fn ends(&mut self, id: JobId, status: Status, out: &mut Vec<Violation>) {
        self.ended.insert(id, status);
        if let Some(member) = self.members.remove(&id).and_then(|members| members.first().copied()) {
            broken(out, "J1", format!("family {id} ended and its member {member} has not"));
        }
        let of_steps = self.asked.get(&id).is_some_and(|asked| asked.of_steps);
        if of_steps && status == Status::Completed && self.spoilt.contains(&id) {
            broken(out, "J1", format!("family {id} completed and one of its members did not"));
        }
        let Some(family) = self.asked.get(&id).and_then(|asked| asked.family) else { return };
        if let Some(members) = self.members.get_mut(&family) {
            members.remove(&id);
        }
        if status != Status::Completed {
            self.spoilt.insert(family);
        }
    }

    /// J1: what was acknowledged is in the log, and is there or has ended.
    pub fn jobs(&self, durable: &State) -> Vec<Violation> {
        let mut out = self.history.against(durable);
        for id in &self.acknowledged {
            if !self.asked.contains_key(id) {
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
        let left = server.machine.left();
        if left.is_clean() {
            let everywhere = Dirty {
                timers_seen: left.timers_seen,
                first_for_room: left.first_for_room,
                ..Dirty::all(state)
            };
            let now = state.now.max(left.timers_seen);
            let more = plan(state, &everywhere, now).events;
            if let Some(event) = more.iter().find(|event| !invariants::is_told_later(state, event, now)) {
                broken(&mut found, "L1", format!("nobody looks again, and this is left to do: {event:?}"));
            }
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
        if let Some(family) = state.families.values().next() {
            return Err(format!("family {} is open: {:?}", family.id, family.members));
        }
        if !state.waits.is_empty() || !state.awaited.is_empty() {
            return Err("somebody waits who is not there".into());
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
