//! Random commands and reports in random order: every invariant holds after every event, and when the world is
//! kind again everything comes to rest.

use std::collections::BTreeSet;
use std::sync::Arc;

use neap_core::budget::{BudgetScope, Every, tag_label};
use neap_core::command::{
    AttemptNews, NewMember, NewMemberKind, PutBudget, PutCluster, PutLock, PutWorkspace, Report,
    SubmitFamily, SubmitJob,
};
use neap_core::decide::decide;
use neap_core::event::{JobEnded, ServerStarted};
use neap_core::family::FamilyKind;
use neap_core::invariants::{self, History, Violation};
use neap_core::job::{Exit, Need, Outcome, Retry};
use neap_core::location::Place;
use neap_core::lock::{LockLevel, LockScope};
use neap_core::node::NodeState;
use neap_core::plan::{Dirty, plan, plan_into};
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::settings::Settings;
use neap_core::state::GroupKey;
use neap_core::unblock::{self, Kind};
use neap_core::{
    AttemptId, Capacity, ClusterId, Command, DocHash, Draft, JobId, MicroUsd, Millis, NodeId, State,
    WorkspaceId,
};
use proptest::prelude::*;

const DOCUMENT: DocHash = DocHash([0; 32]);

/// What the random world does next. Small numbers choose among what exists.
#[derive(Clone, Copy, Debug)]
enum Step {
    PutCluster {
        which: u8,
        min: u8,
        max: u8,
        idle_s: u8,
    },
    DeleteCluster {
        which: u8,
    },
    Submit {
        cluster: u8,
        share: bool,
        timeout: bool,
        priority: u8,
    },
    SubmitGang {
        cluster: u8,
        nodes: u8,
        timeout: bool,
    },
    /// Each bit of `shape` decides something about a step.
    SubmitFamily {
        steps: u8,
        shape: u64,
        go_on: bool,
        timeout: bool,
    },
    Drive {
        family: u8,
        close: bool,
    },
    DeleteWorkspace,
    Cancel {
        job: u8,
    },
    NodeNews {
        node: u8,
        news: u8,
    },
    AttemptNews {
        node: u8,
        number: u8,
        news: u8,
    },
    StaleNews {
        job: u8,
        attempt: u8,
        node: u8,
    },
    Evict {
        node: u8,
    },
    Cordon {
        node: u8,
        how: u8,
    },
    Quota {
        cores: u8,
    },
    Lock {
        on: bool,
    },
    PutBudget {
        which: u8,
        scope: u8,
        amount: u64,
        day: bool,
    },
    DeleteBudget {
        which: u8,
    },
    Drain,
    Restart,
    Wait {
        ms: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8, 0..3u8, 0..5u8, 0..20u8).prop_map(|(which, min, max, idle_s)| Step::PutCluster { which, min, max, idle_s }),
        1 => (0..3u8).prop_map(|which| Step::DeleteCluster { which }),
        8 => (0..3u8, any::<bool>(), any::<bool>(), 0..3u8)
            .prop_map(|(cluster, share, timeout, priority)| Step::Submit { cluster, share, timeout, priority }),
        4 => (0..3u8, 0..5u8, any::<bool>()).prop_map(|(cluster, nodes, timeout)| Step::SubmitGang { cluster, nodes, timeout }),
        4 => (0..8u8, any::<u64>(), any::<bool>(), any::<bool>())
            .prop_map(|(steps, shape, go_on, timeout)| Step::SubmitFamily { steps, shape, go_on, timeout }),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(family, close)| Step::Drive { family, close }),
        2 => any::<u8>().prop_map(|job| Step::Cancel { job }),
        10 => (any::<u8>(), 0..8u8).prop_map(|(node, news)| Step::NodeNews { node, news }),
        12 => (any::<u8>(), 1..5u8, 0..10u8).prop_map(|(node, number, news)| Step::AttemptNews { node, number, news }),
        2 => (any::<u8>(), 1..4u8, any::<u8>()).prop_map(|(job, attempt, node)| Step::StaleNews { job, attempt, node }),
        2 => any::<u8>().prop_map(|node| Step::Evict { node }),
        1 => (any::<u8>(), 0..3u8).prop_map(|(node, how)| Step::Cordon { node, how }),
        3 => (0..4u8, 0..6u8, 1..120_000u64, any::<bool>())
            .prop_map(|(which, scope, amount, day)| Step::PutBudget { which, scope, amount, day }),
        1 => (0..4u8).prop_map(|which| Step::DeleteBudget { which }),
        1 => Just(Step::Drain),
        1 => Just(Step::Restart),
        1 => (0..24u8).prop_map(|luck| if luck == 0 { Step::DeleteWorkspace } else { Step::Restart }),
        6 => (1..200_000u32).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// Without families, and with limits and locks.
fn step_of_jobs() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8, 0..3u8, 0..5u8, 0..20u8).prop_map(|(which, min, max, idle_s)| Step::PutCluster { which, min, max, idle_s }),
        10 => (0..3u8, any::<bool>(), any::<bool>(), 0..3u8)
            .prop_map(|(cluster, share, timeout, priority)| Step::Submit { cluster, share, timeout, priority }),
        4 => (0..3u8, 0..5u8, any::<bool>()).prop_map(|(cluster, nodes, timeout)| Step::SubmitGang { cluster, nodes, timeout }),
        1 => any::<u8>().prop_map(|job| Step::Cancel { job }),
        10 => (any::<u8>(), 0..8u8).prop_map(|(node, news)| Step::NodeNews { node, news }),
        8 => (any::<u8>(), 1..5u8, 0..10u8).prop_map(|(node, number, news)| Step::AttemptNews { node, number, news }),
        2 => any::<u8>().prop_map(|node| Step::Evict { node }),
        1 => (any::<u8>(), 0..3u8).prop_map(|(node, how)| Step::Cordon { node, how }),
        2 => (0..8u8).prop_map(|cores| Step::Quota { cores }),
        1 => any::<bool>().prop_map(|on| Step::Lock { on }),
        1 => (0..24u8).prop_map(|luck| if luck == 0 { Step::Drain } else { Step::Restart }),
        3 => (1..20_000u32).prop_map(|ms| Step::Wait { ms }),
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
            // So that days end in the middle of things.
            now: Millis(86_000_000),
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

    fn name(&mut self) -> String {
        self.jobs += 1;
        format!("job-{}", self.jobs)
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
                network: None,
                reference: None,
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
                let name = self.name();
                let need = if share {
                    Need::Share(Capacity { cpus_milli: 1500, memory_mb: 1000, gpus: 0 })
                } else {
                    Need::Whole
                };
                let timeout_ms = timeout.then_some(5_000);
                self.command(Command::SubmitJob(SubmitJob {
                    priority,
                    need,
                    timeout_ms,
                    tags: if share { vec![tag_label("team", "red")] } else { vec![] },
                    ..job(&name, cluster)
                }));
            }
            Step::SubmitGang { cluster, nodes, timeout } => {
                let name = self.name();
                self.command(Command::SubmitJob(SubmitJob {
                    nodes: nodes.into(),
                    timeout_ms: timeout.then_some(5_000),
                    ..job(&name, cluster)
                }));
            }
            Step::SubmitFamily { steps, shape, go_on, timeout } => {
                let family = family(&self.name(), steps, shape, go_on, timeout);
                self.command(Command::SubmitFamily(family));
            }
            Step::Drive { family, close } => {
                let families: Vec<_> = self.state.families.keys().copied().collect();
                let Some(family) = families.get(family as usize % families.len().max(1)).copied() else {
                    return;
                };
                if close {
                    self.command(Command::CloseFamily { family, outcome: Outcome::completed() });
                } else {
                    let name = self.name();
                    self.command(Command::SubmitJob(SubmitJob { family: Some(family), ..job(&name, 0) }));
                }
            }
            Step::DeleteWorkspace => self.command(Command::DeleteWorkspace { workspace: WorkspaceId(1) }),
            Step::Cancel { job } => {
                let id = JobId(u64::from(job) % self.state.next.job.0);
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
                    AttemptId { job: JobId(u64::from(job) % self.state.next.job.0), number: attempt.into() };
                let news = AttemptNews::Ended { exit: Exit::Success };
                self.command(Command::Report(Report::Attempt {
                    node: NodeId(node.into()),
                    attempt,
                    number: 9,
                    news,
                }));
            }
            Step::Evict { node } => {
                let Some(node) = self.node(node) else { return };
                let cluster = self.state.nodes[&node].cluster;
                let reason = "wanted elsewhere".into();
                self.command(Command::Evict { cluster, node: Some(node), grace_ms: 1_000, reason });
            }
            Step::Cordon { node, how } => {
                let Some(node) = self.node(node) else { return };
                self.command(match how {
                    0 => Command::Uncordon { node },
                    how => Command::Cordon { node, leave: how == 1, reason: "looked at".into() },
                });
            }
            Step::Quota { cores } => {
                let key = QuotaKey {
                    holder: Holder::Workspace(WorkspaceId(1)),
                    location: "westus".into(),
                    pool: Pool::Dedicated,
                };
                let limit = (cores < 7).then_some(u64::from(cores) * 4);
                self.command(Command::SetQuota { key, limit, by: "me".into() });
            }
            Step::Lock { on } => {
                let (scope, name) = (LockScope::Workspace(WorkspaceId(1)), "lock".into());
                let (level, notes, by) = (LockLevel::ReadOnly, "".into(), "me".into());
                self.command(match on {
                    true => Command::PutLock(PutLock { scope, name, level, notes, by }),
                    false => Command::DeleteLock { scope, name },
                });
            }
            Step::PutBudget { which, scope, amount, day } => {
                let scope = match scope {
                    0 => BudgetScope::Group(GroupKey::new("s", "g")),
                    1 => BudgetScope::Workspace(WorkspaceId(1)),
                    2 => BudgetScope::Cluster(ClusterId(u64::from(which) + 1)),
                    3 => BudgetScope::User("me".into()),
                    4 => BudgetScope::Tag { name: "team".into(), value: "red".into() },
                    _ => BudgetScope::Job {
                        workspace: WorkspaceId(1),
                        name: format!("job-{}", which + 1).into(),
                    },
                };
                let name: Arc<str> = format!("budget-{which}").into();
                let fresh = self.state.budget(&name).is_none();
                self.command(Command::PutBudget(PutBudget {
                    name,
                    scope: Some(scope).filter(|_| fresh),
                    amount: Some(MicroUsd(amount)),
                    every: Some(if day { Every::Day } else { Every::Total }).filter(|_| fresh),
                    at_cap: None,
                    thresholds: None,
                    by: "me".into(),
                    problems: vec![],
                }));
            }
            Step::DeleteBudget { which } => {
                if let Some(budget) = self.state.budget(&format!("budget-{which}")).map(|budget| budget.id) {
                    self.command(Command::DeleteBudget { budget });
                }
            }
            Step::Drain => self.command(Command::Drain { deadline: self.now.plus(10_000) }),
            Step::Restart => {
                self.dirty = Dirty::all(&self.state);
                let mut settings = settings();
                // Now the provider binds, and now the location.
                let place = match self.now.0 % 3 {
                    0 => Place { nodes_max: Some(4), ..Place::default() },
                    1 => Place { cores_max: Some(14), ..Place::default() },
                    _ => Place::default(),
                };
                settings.places = Arc::new([("westus".into(), place)].into());
                self.command(Command::Start { release: "test".into(), settings });
            }
            Step::Wait { ms } => self.wait(ms.into()),
        }
    }

    /// A kind world: nodes come up, attempts end well, removals are confirmed, time passes.
    fn be_kind(&mut self) {
        for which in 0..4 {
            self.take(Step::DeleteBudget { which });
        }
        self.command(Command::Start { release: "test".into(), settings: settings() });
        for _ in 0..400 {
            let nodes: Vec<_> = self.state.nodes.values().cloned().collect();
            for node in nodes {
                if node.cordon.is_some() && node.is_live() {
                    self.command(Command::Uncordon { node: node.id });
                }
                match node.state {
                    NodeState::Requested { .. }
                    | NodeState::Creating { .. }
                    | NodeState::Preparing { .. } => {
                        self.command(Command::Report(node_news(node.id, 2)));
                    }
                    NodeState::Leaving { .. } => self.command(Command::Report(node_news(node.id, 5))),
                    NodeState::Unusable { .. } => {}
                    NodeState::Ready if node.silent => self.command(Command::Report(node_news(node.id, 4))),
                    NodeState::Ready | NodeState::Preempted { .. } => {
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
            let driven: Vec<_> =
                self.state.families.values().filter(|f| f.kind == FamilyKind::Driven).map(|f| f.id).collect();
            for family in driven {
                self.command(Command::CloseFamily { family, outcome: Outcome::completed() });
            }
            self.wait(5_000);
        }
    }
}

/// A few tries for whatever it may end with.
fn retry() -> Arc<Retry> {
    Arc::new(Retry { exit_codes: vec![1, 137], max: 2, node_lost: Some(1), preempted: None })
}

/// On a whole node.
fn job(name: &str, cluster: u8) -> SubmitJob {
    SubmitJob {
        workspace: WorkspaceId(1),
        name: name.into(),
        cluster: cluster_name(cluster),
        owner: "me".into(),
        priority: 1,
        need: Need::Whole,
        nodes: 1,
        family: None,
        tags: vec![],
        timeout_ms: None,
        retry: Some(retry()),
        document: DOCUMENT,
        meta: DOCUMENT,
        problems: vec![],
    }
}

fn cluster_name(which: u8) -> Arc<str> {
    format!("cluster-{}", (b'a' + which) as char).into()
}

/// Any shape: some of these are refused.
fn family(name: &str, steps: u8, shape: u64, go_on: bool, timeout: bool) -> SubmitFamily {
    let timeout_ms = timeout.then_some(60_000);
    let of_kind = |kind| NewMemberKind::Family { kind, timeout_ms };
    let root = match shape % 5 {
        0 => FamilyKind::Driven,
        _ => FamilyKind::Steps { go_on },
    };
    let member = |name: String, family: usize, after: Vec<usize>, what: NewMemberKind| NewMember {
        tags: vec![],
        name: name.into(),
        family,
        after,
        what,
        document: DOCUMENT,
        meta: DOCUMENT,
    };
    let mut members = vec![member(name.into(), 0, vec![], of_kind(root))];
    let mut dice = shape;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    for at in 1..=usize::from(steps) {
        let what = match roll(8) {
            0 => of_kind(FamilyKind::Driven),
            1 | 2 => of_kind(FamilyKind::Steps { go_on }),
            _ => NewMemberKind::Job {
                cluster: cluster_name(roll(3) as u8),
                priority: roll(3) as u8,
                need: Need::Whole,
                nodes: 1 + u32::from(roll(4) == 0),
                timeout_ms: None,
                retry: (roll(2) == 0).then(retry),
                work: None,
                reused: roll(6) == 0,
            },
        };
        // Mostly a family that comes before it, and what comes before it.
        let families: Vec<usize> = (0..at)
            .filter(|at| {
                matches!(members[*at].what, NewMemberKind::Family { kind: FamilyKind::Steps { .. }, .. })
            })
            .collect();
        let family = families.get(roll(families.len().max(1) as u64) as usize).copied().unwrap_or(0);
        let after = (1..at).filter(|_| roll(4) == 0).collect();
        members.push(member(format!("{name}-{at}"), family, after, what));
    }
    SubmitFamily { workspace: WorkspaceId(1), owner: "me".into(), members, problems: vec![] }
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
        // A gang that a lowered maximum keeps out holds up whoever is behind it; it can be ended.
        let stuck: Vec<_> = world.state.jobs.values().filter(|job| job.attempt().is_none()).map(|job| job.id).collect();
        for job in &stuck {
            let reasons = neap_core::explain::queue_reasons(&world.state, *job);
            prop_assert!(!reasons.is_empty(), "job {} waits for no reason", job);
        }
        let gangs = world.state.jobs.values().filter(|job| job.nodes > 1).map(|job| job.id).collect::<Vec<_>>();
        for job in gangs {
            world.command(Command::CancelJob { job, reason: "asked".into() });
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
        if world.state.clusters.values().all(|cluster| cluster.scale.max > 0) {
            prop_assert!(world.state.families.is_empty(), "families never end: {:?}", world.state.families);
            prop_assert!(world.state.waits.is_empty() && world.state.awaited.is_empty());
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against full plans: what `unblock` says would start a job does, and nothing less of it.
    #[test]
    fn what_is_said_to_unblock_a_job_does_and_nothing_less(steps in prop::collection::vec(step_of_jobs(), 1..40)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        prop_assume!(world.dirty.is_clean());
        let waiting: Vec<JobId> = world.state.jobs.values().filter(|job| job.attempt().is_none()).map(|job| job.id).collect();
        for id in waiting {
            let verdict = unblock::unblock(&world.state, id, world.now).expect("it waits");
            for set in &verdict.unblocking {
                prop_assert!(starts(&world, id, set), "job {id} does not start without {set:?}: {verdict:?}");
                for left_out in set {
                    let less: BTreeSet<Kind> = set.iter().copied().filter(|kind| kind != left_out).collect();
                    prop_assert!(!starts(&world, id, &less), "job {id} starts with {left_out:?} in force: {verdict:?}");
                }
            }
        }
    }
}

/// Lifts these for one job, and lets a kind world take its course: nodes come, nothing ends, no time passes.
fn starts(world: &World, id: JobId, lifted: &BTreeSet<Kind>) -> bool {
    let mut draft = Draft::new(world.state.clone());
    let cluster = draft.state.jobs[&id].cluster;
    let others: Vec<JobId> = draft
        .state
        .jobs
        .values()
        .filter(|job| job.id != id && job.attempt().is_none())
        .filter(|job| job.cluster != cluster || lifted.contains(&Kind::QueueOrder))
        .map(|job| job.id)
        .collect();
    for id in others {
        let outcome = Outcome::completed();
        draft.emit(world.now, JobEnded { id, attempt: None, exit: None, outcome });
    }
    let mut settings = draft.state.settings.clone();
    if lifted.contains(&Kind::Provider) {
        settings.provider.nodes_max = 1_000_000;
    }
    if lifted.contains(&Kind::Location) {
        settings.places = Arc::default();
    }
    if lifted.contains(&Kind::Draining) {
        draft.emit(world.now, ServerStarted { release: "test".into(), settings });
    } else {
        draft.state.settings = settings;
    }
    if lifted.contains(&Kind::Quota) {
        draft.state.quotas.clear();
    }
    if lifted.contains(&Kind::Lock) {
        draft.state.locks.clear();
    }
    // The other clusters stay as they are.
    for other in draft.state.clusters.keys().copied().collect::<Vec<_>>() {
        let other = Arc::make_mut(draft.state.clusters.get_mut(&other).expect("it is there"));
        if other.id != cluster {
            (other.scale.min, other.scale.max, other.boot) = (0, other.live, Default::default());
        } else {
            if lifted.contains(&Kind::Maximum) {
                other.scale.max = 60_000;
            }
            if lifted.contains(&Kind::BootBackoff) {
                other.boot = Default::default();
            }
        }
        other.scale.idle_ms = 1_000_000_000;
    }
    for _ in 0..60 {
        let mut dirty = Dirty { timers_seen: world.now, ..Dirty::all(&draft.state) };
        let before = draft.events.len();
        plan_into(&mut draft, &mut dirty, world.now);
        let coming: Vec<NodeId> = draft
            .state
            .nodes
            .values()
            .filter(|node| node.is_live() && node.state != NodeState::Ready && node.cluster == cluster)
            .map(|node| node.id)
            .collect();
        for node in coming {
            for event in
                decide(&draft.state, Command::Report(node_news(node, 2)), world.now).unwrap_or_default()
            {
                draft.emit(world.now, event);
            }
        }
        if draft.events.len() == before {
            break;
        }
    }
    draft.state.jobs.get(&id).is_some_and(|job| job.attempt().is_some())
}
