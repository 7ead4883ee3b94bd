//! One workspace, and short words for what happens in it. Time stands still unless it is told to pass.

use std::sync::Arc;

use neap_core::command::{
    AttemptNews, NewMember, NewMemberKind, PutCluster, PutWorkspace, Report, SubmitFamily, SubmitJob,
};
use neap_core::decide::decide;
use neap_core::family::{Family, FamilyKind};
use neap_core::job::{Attempt, Exit, Job, Need, Outcome, Status};
use neap_core::node::Node;
use neap_core::plan::{Dirty, plan, plan_into};
use neap_core::settings::Settings;
use neap_core::{
    AttemptId, Capacity, ClusterId, Code, Command, DocHash, Draft, Event, JobId, Millis, NodeId, Refusal,
    State, WorkspaceId, invariants,
};

pub const DOCUMENT: DocHash = DocHash([0; 32]);
pub const OTHER_DOCUMENT: DocHash = DocHash([1; 32]);
pub const WORKSPACE: WorkspaceId = WorkspaceId(1);
pub const CPU: ClusterId = ClusterId(1);
/// Of the default size.
pub const NOMINAL: Capacity = Capacity { cpus_milli: 4_000, memory_mb: 14_336, gpus: 0 };
/// A quarter of it.
pub const QUARTER: Capacity = Capacity { cpus_milli: 1_000, memory_mb: 3_584, gpus: 0 };

#[derive(Clone)]
pub struct World {
    pub state: State,
    pub now: Millis,
    pub wake_at: Option<Millis>,
    pub dirty: Dirty,
}

impl World {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    /// A server that was just started, with group `g` and workspace `ws` in `westus`.
    pub fn with(settings: Settings) -> Self {
        let mut world =
            Self { state: State::default(), now: Millis(1_000_000), wake_at: None, dirty: Dirty::default() };
        world.tell(Command::Start { release: "test".into(), settings });
        world.tell(put_group("g", "westus"));
        world.tell(put_workspace("ws"));
        world
    }

    /// With the cluster `cpu`, which keeps its idle nodes for ten seconds.
    pub fn with_cluster(min: u32, max: u32) -> Self {
        let mut world = Self::new();
        world.scale(min, max);
        world
    }

    pub fn ask(&self, command: Command) -> Result<Vec<Event>, Refusal> {
        decide(&self.state, command, self.now)
    }

    /// Why a command is refused: every code, in order.
    #[track_caller]
    pub fn refused(&self, command: Command) -> Vec<Code> {
        let refusal = self.ask(command).expect_err("it is refused");
        refusal.problems.iter().map(|problem| problem.code).collect()
    }

    /// One batch: what was decided, then what was planned.
    #[track_caller]
    pub fn tell(&mut self, command: Command) -> Vec<Event> {
        self.batch([command])
    }

    /// Several commands, planned once.
    #[track_caller]
    pub fn batch(&mut self, commands: impl IntoIterator<Item = Command>) -> Vec<Event> {
        let mut draft = Draft::new(self.state.clone());
        for command in commands {
            for event in decide(&draft.state, command, self.now).expect("it may happen") {
                draft.emit(self.now, event);
            }
        }
        self.plan(draft)
    }

    pub fn wait(&mut self, ms: u64) -> Vec<Event> {
        self.now = self.now.plus(ms);
        self.plan(Draft::new(self.state.clone()))
    }

    #[track_caller]
    fn plan(&mut self, mut draft: Draft) -> Vec<Event> {
        self.wake_at = plan_into(&mut draft, &mut self.dirty, self.now);
        self.state = draft.state;
        // Also where a bounded plan left something for the next one.
        assert_eq!(invariants::check(&self.state), vec![]);
        if self.dirty.is_clean() {
            let everywhere = Dirty { timers_seen: self.dirty.timers_seen, ..Dirty::all(&self.state) };
            let again = plan(&self.state, &everywhere, self.now);
            assert_eq!(again.events, vec![], "a second plan has nothing to add");
        }
        draft.events
    }

    /// Declares `cpu`, or changes it.
    pub fn scale(&mut self, min: u32, max: u32) -> Vec<Event> {
        self.tell(Command::PutCluster(PutCluster {
            min: Some(min.into()),
            max: Some(max.into()),
            idle_ms: Some(10_000),
            dedicated: None,
            ..cluster("cpu")
        }))
    }

    pub fn submit(&mut self, name: &str) -> JobId {
        self.submit_job(job(name))
    }

    pub fn submit_job(&mut self, job: SubmitJob) -> JobId {
        let id = self.state.next.job;
        self.tell(Command::SubmitJob(job));
        id
    }

    /// The family's own id; its members have the ids after it.
    #[track_caller]
    pub fn submit_family(&mut self, family: SubmitFamily) -> JobId {
        let id = self.state.next.job;
        self.tell(Command::SubmitFamily(family));
        id
    }

    pub fn family(&self, id: JobId) -> &Family {
        &self.state.families[&id]
    }

    /// Which jobs wait in the queue of `cpu`.
    pub fn queued(&self) -> Vec<u64> {
        self.cpu().queue.iter().map(|key| key.job.0).collect()
    }

    /// News of one rank of a job's current attempt, with the next number.
    #[track_caller]
    pub fn rank_news(&mut self, job: JobId, rank: usize, news: AttemptNews) -> Vec<Event> {
        let attempt = self.attempt(job).clone();
        let part = &attempt.ranks[rank];
        self.report(Report::Attempt {
            node: part.node,
            attempt: AttemptId { job, number: attempt.number },
            number: part.last_report + 1,
            news,
        })
    }

    #[track_caller]
    pub fn rank_starts(&mut self, job: JobId, rank: usize) -> Vec<Event> {
        self.rank_news(job, rank, AttemptNews::Started { facts: Default::default() })
    }

    #[track_caller]
    pub fn rank_ends(&mut self, job: JobId, rank: usize, exit: Exit) -> Vec<Event> {
        self.rank_news(job, rank, AttemptNews::Ended { exit })
    }

    pub fn report(&mut self, report: Report) -> Vec<Event> {
        self.tell(Command::Report(report))
    }

    pub fn ready(&mut self, node: u64) -> Vec<Event> {
        self.report(ready(NodeId(node)))
    }

    pub fn gone(&mut self, node: u64) -> Vec<Event> {
        self.report(gone(NodeId(node)))
    }

    pub fn report_failed(&mut self, node: u64) -> Vec<Event> {
        self.report(Report::NodeFailed { node: NodeId(node), reason: "no room".into() })
    }

    /// News of a job's current attempt, with the next number.
    pub fn news(&mut self, job: JobId, news: AttemptNews) -> Vec<Event> {
        let attempt = self.attempt(job).clone();
        self.report(Report::Attempt {
            node: attempt.node,
            attempt: AttemptId { job, number: attempt.number },
            number: attempt.last_report + 1,
            news,
        })
    }

    pub fn start(&mut self, job: JobId) -> Vec<Event> {
        self.news(job, AttemptNews::Started { facts: Default::default() })
    }

    pub fn end(&mut self, job: JobId, exit: Exit) -> Vec<Event> {
        self.news(job, AttemptNews::Ended { exit })
    }

    pub fn node(&self, id: u64) -> &Node {
        &self.state.nodes[&NodeId(id)]
    }

    pub fn job(&self, id: JobId) -> &Job {
        &self.state.jobs[&id]
    }

    #[track_caller]
    pub fn attempt(&self, id: JobId) -> &Attempt {
        self.job(id).attempt().expect("the job has an attempt")
    }

    pub fn cpu(&self) -> &neap_core::cluster::Cluster {
        &self.state.clusters[&CPU]
    }
}

pub fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

pub fn put_group(name: &str, location: &str) -> Command {
    Command::PutGroup {
        subscription: "s".into(),
        name: name.into(),
        location: location.into(),
        document: DOCUMENT,
    }
}

pub fn workspace(name: &str) -> PutWorkspace {
    PutWorkspace {
        subscription: "s".into(),
        group: "g".into(),
        name: name.into(),
        location: Some("westus".into()),
        document: DOCUMENT,
        problems: vec![],
    }
}

pub fn put_workspace(name: &str) -> Command {
    Command::PutWorkspace(workspace(name))
}

/// With every setting left to its default.
pub fn cluster(name: &str) -> PutCluster {
    PutCluster {
        workspace: WORKSPACE,
        name: name.into(),
        location: None,
        size: None,
        tier: None,
        network: None,
        reference: None,
        min: None,
        max: None,
        idle_ms: None,
        dedicated: None,
        document: DOCUMENT,
        problems: vec![],
    }
}

/// On a whole node of `cpu`.
pub fn job(name: &str) -> SubmitJob {
    SubmitJob {
        workspace: WORKSPACE,
        name: name.into(),
        cluster: "cpu".into(),
        owner: "me".into(),
        priority: 1,
        need: Need::Whole,
        nodes: 1,
        family: None,
        tags: vec![],
        timeout_ms: None,
        retry: None,
        like: None,
        tier: Default::default(),
        document: DOCUMENT,
        meta: OTHER_DOCUMENT,
        problems: vec![],
    }
}

pub fn share(name: &str, share: Capacity) -> SubmitJob {
    SubmitJob { need: Need::Share(share), ..job(name) }
}

/// On several whole nodes of `cpu`.
pub fn gang(name: &str, nodes: u32) -> SubmitJob {
    SubmitJob { nodes, ..job(name) }
}

/// A family that is alone so far.
pub fn family(name: &str, kind: FamilyKind) -> SubmitFamily {
    let what = NewMemberKind::Family { kind, timeout_ms: None };
    SubmitFamily {
        workspace: WORKSPACE,
        owner: "me".into(),
        members: vec![member(name, 0, &[], what)],
        problems: vec![],
    }
}

/// A pipeline of jobs, each with where in the list those are that it waits for; the first of them is at 1.
pub fn pipeline(name: &str, go_on: bool, steps: &[(&str, &[usize])]) -> SubmitFamily {
    let mut pipeline = family(name, FamilyKind::Steps { go_on });
    pipeline.members.extend(steps.iter().map(|(name, after)| member(name, 0, after, step())));
    pipeline
}

pub fn member(name: &str, family: usize, after: &[usize], what: NewMemberKind) -> NewMember {
    NewMember {
        name: name.into(),
        family,
        after: after.to_vec(),
        what,
        tags: vec![],
        document: DOCUMENT,
        meta: OTHER_DOCUMENT,
    }
}

/// A whole node of `cpu`.
pub fn step() -> NewMemberKind {
    NewMemberKind::Job {
        cluster: "cpu".into(),
        priority: 1,
        need: Need::Whole,
        nodes: 1,
        timeout_ms: None,
        retry: None,
        like: None,
        tier: Default::default(),
        work: None,
        reused: false,
    }
}

/// What ended, as what, with Azure's word for why.
pub fn ends(events: &[Event]) -> Vec<(u64, Status, String)> {
    let code = |outcome: &Outcome| outcome.failure.as_ref().map_or(String::new(), |f| f.code.to_string());
    events
        .iter()
        .filter_map(|event| match event {
            Event::JobEnded(e) => Some((e.id.0, e.outcome.status, code(&e.outcome))),
            _ => None,
        })
        .collect()
}

/// Why one of them ended, in words.
#[track_caller]
pub fn message(events: &[Event], id: JobId) -> String {
    let of = |event: &Event| match event {
        Event::JobEnded(e) if e.id == id => e.outcome.failure.as_ref().map(|f| f.message.to_string()),
        _ => None,
    };
    events.iter().find_map(of).expect("it ended, and not well")
}

pub fn cancel(job: JobId) -> Command {
    Command::CancelJob { job, reason: "not wanted".into() }
}

pub fn ready(node: NodeId) -> Report {
    Report::NodeReady { node, actual: NOMINAL, isolation: "pid".into() }
}

pub fn gone(node: NodeId) -> Report {
    Report::NodeGone { node, reason: reason() }
}

/// Why nodes go in these tests.
pub fn reason() -> Arc<str> {
    "it went".into()
}

/// The words for what happened, in order.
pub fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::kind).collect()
}
