//! The simulated server: the real machine, roster, errands and conversations, between a disk and a network that fail.
//!
//! What the real drivers do in threads and tasks is done here in steps, with the same pure code in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use neap_control::conversation::{self, Conversation, Output, Ticket, View, comes_again, stop_order};
use neap_control::errands::{Errands, Output as Errand};
use neap_control::leases::Due;
use neap_control::{Accepted, Input, Machine, Roster, Step, limits};
use neap_core::command::Report;
use neap_core::effects::{self, Effect};
use neap_core::location::{Charges, Place};
use neap_core::planted::{self, Bug};
use neap_core::problem::Code;
use neap_core::settings::{ProviderSettings, Settings};
use neap_core::{Command, Millis, NodeId, Refusal};
use neap_protocol::{AttemptRef, AttemptSpec, BlobFolder, Down, Isolation, Limits, Ranks, Secret};
use neap_providers::Found;

use crate::faults::Fault;
use crate::users::Request;
use crate::world::{Happening, LinkId, World};

#[derive(Debug)]
pub(crate) struct Server {
    pub epoch: u64,
    /// Its start is recorded and its nodes were listed.
    pub serving: bool,
    pub machine: Machine,
    pub roster: Roster<LinkId>,
    pub errands: Errands,
    pub talks: BTreeMap<LinkId, Conversation>,
    pub accepted: u64,
    inbox: Vec<Input<Reply>>,
    batch_is_due: bool,
    in_flight: Option<Step<Reply>>,
    wake_at: Option<Millis>,
    timer_at: u64,
    found: Vec<Found>,
    /// Join tokens that were used: known to this process alone.
    redeemed: BTreeSet<String>,
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Reply {
    Start,
    User(Request),
    News(Report),
    Talk { link: LinkId, ticket: Ticket, report: Report },
    Nobody,
}

/// How many nodes the one location may have: in some worlds fewer than the provider.
pub(crate) fn nodes_there(nodes_max: u32) -> u32 {
    if nodes_max.is_multiple_of(2) { nodes_max - 1 } else { nodes_max }
}

pub(crate) fn settings(nodes_max: u32) -> Settings {
    let place = Place { nodes_max: Some(nodes_there(nodes_max)), ..Place::default() };
    let is_smaller = nodes_there(nodes_max) < nodes_max;
    Settings {
        locations: Arc::from(["westus".to_owned()]),
        lease_ttl_ms: 20_000,
        silence_ms: 8_000,
        heartbeat_ms: 3_000,
        create_deadline_ms: 15_000,
        prepare_deadline_ms: 15_000,
        leave_deadline_ms: 8_000,
        unusable_keep_ms: 20_000,
        stop_grace_ms: 2_000,
        places: Arc::new(is_smaller.then(|| ("westus".into(), place)).into_iter().collect()),
        charges: Charges::default(),
        teams: BTreeMap::new(),
        waiting_jobs_max: neap_core::limits::QUEUE_LENGTH_MAX,
        own: Arc::default(),
        provider: ProviderSettings { name: "sim".into(), machine: None, nodes_max, strict: false },
    }
}

impl World {
    fn wall(&self) -> Millis {
        Millis(self.now + self.wall_offset)
    }

    pub fn server_starts(&mut self) {
        if self.server.is_some() || self.forsaken_at.is_some() {
            return;
        }
        let state = match self.disk.load() {
            Ok(state) => state,
            Err(what) => return self.broken("A1", what),
        };
        if state != self.disk.shadow {
            return self.broken("A1", "the state loaded is not the one that a replay gives".into());
        }
        self.epoch += 1;
        self.tell(format_args!("server"), || "starts".into());
        let steady = Millis(self.now);
        let mut roster = Roster::default();
        roster.grant_all(&state, steady);
        let found = self.list();
        self.server = Some(Server {
            epoch: self.epoch,
            serving: false,
            machine: Machine::new(state),
            roster,
            errands: Errands::new(steady),
            talks: BTreeMap::new(),
            accepted: 0,
            inbox: Vec::new(),
            batch_is_due: false,
            in_flight: None,
            wake_at: None,
            timer_at: u64::MAX,
            found,
            redeemed: BTreeSet::new(),
        });
        let start = Command::Start { release: "sim".into(), settings: settings(self.nodes_max) };
        self.offer(start, Reply::Start);
    }

    fn serves(&mut self) {
        let Some(server) = &mut self.server else { return };
        server.serving = true;
        let mut out = Vec::new();
        server.errands.found(&server.found, server.machine.state(), &mut out);
        let wanted = effects::all(server.machine.state());
        self.run_errands(out);
        self.hand_out(&wanted);
        self.users_find_a_server();
    }

    /// What is in flight to the disk may have reached it, all of it, without anybody having been told.
    pub fn server_crashes(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        self.tell(format_args!("server"), || "dies".into());
        if let Some(step) = server.in_flight.take()
            && self.rng.once_in(2)
        {
            self.tell(format_args!("disk"), || "what it was writing is there all the same".into());
            self.append(&step);
        }
        self.server_is_gone();
    }

    pub fn server_stops(&mut self) {
        self.tell(format_args!("server"), || "ends in good order".into());
        self.server = None;
        self.server_is_gone();
    }

    fn server_is_gone(&mut self) {
        let open: Vec<LinkId> = self.links.iter().filter(|(_, l)| l.server_open).map(|(id, _)| *id).collect();
        for link in open {
            if let Some(way) = self.links.get_mut(&link) {
                way.server_open = false;
            }
            let delay = self.rng.between(0, 300);
            self.after(delay, Happening::ClosedAtAgent { link });
        }
        self.users.server_is_gone();
        if self.forsaken_at.is_none() {
            let delay = self.rng.between(100, if self.calm { 2_000 } else { 12_000 });
            self.after(delay, Happening::ServerStarts);
        }
    }

    pub fn drain(&mut self) {
        if !self.server.as_ref().is_some_and(|server| server.serving) {
            return;
        }
        let grace = self.rng.between(100, 6_000);
        let deadline = self.wall().plus(grace);
        self.tell(format_args!("operator"), || format!("stops the server with a grace of {grace} ms"));
        self.offer(Command::Drain { deadline }, Reply::Nobody);
        let (epoch, delay) = (self.epoch, self.rng.between(grace, grace + 15_000));
        self.after(delay, Happening::ServerStops { epoch });
    }

    // ---- the writer

    /// A command at the door.
    pub fn offer(&mut self, command: Command, reply: Reply) {
        let Some(server) = &mut self.server else { return };
        let actor = match &reply {
            Reply::User(_) => "user",
            Reply::Start | Reply::News(_) | Reply::Talk { .. } | Reply::Nobody => "neap",
        };
        server.inbox.push(Input { actor: actor.into(), command, documents: Vec::new(), ticket: reply });
        self.batch_soon();
    }

    fn batch_soon(&mut self) {
        let epoch = self.epoch;
        let Some(server) = self.server.as_mut().filter(|s| s.in_flight.is_none() && !s.batch_is_due) else {
            return;
        };
        server.batch_is_due = true;
        self.after(0, Happening::Batch { epoch });
    }

    pub fn batch(&mut self) {
        let wall = self.wall();
        let slow = self.strikes(Fault::Disk, 20);
        let took = if slow { self.rng.between(100, 3_000) } else { self.rng.between(1, 6) };
        let Some(server) = &mut self.server else { return };
        server.batch_is_due = false;
        if server.in_flight.is_some() {
            return;
        }
        let inputs = std::mem::take(&mut server.inbox);
        let step = server.machine.step(inputs, wall);
        server.wake_at = step.wake_at;
        if step.batch.entries.is_empty() {
            let (answers, _) = server.machine.commit(step);
            for (reply, answer) in answers {
                self.answered(reply, answer);
            }
            return self.arm();
        }
        let early = early_answers(&step);
        server.in_flight = Some(step);
        let epoch = self.epoch;
        self.after(took, Happening::CommitDone { epoch });
        for (reply, answer) in early {
            self.answered(reply, answer);
        }
    }

    pub fn commit_done(&mut self) {
        let fails = self.strikes(Fault::Disk, 10);
        let Some(server) = &mut self.server else { return };
        let Some(step) = server.in_flight.take() else { return };
        if fails {
            self.tell(format_args!("disk"), || "a batch could not be written".into());
            let refusal = Refusal::because(Code::InternalError, "Nothing was changed: the disk failed.");
            let answers = if planted::is(Bug::FailedCommitKept) {
                self.server.as_mut().map(|server| server.machine.commit(step).0).unwrap_or_default()
            } else {
                step.answers
            };
            for (reply, _) in answers {
                self.answered(reply, Err(refusal.clone()));
            }
            let wake = self.wall().plus(limits::RETRY_COMMIT_MS);
            if let Some(server) = &mut self.server {
                server.wake_at = Some(wake);
            }
        } else {
            self.append(&step);
            let Some(server) = &mut self.server else { return };
            let (answers, effects) = server.machine.commit(step);
            self.check_published();
            for (reply, answer) in answers {
                self.answered(reply, answer);
            }
            let epoch = self.epoch;
            if self.rng.once_in(2) {
                self.hand_out(&effects);
            } else {
                let delay = self.rng.between(0, 6);
                self.after(delay, Happening::Effects { epoch, effects });
            }
            if self.rng.once_in(24)
                && let Some(server) = &self.server
                && let Err(what) = self.disk.write_snapshot(server.machine.state())
            {
                self.broken("A1", what);
            }
        }
        if self.server.as_ref().is_some_and(|server| !server.inbox.is_empty()) {
            self.batch_soon();
        }
        self.arm();
    }

    fn append(&mut self, step: &Step<Reply>) {
        let mut found = Vec::new();
        let checks = &mut self.checks;
        let now = self.now;
        let written = self.disk.append(&step.batch, |event, before, after| {
            checks.event(now, event, before, after, &mut found);
        });
        if self.violation.is_none() {
            for entry in &step.batch.entries {
                self.tell(format_args!("log"), || format!("{:?}", entry.event));
            }
        }
        if let Err(what) = written {
            self.broken("A1", what);
        }
        self.report_all(found);
    }

    fn answered(&mut self, reply: Reply, answer: Result<Accepted, Refusal>) {
        let again = answer.as_ref().is_err_and(comes_again);
        let epoch = self.epoch;
        match reply {
            Reply::Nobody => {}
            Reply::Start => match answer {
                Ok(_) => self.serves(),
                Err(_) => self.server_crashes(),
            },
            Reply::User(request) => self.user_answered(request, answer),
            Reply::News(report) if again => {
                let command = Box::new(Command::Report(report.clone()));
                let offer = Happening::Offer { epoch, command, reply: Reply::News(report) };
                self.after(limits::RETRY_COMMIT_MS, offer);
            }
            Reply::Talk { link, ticket, report } if again => {
                let command = Box::new(Command::Report(report.clone()));
                let offer = Happening::Offer { epoch, command, reply: Reply::Talk { link, ticket, report } };
                self.after(limits::RETRY_COMMIT_MS, offer);
            }
            Reply::News(_) => {}
            Reply::Talk { link, ticket, .. } => {
                let input = Box::new(conversation::Input::Settled(ticket, answer.map(drop)));
                let delay = self.rng.between(0, 3);
                self.after(delay, Happening::Settle { epoch, link, input });
            }
        }
    }

    // ---- conversations

    pub fn feed(&mut self, link: LinkId, input: conversation::Input) {
        let now = Millis(self.now);
        let Some(server) = &mut self.server else { return };
        let Some(talk) = server.talks.get_mut(&link) else { return };
        let mut out = Vec::new();
        let mut view = View { roster: &mut server.roster, link: &link, state: server.machine.state(), now };
        talk.step(input, &mut view, &mut out);
        for output in out {
            match output {
                Output::Say(down) => self.send_down(link, down),
                Output::Report { report, ticket } => {
                    let reply = match ticket {
                        Some(ticket) => Reply::Talk { link, ticket, report: report.clone() },
                        None => Reply::News(report.clone()),
                    };
                    self.offer(Command::Report(report), reply);
                }
                Output::Order(effect) => self.order(&effect),
                Output::Check { .. } => self.feed(link, conversation::Input::Checked(Ok(()))),
                Output::Admit { node: _, token, .. } => {
                    let first = self.server.as_mut().is_some_and(|s| s.redeemed.insert(token));
                    let joined = Down::Joined { certificate_pem: String::new(), not_after_unix_s: u64::MAX };
                    let admitted = if first { Ok(joined) } else { Err("the token was used before".into()) };
                    self.feed(link, conversation::Input::Admitted(admitted));
                }
                // Nobody in this world has services or GPUs.
                Output::Certify { .. }
                | Output::Services { .. }
                | Output::Gpus { .. }
                | Output::StreamFailed { .. } => {}
                Output::StoreLog { chunk, .. } => {
                    let have = self.logs.entry(chunk.attempt).or_default();
                    if chunk.offset <= *have {
                        *have = (*have).max(chunk.offset + chunk.bytes.len() as u64);
                    }
                    let offset = *have;
                    self.send_down(link, Down::LogAcknowledged { attempt: chunk.attempt, offset });
                }
                Output::End(why) => {
                    self.tell(format_args!("server"), || format!("ends connection {link}: {why}"));
                    self.server_hangs_up(link);
                }
            }
        }
        self.arm();
    }

    fn order(&mut self, effect: &Effect) {
        let Some(server) = &mut self.server else { return };
        let state = server.machine.state();
        let Some(link) = server.roster.order(effect, state) else { return };
        let order = match effect {
            Effect::StartAttempt { attempt, node } => {
                let Some(job) = state.jobs.get(&attempt.job) else { return };
                let several = job.attempt().filter(|attempt| !attempt.ranks.is_empty());
                let ranks = several.and_then(|attempt| {
                    let nodes = attempt.nodes().map(|node| node.0).collect();
                    let (addresses, port, secret) = (Vec::new(), 0, Secret::default());
                    Some(Ranks { rank: attempt.rank_on(*node)?, nodes, addresses, port, secret })
                });
                let spec = Box::new(spec(&job.name, job.timeout_ms, ranks));
                Down::Start { attempt: AttemptRef { job: attempt.job.0, attempt: attempt.number }, spec }
            }
            Effect::StopAttempt { attempt, .. } => stop_order(state, *attempt, state.now),
            Effect::CreateNode { .. } | Effect::RemoveNode { .. } => return,
        };
        self.send_down(link, order);
    }

    // ---- the dispatch

    pub fn hand_out(&mut self, wanted: &[Effect]) {
        for effect in wanted {
            match effect {
                Effect::CreateNode { .. } | Effect::RemoveNode { .. } => {
                    let Some(server) = &mut self.server else { return };
                    let mut out = Vec::new();
                    server.errands.wanted(effect, server.machine.state(), &mut out);
                    self.run_errands(out);
                }
                Effect::StartAttempt { .. } | Effect::StopAttempt { .. } => self.order(effect),
            }
        }
    }

    fn run_errands(&mut self, out: Vec<Errand>) {
        for errand in out {
            match errand {
                Errand::Create { node } => self.ask_create(node),
                Errand::Remove { node, .. } => self.ask_remove(node),
                Errand::List => {
                    let found = self.list();
                    let (epoch, delay) = (self.epoch, self.rng.between(10, 2_000));
                    self.after(delay, Happening::Listed { epoch, found });
                }
                Errand::Forget { node } => {
                    if let Some(server) = &mut self.server {
                        server.roster.forget(node);
                    }
                }
                Errand::Report(report) => self.offer(Command::Report(report.clone()), Reply::News(report)),
            }
        }
        self.arm();
    }

    pub fn provider_answers(&mut self, node: NodeId, answer: Result<(), String>) {
        self.tell(format_args!("provider"), || format!("answers about n-{node}: {answer:?}"));
        let now = Millis(self.now);
        let Some(server) = &mut self.server else { return };
        let mut out = Vec::new();
        server.errands.done(node, answer, server.machine.state(), now, &mut out);
        self.run_errands(out);
    }

    pub fn listed(&mut self, found: &[Found]) {
        let Some(server) = &mut self.server else { return };
        let mut out = Vec::new();
        server.errands.swept(found, server.machine.state(), &mut out);
        self.run_errands(out);
    }

    /// The provider makes sure that nothing of the node runs before it says so.
    pub fn news(&mut self, node: NodeId) {
        if self.instances.values().any(|i| i.node == node && i.agent_lives()) {
            return;
        }
        self.tell(format_args!("provider"), || format!("says that n-{node} ended"));
        let Some(server) = &mut self.server else { return };
        let mut out = Vec::new();
        server.errands.ended(node, "its agent ended".into(), &mut out);
        self.run_errands(out);
    }

    // ---- its timers

    /// Sets the one timer to what comes due first.
    pub fn arm(&mut self) {
        let (wall_offset, epoch, now) = (self.wall_offset, self.epoch, self.now);
        let Some(server) = self.server.as_mut().filter(|s| s.serving) else { return };
        // While a batch is on its way to the disk the writer waits for nothing else.
        let wake = server.wake_at.filter(|_| server.in_flight.is_none() && !server.batch_is_due);
        let wake = wake.map_or(u64::MAX, |at| at.0.saturating_sub(wall_offset));
        let due = server.roster.next_due().map_or(u64::MAX, |at| at.0);
        let next = wake.min(due).min(server.errands.wake_at().0).max(now);
        if next < server.timer_at {
            server.timer_at = next;
            self.at(next, Happening::ServerTimer { epoch });
        }
    }

    pub fn server_timer(&mut self) {
        let (now, wall) = (Millis(self.now), self.wall());
        let Some(server) = &mut self.server else { return };
        if server.timer_at > self.now {
            return;
        }
        server.timer_at = u64::MAX;
        let due = server.roster.take_due(server.machine.state(), now);
        self.check_leases_over(&due);
        let Some(server) = &mut self.server else { return };
        let mut out = Vec::new();
        for due in due {
            match due {
                Due::Silent(node) if planted::is(Bug::RequeueOnSilence) => {
                    out.push(Errand::Report(Report::NodeGone { node, reason: "it is silent".into() }));
                }
                Due::Silent(node) => out.push(Errand::Report(Report::NodeSilent { node })),
                Due::LeaseEnded(node) => server.errands.lease_ended(node, now, &mut out),
            }
        }
        server.errands.timer(server.machine.state(), now, &mut out);
        let wakes = server.in_flight.is_none() && server.wake_at.is_some_and(|at| at <= wall);
        if wakes {
            server.wake_at = None;
        }
        self.run_errands(out);
        if wakes {
            self.batch_soon();
        }
        self.arm();
    }
}

/// Answers given before their time: only by planted bugs.
fn early_answers(step: &Step<Reply>) -> Vec<(Reply, Result<Accepted, Refusal>)> {
    let mut early = Vec::new();
    for (reply, answer) in &step.answers {
        match reply {
            Reply::User(request) if planted::is(Bug::AcknowledgeBeforeCommit) => {
                early.push((Reply::User(request.clone()), answer.clone()));
            }
            Reply::Talk { link, ticket, report } if planted::is(Bug::ReportAcknowledgedBeforeCommit) => {
                let reply = Reply::Talk { link: *link, ticket: *ticket, report: report.clone() };
                early.push((reply, answer.clone()));
            }
            _ => {}
        }
    }
    early
}

fn spec(name: &str, timeout_ms: Option<u64>, ranks: Option<Ranks>) -> AttemptSpec {
    let nowhere = BlobFolder::default();
    AttemptSpec {
        job_name: name.into(),
        experiment: String::new(),
        command: String::new(),
        environment_variables: BTreeMap::new(),
        code: None,
        inputs: BTreeMap::new(),
        outputs: BTreeMap::new(),
        artifacts: nowhere,
        timeout_ms,
        limits: Limits::default(),
        isolation: Isolation::Off,
        image: None,
        packages: None,
        environment: Default::default(),
        container: Default::default(),
        log_bytes_max: 1_000,
        preamble: Vec::new(),
        ranks,
        distribution: None,
        tracking: None,
        services: Vec::new(),
        checkpoint: None,
        count_bytes: false,
        disk: Default::default(),
        masked: Vec::new(),
    }
}
