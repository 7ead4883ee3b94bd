//! The people: they submit, ask again when they heard nothing, change their minds, and remember what they were told.

use std::collections::BTreeMap;
use std::sync::Arc;

use neap_control::Accepted;
use neap_core::command::{PutCluster, PutWorkspace, SubmitJob};
use neap_core::job::Need;
use neap_core::problem::Code;
use neap_core::{Capacity, Command, DocHash, Event, JobId, Refusal, WorkspaceId};
use neap_protocol::{Exit, FailureClass};

use crate::rng::Rng;
use crate::server::Reply;
use crate::world::{Happening, World};

const DOCUMENT: DocHash = DocHash([0; 32]);
const WORKSPACE: WorkspaceId = WorkspaceId(1);
const CLUSTERS: [&str; 2] = ["red-cluster", "blue-cluster"];
const JOBS_MAX: usize = 24;

#[derive(Debug)]
pub(crate) struct Users {
    jobs: BTreeMap<Arc<str>, Wish>,
    /// The workspace is there.
    settled: bool,
    jobs_max: usize,
    calm: bool,
}

/// A job somebody wants, and what they know of it.
#[derive(Clone, Debug)]
struct Wish {
    cluster: &'static str,
    priority: u8,
    need: Need,
    timeout_ms: Option<u64>,
    program: Program,
    /// A submit is under way.
    asked: bool,
    /// The server said so.
    known: Option<JobId>,
    refused: bool,
    cancelled: bool,
}

/// What a job does when it runs.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub prepare_ms: u64,
    pub run_ms: u64,
    pub timeout_ms: u64,
    pub exit: Exit,
    pub log_bytes: u64,
    /// Ends soon when it is asked to.
    pub obeys: bool,
    pub started_at: u64,
}

impl Program {
    pub fn prepare_fails(&self) -> Option<Exit> {
        matches!(self.exit, Exit::PrepareFailed { .. }).then(|| self.exit.clone())
    }
}

/// What an answer is about.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Place,
    Submit { name: Arc<str> },
    Cancel { name: Arc<str> },
    Cluster,
}

impl Users {
    pub fn new(rng: &mut Rng) -> Self {
        let jobs_max = rng.between(4, JOBS_MAX as u64) as usize;
        Self { jobs: BTreeMap::new(), settled: false, jobs_max, calm: false }
    }

    pub fn program(&self, name: &str) -> Program {
        match self.jobs.get(name) {
            Some(wish) => wish.program.clone(),
            None => Program {
                prepare_ms: 1,
                run_ms: 1,
                timeout_ms: u64::MAX,
                exit: Exit::Success,
                log_bytes: 0,
                obeys: true,
                started_at: 0,
            },
        }
    }

    /// Nobody knows what became of what was under way.
    pub fn server_is_gone(&mut self) {
        for wish in self.jobs.values_mut() {
            wish.asked = false;
        }
    }
}

impl Wish {
    fn any(rng: &mut Rng) -> Self {
        let share = Capacity { cpus_milli: 1_000, memory_mb: 1_000, gpus: 0 };
        let endless = rng.once_in(10);
        let run_ms = if endless { u64::MAX / 4 } else { rng.between(0, 25_000) };
        let timeout_ms = rng.once_in(5).then(|| rng.between(1_000, 20_000));
        let exit = match rng.below(12) {
            0 => Exit::Code { code: 3 },
            1 => Exit::OutOfMemory { limit_mb: 5 },
            2 => Exit::PrepareFailed { class: FailureClass::System, message: "no room".into() },
            3 => Exit::PrepareFailed { class: FailureClass::InputData, message: "no input".into() },
            _ => Exit::Success,
        };
        let program = Program {
            prepare_ms: rng.between(1, 400),
            run_ms,
            timeout_ms: timeout_ms.unwrap_or(u64::MAX),
            exit,
            log_bytes: rng.below(40),
            obeys: !rng.once_in(4),
            started_at: 0,
        };
        Self {
            cluster: if rng.once_in(2) { CLUSTERS[0] } else { CLUSTERS[1] },
            priority: rng.below(3) as u8,
            need: if rng.once_in(2) { Need::Whole } else { Need::Share(share) },
            timeout_ms,
            program,
            asked: false,
            known: None,
            refused: false,
            cancelled: false,
        }
    }
}

impl World {
    /// A server is there: the people go on where they were.
    pub fn users_find_a_server(&mut self) {
        if !self.users.settled {
            self.ask(
                Command::PutGroup {
                    subscription: "s".into(),
                    name: "g".into(),
                    location: "westus".into(),
                    document: DOCUMENT,
                },
                Request::Place,
            );
            self.ask(
                Command::PutWorkspace(PutWorkspace {
                    subscription: "s".into(),
                    group: "g".into(),
                    name: "space".into(),
                    location: Some("westus".into()),
                    document: DOCUMENT,
                    problems: Vec::new(),
                }),
                Request::Place,
            );
            for cluster in CLUSTERS {
                self.put_cluster(cluster);
            }
        }
        if self.users.calm {
            self.users_become_calm();
        }
    }

    fn ask(&mut self, command: Command, request: Request) {
        if self.server.as_ref().is_some_and(|server| server.serving) {
            self.tell(format_args!("user"), || format!("asks: {command:?}").chars().take(170).collect());
            self.offer(command, Reply::User(request));
        }
    }

    pub fn user_acts(&mut self) {
        let wait = if self.calm { 4_000 } else { self.rng.between(20, 1_500) };
        self.after(wait, Happening::UserActs);
        if self.calm {
            return self.users_become_calm();
        }
        match self.rng.below(20) {
            0..10 => {
                if self.users.jobs.len() < self.users.jobs_max {
                    let name: Arc<str> = format!("job-{}", self.users.jobs.len() + 1).into();
                    let wish = Wish::any(&mut self.rng);
                    self.users.jobs.insert(name.clone(), wish);
                    self.submit(name);
                }
            }
            10..14 => {
                let unsure: Vec<_> =
                    self.users.jobs.iter().filter(|(_, w)| !w.asked).map(|(n, _)| n).collect();
                let at = self.rng.below(unsure.len() as u64) as usize;
                if let Some(name) = unsure.get(at).copied().cloned() {
                    self.submit(name);
                }
            }
            14..16 => {
                let names: Vec<Arc<str>> = self.users.jobs.keys().cloned().collect();
                let at = self.rng.below(names.len() as u64) as usize;
                if let Some(name) = names.get(at) {
                    self.cancel(name.clone());
                }
            }
            16..19 => {
                let cluster = self.rng.pick(&CLUSTERS).unwrap_or(CLUSTERS[0]);
                self.put_cluster(cluster);
            }
            _ => {
                if let Some(cluster) = self.rng.pick(&CLUSTERS)
                    && self.rng.once_in(3)
                    && let Some(server) = &self.server
                    && let Some(found) = server.machine.state().cluster(WORKSPACE, cluster)
                {
                    let cluster = found.id;
                    self.ask(
                        Command::DeleteCluster { cluster, reason: "not needed".into() },
                        Request::Cluster,
                    );
                }
            }
        }
    }

    fn submit(&mut self, name: Arc<str>) {
        if !self.server.as_ref().is_some_and(|server| server.serving) {
            return;
        }
        let Some(wish) = self.users.jobs.get_mut(&name) else { return };
        wish.asked = true;
        let submit = SubmitJob {
            workspace: WORKSPACE,
            name: name.clone(),
            cluster: wish.cluster.into(),
            owner: "user".into(),
            priority: wish.priority,
            need: wish.need,
            nodes: 1,
            family: None,
            timeout_ms: wish.timeout_ms,
            document: DOCUMENT,
            meta: DOCUMENT,
            problems: Vec::new(),
        };
        self.ask(Command::SubmitJob(submit), Request::Submit { name });
    }

    fn cancel(&mut self, name: Arc<str>) {
        let Some(job) = self.users.jobs.get(&name).and_then(|wish| wish.known) else { return };
        self.ask(Command::CancelJob { job, reason: "changed my mind".into() }, Request::Cancel { name });
    }

    fn put_cluster(&mut self, name: &'static str) {
        let max = if self.calm { 2 } else { self.rng.between(0, 3) };
        let min = self.rng.below(max.min(2) + 1);
        let min = if self.calm { min.min(1) } else { min };
        let put = PutCluster {
            workspace: WORKSPACE,
            name: name.into(),
            location: None,
            size: None,
            tier: None,
            min: Some(min as i64),
            max: Some(max as i64),
            idle_ms: Some(self.rng.between(0, 12_000) as i64),
            document: DOCUMENT,
            problems: Vec::new(),
        };
        self.ask(Command::PutCluster(put), Request::Cluster);
    }

    /// Everything that waits gets room, and what would run for ever is ended.
    pub fn users_become_calm(&mut self) {
        self.users.calm = true;
        let small: Vec<&'static str> = CLUSTERS
            .into_iter()
            .filter(|name| {
                let state = self.server.as_ref().map(|server| server.machine.state());
                let found = state.and_then(|s| s.cluster(WORKSPACE, name));
                found.is_some_and(|c| !c.is_deleting() && (c.scale.max < 2 || c.scale.min > 1))
            })
            .collect();
        for name in small {
            self.put_cluster(name);
        }
        for (name, wish) in &mut self.users.jobs {
            wish.known = wish.known.or_else(|| self.disk.shadow.job_named(WORKSPACE, name));
        }
        let endless: Vec<Arc<str>> = self
            .users
            .jobs
            .iter()
            .filter(|(_, w)| w.program.run_ms > 1_000_000 && w.known.is_some() && !w.cancelled)
            .map(|(name, _)| name.clone())
            .collect();
        for name in endless {
            self.cancel(name);
        }
    }

    pub fn user_answered(&mut self, request: Request, answer: Result<Accepted, Refusal>) {
        match request {
            Request::Place => self.users.settled |= answer.is_ok(),
            Request::Cluster => {}
            Request::Cancel { name } => {
                let final_or_ok = match &answer {
                    Ok(_) => true,
                    Err(refusal) => refusal.code() == Code::JobAlreadyFinal,
                };
                if let Some(wish) = self.users.jobs.get_mut(&name) {
                    wish.cancelled |= final_or_ok;
                }
            }
            Request::Submit { name } => self.submit_answered(&name, answer),
        }
    }

    fn submit_answered(&mut self, name: &Arc<str>, answer: Result<Accepted, Refusal>) {
        let Some(wish) = self.users.jobs.get_mut(name) else { return };
        wish.asked = false;
        match answer {
            Ok(accepted) => {
                let id = accepted.events.iter().find_map(|event| match event {
                    Event::JobSubmitted(e) => Some(e.id),
                    _ => None,
                });
                let before = wish.known;
                wish.known = wish.known.or(id);
                if let Some(id) = id {
                    self.checks.acknowledged.insert(id);
                    if before.is_some_and(|known| known != id) {
                        self.broken("J1", format!("'{name}' was accepted twice"));
                    }
                }
            }
            // It is there: an earlier word of ours was heard after all.
            Err(refusal) if refusal.code() == Code::JobNameTaken => {
                let found = self.disk.shadow.job_named(WORKSPACE, name);
                let Some(wish) = self.users.jobs.get_mut(name) else { return };
                wish.known = wish.known.or(found);
            }
            Err(refusal) => wish.refused = !neap_control::conversation::comes_again(&refusal),
        }
    }
}
