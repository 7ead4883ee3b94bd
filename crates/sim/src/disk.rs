//! The disk of the simulated server: the log in its real format, and a snapshot in its real encoding.
//!
//! A shadow state follows the log through encoding and decoding, record by record: it is what a replay would give.

use neap_core::apply::apply;
use neap_core::planted::{self, Bug};
use neap_core::{Event, State};
use neap_ledger::{Batch, Envelope, Head};

#[derive(Debug, Default)]
pub struct Disk {
    log: Vec<Envelope>,
    head: Option<Head>,
    /// The state after every record of the log.
    pub shadow: State,
    snapshot: Option<(Head, Vec<u8>)>,
}

impl Disk {
    pub fn head(&self) -> Head {
        self.head.unwrap_or(Head::EMPTY)
    }

    pub fn records(&self) -> usize {
        self.log.len()
    }

    /// Writes a batch. Each event goes through its encoding and back before `look` sees it, with the state before it
    /// and the state after it.
    pub fn append(
        &mut self,
        batch: &Batch,
        mut look: impl FnMut(&Event, &State, &State),
    ) -> Result<(), String> {
        let first = self.head();
        for entry in &batch.entries {
            let last = self.head();
            let previous = if planted::is(Bug::ChainNotAdvanced) { first.hash } else { last.hash };
            let mut record = Envelope {
                seq: last.seq + 1,
                at: entry.at,
                kind: entry.event.kind().into(),
                version: entry.event.version(),
                actor: entry.actor.clone(),
                body: entry.event.encode(),
                previous,
                hash: [0; 32],
            };
            record.hash = record.computed_hash();
            let event = read(&record)?;
            if event != entry.event {
                return Err(format!("record {} reads otherwise than it was written", record.seq));
            }
            let before = self.shadow.clone();
            apply(&mut self.shadow, record.at, &event);
            look(&event, &before, &self.shadow);
            self.head = Some(Head { seq: record.seq, hash: record.hash, at: record.at });
            self.log.push(record);
        }
        Ok(())
    }

    /// `state` must be the one at the end of the log.
    pub fn write_snapshot(&mut self, state: &State) -> Result<(), String> {
        let body = postcard::to_allocvec(state).map_err(|e| e.to_string())?;
        let mut head = self.head();
        if planted::is(Bug::SnapshotTooNew)
            && let Some(earlier) = self.log.len().checked_sub(2).and_then(|at| self.log.get(at))
        {
            head = Head { seq: earlier.seq, hash: earlier.hash, at: earlier.at };
        }
        self.snapshot = Some((head, body));
        Ok(())
    }

    /// What a server that starts finds: the snapshot if there is one, and the records after it, each checked.
    pub fn load(&self) -> Result<State, String> {
        let (mut head, mut state) = match &self.snapshot {
            None => (Head::EMPTY, State::default()),
            Some((head, body)) => (*head, postcard::from_bytes(body).map_err(|e| e.to_string())?),
        };
        let first = usize::try_from(head.seq).unwrap_or(usize::MAX);
        for record in self.log.iter().skip(first) {
            head = follow(head, record)?;
            apply(&mut state, record.at, &read(record)?);
        }
        Ok(state)
    }

    /// A1: the chain is unbroken from the first record to the last.
    pub fn verify(&self) -> Result<(), String> {
        self.log.iter().try_fold(Head::EMPTY, follow).map(drop)
    }
}

fn read(record: &Envelope) -> Result<Event, String> {
    Event::decode(&record.kind, record.version, &record.body)
        .map_err(|e| format!("record {}: {e}", record.seq))
}

fn follow(head: Head, record: &Envelope) -> Result<Head, String> {
    let good = record.seq == head.seq + 1
        && record.previous == head.hash
        && record.hash == record.computed_hash()
        && record.at >= head.at;
    if good {
        Ok(Head { seq: record.seq, hash: record.hash, at: record.at })
    } else {
        Err(format!("record {} does not follow from record {}", record.seq, head.seq))
    }
}
