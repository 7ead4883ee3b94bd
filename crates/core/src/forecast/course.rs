//! What became of a forecast, read from the events alone: when jobs began and ended, how many nodes there were, and what
//! they cost.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Event;
use crate::ids::{ClusterId, JobId};
use crate::job::StopReason;
use crate::limits::FORECAST_MOMENTS_MAX;
use crate::meter::{Posting, Segment};
use crate::state::State;
use crate::units::Millis;

/// One way in which things may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Those that began or ended.
    pub jobs: BTreeMap<JobId, Span>,
    /// Those whose nodes are taken back, so that they are queued again.
    pub interrupted: BTreeSet<JobId>,
    /// The nodes of the cluster that is watched, whenever their number changes.
    pub nodes: Vec<Moment>,
    /// What jobs pay from now on, in micro-units: the boot of nodes that they waited for, their run, and idle time after.
    pub paid: BTreeMap<JobId, u128>,
    /// The last moment that was looked at.
    pub until: Millis,
    pub steps: usize,
    pub end: End,
}

/// Why a course goes no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// All that was asked for is known.
    #[default]
    Known,
    /// Nothing more happens as far as anybody knows: what is left waits for something that takes nobody knows how long.
    Still,
    /// What comes next is further ahead than a forecast looks.
    Far,
    /// It would take too long to look further ahead.
    Bound,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it was first placed on its nodes.
    pub start: Option<Millis>,
    pub end: Option<Millis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at: Millis,
    /// There or on their way.
    pub live: u32,
    pub busy: u32,
}

impl Course {
    /// As things stand: what runs has begun.
    pub(super) fn of(state: &State) -> Self {
        let active = state.clusters.values().flat_map(|cluster| cluster.active.iter());
        let span = |id: &JobId| {
            let attempt = state.jobs.get(id)?.attempt()?;
            Some((*id, Span { start: Some(attempt.placed), end: None }))
        };
        Self { jobs: active.filter_map(span).collect(), ..Self::default() }
    }

    pub(super) fn see(&mut self, at: Millis, event: &Event) {
        match event {
            Event::JobPlaced(e) => {
                self.jobs.entry(e.id).or_default().start.get_or_insert(at);
            }
            Event::AttemptStopRequested(e) if e.why == StopReason::Preempt => {
                self.interrupted.insert(e.id);
            }
            Event::JobEnded(e) => self.jobs.entry(e.id).or_default().end = Some(at),
            _ => {}
        }
    }

    pub(super) fn pay(&mut self, posting: &Posting) {
        if let Posting::Segment(segment) = posting
            && let Some(payer) = &segment.payer
        {
            *self.paid.entry(payer.job).or_default() += u128::from(segment.cost.0);
        }
    }

    pub(super) fn paid_before(&mut self, segment: &Segment) {
        if let Some(payer) = &segment.payer
            && let Some(paid) = self.paid.get_mut(&payer.job)
        {
            *paid = paid.saturating_sub(u128::from(segment.cost.0));
        }
    }

    pub(super) fn count(&mut self, at: Millis, state: &State, cluster: ClusterId) {
        let Some(cluster) = state.clusters.get(&cluster) else { return };
        let moment = Moment { at, live: cluster.live, busy: cluster.busy };
        let full = self.nodes.len() >= FORECAST_MOMENTS_MAX;
        match self.nodes.last_mut() {
            Some(last) if (last.live, last.busy) == (moment.live, moment.busy) => {}
            // Of one moment the last word counts.
            Some(last) if last.at == at => *last = moment,
            Some(_) if full => {}
            Some(_) | None => self.nodes.push(moment),
        }
    }
}
