//! Resource groups.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::documents::PlaceDocument;
use neap_core::state::{Group, GroupKey};
use neap_core::{Code, Command, Refusal, State};
use serde_json::{Value, json};

use super::paths;
use crate::app::{self, App};
use crate::ask::Ask;
use crate::fields::{Fields, check_tags};
use crate::reply;

pub(crate) fn find<'a>(state: &'a State, subscription: &str, name: &str) -> Result<&'a Arc<Group>, Refusal> {
    state.groups.get(&GroupKey::new(subscription, name)).ok_or_else(|| {
        Refusal::because(Code::ResourceGroupNotFound, format!("Resource group '{name}' could not be found."))
    })
}

fn answer(app: &App, group: &Group) -> Result<Value, Refusal> {
    let document: PlaceDocument = app.document(&group.document)?;
    Ok(json!({
        "id": paths::group_id(&group.subscription, &group.name),
        "name": group.name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": group.location,
        "tags": document.tags,
        "properties": {"provisioningState": "Succeeded"},
    }))
}

pub(crate) fn list(app: &App, subscription: &str) -> Result<Response, Refusal> {
    super::subscriptions::check(app, subscription)?;
    let state = app.state();
    let value: Vec<Value> =
        state.groups.values().map(|group| answer(app, group)).collect::<Result<_, _>>()?;
    Ok(reply::ok(&json!({"value": value})))
}

pub(crate) fn get(app: &App, subscription: &str, name: &str) -> Result<Response, Refusal> {
    Ok(reply::ok(&answer(app, find(&app.state(), subscription, name)?)?))
}

pub(crate) fn head(app: &App, subscription: &str, name: &str) -> Response {
    let found = find(&app.state(), subscription, name).is_ok();
    reply::empty(if found { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
}

pub(crate) async fn put(app: &App, ask: &Ask, subscription: &str, name: &str) -> Result<Response, Refusal> {
    super::subscriptions::check(app, subscription)?;
    let body = ask.json()?;
    let state = app.state();
    let current = find(&state, subscription, name).ok();
    let mut problems = Vec::new();
    problems.extend(neap_core::names::check_resource_group_name(name));
    let fields = Fields::of(Some(&body), "", &mut problems);
    let location = match (fields.text("location", &mut problems), current) {
        (Some(location), _) => neap_core::names::canonical_location(location),
        (None, Some(current)) => current.location.to_string(),
        (None, None) => {
            problems.push(super::errors::bad(
                "A resource group needs a 'location', for example eastus.",
                "location",
            ));
            String::new()
        }
    };
    let mut document: PlaceDocument = match current {
        Some(group) => app.document(&group.document)?,
        None => PlaceDocument::default(),
    };
    if let Some(tags) = fields.strings("tags", &mut problems) {
        check_tags(&tags, "tags", &mut problems);
        document.tags = tags;
    }
    Refusal::unless_empty(problems)?;
    let kept = app::document(&document)?;
    let command = Command::PutGroup {
        subscription: subscription.into(),
        name: name.into(),
        location: location.into(),
        document: kept.hash,
    };
    let status = if current.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    app.submit(&ask.caller, command, vec![kept]).await?;
    Ok(reply::json(status, &answer(app, find(&app.state(), subscription, name)?)?))
}

pub(crate) async fn delete(
    app: &App,
    ask: &Ask,
    subscription: &str,
    name: &str,
) -> Result<Response, Refusal> {
    let state = app.state();
    let group = find(&state, subscription, name)?;
    let command = Command::DeleteGroup { subscription: group.subscription.clone(), name: group.name.clone() };
    app.submit(&ask.caller, command, Vec::new()).await?;
    Ok(reply::empty(StatusCode::OK))
}
