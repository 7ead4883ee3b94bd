//! Courses of events as a control plane could have written them, made from a list of small numbers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use neap_core::cluster::{Scale, Shape, Tier};
use neap_core::event::*;
use neap_core::job::{AttemptFacts, Class, Exit, Job, JobState, Need, Outcome, Phase, Status, StopReason};
use neap_core::node::NodeState;
use neap_core::settings::Settings;
use neap_core::{
    Capacity, ClusterId, DocHash, Event, JobId, MicroUsd, Millis, NodeId, State, WorkspaceId, apply, meter,
};
use neap_ledger::{Batch, Document, Entry, Ledger, Opened, Options};

pub const WORKSPACE: WorkspaceId = WorkspaceId(1);
pub const CLUSTER: ClusterId = ClusterId(1);
const NODE: Capacity = Capacity { cpus_milli: 4_000, memory_mb: 14_336, gpus: 0 };

/// The state that the events so far come to, and what is not yet in the log.
#[derive(Default)]
pub struct Story {
    pub state: State,
    pub batch: Batch,
    pub erasable: Vec<DocHash>,
    pub ended: Vec<JobId>,
    pub assets: u64,
}

impl Story {
    /// A server, a workspace and a cluster of up to 64 nodes.
    pub fn begin() -> Self {
        let mut story = Self::default();
        story.tell(ServerStarted { release: "0.1.0".into(), settings: Settings::default() });
        let document = story.document("group");
        story.tell(GroupPut {
            subscription: "s".into(),
            name: "neap".into(),
            location: "eastus".into(),
            document,
        });
        let document = story.document("workspace");
        story.tell(WorkspaceCreated {
            id: WORKSPACE,
            subscription: "s".into(),
            group: "neap".into(),
            name: "default".into(),
            location: "eastus".into(),
            document,
        });
        let document = story.document("cluster");
        story.tell(ClusterCreated {
            id: CLUSTER,
            workspace: WORKSPACE,
            name: "Cpu".into(),
            location: "eastus".into(),
            shape: Shape {
                size: "STANDARD_DS3_V2".into(),
                family: "standardDSv2Family".into(),
                nominal: NODE,
                tier: Tier::Dedicated,
                price: MicroUsd(229_000),
            },
            network: None,
            scale: Scale { min: 0, max: 64, idle_ms: 120_000 },
            floor: None,
            document,
            reference: None,
        });
        story
    }

    pub fn now(&self) -> Millis {
        self.state.now
    }

    pub fn tell(&mut self, event: impl Into<Event>) {
        let (at, event) = (self.state.now.plus(1), event.into());
        let postings = meter::postings(&self.state, at, &event);
        apply::apply(&mut self.state, at, &event);
        self.batch.entries.push(Entry { at, actor: "tester".into(), event, postings });
    }

    pub fn document(&mut self, text: &str) -> DocHash {
        let document = Document::new(text.as_bytes().to_vec()).unwrap();
        let hash = document.hash;
        self.batch.documents.push(document);
        hash
    }

    pub fn submit(&mut self) -> JobId {
        let id = self.state.next.job;
        let (document, meta) = (self.document("command"), self.document("tags"));
        self.erasable.push(document);
        self.tell(JobSubmitted {
            tags: vec![],
            id,
            workspace: WORKSPACE,
            cluster: CLUSTER,
            name: format!("Job-{id}").into(),
            owner: "me".into(),
            priority: 100,
            need: Need::Whole,
            nodes: 1,
            family: None,
            after: Vec::new(),
            work: None,
            timeout_ms: None,
            retry: None,
            like: None,
            tier: Default::default(),
            document,
            meta,
        });
        id
    }

    /// Writes what was told since the last time.
    pub fn commit(&mut self, ledger: &mut Ledger) {
        let batch = std::mem::take(&mut self.batch);
        ledger.append(self.now(), &batch).unwrap();
    }

    /// One step of some kind; nothing if the state has nothing it could happen to.
    pub fn step(&mut self, choice: u8) {
        let queued = |job: &&Arc<Job>| matches!(job.state, JobState::Queued { .. }) && job.cancel.is_none();
        let in_phase = |phase: Phase| {
            let jobs = self.state.jobs.values();
            jobs.filter_map(|job| Some((job.id, job.attempt()?)))
                .find(|(_, a)| a.phase == phase)
                .map(|(id, a)| (id, a.number))
        };
        let active = self.state.jobs.values().find_map(|job| job.attempt_id());
        let next_job = self.state.jobs.values().find(queued).map(|job| (job.id, job.attempts_made + 1));
        let idle = self.state.nodes.values().find(|node| node.is_idle()).map(|node| node.id);
        let deadline = self.now().plus(60_000);
        match choice % 20 {
            0..=2 => {
                self.submit();
            }
            3 if self.state.nodes.len() < 8 => {
                let id = self.state.next.node;
                self.tell(NodeRequested {
                    id,
                    cluster: CLUSTER,
                    nominal: NODE,
                    shape: None,
                    lease: None,
                    cause: None,
                    deadline,
                    reason: "work waits".into(),
                });
            }
            4 | 5 => self.advance_node(deadline),
            6 | 7 => {
                if let (Some((id, attempt)), Some(node)) = (next_job, idle) {
                    self.tell(JobPlaced { id, attempt, node, others: Vec::new(), until: None });
                }
            }
            8 | 9 => {
                if let Some((id, attempt)) = in_phase(Phase::Assigned) {
                    let facts: AttemptFacts = BTreeMap::from([("isolation".into(), "none".into())]);
                    self.tell(AttemptStarted { id, attempt, report: 1, run_deadline: Some(deadline), facts });
                }
            }
            10 => {
                if let Some((id, attempt)) = in_phase(Phase::Running) {
                    let facts: AttemptFacts =
                        BTreeMap::from([("neap.gpu.utilization".into(), "37.5".into())]);
                    self.tell(AttemptMeasured { id, attempt, rank: None, report: 2, facts });
                    self.tell(AttemptFinalizing { id, attempt, report: 3 });
                }
            }
            11 => {
                if let Some((id, attempt)) = in_phase(Phase::Finalizing) {
                    self.end(id, attempt, Exit::Success, Outcome::completed());
                }
            }
            12 => {
                if let Some((id, attempt)) = in_phase(Phase::Running) {
                    let outcome = Outcome::failed(Class::UserCode, "UserError", "exit code 3", "see the log");
                    self.end(id, attempt, Exit::Code { code: 3 }, outcome);
                }
            }
            13 => {
                if let Some(attempt) = active {
                    let (id, attempt) = (attempt.job, attempt.number);
                    self.tell(JobRequeued {
                        id,
                        attempt,
                        reason: "node lost".into(),
                        cause: neap_core::job::Cause::NodeLost,
                    });
                }
            }
            14 => self.cancel(),
            15 => {
                let meta = self.document("new tags");
                if let Some(id) = self.state.jobs.keys().next().copied() {
                    self.tell(JobUpdated { id, meta, archived: choice >= 128 });
                }
            }
            16 => {
                self.assets += 1;
                let document = self.document("asset");
                let (name, version) = (format!("code-{}", self.assets % 3), format!("{}", self.assets / 5));
                self.tell(AssetPut {
                    workspace: WORKSPACE,
                    kind: "codes".into(),
                    name: name.into(),
                    version: version.into(),
                    document,
                    content: Some(format!("content-{}", self.assets).into()),
                });
            }
            17 => {
                if let Some(document) = self.erasable.pop() {
                    self.tell(DocumentErased { document });
                }
            }
            18 => {
                if let Some(id) = idle {
                    self.tell(NodeLeaving { id, deadline, reason: "idle too long".into() });
                }
            }
            19 => {
                if let Some(id) = self.ended.pop() {
                    self.tell(JobDeleted { id });
                }
            }
            _ => {}
        }
    }

    fn advance_node(&mut self, deadline: Millis) {
        let moving = |node: &NodeState| !matches!(node, NodeState::Ready);
        let Some((id, state)) = self.state.nodes.values().find(|n| moving(&n.state)).map(|n| (n.id, n.state))
        else {
            return;
        };
        match state {
            NodeState::Requested { .. } => self.tell(NodeCreating { id, deadline }),
            NodeState::Creating { .. } => self.tell(NodePreparing { id, deadline }),
            NodeState::Preparing { .. } => {
                self.tell(NodeReady { id, actual: NODE, isolation: "cgroup".into() });
            }
            NodeState::Leaving { .. } | NodeState::Unusable { .. } | NodeState::Preempted { .. } => {
                self.tell(NodeGone { id, reason: "removed".into() });
            }
            NodeState::Ready => {}
        }
    }

    fn cancel(&mut self) {
        let Some(id) = self.state.jobs.values().find(|job| job.cancel.is_none()).map(|job| job.id) else {
            return;
        };
        self.tell(JobCancelRequested { id, reason: "asked by me".into() });
        let attempt = self.state.jobs.get(&id).and_then(|job| job.attempt_id());
        let outcome = Outcome::canceled(Class::UserCode, "Canceled", "asked by me", "submit it again");
        assert_eq!(outcome.status, Status::Canceled);
        match attempt {
            None => self.tell(JobEnded { id, attempt: None, exit: None, outcome }),
            Some(attempt) => {
                let deadline = self.now().plus(5_000);
                self.tell(AttemptStopRequested {
                    reason: None,
                    id,
                    attempt: attempt.number,
                    why: StopReason::Cancel,
                    deadline,
                });
                self.end(id, attempt.number, Exit::Stopped, outcome);
            }
        }
    }

    fn end(&mut self, id: JobId, attempt: u32, exit: Exit, outcome: Outcome) {
        self.tell(JobEnded { id, attempt: Some(attempt), exit: Some(exit), outcome });
        self.ended.push(id);
    }
}

pub fn open(dir: &Path) -> Opened {
    Ledger::open(dir, Options::default()).unwrap()
}

/// A log of a few hundred events in small batches, closed.
pub fn write_log(dir: &Path, steps: usize) -> Story {
    let mut opened = open(dir);
    let mut story = Story::begin();
    story.commit(&mut opened.ledger);
    for step in 0..steps {
        story.step((step * 7 + step / 11) as u8);
        if step % 5 == 0 {
            story.commit(&mut opened.ledger);
        }
    }
    story.commit(&mut opened.ledger);
    story
}

pub fn node(id: u64) -> NodeId {
    NodeId(id)
}
