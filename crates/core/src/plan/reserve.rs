//! What the first job that cannot be placed yet is promised, and who may go before it all the same.
//!
//! The promise: the moment at which enough nodes are free, if whatever runs ends no later than it must. A job without
//! `limits.timeout` counts as endless. Others may start meanwhile on what the promise does not need, or if they are
//! certain to be over by then: they are stopped before, should they not be.

use crate::cluster::Cluster;
use crate::ids::NodeId;
use crate::job::{Job, Need};
use crate::lock;
use crate::node::{Node, NodeState};
use crate::plan::scale::nodes_free;
use crate::state::State;
use crate::units::{Capacity, Millis};

/// When something is over; `None` is never, as far as anybody knows.
type End = Option<Millis>;

#[derive(Debug)]
pub struct Reservation {
    /// When the first job can start at the latest.
    at: End,
    /// Whole nodes that it does not need even so.
    spare: usize,
    /// For a share of a node: the node that it will be on, where one is known.
    on: Option<NodeId>,
    /// It waits for a node that is on its way: what is there is free for others.
    coming: bool,
}

/// What somebody who goes before must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Nothing.
    Free,
    /// It is stopped then.
    Until(Millis),
}

impl Reservation {
    pub fn of(state: &State, cluster: &Cluster, first: &Job, now: Millis) -> Self {
        match first.need {
            Need::Whole => Self::of_nodes(state, cluster, first.nodes as usize, now),
            Need::Share(share) => Self::of_share(state, cluster, share),
        }
    }

    fn of_nodes(state: &State, cluster: &Cluster, wanted: usize, now: Millis) -> Self {
        let there = cluster.idle.len() + on_their_way(state, cluster);
        if there >= wanted {
            let spare = (there - wanted).min(cluster.idle.len());
            return Self { at: Some(now), spare, on: None, coming: false };
        }
        let missing = wanted - there;
        let mut ends: Vec<Millis> = busy(state, cluster).filter_map(|node| end_of(state, node)).collect();
        ends.sort_unstable();
        match ends.get(missing - 1).copied() {
            Some(at) => {
                let free_by_then = there + ends.iter().filter(|end| **end <= at).count();
                Self { at: Some(at), spare: free_by_then - wanted, on: None, coming: false }
            }
            None => Self { at: None, spare: 0, on: None, coming: false },
        }
    }

    fn of_share(state: &State, cluster: &Cluster, share: Capacity) -> Self {
        if on_their_way(state, cluster) > 0 {
            return Self { at: None, spare: 0, on: None, coming: true };
        }
        let room = |node: &Node| room_at(state, node, share).map(|at| (at, node.id));
        let first = busy(state, cluster).filter_map(room).min();
        let (at, on) = first.map_or((None, None), |(at, node)| (Some(at), Some(node)));
        Self { at, spare: 0, on, coming: false }
    }

    /// Earlier is better, and never the worst.
    pub const fn comes(&self) -> Millis {
        match self.at {
            Some(at) => at,
            None => Millis(u64::MAX),
        }
    }

    /// Whether a job may go before on these many free nodes, or on its share of this one.
    pub fn lets(&mut self, state: &State, job: &Job, on: NodeId, now: Millis) -> Option<Passing> {
        let takes_free_nodes = state.nodes.get(&on).is_some_and(|node| node.attempts.is_empty());
        if self.coming || (self.on.is_some_and(|node| node != on) && !takes_free_nodes) {
            return Some(Passing::Free);
        }
        if takes_free_nodes && job.nodes as usize <= self.spare {
            self.spare -= job.nodes as usize;
            return Some(Passing::Free);
        }
        let timeout_ms = job.timeout_ms?;
        let Some(at) = self.at else { return Some(Passing::Free) };
        // Time to be told to end, and to do so.
        let until = Millis(at.0.saturating_sub(state.settings.stop_span_ms()));
        let over = now.plus(timeout_ms).plus(state.settings.stop_grace_ms + 5_000);
        (over <= until).then_some(Passing::Until(until))
    }
}

/// Nodes that come, or that may be asked for.
fn on_their_way(state: &State, cluster: &Cluster) -> usize {
    let comes = |node: &&std::sync::Arc<Node>| {
        matches!(
            node.state,
            NodeState::Requested { .. } | NodeState::Creating { .. } | NodeState::Preparing { .. }
        )
    };
    let coming = state.nodes_of(cluster).filter(|node| node.cordon.is_none()).filter(comes).count();
    if lock::scaling_cut(state, cluster).is_some() {
        return coming;
    }
    let growth = cluster.scale.max.saturating_sub(cluster.live).min(nodes_free(state, cluster));
    coming + growth as usize
}

fn busy<'a>(state: &'a State, cluster: &'a Cluster) -> impl Iterator<Item = &'a Node> {
    let nodes = state.nodes_of(cluster).map(|node| &**node);
    nodes.filter(|node| node.is_placeable() && !node.attempts.is_empty())
}

/// When everything on a node is over.
fn end_of(state: &State, node: &Node) -> End {
    let ends = node.attempts.iter().map(|id| state.jobs.get(&id.job).map(|job| end_of_job(job)));
    ends.map(Option::flatten).try_fold(Millis(0), |last, end| Some(last.max(end?)))
}

fn end_of_job(job: &Job) -> End {
    let attempt = job.attempt()?;
    let stop = attempt.stop.as_ref().map(|stop| stop.deadline);
    let ends = [stop, attempt.run_deadline, attempt.until];
    ends.into_iter().flatten().min()
}

/// When a share fits on a node, with what is over by then.
fn room_at(state: &State, node: &Node, share: Capacity) -> End {
    if node.exclusive {
        return end_of(state, node).filter(|_| node.nominal.fits(share));
    }
    let mut ends: Vec<(Millis, Capacity)> = node
        .attempts
        .iter()
        .filter_map(|id| {
            let job = state.jobs.get(&id.job)?;
            let Need::Share(taken) = job.need else { return None };
            Some((end_of_job(job)?, taken))
        })
        .collect();
    ends.sort_unstable_by_key(|(end, _)| *end);
    let mut free = node.free();
    ends.into_iter().find_map(|(end, taken)| {
        free = free.plus(taken);
        free.fits(share).then_some(end)
    })
}
