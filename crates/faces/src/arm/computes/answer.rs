//! A cluster as ARM answers it.

use neap_core::State;
use neap_core::cluster::{Cluster, Cut};
use neap_core::documents::ClusterDocument;
use neap_core::mix::{Mix, Part};
use neap_core::node::{Node, NodeState};
use neap_core::state::Workspace;
use serde_json::{Value, json};

use super::super::{paths, system_data};
use super::{advice, identity, read};
use crate::app::Installation;
use crate::durations;
use crate::neap::windows;

pub(super) fn cluster(
    installation: &Installation,
    state: &State,
    workspace: &Workspace,
    cluster: &Cluster,
    document: &ClusterDocument,
) -> Value {
    let nodes: Vec<&Node> = state.nodes_of(cluster).map(AsRef::as_ref).collect();
    let errors = errors(cluster, &nodes);
    let warnings = [read::warnings(document), advice::advice(state, workspace, cluster)].concat();
    let mut resource = json!({
        "id": paths::cluster_id(workspace, cluster),
        "name": cluster.name,
        "type": "Microsoft.MachineLearningServices/workspaces/computes",
        "location": cluster.location,
        "tags": document.tags,
        "identity": identity::answer(installation, cluster.id, document.identity.as_ref()),
        "systemData": system_data("", cluster.created, cluster.modified),
        "properties": {
            "computeType": "AmlCompute",
            "computeLocation": cluster.location,
            "description": document.description,
            "provisioningState": if cluster.is_deleting() { "Deleting" } else { "Succeeded" },
            "provisioningErrors": null,
            "createdOn": cluster.created.rfc3339(),
            "modifiedOn": cluster.modified.rfc3339(),
            "resourceId": null,
            "isAttachedCompute": false,
            "disableLocalAuth": document.local_auth_disabled.unwrap_or(document.admin_user.is_none()),
            "properties": {
                "osType": "Linux",
                "vmSize": cluster.shape.size,
                "vmPriority": cluster.shape.tier.canonical(),
                "scaleSettings": {
                    "minNodeCount": cluster.declared.min,
                    "maxNodeCount": cluster.declared.max,
                    "nodeIdleTimeBeforeScaleDown": durations::format_ms(cluster.declared.idle_ms),
                },
                "subnet": document.subnet.as_ref().map(|id| json!({"id": id})),
                "userAccountCredentials": document.admin_user.as_ref().map(|user| json!({
                    "adminUserName": user,
                    "adminUserPassword": null,
                    "adminUserSshPublicKey": document.admin_key,
                })),
                "remoteLoginPortPublicAccess": document.remote_login.as_deref().unwrap_or("NotSpecified"),
                "enableNodePublicIp": document.public_ip.unwrap_or(true),
                "isolatedNetwork": false,
                "virtualMachineImage": null,
                "propertyBag": {},
                "allocationState": allocation_state(cluster, &nodes),
                "allocationStateTransitionTime": cluster.target_since.rfc3339(),
                "currentNodeCount": nodes.len(),
                "targetNodeCount": cluster.target,
                "nodeStateCounts": counts(&nodes),
                "errors": if errors.is_empty() { Value::Null } else { Value::Array(errors) },
                "neapWarnings": warnings,
                "neapRevision": cluster.revision,
                "neapSchedules": (!cluster.windows.is_empty()).then(|| windows::in_force(cluster, state.now)),
                "neapRolling": rolling(cluster),
            },
        },
    });
    if let Some(mix) = &cluster.mix {
        let settings = &mut resource["properties"]["properties"];
        settings["neapDedicatedNodeCount"] = json!(mix.floor.nodes);
        settings["neapNodesByTier"] = by_tier(mix);
    }
    resource
}

/// How far the replacing of nodes of an older definition is.
fn rolling(cluster: &Cluster) -> Option<Value> {
    let old: Vec<String> = cluster.old.iter().map(|id| format!("n-{id}")).collect();
    (!old.is_empty()).then(|| json!({"oldNodes": old, "toRevision": cluster.revision}))
}

fn by_tier(mix: &Mix) -> Value {
    let of = |part: &Part| json!({"live": part.live, "busy": part.busy});
    json!({"dedicated": of(&mix.dedicated), "lowPriority": of(&mix.low)})
}

fn counts(nodes: &[&Node]) -> Value {
    let count = |word: &str| nodes.iter().filter(|node| node.azure_state() == word).count();
    json!({
        "idleNodeCount": count("idle"),
        "runningNodeCount": count("running"),
        "preparingNodeCount": count("preparing"),
        "unusableNodeCount": count("unusable"),
        "leavingNodeCount": count("leaving"),
        "preemptedNodeCount": count("preempted"),
    })
}

/// Resizing as long as nodes are on their way in or out.
fn allocation_state(cluster: &Cluster, nodes: &[&Node]) -> &'static str {
    let moving = nodes.iter().any(|node| match node.state {
        NodeState::Requested { .. }
        | NodeState::Creating { .. }
        | NodeState::Leaving { .. }
        | NodeState::Preempted { .. } => true,
        NodeState::Preparing { .. } | NodeState::Ready | NodeState::Unusable { .. } => false,
    });
    let live = nodes.iter().filter(|node| node.is_live()).count();
    if moving || live != cluster.target as usize { "Resizing" } else { "Steady" }
}

/// What keeps the cluster from being what the work asks for, and nodes that are broken.
fn errors(cluster: &Cluster, nodes: &[&Node]) -> Vec<Value> {
    let error = |code: &str, message: String| json!({"error": {"code": code, "message": message}});
    let mut out: Vec<Value> = cluster
        .cuts
        .iter()
        .filter_map(|cut| {
            let code = match cut {
                // Work waiting for a free node is what a queue is for.
                Cut::Maximum { .. }
                | Cut::TierMaximum { .. }
                | Cut::Window { .. }
                | Cut::Allowance { .. }
                | Cut::RoomWanted { .. } => return None,
                Cut::Yields { .. } => "DedicatedWorkFirst",
                Cut::ProviderNodes { .. } | Cut::ProviderAtOnce { .. } => "ProviderNodeLimitReached",
                Cut::ProviderCapacity { .. } => "ProviderCapacityReached",
                Cut::Location { .. } => "LocationCapacityReached",
                Cut::BootBackoff { .. } => "NodesFailedToStart",
                Cut::Quota { .. } => "ClusterCoreQuotaReached",
                Cut::Lock { .. } => "ScopeLocked",
                Cut::Budget { .. } => "BudgetReached",
                Cut::Draining => "ServerIsStopping",
            };
            Some(error(code, cut.sentence()))
        })
        .collect();
    if cluster.boot.failures > 0
        && let Some(reason) = &cluster.boot.last_reason
    {
        out.push(error("NodeFailedToStart", reason.to_string()));
    }
    out.extend(
        nodes
            .iter()
            .filter(|node| matches!(node.state, NodeState::Unusable { .. }))
            .map(|node| error("NodeUnusable", format!("Node n-{}: {}", node.id, node.reason))),
    );
    out
}
