//! Datastores: where data lies outside the workspace.

use crate::document::Document;
use crate::error::Error;
use crate::fields::{Checker, Field, Kind, field, given, join, required, text, text_map};
use crate::plan::Request;
use crate::planner::{Context, Planner};
use serde_json::{Map, Value, json};

const CREDENTIALS: &[Field] = &[field("account_key", Kind::Text), field("sas_token", Kind::Text)];

const COMMON: &[Field] = &[
    required("name", Kind::Text),
    required("type", Kind::Text),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("id", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
];

const BLOB: &[Field] = &[
    required("account_name", Kind::Text),
    required("container_name", Kind::Text),
    field("endpoint", Kind::Text),
    field("protocol", Kind::Word(&["https", "http", "wasbs", "wasb"])),
    field("credentials", Kind::Object(CREDENTIALS)),
];

/// Checks a datastore's file and plans its PUT.
///
/// # Errors
/// [`Error::Problems`] with every problem; [`Error::NotSupported`] for a kind of store that Neap does not reach.
pub fn datastore_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    let planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    let spec = &document.value;
    let kind = text(spec, "type").unwrap_or("azure_blob").to_lowercase();
    if kind != "azure_blob" {
        return Err(Error::NotSupported(format!(
            "datastores of type {kind} are not offered; a datastore is `type: azure_blob`"
        )));
    }
    checker.check_document_with(&[BLOB, COMMON]);
    let mut properties = Map::new();
    properties.insert("datastoreType".into(), "AzureBlob".into());
    for (key, wire) in [
        ("description", "description"),
        ("account_name", "accountName"),
        ("container_name", "containerName"),
        ("endpoint", "endpoint"),
        ("protocol", "protocol"),
    ] {
        if let Some(value) = given(spec, key) {
            properties.insert(wire.into(), value.clone());
        }
    }
    for key in ["tags", "properties"] {
        properties.insert(key.into(), text_map(given(spec, key)));
    }
    properties.insert("credentials".into(), credentials(&mut checker, spec));
    let name = text(spec, "name").unwrap_or_default().to_owned();
    planner.finish(checker.problems, name, None, json!({ "properties": properties }))
}

fn credentials(checker: &mut Checker<'_>, spec: &Value) -> Value {
    let Some(given_here) = given(spec, "credentials") else { return json!({"credentialsType": "None"}) };
    match (text(given_here, "account_key"), text(given_here, "sas_token")) {
        (Some(key), None) => {
            json!({"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": key}})
        }
        (None, Some(token)) => {
            json!({"credentialsType": "Sas", "secrets": {"secretsType": "Sas", "sasToken": token}})
        }
        (Some(_), Some(_)) => {
            checker.problem("credentials", "takes account_key or sas_token, not both");
            Value::Null
        }
        (None, None) => {
            checker.problem(&join("credentials", "account_key"), "required, or sas_token");
            Value::Null
        }
    }
}
