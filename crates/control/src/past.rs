//! The past, for whoever asks: a handle whose state, tables and clock are those of an earlier time. What is kept of it
//! is bounded, and one time is made again at a time. Nothing can be changed through such a handle.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use neap_core::{Code, Millis, Refusal};
use neap_ledger::Moment;
use tokio::sync::watch;

use crate::handle::{Handle, Inner, Published};
use crate::limits;

#[derive(Debug)]
pub(crate) struct Past {
    /// Records that are replayed for one question, at most.
    records_max: u64,
    kept: Mutex<VecDeque<Moment>>,
    making: tokio::sync::Mutex<()>,
}

impl Past {
    pub fn new(records_max: u64) -> Self {
        Self { records_max, kept: Mutex::default(), making: tokio::sync::Mutex::default() }
    }

    fn find(&self, seq: u64) -> Option<Moment> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|moment| moment.seq == seq).cloned()
    }

    fn keep(&self, moment: Moment) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front(moment);
        kept.truncate(limits::MOMENTS_KEPT);
    }
}

fn unreadable(error: &neap_ledger::Error) -> Refusal {
    tracing::error!(%error, "the past could not be read");
    Refusal::because(Code::InternalError, format!("The past could not be read: {error}."))
}

impl Handle {
    /// Everything as it was at a time, by replay of the log from its beginning. Takes long where the log is.
    pub async fn at(&self, at: Millis) -> Result<Self, Refusal> {
        let now = self.now();
        if at > now {
            return Err(Refusal::because(
                Code::BadArgument,
                format!("{} is in the future; it is {} now.", at.rfc3339(), now.rfc3339()),
            ));
        }
        let seq = self.record_at(at)?;
        let moment = match self.inner.past.find(seq) {
            Some(moment) => moment,
            None => {
                let _making = self.inner.past.making.lock().await;
                // Whoever was before may have wanted the same.
                match self.inner.past.find(seq) {
                    Some(moment) => moment,
                    None => self.make(seq).await?,
                }
            }
        };
        Ok(self.as_of(&moment, at))
    }

    fn record_at(&self, at: Millis) -> Result<u64, Refusal> {
        let found = self.reader().record_at(at).map_err(|e| unreadable(&e))?;
        let Some(seq) = found else {
            let reach = self.reader().reach().map_err(|e| unreadable(&e))?;
            let from = reach.map_or_else(|| "nowhere".to_owned(), |reach| reach.first.rfc3339());
            return Err(Refusal::because(
                Code::BadArgument,
                format!("The log begins at {from}, and {} is before that.", at.rfc3339()),
            ));
        };
        self.refuse_too_far(at, seq)?;
        Ok(seq)
    }

    /// Whether the records up to `seq`, those of the time `at`, may be replayed for somebody's question.
    pub fn refuse_too_far(&self, at: Millis, seq: u64) -> Result<(), Refusal> {
        let most = self.inner.past.records_max;
        if seq <= most {
            return Ok(());
        }
        Err(Refusal::because(
            Code::LimitReached,
            format!(
                "{} is {seq} records into the log; at most {most} are replayed for a question about the past \
                 (limits.past_records in config.yaml).",
                at.rfc3339()
            ),
        ))
    }

    async fn make(&self, seq: u64) -> Result<Moment, Refusal> {
        let reader = self.reader().clone();
        let made = tokio::task::spawn_blocking(move || reader.past(seq)).await;
        let moment = match made {
            Ok(moment) => moment.map_err(|e| unreadable(&e))?,
            Err(e) => {
                return Err(Refusal::because(Code::InternalError, format!("The replay ended early: {e}.")));
            }
        };
        self.inner.past.keep(moment.clone());
        Ok(moment)
    }

    /// A handle on a moment. Commands that are given to it are refused: nobody is behind its door.
    fn as_of(&self, moment: &Moment, at: Millis) -> Self {
        let (door, _nobody) = std::sync::mpsc::channel();
        let inner = Inner {
            door,
            published: ArcSwap::from_pointee(Published { state: moment.state.clone(), seq: moment.seq }),
            changes: watch::Sender::new(moment.seq),
            reader: moment.reader.clone(),
            shutdown: watch::Sender::new(None),
            metrics: Default::default(),
            tracer: Default::default(),
            services: Default::default(),
            gpus: Default::default(),
            past: Past::new(self.inner.past.records_max),
            as_of: Some(at),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The time that it is about, if that is past.
    pub fn is_past(&self) -> Option<Millis> {
        self.inner.as_of
    }
}
