//! Doing what must be done before a request can be sent: uploads, look-ups, registrations.

use crate::client::segment;
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{content_uuid, hex};
use crate::session::Session;
use crate::transfer::{BLOB_STORE, Datastore, Snapshot, find_code, upload_code};
use neap_spec::{Collection, Preparation, Registration, Request};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Does every preparation of the request, in order, and puts the answers into it.
pub async fn perform(request: &mut Request, session: &Session) -> Outcome<()> {
    let mut newest = look_up(request, session).await?;
    let mut store = None;
    for number in 0..request.preparations.len() {
        let answer = match &request.preparations[number] {
            Preparation::Code { path, includes } => {
                upload_code(&Snapshot::with(path, includes)?, session).await?
            }
            Preparation::Data { path } => {
                let store = default_store(&mut store, session).await?;
                store.upload(&Snapshot::of(path)?, session).await?
            }
            Preparation::Context { path } => {
                let store = default_store(&mut store, session).await?;
                store.url(&store.upload(&Snapshot::of(path)?, session).await?)
            }
            Preparation::Latest { .. } => newest.remove(&number).unwrap_or_default(),
            Preparation::Register(registration) => register(registration, session).await?,
        };
        request.fill(number, &answer);
    }
    Ok(())
}

/// What `@latest` stands for, by the number of the preparation. All that is missing is told at once, and before anything is
/// uploaded.
async fn look_up(request: &Request, session: &Session) -> Outcome<BTreeMap<usize, String>> {
    let mut found = BTreeMap::new();
    let mut missing: Vec<Failure> = Vec::new();
    for (number, preparation) in request.preparations.iter().enumerate() {
        let Preparation::Latest { collection, name } = preparation else { continue };
        match latest(*collection, name, session).await {
            Ok(id) => {
                found.insert(number, id);
            }
            Err(failure) if failure.exit == Exit::NotFound => missing.push(failure),
            Err(failure) => return Err(failure),
        }
    }
    match missing.len() {
        0 => Ok(found),
        1 => Err(missing.remove(0)),
        count => {
            let mut all = Failure::new(Exit::NotFound, format!("{count} assets are not registered"));
            for failure in missing {
                all.details.push(failure.message);
                all.hints.extend(failure.hints);
            }
            all.hints.dedup();
            Err(all)
        }
    }
}

/// What stands for data that nobody has uploaded: a path in the default datastore.
const NOT_UPLOADED: &str = "neap-plan-not-uploaded";

/// The same for a plan: what is on the server is found, and nothing is put there. What is not comes with the request, as a
/// draft. Says what was left out.
pub async fn rehearse(request: &mut Request, session: &Session) -> Outcome<Vec<String>> {
    let mut newest = look_up(request, session).await?;
    let (mut drafts, mut left_out) = (Vec::new(), Vec::new());
    for number in 0..request.preparations.len() {
        let answer = match &request.preparations[number] {
            Preparation::Code { path, includes } => {
                find_code(&Snapshot::with(path, includes)?, session).await?.unwrap_or_default()
            }
            Preparation::Data { .. } => NOT_UPLOADED.to_owned(),
            Preparation::Context { .. } => String::new(),
            Preparation::Latest { .. } => newest.remove(&number).unwrap_or_default(),
            Preparation::Register(registration) => match find_version(registration, session).await? {
                Some(id) => id,
                None => {
                    let (id, draft) = drafted(registration, session);
                    drafts.push(draft);
                    id
                }
            },
        };
        let uploads = matches!(request.preparations[number], Preparation::Data { .. });
        if uploads && left_out.is_empty() {
            left_out.push("Local inputs were not uploaded, and were not checked.".to_owned());
        }
        request.fill(number, &answer);
    }
    request.body["drafts"] = drafts.into();
    request.body["uploads"] = json!([NOT_UPLOADED]);
    leave_out_code(&mut request.body);
    Ok(left_out)
}

/// The id that a definition would be registered under, and the definition.
fn drafted(registration: &Registration, session: &Session) -> (String, Value) {
    let collection = registration.collection;
    let (name, version) = match (&registration.name, &registration.version) {
        (None, _) => (collection.anonymous_name(), content_version(collection, &registration.body)),
        (Some(name), version) => (name.as_str(), version.clone().unwrap_or_else(|| "draft".to_owned())),
    };
    let id = format!("{}/{}/{name}/versions/{version}", session.scope.workspace_id(), collection.plural());
    let draft = json!({"id": id, "properties": registration.body["properties"]});
    (id, draft)
}

/// Code that was not uploaded is not named: when a job starts does not hang on it.
fn leave_out_code(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let named = |value: &Value| !matches!(value.as_str(), Some("" | "azureml:"));
            map.retain(|key, value| !matches!(key.as_str(), "code" | "codeId") || named(value));
            map.values_mut().for_each(leave_out_code);
        }
        Value::Array(list) => list.iter_mut().for_each(leave_out_code),
        _ => {}
    }
}

/// The id of a version that is there already: the one named, or of one without a name the one with this content.
async fn find_version(registration: &Registration, session: &Session) -> Outcome<Option<String>> {
    let collection = registration.collection;
    let (name, version) = match (&registration.name, &registration.version) {
        (None, _) => (collection.anonymous_name(), content_version(collection, &registration.body)),
        (Some(name), Some(version)) => (name.as_str(), version.clone()),
        (Some(_), None) => return Ok(None),
    };
    let path = format!("{}/{}/versions/{}", collection.plural(), segment(name), segment(&version));
    let found = session.client.find(&session.path(&path)).await?;
    Ok(found.and_then(|found| found.get("id")?.as_str().map(str::to_owned)))
}

async fn default_store<'s>(store: &'s mut Option<Datastore>, session: &Session) -> Outcome<&'s Datastore> {
    match store {
        Some(store) => Ok(store),
        None => Ok(store.insert(Datastore::open(BLOB_STORE, session).await?)),
    }
}

/// The id of the newest version of a name.
pub async fn latest(collection: Collection, name: &str, session: &Session) -> Outcome<String> {
    let plural = collection.plural();
    let path =
        session.path(&format!("{plural}/{}/versions?$orderBy=createdtime%20desc&$top=1", segment(name)));
    let versions = session.client.list(&path, Some(1)).await?;
    let id = versions.first().and_then(|version| version.get("id")).and_then(Value::as_str);
    id.map(str::to_owned).ok_or_else(|| {
        let word = collection.word();
        Failure::new(Exit::NotFound, format!("no {word} is registered under the name {name}"))
            .hint(format!("see what there is with: neap {} list", group(collection)))
    })
}

/// The command group of a kind of asset.
pub fn group(collection: Collection) -> &'static str {
    match collection {
        Collection::Components => "component",
        Collection::Data => "data",
        Collection::Environments => "environment",
        Collection::Models => "model",
    }
}

async fn register(registration: &Registration, session: &Session) -> Outcome<String> {
    let answer = put_version(
        registration.collection,
        registration.name.as_deref(),
        registration.version.as_deref(),
        &registration.body,
        session,
    )
    .await?;
    let id = answer.get("id").and_then(Value::as_str);
    id.map(str::to_owned).ok_or_else(|| {
        Failure::failed(format!("the server registered a {} without an id", registration.collection.word()))
    })
}

/// Puts a version of an asset: the one named, else the next one; without a name, one that is named by its content.
pub async fn put_version(
    collection: Collection,
    name: Option<&str>,
    version: Option<&str>,
    body: &Value,
    session: &Session,
) -> Outcome<Value> {
    let plural = collection.plural();
    let (name, version) = match (name, version) {
        (None, _) => (collection.anonymous_name(), content_version(collection, body)),
        (Some(name), Some(version)) => (name, version.to_owned()),
        (Some(name), None) => {
            let container =
                session.client.find(&session.path(&format!("{plural}/{}", segment(name)))).await?;
            let next = container
                .as_ref()
                .and_then(|container| container.pointer("/properties/nextVersion")?.as_str())
                .unwrap_or("1")
                .to_owned();
            (name, next)
        }
    };
    let path = session.path(&format!("{plural}/{}/versions/{}", segment(name), segment(&version)));
    Ok(session.client.call(Method::PUT, &path, Some(body)).await?.body)
}

fn content_version(collection: Collection, body: &Value) -> String {
    let content = body.to_string();
    match collection {
        Collection::Environments => hex(&Sha256::digest(content.as_bytes())),
        _ => content_uuid(content.as_bytes()),
    }
}
