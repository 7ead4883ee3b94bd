//! `usages`: cores that clusters hold against their limits, counted as Azure does: a cluster holds its maximum, also at
//! zero nodes. `inUse`, which Azure has not, is what nodes have now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::response::Response;
use neap_core::cluster::Tier;
use neap_core::mix;
use neap_core::quota::{self, Holder, Pool, QuotaKey, family_words};
use neap_core::{Refusal, State};
use serde_json::{Value, json};

use super::{paths, quotas, sizes, subscriptions, with_snake_twins};
use crate::app::App;
use crate::limits::NO_LIMIT;
use crate::reply;

pub(crate) fn list(app: &App, subscription: &str, location: &str) -> Result<Response, Refusal> {
    subscriptions::check(app, subscription)?;
    sizes::check_location(app, location)?;
    let rows = rows(&app.state(), subscription, &neap_core::names::canonical_location(location));
    Ok(reply::ok(&json!({"value": with_snake_twins(&Value::Array(rows)), "nextLink": null})))
}

fn rows(state: &State, subscription: &str, location: &str) -> Vec<Value> {
    let mut out: Vec<Value> = keys(state, subscription, location)
        .iter()
        .filter_map(|key| of_key(state, subscription, key))
        .collect();
    // Low priority has one limit for all families; by family it is only counted.
    let mut families: BTreeMap<Arc<str>, (u64, u64)> = state
        .settings
        .own
        .offers()
        .into_iter()
        .filter(|size| size.low_priority_capable)
        .map(|size| (size.family, (0, 0)))
        .collect();
    for cluster in state.clusters.values().filter(|cluster| *cluster.location == *location) {
        let (dedicated, low) = mix::maximums(cluster, cluster.declared);
        for part in mix::parts(cluster) {
            let nodes = match part.shape.tier {
                Tier::Dedicated => dedicated,
                Tier::LowPriority => low,
            };
            let held = quota::cores(&part.shape) * u64::from(nodes);
            let in_use: u64 = state.nodes_of(&part).map(|node| quota::cores(&node.shape)).sum();
            let tier = part.shape.tier.canonical();
            let name = format!("{} Cluster {tier} vCPUs", family_words(&part.shape.family));
            if part.shape.tier == Tier::LowPriority {
                let (held_of_all, in_use_of_all) = families.entry(part.shape.family.clone()).or_default();
                *held_of_all += held;
                *in_use_of_all += in_use;
            }
            if let Some(workspace) = state.workspaces.get(&cluster.workspace) {
                let id = paths::cluster_id(workspace, cluster);
                out.push(row(&id, "workspaces/computes", &name, location, (held, in_use, None)));
            }
        }
    }
    let top = format!("/subscriptions/{subscription}");
    out.extend(families.iter().map(|(family, (held, in_use))| {
        let name = format!("{} Cluster LowPriority vCPUs", family_words(family));
        row(&top, "vmFamily", &name, location, (*held, *in_use, None))
    }));
    out
}

/// What is always listed, what is used and what is limited, the subscription's first.
fn keys(state: &State, subscription: &str, location: &str) -> Vec<QuotaKey> {
    let of_all = |pool| QuotaKey {
        holder: Holder::Subscription(subscription.to_lowercase().into()),
        location: location.into(),
        pool,
    };
    let mut keys: Vec<QuotaKey> = [Pool::Clusters, Pool::Dedicated, Pool::LowPriority].map(of_all).into();
    let families = state.settings.own.families();
    keys.extend(families.into_iter().map(|family| of_all(Pool::Family(family))));
    let known = state.quota_usage.keys().chain(state.quotas.keys());
    let others: BTreeSet<&QuotaKey> =
        known.filter(|key| *key.location == *location && !keys.contains(key)).collect();
    let others: Vec<QuotaKey> = others.into_iter().cloned().collect();
    keys.extend(others);
    keys
}

fn of_key(state: &State, subscription: &str, key: &QuotaKey) -> Option<Value> {
    let usage = state.quota_usage.get(key).copied().unwrap_or_default();
    let scope = quotas::scope(state, subscription, key)?;
    let figures = (usage.held, usage.in_use, state.quotas.get(key).copied());
    Some(row(&scope, quotas::kind(key), &key.pool.azure_name(), &key.location, figures))
}

fn row(scope: &str, kind: &str, name: &str, location: &str, figures: (u64, u64, Option<u64>)) -> Value {
    let (held, in_use, limit) = figures;
    let id = if kind == "vmFamily" || kind.starts_with("workspaces") {
        format!("{scope}/usages/{}", name.replace(' ', "_"))
    } else {
        format!("{scope}/usages")
    };
    json!({
        "id": id,
        "type": format!("{}/{kind}/usages", paths::NAMESPACE),
        "amlWorkspaceLocation": location,
        "unit": "Count",
        "currentValue": held,
        "inUse": in_use,
        "limit": limit.map_or(json!(NO_LIMIT), |limit| json!(limit)),
        "name": {"value": name, "localizedValue": name},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_row_and_no_limit() {
        let rows = rows(&State::default(), "s", "westus");
        for name in
            ["Standard DSv2 Family Cluster Dedicated vCPUs", "Standard DSv2 Family Cluster LowPriority vCPUs"]
        {
            assert!(rows.iter().any(|r| r["name"]["value"] == name), "{name}");
        }
        assert!(rows.iter().all(|r| r["currentValue"] == 0 && r["limit"] == NO_LIMIT));
    }

    #[test]
    fn a_limit_is_shown_where_it_is_set() {
        let mut state = State::default();
        let key = QuotaKey {
            holder: Holder::Subscription("s".into()),
            location: "westus".into(),
            pool: Pool::NodesPerCluster,
        };
        state.quotas.insert(key, 7);
        let rows = rows(&state, "s", "westus");
        let row = rows.iter().find(|r| r["name"]["value"] == "Nodes per Cluster").unwrap();
        assert_eq!((&row["limit"], &row["id"]), (&json!(7), &json!("/subscriptions/s/usages")));
    }
}
