//! `plan`: when a job would start and end, what it would cost and whom it would delay; what a change of a cluster would mean
//! for those who wait. Decided and lived through on a copy of the state: nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::Response;
use neap_core::cluster::Cluster;
use neap_core::decide::decide;
use neap_core::forecast::{self, Asked, Assumed, Basis, Effort, End, Outlook, Range, Wanted, basis};
use neap_core::plan::{Dirty, plan_into};
use neap_core::state::Workspace;
use neap_core::unblock;
use neap_core::{Code, Command, Draft, Event, JobId, MicroUsd, Millis, Problem, Refusal, State};
use serde_json::{Value, json};

use crate::app::{App, internal};
use crate::arm::{computes, jobs};
use crate::ask::Ask;
use crate::drafts::Drafts;
use crate::estimates::{days, unknown, within};
use crate::{limits, reply};

/// `POST jobs/NAME/plan`, with the body that a PUT of the job would have, and drafts of what it names and is not there yet.
pub(crate) async fn job(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let mut body = ask.json()?;
    let mut problems = Vec::new();
    let run_ms = seconds(ask, "duration_s", &mut problems);
    let boot_ms = seconds(ask, "boot_s", &mut problems);
    let drafts = Drafts::take(&mut body, workspace, &mut problems).into();
    let app = &App { drafts, ..app.clone() };
    let (state, now) = (app.state(), app.now());
    let answer = match jobs::planned(app, &ask.caller.actor, workspace, name, &body).await {
        Ok(planned) => {
            let name = name.to_owned();
            blocking(move || of_job(&state, now, &name, planned, run_ms, boot_ms)).await?
        }
        Err(refusal) => Err(refusal),
    };
    // What is wrong with the job is told beside what is wrong with the question.
    problems.extend(answer.as_ref().err().into_iter().flat_map(|refusal| refusal.problems.clone()));
    Refusal::unless_empty(problems)?;
    Ok(reply::ok(&answer?))
}

/// `POST computes/NAME/plan`, with the body that a PUT of the cluster would have.
pub(crate) async fn compute(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    name: &str,
) -> Result<Response, Refusal> {
    let command = computes::command(app, ask, workspace, name).await?;
    let (state, now, workspace, name) = (app.state(), app.now(), workspace.id, name.to_owned());
    let told = move || {
        let mut draft = Draft::new(state.clone());
        let mut coming = Vec::new();
        for event in command.clone().map_or(Ok(Vec::new()), |command| decide(&state, command, now))? {
            draft.emit(now, event);
        }
        coming.extend(command.map(|command| (now, command)));
        let Some(cluster) = draft.state.cluster(workspace, &name) else {
            return Err(internal("The cluster is not there after its change."));
        };
        let mut answer = of_cluster(&state, now, &coming, (cluster.id, &name))?;
        if let (Some(notes), Some(note)) = (answer["notes"].as_array_mut(), kept(&state, cluster)) {
            notes.push(note.into());
        }
        Ok(answer)
    };
    Ok(reply::ok(&blocking(told).await??))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| internal(format!("A forecast did not come to an end: {e}.")))
}

fn seconds(ask: &Ask, key: &'static str, problems: &mut Vec<Problem>) -> Option<u64> {
    let text = ask.query.get(key)?;
    let ms = text.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000));
    if ms.is_none() {
        let message = format!("'{text}' is not a number of seconds ({key}).");
        problems.push(Problem::new(Code::BadArgument, message).at(key));
    }
    ms
}

fn of_job(
    state: &State,
    now: Millis,
    name: &str,
    planned: jobs::Planned,
    run_ms: Option<u64>,
    boot_ms: Option<u64>,
) -> Result<Value, Refusal> {
    let mut draft = Draft::new(state.clone());
    let mut mine: Vec<JobId> = Vec::new();
    for command in &planned.commands {
        for event in decide(&draft.state, command.clone(), now)? {
            if let Event::JobSubmitted(e) = &event {
                mine.push(e.id);
            }
            draft.emit(now, event);
        }
    }
    let coming: Vec<(Millis, Command)> = planned.commands.into_iter().map(|command| (now, command)).collect();
    let runs_ms = run_ms.map(|ms| mine.iter().map(|id| (*id, ms)).collect()).unwrap_or_default();
    let assumed = Assumed { runs_ms, boot_ms };
    let first = mine.first().and_then(|id| draft.state.jobs.get(id));
    let cluster = first.and_then(|job| draft.state.clusters.get(&job.cluster));
    let watched = cluster.map(|cluster| cluster.id);
    let asked = Asked {
        assumed: &assumed,
        coming: &coming,
        wanted: Wanted::StartsAndEndsOf(&mine),
        watched,
        others_come: true,
    };
    let effort = Effort { steps_max: limits::PLAN_STEPS_MAX };
    let with = forecast::outlook(state, now, &asked, effort, &mut within(limits::PLAN_US_MAX))?;
    let asked = Asked { coming: &[], wanted: Wanted::Starts, ..asked };
    let without = forecast::outlook(state, now, &asked, effort, &mut within(limits::PLAN_US_MAX))?;
    let start = with.start_of(&mine);
    let mut notes = planned.notes;
    if let Some(cluster) = cluster.filter(|_| start.p50.is_none() || with.end_of(&mine).p50.is_none()) {
        notes.push(format!(
            "What is unknown is so because {}.",
            unknown(&draft.state, &assumed, cluster, &with)
        ));
    }
    if start.p50.is_none() && with.end_reason() == End::Still {
        notes.extend(in_the_way(&draft.state, &mine, now));
    }
    notes.extend(looked(&with, &without));
    let (delayed, sooner) = moved(state, &with, &without);
    Ok(json!({
        "job": name,
        "cluster": cluster.map(|cluster| cluster.name.clone()),
        "jobs": mine.len(),
        "at": now.rfc3339(),
        "start": times(start, now),
        "end": times(with.end_of(&mine), now),
        "cost": costs(with.paid(&mine)),
        "durations": durations(&draft.state, &assumed, &mine),
        "nodes": timeline(&with, &mine),
        "delayed": delayed, "sooner": sooner, "interrupted": interrupted(state, &with, &without),
        "courses": with.courses.len(),
        "notes": notes,
    }))
}

/// What would be in the way of the first of these, in words.
fn in_the_way(submitted: &State, mine: &[JobId], now: Millis) -> Vec<String> {
    let mut draft = Draft::new(submitted.clone());
    plan_into(&mut draft, &mut Dirty::all(submitted), now);
    let verdict = mine.first().and_then(|id| unblock::unblock(&draft.state, *id, now));
    verdict
        .into_iter()
        .flat_map(|verdict| verdict.constraints)
        .map(|constraint| constraint.sentence)
        .collect()
}

/// What another minimum costs, whatever comes: no job pays for it, so it is in nobody's figures.
fn kept(before: &State, after: &Cluster) -> Option<String> {
    let was = before.clusters.get(&after.id).map_or(0, |cluster| cluster.declared.min);
    let now = after.declared.min;
    if was == now {
        return None;
    }
    let a_day = MicroUsd(after.shape.price.0.saturating_mul(24).saturating_mul(now.abs_diff(was).into()));
    let word = if now > was { "more" } else { "less" };
    Some(format!(
        "min_instances {now} in place of {was}: nodes that are kept when nothing runs cost up to {a_day} a day {word}."
    ))
}

fn of_cluster(
    state: &State,
    now: Millis,
    coming: &[(Millis, Command)],
    (cluster, name): (neap_core::ClusterId, &str),
) -> Result<Value, Refusal> {
    let assumed = Assumed::default();
    let asked =
        Asked { assumed: &assumed, coming, wanted: Wanted::Ends, watched: Some(cluster), others_come: false };
    let effort = Effort { steps_max: limits::PLAN_STEPS_MAX };
    let with = forecast::outlook(state, now, &asked, effort, &mut within(limits::PLAN_US_MAX))?;
    let asked = Asked { coming: &[], ..asked };
    let without = forecast::outlook(state, now, &asked, effort, &mut within(limits::PLAN_US_MAX))?;
    let (delayed, sooner) = moved(state, &with, &without);
    let mut notes = Vec::new();
    if with.end_reason() == End::Still
        && let Some(cluster) = state.clusters.get(&cluster)
    {
        notes.push(format!("What is unknown is so because {}.", unknown(state, &assumed, cluster, &with)));
    }
    notes.extend(looked(&with, &without));
    let of_it = |(_, job): &(&JobId, &Arc<neap_core::job::Job>)| job.cluster == cluster;
    let all: Vec<JobId> =
        state.jobs.iter().filter(of_it).map(|(id, _)| *id).take(limits::PLAN_JOBS_MAX).collect();
    let side = |outlook: &Outlook| {
        json!({
            "all_done": times(outlook.end_of(&all), now),
            "cost": costs(outlook.paid(&all)),
            "nodes": timeline(outlook, &all),
        })
    };
    Ok(json!({
        "cluster": name, "at": now.rfc3339(), "jobs": all.len(),
        "with": side(&with), "without": side(&without),
        "delayed": delayed, "sooner": sooner, "interrupted": interrupted(state, &with, &without),
        "courses": with.courses.len(),
        "notes": notes,
    }))
}

fn times(range: Range<Millis>, now: Millis) -> Value {
    // Nothing at all is done now.
    let text = |at: Option<Millis>| at.map(|at| at.max(now).rfc3339());
    let after = |at: Option<Millis>| at.map(|at| at.since(now) / 1_000);
    json!({"p50": text(range.p50), "p95": text(range.p95),
        "p50_seconds": after(range.p50), "p95_seconds": after(range.p95)})
}

fn costs(range: Range<u128>) -> Value {
    let money = |micro: Option<u128>| micro.and_then(|micro| u64::try_from(micro).ok());
    let text = |micro: Option<u128>| money(micro).map(|micro| MicroUsd(micro).to_string());
    json!({"currency": "USD", "p50": text(range.p50), "p95": text(range.p95),
        "p50_micro_usd": money(range.p50), "p95_micro_usd": money(range.p95)})
}

/// What the times of these jobs were taken from, and of how many each.
fn durations(state: &State, assumed: &Assumed, jobs: &[JobId]) -> Value {
    let mut kinds: BTreeMap<String, (u32, Value)> = BTreeMap::new();
    for job in jobs.iter().filter_map(|id| state.jobs.get(id)) {
        let told = match basis(state, assumed, job) {
            Basis::Given => json!({"from": "given", "says": "as you said"}),
            Basis::Like { closeness, jobs } => json!({
                "from": "history", "like": closeness, "like_jobs": jobs,
                "says": format!("the last {jobs} jobs of {} on this cluster", closeness.words()),
            }),
            Basis::Timeout => json!({
                "from": "timeout",
                "says": "no like job has ended yet: its limits.timeout, which is the longest it can be",
            }),
            Basis::Unknown => json!({
                "from": "unknown",
                "says": "no like job has ended yet, and it has no limits.timeout: say how long with --duration",
            }),
        };
        kinds.entry(told.to_string()).or_insert((0, told)).0 += 1;
    }
    let row = |(jobs, mut told): (u32, Value)| {
        told["jobs"] = jobs.into();
        told
    };
    kinds.into_values().map(row).collect()
}

/// The nodes of one course of the middle.
fn timeline(outlook: &Outlook, jobs: &[JobId]) -> Vec<Value> {
    let moments = outlook.typical(jobs).map(|course| course.nodes.as_slice()).unwrap_or_default();
    let row = |moment: &forecast::Moment| json!({"at": moment.at.rfc3339(), "nodes": moment.live, "with_work": moment.busy});
    moments.iter().map(row).collect()
}

/// Whose start moves to later and to sooner, those by most first.
fn moved(state: &State, with: &Outlook, without: &Outlook) -> (Value, Value) {
    let moved = with.moved(without, state);
    let by_p50 = |range: &Range<i64>| range.p50.unwrap_or(i64::MAX);
    let (mut later, mut sooner): (Vec<_>, Vec<_>) = moved
        .into_iter()
        .filter(|(_, by)| by.p50 != Some(0) || by.p95 != Some(0))
        .partition(|(_, by)| by_p50(by) > 0 || (by_p50(by) == 0 && by.p95.is_none_or(|ms| ms > 0)));
    later.sort_by_key(|(_, by)| std::cmp::Reverse(by_p50(by)));
    sooner.sort_by_key(|(_, by)| by_p50(by));
    let shown = |list: Vec<(JobId, Range<i64>)>| -> Value {
        let row = |(id, by): &(JobId, Range<i64>)| {
            let job: Option<&Arc<neap_core::job::Job>> = state.jobs.get(id);
            json!({
                "job": job.map(|job| job.name.clone()), "owner": job.map(|job| job.owner.clone()),
                "p50_seconds": by.p50.map(|ms| ms / 1_000), "p95_seconds": by.p95.map(|ms| ms / 1_000),
            })
        };
        let first: Vec<Value> = list.iter().take(limits::PLAN_MOVED_TOLD).map(row).collect();
        json!({"count": list.len(), "jobs": first})
    };
    (shown(later), shown(sooner))
}

/// Whose nodes would be taken back for it.
fn interrupted(state: &State, with: &Outlook, without: &Outlook) -> Value {
    let jobs = with.interrupted(without, state);
    let name = |id: &JobId| state.jobs.get(id).map(|job| job.name.clone());
    let first: Vec<_> = jobs.iter().filter_map(name).take(limits::PLAN_MOVED_TOLD).collect();
    json!({"count": jobs.len(), "jobs": first})
}

/// How far ahead was looked, where that was not far enough.
fn looked(with: &Outlook, without: &Outlook) -> Option<String> {
    let Some(until) = with.looked_until().into_iter().chain(without.looked_until()).min() else {
        let far = [with, without].iter().any(|outlook| outlook.end_reason() == End::Far);
        return far
            .then(|| format!("A forecast looks {} days ahead; what comes later is not known.", days()));
    };
    Some(format!(
        "There is too much to look at all of it: what comes after {} was not looked at, and {} courses were drawn.",
        until.rfc3339(),
        with.courses.len().min(without.courses.len())
    ))
}
