//! Money leases: renewed while there is money, and where there is none the node is let go in time.

use crate::budget::{self, AtCap, Budget, Renewal};
use crate::decide::stop_deadline;
use crate::draft::Draft;
use crate::event::{AttemptStopRequested, BudgetRenewed, MoneyLeased, NodeLeaving, NodeMetered};
use crate::ids::{BudgetId, ClusterId, NodeId};
use crate::job::StopReason;
use crate::node::NodeState;
use crate::units::Millis;

/// One pass over a cluster's nodes whose lease is to be renewed.
pub fn hold(draft: &mut Draft, id: ClusterId, now: Millis) {
    if draft.state.budgets.is_empty() {
        return;
    }
    let Some(cluster) = draft.state.clusters.get(&id).cloned() else { return };
    for id in &cluster.nodes {
        let Some(node) = draft.state.nodes.get(id).cloned() else { continue };
        if matches!(node.state, NodeState::Leaving { .. }) {
            continue;
        }
        let state = draft.state.clone();
        if node.costs_until.is_some() {
            let deadline = now.plus(state.settings.leave_deadline_ms);
            let reason = "its money lease ended while the server was away".into();
            draft.emit(now, NodeLeaving { id: *id, deadline, reason });
            continue;
        }
        // A part of what is reserved may be others' to pay: the books say how much, and the rest is free again.
        if budget::is_shared(&state, &node)
            && node.metered < now
            && !matches!(budget::renewal(&state, &node, now), Renewal::NotNow)
        {
            draft.emit(now, NodeMetered { id: *id });
        }
        let state = draft.state.clone();
        let Some(node) = state.nodes.get(id).cloned() else { continue };
        match budget::renewal(&state, &node, now) {
            Renewal::NotNow => {}
            // Nobody waits for it: it need not be shown for longer.
            Renewal::Until(_) if matches!(node.state, NodeState::Unusable { .. }) => {
                let deadline = now.plus(state.settings.leave_deadline_ms);
                draft.emit(now, NodeLeaving { id: *id, deadline, reason: node.reason.clone() });
            }
            Renewal::Until(lease) => draft.emit(now, MoneyLeased { node: *id, lease }),
            Renewal::Refused(budget) => let_go(draft, *id, budget, now),
        }
    }
}

/// The attempts that the budget pays for are asked to end if there is time for that; without any, or without time, the node
/// goes at once.
fn let_go(draft: &mut Draft, id: NodeId, budget: &Budget, now: Millis) {
    let Some(node) = draft.state.nodes.get(&id).cloned() else { return };
    let reason = budget::reason(budget);
    if node.attempts.is_empty() || !budget::may_ask_first(&draft.state, &node, now) {
        let deadline = now.plus(draft.state.settings.leave_deadline_ms);
        draft.emit(now, NodeLeaving { id, deadline, reason });
        return;
    }
    let deadline = stop_deadline(&draft.state, now);
    let state = draft.state.clone();
    for attempt in node.attempts.iter().filter(|attempt| budget::pays_for(&state, budget, &node, attempt)) {
        let asked = draft.state.jobs.get(&attempt.job).and_then(|job| job.attempt());
        if asked.is_some_and(|asked| asked.stop.is_none()) {
            let (id, attempt, why) = (attempt.job, attempt.number, stop_reason(budget.at_cap));
            draft
                .emit(now, AttemptStopRequested { id, attempt, why, deadline, reason: Some(reason.clone()) });
        }
    }
}

/// How attempts are told, by what was chosen for the cap.
const fn stop_reason(at_cap: AtCap) -> StopReason {
    match at_cap {
        AtCap::StopNew => StopReason::Budget,
        AtCap::CheckpointAndDrain => StopReason::Preempt,
    }
}

/// A budget's period is over.
pub fn period_over(draft: &mut Draft, id: BudgetId, now: Millis) {
    let Some(budget) = draft.state.budgets.get(&id) else { return };
    let period_ends = budget.renews(now);
    draft.emit(now, BudgetRenewed { id, period_ends });
}
