//! Which tiers a cluster's nodes have, and whether it has those that a job chose.

use super::jobs::Asked;
use crate::cluster::{Cluster, Scale, Shape, Tier};
use crate::command::PutCluster;
use crate::limits;
use crate::mix::{self, Floor};
use crate::plan::nodes_ever;
use crate::problem::{Code, Problem};
use crate::quota;
use crate::state::State;
use crate::units::MicroUsd;

/// The dedicated floor of a cluster as it is to be; `None` where all of its nodes are of one tier. Of a cluster that has
/// one, what is not asked for stays.
pub(super) fn floor(
    state: &State,
    put: &PutCluster,
    (location, shape): (&str, &Shape),
    scale: Scale,
    existing: Option<&Cluster>,
    problems: &mut Vec<Problem>,
) -> Option<Floor> {
    let kept = existing.and_then(|cluster| cluster.mix.as_ref()).map(|mix| &mix.floor);
    let Some(asked) = put.dedicated else { return kept.cloned() };
    let mut problem = |message: String| {
        problems.push(Problem::new(Code::InvalidScaleSettings, message).at("neapDedicatedNodeCount"));
        kept.cloned()
    };
    let Some(nodes) = u32::try_from(asked).ok().filter(|nodes| *nodes <= limits::CLUSTER_NODES_MAX) else {
        return problem(format!(
            "dedicated_instances is {asked}; it must be between 0 and {}.",
            limits::CLUSTER_NODES_MAX
        ));
    };
    if shape.tier == Tier::Dedicated {
        return if nodes == 0 || nodes == scale.max {
            None
        } else {
            problem(format!(
                "dedicated_instances is {nodes} and the tier is Dedicated: then all nodes are. It is for clusters of tier low_priority, whose other nodes can be taken back."
            ))
        };
    }
    if nodes == 0 && kept.is_none() {
        return None;
    }
    if nodes > scale.max {
        return problem(format!(
            "dedicated_instances is {nodes} and max_instances is {}; the dedicated nodes are a part of all.",
            scale.max
        ));
    }
    let dedicated = kept.map(|floor| floor.shape.clone()).unwrap_or_else(|| {
        let price = state.settings.offer_in(location, &shape.size).and_then(|size| size.dedicated_price);
        Shape { tier: Tier::Dedicated, price: price.unwrap_or(MicroUsd(0)), ..shape.clone() }
    });
    Some(Floor { nodes, shape: dedicated })
}

/// Everything that keeps a cluster from ever giving a job the nodes of the tier that it chose.
pub(super) fn check(cluster: &Cluster, asked: Asked<'_>, problems: &mut Vec<Problem>) {
    let (name, max) = (&cluster.name, cluster.declared.max);
    let mut problem = |message: String| {
        problems.push(Problem::new(Code::JobTierNotAvailable, message).at("queueSettings"));
    };
    let floor = cluster.mix.as_ref().map(|mix| mix.floor.nodes);
    let has_dedicated = match floor {
        Some(nodes) => nodes > 0,
        None => cluster.shape.tier == Tier::Dedicated,
    };
    let has_low =
        cluster.shape.tier == Tier::LowPriority && floor.is_none_or(|nodes| nodes < max || max == 0);
    let cure = "give the compute a dedicated floor ('neap compute update --dedicated-instances N')";
    match asked.tier.only {
        Some(Tier::Dedicated) if !has_dedicated => problem(format!(
            "The job asks for dedicated nodes (queue_settings.job_tier Standard or Premium) and compute '{name}' has low-priority nodes only. Choose Spot or leave job_tier out, name a dedicated compute, or {cure}."
        )),
        Some(Tier::LowPriority) if !has_low => problem(format!(
            "The job asks for low-priority nodes (queue_settings.job_tier Spot) and compute '{name}' has dedicated nodes only. Leave job_tier out, or name a compute of tier low_priority."
        )),
        Some(_) | None => {}
    }
    if asked.tier.dedicated_after.is_some() && !has_dedicated {
        problem(format!(
            "The job is to go on on dedicated nodes once its nodes were taken back (neap.retry.dedicated_after) and compute '{name}' has none. Leave that out, or {cure}."
        ));
    }
}

/// That a job on several nodes can have them, all of one tier.
pub(super) fn check_gang(state: &State, cluster: &Cluster, asked: Asked<'_>, problems: &mut Vec<Problem>) {
    let may = |part: &Cluster, tier: Option<Tier>| tier.is_none_or(|tier| tier == part.shape.tier);
    let wanted = [
        Some(asked.tier.only),
        asked.tier.dedicated_after.map(|_| Some(Tier::Dedicated)).filter(|tier| *tier != asked.tier.only),
    ];
    for tier in wanted.into_iter().flatten() {
        let parts: Vec<_> = mix::parts(cluster).into_iter().filter(|part| may(part, tier)).collect();
        let (dedicated, low) = mix::maximums(cluster, cluster.declared);
        let most = match tier {
            Some(Tier::Dedicated) => dedicated,
            Some(Tier::LowPriority) => low,
            None => dedicated.max(low),
        };
        let of = match tier {
            Some(Tier::Dedicated) => "dedicated nodes",
            Some(Tier::LowPriority) => "low-priority nodes",
            None => "nodes",
        };
        let by_quota = parts.iter().map(|part| quota::nodes_ever(state, part)).max().unwrap_or(0);
        let ever = parts.iter().map(|part| nodes_ever(state, part)).max().unwrap_or(0);
        let mut problem = |code: Code, message: String| {
            problems.push(Problem::new(code, message).at("resources"));
        };
        if asked.nodes > most {
            problem(
                Code::ResourceTooLarge,
                format!(
                    "The job asks for {} {of} at once and compute '{}' has at most {dedicated} dedicated and {low} low-priority ones; a job has all of its nodes of one tier. Raise max_instances or dedicated_instances, or ask for fewer.",
                    asked.nodes, cluster.name
                ),
            );
        } else if asked.nodes > by_quota {
            problem(
                Code::JobNodeCountExceedsCoreQuota,
                format!(
                    "The job asks for {} {of} of {} at once and the quota allows {by_quota}; ask for fewer, or for more quota ('neap quota list', 'neap quota request').",
                    asked.nodes, cluster.shape.size
                ),
            );
        } else if asked.nodes > ever {
            problem(
                Code::ResourceTooLarge,
                format!(
                    "The job asks for {} nodes at once and the provider makes at most {ever} of size {} (local.max_nodes, local.capacity); ask for fewer.",
                    asked.nodes, cluster.shape.size
                ),
            );
        }
    }
}
