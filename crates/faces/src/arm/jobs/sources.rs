//! What a job's names stand for at the moment it is submitted: kept with it, so that it can be told and run again.

use neap_core::Refusal;
use neap_core::documents::Sources;
use neap_core::state::Workspace;
use serde_json::Value;

use super::references::{Shelf, pinned};

/// `asked` is the `properties` of the job's body.
pub(super) fn read(shelf: &dyn Shelf, workspace: &Workspace, asked: &Value) -> Result<Sources, Refusal> {
    let mut sources = Sources { release: Some(env!("CARGO_PKG_VERSION").into()), ..Sources::default() };
    if let Some(id) = text(&asked["codeId"]) {
        sources.code = pinned(shelf, workspace, id, ("codes", "code"))?;
        if let Some((name, version)) = sources.code.as_deref().and_then(parts) {
            let found = shelf.asset("code", name, Some(version))?.unwrap_or_default();
            sources.code_hash = text(&found["properties"]["hash_sha256"]).map(String::from);
        }
    }
    if let Some(id) = text(&asked["componentId"]) {
        sources.component = pinned(shelf, workspace, id, ("components", "component"))?;
    }
    if let Some(id) = text(&asked["environmentId"]) {
        let found = pinned(shelf, workspace, id, ("environments", "environment"))?;
        sources.environment = Some(found.unwrap_or_else(|| id.to_owned()));
    }
    for (name, input) in asked["inputs"].as_object().into_iter().flatten() {
        let Some(uri) = text(&input["uri"]) else { continue };
        let kind = input["jobInputType"].as_str().unwrap_or("");
        let lower = uri.to_ascii_lowercase();
        let models = lower.contains("/models/") || (kind.ends_with("_model") && !lower.contains("/data/"));
        let kinds = if models { ("models", "model") } else { ("data", "data") };
        let asset = uri.starts_with("azureml:") || lower.starts_with("/subscriptions/");
        let found = if asset { pinned(shelf, workspace, uri, kinds)? } else { None };
        sources.inputs.insert(name.clone(), found.unwrap_or_else(|| without_query(uri).to_owned()));
    }
    Ok(sources)
}

/// Puts what labels stood for when the whole was submitted into the body of one of its trials or workers.
pub(super) fn pin(body: &mut Value, sources: &Sources) {
    let put = |place: &mut Value, source: Option<&String>| {
        let has_label = place.as_str().is_some_and(|id| id.contains('@') || id.contains("/labels/"));
        if let Some(source) = source.filter(|source| has_label && parts(source).is_some()) {
            *place = source.as_str().into();
        }
    };
    let Some(properties) = body.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (key, source) in [("codeId", &sources.code), ("environmentId", &sources.environment)] {
        if let Some(place) = properties.get_mut(key) {
            put(place, source.as_ref());
        }
    }
    for (name, input) in properties.get_mut("inputs").and_then(Value::as_object_mut).into_iter().flatten() {
        if let Some(place) = input.get_mut("uri") {
            put(place, sources.inputs.get(name));
        }
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Name and version of `azureml:NAME:VERSION`.
fn parts(asset: &str) -> Option<(&str, &str)> {
    asset.strip_prefix("azureml:").filter(|rest| !rest.starts_with("//"))?.split_once(':')
}

/// The query of a web address may hold a signature.
fn without_query(uri: &str) -> &str {
    uri.split_once('?').map_or(uri, |(address, _)| address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::jobs::references::tests::Fake;
    use crate::arm::paths::sample_workspace;
    use serde_json::json;

    #[test]
    fn labels_become_versions_and_signatures_are_left_out() {
        let shelf = Fake::with(&[
            ("code", "c", "1", json!({"properties": {"hash_sha256": "abc"}})),
            ("environment", "e", "2", json!({})),
            ("environment", "e", "3", json!({})),
            ("data", "d", "7", json!({})),
            ("model", "m", "4", json!({})),
        ]);
        let asked = json!({"codeId": "azureml:c:1", "environmentId": "azureml:e@latest", "inputs": {
            "d": {"jobInputType": "uri_file", "uri": "azureml:d@latest"},
            "m": {"jobInputType": "mlflow_model", "uri": "azureml:m:4"},
            "w": {"jobInputType": "uri_file", "uri": "https://example/x?sig=secret"},
            "p": {"jobInputType": "uri_folder", "uri": "azureml://datastores/s/paths/x/"},
            "n": {"jobInputType": "literal", "value": "3"}}});
        let sources = read(&shelf, &sample_workspace(), &asked).unwrap();
        assert_eq!(
            (sources.code.as_deref(), sources.code_hash.as_deref()),
            (Some("azureml:c:1"), Some("abc"))
        );
        assert_eq!(sources.environment.as_deref(), Some("azureml:e:3"));
        let inputs: Vec<(&str, &str)> =
            sources.inputs.iter().map(|(n, s)| (n.as_str(), s.as_str())).collect();
        assert_eq!(
            inputs,
            [
                ("d", "azureml:d:7"),
                ("m", "azureml:m:4"),
                ("p", "azureml://datastores/s/paths/x/"),
                ("w", "https://example/x")
            ]
        );
        let mut trial = json!({"properties": asked});
        pin(&mut trial, &sources);
        let of = |at: &str| trial["properties"].pointer(at).and_then(Value::as_str);
        assert_eq!((of("/environmentId"), of("/inputs/d/uri")), (Some("azureml:e:3"), Some("azureml:d:7")));
        assert_eq!(of("/inputs/w/uri"), Some("https://example/x?sig=secret"), "what has no label stays");
    }
}
