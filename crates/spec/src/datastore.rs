//! Datastores: where data lies outside the workspace.

use crate::document::Document;
use crate::error::Error;
use crate::fields::{Checker, Field, Kind, field, given, join, required, text, text_map};
use crate::plan::Request;
use crate::planner::{Context, Planner};
use serde_json::{Map, Value, json};

const CREDENTIALS: &[Field] = &[
    field("account_key", Kind::Text),
    field("sas_token", Kind::Text),
    field("tenant_id", Kind::Text),
    field("client_id", Kind::Text),
    field("client_secret", Kind::Text),
    field("authority_url", Kind::Text),
    field("resource_url", Kind::Text),
];

const KEYS: &[Field] = &[
    required("access_key_id", Kind::Text),
    required("secret_access_key", Kind::Text),
    field("session_token", Kind::Text),
];

const COMMON: &[Field] = &[
    required("name", Kind::Name),
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

const LAKE: &[Field] = &[
    required("account_name", Kind::Text),
    required("filesystem", Kind::Text),
    field("endpoint", Kind::Text),
    field("protocol", Kind::Word(&["https", "http", "abfss"])),
    field("credentials", Kind::Object(CREDENTIALS)),
];

/// Neap's own: `az ml` has no word for it.
const S3: &[Field] = &[
    required("bucket", Kind::Text),
    field("region", Kind::Text),
    field("endpoint", Kind::Text),
    field("credentials", Kind::Object(KEYS)),
];

/// Neap's own as well.
const FOLDER: &[Field] = &[required("path", Kind::Text)];

/// Checks a datastore's file and plans its PUT.
///
/// # Errors
/// [`Error::Problems`] with every problem; [`Error::NotSupported`] for a kind of store that Neap does not reach.
pub fn datastore_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    let planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    let spec = &document.value;
    let kind = text(spec, "type").unwrap_or("azure_blob").replace('-', "_").to_lowercase();
    let (table, wire) = match kind.as_str() {
        "azure_blob" => (BLOB, "AzureBlob"),
        "azure_data_lake_gen2" => (LAKE, "AzureDataLakeGen2"),
        "s3" => (S3, "S3"),
        "local_folder" => (FOLDER, "LocalFolder"),
        _ => {
            return Err(Error::NotSupported(format!(
                "datastores of type {kind} are not offered; a datastore is azure_blob, azure_data_lake_gen2, s3 or \
                 local_folder"
            )));
        }
    };
    checker.check_document_with(&[table, COMMON]);
    let mut properties = Map::new();
    properties.insert("datastoreType".into(), wire.into());
    for (key, wire) in [
        ("description", "description"),
        ("account_name", "accountName"),
        ("container_name", "containerName"),
        ("filesystem", "filesystem"),
        ("bucket", "bucket"),
        ("region", "region"),
        ("path", "path"),
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
    let credentials = if wire == "S3" { keys(spec) } else { credentials(&mut checker, spec) };
    properties.insert("credentials".into(), credentials);
    let name = text(spec, "name").unwrap_or_default().to_owned();
    planner.finish(checker.problems, name, None, json!({ "properties": properties }))
}

fn keys(spec: &Value) -> Value {
    let Some(given_here) = given(spec, "credentials") else { return json!({"credentialsType": "None"}) };
    let mut secrets = json!({"secretsType": "AccessKey"});
    for (key, wire) in [
        ("access_key_id", "accessKeyId"),
        ("secret_access_key", "secretAccessKey"),
        ("session_token", "sessionToken"),
    ] {
        if let Some(value) = given(given_here, key) {
            secrets[wire] = value.clone();
        }
    }
    json!({"credentialsType": "AccessKey", "secrets": secrets})
}

fn credentials(checker: &mut Checker<'_>, spec: &Value) -> Value {
    let Some(given_here) = given(spec, "credentials") else { return json!({"credentialsType": "None"}) };
    let at = |key: &str| text(given_here, key);
    match (at("account_key"), at("sas_token"), at("client_id")) {
        (Some(key), None, None) => {
            json!({"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": key}})
        }
        (None, Some(token), None) => {
            json!({"credentialsType": "Sas", "secrets": {"secretsType": "Sas", "sasToken": token}})
        }
        (None, None, Some(client)) => {
            for key in ["tenant_id", "client_secret"] {
                if at(key).is_none() {
                    checker.problem(&join("credentials", key), "required with client_id");
                }
            }
            let mut wire = json!({"credentialsType": "ServicePrincipal", "clientId": client, "tenantId": at("tenant_id"),
                "secrets": {"secretsType": "ServicePrincipal", "clientSecret": at("client_secret")}});
            for (key, to) in [("authority_url", "authorityUrl"), ("resource_url", "resourceUrl")] {
                if let Some(url) = at(key) {
                    wire[to] = url.into();
                }
            }
            wire
        }
        (None, None, None) => {
            checker.problem("credentials", "needs account_key, sas_token, or client_id with its secret");
            Value::Null
        }
        _ => {
            checker.problem("credentials", "takes one of account_key, sas_token and client_id, not several");
            Value::Null
        }
    }
}
