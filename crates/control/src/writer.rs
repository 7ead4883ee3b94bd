//! The writer's thread: wait for inputs or the timer, step, commit, publish, answer, hand effects out.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use neap_core::effects::Effect;
use neap_core::problem::{Code, Problem};
use neap_core::{Millis, Refusal};
use neap_ledger::{Error, Ledger};
use tokio::sync::mpsc::UnboundedSender;

use crate::clock::{self, Stopwatch};
use crate::handle::{Inner, Published, Ticket};
use crate::limits;
use crate::machine::{Answers, Input, Machine};

/// Why a command is refused while the log lives on its reserve.
const DISK_FULL: &str = "the disk that holds the data folder is full; until there is room, only stopping, deleting and \
                         reports of nodes are recorded";

#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "almost every message is an input; a box for each would cost more"
)]
pub(crate) enum Message {
    Input(Input<Ticket>),
    /// Write a snapshot and end; the sender learns when it is done.
    End(std::sync::mpsc::Sender<()>),
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub machine: Machine,
    pub ledger: Ledger,
    pub messages: Receiver<Message>,
    pub inner: Arc<Inner>,
    pub effects: UnboundedSender<Vec<Effect>>,
}

impl Writer {
    pub fn run(mut self) {
        let _alive = Alive;
        let mut wake_at = Some(Millis(0));
        loop {
            let (inputs, end) = self.gather(wake_at);
            wake_at = self.batch(inputs);
            if let Some(done) = end {
                self.finish();
                let _ = done.send(());
                return;
            }
        }
    }

    /// Waits for the first input or the timer, then takes what else is there: that is the group of a group commit.
    fn gather(&self, wake_at: Option<Millis>) -> (Vec<Input<Ticket>>, Option<std::sync::mpsc::Sender<()>>) {
        let mut inputs = Vec::new();
        let first = match wake_at {
            Some(at) => match self.messages.recv_timeout(Duration::from_millis(at.since(clock::wall()))) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return (inputs, Some(std::sync::mpsc::channel().0)),
            },
            None => match self.messages.recv() {
                Ok(message) => Some(message),
                Err(_) => return (inputs, Some(std::sync::mpsc::channel().0)),
            },
        };
        let mut next = first;
        while let Some(message) = next {
            match message {
                Message::Input(input) => inputs.push(input),
                Message::End(done) => return (inputs, Some(done)),
            }
            if inputs.len() >= limits::BATCH_INPUTS_MAX {
                break;
            }
            next = self.messages.try_recv().ok();
        }
        (inputs, None)
    }

    /// One batch. Returns when to wake.
    fn batch(&mut self, inputs: Vec<Input<Ticket>>) -> Option<Millis> {
        self.look_at_disk();
        let mut step = self.machine.step(inputs, clock::wall());
        let mut wake_at = step.wake_at;
        if self.machine.disk_is_full() {
            // Nothing says that there is room again.
            let look = clock::wall().plus(limits::FULL_DISK_LOOK_MS);
            wake_at = Some(wake_at.map_or(look, |at| at.min(look)));
        }
        if step.batch.entries.is_empty() {
            let (answers, _) = self.machine.commit(step);
            self.answer(answers);
            return wake_at;
        }
        neap_crash::point("before-commit");
        let watch = Stopwatch::start();
        match self.ledger.append(step.now, &step.batch) {
            Ok(head) => {
                let took_us = watch.elapsed_us();
                neap_crash::point("after-commit-before-publish");
                let before = self.machine.state().clone();
                let entries = std::mem::take(&mut step.batch.entries);
                let (answers, effects) = self.machine.commit(step);
                let state = self.machine.state().clone();
                self.inner.published.store(Arc::new(Published { state, seq: head.seq }));
                self.inner.changes.send_replace(head.seq);
                neap_crash::point("after-publish-before-answer");
                self.answer(answers);
                neap_crash::point("after-answer-before-effects");
                if !effects.is_empty() {
                    let _ = self.effects.send(effects);
                }
                // After the answers: nobody waits for what is counted.
                self.inner.metrics.committed(&before, &entries, took_us, &self.inner.tracer);
                self.snapshot_if_due();
                wake_at
            }
            Err(error) => {
                tracing::error!(%error, "a batch could not be written; nothing of it happened");
                self.inner.metrics.commit_failed(&error, clock::steady());
                let refusal = refusal_of(&error);
                let refused = step.answers.into_iter().map(|(ticket, _)| (ticket, Err(refusal.clone())));
                self.answer(refused.collect());
                self.look_at_disk();
                // What the plan wanted is wanted still.
                Some(clock::wall().plus(limits::RETRY_COMMIT_MS))
            }
        }
    }

    /// While the disk is full, the log's reserve is there for what ends jobs and nodes.
    fn look_at_disk(&mut self) {
        let is_full = self.ledger.look_at_disk();
        if is_full == self.machine.disk_is_full() {
            return;
        }
        let why: Option<Arc<str>> = is_full.then(|| DISK_FULL.into());
        self.inner.metrics.disk_is_full(why.clone());
        self.machine.set_disk_full(why);
    }

    fn answer(&self, answers: Answers<Ticket>) {
        for (ticket, answer) in answers {
            self.inner.metrics.decided(answer.as_ref().err().map(Refusal::code));
            // Whoever asked may have gone; what was decided stands.
            let _ = ticket.send(answer);
        }
    }

    fn snapshot_if_due(&mut self) {
        // A snapshot is for a quicker start; the reserve is not for that.
        if self.ledger.snapshot_due() && !self.machine.disk_is_full() {
            let head = self.ledger.head();
            if let Err(error) = self.ledger.write_snapshot(self.machine.state(), head) {
                tracing::warn!(%error, "a snapshot could not be written; the next start replays more");
            }
        }
    }

    fn finish(&mut self) {
        let head = self.ledger.head();
        let written = self
            .ledger
            .write_snapshot(self.machine.state(), head)
            .and_then(|()| self.ledger.wait_for_snapshot());
        if let Err(error) = written {
            tracing::warn!(%error, "the last snapshot could not be written; the next start replays more");
        }
    }
}

/// A server whose writer is gone would answer questions and record nothing: better that it ends, and is started again.
struct Alive;

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn refusal_of(error: &Error) -> Refusal {
    let code = match error {
        Error::Full { .. } => Code::StorageFull,
        Error::ReadOnly { .. } => Code::LedgerReadOnly,
        _ => Code::InternalError,
    };
    Problem::new(code, format!("Nothing was changed: {}.", error.to_string().trim_end_matches('.'))).into()
}
