//! What a change of a cluster would do, by the machine that would do it: decided and planned on a copy, and dropped.

use std::collections::BTreeSet;

use neap_core::cluster::Cluster;
use neap_core::decide::decide;
use neap_core::documents::ClusterDocument;
use neap_core::plan::{Dirty, plan_into};
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
    let cuts = after.map(|cluster| cluster.cuts.iter().map(|cut| cut.sentence()).collect::<Vec<_>>());
    Ok(json!({
        "dryRun": true,
        "revision": after.map(|cluster| cluster.revision),
        "changes": changes,
        "nodesAdded": count(|event| matches!(event, Event::NodeRequested(_))),
        "nodesLetGo": count(|event| matches!(event, Event::NodeLeaving(_))),
        "cuts": cuts,
        "warnings": after.and_then(|cluster| Some(super::advice::advice(&draft.state, draft.state.workspaces.get(&workspace)?, cluster))),
    }))
}

type Read = fn(&Cluster) -> Value;

const FIELDS: &[(&str, Read)] = &[
    ("size", |cluster| json!(cluster.shape.size)),
    ("tier", |cluster| json!(cluster.shape.tier.canonical())),
    ("location", |cluster| json!(cluster.location)),
    ("min_instances", |cluster| json!(cluster.scale.min)),
    ("max_instances", |cluster| json!(cluster.scale.max)),
    ("idle_time_before_scale_down", |cluster| json!(cluster.scale.idle_ms / 1_000)),
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
