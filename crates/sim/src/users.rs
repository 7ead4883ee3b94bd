//! The people: they submit, ask again when they heard nothing, change their minds, and remember what they were told.

use std::collections::BTreeMap;
use std::sync::Arc;

use neap_control::Accepted;
use neap_core::cluster::Tier;
use neap_core::command::{NewMember, PutCluster, PutWorkspace, SubmitFamily, SubmitJob};
use neap_core::job::{Need, Retry};
use neap_core::mix::TierChoice;
use neap_core::problem::Code;
use neap_core::{Capacity, Command, DocHash, Event, JobId, Refusal, WorkspaceId};
use neap_protocol::{Exit, FailureClass, Ranks};

use crate::families::Subjects;
use crate::rng::Rng;
use crate::server::{Reply, nodes_there};
use crate::world::{Happening, World};

pub(crate) const DOCUMENT: DocHash = DocHash([0; 32]);
pub(crate) const WORKSPACE: WorkspaceId = WorkspaceId(1);
pub(crate) const SUBSCRIPTION: &str = "s";
pub(crate) const GROUP: &str = "g";
pub(crate) const CLUSTERS: [&str; 2] = ["red-cluster", "blue-cluster"];
const JOBS_MAX: usize = 24;

#[derive(Debug)]
pub(crate) struct Users {
    jobs: BTreeMap<Arc<str>, Wish>,
    /// What the members of families do.
    parts: BTreeMap<Arc<str>, Program>,
    /// Chance of its own, so that worlds without families and gangs take the course they always took.
    pub dice: Rng,
    pub subjects: Subjects,
    /// Chance of those who govern, if anybody does.
    pub law: Option<Rng>,
    /// What people change about clusters over time: windows on their scale, other sizes.
    pub habits: Option<Rng>,
    /// The second cluster has low priority above a dedicated floor, and jobs choose; how large it is, by chance.
    pub tiers: Option<Rng>,
    /// Chance of those who hold the purse, if anybody does.
    pub purse: Option<Rng>,
    pub trials: u64,
    /// The workspace is there.
    settled: bool,
    jobs_max: usize,
    calm: bool,
}

/// A job somebody wants, and what they know of it.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub cluster: &'static str,
    pub priority: u8,
    pub need: Need,
    pub timeout_ms: Option<u64>,
    nodes: u32,
    /// The whole of it, if it is a family; the first is the family itself.
    members: Vec<NewMember>,
    pub program: Program,
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
    /// Of several ranks, the one that ends as `exit` says if that is not well.
    pub bad_rank: u32,
    /// Ends soon when it is asked to.
    pub obeys: bool,
    pub started_at: u64,
}

impl Program {
    fn nothing() -> Self {
        Self {
            prepare_ms: 1,
            run_ms: 1,
            timeout_ms: u64::MAX,
            exit: Exit::Success,
            log_bytes: 0,
            bad_rank: 0,
            obeys: true,
            started_at: 0,
        }
    }

    pub fn is_endless(&self) -> bool {
        self.run_ms > 1_000_000
    }

    pub fn prepare_fails(&self) -> Option<Exit> {
        matches!(self.exit, Exit::PrepareFailed { .. }).then(|| self.exit.clone())
    }
}

/// What an answer is about.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Place,
    /// Whoever drives a family asks again when it must.
    Drive,
    Submit {
        name: Arc<str>,
    },
    Cancel {
        name: Arc<str>,
    },
    Cluster,
}

impl Users {
    pub fn new(rng: &mut Rng, seed: u64, nodes_max: u32) -> Self {
        let jobs_max = rng.between(4, JOBS_MAX as u64) as usize;
        let mut dice = Rng::new(!seed);
        let subjects = Subjects::any(&mut dice, nodes_there(nodes_max));
        Self {
            jobs: BTreeMap::new(),
            parts: BTreeMap::new(),
            subjects,
            dice,
            tiers: Some(Rng::new(seed.rotate_left(8))).filter(|_| seed % 3 == 1 && subjects.gang_max <= 1),
            habits: Some(Rng::new(seed.rotate_left(48))).filter(|_| seed % 5 < 2),
            law: Some(Rng::new(seed.rotate_left(32))).filter(|_| seed.is_multiple_of(2)),
            purse: Some(Rng::new(seed.rotate_left(16))).filter(|_| has_purse(seed)),
            trials: 0,
            settled: false,
            jobs_max,
            calm: false,
        }
    }

    /// What a job does, or one rank of it.
    pub fn program(&self, name: &str, ranks: Option<&Ranks>) -> Program {
        let found = self.jobs.get(name).map(|wish| &wish.program).or_else(|| self.parts.get(name));
        let mut program = found.cloned().unwrap_or_else(Program::nothing);
        if let Some(ranks) = ranks
            && u64::from(program.bad_rank) % ranks.nodes.len().max(1) as u64 != u64::from(ranks.rank)
        {
            program.exit = Exit::Success;
            program.run_ms = program.run_ms.saturating_add(u64::from(ranks.rank) * 300);
        }
        program
    }

    /// A member that somebody will submit, and what it does.
    pub fn add_part(&mut self, name: Arc<str>, program: Program) {
        self.parts.insert(name, program);
    }

    /// Nobody knows what became of what was under way.
    pub fn server_is_gone(&mut self) {
        for wish in self.jobs.values_mut() {
            wish.asked = false;
        }
    }
}

/// In a third of all worlds money is short.
pub(crate) const fn has_purse(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

/// What a job on a mixed cluster chooses, by its name.
fn tier_of(name: &str) -> TierChoice {
    match name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 6 {
        0 => TierChoice { only: Some(Tier::Dedicated), dedicated_after: None },
        1 => TierChoice { only: Some(Tier::LowPriority), dedicated_after: None },
        2 => TierChoice { only: None, dedicated_after: Some(1) },
        _ => TierChoice::default(),
    }
}

impl Wish {
    /// A job or a family, as far as this world knows them.
    fn of(users: &mut Users, name: &Arc<str>, rng: &mut Rng) -> Self {
        let mut wish = Self::any(rng);
        let subjects = users.subjects;
        if (subjects.pipelines || subjects.driven) && users.dice.once_in(3) {
            wish.members = users.any_family(name);
        } else if subjects.gang_max > 1 && users.dice.once_in(3) {
            wish.nodes = users.dice.between(2, subjects.gang_max.into()) as u32;
            wish.need = Need::Whole;
            wish.program.bad_rank = users.dice.below(8) as u32;
        }
        wish
    }

    /// A few tries for a program that fails; how many follows from what was drawn for other ends.
    pub fn retry(&self) -> Option<Arc<Retry>> {
        let fails = matches!(self.program.exit, Exit::Code { .. } | Exit::OutOfMemory { .. });
        let max = u32::from(self.priority);
        (fails && max > 0)
            .then(|| Arc::new(Retry { exit_codes: vec![3, 137], max, node_lost: None, preempted: None }))
    }

    pub fn any(rng: &mut Rng) -> Self {
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
            bad_rank: 0,
            obeys: !rng.once_in(4),
            started_at: 0,
        };
        Self {
            cluster: if rng.once_in(2) { CLUSTERS[0] } else { CLUSTERS[1] },
            priority: rng.below(3) as u8,
            need: if rng.once_in(2) { Need::Whole } else { Need::Share(share) },
            timeout_ms,
            nodes: 1,
            members: Vec::new(),
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
                    subscription: SUBSCRIPTION.into(),
                    name: GROUP.into(),
                    location: "westus".into(),
                    document: DOCUMENT,
                },
                Request::Place,
            );
            self.ask(
                Command::PutWorkspace(PutWorkspace {
                    subscription: SUBSCRIPTION.into(),
                    group: GROUP.into(),
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

    pub fn ask(&mut self, command: Command, request: Request) {
        if self.server.as_ref().is_some_and(|server| server.serving) {
            self.tell(format_args!("user"), || format!("asks: {command:?}").chars().take(170).collect());
            self.offer(command, Reply::User(request));
        }
    }

    pub fn user_acts(&mut self) {
        let wait = if self.calm { 4_000 } else { self.rng.between(20, 1_500) };
        self.after(wait, Happening::UserActs);
        self.drive();
        if self.calm {
            return self.users_become_calm();
        }
        self.govern();
        self.budget();
        self.change_habits();
        match self.rng.below(20) {
            0..10 => {
                if self.users.jobs.len() < self.users.jobs_max {
                    let name: Arc<str> = format!("job-{}", self.users.jobs.len() + 1).into();
                    let wish = Wish::of(&mut self.users, &name, &mut self.rng);
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
        let chooses = self.users.tiers.is_some();
        let Some(wish) = self.users.jobs.get_mut(&name) else { return };
        wish.asked = true;
        let tier =
            if chooses && wish.cluster == CLUSTERS[1] { tier_of(&name) } else { TierChoice::default() };
        if !wish.members.is_empty() {
            let submit = SubmitFamily {
                workspace: WORKSPACE,
                owner: "user".into(),
                members: wish.members.clone(),
                problems: Vec::new(),
            };
            return self.ask(Command::SubmitFamily(submit), Request::Submit { name });
        }
        let submit = SubmitJob {
            workspace: WORKSPACE,
            name: name.clone(),
            cluster: wish.cluster.into(),
            owner: "user".into(),
            priority: wish.priority,
            need: wish.need,
            nodes: wish.nodes,
            family: None,
            tags: vec![],
            timeout_ms: wish.timeout_ms,
            retry: wish.retry(),
            like: None,
            tier,
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
        let max = if self.calm { self.users.calm_max() } else { self.rng.between(0, 3) };
        let min = self.rng.below(max.min(2) + 1);
        let min = if self.calm { min.min(1) } else { min };
        let mixed = self.users.tiers.as_mut().filter(|_| name == CLUSTERS[1]);
        let max = if self.calm && mixed.is_some() { max.max(2) } else { max };
        let calm = self.calm;
        let dedicated = mixed.map(|chance| if calm { 1 } else { chance.below(max + 1) as i64 });
        let put = PutCluster {
            workspace: WORKSPACE,
            name: name.into(),
            location: None,
            size: None,
            tier: dedicated.map(|_| "low_priority".into()),
            network: None,
            reference: None,
            min: Some(min as i64),
            max: Some(max as i64),
            idle_ms: Some(self.rng.between(0, 12_000) as i64),
            dedicated,
            document: DOCUMENT,
            problems: Vec::new(),
        };
        self.ask(Command::PutCluster(put), Request::Cluster);
    }

    /// Everything that waits gets room, and what would run for ever is ended.
    pub fn users_become_calm(&mut self) {
        self.users.calm = true;
        self.lift_limits();
        let calm_max = self.users.calm_max();
        let small: Vec<&'static str> = CLUSTERS
            .into_iter()
            .filter(|name| {
                let state = self.server.as_ref().map(|server| server.machine.state());
                let found = state.and_then(|s| s.cluster(WORKSPACE, name));
                found.is_some_and(|c| {
                    let small = u64::from(c.declared.max) < calm_max || c.declared.min > 1;
                    !c.is_deleting() && (small || c.shape.tier == Tier::LowPriority)
                })
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
            .filter(|(_, w)| {
                w.members.is_empty() && w.program.is_endless() && w.known.is_some() && !w.cancelled
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in endless {
            self.cancel(name);
        }
        let parts = self.users.parts.iter().filter(|(_, program)| program.is_endless());
        let endless: Vec<JobId> = parts
            .filter_map(|(name, _)| self.disk.shadow.job_named(WORKSPACE, name))
            .filter(|id| self.disk.shadow.jobs.get(id).is_some_and(|job| job.cancel.is_none()))
            .collect();
        for job in endless {
            self.ask(Command::CancelJob { job, reason: "it never ends".into() }, Request::Drive);
        }
    }

    pub fn user_answered(&mut self, request: Request, answer: Result<Accepted, Refusal>) {
        match request {
            Request::Place => self.users.settled |= answer.is_ok(),
            Request::Cluster => {}
            Request::Drive => {
                if let Ok(accepted) = &answer {
                    self.acknowledged(accepted);
                }
            }
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

    /// Whatever was accepted is remembered.
    fn acknowledged(&mut self, accepted: &Accepted) {
        self.checks.acknowledged.extend(accepted.events.iter().filter_map(submitted));
    }

    fn submit_answered(&mut self, name: &Arc<str>, answer: Result<Accepted, Refusal>) {
        let Some(wish) = self.users.jobs.get_mut(name) else { return };
        wish.asked = false;
        match answer {
            Ok(accepted) => {
                let id = accepted.events.iter().find_map(submitted);
                let before = wish.known;
                wish.known = wish.known.or(id);
                self.acknowledged(&accepted);
                if id.is_some() && before.is_some_and(|known| Some(known) != id) {
                    self.broken("J1", format!("'{name}' was accepted twice"));
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

fn submitted(event: &Event) -> Option<JobId> {
    match event {
        Event::JobSubmitted(e) => Some(e.id),
        Event::FamilyOpened(e) => Some(e.id),
        _ => None,
    }
}
