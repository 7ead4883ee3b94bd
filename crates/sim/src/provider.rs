//! The simulated provider: three calls, each of which may do what was asked, not do it, or do it and say otherwise.

use std::collections::VecDeque;

use neap_core::NodeId;
use neap_providers::Found;

use crate::faults::Fault;
use crate::nodes::Instance;
use crate::world::{Happening, InstanceId, World};

#[derive(Debug, Default)]
pub(crate) struct Provider {
    pub throttled_until: u64,
    /// Lists of some time ago.
    past: VecDeque<Vec<Found>>,
    orders: u64,
}

#[derive(Debug)]
pub(crate) enum Act {
    Create { node: NodeId, token: String, double: bool },
    Remove { node: NodeId },
}

const PAST_MAX: usize = 4;

impl World {
    pub fn ask_create(&mut self, node: NodeId) {
        self.provider.orders += 1;
        let token = format!("{node}/{}", self.provider.orders);
        let took = self.rng.between(10, 1_500);
        let double = self.strikes(Fault::DoubleCreate, 5);
        let act = Act::Create { node, token, double };
        if self.now < self.provider.throttled_until {
            return self.answer(node, 50, Err("too many requests".into()));
        }
        if self.strikes(Fault::CreateFails, 6) {
            return self.answer(node, took, Err("there is no room".into()));
        }
        if self.strikes(Fault::Timeout, 5) {
            // It is made, sooner or later, whatever is said about it.
            let made = self.rng.between(0, 40_000);
            self.after(made, Happening::ProviderActs { act });
            let answer = if self.rng.once_in(2) { Ok(()) } else { Err("the request timed out".into()) };
            let said = if answer.is_ok() { made.max(took) } else { self.rng.between(100, 30_000) };
            return self.answer(node, said, answer);
        }
        self.after(took, Happening::ProviderActs { act });
        self.answer(node, took + 1, Ok(()));
    }

    pub fn ask_remove(&mut self, node: NodeId) {
        let took = self.rng.between(5, 700);
        if self.now < self.provider.throttled_until {
            return self.answer(node, 50, Err("too many requests".into()));
        }
        if self.strikes(Fault::RemoveFails, 3) {
            return self.answer(node, took, Err("it cannot be removed now".into()));
        }
        self.after(took, Happening::ProviderActs { act: Act::Remove { node } });
        if self.strikes(Fault::Timeout, 4) {
            let said = self.rng.between(0, 20_000);
            return self.answer(node, said, Err("the request timed out".into()));
        }
        self.answer(node, took + 1, Ok(()));
    }

    fn answer(&mut self, node: NodeId, delay: u64, answer: Result<(), String>) {
        let epoch = self.epoch;
        self.after(delay, Happening::ProviderAnswers { epoch, node, answer });
    }

    /// What the provider's list shows, now or some time ago.
    pub fn list(&mut self) -> Vec<Found> {
        let stale = self.strikes(Fault::StaleList, 3);
        match self.provider.past.front().filter(|_| stale) {
            Some(past) => past.clone(),
            None => self.list_now(),
        }
    }

    fn list_now(&self) -> Vec<Found> {
        self.instances.values().map(|i| Found { node: i.node, alive: i.agent_lives() }).collect()
    }

    /// A list is remembered, so that it can be stale later.
    pub fn remember_list(&mut self) {
        let list = self.list_now();
        self.provider.past.push_back(list);
        if self.provider.past.len() > PAST_MAX {
            self.provider.past.pop_front();
        }
    }

    pub fn provider_acts(&mut self, act: Act) {
        match act {
            Act::Create { node, token, double } => {
                let there = self.instances.values().any(|i| i.node == node);
                if !there {
                    self.make(node, token.clone());
                }
                if double {
                    self.tell(format_args!("provider"), || format!("makes n-{node} a second time"));
                    self.make(node, token);
                }
            }
            Act::Remove { node } => {
                let its: Vec<InstanceId> =
                    self.instances.iter().filter(|(_, i)| i.node == node).map(|(id, _)| *id).collect();
                for id in its {
                    self.tell(format_args!("provider"), || format!("removes m-{id} (n-{node})"));
                    self.machine_goes(id);
                    self.instances.remove(&id);
                }
            }
        }
    }

    fn make(&mut self, node: NodeId, token: String) {
        self.next_instance += 1;
        let id = self.next_instance;
        let slow = if self.strikes(Fault::SlowNode, 4) { self.rng.between(50, 2_500) } else { 0 };
        let boot_offset = self.rng.between(0, 1_000_000);
        let instance = Instance::new(node, token, self.now, boot_offset, slow);
        self.tell(format_args!("provider"), || format!("makes m-{id} for n-{node}"));
        self.instances.insert(id, instance);
        if self.strikes(Fault::Zombie, 12) {
            return self.pause(id, u64::MAX);
        }
        let boots = self.rng.between(50, 2_500);
        self.after(boots, Happening::Dial { instance: id });
        // Its clock runs from the beginning: one that is never welcomed gives up.
        self.arm_agent(id);
    }
}
