//! A machine without I/O goes through a day; what was counted is compared with what happened.

use std::sync::Arc;

use neap_core::command::{AttemptNews, PutCluster, PutWorkspace, Report, SubmitJob};
use neap_core::job::{Exit, Need};
use neap_core::settings::Settings;
use neap_core::{
    AttemptId, Capacity, ClusterId, Command, DocHash, JobId, Millis, NodeId, State, WorkspaceId,
};

use super::*;
use crate::machine::{Input, Machine};

const DOCUMENT: DocHash = DocHash([0; 32]);
const ACTUAL: Capacity = Capacity { cpus_milli: 4_000, memory_mb: 14_000, gpus: 0 };

struct Day {
    machine: Machine,
    metrics: Metrics,
    tracer: Tracer,
}

impl Day {
    fn new() -> Self {
        let machine = Machine::new(State::default());
        let mut day = Self { machine, metrics: Metrics::default(), tracer: Tracer::default() };
        let (s, g, l): (Arc<str>, Arc<str>, Arc<str>) = ("s".into(), "g".into(), "westus".into());
        day.at(0, Command::Start { release: "test".into(), settings: Settings::default() });
        let group = Command::PutGroup {
            subscription: s.clone(),
            name: g.clone(),
            location: l.clone(),
            document: DOCUMENT,
        };
        day.at(0, group);
        day.at(
            0,
            Command::PutWorkspace(PutWorkspace {
                subscription: s,
                group: g,
                name: "ws".into(),
                location: Some(l.clone()),
                document: DOCUMENT,
                problems: Vec::new(),
            }),
        );
        day.at(
            0,
            Command::PutCluster(PutCluster {
                workspace: WorkspaceId(1),
                name: "cpu".into(),
                location: Some(l),
                size: Some("STANDARD_DS3_V2".into()),
                tier: None,
                network: None,
                reference: None,
                min: Some(0),
                max: Some(1),
                idle_ms: Some(120_000),
                dedicated: None,
                document: DOCUMENT,
                problems: Vec::new(),
            }),
        );
        day
    }

    fn at(&mut self, at: u64, command: Command) {
        let input = Input { actor: "me".into(), command, documents: Vec::new(), ticket: () };
        let step = self.machine.step(vec![input], Millis(at));
        assert!(step.answers[0].1.is_ok(), "{:?}", step.answers);
        let before = self.machine.state().clone();
        let entries = step.batch.entries.clone();
        self.machine.commit(step);
        self.metrics.committed(&before, &entries, 300, &self.tracer);
    }

    fn submit(&mut self, at: u64, name: &str) {
        self.at(
            at,
            Command::SubmitJob(SubmitJob {
                workspace: WorkspaceId(1),
                name: name.into(),
                cluster: "cpu".into(),
                owner: "me".into(),
                priority: 50,
                need: Need::Whole,
                nodes: 1,
                family: None,
                tags: vec![],
                timeout_ms: None,
                retry: None,
                like: None,
                tier: Default::default(),
                document: DOCUMENT,
                meta: DOCUMENT,
                problems: Vec::new(),
            }),
        );
    }

    fn news(&mut self, at: u64, job: u64, number: u64, news: AttemptNews) {
        let attempt = AttemptId { job: JobId(job), number: 1 };
        self.at(at, Command::Report(Report::Attempt { node: NodeId(1), attempt, number, news }));
    }
}

#[test]
fn a_day_in_numbers() {
    let mut day = Day::new();
    day.submit(1_000, "one");
    day.submit(1_500, "two");
    let ready = Report::NodeReady { node: NodeId(1), actual: ACTUAL, isolation: "pid".into() };
    day.at(3_000, Command::Report(ready));
    day.news(4_000, 1, 1, AttemptNews::Started { facts: Default::default() });
    day.news(9_000, 1, 2, AttemptNews::Ended { exit: Exit::Success });
    day.news(9_100, 2, 1, AttemptNews::Started { facts: Default::default() });
    day.news(9_200, 2, 2, AttemptNews::Ended { exit: Exit::Code { code: 3 } });
    day.at(200_000, Command::Start { release: "test".into(), settings: Settings::default() });

    let cluster = day.metrics.cluster(ClusterId(1)).unwrap();
    let words = |family: &crate::instruments::Family<&'static str, crate::instruments::Counter>| {
        family.all().into_iter().map(|(word, count)| format!("{word}={}", count.get())).collect::<Vec<_>>()
    };
    let times = |histogram: &crate::instruments::Histogram| {
        let seen = histogram.snapshot();
        (seen.count, seen.sum / 1_000)
    };
    assert_eq!(cluster.jobs_submitted.get(), 2);
    assert_eq!(words(&cluster.jobs_ended), ["Completed=1", "Failed=1"]);
    assert_eq!(words(&cluster.nodes_requested), ["jobs_wait=1"]);
    assert_eq!(words(&cluster.nodes_left), ["idle=1"]);
    assert!(words(&cluster.target_cuts).iter().any(|cut| cut.starts_with("maximum=")));
    assert_eq!(times(&cluster.node_boot), (1, 2_000));
    assert_eq!(times(&cluster.autoscale_delay), (2, 2_000 + 1_500), "each from its own submission");
    assert_eq!(times(&cluster.queue_wait), (2, 2_000 + 7_500));
    assert_eq!(times(&cluster.attempt_staging), (2, 1_000 + 100));
    assert_eq!(times(&cluster.attempt_run), (2, 5_000 + 100));
    assert_eq!(cluster.system_failures.get(), 0, "a failing program is the job's own matter");
    assert_eq!(day.metrics.events.get(&"job.submitted").map(|c| c.get()), Some(2));
    assert!(day.metrics.commit_seconds.snapshot().count >= 10);
}

#[test]
fn reasons_become_a_closed_set_of_words() {
    for (reason, word) in [
        ("idle for 120 s", "idle"),
        ("max_instances was lowered to 2", "maximum_lowered"),
        ("The compute 'x' was deleted.", "deleted"),
        ("the server is being stopped", "draining"),
        ("job 'j' did not end when it was told to", "stop_overdue"),
        ("it was not heard of for the length of its lease", "lease_ended"),
        ("its agent ended", "lost"),
        ("it was gone when the server came back", "lost"),
        ("something new", "other"),
    ] {
        assert_eq!(leave_word(reason), word, "{reason}");
    }
    assert_eq!(request_word("12 jobs wait"), "jobs_wait");
    assert_eq!(request_word("1 job waits"), "jobs_wait");
    assert_eq!(request_word("min_instances is 1"), "minimum");
}
