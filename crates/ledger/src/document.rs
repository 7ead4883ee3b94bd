//! A document: what a user wrote, beside the log under its salted hash, so that it can be erased and the chain stays.

use neap_core::{DocHash, Event};
use serde::Serialize;

use crate::error::Error;
use crate::seal::SALT_BYTES;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub hash: DocHash,
    pub salt: [u8; SALT_BYTES],
    pub body: Vec<u8>,
}

impl Document {
    /// The salt keeps anyone from guessing an erased body by its hash.
    pub fn new(body: Vec<u8>) -> Result<Self, Error> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|e| Error::Random(e.to_string()))?;
        Ok(Self { hash: DocHash::of(&salt, &body), salt, body })
    }

    pub fn json(value: &impl Serialize) -> Result<Self, Error> {
        Self::new(serde_json::to_vec(value).map_err(Error::DocumentJson)?)
    }
}

/// Every document that an event names and that must therefore be there, erased or not.
pub(crate) fn named_by(event: &Event) -> [Option<DocHash>; 2] {
    match event {
        Event::GroupPut(e) => [Some(e.document), None],
        Event::WorkspaceCreated(e) => [Some(e.document), None],
        Event::WorkspaceUpdated(e) => [Some(e.document), None],
        Event::AssetPut(e) => [Some(e.document), None],
        Event::ClusterCreated(e) => [Some(e.document), None],
        Event::ClusterUpdated(e) => [Some(e.document), None],
        Event::JobSubmitted(e) => [Some(e.document), Some(e.meta)],
        Event::FamilyOpened(e) => [Some(e.document), Some(e.meta)],
        Event::JobUpdated(e) => [Some(e.meta), None],
        Event::SchedulePut(e) => [Some(e.document), None],
        Event::WindowPut(e) => [Some(e.document), None],
        Event::DocumentErased(e) => [Some(e.document), None],
        Event::ServerStarted(_)
        | Event::ServerDraining(_)
        | Event::GroupDeleted(_)
        | Event::WorkspaceDeleteRequested(_)
        | Event::WorkspaceDeleted(_)
        | Event::StorageMeasured(_)
        | Event::AssetDeleted(_)
        | Event::ClusterDeleteRequested(_)
        | Event::ClusterDeleted(_)
        | Event::ClusterTarget(_)
        | Event::NodeRequested(_)
        | Event::NodeCreating(_)
        | Event::NodePreparing(_)
        | Event::NodeReady(_)
        | Event::NodeSilent(_)
        | Event::NodeHeard(_)
        | Event::NodeLeaving(_)
        | Event::NodeUnusable(_)
        | Event::NodePreempted(_)
        | Event::NodeCordoned(_)
        | Event::NodeUncordoned(_)
        | Event::NodeGone(_)
        | Event::FamilyClosing(_)
        | Event::JobReleased(_)
        | Event::JobPlaced(_)
        | Event::RankReported(_)
        | Event::RankEnded(_)
        | Event::AttemptStarted(_)
        | Event::AttemptMeasured(_)
        | Event::AttemptFinalizing(_)
        | Event::AttemptStopRequested(_)
        | Event::JobRequeued(_)
        | Event::JobCancelRequested(_)
        | Event::JobEnded(_)
        | Event::ClusterScheduled(_)
        | Event::WindowFilled(_)
        | Event::WindowDeleted(_)
        | Event::ScheduleDue(_)
        | Event::ScheduleTriggered(_)
        | Event::ScheduleDeleted(_)
        | Event::QuotaSet(_)
        | Event::QuotaRequested(_)
        | Event::QuotaAnswered(_)
        | Event::AllowanceSet(_)
        | Event::LockPut(_)
        | Event::LockDeleted(_)
        | Event::BudgetPut(_)
        | Event::BudgetRenewed(_)
        | Event::BudgetDeleted(_)
        | Event::MoneyLeased(_)
        | Event::NodeMetered(_)
        | Event::JobDeleted(_) => [None, None],
    }
}
