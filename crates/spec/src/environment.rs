//! `environment:` of a job, in each of the forms that `az ml` reads.

use crate::ReadText;
use crate::document::Document;
use crate::fields::{Checker, Field, Kind, field, given, text, text_map};
use crate::scope::Scope;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What must be done before the job can name its environment.
#[derive(Debug, Clone, PartialEq)]
pub enum Environment {
    /// Nothing: this is the id to send.
    Id(String),
    /// Ask the server which version of this name is the newest.
    Latest { name: String },
    /// Register this definition first.
    Register(EnvironmentRequest),
}

/// An environment written inside a job file.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvironmentRequest {
    /// Without a name it is anonymous, and its version is a hash of its content.
    pub name: Option<String>,
    pub version: Option<String>,
    /// The body of the environment version PUT; `properties.build.contextUri` is set once the context is uploaded.
    pub body: Value,
    /// A folder to upload as the build context.
    pub build_context: Option<PathBuf>,
}

pub(crate) const FIELDS: &[Field] = &[
    field("image", Kind::Text),
    field("conda_file", Kind::Anything),
    field("build", Kind::Object(&[field("path", Kind::Text), field("dockerfile_path", Kind::Text)])),
    field("name", Kind::Text),
    field("version", Kind::TextOrNumber),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("os_type", Kind::Word(&["linux", "windows"])),
    field("inference_config", Kind::Anything),
    field("datastore", Kind::Text),
    field("auto_delete_setting", Kind::Anything),
    field("id", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("latest_version", Kind::ReadOnly),
    field("intellectual_property", Kind::ReadOnly),
];

/// Reads `environment`, noting what is wrong with it in `checker`.
pub(crate) fn read(
    checker: &mut Checker<'_>,
    value: &Value,
    scope: &Scope,
    folder: &Path,
    read_text: ReadText<'_>,
) -> Option<Environment> {
    match value {
        Value::String(reference) => reference_form(checker, reference.trim(), scope, folder, read_text),
        Value::Object(_) => inline(checker, value, folder, read_text).map(Environment::Register),
        _ => None,
    }
}

fn reference_form(
    checker: &mut Checker<'_>,
    reference: &str,
    scope: &Scope,
    folder: &Path,
    read_text: ReadText<'_>,
) -> Option<Environment> {
    if reference.starts_with("azureml://") {
        return Some(Environment::Id(reference.to_owned()));
    }
    if let Some(path) = reference.strip_prefix("file:") {
        return from_file(checker, &folder.join(path), read_text);
    }
    if reference.ends_with(".yml") || reference.ends_with(".yaml") {
        return from_file(checker, &folder.join(reference), read_text);
    }
    let name = reference.strip_prefix("azureml:").unwrap_or(reference);
    if name.starts_with('/') {
        return Some(Environment::Id(name.to_owned()));
    }
    if name.starts_with("AzureML-") {
        // Curated ones live in Azure's own registry; the server is told the name as it was written.
        return Some(Environment::Id(format!("azureml:{name}")));
    }
    if let Some((name, label)) = name.split_once('@') {
        if label != "latest" || name.is_empty() {
            checker.problem("environment", format!("`{label}` is not a label; the only one is @latest"));
            return None;
        }
        return Some(Environment::Latest { name: name.to_owned() });
    }
    match name.split_once(':') {
        Some((name, version)) if !name.is_empty() && !version.is_empty() => {
            let id = format!("{}/environments/{name}/versions/{version}", scope.workspace_id());
            Some(Environment::Id(id))
        }
        _ => {
            let message = format!(
                "`{reference}` names no version; write azureml:NAME:VERSION or azureml:NAME@latest, or give an \
                 image inline (environment: {{image: ...}})"
            );
            checker.problem("environment", message);
            None
        }
    }
}

fn from_file(checker: &mut Checker<'_>, path: &Path, read_text: ReadText<'_>) -> Option<Environment> {
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) => {
            checker.problem("environment", format!("cannot read {}: {error}", path.display()));
            return None;
        }
    };
    let document = match Document::parse(&text) {
        Ok(document) => document,
        Err(error) => {
            checker.problem("environment", format!("{}: {error}", path.display()));
            return None;
        }
    };
    let mut inner = Checker::new(&document);
    inner.check_document(FIELDS);
    let folder = path.parent().unwrap_or(Path::new("."));
    let environment = inline(&mut inner, &document.value, folder, read_text);
    for problem in inner.problems {
        checker.problem("environment", format!("{}: {problem}", path.display()));
    }
    environment.map(Environment::Register)
}

fn inline(
    checker: &mut Checker<'_>,
    value: &Value,
    folder: &Path,
    read_text: ReadText<'_>,
) -> Option<EnvironmentRequest> {
    let (image, build) = (text(value, "image"), given(value, "build"));
    match (image, build) {
        (None, None) => {
            checker.problem("environment", "needs `image` or `build`");
            return None;
        }
        (Some(_), Some(_)) => {
            checker.problem("environment", "takes `image` or `build`, not both");
            return None;
        }
        _ => {}
    }
    let mut properties = Map::new();
    if let Some(conda) = given(value, "conda_file") {
        let conda = match conda {
            Value::String(path) => read_text(&folder.join(path))
                .map_err(|error| format!("cannot read {}: {error}", folder.join(path).display())),
            tree => serde_saphyr::to_string(tree).map_err(|error| error.to_string()),
        };
        match conda {
            Ok(conda) => {
                properties.insert("condaFile".into(), conda.into());
            }
            Err(message) => checker.problem("environment.conda_file", message),
        }
    }
    let mut build_context = None;
    if let Some(build) = build {
        let mut wire = Map::new();
        match text(build, "path") {
            Some(uri) if uri.contains("://") => {
                wire.insert("contextUri".into(), uri.into());
            }
            Some(path) => build_context = Some(folder.join(path)),
            None => checker.problem("environment.build.path", "required, and not given"),
        }
        if let Some(dockerfile) = given(build, "dockerfile_path") {
            wire.insert("dockerfilePath".into(), dockerfile.clone());
        }
        properties.insert("build".into(), Value::Object(wire));
    }
    if let Some(image) = image {
        properties.insert("image".into(), image.into());
    }
    if let Some(description) = given(value, "description") {
        properties.insert("description".into(), description.clone());
    }
    if given(value, "tags").is_some() {
        properties.insert("tags".into(), text_map(given(value, "tags")));
    }
    if let Some(os) = text(value, "os_type") {
        properties.insert(
            "osType".into(),
            if os.eq_ignore_ascii_case("windows") { "Windows" } else { "Linux" }.into(),
        );
    }
    let name = text(value, "name").map(str::to_owned);
    properties.insert("isAnonymous".into(), name.is_none().into());
    properties.insert("isArchived".into(), false.into());
    let version = given(value, "version").map(crate::fields::scalar_text);
    Some(EnvironmentRequest { name, version, body: json!({ "properties": properties }), build_context })
}
