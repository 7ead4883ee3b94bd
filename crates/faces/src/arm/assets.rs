//! Versioned assets that are kept as they came: environments and data.

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

pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    kind: Kind,
    rest: &[&str],
) -> Result<Response, Refusal> {
    match (ask.method.as_str(), rest) {
        ("GET", []) => list_names(app, workspace, kind),
        ("GET", [name]) => container(app, workspace, kind, name),
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
    let top = ask.query.get("$top").and_then(|top| top.parse().ok()).unwrap_or(limits::PAGE_ROWS_MAX as u32);
    let rows = app.control.reader().asset_versions(workspace.id, kind.word, name, top).map_err(unreadable)?;
    let value: Vec<Value> =
        rows.iter().map(|row| version_answer(app, workspace, kind, row)).collect::<Result<_, _>>()?;
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

fn list_names(app: &App, workspace: &Workspace, kind: Kind) -> Result<Response, Refusal> {
    let rows = app.control.reader().asset_names(workspace.id, kind.word).map_err(unreadable)?;
    let mut value = Vec::new();
    // Environments that belong to one job are not listed.
    for row in rows
        .iter()
        .filter(|row| !matches!(row.name.as_str(), "CliV2AnonymousEnvironment" | "azureml_anonymous"))
    {
        value.push(container_answer(app, workspace, kind, row)?);
    }
    Ok(reply::ok(&json!({"value": value, "nextLink": null})))
}

fn container(app: &App, workspace: &Workspace, kind: Kind, name: &str) -> Result<Response, Refusal> {
    let latest = app.control.reader().asset_versions(workspace.id, kind.word, name, 1).map_err(unreadable)?;
    let row = latest.first().ok_or_else(|| missing(kind, name, ""))?;
    Ok(reply::ok(&container_answer(app, workspace, kind, row)?))
}

fn container_answer(
    app: &App,
    workspace: &Workspace,
    kind: Kind,
    latest: &AssetRow,
) -> Result<Value, Refusal> {
    let document: AssetDocument = app.document(&latest.document)?;
    let versions = app
        .control
        .reader()
        .asset_versions(workspace.id, kind.word, &latest.name, limits::PAGE_ROWS_MAX as u32)
        .map_err(unreadable)?;
    let created = Millis(document.created_ms);
    Ok(json!({
        "id": paths::child_id(workspace, &format!("{}/{}", kind.plural, latest.name)),
        "name": latest.name,
        "type": format!("Microsoft.MachineLearningServices/workspaces/{}", kind.plural),
        "properties": {
            "description": document.properties["description"],
            "tags": document.properties["tags"].as_object().cloned().unwrap_or_default(),
            "properties": {},
            "isArchived": false,
            "dataType": document.properties["dataType"],
            "latestVersion": latest.version,
            "nextVersion": next_version(versions.iter().map(|row| row.version.as_str())),
        },
        "systemData": system_data(&document.created_by, created, created),
    }))
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

fn good_name(text: &str) -> bool {
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
    }
}
