//! Replay: work that is known beforehand, run through the real machine on simulated nodes, in virtual time.
//!
//! ```text
//! pools, tasks, node times ─▶ Replay: step, step, step … until every task has ended ─▶ Course: waiting, node-hours
//! ```
//!
//! What decides is `neap_control::Machine`, batch by batch, as in a server. Here are only the clock, which jumps from
//! one happening to the next, and nodes that boot, run and leave in the time they are given. Nothing fails, and
//! nothing here reads a real clock: who wants to know what a step costs holds a watch beside it.
//!
//! - [`scene`]: what is there and what comes. [`course`]: what became of it.
//! - [`shapes`]: Kueue's published load shapes. [`trace`]: recorded work of a GPU cluster; [`synthetic`]: work like it.
//! - [`standstill`]: one moment with many nodes and jobs, to plan on.

pub mod course;
pub mod scene;
pub mod shapes;
pub mod standstill;
pub mod synthetic;
pub mod trace;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use neap_control::limits::BATCH_INPUTS_MAX;
use neap_control::{Input, Machine};
use neap_core::command::{AttemptNews, Report};
use neap_core::effects::Effect;
use neap_core::job::{AttemptFacts, Exit};
use neap_core::{AttemptId, Capacity, Command, Millis, NodeId, Refusal, State};

use course::{Course, Meter};
use scene::{NodeTimes, Pool, Task};

/// Virtual time begins here, and not at 0: timers at 0 count as looked at.
pub(crate) const START: Millis = Millis(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the scene was refused: {0}")]
    Scene(Refusal),
    #[error("task {task} was refused: {refusal}")]
    Task { task: usize, refusal: Refusal },
    #[error("a node's news was refused: {0}")]
    News(Refusal),
    #[error("{left} of {tasks} tasks never end: nothing more is due")]
    Stuck { left: usize, tasks: usize },
}

/// A world in which only time passes.
#[derive(Debug)]
pub struct Replay<'a> {
    tasks: &'a [Task],
    times: NodeTimes,
    /// Tasks in the order in which they are submitted; the job of the first has the first id.
    order: Vec<usize>,
    submitted: usize,
    machine: Machine,
    wake_at: Option<Millis>,
    due: BinaryHeap<Reverse<Due>>,
    /// Happenings so far: those of one moment come in the order in which they were caused.
    caused: u64,
    meter: Meter,
}

/// News on its way to the machine.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Millis,
    caused: u64,
    news: News,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Creating(NodeId),
    Booted(NodeId),
    Started(NodeId, AttemptId),
    Ended(NodeId, AttemptId),
    Gone(NodeId),
}

/// Who asked, for words about a refusal.
#[derive(Clone, Copy, Debug)]
enum Asker {
    Scene,
    Task(usize),
    Node,
}

impl<'a> Replay<'a> {
    /// The pools are declared; no time has passed. The tasks may be in any order.
    pub fn new(pools: &[Pool], tasks: &'a [Task], times: NodeTimes) -> Result<Self, Error> {
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order.sort_by_key(|index| tasks[*index].submit_ms);
        let mut replay = Self {
            tasks,
            times,
            meter: Meter::new(tasks),
            order,
            submitted: 0,
            machine: Machine::new(State::default()),
            wake_at: None,
            due: BinaryHeap::new(),
            caused: 0,
        };
        let opening = scene::opening(pools, times).into_iter().map(|command| input(command, Asker::Scene));
        replay.batch(opening.collect(), START)?;
        Ok(replay)
    }

    /// To the last task's end.
    pub fn run(pools: &[Pool], tasks: &'a [Task], times: NodeTimes) -> Result<Course, Error> {
        let mut replay = Self::new(pools, tasks, times)?;
        while replay.step()? {}
        Ok(replay.finish())
    }

    /// One batch at the next moment at which something is due. False once every task has ended.
    pub fn step(&mut self) -> Result<bool, Error> {
        let left = self.tasks.len() - self.meter.ended();
        if left == 0 {
            return Ok(false);
        }
        let Some(now) = self.next_moment() else {
            return Err(Error::Stuck { left, tasks: self.tasks.len() });
        };
        let inputs = self.inputs(now);
        self.batch(inputs, now)?;
        Ok(true)
    }

    /// The machine as it stands.
    pub fn state(&self) -> &State {
        self.machine.state()
    }

    pub fn finish(self) -> Course {
        self.meter.finish()
    }

    fn next_moment(&self) -> Option<Millis> {
        let submit = self.order.get(self.submitted).map(|index| submit_at(&self.tasks[*index]));
        let news = self.due.peek().map(|Reverse(due)| due.at);
        [submit, news, self.wake_at].into_iter().flatten().min()
    }

    /// What has come by now: news first, then new work, no more than a writer takes at once.
    fn inputs(&mut self, now: Millis) -> Vec<Input<Asker>> {
        let mut inputs = Vec::new();
        while inputs.len() < BATCH_INPUTS_MAX
            && let Some(Reverse(due)) = self.due.peek()
            && due.at <= now
        {
            inputs.extend(reports(due.news).map(|report| input(Command::Report(report), Asker::Node)));
            self.due.pop();
        }
        while inputs.len() < BATCH_INPUTS_MAX
            && let Some(index) = self.order.get(self.submitted)
            && submit_at(&self.tasks[*index]) <= now
        {
            self.submitted += 1;
            let command = scene::submit(&self.tasks[*index], self.submitted);
            inputs.push(input(command, Asker::Task(*index)));
        }
        inputs
    }

    fn batch(&mut self, inputs: Vec<Input<Asker>>, now: Millis) -> Result<(), Error> {
        let step = self.machine.step(inputs, now);
        self.wake_at = step.wake_at;
        for entry in &step.batch.entries {
            self.meter.see(now, &entry.event, &self.order);
        }
        let (answers, effects) = self.machine.commit(step);
        for (asker, answer) in answers {
            answer.map_err(|refusal| match asker {
                Asker::Scene => Error::Scene(refusal),
                Asker::Task(task) => Error::Task { task, refusal },
                Asker::Node => Error::News(refusal),
            })?;
        }
        for effect in effects {
            self.perform(&effect, now);
        }
        Ok(())
    }

    /// The world obeys. What it has begun is told at once, so that it is asked for once.
    fn perform(&mut self, effect: &Effect, now: Millis) {
        match *effect {
            Effect::CreateNode { node } => {
                self.after(now, 0, News::Creating(node));
                self.after(now, self.times.boot_ms, News::Booted(node));
            }
            Effect::RemoveNode { node } => self.after(now, self.times.leave_ms, News::Gone(node)),
            Effect::StartAttempt { node, attempt } => {
                let task = &self.tasks[self.order[course::place_of(attempt.job)]];
                let run_ms = task.timeout_ms.map_or(task.run_ms, |limit_ms| limit_ms.min(task.run_ms));
                self.after(now, 0, News::Started(node, attempt));
                self.after(now, run_ms, News::Ended(node, attempt));
            }
            // Nobody cancels anything here, and a task that has a time limit ends by itself no later.
            Effect::StopAttempt { .. } => {}
        }
    }

    fn after(&mut self, now: Millis, delay_ms: u64, news: News) {
        self.caused += 1;
        self.due.push(Reverse(Due { at: now.plus(delay_ms), caused: self.caused, news }));
    }
}

fn submit_at(task: &Task) -> Millis {
    START.plus(task.submit_ms)
}

fn input(command: Command, asker: Asker) -> Input<Asker> {
    Input { actor: scene::OWNER.into(), command, documents: Vec::new(), ticket: asker }
}

fn reports(news: News) -> impl Iterator<Item = Report> {
    let (first, second) = match news {
        News::Creating(node) => (Report::NodeCreating { node }, None),
        News::Booted(node) => {
            let ready = Report::NodeReady { node, actual: Capacity::default(), isolation: "none".into() };
            (Report::NodePreparing { node }, Some(ready))
        }
        News::Started(node, attempt) => {
            let news = AttemptNews::Started { facts: AttemptFacts::new() };
            (Report::Attempt { node, attempt, number: 1, news }, None)
        }
        News::Ended(node, attempt) => {
            let news = AttemptNews::Ended { exit: Exit::Success };
            (Report::Attempt { node, attempt, number: 2, news }, None)
        }
        News::Gone(node) => (Report::NodeGone { node, reason: "removed".into() }, None),
    };
    std::iter::once(first).chain(second)
}

#[cfg(test)]
mod foresight;
#[cfg(test)]
mod tests;
