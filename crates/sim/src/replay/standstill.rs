//! One moment to plan on: so many nodes ready, so many jobs waiting, and nothing planned yet. Then one change after
//! the other, each decided and planned as in a server.

use std::sync::Arc;

use neap_control::{Input, Machine};
use neap_core::command::{AttemptNews, Report};
use neap_core::decide::decide;
use neap_core::event::Event;
use neap_core::job::{Exit, Need};
use neap_core::plan::{Dirty, plan_into};
use neap_core::unblock::{Verdict, unblock};
use neap_core::{AttemptId, Capacity, Command, Draft, JobId, Millis, NodeId, State};

use super::scene::{self, NodeTimes, OWNER, Pool, Task};
use super::{Error, START};

/// Idle nodes stay: what is looked at is that they might go.
const IDLE_MS: u64 = 3_600_000;

/// Nothing has been planned.
#[derive(Clone, Debug)]
pub struct Standstill(State);

/// The same world, planned from there on.
#[derive(Debug)]
pub struct Planning {
    machine: Machine,
    now: Millis,
}

/// What is asked for. Jobs share a node if `need` says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    pub nodes: u32,
    pub jobs: u64,
    pub size: Arc<str>,
    pub need: Need,
}

/// One job has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    node: NodeId,
    attempt: AttemptId,
}

impl Standstill {
    /// Takes in everything by `decide` and `apply`, as a replayed log would, and plans only the nodes themselves. The
    /// cluster may then fall to zero.
    pub fn new(moment: &Moment) -> Result<Self, Error> {
        let mut pool = Pool {
            name: "standstill".into(),
            size: moment.size.clone(),
            min: moment.nodes,
            max: moment.nodes,
            idle_ms: IDLE_MS,
        };
        let mut state = State::default();
        for command in scene::opening(std::slice::from_ref(&pool), NodeTimes::default()) {
            state = take(state, command).map_err(Error::Scene)?;
        }
        state = plan_everything(state);
        let ids: Vec<NodeId> = state.nodes.keys().copied().collect();
        for node in ids {
            let report = Report::NodeReady { node, actual: Capacity::default(), isolation: "none".into() };
            state = take(state, Command::Report(report)).map_err(Error::News)?;
        }
        pool.min = 0;
        state = take(state, scene::put(&pool)).map_err(Error::Scene)?;
        let task = Task {
            pool: pool.name,
            owner: OWNER.into(),
            submit_ms: 0,
            run_ms: 0,
            need: moment.need,
            priority: 1,
            nodes: 1,
            timeout_ms: None,
            like: None,
        };
        for number in 1..=usize::try_from(moment.jobs).unwrap_or(usize::MAX) {
            let refused = |refusal| Error::Task { task: number, refusal };
            state = take(state, scene::submit(&task, number)).map_err(refused)?;
        }
        Ok(Self(state))
    }

    /// From here, as often as wanted.
    pub fn begin(&self) -> Planning {
        Planning { machine: Machine::new(self.0.clone()), now: START.plus(1) }
    }
}

impl Planning {
    pub fn state(&self) -> &State {
        self.machine.state()
    }

    /// Everything is looked at, as after a start, until nothing is left to do. Returns how many jobs were placed.
    pub fn plan_all(&mut self) -> u64 {
        let mut placed = 0;
        loop {
            let step = self.machine.step::<()>(Vec::new(), self.now);
            let again = step.wake_at == Some(self.now);
            placed += placements(step.batch.entries.iter().map(|entry| &entry.event));
            self.machine.commit(step);
            if !again {
                return placed;
            }
        }
    }

    /// The next change, none if no job runs: the `turn`th of the active jobs ends.
    pub fn choose(&self, turn: usize) -> Option<Ended> {
        let state = self.machine.state();
        let cluster = state.clusters.values().next()?;
        let job = cluster.active.iter().nth(turn % cluster.active.len().max(1))?;
        let job = state.jobs.get(job)?;
        Some(Ended { node: job.attempt()?.node, attempt: job.attempt_id()? })
    }

    /// One of those who wait, as if by chance; none if nobody does.
    pub fn choose_waiting(&self, turn: usize) -> Option<JobId> {
        let cluster = self.machine.state().clusters.values().next()?;
        cluster.queue.iter().nth(turn % cluster.queue.len().max(1)).map(|key| key.job)
    }

    /// Why it waits, as `neap explain job` asks.
    pub fn explain(&self, job: JobId) -> Option<Verdict> {
        unblock(self.machine.state(), job, self.now)
    }

    /// Decides and plans the change. Returns how many jobs were placed.
    pub fn change(&mut self, ended: Ended) -> Result<u64, Error> {
        self.now = self.now.plus(1);
        let news = AttemptNews::Ended { exit: Exit::Success };
        let report = Report::Attempt { node: ended.node, attempt: ended.attempt, number: 1, news };
        let input = Input {
            actor: OWNER.into(),
            command: Command::Report(report),
            documents: Vec::new(),
            ticket: (),
        };
        let step = self.machine.step(vec![input], self.now);
        let placed = placements(step.batch.entries.iter().map(|entry| &entry.event));
        let (answers, _) = self.machine.commit(step);
        answers.into_iter().try_for_each(|((), answer)| answer.map(drop)).map_err(Error::News)?;
        Ok(placed)
    }
}

fn placements<'a>(events: impl Iterator<Item = &'a Event>) -> u64 {
    events.filter(|event| matches!(event, Event::JobPlaced(_))).count() as u64
}

fn take(state: State, command: Command) -> Result<State, neap_core::Refusal> {
    let mut draft = Draft::new(state);
    for event in decide(&draft.state, command, START)? {
        draft.emit(START, event);
    }
    Ok(draft.state)
}

fn plan_everything(state: State) -> State {
    let mut dirty = Dirty::all(&state);
    let mut draft = Draft::new(state);
    while plan_into(&mut draft, &mut dirty, START) == Some(START) {}
    draft.state
}
