//! C1: the cost segments of a node sum to its bill.

use std::collections::BTreeMap;

use super::{Violation, broken};
use crate::event::Event;
use crate::ids::NodeId;
use crate::meter::{self, Posting};
use crate::state::State;
use crate::units::Millis;

/// What is on the books of each node that is not gone.
#[derive(Clone, Debug, Default)]
pub struct Books {
    posted: BTreeMap<NodeId, u64>,
    /// Over all nodes that are gone.
    pub closed_micro_usd: u64,
}

impl Books {
    /// Takes in one event, by the state before it. Starts with the first event of a log.
    pub fn observe(&mut self, before: &State, at: Millis, event: &Event) -> Vec<Violation> {
        let mut out = Vec::new();
        for posting in meter::postings(before, at, event) {
            let Posting::Segment(segment) = posting else { continue };
            *self.posted.entry(segment.node).or_default() += segment.cost.0;
            if segment.from > segment.to {
                broken(&mut out, "C1", format!("node {} was billed backwards", segment.node));
            }
        }
        if let Event::NodeGone(e) = event
            && let Some(node) = before.nodes.get(&e.id)
        {
            let (posted, bill) = (self.posted.remove(&e.id).unwrap_or(0), meter::bill(node, at));
            self.closed_micro_usd += bill;
            if posted != bill {
                let what = format!("node {} costs {bill} and its segments come to {posted}", e.id);
                broken(&mut out, "C1", what);
            }
        }
        out
    }
}
