//! `quotas` and `updateQuotas`: the limits that are set, and setting them. What counts against them is in `usages`.

use axum::response::Response;
use neap_core::names::canonical_location;
use neap_core::quota::{Holder, Pool, QuotaKey};
use neap_core::{Command, Refusal, State};
use serde_json::{Value, json};

use super::{paths, sizes, subscriptions, with_snake_twins, workspaces};
use crate::app::App;
use crate::ask::Ask;
use crate::fields::Fields;
use crate::reply;

pub(crate) fn list(app: &App, subscription: &str, location: &str) -> Result<Response, Refusal> {
    subscriptions::check(app, subscription)?;
    sizes::check_location(app, location)?;
    let (state, location) = (app.state(), canonical_location(location));
    let rows: Vec<Value> = state
        .quotas
        .iter()
        .filter(|(key, _)| *key.location == *location)
        .filter_map(|(key, limit)| Some((scope(&state, subscription, key)?, key, limit)))
        .map(|(scope, key, limit)| {
            let name = key.pool.azure_name();
            json!({
                "id": format!("{scope}/quotas/{}", name.replace(' ', "_")),
                "type": format!("{}/{}/quotas", paths::NAMESPACE, kind(key)),
                "amlWorkspaceLocation": location,
                "name": {"value": name, "localizedValue": name},
                "limit": limit,
                "unit": "Count",
            })
        })
        .collect();
    Ok(reply::ok(&json!({"value": with_snake_twins(&Value::Array(rows)), "nextLink": null})))
}

/// Each item is taken or not by itself, and says so: that is Azure's contract.
pub(crate) async fn update(
    app: &App,
    ask: &Ask,
    subscription: &str,
    location: &str,
) -> Result<Response, Refusal> {
    subscriptions::check(app, subscription)?;
    sizes::check_location(app, location)?;
    let body = ask.json()?;
    let mut problems = Vec::new();
    let items = match Fields::of(Some(&body), "", &mut problems).value("value") {
        Some(Value::Array(items)) => items.clone(),
        _ => {
            problems.push(super::errors::bad("'value' is the list of limits to set.", "value"));
            Vec::new()
        }
    };
    Refusal::unless_empty(problems)?;
    let mut answers = Vec::with_capacity(items.len());
    for item in &items {
        let (status, message) = match set(app, ask, location, item).await {
            Ok(()) => ("Success", None),
            Err(Unset::Named(status, why)) => (status, Some(why)),
            Err(Unset::Refused(refusal)) => ("Failure", Some(refusal.to_string())),
        };
        answers.push(json!({
            "id": item["id"], "type": item["type"], "limit": item["limit"], "unit": "Count",
            "status": status, "message": message,
        }));
    }
    Ok(reply::ok(&json!({"value": with_snake_twins(&Value::Array(answers)), "nextLink": null})))
}

enum Unset {
    /// One of Azure's words for it, and more of them.
    Named(&'static str, String),
    Refused(Refusal),
}

async fn set(app: &App, ask: &Ask, location: &str, item: &Value) -> Result<(), Unset> {
    let state = app.state();
    let id = item["id"].as_str().unwrap_or_default();
    let key = key(&state, location, id).map_err(|why| Unset::Named("InvalidVMFamilyName", why))?;
    // A negative number takes the limit away.
    let limit = match item["limit"].as_i64() {
        Some(limit) => u64::try_from(limit).ok(),
        None => {
            let message = "'limit' is a whole number; a negative one takes the limit away.";
            return Err(Unset::Refused(super::errors::bad(message, "limit").into()));
        }
    };
    if let (Holder::Workspace(workspace), Some(limit)) = (&key.holder, limit) {
        let subscription = state.workspaces.get(workspace).map(|w| w.subscription.to_lowercase().into());
        let above = subscription.map(|s| QuotaKey { holder: Holder::Subscription(s), ..key.clone() });
        if let Some(above) = above.and_then(|above| state.quotas.get(&above)).filter(|above| limit > **above)
        {
            let why = format!("A workspace's limit cannot be above the subscription's, which is {above}.");
            return Err(Unset::Named("InvalidQuotaExceedsSubscriptionLimit", why));
        }
    }
    let command = Command::SetQuota { key, limit, by: ask.caller.actor.as_str().into() };
    app.submit(&ask.caller, command, Vec::new()).await.map(drop).map_err(Unset::Refused)
}

/// Reads `…/quotas/Standard_DSv2_Family_Cluster_Dedicated_vCPUs`, of a subscription or of a workspace in it; or says why not.
pub(crate) fn key(state: &State, location: &str, id: &str) -> Result<QuotaKey, String> {
    let segments = crate::ask::segments(id, 0);
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (holder, name) = match words.as_slice() {
        ["subscriptions", s, "quotas", name] => (Holder::Subscription(s.to_lowercase().into()), name),
        ["subscriptions", s, "resourcegroups", g, "providers", _, "workspaces", w, "quotas", name] => {
            let found = workspaces::find(state, s, g, w);
            let workspace = found.map_err(|_| format!("There is no workspace '{w}' in group '{g}'."))?;
            (Holder::Workspace(workspace.id), name)
        }
        _ => return Err("'id' is of a subscription or a workspace, and ends in /quotas/ and a name.".into()),
    };
    let pool = Pool::parse(name, &state.settings.own).ok_or_else(|| {
        let shown = name.replace('_', " ");
        format!("There is no quota '{shown}'; 'neap quota list --all' shows those there are.")
    })?;
    Ok(QuotaKey { holder, location: canonical_location(location).into(), pool })
}

/// The ARM scope that a limit is on; `None` where it is of another subscription.
pub(crate) fn scope(state: &State, subscription: &str, key: &QuotaKey) -> Option<String> {
    match &key.holder {
        Holder::Subscription(s) => {
            s.eq_ignore_ascii_case(subscription).then(|| format!("/subscriptions/{subscription}"))
        }
        Holder::Workspace(id) => state
            .workspaces
            .get(id)
            .filter(|workspace| workspace.subscription.eq_ignore_ascii_case(subscription))
            .map(|workspace| paths::workspace_id(workspace)),
    }
}

/// The middle of the resource type, as Azure names it.
pub(crate) const fn kind(key: &QuotaKey) -> &'static str {
    match (&key.holder, &key.pool) {
        (Holder::Workspace(_), _) => "workspaces",
        (_, Pool::Family(_)) => "vmFamily",
        (_, Pool::Dedicated) => "dedicatedCores",
        (_, Pool::LowPriority) => "lowPriorityCores",
        (_, Pool::Clusters) => "totalCores",
        (_, Pool::NodesPerCluster) => "nodesPerCluster",
    }
}
