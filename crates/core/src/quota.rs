//! Quotas: how many cores may be held, where, and by whom. A cluster holds its maximum, also at zero nodes; its nodes use
//! what they have until they are gone.
//!
//! Two gates, and both only ever refuse more: declaring a larger maximum ([`refusals`]), and asking for a node ([`node_cut`]).
//! A limit that is lowered below what is held takes nothing away; it shows, and nothing is added.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Cut, Scale, Shape, Tier};
use crate::ids::WorkspaceId;
use crate::location;
use crate::mix::{self, Floor};
use crate::own::Own;
use crate::planted::{self, Bug};
use crate::problem::{Code, Problem};
use crate::state::State;
use crate::units::nodes_are;

/// Whose limit it is. Both count: the tighter one binds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Holder {
    /// Lower-case.
    Subscription(Arc<str>),
    Workspace(WorkspaceId),
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Pool {
    /// Dedicated cores of one family of sizes.
    Family(Arc<str>),
    /// Dedicated cores of all families.
    Dedicated,
    /// Low-priority cores of all families.
    LowPriority,
    Clusters,
    /// Not a sum: the most that one cluster may have.
    NodesPerCluster,
}

impl Pool {
    /// As Azure calls it in `usages` and in errors.
    pub fn azure_name(&self) -> String {
        match self {
            Self::Family(family) => format!("{} Cluster Dedicated vCPUs", family_words(family)),
            Self::Dedicated => "Total Cluster Dedicated Regional vCPUs".into(),
            Self::LowPriority => "Total Cluster LowPriority Regional vCPUs".into(),
            Self::Clusters => "Clusters".into(),
            Self::NodesPerCluster => "Nodes per Cluster".into(),
        }
    }

    /// The same read back, with blanks or underscores, in any case.
    pub fn parse(name: &str, own: &Own) -> Option<Self> {
        let plain = |name: &str| name.replace('_', " ").to_lowercase();
        let name = plain(name);
        let families = own.families().into_iter().map(Self::Family);
        [Self::Dedicated, Self::LowPriority, Self::Clusters, Self::NodesPerCluster]
            .into_iter()
            .chain(families)
            .find(|pool| plain(&pool.azure_name()) == name)
    }

    /// The option of `neap quota set` that names it.
    pub fn flag(&self) -> String {
        match self {
            Self::Family(family) => format!("--family {family}"),
            Self::Dedicated => "--dedicated".into(),
            Self::LowPriority => "--low-priority".into(),
            Self::Clusters => "--clusters".into(),
            Self::NodesPerCluster => "--nodes-per-cluster".into(),
        }
    }

    /// A sum of cores, which nodes use; the others are counts.
    pub const fn counts_cores(&self) -> bool {
        match self {
            Self::Family(_) | Self::Dedicated | Self::LowPriority => true,
            Self::Clusters | Self::NodesPerCluster => false,
        }
    }

    const fn unit(&self) -> &'static str {
        match self {
            Self::Family(_) | Self::Dedicated | Self::LowPriority => "cores",
            Self::Clusters => "clusters",
            Self::NodesPerCluster => "nodes",
        }
    }
}

/// `standardDSv2Family` in words: `Standard DSv2 Family`.
pub fn family_words(family: &str) -> String {
    let stem = family.strip_suffix("Family").unwrap_or(family);
    let stem = stem.strip_prefix("standard").or_else(|| stem.strip_prefix("Standard")).unwrap_or(stem);
    format!("Standard {} Family", stem.trim())
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QuotaKey {
    pub holder: Holder,
    /// Canonical.
    pub location: Arc<str>,
    pub pool: Pool,
}

/// What counts against a limit, kept by `apply` whether or not there is a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// What clusters have declared: cores at their maximum, or how many clusters there are.
    pub held: u64,
    /// Cores of nodes that are not gone.
    pub in_use: u64,
}

/// Who wants another limit, and what was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRequest {
    pub id: u64,
    pub key: QuotaKey,
    pub limit: u64,
    pub by: Arc<str>,
    pub reason: Arc<str>,
    pub at: crate::units::Millis,
    pub answer: Option<QuotaAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaAnswer {
    pub approved: bool,
    pub by: Arc<str>,
    pub reason: Arc<str>,
    pub at: crate::units::Millis,
}

/// Cores as quotas count them: those of the declared size, whatever the machine has.
pub const fn cores(shape: &Shape) -> u64 {
    (shape.nominal.cpus_milli as u64).div_ceil(1_000)
}

/// Everything whose limit a cluster of this shape counts against.
pub fn keys(state: &State, workspace: WorkspaceId, location: &Arc<str>, shape: &Shape) -> Vec<QuotaKey> {
    let subscription = state.workspaces.get(&workspace).map(|w| w.subscription.to_lowercase().into());
    let holders = subscription.map(Holder::Subscription).into_iter().chain([Holder::Workspace(workspace)]);
    let cores = match shape.tier {
        Tier::Dedicated => vec![Pool::Family(shape.family.clone()), Pool::Dedicated],
        Tier::LowPriority => vec![Pool::LowPriority],
    };
    let pools: Vec<Pool> = cores.into_iter().chain([Pool::Clusters, Pool::NodesPerCluster]).collect();
    let key =
        |holder: Holder, pool: &Pool| QuotaKey { holder, location: location.clone(), pool: pool.clone() };
    holders.flat_map(|holder| pools.iter().map(move |pool| key(holder.clone(), pool))).collect()
}

/// What a cluster of this shape and scale holds, of everything whose limit it counts against: of a mixed one the floor
/// counts as dedicated, and the rest as low priority.
pub fn holdings(
    state: &State,
    (workspace, location): (WorkspaceId, &Arc<str>),
    shape: &Shape,
    floor: Option<&Floor>,
    scale: Scale,
) -> BTreeMap<QuotaKey, u64> {
    let floor_nodes = floor.map_or(0, |floor| floor.nodes.min(scale.max));
    let rest = (shape, scale.max - floor_nodes);
    let tiers = floor.map(|floor| (&floor.shape, floor_nodes)).into_iter().chain([rest]);
    let mut held = BTreeMap::new();
    for (shape, nodes) in tiers {
        for key in keys(state, workspace, location, shape) {
            let count = match key.pool {
                Pool::Family(_) | Pool::Dedicated | Pool::LowPriority => cores(shape) * u64::from(nodes),
                Pool::Clusters => 1,
                Pool::NodesPerCluster => 0,
            };
            held.insert(key, count);
        }
    }
    held
}

/// What a cluster holds as it is.
pub fn held_of(state: &State, cluster: &Cluster) -> BTreeMap<QuotaKey, u64> {
    let floor = cluster.mix.as_ref().map(|mix| &mix.floor);
    holdings(state, (cluster.workspace, &cluster.location), &cluster.shape, floor, cluster.declared)
}

/// A cluster as it is to be.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    pub workspace: WorkspaceId,
    pub location: &'a Arc<str>,
    pub shape: &'a Shape,
    pub scale: Scale,
    /// Its dedicated part, where the rest is low priority.
    pub floor: Option<&'a Floor>,
    /// As it is, if it is there.
    pub existing: Option<&'a Cluster>,
}

/// Why this may not be declared: every limit it would pass, with the number asked, who holds what, what is free and what
/// to do. What does not grow passes, whatever the limits say by now.
pub fn refusals(state: &State, wanted: Declared<'_>) -> Vec<Problem> {
    if state.quotas.is_empty() || planted::is(Bug::QuotaNotChecked) {
        return Vec::new();
    }
    let place = (wanted.workspace, wanted.location);
    let asked = holdings(state, place, wanted.shape, wanted.floor, wanted.scale);
    let before = wanted.existing.map(|old| held_of(state, old)).unwrap_or_default();
    let before = |key: &QuotaKey| before.get(key).copied().unwrap_or(0);
    asked.iter().filter_map(|(key, asked)| refusal(state, key, *asked, before(key), wanted)).collect()
}

fn refusal(state: &State, key: &QuotaKey, asked: u64, before: u64, wanted: Declared<'_>) -> Option<Problem> {
    let limit = *state.quotas.get(key)?;
    let per_node = cores(wanted.shape);
    if key.pool == Pool::NodesPerCluster {
        let grows = wanted.existing.is_none_or(|old| wanted.scale.max > old.declared.max);
        let max = u64::from(wanted.scale.max);
        return (grows && max > limit).then(|| {
            let message = format!(
                "maxNodeCount is {max}; {} allows {limit} nodes per cluster in {}. Lower maxNodeCount, or ask for more with 'neap quota request {} --location {} --limit {max}'.",
                holder_words(state, &key.holder), key.location, key.pool.flag(), key.location
            );
            Problem::new(Code::ClusterCoreQuotaReached, message).at("maxNodeCount")
        });
    }
    let held = state.quota_usage.get(key).map_or(0, |usage| usage.held) - before;
    if asked <= before || held + asked <= limit {
        return None;
    }
    let floor = wanted.floor.map_or(0, |floor| floor.nodes.min(wanted.scale.max));
    let least_nodes = match key.pool {
        // Of a mixed cluster the floor comes first.
        Pool::Family(_) | Pool::Dedicated if wanted.floor.is_some() => wanted.scale.min.max(1).min(floor),
        Pool::LowPriority if floor > 0 => wanted.scale.min.saturating_sub(floor),
        _ => wanted.scale.min.max(1),
    };
    let least = match key.pool {
        Pool::Clusters => 1,
        _ => per_node * u64::from(least_nodes),
    };
    let free = limit.saturating_sub(held);
    let unit = key.pool.unit();
    // Azure's two codes: not even the smallest form fits, or the whole does not.
    let (code, asks) = if wanted.existing.is_none() && least > free && key.pool != Pool::Clusters {
        let most = if asked > least { format!(" (the maximum asked for is {asked})") } else { String::new() };
        (
            Code::ClusterMinNodesExceedCoreQuota,
            format!("{} {least} {unit}{most}", nodes_are(least_nodes, &format!(" of {}", wanted.shape.size))),
        )
    } else if key.pool == Pool::Clusters {
        (Code::ClusterCoreQuotaReached, "this is one more cluster".into())
    } else {
        (
            Code::ClusterCoreQuotaReached,
            format!(
                "{} {asked} {unit}",
                nodes_are(asked / per_node.max(1), &format!(" of {} at {per_node} cores", wanted.shape.size))
            ),
        )
    };
    let fits = match key.pool {
        Pool::Clusters => String::new(),
        _ if free >= per_node && free / per_node < u64::from(wanted.scale.min) => {
            format!(" lower minNodeCount and maxNodeCount to {},", free / per_node)
        }
        _ if free >= per_node => format!(" lower maxNodeCount to {},", free / per_node),
        _ => String::new(),
    };
    let message = format!(
        "{} in {}: the limit of {} is {limit} {unit}, {held} are held{}{}, {free} are free, and {asks}. To go on:{fits} lower or delete what holds them, or ask for more with 'neap quota request {} --location {} --limit {}'.{}",
        key.pool.azure_name(),
        key.location,
        holder_words(state, &key.holder),
        if wanted.existing.is_some() { " by others" } else { "" },
        held_by(state, key, wanted.existing),
        key.pool.flag(),
        key.location,
        held + asked,
        location::elsewhere_words(state, wanted.workspace, &key.location, wanted.shape, wanted.scale.max),
    );
    Some(Problem::new(code, message).at(if key.pool == Pool::Clusters { "name" } else { "maxNodeCount" }))
}

/// `: 'a' holds 16, 'b' holds 8`, largest first.
fn held_by(state: &State, key: &QuotaKey, but: Option<&Cluster>) -> String {
    let mut holders: Vec<_> = state
        .clusters
        .values()
        .filter(|cluster| but.is_none_or(|but| but.id != cluster.id) && cluster.location == key.location)
        .map(|cluster| (held_of(state, cluster).get(key).copied().unwrap_or(0), cluster.name.clone()))
        .filter(|(held, _)| *held > 0)
        .collect();
    holders.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let more = holders.len().saturating_sub(HOLDERS_NAMED_MAX);
    let named: Vec<_> =
        holders.iter().take(HOLDERS_NAMED_MAX).map(|(held, name)| format!("'{name}' {held}")).collect();
    match (named.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(" ({})", named.join(", ")),
        (false, _) => format!(" ({} and {more} more)", named.join(", ")),
    }
}

/// How many holders a message names.
const HOLDERS_NAMED_MAX: usize = 5;

/// How many nodes a new cluster of this shape could declare in a location, by the limits there.
pub fn nodes_undeclared(state: &State, workspace: WorkspaceId, location: &Arc<str>, shape: &Shape) -> u32 {
    if state.quotas.is_empty() {
        return u32::MAX;
    }
    let each = cores(shape).max(1);
    least(keys(state, workspace, location, shape).into_iter().filter_map(|key| {
        let limit = *state.quotas.get(&key)?;
        let free = limit.saturating_sub(state.quota_usage.get(&key).map_or(0, |usage| usage.held));
        Some(match key.pool {
            Pool::Family(_) | Pool::Dedicated | Pool::LowPriority => free / each,
            Pool::Clusters if free == 0 => 0,
            Pool::Clusters => u64::MAX,
            Pool::NodesPerCluster => limit,
        })
    }))
}

/// Whether there is a limit in a location that a workspace has to keep to.
pub fn limits_somebody(state: &State, workspace: WorkspaceId, location: &str) -> bool {
    let subscription = state.workspaces.get(&workspace).map(|w| w.subscription.to_lowercase());
    let is_its = |holder: &Holder| match holder {
        Holder::Workspace(id) => *id == workspace,
        Holder::Subscription(name) => subscription.as_deref() == Some(&**name),
    };
    state.quotas.keys().any(|key| *key.location == *location && is_its(&key.holder))
}

/// In the words of a message.
pub fn holder_words(state: &State, holder: &Holder) -> String {
    match holder {
        Holder::Subscription(subscription) => format!("subscription {subscription}"),
        Holder::Workspace(id) => {
            let name = state.workspaces.get(id).map_or_else(|| id.to_string(), |w| w.name.to_string());
            format!("workspace '{name}'")
        }
    }
}

/// Why a cluster may have no further node, if so: of the limits that bind, the first.
pub fn node_cut(state: &State, cluster: &Cluster) -> Option<Cut> {
    let needed = cores(&cluster.shape);
    limits_on_nodes(state, cluster).find_map(|(key, limit, in_use)| {
        (in_use + needed > limit).then_some(Cut::Quota { key, limit, in_use, needed })
    })
}

/// How many more nodes the limits let a cluster have now.
pub fn nodes_free(state: &State, cluster: &Cluster) -> u32 {
    let cores = cores(&cluster.shape).max(1);
    least(limits_on_nodes(state, cluster).map(|(_, limit, in_use)| limit.saturating_sub(in_use) / cores))
}

/// How many nodes the limits ever let a cluster have, were it alone.
pub fn nodes_ever(state: &State, cluster: &Cluster) -> u32 {
    let cores = cores(&cluster.shape).max(1);
    least(limits_on_nodes(state, cluster).map(|(_, limit, _)| limit / cores))
}

/// The limit that never allows so many nodes at once, if one does.
pub fn gang_cut(state: &State, cluster: &Cluster, nodes: u32) -> Option<Cut> {
    let needed = cores(&cluster.shape).saturating_mul(nodes.into());
    let (key, limit, in_use) = limits_on_nodes(state, cluster).find(|(_, limit, _)| *limit < needed)?;
    Some(Cut::Quota { key, limit, in_use, needed })
}

/// The same, with everybody else at their minimum.
pub fn nodes_beside_minimums(state: &State, cluster: &Cluster) -> u32 {
    let cores_each = cores(&cluster.shape).max(1);
    let others = || state.clusters.values().filter(|c| c.id != cluster.id && c.scale.min > 0);
    least(limits_on_nodes(state, cluster).map(|(key, limit, _)| {
        let kept: u64 = others()
            .flat_map(|other| mix::parts(other))
            .filter(|part| keys(state, part.workspace, &part.location, &part.shape).contains(&key))
            .map(|part| cores(&part.shape) * u64::from(part.scale.min))
            .sum();
        limit.saturating_sub(kept) / cores_each
    }))
}

fn least(counts: impl Iterator<Item = u64>) -> u32 {
    counts.min().map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// The limits in force on a cluster's nodes, and what is in use of each.
pub(crate) fn limits_on_nodes<'a>(
    state: &'a State,
    cluster: &Cluster,
) -> impl Iterator<Item = (QuotaKey, u64, u64)> + 'a {
    let keys = if state.quotas.is_empty() {
        Vec::new()
    } else {
        keys(state, cluster.workspace, &cluster.location, &cluster.shape)
    };
    keys.into_iter().filter(|key| key.pool.counts_cores()).filter_map(|key| {
        let limit = *state.quotas.get(&key)?;
        let in_use = state.quota_usage.get(&key).map_or(0, |usage| usage.in_use);
        Some((key, limit, in_use))
    })
}

impl fmt::Display for QuotaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.pool.azure_name(), self.location)
    }
}
