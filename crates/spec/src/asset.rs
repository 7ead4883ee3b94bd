//! Data assets and models, in files of their own.

use crate::document::Document;
use crate::error::Error;
use crate::fields::{
    Checker, Field, Kind, canonical, field, given, join, refused, required, scalar_text, text, text_map,
};
use crate::inputs::data_uri;
use crate::plan::{Collection, Registration, Request};
use crate::planner::{Context, Planner};
use serde_json::{Map, Value, json};

const DATA_TYPES: &[&str] = &["uri_folder", "uri_file", "mltable"];
const MODEL_TYPES: &[&str] = &["custom_model", "mlflow_model", "triton_model"];

/// What both have.
const COMMON: &[Field] = &[
    required("path", Kind::Text),
    field("name", Kind::Name),
    field("version", Kind::TextOrNumber),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("datastore", Kind::Text),
    refused("auto_delete_setting", "assets are kept until they are deleted; leave it out"),
    field("id", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("latest_version", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
    field("archived", Kind::ReadOnly),
];

const DATA: &[Field] = &[field("type", Kind::Word(DATA_TYPES))];

const MODEL: &[Field] = &[
    field("type", Kind::Word(MODEL_TYPES)),
    field("flavors", Kind::Entries(&Kind::Anything)),
    field("stage", Kind::Text),
    field("job_name", Kind::ReadOnly),
    field("intellectual_property", Kind::ReadOnly),
];

/// Checks a data asset's file and plans its PUT.
///
/// # Errors
/// [`Error::Problems`] with every problem.
pub fn data_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    asset_request(document, context, Collection::Data)
}

/// Checks a model's file and plans its PUT.
///
/// # Errors
/// [`Error::Problems`] with every problem.
pub fn model_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    asset_request(document, context, Collection::Models)
}

fn asset_request(
    document: &Document,
    context: &Context<'_>,
    collection: Collection,
) -> Result<Request, Error> {
    let mut planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    let value = &document.value;
    let table = if collection == Collection::Models { MODEL } else { DATA };
    checker.check_document_with(&[table, COMMON]);
    if given(value, "name").is_none() {
        checker.problem("name", "required, and not given");
    }
    let body = body(&mut planner, &mut checker, "", value, collection);
    let name = text(value, "name").unwrap_or_default().to_owned();
    planner.finish(checker.problems, name, given(value, "version").map(scalar_text), body)
}

/// A model that is written inside a deployment: registered under its name, or without one.
pub(crate) fn inline_model(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    value: &Value,
) -> String {
    checker.check_at(place, value, &[MODEL, COMMON]);
    let body = body(planner, checker, place, value, Collection::Models);
    planner.register(Registration {
        collection: Collection::Models,
        name: text(value, "name").map(str::to_owned),
        version: given(value, "version").map(scalar_text),
        body,
    })
}

fn body(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    value: &Value,
    collection: Collection,
) -> Value {
    let mut properties = Map::new();
    if let Some(description) = given(value, "description") {
        properties.insert("description".into(), description.clone());
    }
    for key in ["tags", "properties"] {
        properties.insert(key.into(), text_map(given(value, key)));
    }
    let word = text(value, "type");
    let path = text(value, "path").unwrap_or_default();
    let (uri, kind_key, uri_key, kind) = if collection == Collection::Models {
        let kind = word.and_then(|word| canonical(word, MODEL_TYPES)).unwrap_or("custom_model");
        (data_uri(planner, checker, &join(place, "path"), path, kind), "modelType", "modelUri", kind)
    } else {
        let kind = word.and_then(|word| canonical(word, DATA_TYPES)).unwrap_or("uri_folder");
        (data_uri(planner, checker, &join(place, "path"), path, kind), "dataType", "dataUri", kind)
    };
    properties.insert(kind_key.into(), kind.into());
    if let Some(uri) = uri {
        let uri = if collection == Collection::Models { long_uri(planner, &uri) } else { uri };
        properties.insert(uri_key.into(), uri.into());
    }
    if let Some(flavors) = given(value, "flavors") {
        let mut wire = Map::new();
        for (flavor, data) in flavors.as_object().into_iter().flatten() {
            wire.insert(flavor.clone(), json!({ "data": data }));
        }
        properties.insert("flavors".into(), Value::Object(wire));
    }
    if let Some(stage) = given(value, "stage") {
        properties.insert("stage".into(), stage.clone());
    }
    properties.insert("isAnonymous".into(), text(value, "name").is_none().into());
    properties.insert("isArchived".into(), false.into());
    json!({ "properties": properties })
}

/// Models are named with their workspace, as the Azure clients name them.
fn long_uri(planner: &Planner<'_>, uri: &str) -> String {
    match uri.strip_prefix("azureml://datastores/") {
        Some(rest) => format!(
            "azureml://subscriptions/{}/resourcegroups/{}/workspaces/{}/datastores/{rest}",
            planner.scope.subscription_id, planner.scope.resource_group, planner.scope.workspace
        ),
        None => uri.to_owned(),
    }
}
