//! Creating, changing and deleting clusters: the rules of AmlCompute.

use std::sync::Arc;

use super::places::{being_deleted, known_location, live_workspace, open_workspace};
use super::tiers;
use crate::catalogue;
use crate::cluster::{Cluster, Scale, Shape, Tier};
use crate::command::{PutCluster, RemakeCluster};
use crate::event::{ClusterCreated, ClusterDeleteRequested, ClusterUpdated, Event, Remade};
use crate::ids::ClusterId;
use crate::job::Need;
use crate::limits;
use crate::lock::{self, Act, LockScope};
use crate::names;
use crate::problem::{Code, Problem, Refusal};
use crate::quota::{self, Declared};
use crate::retired::retired;
use crate::state::State;
use crate::units::MicroUsd;

pub const DEFAULT_SIZE: &str = "STANDARD_DS3_V2";
pub const DEFAULT_MIN: u32 = 0;
pub const DEFAULT_MAX: u32 = 4;
pub const DEFAULT_IDLE_MS: u64 = 120_000;

pub fn put(state: &State, mut put: PutCluster) -> Result<Vec<Event>, Refusal> {
    super::refuse_while_draining(state)?;
    let workspace = live_workspace(state, put.workspace)?;
    let mut problems = std::mem::take(&mut put.problems);
    let scale = check_scale(&put, &mut problems);

    if let Some(existing) = state.cluster(put.workspace, &put.name) {
        if existing.is_deleting() {
            return Err(being_deleted("compute", &put.name));
        }
        lock::check(state, &LockScope::Cluster(existing.id), Act::Change)?;
        check_unchanged(existing, &put, &mut problems);
        let floor = tiers::floor(
            state,
            &put,
            (&existing.location, &existing.shape),
            scale,
            Some(existing),
            &mut problems,
        );
        problems.extend(quota::refusals(
            state,
            Declared {
                workspace: put.workspace,
                location: &existing.location,
                shape: &existing.shape,
                scale,
                floor: floor.as_ref(),
                existing: Some(existing),
            },
        ));
        Refusal::unless_empty(problems)?;
        let revision = existing.revision + 1;
        return Ok(vec![
            ClusterUpdated {
                id: existing.id,
                revision,
                scale,
                floor,
                document: put.document,
                reference: put.reference,
                remade: None,
            }
            .into(),
        ]);
    }

    open_workspace(state, put.workspace)?;
    problems.extend(names::check_cluster_name(&put.name));
    let location =
        known_location(state, put.location.as_deref().unwrap_or(&workspace.location), &mut problems);
    let shape = check_shape(state, &put, &location, &mut problems);
    if let Some(other) = state.cluster_names.get(&(location.clone(), put.name.to_lowercase().into())) {
        let holder = state
            .clusters
            .get(other)
            .and_then(|cluster| state.workspaces.get(&cluster.workspace))
            .map_or_else(String::new, |w| {
                format!(" by workspace '{}' in resource group '{}'", w.name, w.group)
            });
        problems.push(
            Problem::new(
                Code::ComputeNameTaken,
                format!("The compute name '{}' is already used in {location}{holder}. Names are unique in a region; choose another.", put.name),
            )
            .at("name"),
        );
    }
    let floor = shape
        .as_ref()
        .and_then(|shape| tiers::floor(state, &put, (&location, shape), scale, None, &mut problems));
    if let Some(shape) = &shape {
        let workspace = put.workspace;
        problems.extend(quota::refusals(
            state,
            Declared { workspace, location: &location, shape, scale, floor: floor.as_ref(), existing: None },
        ));
    }
    // A taken name is a conflict whatever else is wrong: its code speaks first.
    problems.sort_by_key(|p| p.code != Code::ComputeNameTaken);
    Refusal::unless_empty(problems)?;
    let Some(shape) = shape else {
        return Err(Refusal::because(Code::InvalidVmSize, "The VM size is not known."));
    };
    Ok(vec![
        ClusterCreated {
            id: state.next.cluster,
            workspace: put.workspace,
            name: put.name,
            location,
            shape,
            network: put.network,
            scale,
            floor,
            document: put.document,
            reference: put.reference,
        }
        .into(),
    ])
}

/// Jobs that a message names.
const JOBS_NAMED_MAX: usize = 5;

/// Another size, tier, login or network of a cluster that is there. What it takes is held from now on; of what it took
/// before, only what nodes still use. Refused where jobs of the cluster would not fit any more.
pub fn remake(state: &State, remake: RemakeCluster) -> Result<Vec<Event>, Refusal> {
    super::refuse_while_draining(state)?;
    let RemakeCluster { mut put, make } = remake;
    live_workspace(state, put.workspace)?;
    let Some(existing) = state.cluster(put.workspace, &put.name) else {
        return Err(Refusal::because(Code::ResourceNotFound, "The compute was not found."));
    };
    if existing.is_deleting() {
        return Err(being_deleted("compute", &put.name));
    }
    lock::check(state, &LockScope::Cluster(existing.id), Act::Change)?;
    let mut problems = std::mem::take(&mut put.problems);
    let scale = check_scale(&put, &mut problems);
    check_location(existing, &put, &mut problems);
    let size = put.size.get_or_insert_with(|| existing.shape.size.clone());
    let tier = put.tier.get_or_insert_with(|| existing.shape.tier.canonical().into());
    let same =
        size.eq_ignore_ascii_case(&existing.shape.size) && Tier::parse(tier) == Some(existing.shape.tier);
    let shape = match same {
        // As it was declared, with the price of then.
        true => Some(existing.shape.clone()),
        false => check_shape(state, &put, &existing.location, &mut problems),
    };
    if existing.mix.is_some() && !same {
        problems.push(
            Problem::new(
                Code::PropertyChangeNotAllowed,
                format!(
                    "The size and tier of compute '{}' cannot be changed: it has, or had, nodes of both tiers (dedicated_instances). Delete it and create it again.",
                    existing.name
                ),
            )
            .at("vmSize"),
        );
    }
    let place = &existing.location;
    let floor = shape
        .as_ref()
        .and_then(|shape| tiers::floor(state, &put, (place, shape), scale, Some(existing), &mut problems));
    if let Some(shape) = &shape {
        problems.extend(quota::refusals(
            state,
            Declared {
                workspace: put.workspace,
                location: &existing.location,
                shape,
                scale,
                floor: floor.as_ref(),
                existing: Some(existing),
            },
        ));
        problems.extend(too_large(state, existing, shape));
    }
    Refusal::unless_empty(problems)?;
    let Some(shape) = shape else {
        return Err(Refusal::because(Code::InvalidVmSize, "The VM size is not known."));
    };
    let make = make.unwrap_or_else(|| existing.make.clone());
    let remade = Remade { shape, make, network: put.network };
    let changes =
        remade.shape != existing.shape || remade.make != existing.make || remade.network != existing.network;
    Ok(vec![
        ClusterUpdated {
            id: existing.id,
            revision: existing.revision + 1,
            scale,
            floor,
            document: put.document,
            reference: put.reference,
            remade: changes.then_some(remade),
        }
        .into(),
    ])
}

/// Jobs that have not ended and ask for more than a node of this shape has: they could never run again.
fn too_large(state: &State, cluster: &Cluster, shape: &Shape) -> Option<Problem> {
    let waiting = cluster.queue.iter().map(|key| key.job);
    let jobs = waiting.chain(cluster.waiting.iter().copied()).chain(cluster.active.iter().copied());
    let large: Vec<_> = jobs
        .filter_map(|id| state.jobs.get(&id))
        .filter(|job| matches!(job.need, Need::Share(share) if !shape.nominal.fits(share)))
        .collect();
    if large.is_empty() {
        return None;
    }
    let named: Vec<_> = large.iter().take(JOBS_NAMED_MAX).map(|job| format!("'{}'", job.name)).collect();
    let more = match large.len().saturating_sub(JOBS_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "A node of {} has {}; {}{more} ask for more. Let them end, cancel them, or choose a larger size.",
        shape.size,
        shape.nominal,
        named.join(", ")
    );
    Some(Problem::new(Code::ResourceTooLarge, message).at("vmSize"))
}

pub fn delete(state: &State, id: ClusterId, reason: Arc<str>) -> Result<Vec<Event>, Refusal> {
    match state.clusters.get(&id) {
        None => Err(Refusal::because(Code::ResourceNotFound, "The compute was not found.")),
        Some(cluster) if cluster.is_deleting() => Ok(Vec::new()),
        Some(_) => {
            lock::check(state, &LockScope::Cluster(id), Act::Delete)?;
            Ok(vec![ClusterDeleteRequested { id, reason }.into()])
        }
    }
}

fn check_scale(put: &PutCluster, problems: &mut Vec<Problem>) -> Scale {
    let mut problem = |target: &str, message: String| {
        problems.push(Problem::new(Code::InvalidScaleSettings, message).at(target));
    };
    let mut count = |field: &str, value: Option<i64>, default: u32| match value {
        None => default,
        Some(n) => match u32::try_from(n) {
            Ok(n) if n <= limits::CLUSTER_NODES_MAX => n,
            _ => {
                problem(
                    field,
                    format!("{field} is {n}; it must be between 0 and {}.", limits::CLUSTER_NODES_MAX),
                );
                default
            }
        },
    };
    let min = count("minNodeCount", put.min, DEFAULT_MIN);
    // A minimum above the default maximum needs a stated maximum, which the check below asks for.
    let max = count("maxNodeCount", put.max, DEFAULT_MAX);
    if min > max {
        problem(
            "minNodeCount",
            format!(
                "minNodeCount is {min} and maxNodeCount is {max}; the minimum cannot be above the maximum."
            ),
        );
    }
    let idle_ms = match put.idle_ms {
        None => DEFAULT_IDLE_MS,
        Some(ms) => match u64::try_from(ms) {
            Ok(ms) if ms <= limits::IDLE_TIME_S_MAX * 1000 => ms,
            _ => {
                problem(
                    "nodeIdleTimeBeforeScaleDown",
                    format!(
                        "The idle time is {} seconds; it must be between 0 and {}.",
                        ms / 1000,
                        limits::IDLE_TIME_S_MAX
                    ),
                );
                DEFAULT_IDLE_MS
            }
        },
    };
    Scale { min, max, idle_ms }
}

fn check_shape(
    state: &State,
    put: &PutCluster,
    location: &str,
    problems: &mut Vec<Problem>,
) -> Option<Shape> {
    let tier = put.tier.as_deref().map_or(Some(Tier::Dedicated), Tier::parse);
    if tier.is_none() {
        problems.push(
            Problem::new(
                Code::BadArgument,
                format!(
                    "The tier '{}' is not known; it is Dedicated or LowPriority.",
                    put.tier.as_deref().unwrap_or_default()
                ),
            )
            .at("vmPriority"),
        );
    }
    let asked = put.size.as_deref().unwrap_or(DEFAULT_SIZE);
    let size = state.settings.offer_in(location, asked);
    if let Some(retired) = retired(asked).filter(|_| size.as_ref().is_none_or(|size| !size.own)) {
        problems.push(Problem::new(Code::InvalidVmSize, retired.sentence(asked)).at("vmSize"));
        return None;
    }
    let Some(size) = size else {
        let close = catalogue::resembling(asked);
        let hint = if close.is_empty() {
            String::from(" 'neap compute list-sizes' lists those that are.")
        } else {
            format!(" Did you mean one of {}?", close.join(", "))
        };
        problems.push(
            Problem::new(Code::InvalidVmSize, format!("The VM size '{asked}' is not known.{hint}"))
                .at("vmSize"),
        );
        return None;
    };
    if !size.is_in(location) {
        problems.push(
            Problem::new(
                Code::InvalidVmSize,
                format!(
                    "The VM size '{}' is not offered in {location}; it is in {}.",
                    size.name,
                    size.locations.join(", ")
                ),
            )
            .at("vmSize"),
        );
    }
    let tier = tier?;
    if tier == Tier::LowPriority && !size.low_priority_capable {
        problems.push(
            Problem::new(
                Code::InvalidVmSize,
                format!("The VM size '{}' has no low-priority tier; use Dedicated.", size.name),
            )
            .at("vmPriority"),
        );
    }
    let price = match tier {
        Tier::Dedicated => size.dedicated_price,
        Tier::LowPriority => size.low_priority_price,
    };
    Some(Shape {
        size: size.name.to_ascii_uppercase().into(),
        family: size.family,
        nominal: size.capacity,
        tier,
        price: price.unwrap_or(MicroUsd(0)),
    })
}

fn check_location(existing: &Cluster, put: &PutCluster, problems: &mut Vec<Problem>) {
    if let Some(location) = &put.location
        && names::canonical_location(location) != *existing.location
    {
        problems.push(
            Problem::new(
                Code::PropertyChangeNotAllowed,
                format!(
                    "The location of compute '{}' is {} and cannot be changed to {location}; delete it and create it again.",
                    existing.name, existing.location
                ),
            )
            .at("location"),
        );
    }
}

/// Location, size and tier are for ever: a change is refused in words, never ignored.
fn check_unchanged(existing: &Cluster, put: &PutCluster, problems: &mut Vec<Problem>) {
    check_location(existing, put, problems);
    let mut changed = |target: &str, word: &str, from: &str, to: &str| {
        problems.push(
            Problem::new(
                Code::PropertyChangeNotAllowed,
                format!("The {word} of compute '{}' is {from} and cannot be changed to {to} here; 'neap compute update' replaces its nodes one by one, or delete it and create it again.", existing.name),
            )
            .at(target),
        );
    };
    if let Some(size) = &put.size
        && !size.eq_ignore_ascii_case(&existing.shape.size)
    {
        changed("vmSize", "size", &existing.shape.size, size);
    }
    if let Some(tier) = &put.tier
        && Tier::parse(tier) != Some(existing.shape.tier)
    {
        changed("vmPriority", "tier", existing.shape.tier.canonical(), tier);
    }
}
