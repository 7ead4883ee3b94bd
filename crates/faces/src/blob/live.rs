//! Whether an attempt still lives. What was signed for an attempt is worth nothing once it has ended, was canceled to the
//! end or was deleted, whatever the signature says about time.

use neap_core::{JobId, NodeId, State};
use neap_storage::Bound;
use neap_storage::sas::Refusal;

use super::BlobFace;
use super::answer::Failure;

/// Whether this attempt is its job's current one and has not ended. Where the grant names a node, the attempt must still
/// have its part on that node. An attempt that stores its outputs lives: its end is reported after the last upload.
pub(crate) fn is_live(state: &State, bound: Bound) -> bool {
    let attempt = state.jobs.get(&JobId(bound.job)).and_then(|job| job.attempt());
    attempt.filter(|attempt| attempt.number == bound.attempt).is_some_and(|attempt| match bound.node {
        Some(node) => attempt.phase_on(NodeId(node)).is_some(),
        None => true,
    })
}

impl BlobFace {
    /// Refuses what is done on behalf of an attempt that is over.
    pub(super) fn refuse_the_dead(&self, bound: Option<Bound>) -> Result<(), Failure> {
        match bound {
            Some(bound) if !(self.is_live)(bound) => Err(Failure::refused(Refusal::AttemptOver)),
            Some(_) | None => Ok(()),
        }
    }
}
