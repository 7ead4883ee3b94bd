//! The sans-IO heart of the writer: inputs in, one batch out. It reads no clock and touches no disk.
//!
//! A step runs on a draft. [`Machine::commit`] makes it the state and reads the effects; a step whose commit failed
//! is simply dropped, and the state is as it was.
//!
//! A panic in the core (an overflow that nobody thought of, say) must not end the only writer: the command that met it is
//! refused, and everybody else's go on. See [`sound`].

use std::sync::Arc;

use neap_core::decide::decide;
use neap_core::effects::{self, Effect};
use neap_core::plan::{Dirty, plan_into};
use neap_core::{Code, Command, Draft, Event, Millis, Problem, Refusal, State};
use neap_ledger::{Batch, Document, Entry};

use crate::handle::Accepted;
use crate::limits::RETRY_COMMIT_MS;

/// Who decides what nobody asked for.
const PLANNER: &str = "neap";

/// A command with its documents and the caller's ticket (where the answer goes).
#[derive(Debug)]
pub struct Input<T> {
    pub actor: Arc<str>,
    pub command: Command,
    pub documents: Vec<Document>,
    pub ticket: T,
}

#[derive(Debug)]
pub struct Machine {
    state: State,
    dirty: Dirty,
    /// Why new work is refused, while the disk is full.
    disk_full: Option<Arc<str>>,
}

/// Each caller's ticket with its answer.
pub type Answers<T> = Vec<(T, Result<Accepted, Refusal>)>;

/// What one batch came to, before it is durable.
#[derive(Debug)]
pub struct Step<T> {
    pub batch: Batch,
    pub answers: Answers<T>,
    /// When to step again if nothing comes in.
    pub wake_at: Option<Millis>,
    pub now: Millis,
    draft: Draft,
    dirty: Dirty,
}

impl Machine {
    /// After a start everything is looked at.
    pub fn new(state: State) -> Self {
        let dirty = Dirty::all(&state);
        Self { state, dirty, disk_full: None }
    }

    /// While the disk is full (and this says why) commands that need room are refused and nothing is placed. Once
    /// there is room again, everything is looked at.
    pub fn set_disk_full(&mut self, why: Option<Arc<str>>) {
        if self.disk_full.is_some() && why.is_none() {
            let timers_seen = self.dirty.timers_seen;
            self.dirty = Dirty { timers_seen, ..Dirty::all(&self.state) };
        }
        self.disk_full = why;
    }

    pub fn disk_is_full(&self) -> bool {
        self.disk_full.is_some()
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Where the last plan has not looked yet, and until when timers were looked at.
    pub fn left(&self) -> &Dirty {
        &self.dirty
    }

    /// Every effect that is wanted now: read once at the start.
    pub fn effects(&self) -> Vec<Effect> {
        effects::all(&self.state)
    }

    pub fn step<T>(&self, inputs: Vec<Input<T>>, wall: Millis) -> Step<T> {
        let mut tickets = Vec::with_capacity(inputs.len());
        let mut asked = Vec::with_capacity(inputs.len());
        for Input { actor, command, documents, ticket } in inputs {
            tickets.push(ticket);
            asked.push(Input { actor, command, documents, ticket: () });
        }
        if let Some(step) = sound("an event could not be applied", || self.step_of(asked, wall)) {
            let Step { batch, answers, wake_at, now, draft, dirty } = step;
            let answers = answers.into_iter().map(|((), answer)| answer);
            let answers = tickets.into_iter().zip(answers).collect();
            return Step { batch, answers, wake_at, now, draft, dirty };
        }
        // Which of the commands it was is not known, so nothing of the batch happens.
        let now = self.moment(wall);
        Step {
            batch: Batch::default(),
            answers: tickets.into_iter().map(|ticket| (ticket, Err(fault()))).collect(),
            wake_at: Some(now.plus(RETRY_COMMIT_MS)),
            now,
            draft: Draft::new(self.state.clone()),
            dirty: self.dirty.clone(),
        }
    }

    fn moment(&self, wall: Millis) -> Millis {
        // Neither behind the last event nor behind the timers that were looked at: a clock that was set back would
        // put new timers where nobody looks again.
        wall.max(self.state.now).max(self.dirty.timers_seen)
    }

    fn step_of(&self, inputs: Vec<Input<()>>, wall: Millis) -> Step<()> {
        let now = self.moment(wall);
        let mut draft = Draft::new(self.state.clone());
        draft.disk_is_full = self.disk_full.is_some();
        let mut dirty = self.dirty.clone();
        let mut batch = Batch::default();
        let mut answers = Vec::with_capacity(inputs.len());
        for input in inputs {
            if let Some(why) = &self.disk_full
                && !input.command.is_taken_on_a_full_disk()
            {
                let refusal = Refusal::because(Code::StorageFull, format!("Nothing was changed: {why}."));
                answers.push((input.ticket, Err(refusal)));
                continue;
            }
            let decided =
                sound("a command could not be decided", || decide(&draft.state, input.command, now));
            let answer = match decided.unwrap_or_else(|| Err(fault())) {
                Ok(events) => {
                    for event in &events {
                        draft.emit(now, event.clone());
                        batch.entries.push(Entry {
                            at: now,
                            actor: input.actor.clone(),
                            event: event.clone(),
                            postings: draft.postings.last_mut().map(std::mem::take).unwrap_or_default(),
                        });
                    }
                    if !events.is_empty() {
                        batch.documents.extend(input.documents);
                    }
                    Ok(Accepted { events })
                }
                Err(refusal) => Err(refusal),
            };
            answers.push((input.ticket, answer));
        }
        let decided = draft.events.len();
        // A plan that cannot be made is tried again; what was commanded is done meanwhile.
        let before = (draft.state.clone(), draft.touched.clone());
        let planned =
            sound("what to do next could not be planned", || plan_into(&mut draft, &mut dirty, now));
        let wake_at = planned.unwrap_or_else(|| {
            (draft.state, draft.touched) = before;
            draft.events.truncate(decided);
            draft.postings.truncate(decided);
            dirty = Dirty { timers_seen: self.dirty.timers_seen, ..Dirty::all(&draft.state) };
            Some(now.plus(RETRY_COMMIT_MS))
        });
        let planner: Arc<str> = PLANNER.into();
        let postings = draft.postings[decided..].iter_mut();
        let planned = draft.events[decided..].iter().zip(postings);
        batch.entries.extend(planned.map(|(event, postings): (&Event, _)| Entry {
            at: now,
            actor: planner.clone(),
            event: event.clone(),
            postings: std::mem::take(postings),
        }));
        Step { batch, answers, wake_at, now, draft, dirty }
    }

    /// The step is durable: it becomes the state. Returns what is wanted of the world now.
    pub fn commit<T>(&mut self, step: Step<T>) -> (Answers<T>, Vec<Effect>) {
        let effects = effects::of_nodes(&step.draft.state, &step.draft.touched.nodes);
        self.state = step.draft.state;
        self.dirty = step.dirty;
        (step.answers, effects)
    }
}

/// What a call of the core gives; none if it panicked, and then the log says so. All it worked on is dropped, or taken back.
fn sound<R>(what: &str, call: impl FnOnce() -> R) -> Option<R> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().copied();
            let why = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tracing::error!(why = why.unwrap_or("unknown"), "a fault in the core: {what}; please report it");
            None
        }
    }
}

fn fault() -> Refusal {
    let message = "Nothing was changed: the server met a fault of its own while it decided on this. Its log has the details; please report them.";
    Problem::new(Code::InternalError, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use neap_core::DocHash;
    use neap_core::settings::Settings;

    fn group(name: &str, ticket: u32) -> Input<u32> {
        let command = Command::PutGroup {
            subscription: "s".into(),
            name: name.into(),
            location: "westus".into(),
            document: DocHash([0; 32]),
        };
        Input { actor: "me".into(), command, documents: Vec::new(), ticket }
    }

    fn started() -> Machine {
        let mut machine = Machine::new(State::default());
        let start = Command::Start { release: "test".into(), settings: Settings::default() };
        let step = machine.step(
            vec![Input { actor: "me".into(), command: start, documents: vec![], ticket: 0 }],
            Millis(5),
        );
        machine.commit(step);
        machine
    }

    #[test]
    fn a_step_that_is_not_committed_never_happened() {
        let machine = started();
        let before = machine.state().clone();
        let step = machine.step(vec![group("one", 1)], Millis(6));
        assert_eq!(step.batch.entries.len(), 1);
        drop(step);
        assert_eq!(*machine.state(), before);
    }

    #[test]
    fn a_panic_in_the_core_is_an_answer() {
        assert_eq!(sound("fine", || 7), Some(7));
        assert_eq!(sound("overflow", || u64::MAX.checked_add(1).expect("too much")), None);
        assert_eq!(fault().code(), Code::InternalError);
    }

    #[test]
    fn a_refusal_does_not_hold_up_the_batch() {
        let mut machine = started();
        let step = machine.step(vec![group("bad.", 1), group("good", 2)], Millis(6));
        let (answers, _) = machine.commit(step);
        let taken: Vec<_> = answers.iter().map(|(ticket, answer)| (*ticket, answer.is_ok())).collect();
        assert_eq!(taken, vec![(1, false), (2, true)]);
        assert_eq!(machine.state().groups.len(), 1);
    }

    #[test]
    fn on_a_full_disk_new_work_is_refused_and_ending_is_taken() {
        let mut machine = started();
        machine.set_disk_full(Some("the disk is full".into()));
        let drain = Command::Drain { deadline: Millis(9) };
        let ending = Input { actor: "me".into(), command: drain, documents: vec![], ticket: 2 };
        let step = machine.step(vec![group("one", 1), ending], Millis(6));
        let (answers, _) = machine.commit(step);
        let codes: Vec<_> =
            answers.into_iter().map(|(t, answer)| (t, answer.err().map(|r| r.code()))).collect();
        assert_eq!(codes, vec![(1, Some(Code::StorageFull)), (2, None)]);
        machine.set_disk_full(None);
        let step = machine.step(vec![group("one", 1)], Millis(7));
        assert_eq!(step.batch.entries.len(), 1, "there is room again");
    }

    #[test]
    fn time_stays_ahead_of_the_timers_that_were_looked_at() {
        let mut machine = started();
        let idle = machine.step::<u32>(Vec::new(), Millis(9_000));
        assert!(idle.batch.entries.is_empty());
        machine.commit(idle);
        let step = machine.step(vec![group("one", 1)], Millis(6));
        assert_eq!(step.now, Millis(9_000), "timers up to 9,000 were looked at, and are not looked at again");
    }

    #[test]
    fn time_never_goes_back() {
        let mut machine = started();
        let step = machine.step(vec![group("one", 1)], Millis(3));
        assert_eq!(step.now, Millis(5), "the last event was at 5");
        machine.commit(step);
    }
}
