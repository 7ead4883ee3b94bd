//! Versioned assets that are kept as they came: environments, data and models.
//!
//! A name has a *container*: what all its versions share. It is on record only where somebody put it, to archive the
//! name as a whole or to describe it; otherwise it is read off the newest version.

use axum::http::StatusCode;
use axum::response::Response;
use neap_core::documents::AssetDocument;
use neap_core::state::Workspace;
use neap_core::{Code, Command, Millis, Problem, Refusal};
use neap_ledger::AssetRow;
use serde_json::{Map, Value, json};

use super::{errors, paths, system_data};
use crate::app::{self, App, internal, unreadable};
use crate::ask::Ask;
use crate::fields::Fields;
use crate::{limits, reply};

/// One kind of asset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// In paths.
    plural: &'static str,
    /// In the ledger.
    word: &'static str,
    /// What of a version may change.
    changeable: &'static [&'static str],
    check: fn(&Fields<'_>, &mut Vec<Problem>),
}

pub(crate) const ENVIRONMENTS: Kind = Kind {
    plural: "environments",
    word: "environment",
    changeable: &["description", "tags", "properties", "isArchived", "stage"],
    check: check_environment,
};
pub(crate) const DATA: Kind = Kind {
    plural: "data",
    word: "data",
    changeable: &["description", "tags", "properties", "isArchived", "stage"],
    check: check_data,
};

pub(crate) const COMPONENTS: Kind = Kind {
    plural: "components",
    word: "component",
    changeable: &["description", "tags", "properties", "isArchived", "stage"],
    check: check_component,
};

pub(crate) const MODELS: Kind = Kind {
    plural: "models",
    word: "model",
    changeable: &["description", "tags", "properties", "isArchived", "stage", "flavors"],
    check: check_model,
};

impl Kind {
    /// What the ledger calls the container of a name, which has one version.
    fn container_word(self) -> String {
        format!("{}-container", self.word)
    }
}

const CONTAINER_VERSION: &str = "1";

/// Which of the archived and the others a list has.
fn listed(ask: &Ask, archived: bool) -> bool {
    match ask.query.get("listViewType").unwrap_or("ActiveOnly").to_ascii_lowercase().as_str() {
        "all" => true,
        "archivedonly" => archived,
        _ => !archived,
    }
}

pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    rest: &[&str],
) -> Result<Response, Refusal> {
    // A client that resolves a label asks for the name with the prefix that references have.
    let rest: Vec<&str> = rest.iter().map(|part| part.strip_prefix("azureml:").unwrap_or(part)).collect();
    match (ask.method.as_str(), rest.as_slice()) {
        ("GET", []) => list_names(app, ask, workspace, kind),
        ("GET", [name]) => container(app, workspace, kind, name),
        ("PUT", [name]) => put_container(app, ask, workspace, kind, name).await,
        ("DELETE", [name]) => delete_container(app, ask, workspace, kind, name).await,
        ("GET", [name, "versions"]) => list_versions(app, ask, workspace, kind, name),
        ("GET", [name, "versions", version]) => {
            let row =
                find(app, workspace, kind, name, version)?.ok_or_else(|| missing(kind, name, version))?;
            Ok(reply::ok(&version_answer(app, workspace, kind, &row)?))
        }
        ("PUT", [name, "versions", version]) => put(app, ask, workspace, kind, name, version).await,
        ("DELETE", [name, "versions", version]) => delete(app, ask, workspace, kind, name, version).await,
        ("POST", [_, "versions", _, "startpendingupload"]) => Err(errors::not_supported(
            "A pending upload is for code; upload data through the datastore 'workspaceblobstore'.",
        )),
        _ => Err(errors::no_such_path(ask)),
    }
}

fn check_component(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    let spec = fields.object("componentSpec", problems);
    let kind = spec.text("type", problems).unwrap_or("");
    match kind {
        "command" | "pipeline" | "parallel" | "sweep" => {}
        "" => problems
            .push(errors::bad("A component needs a 'componentSpec' with its 'type'.", &spec.place("type"))),
        other => problems.push(errors::bad(
            format!("A component of type '{other}' is not known: command, pipeline, parallel or sweep."),
            &spec.place("type"),
        )),
    }
}

fn missing(kind: Kind, name: &str, version: &str) -> Refusal {
    Refusal::because(
        Code::ResourceNotFound,
        format!("No {} exists for name: {name}, version: {version}.", kind.word),
    )
}

fn find(
    app: &App,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    version: &str,
) -> Result<Option<AssetRow>, Refusal> {
    app.control.reader().asset(workspace.id, kind.word, name, version).map_err(unreadable)
}

fn version_answer(app: &App, workspace: &Workspace, kind: Kind, row: &AssetRow) -> Result<Value, Refusal> {
    let document: AssetDocument = app.document(&row.document)?;
    let created = Millis(document.created_ms);
    Ok(json!({
        "id": paths::child_id(workspace, &format!("{}/{}/versions/{}", kind.plural, row.name, row.version)),
        "name": row.version,
        "type": format!("Microsoft.MachineLearningServices/workspaces/{}/versions", kind.plural),
        "properties": document.properties,
        "systemData": system_data(&document.created_by, created, created),
    }))
}

fn list_versions(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
) -> Result<Response, Refusal> {
    let number = |key: &str| ask.query.get(key).and_then(|text| text.parse::<usize>().ok());
    let (top, skip) = (number("$top").unwrap_or(limits::PAGE_ROWS_MAX), number("$skip").unwrap_or(0));
    let mut rows = versions(app, workspace, kind, name)?;
    if ask.query.get("$orderBy").is_some_and(|order| order.to_ascii_lowercase().ends_with(" asc")) {
        rows.reverse();
    }
    let mut value = Vec::new();
    let mut passed = 0;
    for row in &rows {
        let answer = version_answer(app, workspace, kind, row)?;
        if !listed(ask, answer["properties"]["isArchived"] == true) {
            continue;
        }
        passed += 1;
        if passed > skip && value.len() < top {
            value.push(answer);
        }
    }
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

/// Newest first.
fn versions(app: &App, workspace: &Workspace, kind: Kind, name: &str) -> Result<Vec<AssetRow>, Refusal> {
    let reader = app.control.reader();
    reader.asset_versions(workspace.id, kind.word, name, limits::PAGE_ROWS_MAX as u32).map_err(unreadable)
}

fn list_names(app: &App, ask: &Ask, workspace: &Workspace, kind: Kind) -> Result<Response, Refusal> {
    let rows = app.control.reader().asset_names(workspace.id, kind.word).map_err(unreadable)?;
    let mut value = Vec::new();
    // Environments that belong to one job are not listed.
    for row in rows
        .iter()
        .filter(|row| !matches!(row.name.as_str(), "CliV2AnonymousEnvironment" | "azureml_anonymous"))
    {
        let answer = container_answer(app, workspace, kind, &row.name)?.unwrap_or_default();
        if listed(ask, answer["properties"]["isArchived"] == true) {
            value.push(answer);
        }
    }
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

fn container(app: &App, workspace: &Workspace, kind: Kind, name: &str) -> Result<Response, Refusal> {
    let answer = container_answer(app, workspace, kind, name)?.ok_or_else(|| missing(kind, name, ""))?;
    Ok(reply::ok(&answer))
}

/// What was put for the name as a whole.
fn kept_container(
    app: &App,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
) -> Result<Option<AssetDocument>, Refusal> {
    let row = app
        .control
        .reader()
        .asset(workspace.id, &kind.container_word(), name, CONTAINER_VERSION)
        .map_err(unreadable)?;
    row.map(|row| app.document(&row.document)).transpose()
}

fn container_answer(
    app: &App,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
) -> Result<Option<Value>, Refusal> {
    let rows = versions(app, workspace, kind, name)?;
    // The newest that is not archived; if all are, the newest.
    let mut latest: Option<(&AssetRow, AssetDocument)> = None;
    for row in &rows {
        let document: AssetDocument = app.document(&row.document)?;
        let is_active = document.properties["isArchived"] != true;
        if is_active || latest.is_none() {
            latest = Some((row, document));
        }
        if is_active {
            break;
        }
    }
    let (latest_row, latest) = latest.map_or((None, None), |(row, document)| (Some(row), Some(document)));
    let kept = kept_container(app, workspace, kind, name)?;
    let Some(source) = kept.as_ref().or(latest.as_ref()) else { return Ok(None) };
    let of_latest = |key: &str| latest.as_ref().map_or(Value::Null, |latest| latest.properties[key].clone());
    let of_kept = |key: &str| kept.as_ref().map(|kept| kept.properties[key].clone());
    let object = |value: Value| if value.is_object() { value } else { json!({}) };
    let created = Millis(source.created_ms);
    Ok(Some(json!({
        "id": paths::child_id(workspace, &format!("{}/{name}", kind.plural)),
        "name": name,
        "type": format!("Microsoft.MachineLearningServices/workspaces/{}", kind.plural),
        "properties": {
            "description": source.properties["description"],
            "tags": object(source.properties["tags"].clone()),
            "properties": object(of_kept("properties").unwrap_or_default()),
            "isArchived": of_kept("isArchived").unwrap_or(json!(false)) == true,
            "dataType": of_latest("dataType"),
            "latestVersion": latest_row.map(|row| &row.version),
            "nextVersion": next_version(rows.iter().map(|row| row.version.as_str())),
        },
        "systemData": system_data(&source.created_by, created, created),
    })))
}

async fn put_container(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    check_name(kind, name, "name", &mut problems);
    let fields = Fields::of(body.get("properties"), "properties", &mut problems);
    fields.flag("isArchived", &mut problems);
    Refusal::unless_empty(problems)?;
    let existing = container_answer(app, workspace, kind, name)?;
    let asked = &body["properties"];
    let keep = |key: &str| {
        let before = existing.as_ref().map_or(Value::Null, |existing| existing["properties"][key].clone());
        asked.get(key).filter(|value| !value.is_null()).cloned().unwrap_or(before)
    };
    let document = AssetDocument {
        properties: json!({
            "description": keep("description"),
            "tags": keep("tags"),
            "properties": keep("properties"),
            "isArchived": keep("isArchived"),
        }),
        created_by: ask.caller.actor.clone(),
        created_ms: app.now().0,
        sealed_secret: None,
    };
    let stored = app::document(&document)?;
    let command = Command::PutAsset {
        workspace: workspace.id,
        kind: kind.container_word().into(),
        name: name.into(),
        version: CONTAINER_VERSION.into(),
        document: stored.hash,
        content: None,
    };
    app.submit(&ask.caller, command, vec![stored]).await?;
    let status = if existing.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    let answer = container_answer(app, workspace, kind, name)?
        .ok_or_else(|| internal("The asset's container was put and is not in the tables."))?;
    Ok(reply::json(status, &answer))
}

/// The name with all its versions.
async fn delete_container(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
) -> Result<Response, Refusal> {
    let rows = versions(app, workspace, kind, name)?;
    let kept = kept_container(app, workspace, kind, name)?;
    if rows.is_empty() && kept.is_none() {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    let mut gone: Vec<(String, String)> = rows.into_iter().map(|row| (row.kind, row.version)).collect();
    gone.extend(kept.map(|_| (kind.container_word(), CONTAINER_VERSION.to_owned())));
    for (word, version) in gone {
        let command = Command::DeleteAsset {
            workspace: workspace.id,
            kind: word.into(),
            name: name.into(),
            version: version.into(),
        };
        app.submit(&ask.caller, command, Vec::new()).await?;
    }
    Ok(reply::empty(StatusCode::OK))
}

fn check_name(kind: Kind, text: &str, what: &str, problems: &mut Vec<Problem>) {
    if !good_name(text) {
        problems.push(
            Problem::new(
                Code::InvalidResourceName,
                format!(
                    "'{text}' cannot be the {what} of a {}: 1 to 255 letters, digits, '-', '_' and '.'.",
                    kind.word
                ),
            )
            .at(what),
        );
    }
}

fn next_version<'a>(versions: impl Iterator<Item = &'a str>) -> String {
    let highest: u64 = versions.filter_map(|version| version.parse().ok()).max().unwrap_or(0);
    highest.saturating_add(1).to_string()
}

async fn put(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    version: &str,
) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let mut problems = Vec::new();
    for (text, what) in [(name, "name"), (version, "version")] {
        check_name(kind, text, what, &mut problems);
    }
    let fields = Fields::of(body.get("properties"), "properties", &mut problems);
    (kind.check)(&fields, &mut problems);
    let existing = find(app, workspace, kind, name, version)?;
    let kept: Option<AssetDocument> = existing.as_ref().map(|row| app.document(&row.document)).transpose()?;
    let asked = answered_properties(kind, body.get("properties"));
    if let Some(kept) = &kept {
        let differing = differing(kind, &kept.properties, &asked);
        if !differing.is_empty() {
            problems.push(Problem::new(
                Code::PropertyChangeNotAllowed,
                format!("The {} '{name}' version '{version}' exists and a version never changes; these differ: {}. Use a new version.", kind.word, differing.join(", ")),
            ));
        }
    }
    Refusal::unless_empty(problems)?;
    let document = AssetDocument {
        properties: asked,
        created_by: kept.as_ref().map_or_else(|| ask.caller.actor.clone(), |kept| kept.created_by.clone()),
        created_ms: existing.as_ref().map_or(app.now(), |row| row.created).0,
        sealed_secret: None,
    };
    let stored = app::document(&document)?;
    let command = Command::PutAsset {
        workspace: workspace.id,
        kind: kind.word.into(),
        name: name.into(),
        version: version.into(),
        document: stored.hash,
        content: None,
    };
    app.submit(&ask.caller, command, vec![stored]).await?;
    let row = find(app, workspace, kind, name, version)?
        .ok_or_else(|| internal("The asset was registered and is not in the tables."))?;
    let status = if existing.is_some() { StatusCode::OK } else { StatusCode::CREATED };
    Ok(reply::json(status, &version_answer(app, workspace, kind, &row)?))
}

async fn delete(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    name: &str,
    version: &str,
) -> Result<Response, Refusal> {
    if find(app, workspace, kind, name, version)?.is_none() {
        return Ok(reply::empty(StatusCode::NO_CONTENT));
    }
    let command = Command::DeleteAsset {
        workspace: workspace.id,
        kind: kind.word.into(),
        name: name.into(),
        version: version.into(),
    };
    app.submit(&ask.caller, command, Vec::new()).await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(crate) fn good_name(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !text.starts_with('.')
}

fn answered_properties(kind: Kind, asked: Option<&Value>) -> Value {
    let mut out: Map<String, Value> = asked
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, v)| !v.is_null())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for key in ["tags", "properties"] {
        out.entry(key).or_insert_with(|| json!({}));
    }
    for key in ["isAnonymous", "isArchived"] {
        out.entry(key).or_insert_with(|| json!(false));
    }
    if kind.word == "environment" {
        out.insert("environmentType".into(), json!("UserCreated"));
        out.entry("osType").or_insert_with(|| json!("Linux"));
    }
    if kind.word == "model" {
        // Clients walk through it without looking.
        out.entry("flavors").or_insert_with(|| json!({}));
        out.entry("modelType").or_insert_with(|| json!("custom_model"));
    }
    out.insert("provisioningState".into(), json!("Succeeded"));
    Value::Object(out)
}

/// What differs of that which a version is.
fn differing(kind: Kind, kept: &Value, asked: &Value) -> Vec<String> {
    let keys = [kept, asked].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
    let mut out: Vec<String> = keys
        .filter(|key| !kind.changeable.contains(&key.as_str()) && kept[key.as_str()] != asked[key.as_str()])
        .cloned()
        .collect();
    out.sort();
    out.dedup();
    out
}

fn check_environment(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    let image = fields.text("image", problems);
    let conda = fields.text("condaFile", problems);
    let build = fields.object("build", problems);
    if image.is_none()
        && conda.is_none()
        && !build.is_present()
        && !problems.iter().any(|p| p.target.is_some())
    {
        problems.push(errors::bad(
            "An environment needs an 'image', a 'condaFile' or a 'build' context.",
            "properties",
        ));
    }
    if let Some(os) = fields.text("osType", problems)
        && !os.eq_ignore_ascii_case("Linux")
    {
        problems.push(
            Problem::new(Code::NotSupported, format!("Nodes run Linux; 'osType' '{os}' is not supported."))
                .at("properties.osType"),
        );
    }
}

fn check_data(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    match fields.text("dataType", problems) {
        Some("uri_file" | "uri_folder" | "mltable") => {}
        Some(other) => problems.push(errors::bad(
            format!("'{other}' is not a data type: uri_file, uri_folder or mltable."),
            "properties.dataType",
        )),
        None => problems.push(errors::bad("A data asset needs a 'dataType'.", "properties.dataType")),
    }
    if fields.text("dataUri", problems).is_none_or(str::is_empty) {
        problems.push(errors::bad("A data asset needs a 'dataUri'.", "properties.dataUri"));
    }
}

fn check_model(fields: &Fields<'_>, problems: &mut Vec<Problem>) {
    match fields.text("modelType", problems) {
        Some("custom_model" | "mlflow_model" | "triton_model") | None => {}
        Some(other) => problems.push(errors::bad(
            format!("'{other}' is not a model type: custom_model, mlflow_model or triton_model."),
            "properties.modelType",
        )),
    }
    if fields.text("modelUri", problems).is_none_or(str::is_empty) {
        problems.push(errors::bad("A model needs a 'modelUri'.", "properties.modelUri"));
    }
    fields.object("flavors", problems);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_up() {
        assert_eq!(next_version([].into_iter()), "1");
        assert_eq!(next_version(["2", "10", "x"].into_iter()), "11");
    }

    #[test]
    fn a_version_is_what_it_is() {
        let kept = answered_properties(
            ENVIRONMENTS,
            Some(&json!({"image": "a", "isAnonymous": false, "tags": {"x": "1"}})),
        );
        let same = answered_properties(
            ENVIRONMENTS,
            Some(&json!({"image": "a", "condaFile": null, "isArchived": true})),
        );
        assert_eq!(differing(ENVIRONMENTS, &kept, &same), Vec::<String>::new());
        let other = answered_properties(ENVIRONMENTS, Some(&json!({"image": "b", "condaFile": "c"})));
        assert_eq!(differing(ENVIRONMENTS, &kept, &other), ["condaFile", "image"]);
    }

    #[test]
    fn environments_and_data_are_checked() {
        let check = |kind: Kind, body: Value| {
            let mut problems = Vec::new();
            let fields = Fields::of(Some(&body), "properties", &mut problems);
            (kind.check)(&fields, &mut problems);
            problems.len()
        };
        assert_eq!(check(ENVIRONMENTS, json!({"image": "x"})), 0);
        assert_eq!(check(ENVIRONMENTS, json!({})), 1);
        assert_eq!(check(ENVIRONMENTS, json!({"image": "x", "osType": "Windows"})), 1);
        assert_eq!(check(DATA, json!({"dataType": "uri_folder", "dataUri": "azureml://x"})), 0);
        assert_eq!(check(DATA, json!({"dataType": "odd"})), 2);
        assert_eq!(check(MODELS, json!({"modelUri": "azureml://x"})), 0);
        assert_eq!(check(MODELS, json!({"modelType": "odd", "flavors": 3})), 3);
        assert_eq!(answered_properties(MODELS, Some(&json!({"flavors": null})))["flavors"], json!({}));
    }
}
