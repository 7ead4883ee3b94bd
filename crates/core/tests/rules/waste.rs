//! What another setting would have saved: work that was recorded is run again through the planner.

use neap_core::apply::apply;
use neap_core::command::{AttemptNews, PutCluster};
use neap_core::job::{Exit, Retry};
use neap_core::lock::{LockLevel, LockScope};
use neap_core::meter::Cause;
use neap_core::waste::{self, How, Kind, Record, Recorder, rerun};
use neap_core::{Capacity, Command, Event, JobId, Millis, State, usage};

use crate::world::{CPU, World, cluster, job, share, workspace};

/// A world whose log is kept.
struct Logged {
    world: World,
    /// How long a node takes to go.
    leave_ms: u64,
    log: Vec<(Millis, Event)>,
}

impl Logged {
    fn new(min: i64, idle_s: i64) -> Self {
        let mut logged = Self { world: World::new(), leave_ms: 1_000, log: Vec::new() };
        // What came before the cluster is not of interest; the state is built from the log.
        let fresh = State::default();
        let mut draft = neap_core::Draft::new(fresh);
        let start = Command::Start { release: "test".into(), settings: logged.world.state.settings.clone() };
        let places = [start, crate::world::put_group("g", "westus"), Command::PutWorkspace(workspace("ws"))];
        for command in places {
            for event in neap_core::decide::decide(&draft.state, command, logged.world.now).unwrap() {
                draft.emit(logged.world.now, event);
            }
        }
        logged.log.extend(draft.events.into_iter().map(|event| (logged.world.now, event)));
        logged.put(min, idle_s);
        logged
    }

    fn put(&mut self, min: i64, idle_s: i64) {
        self.tell(Command::PutCluster(PutCluster {
            min: Some(min),
            max: Some(4),
            idle_ms: Some(idle_s * 1_000),
            ..cluster("cpu")
        }));
    }

    fn keep(&mut self, events: Vec<Event>) {
        let now = self.world.now;
        self.log.extend(events.into_iter().map(|event| (now, event)));
    }

    fn tell(&mut self, command: Command) {
        let events = self.world.tell(command);
        self.keep(events);
    }

    /// Nodes that are asked for come after two seconds.
    fn wait(&mut self, ms: u64) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(1_000);
            left -= step;
            let events = self.world.wait(step);
            self.keep(events);
            let nodes: Vec<_> = self.world.state.nodes.values().cloned().collect();
            for node in nodes {
                let word = node.word();
                if word == "requested" && self.world.now.since(node.requested) >= 2_000 {
                    let events = self.world.ready(node.id.0);
                    self.keep(events);
                } else if word == "leaving" && self.world.now.since(node.since) >= self.leave_ms {
                    let events = self.world.gone(node.id.0);
                    self.keep(events);
                }
            }
        }
    }

    fn submit(&mut self, name: &str) -> JobId {
        let id = self.world.state.next.job;
        self.tell(Command::SubmitJob(job(name)));
        id
    }

    /// Submits a job, and lets it run for so long once it is placed.
    fn runs(&mut self, name: &str, ms: u64) {
        let id = self.submit(name);
        while self.world.job(id).attempt().is_none() {
            self.wait(1_000);
        }
        let events = self.world.start(id);
        self.keep(events);
        self.wait(ms);
        let events = self.world.end(id, Exit::Success);
        self.keep(events);
    }

    fn record(&self, from: Millis) -> Record {
        let mut recorder = Recorder::new(CPU, from, self.world.now);
        let mut state = State::default();
        for (at, event) in &self.log {
            recorder.see(&state, *at, event);
            apply(&mut state, *at, event);
        }
        assert_eq!(state.nodes, self.world.state.nodes, "the log is whole");
        recorder.finish(&state).expect("the cluster was there")
    }
}

#[test]
fn as_it_was_comes_to_what_was_paid() {
    let mut logged = Logged::new(0, 30);
    for at in 0..4 {
        logged.runs(&format!("j{at}"), 20_000);
        logged.wait(50_000);
    }
    let record = logged.record(Millis(0));
    assert_eq!((record.boot_ms(), record.leave_ms(), record.work.len()), (2_000, 1_000, 4));
    let course = rerun(&record, |scale| scale);
    assert_eq!(course.cost(), record.spent_in_all(), "{course:?} {:?}", record.spent);
    assert_eq!(course.spent, record.spent);
    assert_eq!((course.jobs, course.waited_ms, course.boots), (4, 8_000, 4));
}

#[test]
fn a_shorter_idle_time_saves_what_idle_nodes_cost() {
    let mut logged = Logged::new(0, 600);
    for at in 0..3 {
        logged.runs(&format!("j{at}"), 20_000);
        logged.wait(300_000);
    }
    let record = logged.record(Millis(0));
    let report = waste::report(&record);
    let idle = report.findings.iter().find(|f| f.kind == Kind::Idle).expect("it is found");
    assert_eq!(
        (idle.setting, &*idle.now, &*idle.instead, idle.how),
        ("idle_time_before_scale_down", "600 s", "0 s", How::Replayed)
    );
    // By hand: without idle time each job has a node of its own, for two seconds of boot and twenty of run. (None went in
    // this time, so that nobody knows how long that takes.)
    let price = u128::from(logged.world.cpu().shape.price.0);
    let cheap = u64::try_from(price * 3 * 22_000 / 3_600_000).unwrap();
    assert!(idle.saved.abs_diff(report.as_it_was.cost() - cheap) <= 3, "{} {}", idle.saved, cheap);
    // Two of three jobs wait for a node that was there before.
    assert_eq!(idle.waits_more_ms, Some(2_000 - 2_000 / 3));
    assert!(idle.tried.iter().any(|(word, course)| word == "120 s" && course.boots == 3), "{:?}", idle.tried);
    assert!(idle.says.contains("jobs would have waited 1.334 s longer on average"), "{}", idle.says);
}

#[test]
fn a_minimum_that_serves_nobody_is_named() {
    let mut logged = Logged::new(2, 10);
    logged.wait(400_000);
    logged.runs("only", 5_000);
    logged.wait(100_000);
    let record = logged.record(Millis(0));
    assert!(record.idle_by_minimum > 0);
    let report = waste::report(&record);
    assert_eq!(report.findings[0].kind, Kind::Minimum, "{:#?}", report.findings);
    let found = &report.findings[0];
    assert_eq!((&*found.now, &*found.instead), ("2", "0"));
    assert!(found.saved * 10 > report.spent * 9, "nearly all of it: {} of {}", found.saved, report.spent);
    assert_eq!(found.waits_more_ms, Some(2_000), "the boot of the one job's node");
}

#[test]
fn an_idle_time_that_is_too_short_costs_boots() {
    let mut logged = Logged { leave_ms: 4_000, ..Logged::new(0, 0) };
    for at in 0..6 {
        logged.runs(&format!("j{at}"), 3_000);
        logged.wait(1_000);
    }
    logged.wait(20_000);
    let report = waste::report(&logged.record(Millis(0)));
    let churn = report.findings.iter().find(|f| f.kind == Kind::Churn).expect("it is found");
    assert_eq!((&*churn.now, &*churn.instead), ("0 s", "5 s"));
    assert!(churn.waits_more_ms.is_some_and(|ms| ms < 0), "{churn:?}");
    assert!(churn.says.starts_with("6 nodes were started"), "{}", churn.says);
}

#[test]
fn a_time_that_begins_in_the_middle_carries_over_what_was_there() {
    let mut logged = Logged::new(0, 60);
    let first = logged.submit("first");
    logged.wait(5_000);
    let events = logged.world.start(first);
    logged.keep(events);
    let queued: Vec<JobId> = (0..5).map(|at| logged.submit(&format!("more{at}"))).collect();
    logged.wait(10_000);
    let from = logged.world.now;
    logged.wait(5_000);
    let running: Vec<JobId> = std::iter::once(first).chain(queued).collect();
    for id in running {
        while logged.world.state.jobs.get(&id).is_some_and(|job| job.attempt().is_none()) {
            logged.wait(1_000);
        }
        let events = logged.world.end(id, Exit::Success);
        logged.keep(events);
    }
    logged.wait(100_000);
    let record = logged.record(from);
    assert_eq!(record.from, from);
    let course = rerun(&record, |scale| scale);
    assert!(course.cost().abs_diff(record.spent_in_all()) <= 20, "{course:?} {:?}", record.spent);
    assert_eq!(course.jobs, 2, "those that waited when it began");
}

#[test]
fn what_is_computed_says_so() {
    let mut logged = Logged::new(0, 10);
    // A job that fails twice.
    let mut twice = job("twice");
    twice.retry = Some(std::sync::Arc::new(Retry { exit_codes: vec![3], max: 1, ..Retry::default() }));
    let id = logged.world.state.next.job;
    logged.tell(Command::SubmitJob(twice));
    logged.wait(3_000);
    for _ in 0..2 {
        let events = logged.world.start(id);
        logged.keep(events);
        logged.wait(8_000);
        let events = logged.world.end(id, Exit::Code { code: 3 });
        logged.keep(events);
    }
    // And a lock that keeps its node.
    logged.tell(Command::PutLock(neap_core::command::PutLock {
        scope: LockScope::Cluster(CPU),
        name: "keep".into(),
        level: LockLevel::ReadOnly,
        notes: "".into(),
        by: "me".into(),
    }));
    logged.wait(60_000);
    let record = logged.record(Millis(0));
    let report = waste::report(&record);
    let kinds: Vec<Kind> = report.findings.iter().map(|f| f.kind).collect();
    for kind in [Kind::Lock, Kind::Retries, Kind::Tier] {
        let found = report.findings.iter().find(|f| f.kind == kind);
        assert_eq!(found.map(|f| f.how), Some(How::Computed), "{kind:?} in {kinds:?}");
    }
    let retries = report.findings.iter().find(|f| f.kind == Kind::Retries).unwrap();
    assert!(retries.says.contains("'twice'") && retries.saved > 0, "{}", retries.says);
    let lock = report.findings.iter().find(|f| f.kind == Kind::Lock).unwrap();
    assert!(lock.says.contains("'keep'"), "{}", lock.says);
    assert_eq!(Some(&lock.saved), record.spent.get(&Cause::Lock));
}

#[test]
fn nodes_that_are_larger_than_what_shares_them_are_named() {
    let mut logged = Logged::new(0, 10);
    let id = logged.world.state.next.job;
    let little = Capacity { cpus_milli: 500, memory_mb: 1_000, gpus: 0 };
    logged.tell(Command::SubmitJob(share("little", little)));
    logged.wait(3_000);
    let events = logged.world.start(id);
    logged.keep(events);
    logged.wait(30_000);
    let events = logged.world.end(id, Exit::Success);
    logged.keep(events);
    let record = logged.record(Millis(0));
    assert_eq!(record.peak, Some(little));
    let report = waste::report(&record);
    let size = report.findings.iter().find(|f| f.kind == Kind::Size).expect("it is found");
    assert_eq!((&*size.now, &*size.instead), ("STANDARD_DS3_V2", "Standard_DS1_v2"));
    // Nobody knows what a job does with a node that it has to itself, unless that was measured.
    logged.runs("whole", 1_000);
    assert_eq!(logged.record(Millis(0)).peak, None);
    let id = logged.submit("measured");
    logged.wait(1_000);
    let events = logged.world.start(id);
    logged.keep(events);
    logged.wait(60_000);
    let facts =
        [(usage::CPU_SECONDS, "90.000"), (usage::RAN_SECONDS, "60.000"), (usage::MEMORY_PEAK_MB, "900")];
    let facts = facts.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let events = logged.world.news(id, AttemptNews::Measured { facts });
    logged.keep(events);
    let events = logged.world.end(id, Exit::Success);
    logged.keep(events);
    let peak = Capacity { cpus_milli: 1_500, memory_mb: 1_000, gpus: 0 };
    assert_eq!(logged.record(Millis(0)).peak, Some(peak), "a core and a half on average");
}
