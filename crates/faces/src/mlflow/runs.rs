//! Runs: begun, read, changed, searched. A run that is a job keeps the job's status and times, whatever a client says.

use neap_tracking::{Lifecycle, NewRun, RunChange, RunStatus, Search};
use serde_json::{Value, json};

use super::faults::Fault;
use super::{Asked, experiments, jobs, wire};

pub(super) fn create(asked: &Asked) -> Result<Value, Fault> {
    let (app, given) = (&asked.app, &asked.given);
    let experiment = experiments::resolve(asked, given.text("experiment_id").unwrap_or("0"))?;
    let found = app.tracking.experiment(asked.workspace.id, &experiment)?;
    if found.is_some_and(|found| found.lifecycle == Lifecycle::Deleted) {
        return Err(Fault::invalid(format!(
            "The experiment '{experiment}' is deleted; restore it to begin runs in it."
        )));
    }
    let tags: std::collections::BTreeMap<_, _> = given.pairs("tags").into_iter().collect();
    let id = neap_identity::random_guid().map_err(|e| Fault::internal(e.to_string()))?.replace('-', "");
    let name = given.text("run_name").or_else(|| tags.get("mlflow.runName").map(String::as_str));
    // A job does not choose in whose name it begins runs.
    let named = given.text("user_id").filter(|user| *user != "unknown" && asked.access.job().is_none());
    let user = named.unwrap_or(&asked.access.actor);
    let run = NewRun {
        name: name.map_or_else(|| id.chars().take(8).collect(), String::from),
        id,
        experiment,
        user: user.to_owned(),
        status: RunStatus::Running,
        started: given.millis("start_time")?.unwrap_or_else(|| app.now()),
        ended: None,
        job: None,
        made_by: asked.access.job(),
        tags,
    };
    app.tracking.create_run(asked.workspace.id, &run)?;
    one(asked, &run.id)
}

pub(super) fn get(asked: &Asked) -> Result<Value, Fault> {
    let id = asked.given.run_id()?;
    jobs::known(asked, id)?;
    one(asked, id)
}

fn one(asked: &Asked, id: &str) -> Result<Value, Fault> {
    let run = asked.app.tracking.run(asked.workspace.id, id)?;
    Ok(json!({"run": wire::run(&jobs::with_job(&asked.app, run)?)}))
}

pub(super) fn update(asked: &Asked) -> Result<Value, Fault> {
    let (app, given) = (&asked.app, &asked.given);
    let id = given.run_id()?;
    jobs::known(asked, id)?;
    let mut change = RunChange { name: given.text("run_name").map(String::from), ..RunChange::default() };
    let is_job = app.tracking.seen(asked.workspace.id, id)?.is_some_and(|seen| seen.job.is_some());
    if !is_job {
        change.status = match given.word("status") {
            None => None,
            Some(word) => Some(
                RunStatus::parse(&word)
                    .ok_or_else(|| Fault::invalid(format!("'{word}' is no status of a run.")))?,
            ),
        };
        change.ended = given.millis("end_time")?;
    }
    let run = app.tracking.update_run(asked.workspace.id, id, &change)?;
    Ok(json!({"run_info": wire::info(&jobs::with_job(app, run)?)}))
}

pub(super) fn delete(asked: &Asked) -> Result<Value, Fault> {
    let id = asked.given.run_id()?;
    jobs::known(asked, id)?;
    if asked.app.tracking.seen(asked.workspace.id, id)?.is_some_and(|seen| seen.job.is_some()) {
        return Err(Fault::invalid(format!(
            "The run '{id}' is a job. `neap job archive -n {id}` hides it; deleting the job deletes what it logged."
        )));
    }
    asked.app.tracking.set_run_lifecycle(asked.workspace.id, id, Lifecycle::Deleted)?;
    Ok(json!({}))
}

pub(super) fn restore(asked: &Asked) -> Result<Value, Fault> {
    let id = asked.given.run_id()?;
    asked.app.tracking.set_run_lifecycle(asked.workspace.id, id, Lifecycle::Active)?;
    Ok(json!({}))
}

pub(super) fn search(asked: &Asked) -> Result<Value, Fault> {
    jobs::catch_up(asked)?;
    let given = &asked.given;
    let experiments: Result<Vec<String>, Fault> =
        given.texts("experiment_ids").iter().map(|id| experiments::resolve(asked, id)).collect();
    let search = Search {
        experiments: experiments?,
        filter: given.text("filter").unwrap_or_default().to_owned(),
        order_by: given.texts("order_by"),
        view: experiments::view(asked, "run_view_type")?,
        limit: experiments::limit(asked)?,
        token: given.text("page_token").map(String::from),
        of_job: asked.access.job(),
    };
    let page = asked.app.tracking.search_runs(asked.workspace.id, &search)?;
    let runs: Result<Vec<Value>, Fault> =
        page.items.into_iter().map(|run| Ok(wire::run(&jobs::with_job(&asked.app, run)?))).collect();
    Ok(json!({"runs": runs?, "next_page_token": page.next}))
}
