//! The world: one thread, one clock, one source of chance. Everything that happens is one step.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use neap_control::conversation;
use neap_core::effects::Effect;
use neap_core::invariants::Violation;
use neap_core::{Command, NodeId};
use neap_protocol::{AttemptRef, Down, Frame, Up};
use neap_providers::Found;

use crate::checks::Checks;
use crate::disk::Disk;
use crate::faults::{Fault, Faults};
use crate::network::Link;
use crate::nodes::Instance;
use crate::provider::{Act, Provider};
use crate::rng::Rng;
use crate::server::{Reply, Server};
use crate::users::Users;
use neap_agent::session;

pub(crate) type LinkId = u64;
/// A machine of the provider. Two may carry the same node's name.
pub(crate) type InstanceId = u64;

/// What is known of a world before it begins.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    /// Faults happen for so many steps; then the world must come to rest.
    pub steps: u64,
    pub faults: Faults,
    /// Write down what happens.
    pub story: bool,
}

#[derive(Debug)]
pub(crate) enum Happening {
    ServerStarts,
    ServerTimer {
        epoch: u64,
    },
    Batch {
        epoch: u64,
    },
    CommitDone {
        epoch: u64,
    },
    Offer {
        epoch: u64,
        command: Box<Command>,
        reply: Reply,
    },
    Settle {
        epoch: u64,
        link: LinkId,
        input: Box<conversation::Input>,
    },
    Effects {
        epoch: u64,
        effects: Vec<Effect>,
    },
    /// The server ends in good order.
    ServerStops {
        epoch: u64,
    },

    Up {
        link: LinkId,
        frame: Box<Frame<Up>>,
    },
    Down {
        link: LinkId,
        down: Box<Down>,
    },
    ClosedAtServer {
        link: LinkId,
    },
    ClosedAtAgent {
        link: LinkId,
    },

    Dial {
        instance: InstanceId,
    },
    AgentHears {
        instance: InstanceId,
        input: Box<session::Input>,
    },
    AgentTimer {
        instance: InstanceId,
    },
    AgentResumes {
        instance: InstanceId,
    },
    Process {
        instance: InstanceId,
        attempt: AttemptRef,
        serial: u64,
    },

    ProviderActs {
        act: Act,
    },
    ProviderAnswers {
        epoch: u64,
        node: NodeId,
        answer: Result<(), String>,
    },
    Listed {
        epoch: u64,
        found: Vec<Found>,
    },
    News {
        epoch: u64,
        node: NodeId,
    },

    UserActs,
    Chaos,
    Audit,
}

#[derive(Debug)]
pub(crate) struct World {
    pub rng: Rng,
    pub now: u64,
    pub steps: u64,
    pub faults: Faults,
    schedule: BTreeMap<(u64, u64), Happening>,
    scheduled: u64,
    pub calm: bool,
    /// The control plane is gone for ever since then.
    pub forsaken_at: Option<u64>,

    pub disk: Disk,
    pub server: Option<Server>,
    pub epoch: u64,
    pub wall_offset: u64,
    pub nodes_max: u32,

    pub links: BTreeMap<LinkId, Link>,
    pub next_link: LinkId,
    pub provider: Provider,
    pub instances: BTreeMap<InstanceId, Instance>,
    pub next_instance: InstanceId,
    pub next_process: u64,
    /// Bytes of each attempt's log that the server has.
    pub logs: BTreeMap<AttemptRef, u64>,

    pub users: Users,
    pub checks: Checks,
    pub violation: Option<Violation>,
    story: Option<String>,
}

/// Each world knows only some of the faults: together they hide each other.
fn some_of(faults: Faults, rng: &mut Rng) -> Faults {
    if rng.once_in(4) {
        return faults;
    }
    Fault::ALL.iter().filter(|_| rng.once_in(2)).fold(faults, |kept, fault| kept.without(*fault))
}

/// So that the clock can also jump back.
const WALL_START_MS: u64 = 1_700_000_000_000;
/// Where there are budgets, their day ends in the middle of things.
const BEFORE_MIDNIGHT_MS: u64 = 1_700_006_400_000 - 100_000;

impl World {
    pub fn new(options: &Options) -> Self {
        let mut rng = Rng::new(options.seed);
        let nodes_max = rng.between(3, 6) as u32;
        let faults = some_of(options.faults, &mut rng);
        let mut world = Self {
            users: Users::new(&mut rng, options.seed, nodes_max),
            rng,
            now: 0,
            steps: 0,
            faults,
            schedule: BTreeMap::new(),
            scheduled: 0,
            calm: false,
            forsaken_at: None,
            disk: Disk::default(),
            server: None,
            epoch: 0,
            wall_offset: if crate::users::has_purse(options.seed) {
                BEFORE_MIDNIGHT_MS
            } else {
                WALL_START_MS
            },
            nodes_max,
            links: BTreeMap::new(),
            next_link: 0,
            provider: Provider::default(),
            instances: BTreeMap::new(),
            next_instance: 0,
            next_process: 0,
            logs: BTreeMap::new(),
            checks: Checks::default(),
            violation: None,
            story: options.story.then(String::new),
        };
        world.after(0, Happening::ServerStarts);
        world.after(100, Happening::UserActs);
        world.after(2_000, Happening::Chaos);
        world.after(AUDIT_MS, Happening::Audit);
        world
    }

    pub fn after(&mut self, delay_ms: u64, happening: Happening) {
        self.at(self.now + delay_ms, happening);
    }

    pub fn at(&mut self, at_ms: u64, happening: Happening) {
        self.scheduled += 1;
        self.schedule.insert((at_ms.max(self.now), self.scheduled), happening);
    }

    /// A line of the story; the words are made only if somebody listens.
    pub fn tell(&mut self, who: std::fmt::Arguments<'_>, what: impl FnOnce() -> String) {
        let (now, steps) = (self.now, self.steps);
        if let Some(story) = &mut self.story {
            let _ = writeln!(
                story,
                "{:>8}.{:03} s  step {steps:<5} {:<14} {}",
                now / 1000,
                now % 1000,
                who.to_string(),
                what()
            );
        }
    }

    pub fn take_story(&mut self) -> String {
        self.story.take().unwrap_or_default()
    }

    pub fn broken(&mut self, invariant: &'static str, what: String) {
        if self.violation.is_none() {
            self.tell(format_args!("CHECK"), || format!("{invariant} is broken: {what}"));
            self.violation = Some(Violation { invariant, what });
        }
    }

    /// True if this fault may happen now, and chance says so.
    pub fn strikes(&mut self, fault: Fault, once_in: u64) -> bool {
        self.faults.has(fault) && self.rng.once_in(once_in)
    }

    pub fn step(&mut self) {
        let Some(((at, _), happening)) = self.schedule.pop_first() else { return };
        self.now = at;
        self.steps += 1;
        match happening {
            Happening::ServerStarts => self.server_starts(),
            Happening::ServerTimer { epoch } if self.is_serving(epoch) => self.server_timer(),
            Happening::Batch { epoch } if self.is_up(epoch) => self.batch(),
            Happening::CommitDone { epoch } if self.is_up(epoch) => self.commit_done(),
            Happening::Offer { epoch, command, reply } if self.is_up(epoch) => self.offer(*command, reply),
            Happening::Settle { epoch, link, input } if self.is_up(epoch) => self.feed(link, *input),
            Happening::Effects { epoch, effects } if self.is_up(epoch) => self.hand_out(&effects),
            Happening::ServerStops { epoch } if self.is_up(epoch) => self.server_stops(),
            Happening::ProviderAnswers { epoch, node, answer } if self.is_up(epoch) => {
                self.provider_answers(node, answer);
            }
            Happening::Listed { epoch, found } if self.is_up(epoch) => self.listed(&found),
            Happening::News { epoch, node } if self.is_up(epoch) => self.news(node),
            // A server that is no more hears nothing.
            Happening::ServerTimer { .. }
            | Happening::Batch { .. }
            | Happening::CommitDone { .. }
            | Happening::Offer { .. }
            | Happening::Settle { .. }
            | Happening::Effects { .. }
            | Happening::ServerStops { .. }
            | Happening::ProviderAnswers { .. }
            | Happening::Listed { .. }
            | Happening::News { .. } => {}

            Happening::Up { link, frame } => self.up_arrives(link, *frame),
            Happening::Down { link, down } => self.down_arrives(link, *down),
            Happening::ClosedAtServer { link } => self.closed_at_server(link),
            Happening::ClosedAtAgent { link } => self.closed_at_agent(link),
            Happening::Dial { instance } => self.dial(instance),
            Happening::AgentHears { instance, input } => self.agent_hears(instance, *input),
            Happening::AgentTimer { instance } => self.agent_timer(instance),
            Happening::AgentResumes { instance } => self.agent_resumes(instance),
            Happening::Process { instance, attempt, serial } => self.process_due(instance, attempt, serial),
            Happening::ProviderActs { act } => self.provider_acts(act),
            Happening::UserActs => self.user_acts(),
            Happening::Chaos => self.chaos(),
            Happening::Audit => {
                self.audit();
                self.after(AUDIT_MS, Happening::Audit);
            }
        }
    }

    fn is_up(&self, epoch: u64) -> bool {
        self.server.as_ref().is_some_and(|server| server.epoch == epoch)
    }

    fn is_serving(&self, epoch: u64) -> bool {
        self.server.as_ref().is_some_and(|server| server.epoch == epoch && server.serving)
    }

    /// Something goes wrong, somewhere.
    fn chaos(&mut self) {
        if self.calm {
            return;
        }
        let wait = self.rng.between(200, 5_000);
        self.after(wait, Happening::Chaos);
        let enabled: Vec<Fault> =
            Fault::ALL.iter().copied().filter(|fault| self.faults.has(*fault)).collect();
        let Some(fault) = self.rng.pick(&enabled) else { return };
        let among: Vec<InstanceId> = self.instances.keys().copied().collect();
        let instance = self.rng.pick(&among);
        match fault {
            Fault::ServerCrash => self.server_crashes(),
            Fault::Drain => self.drain(),
            Fault::Clock => {
                let jump = self.rng.between(0, 40_000);
                self.tell(format_args!("clock"), || format!("jumps by {} ms", jump as i64 - 20_000));
                self.wall_offset = self.wall_offset + jump - 20_000;
                self.arm();
            }
            Fault::Throttle => {
                self.provider.throttled_until = self.now + self.rng.between(500, 12_000);
                self.tell(format_args!("provider"), || "refuses everything for a while".into());
            }
            Fault::AgentCrash => instance.into_iter().for_each(|i| self.agent_crashes(i)),
            Fault::Pause => {
                let until = self.now + self.rng.between(500, 40_000);
                instance.into_iter().for_each(|i| self.pause(i, until));
            }
            Fault::Zombie => instance.into_iter().for_each(|i| self.pause(i, u64::MAX)),
            Fault::Break => {
                if let Some(link) = instance.and_then(|i| self.instances.get(&i)).and_then(|i| i.link) {
                    self.break_link(link, "it breaks");
                }
            }
            Fault::Partition => {
                let until = self.now + self.rng.between(500, 35_000);
                let up = self.rng.once_in(2);
                instance.into_iter().for_each(|i| self.partition(i, up, until));
            }
            Fault::Vanish => instance.into_iter().for_each(|i| self.vanish(i, false)),
            Fault::Evict => instance.into_iter().for_each(|i| self.vanish(i, true)),
            // These strike when their moment comes.
            Fault::NeverReturns
            | Fault::SlowNode
            | Fault::Delay
            | Fault::Reorder
            | Fault::Disk
            | Fault::CreateFails
            | Fault::Timeout
            | Fault::DoubleCreate
            | Fault::RemoveFails
            | Fault::StaleList => {}
        }
    }

    /// Faults stop. Unless the control plane is gone for ever, everything must come to rest.
    pub fn becomes_calm(&mut self) {
        let forsaken = self.faults.has(Fault::NeverReturns) && self.rng.once_in(8);
        self.tell(format_args!("world"), || "no more faults".into());
        self.faults = Faults::NONE;
        self.calm = true;
        self.provider.throttled_until = 0;
        for instance in self.instances.values_mut() {
            instance.comes_to_itself(self.now);
        }
        if forsaken {
            self.forsaken_at = Some(self.now);
            if self.server.is_some() {
                self.server_crashes();
            }
        } else {
            self.users_become_calm();
        }
    }
}

/// How often the world is looked at as a whole.
pub(crate) const AUDIT_MS: u64 = 5_000;
