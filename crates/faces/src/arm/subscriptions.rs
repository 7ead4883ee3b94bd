//! Subscriptions, tenants, locations and resource providers, as `az` and Terraform ask for them before anything else.

use axum::response::Response;
use neap_core::{Code, Refusal};
use serde_json::{Value, json};

use super::paths::NAMESPACE;
use crate::app::App;
use crate::ask::Ask;
use crate::reply;

/// What `az resource` reads to choose an api-version; any version is accepted.
const API_VERSIONS: &[&str] = &[
    "2024-10-01",
    "2024-04-01",
    "2023-10-01",
    "2023-08-01-preview",
    "2023-04-01",
    "2022-10-01",
    "2022-05-01",
    "2020-08-01",
];
const RESOURCE_TYPES: &[&str] = &[
    "workspaces",
    "workspaces/computes",
    "workspaces/jobs",
    "workspaces/codes",
    "workspaces/codes/versions",
    "workspaces/environments",
    "workspaces/environments/versions",
    "workspaces/data",
    "workspaces/data/versions",
    "workspaces/datastores",
    "locations",
    "locations/vmSizes",
    "locations/usages",
    "locations/quotas",
    "locations/updateQuotas",
    "locations/computeOperationsStatus",
];

/// There is one subscription per installation.
pub(crate) fn check(app: &App, subscription: &str) -> Result<(), Refusal> {
    if subscription.eq_ignore_ascii_case(&app.installation.subscription_id) {
        return Ok(());
    }
    Err(Refusal::because(
        Code::ResourceNotFound,
        format!(
            "The subscription '{subscription}' could not be found. This server has the subscription '{}' (`neap env` exports it as NEAP_SUBSCRIPTION_ID).",
            app.installation.subscription_id
        ),
    ))
}

fn subscription(app: &App) -> Value {
    let id = &app.installation.subscription_id;
    json!({
        "id": format!("/subscriptions/{id}"),
        "authorizationSource": "RoleBased",
        "managedByTenants": [],
        "subscriptionId": id,
        "tenantId": app.installation.tenant_id,
        "displayName": "Neap",
        "state": "Enabled",
        "subscriptionPolicies": {"locationPlacementId": "Public_2014-09-01", "quotaId": "Neap", "spendingLimit": "Off"},
    })
}

pub(crate) fn list(app: &App) -> Response {
    reply::ok(&json!({"value": [subscription(app)], "count": {"type": "Total", "value": 1}}))
}

pub(crate) fn get(app: &App, id: &str) -> Result<Response, Refusal> {
    check(app, id)?;
    Ok(reply::ok(&subscription(app)))
}

pub(crate) fn tenants(app: &App) -> Response {
    let id = &app.installation.tenant_id;
    reply::ok(
        &json!({"value": [{"id": format!("/tenants/{id}"), "tenantId": id, "displayName": "Neap", "tenantCategory": "Home", "defaultDomain": "neap.local"}]}),
    )
}

pub(crate) fn locations(app: &App, id: &str) -> Result<Response, Refusal> {
    check(app, id)?;
    let value: Vec<Value> = app
        .state()
        .settings
        .locations
        .iter()
        .map(|name| {
            json!({"id": format!("/subscriptions/{id}/locations/{name}"), "name": name, "displayName": name, "regionalDisplayName": name,
                   "type": "Region", "metadata": {"regionType": "Physical", "regionCategory": "Recommended"}})
        })
        .collect();
    Ok(reply::ok(&json!({"value": value})))
}

fn provider(app: &App, subscription: &str, namespace: &str) -> Value {
    let locations: Vec<String> = app.state().settings.locations.to_vec();
    let types: Vec<Value> = match canonical(namespace) {
        Some("Microsoft.Resources") => ["deployments", "resourceGroups", "subscriptions"]
            .iter()
            .map(|t| resource_type(t, &["2024-11-01", "2022-09-01", "2020-06-01"], &locations))
            .collect(),
        Some(NAMESPACE) => {
            RESOURCE_TYPES.iter().map(|t| resource_type(t, API_VERSIONS, &locations)).collect()
        }
        _ => Vec::new(),
    };
    json!({
        "id": format!("/subscriptions/{subscription}/providers/{namespace}"),
        "namespace": canonical(namespace).unwrap_or(namespace),
        "registrationPolicy": "RegistrationRequired",
        // Registering means nothing here, so whatever is asked about is registered.
        "registrationState": "Registered",
        "resourceTypes": types,
    })
}

fn resource_type(name: &str, versions: &[&str], locations: &[String]) -> Value {
    json!({"resourceType": name, "locations": locations, "apiVersions": versions, "defaultApiVersion": versions.first(), "capabilities": "None"})
}

fn canonical(namespace: &str) -> Option<&'static str> {
    [NAMESPACE, "Microsoft.Resources"].into_iter().find(|known| known.eq_ignore_ascii_case(namespace))
}

pub(crate) fn providers(app: &App, subscription: &str) -> Result<Response, Refusal> {
    check(app, subscription)?;
    Ok(reply::ok(
        &json!({"value": [provider(app, subscription, NAMESPACE), provider(app, subscription, "Microsoft.Resources")]}),
    ))
}

pub(crate) fn provider_get(app: &App, subscription: &str, namespace: &str) -> Result<Response, Refusal> {
    check(app, subscription)?;
    Ok(reply::ok(&provider(app, subscription, namespace)))
}

/// `/subscriptions/{s}/resources` and the same of one group: workspaces, and the clusters in them.
pub(crate) fn resources(
    app: &App,
    ask: &Ask,
    subscription: &str,
    group: Option<&str>,
) -> Result<Response, Refusal> {
    check(app, subscription)?;
    let filter = Filter::parse(ask.query.get("$filter").unwrap_or(""))?;
    let state = app.state();
    if let Some(group) = group {
        super::groups::find(&state, subscription, group)?;
    }
    let mut value = Vec::new();
    let mut keep = |id: String, name: &str, kind: &str, location: &str, group: &str, tags: Value| {
        if filter.keeps(name, kind, location, group) {
            value.push(json!({"id": id, "name": name, "type": kind, "location": location, "tags": tags}));
        }
    };
    for workspace in
        state.workspaces.values().filter(|w| group.is_none_or(|g| w.group.eq_ignore_ascii_case(g)))
    {
        let document: neap_core::documents::PlaceDocument = app.document(&workspace.document)?;
        keep(
            super::paths::workspace_id(workspace),
            &workspace.name,
            "Microsoft.MachineLearningServices/workspaces",
            &workspace.location,
            &workspace.group,
            json!(document.tags),
        );
        for cluster in state.clusters_of(workspace.id) {
            let document: neap_core::documents::ClusterDocument = app.document(&cluster.document)?;
            keep(
                super::paths::cluster_id(workspace, cluster),
                &format!("{}/{}", workspace.name, cluster.name),
                "Microsoft.MachineLearningServices/workspaces/computes",
                &cluster.location,
                &workspace.group,
                json!(document.tags),
            );
        }
    }
    Ok(reply::ok(&json!({"value": value})))
}

/// The part of ARM's `$filter` that its clients write: `field eq 'value'` joined by `and`.
#[derive(Debug, Default, PartialEq)]
struct Filter(Vec<(String, String)>);

impl Filter {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let mut clauses = Vec::new();
        for clause in text.split(" and ").map(str::trim).filter(|clause| !clause.is_empty()) {
            let read = clause.split_once(" eq ").map(|(field, value)| {
                (field.trim().to_lowercase(), value.trim().trim_matches('\'').to_lowercase())
            });
            match read {
                Some((field, value))
                    if ["resourcegroup", "resourcetype", "name", "location"].contains(&field.as_str()) =>
                {
                    clauses.push((field, value));
                }
                _ => {
                    return Err(Refusal::because(
                        Code::BadArgument,
                        format!(
                            "The filter '{clause}' is not understood: resourceGroup, resourceType, name and location can be compared with `eq`, joined by `and`."
                        ),
                    ));
                }
            }
        }
        Ok(Self(clauses))
    }

    fn keeps(&self, name: &str, kind: &str, location: &str, group: &str) -> bool {
        self.0.iter().all(|(field, wanted)| {
            let actual = match field.as_str() {
                "resourcegroup" => group,
                "resourcetype" => kind,
                "location" => location,
                _ => name,
            };
            actual.to_lowercase() == *wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_filters() {
        let filter = Filter::parse(
            "resourceGroup eq 'RG1' and resourceType eq 'Microsoft.MachineLearningServices/workspaces'",
        )
        .unwrap();
        assert!(filter.keeps("w", "Microsoft.MachineLearningServices/workspaces", "eastus", "rg1"));
        assert!(!filter.keeps("w", "Microsoft.MachineLearningServices/workspaces", "eastus", "rg2"));
        assert!(Filter::parse("").unwrap().keeps("a", "b", "c", "d"));
        assert!(Filter::parse("substringof('x', name)").is_err());
    }
}
