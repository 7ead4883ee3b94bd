//! Experiments. Clients call the one that runs go to by default `0`.

use neap_core::state::Workspace;
use neap_tracking::{DEFAULT_EXPERIMENT, Experiment, Lifecycle, Search, View, experiment_id};
use serde_json::{Value, json};

use super::faults::Fault;
use super::{Asked, jobs, wire};
use crate::app::App;

/// The id under which an experiment is kept.
pub(super) fn resolve(asked: &Asked, id: &str) -> Result<String, Fault> {
    resolve_in(&asked.app, &asked.workspace, id)
}

pub(super) fn resolve_in(app: &App, workspace: &Workspace, id: &str) -> Result<String, Fault> {
    if id != "0" {
        return Ok(id.to_owned());
    }
    let workspace = workspace.id;
    if let Some(there) = app.tracking.experiment_by_name(workspace, DEFAULT_EXPERIMENT)? {
        return Ok(there.id);
    }
    let id = experiment_id(&app.installation.id, workspace, DEFAULT_EXPERIMENT);
    app.tracking.ensure_experiment(workspace, &id, DEFAULT_EXPERIMENT, app.now())?;
    Ok(id)
}

fn named(asked: &Asked) -> Result<String, Fault> {
    resolve(asked, asked.given.need("experiment_id")?)
}

pub(super) fn create(asked: &Asked) -> Result<Value, Fault> {
    let (app, workspace) = (&asked.app, asked.workspace.id);
    let name = asked.given.need("name")?;
    jobs::catch_up(asked)?;
    if let Some(location) = asked.given.text("artifact_location")
        && !location.starts_with("mlflow-artifacts:")
    {
        return Err(Fault::invalid(format!(
            "Files of runs are kept by Neap; they cannot go to '{location}'. Leave artifact_location out."
        )));
    }
    // The id that jobs of this experiment will have, unless it is taken by one that was renamed.
    let mut id = experiment_id(&app.installation.id, workspace, name);
    if app.tracking.experiment(workspace, &id)?.is_some_and(|other| other.name != name) {
        id = neap_identity::random_guid().map_err(|e| Fault::internal(e.to_string()))?;
    }
    app.tracking.create_experiment(workspace, &id, name, &asked.given.pairs("tags"), app.now())?;
    Ok(json!({"experiment_id": id}))
}

pub(super) fn get(asked: &Asked) -> Result<Value, Fault> {
    let id = named(asked)?;
    let mut found = asked.app.tracking.experiment(asked.workspace.id, &id)?;
    if found.is_none() {
        jobs::catch_up(asked)?;
        found = asked.app.tracking.experiment(asked.workspace.id, &id)?;
    }
    answer(found, &format!("There is no experiment with id '{id}' in this workspace."))
}

pub(super) fn get_by_name(asked: &Asked) -> Result<Value, Fault> {
    let (app, workspace) = (&asked.app, asked.workspace.id);
    let name = asked.given.need("experiment_name")?;
    if name == DEFAULT_EXPERIMENT {
        resolve(asked, "0")?;
    }
    jobs::catch_up(asked)?;
    let mut found = app.tracking.experiment_by_name(workspace, name)?;
    if found.is_none() {
        // One that was called so when its jobs were submitted.
        found = app.tracking.experiment(workspace, &experiment_id(&app.installation.id, workspace, name))?;
    }
    answer(found, &format!("There is no experiment '{name}' in this workspace."))
}

fn answer(found: Option<Experiment>, missing: &str) -> Result<Value, Fault> {
    let found = found.ok_or_else(|| Fault::not_found(missing))?;
    Ok(json!({"experiment": wire::experiment(&found)}))
}

pub(super) fn search(asked: &Asked) -> Result<Value, Fault> {
    jobs::catch_up(asked)?;
    resolve(asked, "0")?;
    let given = &asked.given;
    let search = Search {
        experiments: Vec::new(),
        filter: given.text("filter").unwrap_or_default().to_owned(),
        order_by: given.texts("order_by"),
        view: view(asked, "view_type")?,
        limit: limit(asked)?,
        token: given.text("page_token").map(String::from),
        of_job: None,
    };
    let page = asked.app.tracking.search_experiments(asked.workspace.id, &search)?;
    // A job is shown its own experiment and no other.
    let own = asked.access.own_experiment(&asked.app, &asked.workspace)?;
    let shown = page.items.iter().filter(|found| own.as_ref().is_none_or(|own| *own == found.id));
    let experiments: Vec<Value> = shown.map(wire::experiment).collect();
    Ok(json!({"experiments": experiments, "next_page_token": page.next}))
}

pub(super) fn view(asked: &Asked, key: &str) -> Result<View, Fault> {
    match asked.given.word(key) {
        None => Ok(View::default()),
        Some(word) => View::parse(&word)
            .ok_or_else(|| Fault::invalid(format!("'{word}' is none of ACTIVE_ONLY, DELETED_ONLY and ALL."))),
    }
}

pub(super) fn limit(asked: &Asked) -> Result<u32, Fault> {
    match asked.given.integer("max_results")? {
        None => Ok(0),
        Some(asked) if asked > 0 => Ok(u32::try_from(asked).unwrap_or(u32::MAX)),
        Some(asked) => Err(Fault::invalid(format!("'max_results' must be positive, and is {asked}."))),
    }
}

pub(super) fn update(asked: &Asked) -> Result<Value, Fault> {
    let app = &asked.app;
    if let Some(name) = asked.given.text("new_name") {
        app.tracking.rename_experiment(asked.workspace.id, &named(asked)?, name, app.now())?;
    }
    Ok(json!({}))
}

pub(super) fn delete(asked: &Asked) -> Result<Value, Fault> {
    set_lifecycle(asked, Lifecycle::Deleted)
}

pub(super) fn restore(asked: &Asked) -> Result<Value, Fault> {
    set_lifecycle(asked, Lifecycle::Active)
}

fn set_lifecycle(asked: &Asked, to: Lifecycle) -> Result<Value, Fault> {
    let app = &asked.app;
    app.tracking.set_experiment_lifecycle(asked.workspace.id, &named(asked)?, to, app.now())?;
    Ok(json!({}))
}

pub(super) fn set_tag(asked: &Asked) -> Result<Value, Fault> {
    let app = &asked.app;
    let tag = (asked.given.need("key")?.to_owned(), asked.given.value());
    app.tracking.set_experiment_tag(asked.workspace.id, &named(asked)?, tag, app.now())?;
    Ok(json!({}))
}

pub(super) fn delete_tag(asked: &Asked) -> Result<Value, Fault> {
    let key = asked.given.need("key")?;
    asked.app.tracking.delete_experiment_tag(asked.workspace.id, &named(asked)?, key)?;
    Ok(json!({}))
}
