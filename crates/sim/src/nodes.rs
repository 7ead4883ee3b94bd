//! The machines of the provider: on each the real agent session, and a supervisor with its own lease timer per attempt.

use std::collections::{BTreeMap, VecDeque};

use neap_core::planted::{self, Bug};
use neap_core::{JobId, NodeId};
use neap_protocol::{AttemptRef, AttemptSpec, Down, Exit, Frame, LogChunk, NodeFacts};

use crate::faults::Fault;
use crate::users::Program;
use crate::world::{Happening, InstanceId, LinkId, World};
use neap_agent::session::{ExitReason, Input, Output, Session};

#[derive(Debug)]
pub(crate) struct Instance {
    pub node: NodeId,
    pub token: String,
    pub certified: bool,
    pub link: Option<LinkId>,
    pub dial_pause_ms: u64,
    /// The agent's session, as long as the agent lives.
    session: Option<Session>,
    timer_at: u64,
    /// This machine's boot-time clock is ahead of the world by this.
    boot_offset: u64,
    lease_until_boot: u64,
    paused_until: u64,
    /// What reached it while it stood still, in order.
    held: VecDeque<Input>,
    pub slow_ms: u64,
    pub blocked_up_until: u64,
    pub blocked_down_until: u64,
    processes: BTreeMap<AttemptRef, Process>,
}

#[derive(Debug)]
struct Process {
    serial: u64,
    program: Program,
    phase: Phase,
    kill_at: u64,
    stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Preparing { until: u64 },
    Running { ends_at: u64 },
    Over,
}

impl Instance {
    pub fn new(node: NodeId, token: String, now: u64, boot_offset: u64, slow_ms: u64) -> Self {
        let facts = NodeFacts { cpus_milli: 4000, memory_mb: 14_336, ..NodeFacts::default() };
        Self {
            node,
            token,
            certified: false,
            link: None,
            dial_pause_ms: 50,
            session: Some(Session::new(node.0, facts, now + boot_offset)),
            timer_at: u64::MAX,
            boot_offset,
            lease_until_boot: 0,
            paused_until: 0,
            held: VecDeque::new(),
            slow_ms,
            blocked_up_until: 0,
            blocked_down_until: 0,
            processes: BTreeMap::new(),
        }
    }

    pub fn agent_lives(&self) -> bool {
        self.session.is_some()
    }

    /// Hangs for ever: nothing that an agent should do can be asked of it.
    pub fn is_zombie(&self) -> bool {
        self.paused_until == u64::MAX
    }

    /// Until when, if so.
    pub fn stands_still(&self, now: u64) -> Option<u64> {
        (self.paused_until > now).then_some(self.paused_until)
    }

    pub fn running(&self) -> impl Iterator<Item = AttemptRef> {
        let runs = |p: &Process| matches!(p.phase, Phase::Running { .. });
        self.processes.iter().filter(move |(_, p)| runs(p)).map(|(attempt, _)| *attempt)
    }

    /// No new trouble; what hangs for ever stays so.
    pub fn comes_to_itself(&mut self, now: u64) {
        self.slow_ms = self.slow_ms.min(20);
        self.blocked_up_until = self.blocked_up_until.min(now);
        self.blocked_down_until = self.blocked_down_until.min(now);
    }

    fn boot_ms(&self, now: u64) -> u64 {
        now + self.boot_offset
    }
}

impl World {
    pub fn agent_hears(&mut self, id: InstanceId, input: Input) {
        let Some(instance) = self.instances.get_mut(&id).filter(|i| i.agent_lives()) else { return };
        if let Some(resumes) = instance.stands_still(self.now) {
            if resumes != u64::MAX {
                instance.held.push_back(input);
            }
            return;
        }
        let boot_ms = instance.boot_ms(self.now);
        let mut again = None;
        let input = match input {
            Input::Down(Down::LeaseRenewed { heartbeat_ms, url_pass, .. })
                if planted::is(Bug::LeaseFromReceipt) =>
            {
                Input::Down(Down::LeaseRenewed { sent_boot_ms: boot_ms, heartbeat_ms, url_pass })
            }
            Input::Down(Down::Start { attempt, spec }) if planted::is(Bug::DuplicateStart) => {
                again = instance.processes.contains_key(&attempt).then(|| (attempt, spec.clone()));
                Input::Down(Down::Start { attempt, spec })
            }
            Input::Timer if planted::is(Bug::AgentIgnoresLease) && instance.link.is_none() => return,
            other => other,
        };
        self.tell(format_args!("m-{id}"), || format!("{input:?}").chars().take(150).collect());
        let mut out = Vec::new();
        if let Some(session) = &mut self.instances.get_mut(&id).and_then(|i| i.session.as_mut()) {
            session.step(boot_ms, input, &mut out);
        }
        for output in out {
            self.agent_does(id, output);
        }
        if let Some((attempt, spec)) = again {
            self.launch(id, attempt, &spec);
        }
        self.arm_agent(id);
    }

    pub fn arm_agent(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(session) = &instance.session else { return };
        let at = session.wake_at_ms().saturating_sub(instance.boot_offset);
        if at < instance.timer_at {
            instance.timer_at = at;
            self.at(at, Happening::AgentTimer { instance: id });
        }
    }

    pub fn agent_timer(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        if instance.timer_at > self.now {
            return;
        }
        instance.timer_at = u64::MAX;
        let wakes = instance.session.as_ref().map_or(u64::MAX, Session::wake_at_ms);
        if wakes <= instance.boot_ms(self.now) {
            self.agent_hears(id, Input::Timer);
        } else {
            self.arm_agent(id);
        }
    }

    fn agent_does(&mut self, id: InstanceId, output: Output) {
        let link = self.instances.get(&id).and_then(|i| i.link);
        match output {
            Output::Send(up) => {
                if let Some(link) = link {
                    self.send_up(link, Frame::Message(up));
                }
            }
            Output::ShipLog { attempt, offset, bytes, last } => {
                if let Some(link) = link {
                    let chunk = LogChunk { attempt, offset, last, source: None, bytes: vec![b'.'; bytes] };
                    self.send_up(link, Frame::Log(chunk));
                }
            }
            Output::Launch { attempt, spec } => self.launch(id, attempt, &spec),
            Output::Stop { attempt, grace_ms, .. } => self.stop(id, attempt, grace_ms),
            Output::Discard { attempt } => self.discard(id, attempt),
            Output::Lease { until_boot_ms } => {
                if let Some(instance) = self.instances.get_mut(&id) {
                    instance.lease_until_boot = until_boot_ms;
                }
            }
            Output::Reconnect => {
                if let Some(link) = link {
                    self.break_link(link, "the agent hangs up: no heartbeat was answered");
                }
            }
            // Nobody in this world has services.
            Output::OpenStream { .. } => {}
            Output::Exit(reason) => self.agent_ends(id, &reason),
        }
    }

    fn launch(&mut self, id: InstanceId, attempt: AttemptRef, spec: &AttemptSpec) {
        let program = self.users.program(&spec.job_name, spec.ranks.as_ref());
        self.next_process += 1;
        let serial = self.next_process;
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let until = self.now + program.prepare_ms + instance.slow_ms;
        let attempt = if instance.processes.contains_key(&attempt) {
            // Only a planted bug launches the same attempt twice; the second needs a place of its own to be seen.
            AttemptRef { job: attempt.job, attempt: attempt.attempt + 1_000_000 }
        } else {
            attempt
        };
        let phase = Phase::Preparing { until };
        let process = Process { serial, program, phase, kill_at: u64::MAX, stopped: false };
        instance.processes.insert(attempt, process);
        self.at(until, Happening::Process { instance: id, attempt, serial });
    }

    fn stop(&mut self, id: InstanceId, attempt: AttemptRef, grace_ms: u64) {
        let now = self.now;
        let Some(process) = self.instances.get_mut(&id).and_then(|i| i.processes.get_mut(&attempt)) else {
            return;
        };
        process.stopped = true;
        let grace = if process.program.obeys { grace_ms / 4 } else { grace_ms };
        process.kill_at = process.kill_at.min(now + grace);
        let (serial, at) = (process.serial, process.kill_at);
        self.at(at, Happening::Process { instance: id, attempt, serial });
    }

    /// The agent lets go of an attempt only when the log knows what became of it.
    fn discard(&mut self, id: InstanceId, attempt: AttemptRef) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let node = instance.node;
        let current = self.disk.shadow.jobs.get(&JobId(attempt.job)).and_then(|job| job.attempt());
        if current.is_some_and(|a| a.number == attempt.attempt && a.phase_on(node).is_some()) {
            self.broken("J1", format!("the end of attempt {attempt} was acknowledged and is not in the log"));
        }
        let Some(instance) = self.instances.get_mut(&id) else { return };
        if let Some(process) = instance.processes.remove(&attempt)
            && matches!(process.phase, Phase::Running { .. })
        {
            self.process_stops(id, attempt);
        }
    }

    /// A process may start, end by itself, be killed, or run out of time or lease.
    pub fn process_due(&mut self, id: InstanceId, attempt: AttemptRef, serial: u64) {
        let now = self.now;
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let boot_ms = instance.boot_ms(now);
        let (lease, still) = (instance.lease_until_boot, instance.stands_still(now));
        let lease_over = boot_ms >= lease && !planted::is(Bug::SupervisorIgnoresLease);
        let lease_at = lease.saturating_sub(instance.boot_offset);
        let Some(process) = instance.processes.get_mut(&attempt).filter(|p| p.serial == serial) else {
            return;
        };
        match process.phase {
            Phase::Over => {}
            Phase::Preparing { until } => {
                if process.kill_at <= now {
                    process.phase = Phase::Over;
                    return self.process_over(id, attempt, Exit::Stopped, 0);
                }
                if now < until {
                    return;
                }
                // Preparing is the agent's own work: it stands still when the agent does.
                if let Some(resumes) = still {
                    if resumes != u64::MAX {
                        process.phase = Phase::Preparing { until: resumes };
                        self.at(resumes, Happening::Process { instance: id, attempt, serial });
                    }
                    return;
                }
                if lease_over {
                    process.phase = Phase::Over;
                    return self.process_over(id, attempt, Exit::LeaseLost, 0);
                }
                if let Some(exit) = process.program.prepare_fails() {
                    process.phase = Phase::Over;
                    return self.process_over(id, attempt, exit, 0);
                }
                let ends_at = now.saturating_add(process.program.run_ms);
                process.phase = Phase::Running { ends_at };
                let next = ends_at.min(lease_at).min(now.saturating_add(process.program.timeout_ms));
                process.kill_at = process.kill_at.max(now);
                process.program.started_at = now;
                self.at(next, Happening::Process { instance: id, attempt, serial });
                self.process_starts(id, attempt);
                let properties = BTreeMap::new();
                self.agent_hears_soon(id, Input::Started { attempt, properties });
            }
            Phase::Running { ends_at } => {
                let timeout_at = process.program.started_at.saturating_add(process.program.timeout_ms);
                let exit = if lease_over {
                    Exit::LeaseLost
                } else if process.kill_at <= now {
                    if process.stopped { Exit::Stopped } else { Exit::Timeout }
                } else if ends_at <= now {
                    process.program.exit.clone()
                } else if timeout_at <= now {
                    process.kill_at = now + 500;
                    return self.after(500, Happening::Process { instance: id, attempt, serial });
                } else {
                    let lease_at = if lease_over { u64::MAX } else { lease_at.max(now + 1) };
                    let next = ends_at.min(process.kill_at).min(timeout_at).min(lease_at);
                    return self.at(next, Happening::Process { instance: id, attempt, serial });
                };
                process.phase = Phase::Over;
                let log_bytes = process.program.log_bytes;
                self.process_stops(id, attempt);
                if matches!(exit, Exit::Success) && self.rng.once_in(2) {
                    self.agent_hears_soon(id, Input::Finalizing { attempt });
                }
                self.process_over(id, attempt, exit, log_bytes);
            }
        }
    }

    fn process_over(&mut self, id: InstanceId, attempt: AttemptRef, exit: Exit, log_bytes: u64) {
        let delay = self.rng.between(8, 60);
        let input = Box::new(Input::Ended { attempt, exit, log_bytes });
        self.after(delay, Happening::AgentHears { instance: id, input });
    }

    fn agent_hears_soon(&mut self, id: InstanceId, input: Input) {
        let delay = self.rng.between(0, 5);
        self.after(delay, Happening::AgentHears { instance: id, input: Box::new(input) });
    }

    fn process_starts(&mut self, id: InstanceId, attempt: AttemptRef) {
        self.tell(format_args!("m-{id}"), || format!("attempt {attempt} starts to run"));
        let Some(node) = self.instances.get(&id).map(|instance| instance.node) else { return };
        let found = self.checks.process_starts(id, node, attempt, &self.disk.shadow);
        self.report_all(found);
    }

    fn process_stops(&mut self, id: InstanceId, attempt: AttemptRef) {
        self.tell(format_args!("m-{id}"), || format!("attempt {attempt} runs no more"));
        self.checks.process_stops(id, attempt);
    }

    pub fn pause(&mut self, id: InstanceId, until: u64) {
        let Some(instance) = self.instances.get_mut(&id).filter(|i| i.agent_lives()) else { return };
        instance.paused_until = instance.paused_until.max(until);
        self.tell(format_args!("m-{id}"), || match until {
            u64::MAX => "its agent hangs for ever".into(),
            _ => format!("its agent stands still until {until} ms"),
        });
        if until != u64::MAX {
            self.at(until, Happening::AgentResumes { instance: id });
        }
    }

    /// It reads what has come in the meantime, and looks at its timers.
    pub fn agent_resumes(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        if instance.stands_still(self.now).is_some() {
            return;
        }
        let held = std::mem::take(&mut instance.held);
        for input in held {
            self.agent_hears(id, input);
        }
        self.agent_hears(id, Input::Timer);
    }

    pub fn agent_crashes(&mut self, id: InstanceId) {
        if self.instances.get(&id).is_some_and(Instance::agent_lives) {
            self.tell(format_args!("m-{id}"), || "its agent dies".into());
            self.agent_is_gone(id);
        }
    }

    fn agent_ends(&mut self, id: InstanceId, reason: &ExitReason) {
        self.tell(format_args!("m-{id}"), || format!("its agent ends: {reason:?}"));
        self.agent_is_gone(id);
    }

    /// Supervisors see their agent go and end their attempts; the provider sees it too, and says so later.
    fn agent_is_gone(&mut self, id: InstanceId) {
        self.kill_processes(id);
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.session = None;
        let (node, link) = (instance.node, instance.link.take());
        if let Some(link) = link {
            self.break_link(link, "its agent is gone");
        }
        let lost = self.strikes(Fault::Vanish, 3);
        if !lost {
            let (epoch, delay) = (self.epoch, self.rng.between(5, 900));
            self.after(delay, Happening::News { epoch, node });
        }
    }

    pub fn kill_processes(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let running: Vec<AttemptRef> = instance.running().collect();
        instance.processes.clear();
        for attempt in running {
            self.process_stops(id, attempt);
        }
    }

    /// The whole machine is gone.
    pub fn vanish(&mut self, id: InstanceId, said: bool) {
        self.tell(format_args!("m-{id}"), || {
            format!("is gone{}", if said { ", and the provider says so" } else { ", and nobody says so" })
        });
        self.machine_goes(id);
        let Some(instance) = self.instances.remove(&id) else { return };
        if said {
            let (epoch, delay) = (self.epoch, self.rng.between(5, 3_000));
            self.after(delay, Happening::News { epoch, node: instance.node });
        }
    }

    /// Nothing of it runs any more; its record is for the caller to take away.
    pub fn machine_goes(&mut self, id: InstanceId) {
        self.kill_processes(id);
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.session = None;
        if let Some(link) = instance.link.take() {
            self.break_link(link, "the machine is gone");
        }
    }
}
