//! Who waits on a cluster, in which order, and what each has used; and how much somebody may have running.

use std::sync::Arc;

use axum::response::Response;
use neap_core::allowance::{Allowance, AllowanceKey, Gate, Who, Within};
use neap_core::job::Need;
use neap_core::queue::Order;
use neap_core::state::Workspace;
use neap_core::window::next_change;
use neap_core::{Code, Command, Problem, Refusal, State, unblock};
use serde_json::{Value, json};

use crate::app::App;
use crate::arm::errors;
use crate::ask::Ask;
use crate::estimates;
use crate::fields::Fields;
use crate::{limits, reply};

pub(crate) fn get(app: &App, ask: &Ask, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let (state, now) = (app.state(), app.now());
    let cluster = state.cluster(workspace.id, name).ok_or_else(|| errors::not_found("Compute", name))?;
    let top = match ask.query.get("top") {
        Some(top) => top.parse().map_err(|_| {
            let message = format!("'{top}' is not a number of jobs, from 0 to {}.", limits::QUEUE_SHOWN_MAX);
            Refusal::from(Problem::new(Code::BadArgument, message).at("top"))
        })?,
        None => limits::QUEUE_SHOWN,
    };
    let top = top.min(limits::QUEUE_SHOWN_MAX);
    let mut order = Order::new(&state, cluster);
    let mut gate = Gate::new(&state);
    let mut jobs = Vec::new();
    while jobs.len() < top
        && let Some(job) = order.next()
    {
        let held = gate.holds(cluster, job);
        if held.is_none() {
            gate.lets(cluster, job);
        }
        let need = match job.need {
            Need::Whole => json!({"nodes": job.nodes}),
            Need::Share(share) => {
                json!({"cpus": f64::from(share.cpus_milli) / 1000.0, "memory_mb": share.memory_mb, "gpus": share.gpus})
            }
        };
        let estimate = estimates::of(app, job.id);
        jobs.push(json!({
            "position": jobs.len() + 1,
            "job": job.name,
            "owner": job.owner,
            "priority": job.priority,
            "submitted": job.submitted.rfc3339(),
            "waited_seconds": now.since(job.submitted) / 1000,
            "needs": need,
            "attempts": job.attempts_made,
            "estimated_start": estimate.as_ref().and_then(|e| e.start.p50).map(neap_core::Millis::rfc3339),
            "estimated_start_p95": estimate.as_ref().and_then(|e| e.start.p95).map(neap_core::Millis::rfc3339),
            "estimate_unknown": estimate.and_then(|e| e.unknown),
            "held_by": held.map(|cut| cut.sentence()),
        }));
    }
    let shares: Vec<Value> = cluster
        .shares
        .iter()
        .map(|(owner, share)| {
            json!({
                "owner": owner, "running_jobs": share.attempts,
                "running_cores": share.cores_milli as f64 / 1000.0,
                "used_core_hours": share.score(now) as f64 / 3_600_000.0,
            })
        })
        .collect();
    let running: Vec<Value> = cluster
        .active
        .iter()
        .filter_map(|id| state.jobs.get(id))
        .take(top)
        .map(|job| {
            let attempt = job.attempt();
            json!({
                "job": job.name, "owner": job.owner, "priority": job.priority, "status": job.status().word(),
                "nodes": attempt.map(|a| a.nodes().map(|n| format!("n-{n}")).collect::<Vec<_>>()),
                "ends_by": attempt.and_then(|a| a.until.or(a.run_deadline)).map(neap_core::Millis::rfc3339),
            })
        })
        .collect();
    Ok(reply::ok(&json!({
        "cluster": cluster.name, "waiting": cluster.queue.len(), "jobs": jobs, "running": running, "shares": shares,
        "nodes": {"live": cluster.live, "busy": cluster.busy, "idle": cluster.idle.len(), "target": cluster.target,
            "min": cluster.scale.min, "max": cluster.scale.max},
        "cuts": cluster.cuts.iter().map(neap_core::cluster::Cut::sentence)
            .chain(neap_core::explain::take_nobody(&state, cluster)).collect::<Vec<_>>(),
    })))
}

/// Why a cluster is as it is: what it lacks, what keeps it from more, and what the first who wait lack.
pub(crate) fn explain_cluster(app: &App, workspace: &Workspace, name: &str) -> Result<Response, Refusal> {
    let (state, now) = (app.state(), app.now());
    let cluster = state.cluster(workspace.id, name).ok_or_else(|| errors::not_found("Compute", name))?;
    let first: Vec<Value> = Order::new(&state, cluster)
        .take(limits::EXPLAINED_JOBS)
        .map(|job| {
            let verdict = unblock::unblock(&state, job.id, now);
            json!({"job": job.name, "verdict": verdict.as_ref().map(verdict_of)})
        })
        .collect();
    let mut reasons: Vec<String> = cluster.cuts.iter().map(neap_core::cluster::Cut::sentence).collect();
    if let Some(name) = cluster.scheduled.max_by.as_deref().filter(|_| reasons.is_empty()) {
        let until = cluster.scheduled.until.as_ref().map_or_else(String::new, |at| format!(" until {at}"));
        let (max, declared) = (cluster.scale.max, cluster.declared.max);
        reasons.push(format!(
            "The schedule '{name}' holds max_instances at {max}{until}; it is {declared} otherwise."
        ));
    }
    if !cluster.old.is_empty() {
        reasons.push(format!(
            "Its nodes are being replaced one by one since revision {}: {} of an older definition {} left.",
            cluster.revision,
            cluster.old.len(),
            if cluster.old.len() == 1 { "is" } else { "are" }
        ));
    }
    reasons.extend(neap_core::explain::take_nobody(&state, cluster));
    if reasons.is_empty() {
        let serving = u64::from(cluster.busy) + cluster.idle.len() as u64 + u64::from(cluster.unheard);
        reasons.push(if cluster.queue.is_empty() {
            format!("Nothing waits; {} of its {} nodes have work.", cluster.busy, cluster.live)
        } else if u64::from(cluster.live) > serving {
            "Nodes are on their way for what waits.".into()
        } else {
            "What waits is about to be placed.".into()
        });
    }
    Ok(reply::ok(&json!({
        "next_change": next_change(cluster.declared, &cluster.windows, now).map(|change| {
            json!({"at": change.at.rfc3339(), "clock": change.clock, "min": change.min, "max": change.max})
        }),
        "cluster": cluster.name, "live": cluster.live, "busy": cluster.busy, "target": cluster.target,
        "min": cluster.scale.min, "max": cluster.scale.max, "waiting": cluster.queue.len(),
        "reasons": reasons, "jobs": first,
    })))
}

pub(crate) fn verdict_of(verdict: &unblock::Verdict) -> Value {
    let sentence = |kind: &unblock::Kind| {
        verdict.constraints.iter().find(|c| c.kind == *kind).map(|c| c.sentence.clone())
    };
    json!({
        "position": verdict.position,
        "nodes_coming": verdict.nodes_coming,
        "constraints": verdict.constraints.iter()
            .map(|c| json!({"kind": c.kind, "sentence": c.sentence, "binds": verdict.binding.contains(&c.kind)}))
            .collect::<Vec<_>>(),
        "unblocking": verdict.unblocking.iter()
            .map(|set| set.iter().map(|kind| json!({"kind": kind, "sentence": sentence(kind)})).collect::<Vec<_>>())
            .collect::<Vec<_>>(),
    })
}

/// How much somebody may have running, in this workspace and on its clusters.
pub(crate) async fn allowances(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    change: bool,
) -> Result<Response, Refusal> {
    if change {
        return set(app, ask, workspace).await;
    }
    let state = app.state();
    let mine = |key: &AllowanceKey| match key.within {
        Within::Workspace(id) => id == workspace.id,
        Within::Cluster(id) => state.clusters.get(&id).is_some_and(|c| c.workspace == workspace.id),
    };
    let rows: Vec<Value> =
        state.allowances.iter().filter(|(key, _)| mine(key)).map(|(key, a)| shown(&state, key, *a)).collect();
    Ok(reply::ok(&json!({"value": rows})))
}

fn shown(state: &State, key: &AllowanceKey, allowance: Allowance) -> Value {
    let within = match key.within {
        Within::Workspace(_) => "workspace".to_owned(),
        Within::Cluster(id) => {
            state.clusters.get(&id).map_or_else(String::new, |cluster| format!("compute {}", cluster.name))
        }
    };
    json!({"who": key.who.words(), "within": within, "jobs": allowance.jobs, "cores": allowance.cores})
}

/// Answers with the limit as it is then; with none if it was taken away.
async fn set(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    let fields = Fields::of(Some(&body), "", &mut problems);
    let text = |name: &str, problems: &mut Vec<_>| fields.text(name, problems).map(Arc::<str>::from);
    let (user, team) = (text("user", &mut problems), text("team", &mut problems));
    let compute = text("compute", &mut problems);
    let mut count = |name: &str| {
        let number = fields.integer(name, &mut problems)?;
        u32::try_from(number)
            .map_err(|_| problems.push(errors::bad(format!("'{name}' is a number from 0 on."), name)))
            .ok()
    };
    let (jobs, cores) = (count("jobs"), count("cores"));
    let who = match (user, team) {
        (Some(_), Some(_)) => {
            problems.push(errors::bad("Say 'user' or 'team', not both; neither is each user.", "user"));
            Who::EachUser
        }
        (Some(user), None) => Who::User(user),
        (None, Some(team)) => Who::Team(team),
        (None, None) => Who::EachUser,
    };
    let state = app.state();
    let within = match &compute {
        None => Within::Workspace(workspace.id),
        Some(name) => match state.cluster(workspace.id, name) {
            Some(cluster) => Within::Cluster(cluster.id),
            None => {
                problems.extend(errors::not_found("Compute", name).problems);
                Within::Workspace(workspace.id)
            }
        },
    };
    Refusal::unless_empty(problems)?;
    let remove = body.get("remove").and_then(Value::as_bool).unwrap_or(false);
    let key = AllowanceKey { within, who };
    // What is not said stays as it is.
    let old = state.allowances.get(&key).copied();
    let jobs = jobs.or(old.and_then(|old| old.jobs));
    let cores = cores.or(old.and_then(|old| old.cores));
    let allowance = (!remove).then_some(Allowance { jobs, cores });
    let by = ask.caller.actor.as_str().into();
    app.submit(&ask.caller, Command::SetAllowance { key: key.clone(), allowance, by }, Vec::new()).await?;
    let set: Vec<Value> = allowance.map(|allowance| shown(&state, &key, allowance)).into_iter().collect();
    Ok(reply::ok(&json!({"value": set})))
}
