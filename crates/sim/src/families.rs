//! People who want families of jobs, and whoever drives a family: adds members to it, and closes it in the end.

use std::sync::Arc;

use neap_core::Command;
use neap_core::JobId;
use neap_core::command::{NewMember, NewMemberKind, SubmitJob};
use neap_core::family::FamilyKind;
use neap_core::job::{Class, Need, Outcome};

use crate::rng::Rng;
use crate::users::{CLUSTERS, DOCUMENT, Request, Users, WORKSPACE, Wish};
use crate::world::World;

const STEPS_MAX: u64 = 6;
/// Trials that a world may see.
const TRIALS_MAX: u64 = 12;

/// What there is in a world besides jobs on one node: too much at once hides itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subjects {
    pub pipelines: bool,
    pub driven: bool,
    /// Nodes of the largest job; 1 where there are no gangs.
    pub gang_max: u32,
}

impl Subjects {
    /// A gang leaves a node of its location for the other cluster's minimum, so that it can have its own.
    pub fn any(dice: &mut Rng, nodes_there: u32) -> Self {
        let (pipelines, driven, gangs) = (dice.once_in(2), dice.once_in(2), dice.once_in(2));
        Self { pipelines, driven, gang_max: if gangs { (nodes_there - 1).min(3) } else { 1 } }
    }
}

impl Users {
    /// As many nodes as any job needs.
    pub fn calm_max(&self) -> u64 {
        self.subjects.gang_max.max(2).into()
    }

    /// The members of a new family, the family itself first.
    pub fn any_family(&mut self, name: &Arc<str>) -> Vec<NewMember> {
        let Subjects { pipelines, driven, .. } = self.subjects;
        let root = if driven && (!pipelines || self.dice.once_in(3)) {
            FamilyKind::Driven
        } else {
            FamilyKind::Steps { go_on: self.dice.once_in(2) }
        };
        let what = self.family(root);
        let mut members = vec![member(name.clone(), 0, Vec::new(), what)];
        if root == FamilyKind::Driven {
            return members;
        }
        let mut pipelines = vec![0];
        for at in 1..=self.dice.between(1, STEPS_MAX) as usize {
            let name: Arc<str> = format!("{name}-{at}").into();
            let family = self.dice.pick(&pipelines).unwrap_or_default();
            // Whoever it waits for is outside of the families that it is in itself.
            let around: Vec<usize> =
                std::iter::successors(Some(family), |at| (*at > 0).then(|| members[*at].family)).collect();
            let after = (1..at).filter(|at| !around.contains(at) && self.dice.once_in(3)).collect();
            let what = match self.dice.below(8) {
                0 | 1 => {
                    pipelines.push(at);
                    let go_on = self.dice.once_in(2);
                    self.family(FamilyKind::Steps { go_on })
                }
                2 if driven => self.family(FamilyKind::Driven),
                _ => self.step(&name),
            };
            members.push(member(name, family, after, what));
        }
        members
    }

    fn family(&mut self, kind: FamilyKind) -> NewMemberKind {
        let timeout_ms = self.dice.once_in(6).then(|| self.dice.between(2_000, 60_000));
        NewMemberKind::Family { kind, timeout_ms }
    }

    fn step(&mut self, name: &Arc<str>) -> NewMemberKind {
        let (wish, nodes) = self.part(name);
        NewMemberKind::Job {
            cluster: wish.cluster.into(),
            priority: wish.priority,
            need: wish.need,
            nodes,
            timeout_ms: wish.timeout_ms,
            retry: wish.retry(),
            like: None,
            tier: Default::default(),
            work: None,
            reused: self.dice.once_in(8),
        }
    }

    /// A member as it is asked for; what it does is kept for when it runs.
    fn part(&mut self, name: &Arc<str>) -> (Wish, u32) {
        let mut wish = Wish::any(&mut self.dice);
        let gang = self.subjects.gang_max > 1 && self.dice.once_in(4);
        let nodes = if gang { self.dice.between(2, self.subjects.gang_max.into()) as u32 } else { 1 };
        if gang {
            wish.need = Need::Whole;
            wish.program.bad_rank = self.dice.below(8) as u32;
        }
        self.add_part(name.clone(), wish.program.clone());
        (wish, nodes)
    }
}

fn member(name: Arc<str>, family: usize, after: Vec<usize>, what: NewMemberKind) -> NewMember {
    NewMember { name, family, after, what, tags: vec![], document: DOCUMENT, meta: DOCUMENT }
}

impl World {
    /// Whoever drives families looks at what is published, adds a member here and there, and closes one in the end.
    pub fn drive(&mut self) {
        if !self.users.subjects.driven {
            return;
        }
        let Some(server) = self.server.as_ref().filter(|server| server.serving) else { return };
        let state = server.machine.state();
        let driven = state.families.values().filter(|f| f.kind == FamilyKind::Driven && f.closing.is_none());
        let driven: Vec<(JobId, bool)> = driven.map(|f| (f.id, state.waits.contains_key(&f.id))).collect();
        for (family, waits) in driven {
            if self.calm || self.users.dice.once_in(12) {
                let outcome = if self.users.dice.once_in(3) {
                    Outcome::failed(Class::UserCode, "NoGoodTrial", "No trial was good.", "Try others.")
                } else {
                    Outcome::completed()
                };
                self.ask(Command::CloseFamily { family, outcome }, Request::Drive);
            } else if self.users.trials < TRIALS_MAX && self.users.dice.once_in(3) {
                // One that waits takes no members: it is asked all the same now and then.
                if !waits || self.users.dice.once_in(4) {
                    self.submit_trial(family);
                }
            }
        }
    }

    fn submit_trial(&mut self, family: JobId) {
        self.users.trials += 1;
        let name: Arc<str> = format!("trial-{}", self.users.trials).into();
        let (wish, nodes) = self.users.part(&name);
        let submit = SubmitJob {
            workspace: WORKSPACE,
            name,
            cluster: self.users.dice.pick(&CLUSTERS).unwrap_or(wish.cluster).into(),
            owner: "driver".into(),
            priority: wish.priority,
            need: wish.need,
            nodes,
            family: Some(family),
            tags: vec![],
            timeout_ms: wish.timeout_ms,
            retry: wish.retry(),
            like: None,
            tier: Default::default(),
            document: DOCUMENT,
            meta: DOCUMENT,
            problems: Vec::new(),
        };
        self.ask(Command::SubmitJob(submit), Request::Drive);
    }
}
