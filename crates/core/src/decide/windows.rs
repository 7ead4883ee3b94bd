//! Putting, filling and deleting windows on a cluster's scale. The calendar is not asked here: its answers come with the
//! commands.

use std::sync::Arc;

use super::places::being_deleted;
use crate::cluster::Cluster;
use crate::command::{FillWindow, PutWindow};
use crate::event::{Event, WindowDeleted, WindowFilled, WindowPut};
use crate::ids::ClusterId;
use crate::limits;
use crate::lock::{self, Act, LockScope};
use crate::names;
use crate::problem::{Code, Problem, Refusal};
use crate::state::State;

pub fn put(state: &State, put: PutWindow) -> Result<Vec<Event>, Refusal> {
    super::refuse_while_draining(state)?;
    let cluster = changeable(state, put.cluster)?;
    let mut problems = put.problems;
    let existing = cluster.windows.get(&*put.name.to_lowercase());
    if existing.is_none() {
        problems.extend(names::check_schedule_name(&put.name));
        if cluster.windows.len() >= limits::WINDOWS_PER_CLUSTER_MAX {
            problems.push(Problem::new(
                Code::LimitReached,
                format!(
                    "Compute '{}' has {} schedules, which is the limit; delete one that is not needed.",
                    cluster.name,
                    cluster.windows.len()
                ),
            ));
        }
    }
    let max = bound(cluster, "max", put.max, &mut problems);
    let min = bound(cluster, "min", put.min, &mut problems);
    if put.max.is_none() && put.min.is_none() {
        let message = "The schedule says neither 'min' nor 'max'; give one of them, such as max 0.";
        problems.push(Problem::new(Code::InvalidScaleSettings, message).at("max"));
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let message = format!("min is {min} and max is {max}; the minimum cannot be above the maximum.");
        problems.push(Problem::new(Code::InvalidScaleSettings, message).at("min"));
    }
    Refusal::unless_empty(problems)?;
    Ok(vec![
        WindowPut {
            cluster: cluster.id,
            name: existing.map_or(put.name, |window| window.name.clone()),
            enabled: put.enabled,
            min,
            max,
            stops: put.stops,
            zone: put.zone,
            spans: put.spans,
            refill_at: put.refill_at,
            document: put.document,
            by: put.by,
        }
        .into(),
    ])
}

/// A window can only lower the maximum: the declared one is what the quota holds.
fn bound(cluster: &Cluster, word: &str, asked: Option<i64>, problems: &mut Vec<Problem>) -> Option<u32> {
    let asked = asked?;
    let most = cluster.declared.max;
    let bound = u32::try_from(asked).ok().filter(|bound| *bound <= most);
    if bound.is_none() {
        let raise = if asked > 0 { " Raise max_instances first." } else { "" };
        let message = format!(
            "{word} is {asked} and max_instances of compute '{}' is {most}; a schedule's {word} is between 0 and that, which is what quotas count.{raise}",
            cluster.name
        );
        problems.push(Problem::new(Code::InvalidScaleSettings, message).at(word));
    }
    bound
}

/// Further spans of the same definition; those of an older one count no more.
pub fn fill(state: &State, fill: FillWindow) -> Result<Vec<Event>, Refusal> {
    let FillWindow { cluster, name, document, spans, refill_at } = fill;
    let Some(of) = state.clusters.get(&cluster) else {
        return Err(Refusal::because(Code::ResourceNotFound, "The compute was not found."));
    };
    let Some(window) = of.windows.get(&*name.to_lowercase()) else { return Err(not_found(of, &name)) };
    if window.document != document || (window.spans == spans && window.refill_at == refill_at) {
        return Ok(Vec::new());
    }
    Ok(vec![WindowFilled { cluster, name: window.name.clone(), spans, refill_at }.into()])
}

pub fn delete(state: &State, id: ClusterId, name: &str) -> Result<Vec<Event>, Refusal> {
    let cluster = changeable(state, id)?;
    let window = cluster.windows.get(&*name.to_lowercase()).ok_or_else(|| not_found(cluster, name))?;
    Ok(vec![WindowDeleted { cluster: id, name: window.name.clone() }.into()])
}

fn changeable(state: &State, id: ClusterId) -> Result<&Arc<Cluster>, Refusal> {
    match state.clusters.get(&id) {
        None => Err(Refusal::because(Code::ResourceNotFound, "The compute was not found.")),
        Some(cluster) if cluster.is_deleting() => Err(being_deleted("compute", &cluster.name)),
        Some(cluster) => {
            lock::check(state, &LockScope::Cluster(id), Act::Change)?;
            Ok(cluster)
        }
    }
}

fn not_found(cluster: &Cluster, name: &str) -> Refusal {
    let message = format!(
        "Compute '{}' has no schedule '{name}'; 'neap compute schedule list {}' shows those it has.",
        cluster.name, cluster.name
    );
    Refusal::because(Code::ResourceNotFound, message)
}
