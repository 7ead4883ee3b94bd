//! `usages`: cores that clusters hold, counted as Azure does: a cluster holds its maximum, also at zero nodes.

use std::collections::BTreeMap;

use axum::response::Response;
use neap_core::cluster::Tier;
use neap_core::{Refusal, State, catalogue};
use serde_json::{Value, json};

use super::{paths, sizes, subscriptions, with_snake_twins};
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
    let (mut clusters, mut dedicated, mut low_priority) = (0_u64, 0_u64, 0_u64);
    // Every family is listed for both tiers, so that a client finds the row it looks for.
    let mut families: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
    for size in catalogue::sizes() {
        families.entry((family_words(size.family), "Dedicated")).or_default();
        if size.low_priority_capable {
            families.entry((family_words(size.family), "LowPriority")).or_default();
        }
    }
    let mut of_workspaces: BTreeMap<(String, String, &'static str), u64> = BTreeMap::new();
    let mut of_clusters = Vec::new();
    for cluster in state.clusters.values().filter(|c| *c.location == *location) {
        let cores = u64::from(cluster.shape.nominal.cpus_milli / 1_000) * u64::from(cluster.scale.max);
        let tier = cluster.shape.tier.canonical();
        clusters += 1;
        match cluster.shape.tier {
            Tier::Dedicated => dedicated += cores,
            Tier::LowPriority => low_priority += cores,
        }
        let family = catalogue::size(&cluster.shape.size)
            .map_or_else(|| String::from("Unknown"), |size| family_words(size.family));
        *families.entry((family.clone(), tier)).or_default() += cores;
        if let Some(workspace) = state.workspaces.get(&cluster.workspace) {
            let id = paths::workspace_id(workspace);
            *of_workspaces.entry((id, family.clone(), tier)).or_default() += cores;
            of_clusters.push((paths::cluster_id(workspace, cluster), family, tier, cores));
        }
    }
    let top = format!("/subscriptions/{subscription}");
    let row = |scope: &str, kind: &str, name: String, family: bool, value: u64| {
        let id = if family {
            format!("{scope}/usages/{}", name.replace(' ', "_"))
        } else {
            format!("{scope}/usages")
        };
        json!({
            "id": id,
            "type": format!("Microsoft.MachineLearningServices/{kind}/usages"),
            "amlWorkspaceLocation": location,
            "unit": "Count",
            "currentValue": value,
            "limit": NO_LIMIT,
            "name": {"value": name, "localizedValue": name},
        })
    };
    let family_name = |family: &str, tier: &str| format!("{family} Cluster {tier} vCPUs");
    let mut out = vec![
        row(&top, "totalCores", "Clusters".into(), false, clusters),
        row(&top, "dedicatedCores", "Total Cluster Dedicated Regional vCPUs".into(), false, dedicated),
        row(&top, "lowPriorityCores", "Total Cluster LowPriority Regional vCPUs".into(), false, low_priority),
    ];
    out.extend(
        families
            .iter()
            .map(|((family, tier), cores)| row(&top, "vmFamily", family_name(family, tier), true, *cores)),
    );
    out.extend(
        of_workspaces.iter().map(|((id, family, tier), cores)| {
            row(id, "workspaces", family_name(family, tier), true, *cores)
        }),
    );
    out.extend(of_clusters.iter().map(|(id, family, tier, cores)| {
        row(id, "workspaces/computes", family_name(family, tier), true, *cores)
    }));
    out
}

/// `standardDSv2Family` is shown as `Standard DSv2 Family`.
fn family_words(family: &str) -> String {
    match family.strip_prefix("standard").and_then(|rest| rest.strip_suffix("Family")) {
        Some(series) => format!("Standard {series} Family"),
        None => family.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_row_and_no_limit() {
        assert_eq!(family_words("standardDSv2Family"), "Standard DSv2 Family");
        let rows = rows(&State::default(), "s", "westus");
        assert!(rows.iter().any(|r| r["name"]["value"] == "Standard DSv2 Family Cluster Dedicated vCPUs"));
        assert!(rows.iter().all(|r| r["currentValue"] == 0 && r["limit"] == NO_LIMIT));
    }
}
