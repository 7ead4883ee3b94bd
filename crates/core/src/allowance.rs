//! How much one person or team may have running at a time, on a cluster or in a workspace. What waits for it holds
//! nobody else up, and asks for no nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Cut};
use crate::ids::{ClusterId, WorkspaceId};
use crate::job::Job;
use crate::queue::cores_milli;
use crate::state::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Within {
    Workspace(WorkspaceId),
    Cluster(ClusterId),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Who {
    User(Arc<str>),
    /// Each user by himself.
    EachUser,
    /// All of a team together; the configuration says who is in it.
    Team(Arc<str>),
}

impl Who {
    pub fn words(&self) -> String {
        match self {
            Self::User(name) => format!("user '{name}'"),
            Self::EachUser => "each user".into(),
            Self::Team(name) => format!("team '{name}'"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AllowanceKey {
    pub within: Within,
    pub who: Who,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// Jobs at a time.
    #[serde(default)]
    pub jobs: Option<u32>,
    /// Cores at a time.
    #[serde(default)]
    pub cores: Option<u32>,
}

/// What somebody has, or would have.
#[derive(Clone, Copy, Debug, Default)]
struct Has {
    jobs: u64,
    cores_milli: u64,
}

/// Says of jobs, one after the other, whether their owners may have them beside what they have.
#[derive(Debug)]
pub struct Gate<'a> {
    state: &'a State,
    /// Let through and not yet in the state.
    extra: BTreeMap<Arc<str>, Has>,
}

impl<'a> Gate<'a> {
    pub fn new(state: &'a State) -> Self {
        Self { state, extra: BTreeMap::new() }
    }

    /// Why a job may not be placed now, if so.
    pub fn holds(&self, cluster: &Cluster, job: &Job) -> Option<Cut> {
        if self.state.allowances.is_empty() {
            return None;
        }
        self.holding(cluster, job).next()
    }

    /// Every limit that keeps it from that.
    pub fn holding<'b>(&'b self, cluster: &'b Cluster, job: &'b Job) -> impl Iterator<Item = Cut> + 'b {
        let scopes = [Within::Cluster(cluster.id), Within::Workspace(cluster.workspace)];
        let teams = self.state.settings.teams.iter().filter(|(_, members)| members.contains(&job.owner));
        let teams: Vec<_> = teams.map(|(name, _)| Who::Team(name.clone())).collect();
        let who = [Who::User(job.owner.clone()), Who::EachUser].into_iter().chain(teams);
        let who: Vec<Who> = who.collect();
        let keys = scopes
            .into_iter()
            .flat_map(move |within| who.clone().into_iter().map(move |who| AllowanceKey { within, who }));
        keys.filter_map(|key| {
            let allowance = self.state.allowances.get(&key)?;
            self.passes(&key, *allowance, cluster, job)
        })
    }

    pub fn lets(&mut self, cluster: &Cluster, job: &Job) {
        if !self.state.allowances.is_empty() {
            let has = self.extra.entry(job.owner.clone()).or_default();
            has.jobs += 1;
            has.cores_milli += cores_milli(job, cluster.shape.nominal);
        }
    }

    fn passes(&self, key: &AllowanceKey, allowance: Allowance, cluster: &Cluster, job: &Job) -> Option<Cut> {
        let has = match &key.who {
            Who::User(_) | Who::EachUser => self.has(key.within, &job.owner),
            Who::Team(team) => {
                let members = self.state.settings.teams.get(team).into_iter().flatten();
                members.map(|member| self.has(key.within, member)).fold(Has::default(), |sum, has| Has {
                    jobs: sum.jobs + has.jobs,
                    cores_milli: sum.cores_milli + has.cores_milli,
                })
            }
        };
        let who: Arc<str> = key.who.words().into();
        if let Some(limit) = allowance.jobs.filter(|limit| has.jobs >= u64::from(*limit)) {
            let of = "jobs".into();
            return Some(Cut::Allowance { who, of, limit: limit.into(), in_use: has.jobs, needed: 1 });
        }
        let needed = cores_milli(job, cluster.shape.nominal);
        let limit = allowance.cores.filter(|limit| has.cores_milli + needed > u64::from(*limit) * 1000)?;
        Some(Cut::Allowance {
            who,
            of: "cores".into(),
            limit: limit.into(),
            in_use: has.cores_milli.div_ceil(1000),
            needed: needed.div_ceil(1000),
        })
    }

    fn has(&self, within: Within, owner: &str) -> Has {
        let of = |cluster: &Cluster| {
            let share = cluster.shares.get(owner).copied().unwrap_or_default();
            Has { jobs: share.attempts.into(), cores_milli: share.cores_milli }
        };
        let add = |sum: Has, has: Has| Has {
            jobs: sum.jobs + has.jobs,
            cores_milli: sum.cores_milli + has.cores_milli,
        };
        let there = match within {
            Within::Cluster(id) => self.state.clusters.get(&id).map_or(Has::default(), |c| of(c)),
            Within::Workspace(id) => self.state.clusters_of(id).map(|c| of(c)).fold(Has::default(), add),
        };
        add(there, self.extra.get(owner).copied().unwrap_or_default())
    }
}
