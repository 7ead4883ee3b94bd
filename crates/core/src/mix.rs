//! Clusters with nodes of both tiers: a dedicated floor, and low priority above it. Each part is looked at as if it were a
//! cluster by itself, so that one planner serves both.
//!
//! Work fills the floor first and bursts above it; a job that chose a tier takes nodes of that tier alone, and one on
//! several nodes has all of them in one part. It never decides how many nodes there are.

use std::borrow::Cow;

use imbl::OrdSet;
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Scale, Shape, Tier};
use crate::ids::NodeId;
use crate::job::Job;

/// How many nodes are dedicated, and what such a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    pub nodes: u32,
    pub shape: Shape,
}

/// What a cluster with a floor keeps beside what every cluster does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    pub floor: Floor,
    /// The nodes by tier, counted as the cluster counts all of them. Kept by `apply`.
    pub dedicated: Part,
    pub low: Part,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub nodes: OrdSet<NodeId>,
    pub live: u32,
    pub busy: u32,
    pub unheard: u32,
    pub idle: OrdSet<NodeId>,
    pub open: OrdSet<NodeId>,
}

impl Mix {
    pub fn of(floor: Floor) -> Self {
        Self { floor, dedicated: Part::default(), low: Part::default() }
    }

    pub const fn part(&self, tier: Tier) -> &Part {
        match tier {
            Tier::Dedicated => &self.dedicated,
            Tier::LowPriority => &self.low,
        }
    }

    pub(crate) const fn part_mut(&mut self, tier: Tier) -> &mut Part {
        match tier {
            Tier::Dedicated => &mut self.dedicated,
            Tier::LowPriority => &mut self.low,
        }
    }
}

/// Which nodes a job takes, where there are nodes of both tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierChoice {
    /// Of this tier alone.
    #[serde(default)]
    pub only: Option<Tier>,
    /// Dedicated ones alone, once its nodes were taken back this often.
    #[serde(default)]
    pub dedicated_after: Option<u32>,
}

impl TierChoice {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    pub const fn is_open(&self) -> bool {
        self.only.is_none() && self.dedicated_after.is_none()
    }
}

/// How many nodes of each tier a cluster may have at a scale, in force or declared, dedicated ones first.
pub fn maximums(cluster: &Cluster, scale: Scale) -> (u32, u32) {
    let max = scale.max;
    match (&cluster.mix, cluster.shape.tier) {
        (Some(mix), _) => {
            let dedicated = mix.floor.nodes.min(max);
            (dedicated, max - dedicated)
        }
        (None, Tier::Dedicated) => (max, 0),
        (None, Tier::LowPriority) => (0, max),
    }
}

/// The nodes of one tier of a mixed cluster, as a cluster by itself. Its queue is that of the whole.
fn part(cluster: &Cluster, mix: &Mix, tier: Tier) -> Cluster {
    let of = |scale: Scale| {
        let (dedicated, low) = maximums(cluster, scale);
        match tier {
            Tier::Dedicated => Scale { min: scale.min.min(dedicated), max: dedicated, ..scale },
            Tier::LowPriority => Scale { min: scale.min.saturating_sub(dedicated), max: low, ..scale },
        }
    };
    let shape = match tier {
        Tier::Dedicated => &mix.floor.shape,
        Tier::LowPriority => &cluster.shape,
    };
    let Scale { min, max, .. } = of(cluster.scale);
    let part = mix.part(tier);
    // While the other tier has more than it may, all together still have no more than the maximum.
    let max = max.min(part.live.saturating_add(cluster.scale.max.saturating_sub(cluster.live)));
    Cluster {
        shape: shape.clone(),
        scale: Scale { min: min.min(max), max, ..cluster.scale },
        declared: of(cluster.declared),
        nodes: part.nodes.clone(),
        live: part.live,
        busy: part.busy,
        unheard: part.unheard,
        idle: part.idle.clone(),
        open: part.open.clone(),
        mix: None,
        ..cluster.clone()
    }
}

/// A cluster's parts, the dedicated one first; a cluster of one tier is one part, itself.
pub fn parts(cluster: &Cluster) -> Vec<Cow<'_, Cluster>> {
    match &cluster.mix {
        None => vec![Cow::Borrowed(cluster)],
        Some(mix) => {
            [Tier::Dedicated, Tier::LowPriority].map(|tier| Cow::Owned(part(cluster, mix, tier))).into()
        }
    }
}

/// Whether a job may have nodes of this part. Where all nodes are of one tier, the job was let in as it is.
pub fn takes(cluster: &Cluster, part: &Cluster, job: &Job) -> bool {
    cluster.mix.is_none() || job.tier().is_none_or(|tier| tier == part.shape.tier)
}

/// The parts that a job may have its nodes in, with where they are among all.
pub fn parts_for<'a>(cluster: &'a Cluster, job: &Job) -> Vec<(usize, Cow<'a, Cluster>)> {
    let all = parts(cluster).into_iter().enumerate();
    all.filter(|(_, part)| takes(cluster, part, job)).collect()
}

/// The part that a node of this shape is in.
pub fn part_of(cluster: &Cluster, shape: &Shape) -> usize {
    let is_burst = cluster.mix.is_some() && shape.tier == Tier::LowPriority;
    usize::from(is_burst)
}
