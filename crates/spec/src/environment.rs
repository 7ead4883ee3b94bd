//! Environments: inside a job or component, in a file of their own, or by name.

use crate::document::Document;
use crate::error::Error;
use crate::fields::{
    Checker, Field, Kind, field, given, join, refused, required, scalar_text, text, text_map,
};
use crate::plan::{Collection, Registration, Request};
use crate::planner::{Context, Planner, Reference, is_file};
use serde_json::{Map, Value, json};

const BUILD: &[Field] = &[required("path", Kind::Text), field("dockerfile_path", Kind::Text)];

const ROUTE: &[Field] = &[required("path", Kind::Text), required("port", Kind::TextOrNumber)];

const INFERENCE: &[Field] = &[
    field("liveness_route", Kind::Object(ROUTE)),
    field("readiness_route", Kind::Object(ROUTE)),
    field("scoring_route", Kind::Object(ROUTE)),
];

pub(crate) const FIELDS: &[Field] = &[
    field("image", Kind::Text),
    field("conda_file", Kind::Anything),
    field("build", Kind::Object(BUILD)),
    field("name", Kind::Name),
    field("version", Kind::TextOrNumber),
    field("description", Kind::Text),
    field("tags", Kind::Entries(&Kind::Scalar)),
    field("properties", Kind::Entries(&Kind::Scalar)),
    field("os_type", Kind::Word(&["linux", "windows"])),
    field("inference_config", Kind::Object(INFERENCE)),
    field("datastore", Kind::Text),
    refused("auto_delete_setting", "assets are kept until they are deleted; leave it out"),
    field("id", Kind::ReadOnly),
    field("creation_context", Kind::ReadOnly),
    field("latest_version", Kind::ReadOnly),
    field("intellectual_property", Kind::ReadOnly),
    field("resourceGroup", Kind::ReadOnly),
    field("archived", Kind::ReadOnly),
];

/// An environment in a file of its own, to be registered under its name.
///
/// # Errors
/// [`Error::Problems`] with every problem.
pub fn environment_request(document: &Document, context: &Context<'_>) -> Result<Request, Error> {
    let mut planner = Planner::new(context);
    let mut checker = Checker::new(document, context.folder);
    checker.check_document(FIELDS);
    let spec = &document.value;
    if given(spec, "name").is_none() {
        checker.problem("name", "required, and not given");
    }
    let body = inline(&mut planner, &mut checker, "", spec).unwrap_or_default();
    let name = text(spec, "name").unwrap_or_default().to_owned();
    planner.finish(checker.problems, name, given(spec, "version").map(scalar_text), body)
}

/// The id to send for `value`, or the mark of one to come.
pub(crate) fn read(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    value: &Value,
) -> Option<String> {
    match value {
        Value::String(reference) => by_reference(planner, checker, place, reference.trim()),
        Value::Object(_) => {
            let body = inline(planner, checker, place, value)?;
            Some(registered(planner, value, body))
        }
        _ => None,
    }
}

fn registered(planner: &mut Planner<'_>, value: &Value, body: Value) -> String {
    planner.register(Registration {
        collection: Collection::Environments,
        name: text(value, "name").map(str::to_owned),
        version: given(value, "version").map(scalar_text),
        body,
    })
}

fn by_reference(
    planner: &mut Planner<'_>,
    checker: &mut Checker<'_>,
    place: &str,
    reference: &str,
) -> Option<String> {
    if reference.contains("${{") {
        return Some(reference.to_owned());
    }
    if is_file(reference) {
        let (path, document) = planner.read_file(checker, place, reference)?;
        let mut inner = Checker::of_file(&document, &path);
        inner.check_document(FIELDS);
        let body = inline(planner, &mut inner, "", &document.value);
        checker.problems.append(&mut inner.problems);
        return body.map(|body| registered(planner, &document.value, body));
    }
    let name = reference.strip_prefix("azureml:").unwrap_or(reference);
    if name.starts_with("AzureML-") {
        // Curated ones live in Azure's own registry; the server is told the name as it was written.
        return Some(format!("azureml:{name}"));
    }
    let named =
        if reference.starts_with("azureml:") { reference.to_owned() } else { format!("azureml:{name}") };
    if !named.starts_with("azureml:/") && !named.contains('@') && named.matches(':').count() < 2 {
        let message = format!(
            "`{reference}` names no version; write azureml:NAME:VERSION or azureml:NAME@latest, or give an image \
             inline (environment: {{image: ...}})"
        );
        checker.problem(place, message);
        return None;
    }
    match planner.reference(checker, place, &named, Collection::Environments)? {
        Reference::Given(id) => Some(id),
        Reference::Latest(name) => Some(planner.latest(Collection::Environments, &name)),
        Reference::Other => None,
    }
}

/// The body of an environment's PUT. `place` is where the mapping stands in the document.
fn inline(planner: &mut Planner<'_>, checker: &mut Checker<'_>, place: &str, value: &Value) -> Option<Value> {
    let (image, build) = (text(value, "image"), given(value, "build"));
    match (image, build) {
        (None, None) => {
            checker.problem(place, "an environment needs `image` or `build`");
            return None;
        }
        (Some(_), Some(_)) => {
            checker.problem(place, "an environment takes `image` or `build`, not both");
            return None;
        }
        _ => {}
    }
    let mut properties = Map::new();
    if let Some(conda) = given(value, "conda_file") {
        let conda = match conda {
            Value::String(path) => {
                let path = checker.below(path.strip_prefix("file:").unwrap_or(path));
                planner.files.read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
            }
            tree => serde_saphyr::to_string(tree).map_err(|error| error.to_string()),
        };
        match conda {
            Ok(conda) => {
                properties.insert("condaFile".into(), conda.into());
            }
            Err(message) => checker.problem(&join(place, "conda_file"), message),
        }
    }
    if let Some(build) = build {
        let mut wire = Map::new();
        let path_place = join(&join(place, "build"), "path");
        let uri = match text(build, "path") {
            Some(uri) if uri.contains("://") => Some(uri.to_owned()),
            Some(path) => planner.build_context(checker, &path_place, path),
            None => None,
        };
        if let Some(uri) = uri {
            wire.insert("contextUri".into(), uri.into());
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
    for key in ["tags", "properties"] {
        if given(value, key).is_some() {
            properties.insert(key.into(), text_map(given(value, key)));
        }
    }
    if let Some(os) = text(value, "os_type") {
        let wire = if os.eq_ignore_ascii_case("windows") { "Windows" } else { "Linux" };
        properties.insert("osType".into(), wire.into());
    }
    if let Some(inference) = given(value, "inference_config") {
        let mut wire = Map::new();
        for (key, to) in [
            ("liveness_route", "livenessRoute"),
            ("readiness_route", "readinessRoute"),
            ("scoring_route", "scoringRoute"),
        ] {
            if let Some(route) = given(inference, key) {
                wire.insert(to.into(), route.clone());
            }
        }
        properties.insert("inferenceConfig".into(), Value::Object(wire));
    }
    properties.insert("isAnonymous".into(), text(value, "name").is_none().into());
    properties.insert("isArchived".into(), false.into());
    Some(json!({ "properties": properties }))
}

/// An environment's id as it is written inside a component.
pub(crate) fn in_component(id: &str) -> String {
    if id.starts_with('/') || crate::plan::is_marked(id) { format!("azureml:{id}") } else { id.to_owned() }
}
