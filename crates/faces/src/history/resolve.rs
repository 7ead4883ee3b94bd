//! `batchGetResolvedUris`: from the ids that `rundata` gave to places in datastores.

use axum::response::Response;
use neap_core::Refusal;
use neap_core::documents::{AssetDocument, JobDocument};
use neap_core::state::Workspace;
use serde_json::{Map, Value, json};

use super::runs;
use crate::app::{App, unreadable};
use crate::arm::{find_job, output_uri, paths};
use crate::ask::Ask;
use crate::reply;

pub(crate) fn post(app: &App, ask: &Ask, workspace: &Workspace) -> Result<Response, Refusal> {
    let body = ask.json()?;
    let (mut values, mut errors) = (Map::new(), Map::new());
    for id in body["values"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        match resolve(app, workspace, id)? {
            Some((uri, kind)) => {
                values.insert(
                    id.into(),
                    json!({"id": id, "uri": uri, "type": kind, "legacyDatasetType": null, "isV2": true}),
                );
            }
            None => {
                errors.insert(id.into(), json!({"code": "NotFound", "message": format!("'{id}' is not an output or data asset of this workspace.")}));
            }
        }
    }
    Ok(reply::ok(&json!({"values": values, "errors": errors})))
}

fn resolve(app: &App, workspace: &Workspace, id: &str) -> Result<Option<(String, String)>, Refusal> {
    if let Some((run, output)) = runs::read_asset_id(id) {
        let Ok(row) = find_job(app, workspace, run) else { return Ok(None) };
        let document: JobDocument = app.document(&row.document)?;
        return Ok(document.outputs.get(output).map(|output| {
            let (uri, kind) = output_uri(workspace, output);
            (uri, kind.into())
        }));
    }
    let Some(paths::Reference { here: true, name, version: paths::Version::Exact(version) }) =
        paths::reference(id, "data", workspace)
    else {
        return Ok(None);
    };
    let Some(row) = app.control.reader().asset(workspace.id, "data", &name, &version).map_err(unreadable)?
    else {
        return Ok(None);
    };
    let document: AssetDocument = app.document(&row.document)?;
    let text = |key: &str| document.properties[key].as_str().unwrap_or_default().to_owned();
    Ok(Some((text("dataUri"), text("dataType"))))
}
