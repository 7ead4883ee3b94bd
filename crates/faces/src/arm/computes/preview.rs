//! What a change of a cluster would do, by the machine that would do it: decided and planned on a copy, and dropped.
//! Nothing secret is shown: of a password and a key, that they change.

use std::collections::BTreeSet;

use neap_core::cluster::Cluster;
use neap_core::decide::decide;
use neap_core::documents::ClusterDocument;
use neap_core::plan::{Dirty, plan_into};
use neap_core::quota;
use neap_core::{Command, Draft, Event, Millis, Refusal, State, WorkspaceId};
use serde_json::{Value, json};

/// Nothing would change.
pub(super) fn nothing(cluster: &Cluster) -> Value {
    json!({"dryRun": true, "revision": cluster.revision, "changes": [], "nodesAdded": 0, "nodesLetGo": 0, "cuts": []})
}

pub(super) fn put(
    state: &State,
    workspace: WorkspaceId,
    name: &str,
    command: Command,
    documents: (&ClusterDocument, &ClusterDocument),
    now: Millis,
) -> Result<Value, Refusal> {
    let mut draft = Draft::new(state.clone());
    for event in decide(state, command, now)? {
        draft.emit(now, event);
    }
    let mut dirty = Dirty { clusters: BTreeSet::new(), timers_seen: now, ..Dirty::default() };
    plan_into(&mut draft, &mut dirty, now);
    let before = state.cluster(workspace, name);
    let after = draft.state.cluster(workspace, name);
    let count = |is: fn(&Event) -> bool| draft.events.iter().filter(|event| is(event)).count();
    let mut changes = Vec::new();
    let mut change = |field: &str, from: Value, to: Value| {
        if from != to {
            changes.push(json!({"field": field, "from": from, "to": to}));
        }
    };
    let of = |cluster: Option<&std::sync::Arc<Cluster>>, read: fn(&Cluster) -> Value| {
        cluster.map_or(Value::Null, |c| read(c))
    };
    for (field, read) in FIELDS {
        change(field, of(before, *read), of(after, *read));
    }
    let (old, new) = documents;
    change("tags", json!(old.tags), json!(new.tags));
    change("description", json!(old.description), json!(new.description));
    change("identity", json!(old.identity.is_some()), json!(new.identity.is_some()));
    change("subnet", json!(old.subnet), json!(new.subnet));
    change(
        "enable_node_public_ip",
        json!(old.public_ip.unwrap_or(true)),
        json!(new.public_ip.unwrap_or(true)),
    );
    let open = |document: &ClusterDocument| document.remote_login.as_deref() == Some("Enabled");
    change("ssh_public_access_enabled", json!(open(old)), json!(open(new)));
    change("ssh_settings.admin_username", json!(old.admin_user), json!(new.admin_user));
    for (field, from, to) in [
        ("ssh_settings.ssh_key_value", &old.admin_key, &new.admin_key),
        ("ssh_settings.admin_password", &old.admin_password_hash, &new.admin_password_hash),
    ] {
        let told = |kept: &Option<String>, other: &str| match kept {
            Some(_) => json!(other),
            None => Value::Null,
        };
        if from != to {
            change(field, told(from, "one"), told(to, "another one"));
        }
    }
    let roll = before
        .zip(after)
        .filter(|(_, after)| !after.old.is_empty())
        .map(|(before, after)| roll_of(state, &draft.state, before, after));
    let cuts = after.map(|cluster| cluster.cuts.iter().map(|cut| cut.sentence()).collect::<Vec<_>>());
    Ok(json!({
        "dryRun": true,
        "revision": after.map(|cluster| cluster.revision),
        "changes": changes,
        "nodesAdded": count(|event| matches!(event, Event::NodeRequested(_))),
        "nodesLetGo": count(|event| matches!(event, Event::NodeLeaving(_))),
        "cuts": cuts,
        "roll": roll,
        "warnings": after.and_then(|cluster| Some(super::advice::advice(&draft.state, draft.state.workspaces.get(&workspace)?, cluster))),
    }))
}

/// What is replaced, and what that means for quotas and costs.
fn roll_of(state: &State, planned: &State, before: &Cluster, after: &Cluster) -> Value {
    let nodes: Vec<Value> = state
        .nodes_of(before)
        .filter(|node| after.old.contains(&node.id))
        .map(|node| {
            let jobs = node.attempts.iter().filter_map(|id| state.jobs.get(&id.job));
            json!({"node": format!("n-{}", node.id), "state": node.word(),
                "jobs": jobs.map(|job| job.name.clone()).collect::<Vec<_>>()})
        })
        .collect();
    let running: BTreeSet<&str> =
        nodes.iter().flat_map(|node| node["jobs"].as_array()).flatten().filter_map(Value::as_str).collect();
    let keys = |shape| quota::keys(state, before.workspace, &before.location, shape);
    let all: BTreeSet<_> = keys(&before.shape).into_iter().chain(keys(&after.shape)).collect();
    let held = |state: &State, key| state.quota_usage.get(key).map_or(0, |usage| usage.held);
    let quotas: Vec<Value> = all
        .iter()
        .filter(|key| key.pool.counts_cores())
        .map(|key| {
            json!({"name": key.pool.azure_name(), "of": quota::holder_words(state, &key.holder),
                "held_before": held(state, key), "held_after": held(planned, key), "limit": state.quotas.get(key)})
        })
        .collect();
    let price = |cluster: &Cluster| {
        let hour = cluster.shape.price.0;
        json!({"node_hour_usd": usd(hour), "hour_at_max_usd": usd(hour * u64::from(cluster.declared.max))})
    };
    json!({
        "nodes": nodes,
        "how": "one by one: nothing new comes onto a node, it goes once its jobs have ended, and a new one comes where one is needed",
        "jobs_running_there": running,
        "jobs_waiting": before.queue.len(),
        "quotas": quotas,
        "price_before": price(before),
        "price_after": price(after),
    })
}

/// Six places after the point, as text: exact.
fn usd(micro: u64) -> String {
    format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

type Read = fn(&Cluster) -> Value;

const FIELDS: &[(&str, Read)] = &[
    ("size", |cluster| json!(cluster.shape.size)),
    ("tier", |cluster| json!(cluster.shape.tier.canonical())),
    ("dedicated_instances", |cluster| json!(cluster.mix.as_ref().map(|mix| mix.floor.nodes))),
    ("location", |cluster| json!(cluster.location)),
    ("min_instances", |cluster| json!(cluster.declared.min)),
    ("max_instances", |cluster| json!(cluster.declared.max)),
    ("idle_time_before_scale_down", |cluster| json!(cluster.declared.idle_ms / 1_000)),
];

/// A cluster's definition, field by field.
pub(crate) fn definition(cluster: &Cluster, document: &ClusterDocument) -> Vec<(&'static str, Value)> {
    let mut fields: Vec<_> = FIELDS.iter().map(|(field, read)| (*field, read(cluster))).collect();
    fields.push(("tags", json!(document.tags)));
    fields.push(("description", json!(document.description)));
    fields.push(("identity", json!(document.identity.is_some())));
    fields.push(("revision", json!(cluster.revision)));
    fields
}
