//! Which commands are accepted while the disk is full. What stops, deletes and cleans is, so that a full disk can
//! always be emptied; what starts or keeps something new is refused until there is room.

use crate::command::Command;

impl Command {
    /// Whether the log takes it out of its reserve.
    pub const fn is_taken_on_a_full_disk(&self) -> bool {
        match self {
            Self::Start { .. }
            | Self::Drain { .. }
            | Self::DeleteGroup { .. }
            | Self::DeleteWorkspace { .. }
            | Self::DeleteAsset { .. }
            | Self::EraseDocument { .. }
            | Self::DeleteCluster { .. }
            | Self::CloseFamily { .. }
            | Self::CancelJob { .. }
            | Self::DeleteJob { .. }
            | Self::DeleteWindow { .. }
            | Self::RecordFiring(_)
            | Self::DeleteSchedule { .. }
            | Self::DeleteLock { .. }
            | Self::Evict { .. }
            | Self::Cordon { .. }
            | Self::DeleteBudget { .. }
            | Self::Report(_)
            | Self::ReportOutputs { .. } => true,
            // To switch a schedule off is to stop it.
            Self::PutSchedule(put) => !put.enabled,
            Self::PutGroup { .. }
            | Self::PutWorkspace(_)
            | Self::MeasureStorage { .. }
            | Self::PutAsset { .. }
            | Self::PutCluster(_)
            | Self::RemakeCluster(_)
            | Self::SubmitJob(_)
            | Self::SubmitFamily(_)
            | Self::UpdateJob { .. }
            | Self::PutWindow(_)
            | Self::FillWindow(_)
            | Self::SetQuota { .. }
            | Self::RequestQuota(_)
            | Self::AnswerQuota { .. }
            | Self::SetAllowance { .. }
            | Self::PutLock(_)
            | Self::Uncordon { .. }
            | Self::PutBudget(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::command::{Command, Report};
    use crate::ids::{DocHash, JobId, NodeId};
    use crate::units::Millis;

    #[test]
    fn what_ends_something_is_taken_and_what_begins_something_is_not() {
        let node = NodeId(1);
        for (command, expect) in [
            (Command::CancelJob { job: JobId(1), reason: "".into() }, true),
            (Command::DeleteJob { job: JobId(1) }, true),
            (Command::Drain { deadline: Millis(1) }, true),
            (Command::Report(Report::NodeGone { node, reason: "".into() }), true),
            (Command::Cordon { node, leave: true, reason: "".into() }, true),
            (Command::Uncordon { node }, false),
            (
                Command::PutGroup {
                    subscription: "s".into(),
                    name: "n".into(),
                    location: "l".into(),
                    document: DocHash([0; 32]),
                },
                false,
            ),
        ] {
            assert_eq!(command.is_taken_on_a_full_disk(), expect, "{command:?}");
        }
    }
}
