//! Azure Resource Manager's language: `/subscriptions/…`, any `api-version`, one shape of answers.
//!
//! `answer` is the route table. Segments come normalised (see `ask`): keywords in lower case, names as given.

mod assets;
mod batch;
mod codes;
pub(crate) mod computes;
mod datastores;
mod deployments;
pub(crate) mod errors;
mod groups;
pub(crate) mod jobs;
mod locks;
mod lro;
mod metadata;
pub(crate) mod paths;
mod quotas;
pub(crate) mod schedules;
mod sizes;
pub(crate) mod subscriptions;
mod unsupported;
mod usages;
pub(crate) mod workspaces;

use axum::response::Response;
use neap_core::state::Workspace;
use neap_core::{Millis, Refusal};
use serde_json::{Value, json};

use crate::app::App;
use crate::ask::Ask;

pub(crate) use jobs::{
    edit as job_edit, find as find_job, output_uri, submit_trial, submit_worker, tidy_serverless,
};

pub(crate) use quotas::key as quota_key;

const ML: &str = "microsoft.machinelearningservices";

pub(crate) async fn answer(app: &App, ask: &Ask) -> Result<Response, Refusal> {
    let segments = ask.segments();
    match (ask.method.as_str(), segments.as_slice()) {
        ("GET", ["metadata", "endpoints"]) => Ok(metadata::endpoints(ask)),
        ("GET", ["tenants"]) => Ok(subscriptions::tenants(app)),
        ("GET", ["subscriptions"]) => Ok(subscriptions::list(app)),
        ("GET", ["subscriptions", s]) => subscriptions::get(app, s),
        (_, [scope @ .., "providers", "microsoft.authorization", "locks"]) => {
            locks::answer(app, ask, scope, &[]).await
        }
        (_, [scope @ .., "providers", "microsoft.authorization", "locks", name]) => {
            locks::answer(app, ask, scope, &[name]).await
        }
        ("GET", ["subscriptions", s, "locations"]) => subscriptions::locations(app, s),
        ("GET", ["subscriptions", s, "providers"]) => subscriptions::providers(app, s),
        ("GET", ["subscriptions", s, "providers", namespace]) => {
            subscriptions::provider_get(app, s, namespace)
        }
        ("POST", ["subscriptions", s, "providers", namespace, "register"]) => {
            subscriptions::provider_get(app, s, namespace)
        }
        ("GET", ["subscriptions", s, "resources"]) => subscriptions::resources(app, ask, s, None),

        ("GET", ["subscriptions", s, "resourcegroups"]) => groups::list(app, s),
        (method, ["subscriptions", s, "resourcegroups", g]) => match method {
            "GET" => groups::get(app, s, g),
            "HEAD" => Ok(groups::head(app, s, g)),
            "PUT" | "PATCH" => groups::put(app, ask, s, g).await,
            "DELETE" => groups::delete(app, ask, s, g).await,
            _ => Err(errors::method_not_allowed(ask, "GET, HEAD, PUT, PATCH and DELETE")),
        },
        ("GET", ["subscriptions", s, "resourcegroups", g, "resources"]) => {
            subscriptions::resources(app, ask, s, Some(g))
        }
        (
            _,
            [
                "subscriptions",
                s,
                "resourcegroups",
                g,
                "providers",
                "microsoft.resources",
                "deployments",
                rest @ ..,
            ],
        ) => deployments::answer(app, ask, s, g, rest).await,

        // The SDK leaves the provider out when it asks for a deployment's operations.
        ("GET", ["subscriptions", s, "resourcegroups", g, "deployments", rest @ ..]) => {
            deployments::answer(app, ask, s, g, rest).await
        }

        ("GET", ["subscriptions", s, "providers", ML, "workspaces"]) => workspaces::list(app, ask, s, None),
        ("GET", ["subscriptions", s, "providers", ML, "locations", location, "vmsizes"]) => {
            sizes::list(app, s, location)
        }
        ("GET", ["subscriptions", s, "providers", ML, "locations", location, "usages"]) => {
            usages::list(app, s, location)
        }
        ("GET", ["subscriptions", s, "providers", ML, "locations", location, "quotas"]) => {
            quotas::list(app, s, location)
        }
        ("POST", ["subscriptions", s, "providers", ML, "locations", location, "updatequotas"]) => {
            quotas::update(app, ask, s, location).await
        }
        (
            "GET",
            [
                "subscriptions",
                _,
                "providers",
                ML,
                "locations",
                _,
                "computeoperationsstatus" | "mfeoperationsstatus",
                name,
            ],
        ) => lro::status(app, ask, name),
        (
            "GET",
            [
                "subscriptions",
                _,
                "providers",
                ML,
                "locations",
                _,
                "computeoperationsresults" | "mfeoperationresults",
                name,
            ],
        ) => lro::result(app, name),

        ("GET", ["subscriptions", s, "resourcegroups", g, "providers", ML, "workspaces"]) => {
            workspaces::list(app, ask, s, Some(g))
        }
        (method, ["subscriptions", s, "resourcegroups", g, "providers", ML, "workspaces", w]) => match method
        {
            "GET" => workspaces::get(app, ask, s, g, w),
            "PUT" => workspaces::put(app, ask, s, g, w).await,
            "PATCH" => workspaces::patch(app, ask, s, g, w).await,
            "DELETE" => workspaces::delete(app, ask, s, g, w).await,
            _ => Err(errors::method_not_allowed(ask, "GET, PUT, PATCH and DELETE")),
        },
        (_, ["subscriptions", s, "resourcegroups", g, "providers", ML, "workspaces", w, rest @ ..]) => {
            let workspace = workspaces::find(&app.state(), s, g, w)?;
            in_workspace(app, ask, &workspace, rest).await
        }
        _ => Err(errors::no_such_path(ask)),
    }
}

async fn in_workspace(
    app: &App,
    ask: &Ask,
    workspace: &Workspace,
    rest: &[&str],
) -> Result<Response, Refusal> {
    match (ask.method.as_str(), rest) {
        ("GET", ["computes"]) => computes::list(app, workspace),
        ("GET", ["computes", c]) => computes::get(app, workspace, c),
        ("PUT", ["computes", c]) => computes::put(app, ask, workspace, c).await,
        ("PATCH", ["computes", c]) => computes::patch(app, ask, workspace, c).await,
        ("DELETE", ["computes", c]) => computes::delete(app, ask, workspace, c).await,
        ("POST", ["computes", c, "listnodes"]) => computes::list_nodes(app, workspace, c),
        ("POST", ["computes", c, action]) => Err(computes::refused_action(app, workspace, c, action)),

        ("GET", ["jobs"]) => jobs::list(app, ask, workspace),
        ("GET", ["jobs", j]) => jobs::get(app, ask, workspace, j),
        ("PUT", ["jobs", j]) => jobs::put(app, ask, workspace, j).await,
        ("DELETE", ["jobs", j]) => jobs::delete(app, ask, workspace, j).await,
        ("POST", ["jobs", j, "cancel"]) => jobs::cancel(app, ask, workspace, j).await,

        ("GET", ["codes", name, "versions"]) => codes::list(app, ask, workspace, name),
        ("GET", ["codes", name, "versions", version]) => codes::get(app, workspace, name, version),
        ("PUT", ["codes", name, "versions", version]) => codes::put(app, ask, workspace, name, version).await,
        ("POST", ["codes", _, "versions", _, "startpendingupload"]) => {
            codes::start_pending_upload(app, ask, workspace).await
        }

        (_, ["environments", rest @ ..]) => {
            assets::answer(app, ask, workspace, assets::ENVIRONMENTS, rest).await
        }
        (_, ["components", rest @ ..]) => assets::answer(app, ask, workspace, assets::COMPONENTS, rest).await,
        (_, ["data", rest @ ..]) => assets::answer(app, ask, workspace, assets::DATA, rest).await,
        (_, ["models", rest @ ..]) => assets::answer(app, ask, workspace, assets::MODELS, rest).await,

        (_, ["batchendpoints", rest @ ..]) => batch::answer(app, ask, workspace, rest).await,

        ("GET", ["datastores"]) => datastores::list(app, ask, workspace),
        ("GET", ["datastores", d]) => datastores::get(app, ask, workspace, d),
        ("PUT", ["datastores", d]) => datastores::put(app, ask, workspace, d).await,
        ("DELETE", ["datastores", d]) => datastores::delete(app, ask, workspace, d).await,
        ("POST", ["datastores", d, "listsecrets"]) => datastores::list_secrets(app, ask, workspace, d),

        ("GET", ["schedules"]) => schedules::list(app, ask, workspace),
        ("GET", ["schedules", s]) => schedules::get(app, workspace, s),
        ("PUT", ["schedules", s]) => schedules::put(app, ask, workspace, s).await,
        ("PATCH", ["schedules", s]) => schedules::patch(app, ask, workspace, s).await,
        ("DELETE", ["schedules", s]) => schedules::delete(app, ask, workspace, s).await,
        ("POST", ["schedules", s, "trigger"]) => schedules::trigger(app, ask, workspace, s).await,

        ("POST", [action]) => Err(workspaces::refused_action(action)),
        (_, [kind, ..]) => Err(unsupported::refuse(kind).unwrap_or_else(|| errors::no_such_path(ask))),
        (_, []) => Err(errors::no_such_path(ask)),
    }
}

/// Who and when, as every ARM resource tells it.
pub(crate) fn system_data(by: &str, created: Millis, modified: Millis) -> Value {
    let by = if by.is_empty() { Value::Null } else { json!(by) };
    json!({
        "createdBy": by, "createdByType": "User", "createdAt": created.rfc3339(),
        "lastModifiedBy": by, "lastModifiedByType": "User", "lastModifiedAt": modified.rfc3339(),
    })
}

/// Adds to each key its snake_case twin: one released client reads those only (see the wire notes), others ignore them.
pub(crate) fn with_snake_twins(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(with_snake_twins).collect(),
        Value::Object(map) => {
            let mut out = serde_json::Map::new();
            for (key, value) in map {
                let value = with_snake_twins(value);
                let twin = snake_case(key);
                if twin != *key {
                    out.insert(twin, value.clone());
                }
                out.insert(key.clone(), value);
            }
            Value::Object(out)
        }
        plain => plain.clone(),
    }
}

/// As the client's code generator makes attribute names: `vCPUs` becomes `v_cp_us`.
fn snake_case(key: &str) -> String {
    match key {
        "vCPUs" => "v_cp_us".into(),
        "osVhdSizeMB" => "os_vhd_size_mb".into(),
        "maxResourceVolumeMB" => "max_resource_volume_mb".into(),
        "memoryGB" => "memory_gb".into(),
        "premiumIO" => "premium_io".into(),
        "estimatedVMPrices" => "estimated_vm_prices".into(),
        _ => {
            let mut out = String::with_capacity(key.len() + 4);
            for c in key.chars() {
                if c.is_ascii_uppercase() {
                    out.push('_');
                }
                out.push(c.to_ascii_lowercase());
            }
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins() {
        let twins = with_snake_twins(&json!([{"nodeId": 1, "vCPUs": 4, "name": {"localizedValue": "x"}}]));
        assert_eq!(
            twins,
            json!([{"node_id": 1, "nodeId": 1, "v_cp_us": 4, "vCPUs": 4, "name": {"localized_value": "x", "localizedValue": "x"}}])
        );
    }
}
