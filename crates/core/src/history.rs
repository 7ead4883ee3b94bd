//! How long things took: of ended jobs by what they are *like*, of nodes by their cluster. A bounded sample of each, kept by
//! `apply`, for whoever wants to say when something will be. Nothing is decided by it.
//!
//! Two jobs are like each other, from the closest to the coarsest: the same experiment, command and code, of the same size,
//! on the same cluster; the same experiment and size there; the same size there.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use serde::{Deserialize, Serialize};

use crate::event::{JobEnded, JobSubmitted, NodeGone, NodeReady};
use crate::ids::ClusterId;
use crate::job::{Job, Need, Phase, Status};
use crate::limits::{
    HISTORY_ARRIVALS_KEPT, HISTORY_CLASSES_MAX, HISTORY_SAMPLES_ENOUGH, HISTORY_SAMPLES_KEPT,
};
use crate::node::NodeState;
use crate::state::State;
use crate::units::Millis;

/// What a job does, as far as its being like another goes: fingerprints, for the words themselves lie beside the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Like {
    pub work: u32,
    pub experiment: u32,
}

impl Like {
    /// `code` is whatever names its content.
    pub fn of(experiment: &str, command: &str, code: &str) -> Self {
        Self { work: mark(&[experiment, command, code]), experiment: mark(&[experiment]) }
    }
}

fn mark(words: &[&str]) -> u32 {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    for word in words {
        hasher.update(word.len().to_be_bytes());
        hasher.update(word.as_bytes());
    }
    let digest: [u8; 32] = hasher.finalize().into();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

/// How much alike jobs are, the closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closeness {
    Work,
    Experiment,
    Size,
}

impl Closeness {
    /// Jobs of …
    pub const fn words(self) -> &'static str {
        match self {
            Self::Work => "the same experiment, command, code and size",
            Self::Experiment => "the same experiment and size",
            Self::Size => "the same size",
        }
    }
}

/// Jobs that are like each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Class {
    pub cluster: ClusterId,
    pub closeness: Closeness,
    mark: u32,
    size: u32,
}

impl Class {
    const fn first_of(cluster: ClusterId) -> Self {
        Self { cluster, closeness: Closeness::Work, mark: 0, size: 0 }
    }
}

/// The classes that a job is in, the closest first.
pub fn classes(job: &Job) -> impl Iterator<Item = Class> {
    let size = size_of(job);
    let class = move |closeness, mark| Class { cluster: job.cluster, closeness, mark, size };
    let like = job.like.into_iter().flat_map(move |like| {
        [class(Closeness::Work, like.work), class(Closeness::Experiment, like.experiment)]
    });
    like.chain([class(Closeness::Size, 0)])
}

fn size_of(job: &Job) -> u32 {
    match job.need {
        Need::Whole => job.nodes,
        Need::Share(share) => mark(&[&share.to_string()]) | 1 << 31,
    }
}

/// The last spans of a kind, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub spans_ms: Vec<u64>,
    /// When the last came.
    pub(crate) at: Millis,
}

impl Sample {
    fn add(&mut self, span_ms: u64, at: Millis) {
        if self.spans_ms.len() >= HISTORY_SAMPLES_KEPT {
            self.spans_ms.remove(0);
        }
        self.spans_ms.push(span_ms);
        self.at = at;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// How long the last attempts of ended jobs held their nodes.
    runs: OrdMap<Class, Arc<Sample>>,
    /// The same by when something was last added: the oldest are forgotten first.
    order: OrdSet<(Millis, Class)>,
    /// Who came to a cluster, the newest last.
    arrivals: OrdMap<ClusterId, Vector<Arrival>>,
    /// From the wish for a node to its being ready.
    boots: OrdMap<ClusterId, Arc<Sample>>,
    /// From the order to go to its absence.
    leaves: OrdMap<ClusterId, Arc<Sample>>,
}

/// A job that came: as much as another like it would ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    pub at: Millis,
    pub owner: Arc<str>,
    pub priority: u8,
    pub need: Need,
    pub nodes: u32,
    pub timeout_ms: Option<u64>,
    pub like: Option<Like>,
}

/// What is known of how long a job takes.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub closeness: Closeness,
    pub sample: &'a Sample,
}

impl History {
    /// The closest class with enough in it; else the closest with anything in it.
    pub fn of_job(&self, job: &Job) -> Option<Known<'_>> {
        let found =
            |class: Class| self.runs.get(&class).map(|sample| Known { closeness: class.closeness, sample });
        let mut all = classes(job).filter_map(found);
        let first = all.next()?;
        if first.sample.spans_ms.len() >= HISTORY_SAMPLES_ENOUGH {
            return Some(first);
        }
        Some(all.find(|known| known.sample.spans_ms.len() >= HISTORY_SAMPLES_ENOUGH).unwrap_or(first))
    }

    /// Of this cluster, else of whichever has one.
    pub fn boots(&self, cluster: ClusterId) -> Option<&Sample> {
        nearest(&self.boots, cluster)
    }

    pub fn leaves(&self, cluster: ClusterId) -> Option<&Sample> {
        nearest(&self.leaves, cluster)
    }

    /// Who came to clusters, the oldest first.
    pub fn arrivals(&self) -> impl Iterator<Item = (ClusterId, &Vector<Arrival>)> {
        self.arrivals.iter().map(|(cluster, arrivals)| (*cluster, arrivals))
    }

    fn add(&mut self, class: Class, span_ms: u64, at: Millis) {
        let sample = Arc::make_mut(self.runs.entry(class).or_default());
        self.order.remove(&(sample.at, class));
        sample.add(span_ms, at);
        self.order.insert((at, class));
        while self.runs.len() > HISTORY_CLASSES_MAX
            && let Some((_, oldest)) = self.order.remove_min()
        {
            self.runs.remove(&oldest);
        }
    }
}

fn nearest(samples: &OrdMap<ClusterId, Arc<Sample>>, cluster: ClusterId) -> Option<&Sample> {
    let of_any = || samples.values().max_by_key(|sample| sample.at);
    samples.get(&cluster).or_else(of_any).map(|sample| &**sample)
}

/// Members of families are not counted: their families come.
pub(crate) fn job_submitted(state: &mut State, at: Millis, e: &JobSubmitted) {
    if e.family.is_some() {
        return;
    }
    let arrivals = state.history.arrivals.entry(e.cluster).or_default();
    if arrivals.len() >= HISTORY_ARRIVALS_KEPT {
        arrivals.pop_front();
    }
    arrivals.push_back(Arrival {
        at,
        owner: e.owner.clone(),
        priority: e.priority,
        need: e.need,
        nodes: e.nodes,
        timeout_ms: e.timeout_ms,
        like: e.like,
    });
}

/// A job ends by itself: how long its attempt held its nodes is worth knowing. Of one that was canceled it is not.
pub(crate) fn job_ended(state: &mut State, at: Millis, e: &JobEnded) {
    if !matches!(e.outcome.status, Status::Completed | Status::Failed) || e.attempt.is_none() {
        return;
    }
    let Some(job) = state.jobs.get(&e.id).cloned() else { return };
    let Some(attempt) = job.attempt().filter(|attempt| attempt.phase != Phase::Assigned) else { return };
    for class in classes(&job) {
        state.history.add(class, at.since(attempt.placed), at);
    }
}

pub(crate) fn node_ready(state: &mut State, at: Millis, e: &NodeReady) {
    if let Some(node) = state.nodes.get(&e.id) {
        let sample = state.history.boots.entry(node.cluster).or_default();
        Arc::make_mut(sample).add(at.since(node.requested), at);
    }
}

pub(crate) fn node_gone(state: &mut State, at: Millis, e: &NodeGone) {
    if let Some(node) = state.nodes.get(&e.id)
        && matches!(node.state, NodeState::Leaving { .. })
    {
        let sample = state.history.leaves.entry(node.cluster).or_default();
        Arc::make_mut(sample).add(at.since(node.since), at);
    }
}

pub(crate) fn cluster_deleted(state: &mut State, id: ClusterId) {
    let history = &mut state.history;
    history.boots.remove(&id);
    history.arrivals.remove(&id);
    history.leaves.remove(&id);
    let its: Vec<(Class, Millis)> = history
        .runs
        .range(Class::first_of(id)..)
        .take_while(|(class, _)| class.cluster == id)
        .map(|(class, sample)| (*class, sample.at))
        .collect();
    for (class, at) in its {
        history.runs.remove(&class);
        history.order.remove(&(at, class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_the_newest_and_classes_are_bounded() {
        let mut history = History::default();
        let class = |mark| Class { cluster: ClusterId(1), closeness: Closeness::Work, mark, size: 1 };
        for span in 0..=HISTORY_SAMPLES_KEPT as u64 {
            history.add(class(1), span, Millis(span));
        }
        let kept = &history.runs[&class(1)].spans_ms;
        assert_eq!((kept.len(), kept[0]), (HISTORY_SAMPLES_KEPT, 1));
        let many = u32::try_from(HISTORY_CLASSES_MAX).unwrap();
        for mark in 2..many + 2 {
            history.add(class(mark), 1, Millis(1_000_000 + u64::from(mark)));
        }
        assert_eq!((history.runs.len(), history.order.len()), (HISTORY_CLASSES_MAX, HISTORY_CLASSES_MAX));
        assert!(!history.runs.contains_key(&class(1)), "the oldest are forgotten first");
    }

    #[test]
    fn work_and_experiment_tell_jobs_apart() {
        let of = |e: &str, c: &str, code: &str| Like::of(e, c, code);
        assert_eq!(of("e", "c", "x"), of("e", "c", "x"));
        assert_ne!(of("e", "c", "x").work, of("e", "c", "y").work);
        assert_eq!(of("e", "c", "x").experiment, of("e", "d", "y").experiment);
        assert_ne!(of("ec", "", "").work, of("e", "c", "").work, "where one word ends is part of it");
    }
}
