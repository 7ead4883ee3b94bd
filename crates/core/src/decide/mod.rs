//! May this happen? `decide` answers a command with the events it means, or with every reason why not.

mod budgets;
mod clusters;
mod families;
mod governance;
mod jobs;
mod nodes;
mod places;
mod ranks;
mod reports;
mod retries;
mod schedules;
mod shape;
mod tiers;
mod windows;

pub use clusters::{DEFAULT_IDLE_MS, DEFAULT_MAX, DEFAULT_MIN, DEFAULT_SIZE};
pub(crate) use families::outcome_of as family_outcome;
pub use jobs::outcome_of_exit;
pub(crate) use jobs::{cancel_events, stop_deadline};
pub(crate) use nodes::preempt;
pub(crate) use reports::boot_failed;
pub use retries::{Requeue, again};

use crate::command::{Command, NewAsset};
use crate::event::{AssetDeleted, AssetPut, DocumentErased, Event, ServerDraining, ServerStarted};
use crate::job::Status;
use crate::problem::{Code, Refusal};
use crate::state::State;
use crate::units::Millis;

pub fn decide(state: &State, command: Command, now: Millis) -> Result<Vec<Event>, Refusal> {
    match command {
        Command::Start { release, settings } => Ok(vec![ServerStarted { release, settings }.into()]),
        Command::Drain { deadline } => Ok(vec![ServerDraining { deadline }.into()]),

        Command::PutGroup { subscription, name, location, document } => {
            places::put_group(state, subscription, name, &location, document)
        }
        Command::DeleteGroup { subscription, name } => places::delete_group(state, subscription, name),
        Command::PutWorkspace(put) => places::put_workspace(state, put),
        Command::DeleteWorkspace { workspace } => places::delete_workspace(state, workspace),
        Command::MeasureStorage { workspace, bytes } => Ok(places::measure_storage(state, workspace, bytes)),
        Command::PutAsset { workspace, kind, name, version, document, content } => {
            places::open_workspace(state, workspace)?;
            Ok(vec![AssetPut { workspace, kind, name, version, document, content }.into()])
        }
        Command::DeleteAsset { workspace, kind, name, version } => {
            places::open_workspace(state, workspace)?;
            Ok(vec![AssetDeleted { workspace, kind, name, version }.into()])
        }
        Command::EraseDocument { document } => Ok(vec![DocumentErased { document }.into()]),

        Command::SetQuota { key, limit, by } => governance::set_quota(state, key, limit, by),
        Command::RequestQuota(request) => governance::request_quota(state, request),
        Command::AnswerQuota { request, approved, by, reason } => {
            governance::answer_quota(state, request, approved, by, reason)
        }
        Command::SetAllowance { key, allowance, by } => governance::set_allowance(state, key, allowance, by),
        Command::PutLock(put) => governance::put_lock(state, put),
        Command::DeleteLock { scope, name } => governance::delete_lock(state, scope, &name),
        Command::PutBudget(put) => budgets::put(state, put, now),
        Command::DeleteBudget { budget } => budgets::delete(state, budget),

        Command::PutCluster(put) => clusters::put(state, put),
        Command::RemakeCluster(remake) => clusters::remake(state, remake),
        Command::PutWindow(put) => windows::put(state, put),
        Command::FillWindow(fill) => windows::fill(state, fill),
        Command::DeleteWindow { cluster, name } => windows::delete(state, cluster, &name),
        Command::DeleteCluster { cluster, reason } => clusters::delete(state, cluster, reason),

        Command::SubmitJob(submit) => jobs::submit(state, submit),
        Command::SubmitFamily(submit) => families::submit(state, submit, now),
        Command::CloseFamily { family, outcome } => families::close(state, family, outcome),
        Command::UpdateJob { job, meta, archived } => jobs::update(state, job, meta, archived),
        Command::CancelJob { job, reason } => jobs::cancel(state, job, reason, now),
        Command::DeleteJob { job } => jobs::delete(state, job),

        Command::PutSchedule(put) => schedules::put(state, put, now),
        Command::RecordFiring(firing) => schedules::record(state, firing, now),
        Command::DeleteSchedule { schedule } => schedules::delete(state, schedule),

        Command::Evict { cluster, node, grace_ms, reason } => {
            nodes::evict(state, cluster, node, grace_ms, reason, now)
        }
        Command::Cordon { node, leave, reason } => nodes::cordon(state, node, leave, reason),
        Command::Uncordon { node } => nodes::uncordon(state, node),

        Command::Report(report) => reports::report(state, report, now),
        Command::ReportOutputs { report, assets } => {
            let mut events = reports::report(state, report, now)?;
            let completes = |event: &Event| matches!(event, Event::JobEnded(end) if end.outcome.status == Status::Completed);
            if events.iter().any(completes) {
                events.extend(assets.into_iter().map(|asset| {
                    let NewAsset { workspace, kind, name, version, document } = asset;
                    AssetPut { workspace, kind, name, version, document, content: None }.into()
                }));
            }
            Ok(events)
        }
    }
}

/// While the server is being stopped nothing new is taken in.
fn refuse_while_draining(state: &State) -> Result<(), Refusal> {
    match state.draining {
        Some(_) => Err(Refusal::because(
            Code::ServerIsStopping,
            "The server is being stopped; send this again when it is back.",
        )),
        None => Ok(()),
    }
}
