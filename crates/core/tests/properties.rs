//! Random commands and reports in random order: every invariant holds after every event, and when the world is
//! kind again everything comes to rest.

use std::sync::Arc;

use neap_core::command::{AttemptNews, PutCluster, PutWorkspace, Report, SubmitJob};
use neap_core::decide::decide;
use neap_core::invariants::{self, History, Violation};
use neap_core::job::{Exit, Need};
use neap_core::node::NodeState;
use neap_core::plan::{Dirty, plan, plan_into};
use neap_core::settings::Settings;
use neap_core::{
    AttemptId, Capacity, ClusterId, Command, DocHash, Draft, JobId, Millis, NodeId, State, WorkspaceId,
};
use proptest::prelude::*;

const DOCUMENT: DocHash = DocHash([0; 32]);

/// What the random world does next. Small numbers choose among what exists.
#[derive(Clone, Copy, Debug)]
enum Step {
    PutCluster { which: u8, min: u8, max: u8, idle_s: u8 },
    DeleteCluster { which: u8 },
    Submit { cluster: u8, share: bool, timeout: bool, priority: u8 },
    Cancel { job: u8 },
    NodeNews { node: u8, news: u8 },
    AttemptNews { node: u8, number: u8, news: u8 },
    StaleNews { job: u8, attempt: u8, node: u8 },
    Drain,
    Restart,
    Wait { ms: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8, 0..3u8, 0..5u8, 0..20u8).prop_map(|(which, min, max, idle_s)| Step::PutCluster { which, min, max, idle_s }),
        1 => (0..3u8).prop_map(|which| Step::DeleteCluster { which }),
        8 => (0..3u8, any::<bool>(), any::<bool>(), 0..3u8)
            .prop_map(|(cluster, share, timeout, priority)| Step::Submit { cluster, share, timeout, priority }),
        2 => any::<u8>().prop_map(|job| Step::Cancel { job }),
        10 => (any::<u8>(), 0..8u8).prop_map(|(node, news)| Step::NodeNews { node, news }),
        12 => (any::<u8>(), 1..5u8, 0..10u8).prop_map(|(node, number, news)| Step::AttemptNews { node, number, news }),
        2 => (any::<u8>(), 1..4u8, any::<u8>()).prop_map(|(job, attempt, node)| Step::StaleNews { job, attempt, node }),
        1 => Just(Step::Drain),
        1 => Just(Step::Restart),
        6 => (1..200_000u32).prop_map(|ms| Step::Wait { ms }),
    ]
}

struct World {
    state: State,
    dirty: Dirty,
    history: History,
    now: Millis,
    jobs: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            state: State::default(),
            dirty: Dirty::default(),
            history: History::default(),
            now: Millis(1_000_000),
            jobs: 0,
        };
        world.command(Command::Start { release: "test".into(), settings: settings() });
        world.command(Command::PutGroup {
            subscription: "s".into(),
            name: "g".into(),
            location: "westus".into(),
            document: DOCUMENT,
        });
        world.command(Command::PutWorkspace(PutWorkspace {
            subscription: "s".into(),
            group: "g".into(),
            name: "ws".into(),
            location: Some("westus".into()),
            document: DOCUMENT,
            problems: vec![],
        }));
        world
    }

    /// One batch: decide, apply event by event with every check, plan, apply, check again.
    fn command(&mut self, command: Command) {
        self.now = self.now.plus(1);
        let mut draft = Draft::new(self.state.clone());
        if let Ok(events) = decide(&draft.state, command, self.now) {
            for event in events {
                draft.emit(self.now, event);
                self.observe(&draft);
            }
        }
        self.plan(draft);
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        let draft = Draft::new(self.state.clone());
        self.plan(draft);
    }

    fn plan(&mut self, mut draft: Draft) {
        // A twin that applies the plan's events one by one sees every state in between.
        let mut twin = Draft::new(draft.state.clone());
        let before = draft.events.len();
        plan_into(&mut draft, &mut self.dirty, self.now);
        for event in draft.events[before..].iter().cloned() {
            twin.emit(self.now, event);
            self.observe(&twin);
        }
        assert_eq!(twin.state, draft.state, "applying the events again gives the same state");
        self.state = draft.state;
        expect_none(&invariants::check(&self.state));
        expect_none(&self.history.against(&self.state));
        if self.dirty.is_clean() {
            let again = plan(
                &self.state,
                &Dirty { timers_seen: self.dirty.timers_seen, ..Dirty::all(&self.state) },
                self.now,
            );
            assert_eq!(again.events, vec![], "a second plan has nothing to add");
        }
    }

    fn observe(&mut self, draft: &Draft) {
        let event = draft.events.last().expect("an event was emitted");
        expect_none(&self.history.observe(event, &draft.state));
        expect_none(&invariants::check_unplanned(&draft.state));
    }

    fn node(&self, pick: u8) -> Option<NodeId> {
        let nodes: Vec<_> = self.state.nodes.keys().copied().collect();
        (!nodes.is_empty()).then(|| nodes[pick as usize % nodes.len()])
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::PutCluster { which, min, max, idle_s } => self.command(Command::PutCluster(PutCluster {
                workspace: WorkspaceId(1),
                name: format!("cluster-{}", (b'a' + which) as char).into(),
                location: None,
                size: None,
                tier: None,
                min: Some(min.into()),
                max: Some(max.into()),
                idle_ms: Some(i64::from(idle_s) * 1000),
                document: DOCUMENT,
                problems: vec![],
            })),
            Step::DeleteCluster { which } => {
                let name = format!("cluster-{}", (b'a' + which) as char);
                if let Some(cluster) = self.state.cluster(WorkspaceId(1), &name) {
                    let cluster = cluster.id;
                    self.command(Command::DeleteCluster { cluster, reason: "asked".into() });
                }
            }
            Step::Submit { cluster, share, timeout, priority } => {
                self.jobs += 1;
                let need = if share {
                    Need::Share(Capacity { cpus_milli: 1500, memory_mb: 1000, gpus: 0 })
                } else {
                    Need::Whole
                };
                self.command(Command::SubmitJob(SubmitJob {
                    workspace: WorkspaceId(1),
                    name: format!("job-{}", self.jobs).into(),
                    cluster: format!("cluster-{}", (b'a' + cluster) as char).into(),
                    owner: "me".into(),
                    priority,
                    need,
                    nodes: 1,
                    family: None,
                    timeout_ms: timeout.then_some(5_000),
                    document: DOCUMENT,
                    meta: DOCUMENT,
                    problems: vec![],
                }));
            }
            Step::Cancel { job } => {
                let id = JobId(u64::from(job) % (self.jobs + 1));
                self.command(Command::CancelJob { job: id, reason: "asked".into() });
            }
            Step::NodeNews { node, news } => {
                let Some(node) = self.node(node) else { return };
                self.command(Command::Report(node_news(node, news)));
            }
            Step::AttemptNews { node, number, news } => {
                let Some(node) = self.node(node) else { return };
                let Some(attempt) = self.state.nodes[&node].attempts.first().copied() else { return };
                let news = attempt_news(news);
                self.command(Command::Report(Report::Attempt { node, attempt, number: number.into(), news }));
            }
            Step::StaleNews { job, attempt, node } => {
                let attempt =
                    AttemptId { job: JobId(u64::from(job) % (self.jobs + 1)), number: attempt.into() };
                let news = AttemptNews::Ended { exit: Exit::Success };
                self.command(Command::Report(Report::Attempt {
                    node: NodeId(node.into()),
                    attempt,
                    number: 9,
                    news,
                }));
            }
            Step::Drain => self.command(Command::Drain { deadline: self.now.plus(10_000) }),
            Step::Restart => {
                self.dirty = Dirty::all(&self.state);
                self.command(Command::Start { release: "test".into(), settings: settings() });
            }
            Step::Wait { ms } => self.wait(ms.into()),
        }
    }

    /// A kind world: nodes come up, attempts end well, removals are confirmed, time passes.
    fn be_kind(&mut self) {
        self.command(Command::Start { release: "test".into(), settings: settings() });
        for _ in 0..400 {
            let nodes: Vec<_> = self.state.nodes.values().cloned().collect();
            for node in nodes {
                match node.state {
                    NodeState::Requested { .. }
                    | NodeState::Creating { .. }
                    | NodeState::Preparing { .. } => {
                        self.command(Command::Report(node_news(node.id, 2)));
                    }
                    NodeState::Leaving { .. } => self.command(Command::Report(node_news(node.id, 5))),
                    NodeState::Unusable { .. } => {}
                    NodeState::Ready if node.silent => self.command(Command::Report(node_news(node.id, 4))),
                    NodeState::Ready => {
                        for attempt in &node.attempts {
                            for (number, news) in [(100, attempt_news(0)), (101, attempt_news(2))] {
                                let report =
                                    Report::Attempt { node: node.id, attempt: *attempt, number, news };
                                self.command(Command::Report(report));
                            }
                        }
                    }
                }
            }
            self.wait(5_000);
        }
    }
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.provider.nodes_max = 6;
    settings
}

fn node_news(node: NodeId, pick: u8) -> Report {
    let actual = Capacity { cpus_milli: 2000, memory_mb: 4000, gpus: 0 };
    match pick {
        0 => Report::NodeCreating { node },
        1 => Report::NodePreparing { node },
        3 => Report::NodeSilent { node },
        4 => Report::NodeHeard { node },
        5 => Report::NodeGone { node, reason: "it went".into() },
        6 => Report::NodeFailed { node, reason: "no room".into() },
        _ => Report::NodeReady { node, actual, isolation: "".into() },
    }
}

fn attempt_news(pick: u8) -> AttemptNews {
    let message: Arc<str> = "no".into();
    match pick {
        0 => AttemptNews::Started { facts: Default::default() },
        1 => AttemptNews::Finalizing,
        2 => AttemptNews::Ended { exit: Exit::Success },
        3 => AttemptNews::Ended { exit: Exit::Code { code: 1 } },
        4 => AttemptNews::Ended { exit: Exit::LeaseLost },
        5 => AttemptNews::Ended { exit: Exit::Stopped },
        6 => {
            AttemptNews::Ended { exit: Exit::PrepareFailed { class: neap_core::job::Class::System, message } }
        }
        7 => AttemptNews::Ended { exit: Exit::OutOfMemory { limit_mb: 1 } },
        8 => AttemptNews::Ended { exit: Exit::Timeout },
        _ => AttemptNews::Ended { exit: Exit::FinalizeFailed { message } },
    }
}

#[track_caller]
fn expect_none(violations: &[Violation]) {
    assert!(
        violations.is_empty(),
        "{}",
        violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_invariant_holds_in_any_order(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
    }

    /// L1: when faults stop, every job that can run has run, and every cluster is back at its minimum.
    #[test]
    fn the_world_comes_to_rest(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.be_kind();
        for cluster in world.state.clusters.values() {
            prop_assert!(!cluster.is_deleting(), "cluster {} never went", cluster.id);
            prop_assert_eq!(cluster.active.len(), 0, "jobs still run");
            if cluster.scale.max > 0 {
                prop_assert_eq!(cluster.queue.len(), 0, "jobs still wait on cluster {}", cluster.id);
            }
            let wanted: usize = world.state.clusters.values().map(|c| c.scale.min as usize).sum();
            if wanted <= 6 {
                prop_assert_eq!(cluster.live, cluster.scale.min, "cluster {} is not at rest", cluster.id);
            }
        }
    }
}

#[test]
fn from_zero_and_back() {
    let mut world = World::new();
    world.take(Step::PutCluster { which: 0, min: 0, max: 2, idle_s: 10 });
    world.take(Step::Submit { cluster: 0, share: false, timeout: false, priority: 1 });
    assert_eq!(world.state.nodes.len(), 1, "one job asks for one node, at once");
    let node = *world.state.nodes.keys().next().unwrap();
    world.command(Command::Report(node_news(node, 2)));
    let attempt = world.state.nodes[&node].attempts[0];
    world.command(Command::Report(Report::Attempt { node, attempt, number: 1, news: attempt_news(0) }));
    world.command(Command::Report(Report::Attempt { node, attempt, number: 2, news: attempt_news(2) }));
    assert!(world.state.jobs.is_empty());
    world.wait(5_000);
    world.take(Step::Submit { cluster: 0, share: false, timeout: false, priority: 1 });
    assert_eq!(world.state.nodes.len(), 1, "the idle node is used and none is added");
    let attempt = world.state.nodes[&node].attempts[0];
    world.command(Command::Report(Report::Attempt { node, attempt, number: 2, news: attempt_news(2) }));
    world.wait(9_000);
    assert!(matches!(world.state.nodes[&node].state, NodeState::Ready), "its idle time started anew");
    world.wait(2_000);
    assert!(matches!(world.state.nodes[&node].state, NodeState::Leaving { .. }));
    world.command(Command::Report(node_news(node, 5)));
    assert!(world.state.nodes.is_empty());
    assert_eq!(world.state.clusters[&ClusterId(1)].target, 0);
}
