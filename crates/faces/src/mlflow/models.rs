//! Logged models: what MLflow 3 calls the models that runs make. They are no registry: no names with versions.

use neap_tracking::{ModelStatus, NewModel, Search};
use serde_json::{Value, json};

use super::faults::Fault;
use super::{Asked, experiments, wire};

pub(super) fn create(asked: &Asked) -> Result<Value, Fault> {
    let (app, given) = (&asked.app, &asked.given);
    let guid = neap_identity::random_guid().map_err(|e| Fault::internal(e.to_string()))?.replace('-', "");
    let name = given.text("name").map_or_else(|| format!("model-{}", &guid[..8]), String::from);
    let model = NewModel {
        id: format!("m-{guid}"),
        experiment: experiments::resolve(asked, given.text("experiment_id").unwrap_or("0"))?,
        name,
        kind: given.text("model_type").unwrap_or_default().to_owned(),
        // What a job makes is made by its run, unless it names another of its own.
        source_run: given.text("source_run_id").or(asked.access.own_run()).unwrap_or_default().to_owned(),
        params: given.pairs("params"),
        tags: given.pairs("tags"),
    };
    let made = app.tracking.create_model(asked.workspace.id, &model, app.now())?;
    Ok(json!({"model": wire::model(&made)}))
}

pub(super) fn get(asked: &Asked, id: &str) -> Result<Value, Fault> {
    Ok(json!({"model": wire::model(&asked.app.tracking.model(asked.workspace.id, id)?)}))
}

pub(super) fn finish(asked: &Asked, id: &str) -> Result<Value, Fault> {
    let word = asked.given.word("status").unwrap_or_default();
    let status = ModelStatus::parse(&word)
        .ok_or_else(|| Fault::invalid(format!("'{word}' is no status of a logged model.")))?;
    let model = asked.app.tracking.finish_model(asked.workspace.id, id, status, asked.app.now())?;
    Ok(json!({"model": wire::model(&model)}))
}

pub(super) fn delete(asked: &Asked, id: &str) -> Result<Value, Fault> {
    asked.app.tracking.delete_model(asked.workspace.id, id)?;
    super::artifacts::remove(&asked.app, &asked.workspace, &super::artifacts::model_folder(id))?;
    Ok(json!({}))
}

pub(super) fn log_params(asked: &Asked, id: &str) -> Result<Value, Fault> {
    asked.app.tracking.log_model_params(asked.workspace.id, id, &asked.given.pairs("params"))?;
    Ok(json!({}))
}

pub(super) fn set_tags(asked: &Asked, id: &str) -> Result<Value, Fault> {
    let model = asked.app.tracking.set_model_tags(asked.workspace.id, id, &asked.given.pairs("tags"))?;
    Ok(json!({"model": wire::model(&model)}))
}

pub(super) fn delete_tag(asked: &Asked, id: &str, tag: &str) -> Result<Value, Fault> {
    asked.app.tracking.delete_model_tag(asked.workspace.id, id, tag)?;
    Ok(json!({}))
}

pub(super) fn search(asked: &Asked) -> Result<Value, Fault> {
    let given = &asked.given;
    let experiments: Result<Vec<String>, Fault> =
        given.texts("experiment_ids").iter().map(|id| experiments::resolve(asked, id)).collect();
    // `ascending` is true where it is not said.
    let order_by = given.list("order_by").into_iter().filter_map(|order| {
        let descending = order.is_false("ascending");
        order.text("field_name").map(|name| format!("{name} {}", if descending { "DESC" } else { "ASC" }))
    });
    let search = Search {
        experiments: experiments?,
        filter: given.text("filter").unwrap_or_default().to_owned(),
        order_by: order_by.collect(),
        limit: experiments::limit(asked)?,
        token: given.text("page_token").map(String::from),
        ..Search::default()
    };
    let page = asked.app.tracking.search_models(asked.workspace.id, &search)?;
    let models: Vec<Value> = page.items.iter().map(wire::model).collect();
    Ok(json!({"models": models, "next_page_token": page.next}))
}
