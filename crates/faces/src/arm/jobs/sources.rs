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

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Name and version of `azureml:NAME:VERSION`.
fn parts(asset: &str) -> Option<(&str, &str)> {
    asset.strip_prefix("azureml:")?.split_once(':')
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
        assert_eq!((sources.code.as_deref(), sources.code_hash.as_deref()), (Some("azureml:c:1"), Some("abc")));
        assert_eq!(sources.environment.as_deref(), Some("azureml:e:3"));
        let inputs: Vec<(&str, &str)> = sources.inputs.iter().map(|(n, s)| (n.as_str(), s.as_str())).collect();
        assert_eq!(
            inputs,
            [
                ("d", "azureml:d:7"),
                ("m", "azureml:m:4"),
                ("p", "azureml://datastores/s/paths/x/"),
                ("w", "https://example/x")
            ]
        );
    }
}
