//! A world of the pure core alone: every batch is decided, applied event by event with every check, planned and checked again.

use std::sync::Arc;

use neap_core::allowance::{Allowance, AllowanceKey, Who, Within};
use neap_core::budget::{BudgetScope, Every, tag_label};
use neap_core::command::{
    AttemptNews, PutBudget, PutCluster, PutLock, PutWindow, PutWorkspace, RemakeCluster, Report, SubmitJob,
};
use neap_core::decide::decide;
use neap_core::family::FamilyKind;
use neap_core::invariants::{self, History, Violation};
use neap_core::job::{Exit, Need, Outcome};
use neap_core::location::Place;
use neap_core::lock::{LockLevel, LockScope};
use neap_core::node::NodeState;
use neap_core::plan::{Dirty, plan, plan_into};
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::state::GroupKey;
use neap_core::window::Span;
use neap_core::{
    AttemptId, Capacity, ClusterId, Command, Draft, JobId, MicroUsd, Millis, NodeId, State, WorkspaceId,
};

use crate::steps::{DOCUMENT, Step, attempt_news, cluster_name, family, job, node_news, settings, tier};

pub struct World {
    pub state: State,
    pub dirty: Dirty,
    history: History,
    pub now: Millis,
    jobs: u64,
}

impl World {
    pub fn new() -> Self {
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
    pub fn command(&mut self, command: Command) {
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

    pub fn wait(&mut self, ms: u64) {
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
            let added: Vec<_> = again
                .events
                .into_iter()
                .filter(|event| !invariants::is_told_later(&self.state, event, self.now))
                .collect();
            assert_eq!(added, vec![], "a second plan has nothing to add");
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

    fn cluster(&self, which: u8) -> Option<ClusterId> {
        self.state.cluster(WorkspaceId(1), &cluster_name(which)).map(|cluster| cluster.id)
    }

    pub fn take(&mut self, step: Step) {
        match step {
            Step::PutCluster { which, min, max, idle_s, dedicated } => {
                self.command(Command::PutCluster(PutCluster {
                    workspace: WorkspaceId(1),
                    name: format!("cluster-{}", (b'a' + which) as char).into(),
                    location: None,
                    size: None,
                    tier: (which > 0).then(|| "LowPriority".into()),
                    network: None,
                    reference: None,
                    min: Some(min.into()),
                    max: Some(max.into()),
                    idle_ms: Some(i64::from(idle_s) * 1000),
                    dedicated: (which > 0 && dedicated <= max).then_some(dedicated.into()),
                    document: DOCUMENT,
                    problems: vec![],
                }));
            }
            Step::DeleteCluster { which } => {
                let name = format!("cluster-{}", (b'a' + which) as char);
                if let Some(cluster) = self.state.cluster(WorkspaceId(1), &name) {
                    let cluster = cluster.id;
                    self.command(Command::DeleteCluster { cluster, reason: "asked".into() });
                }
            }
            Step::Submit { cluster, share, timeout, priority, tier } => {
                let name = self.name();
                let need = if share {
                    Need::Share(Capacity { cpus_milli: 1500, memory_mb: 1000, gpus: 0 })
                } else {
                    Need::Whole
                };
                let timeout_ms = timeout.then_some(5_000);
                self.command(Command::SubmitJob(SubmitJob {
                    priority,
                    tier: self::tier(tier),
                    need,
                    timeout_ms,
                    tags: if share { vec![tag_label("team", "red")] } else { vec![] },
                    ..job(&name, cluster)
                }));
            }
            Step::SubmitGang { cluster, nodes, timeout, tier } => {
                let name = self.name();
                self.command(Command::SubmitJob(SubmitJob {
                    nodes: nodes.into(),
                    tier: self::tier(tier),
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
            Step::Allow { jobs, each } => {
                let within = Within::Workspace(WorkspaceId(1));
                let who = if each { Who::EachUser } else { Who::User("me".into()) };
                let allowance = (jobs < 9).then_some(Allowance { jobs: Some(jobs.into()), cores: None });
                let key = AllowanceKey { within, who };
                self.command(Command::SetAllowance { key, allowance, by: "me".into() });
            }
            Step::PutWindow { which, name, min, max, from_s, lasts_s, stops } => {
                let Some(cluster) = self.cluster(which) else { return };
                let from = self.now.plus(u64::from(from_s) * 1_000);
                let span = |from: Millis| Span {
                    from,
                    until: from.plus(u64::from(lasts_s) * 1_000),
                    offsets: (0, 0),
                };
                self.command(Command::PutWindow(PutWindow {
                    cluster,
                    name: format!("window-{name}").into(),
                    enabled: lasts_s % 8 != 0,
                    min: min.map(Into::into),
                    max: (max < 3 || min.is_none()).then_some(max.into()),
                    stops,
                    zone: "UTC".into(),
                    spans: vec![span(from), span(from.plus(300_000))],
                    refill_at: None,
                    document: DOCUMENT,
                    by: "me".into(),
                    problems: vec![],
                }));
            }
            Step::DeleteWindow { which, name } => {
                let Some(cluster) = self.cluster(which) else { return };
                self.command(Command::DeleteWindow { cluster, name: format!("window-{name}").into() });
            }
            Step::Remake { which, size } => {
                let Some(cluster) = self.cluster(which).and_then(|id| self.state.clusters.get(&id)) else {
                    return;
                };
                let size = ["Standard_DS3_v2", "Standard_DS2_v2", "Standard_DS4_v2"].get(usize::from(size));
                let put = PutCluster {
                    workspace: WorkspaceId(1),
                    name: cluster.name.clone(),
                    location: None,
                    size: size.map(|size| (*size).into()),
                    tier: None,
                    network: None,
                    reference: None,
                    min: Some(cluster.declared.min.into()),
                    max: Some(cluster.declared.max.into()),
                    idle_ms: i64::try_from(cluster.declared.idle_ms).ok(),
                    dedicated: None,
                    document: DOCUMENT,
                    problems: vec![],
                };
                // Without a size it is the login that changes.
                let make = size.is_none().then(|| format!("login-{}", cluster.revision).into());
                self.command(Command::RemakeCluster(RemakeCluster { put, make }));
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
    pub fn be_kind(&mut self) {
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

#[track_caller]
fn expect_none(violations: &[Violation]) {
    assert!(
        violations.is_empty(),
        "{}",
        violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    );
}
