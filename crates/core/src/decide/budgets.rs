//! Budgets: putting them, changing what may change, taking them away.

use crate::budget::{AtCap, BudgetScope, Every};
use crate::command::PutBudget;
use crate::event::{BudgetDeleted, BudgetPut, Event};
use crate::ids::BudgetId;
use crate::limits;
use crate::names;
use crate::problem::{Code, Problem, Refusal};
use crate::state::State;
use crate::units::{MicroUsd, Millis};

/// An amount below what is committed is taken: nothing more is granted, and the excess shows.
pub fn put(state: &State, put: PutBudget, now: Millis) -> Result<Vec<Event>, Refusal> {
    let PutBudget { name, scope, amount, every, at_cap, thresholds, by, mut problems } = put;
    let existing = state.budget(&name);
    if let Some(amount) = amount
        && !(1..=limits::BUDGET_MICRO_USD_MAX).contains(&amount.0)
    {
        let most = MicroUsd(limits::BUDGET_MICRO_USD_MAX);
        let message = format!("The amount is {amount}; it must be more than nothing and at most {most}.");
        problems.push(Problem::new(Code::BadArgument, message).at("amount"));
    }
    check_thresholds(thresholds.as_deref().unwrap_or_default(), &mut problems);
    match existing {
        Some(budget) => {
            let fixed = |what: &str, is: String| {
                let message = format!(
                    "Budget '{name}' is {is}, and that cannot be changed; delete it first, or choose another name."
                );
                Problem::new(Code::PropertyChangeNotAllowed, message).at(what)
            };
            if scope.as_ref().is_some_and(|scope| *scope != budget.scope) {
                problems.push(fixed("scope", format!("on {}", budget.scope.words(state))));
            }
            if every.is_some_and(|every| every != budget.every) {
                problems.push(fixed("period", format!("per {}", budget.every.word())));
            }
        }
        None => {
            problems.extend(names::check_budget_name(&name));
            if amount.is_none() && !problems.iter().any(|problem| problem.target.as_deref() == Some("amount"))
            {
                problems.push(Problem::new(Code::BadArgument, "A budget needs an amount.").at("amount"));
            }
            let said = |problem: &Problem| {
                problem.target.as_deref().is_some_and(|target| target.starts_with("scope"))
                    || matches!(problem.code, Code::ResourceNotFound | Code::ResourceGroupNotFound)
            };
            if scope.is_none() && !problems.iter().any(said) {
                let message =
                    "A budget needs a scope: a resource group, workspace, cluster, user, tag or job.";
                problems.push(Problem::new(Code::BadArgument, message).at("scope"));
            }
            if state.budgets.len() >= limits::BUDGETS_MAX {
                let message = format!("There are {} budgets, which is the limit.", limits::BUDGETS_MAX);
                problems.push(Problem::new(Code::LimitReached, message));
            }
        }
    }
    if let Some(scope) = &scope {
        check_scope(state, scope, &mut problems);
    }
    Refusal::unless_empty(problems)?;
    let every = existing.map_or(every.unwrap_or(Every::Month), |budget| budget.every);
    let (Some(scope), Some(amount)) = (
        existing.map(|budget| budget.scope.clone()).or(scope),
        amount.or(existing.map(|budget| budget.amount)),
    ) else {
        return Err(Refusal::because(Code::BadArgument, "A budget needs a scope and an amount."));
    };
    let thresholds = thresholds.or_else(|| existing.map(|budget| budget.thresholds.clone()));
    let mut thresholds = thresholds.unwrap_or_else(|| vec![50, 80, 100]);
    thresholds.sort_unstable();
    thresholds.dedup();
    Ok(vec![
        BudgetPut {
            id: existing.map_or(state.next.budget, |budget| budget.id),
            name: existing.map_or(name, |budget| budget.name.clone()),
            scope,
            amount,
            every,
            at_cap: at_cap.or(existing.map(|budget| budget.at_cap)).unwrap_or(AtCap::StopNew),
            thresholds,
            by,
            period_ends: existing.map_or_else(
                || Some(every.period(now).1).filter(|_| every != Every::Total),
                |budget| budget.period_ends,
            ),
        }
        .into(),
    ])
}

fn check_thresholds(thresholds: &[u32], problems: &mut Vec<Problem>) {
    if let Some(bad) = thresholds.iter().find(|percent| !(1..=100).contains(*percent)) {
        let message = format!("The threshold {bad} is not a percentage from 1 to 100.");
        problems.push(Problem::new(Code::BadArgument, message).at("thresholds"));
    }
    if thresholds.len() > limits::BUDGET_THRESHOLDS_MAX {
        let message = format!(
            "There are {} thresholds; {} is the limit.",
            thresholds.len(),
            limits::BUDGET_THRESHOLDS_MAX
        );
        problems.push(Problem::new(Code::LimitReached, message).at("thresholds"));
    }
}

fn check_scope(state: &State, scope: &BudgetScope, problems: &mut Vec<Problem>) {
    let live = |id| state.workspaces.get(id).is_some_and(|workspace| !workspace.deleting);
    let named = |what: &str, name: &str| {
        let message = format!("The {what} that the budget is to be on has no name.");
        name.trim().is_empty().then(|| Problem::new(Code::BadArgument, message))
    };
    let there = |what: String, is_there: bool| {
        let message = format!("{what} that the budget is to be on was not found.");
        (!is_there).then(|| Problem::new(Code::ResourceNotFound, message))
    };
    let problem = match scope {
        BudgetScope::Group(key) => {
            there(format!("The resource group '{}'", key.name), state.groups.contains_key(key))
        }
        BudgetScope::Workspace(id) => there("The workspace".into(), live(id)),
        BudgetScope::Job { workspace, name } => named("job", name)
            .or_else(|| names::check_job_name(name))
            .or_else(|| there(format!("The workspace of the job '{name}'"), live(workspace))),
        BudgetScope::Cluster(id) => {
            let is_there = state.clusters.get(id).is_some_and(|cluster| !cluster.is_deleting());
            there("The compute".into(), is_there)
        }
        BudgetScope::User(owner) => named("user", owner),
        BudgetScope::Tag { name, .. } => named("tag", name),
    };
    problems.extend(problem.map(|problem| problem.at("scope")));
}

pub fn delete(state: &State, id: BudgetId) -> Result<Vec<Event>, Refusal> {
    if state.budgets.contains_key(&id) {
        Ok(vec![BudgetDeleted { id }.into()])
    } else {
        Err(Refusal::because(Code::ResourceNotFound, "The budget was not found."))
    }
}
