//! `budgets`: how much money may be spent, on what, and how it stands. What a budget does is said in `neap_core::budget`.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::budget::{self, AtCap, Budget, BudgetScope, Every};
use neap_core::command::PutBudget;
use neap_core::state::GroupKey;
use neap_core::{Code, Command, MicroUsd, Millis, Problem, Refusal, State};
use serde_json::{Value, json};

use crate::app::App;
use crate::arm::{errors, workspaces};
use crate::ask::Ask;
use crate::fields::Fields;
use crate::reply;

/// What a budget is told by, and what its scope is.
const KEYS: &[&str] = &["amount_usd", "period", "at_cap", "thresholds", "scope"];
const SCOPE_KEYS: &[&str] =
    &["kind", "subscription", "resource_group", "workspace", "compute", "user", "job", "tag", "value"];
/// What an answer has beside; it may be sent back, and is not read.
const ANSWERED: &[&str] = &[
    "name",
    "on",
    "period_start",
    "period_end",
    "spent_usd",
    "reserved_usd",
    "left_usd",
    "over_usd",
    "excess_usd",
    "by",
    "created",
    "modified",
    "earlier",
];

pub(crate) async fn answer(app: &App, ask: &Ask, rest: &[&str]) -> Result<Response, Refusal> {
    let state = app.state();
    match (ask.method.as_str(), rest) {
        ("GET", []) => {
            let now = app.now();
            let spent = budget::spent_so_far(&state, now);
            let mut value: Vec<Value> = state
                .budgets
                .values()
                .map(|budget| shown(&state, budget, spent.get(&budget.id).copied(), now))
                .collect();
            value.sort_by_key(|budget| budget["name"].as_str().unwrap_or_default().to_lowercase());
            Ok(reply::ok(&json!({"value": value})))
        }
        ("GET", [name]) => Ok(reply::ok(&one(app, name)?)),
        ("PUT", [name]) => {
            let there = state.budget(name).is_some();
            let mut put = read(&state, name, &ask.json()?)?;
            put.by = ask.caller.actor.as_str().into();
            app.submit(&ask.caller, Command::PutBudget(put), Vec::new()).await?;
            let status = if there { StatusCode::OK } else { StatusCode::CREATED };
            Ok(reply::json(status, &one(app, name)?))
        }
        ("DELETE", [name]) => {
            let budget = state.budget(name).ok_or_else(|| no_budget(name))?.id;
            app.submit(&ask.caller, Command::DeleteBudget { budget }, Vec::new()).await?;
            Ok(reply::empty(StatusCode::OK))
        }
        (_, [] | [_]) => Err(errors::method_not_allowed(ask, "GET, PUT and DELETE")),
        _ => Err(errors::no_such_path(ask)),
    }
}

fn one(app: &App, name: &str) -> Result<Value, Refusal> {
    let (state, now) = (app.state(), app.now());
    let budget = state.budget(name).ok_or_else(|| no_budget(name))?;
    let spent = budget::spent_so_far(&state, now).get(&budget.id).copied();
    Ok(shown(&state, budget, spent, now))
}

fn no_budget(name: &str) -> Refusal {
    let message = format!("There is no budget '{name}'; 'neap budget list' shows those there are.");
    Refusal::because(Code::ResourceNotFound, message)
}

/// Everything that can be read of a body; what is wrong goes along, to be told with what the core finds.
fn read(state: &State, name: &str, body: &Value) -> Result<PutBudget, Refusal> {
    let mut problems = Vec::new();
    let fields = Fields::of(Some(body), "", &mut problems);
    fields.only(KEYS, ANSWERED, "a budget", &mut problems);
    let amount = fields.value("amount_usd").and_then(|value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let amount = micro_usd(&text);
        if amount.is_none() {
            let message = format!("'{text}' is no amount of dollars such as 250 or 12.50.");
            problems.push(errors::bad(message, "amount"));
        }
        amount
    });
    let every = word(&fields, "period", Every::parse, "day, week, month or total", &mut problems);
    let at_cap = word(&fields, "at_cap", AtCap::parse, "stop_new or checkpoint_and_drain", &mut problems);
    let thresholds = fields.value("thresholds").and_then(|value| {
        let percent = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        let read: Option<Vec<u32>> = value.as_array().and_then(|list| list.iter().map(percent).collect());
        if read.is_none() {
            problems.push(errors::bad(
                "'thresholds' is a list of percentages such as [50, 80, 100].",
                "thresholds",
            ));
        }
        read
    });
    let scope = scope(state, &fields, &mut problems);
    let by = "".into();
    Ok(PutBudget { name: name.into(), scope, amount, every, at_cap, thresholds, by, problems })
}

fn word<T>(
    fields: &Fields<'_>,
    key: &str,
    parse: impl Fn(&str) -> Option<T>,
    expected: &str,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let text = fields.text(key, problems)?;
    let parsed = parse(text);
    if parsed.is_none() {
        problems.push(errors::bad(format!("'{key}' is {expected}, not '{text}'."), key));
    }
    parsed
}

/// Exactly, by millionths; more places are refused.
fn micro_usd(text: &str) -> Option<MicroUsd> {
    let text = text.trim().trim_start_matches('$');
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !digits(whole) || !digits(part) || part.len() > 6 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part: u64 = format!("{part:0<6}").parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(part).map(MicroUsd)
}

fn scope(state: &State, fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<BudgetScope> {
    let scope = fields.object("scope", problems);
    if !scope.is_present() {
        return None;
    }
    scope.only(SCOPE_KEYS, &[], "the scope of a budget", problems);
    let kind = scope.text("kind", problems).unwrap_or_default();
    let mut text = |key: &str| scope.text(key, problems).unwrap_or_default().to_owned();
    let (subscription, group, workspace) = (text("subscription"), text("resource_group"), text("workspace"));
    let (compute, user, job) = (text("compute"), text("user"), text("job"));
    let (tag, value) = (text("tag"), text("value"));
    let in_workspace = |problems: &mut Vec<Problem>| {
        let found = workspaces::find(state, &subscription, &group, &workspace);
        found.map_err(|refusal| problems.extend(refusal.problems)).ok()
    };
    match kind {
        "resource_group" => Some(BudgetScope::Group(GroupKey::new(&subscription, &group))),
        "workspace" => in_workspace(problems).map(|workspace| BudgetScope::Workspace(workspace.id)),
        "cluster" => {
            let workspace = in_workspace(problems)?;
            let cluster = state.cluster(workspace.id, &compute);
            if cluster.is_none() {
                let message =
                    format!("The compute '{compute}' was not found in workspace '{}'.", workspace.name);
                problems.push(Problem::new(Code::ResourceNotFound, message).at("scope"));
            }
            cluster.map(|cluster| BudgetScope::Cluster(cluster.id))
        }
        "user" => Some(BudgetScope::User(user.as_str().into())),
        "tag" => Some(BudgetScope::Tag { name: tag.as_str().into(), value: value.as_str().into() }),
        "job" => in_workspace(problems)
            .map(|workspace| BudgetScope::Job { workspace: workspace.id, name: job.as_str().into() }),
        other => {
            let message = format!(
                "'scope.kind' is resource_group, workspace, cluster, user, tag or job, not '{other}'."
            );
            problems.push(errors::bad(message, "scope"));
            None
        }
    }
}

/// Six places after the point, as text: exact.
fn usd(amount: MicroUsd) -> String {
    format!("{}.{:06}", amount.0 / 1_000_000, amount.0 % 1_000_000)
}

/// `so_far` has what nodes cost since the books were written, which is within what is reserved.
fn shown(state: &State, budget: &Budget, so_far: Option<MicroUsd>, now: Millis) -> Value {
    let figures = budget.figures(now);
    let spent = so_far.unwrap_or(figures.spent);
    let reserved = MicroUsd(figures.committed().saturating_sub(spent.0));
    let over = MicroUsd(figures.committed().saturating_sub(budget.amount.0));
    let (from, to) = budget.every.period(now);
    let history: Vec<Value> = budget
        .periods
        .iter()
        .filter(|(period, _)| **period < from)
        .map(|(period, figures)| json!({"period_start": period.rfc3339(), "spent_usd": usd(figures.spent)}))
        .collect();
    json!({
        "name": budget.name,
        "scope": scope_shown(state, &budget.scope),
        "on": budget.scope.words(state),
        "amount_usd": usd(budget.amount),
        "period": budget.every.word(),
        "period_start": (budget.every != Every::Total).then(|| from.max(budget.created).rfc3339()),
        "period_end": (budget.every != Every::Total).then(|| to.rfc3339()),
        "spent_usd": usd(spent),
        "reserved_usd": usd(reserved),
        "left_usd": usd(budget.left(now)),
        "over_usd": usd(over),
        "excess_usd": usd(figures.excess),
        "at_cap": budget.at_cap.word(),
        "thresholds": budget.thresholds,
        "by": budget.by,
        "created": budget.created.rfc3339(),
        "modified": budget.modified.rfc3339(),
        "earlier": history,
    })
}

fn scope_shown(state: &State, scope: &BudgetScope) -> Value {
    let place = |id| {
        let workspace = state.workspaces.get(id);
        json!({
            "subscription": workspace.map(|w| w.subscription.clone()),
            "resource_group": workspace.map(|w| w.group.clone()),
            "workspace": workspace.map(|w| w.name.clone()),
        })
    };
    let with = |mut shown: Value, kind: &str, key: &str, value: Option<&str>| {
        shown["kind"] = kind.into();
        if !key.is_empty() {
            shown[key] = value.into();
        }
        shown
    };
    match scope {
        BudgetScope::Group(key) => {
            let shown = json!({"subscription": key.subscription, "resource_group": key.name});
            with(shown, "resource_group", "", None)
        }
        BudgetScope::Workspace(id) => with(place(id), "workspace", "", None),
        BudgetScope::Cluster(id) => {
            let cluster = state.clusters.get(id);
            let shown = cluster.map_or(Value::Null, |cluster| place(&cluster.workspace));
            with(shown, "cluster", "compute", cluster.map(|cluster| &*cluster.name))
        }
        BudgetScope::User(user) => json!({"kind": "user", "user": user}),
        BudgetScope::Tag { name, value } => json!({"kind": "tag", "tag": name, "value": value}),
        BudgetScope::Job { workspace, name } => with(place(workspace), "job", "job", Some(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_exactly_or_not_at_all() {
        let read = |text: &str| micro_usd(text).map(|amount| amount.0);
        assert_eq!(read("250"), Some(250_000_000));
        assert_eq!(read("$12.50"), Some(12_500_000));
        assert_eq!(read("0.000001"), Some(1));
        assert_eq!(read(".5"), Some(500_000));
        for wrong in ["", ".", "-1", "1e3", "1.2345678", "ten", "99999999999999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
